"""The pages of sessions: a list of them, the latest alive first, and one with its turns, its notes and its children.

The forms of the latter are plain ones, which need no script. That only our own pages may send them is the gate's
affair.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from arbiter import clock
from arbiter.control.pages import look
from arbiter.control.session_acts import NOTE_CHARS, Acts, NoSession
from arbiter.ledger import query
from arbiter.ledger.database import Database
from arbiter.ledger.query import BadParameter
from arbiter.ledger.questions import sessions
from arbiter.ledger.store import Readable, StoreDown
from arbiter.sessions.naming import TITLE_CHARS

PATH = "/admin/ui/sessions"


class SessionPages:
    """`render` makes a page of a template's name and its values. `store` and `acts` None: nothing is recorded."""

    def __init__(self, store: Readable | None, acts: Acts | None, render: Callable[..., Response]) -> None:
        self._store = store
        self._acts = acts
        self._render = partial(render, note_chars=NOTE_CHARS, title_chars=TITLE_CHARS)

    def routes(self) -> list[Route]:
        return [
            Route(PATH, self.listing),
            Route(PATH + "/{id:path}", self.session),
            Route(PATH + "/{id:path}", self.act, methods=["POST"]),
        ]

    def listing(self, request: Request) -> Response:
        """All sessions, or those that the filters ask for."""

        def page(db: Database) -> Response:
            # An empty field of the form asks for nothing.
            asked = {name: value for name, value in query.once(request.query_params.multi_items()).items() if value}
            listed = sessions.listing(db, sessions.parse(asked, clock.now_ms()))
            kept = {name: value for name, value in asked.items() if name != "cursor"}
            older = _link({**kept, "cursor": listed.next}) if listed.next else None
            newest = _link(kept) if "cursor" in asked else None
            return self._render(
                "sessions.html", found=listed.sessions, asked=asked, path=PATH, link=link, older=older, newest=newest
            )

        return look(self._store, self._render, PATH, page)

    def session(self, request: Request) -> Response:
        """One session; 404 where there is none of this id."""

        def page(db: Database) -> Response:
            found = sessions.detail(db, request.path_params["id"])
            return self._render("session.html", 200 if found is not None else 404, found=found, path=PATH, link=link)

        return look(self._store, self._render, PATH, page)

    async def act(self, request: Request) -> Response:
        """What one of the page's forms asks for; answered with the page as it is then."""
        return await run_in_threadpool(self._act, request, await request.body())

    def _act(self, request: Request, body: bytes) -> Response:
        key, acts = request.path_params["id"], self._acts
        if acts is None:
            return self._render("off.html", 503, path=PATH)
        try:
            asked = query.once(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=8))
            text = asked.get("text", "")
            match asked.get("act"):
                case "end":
                    acts.end(request, key)
                case "note":
                    acts.note(request, key, text)
                case "title":
                    acts.title(request, key, text)
                case "clear_title":
                    acts.clear_title(request, key)
                case _:
                    raise BadParameter("act", "end, note, title or clear_title")
        except NoSession:
            return self._render("session.html", 404, found=None, path=PATH, link=link)
        except StoreDown as error:
            return self._render("down.html", 503, reason=str(error), path=PATH)
        except ValueError as error:  # BadParameter, or more fields than any form of ours has
            return self._render("wrong.html", 400, reason=str(error), path=PATH)
        return RedirectResponse(link(key), 303)


def link(key: str) -> str:
    """Where the session of this id is shown."""
    return f"{PATH}/{quote(key, safe=':@.,_-')}"


def _link(asked: Mapping[str, Any]) -> str:
    return f"{PATH}?{urlencode(asked)}" if asked else PATH
