"""Sessions as the administration tells programs of them, and what an operator may do to one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from arbiter import clock
from arbiter.control.actions import Malformed, members_of
from arbiter.control.api import fault, json, store_down, store_off
from arbiter.control.session_acts import Acts, NoSession
from arbiter.ledger import query
from arbiter.ledger.database import Database
from arbiter.ledger.query import BadParameter
from arbiter.ledger.questions import sessions as questions
from arbiter.ledger.store import Readable, StoreDown

UNKNOWN = "there is no session of this id; an id is `client session`, as the list shows it"


class Sessions:
    """The endpoints under /admin/api/sessions. `store` and `acts` None: nothing is recorded."""

    def __init__(self, store: Readable | None, acts: Acts | None) -> None:
        self._store = store
        self._acts = acts

    def routes(self) -> list[Route]:
        return [
            Route("/admin/api/sessions", self.listing),
            Route("/admin/api/sessions/{id:path}/end", self.end, methods=["POST"]),
            Route("/admin/api/sessions/{id:path}/notes", self.add_note, methods=["POST"]),
            Route("/admin/api/sessions/{id:path}/title", self.title, methods=["POST"]),
            Route("/admin/api/sessions/{id:path}/title/clear", self.clear_title, methods=["POST"]),
            Route("/admin/api/sessions/{id:path}", self.session),
        ]

    def listing(self, request: Request) -> Response:
        """A page of sessions, the latest alive first."""
        try:
            filters = questions.parse(query.once(request.query_params.multi_items()), clock.now_ms())
        except BadParameter as error:
            return fault(400, str(error), parameter=error.name)
        return self._read(lambda db: json(questions.page_json(questions.listing(db, filters))))

    def session(self, request: Request) -> Response:
        """One session with its latest requests, its notes and those it started."""
        params = dict(request.query_params)
        try:
            limit = query.integer("limit", params.pop("limit", str(questions.DEFAULT_TURNS)), 1, questions.MAX_LIMIT)
            for name in params:
                raise BadParameter(name[:80], "no such parameter; there is limit")
        except BadParameter as error:
            return fault(400, str(error), parameter=error.name)
        key = request.path_params["id"]

        def look(db: Database) -> Response:
            found = questions.detail(db, key, limit)
            return json(questions.detail_json(found)) if found is not None else fault(404, UNKNOWN)

        return self._read(look)

    async def end(self, request: Request) -> Response:
        """End a session; a call that comes later opens it again."""
        return await self._act(request, (), lambda acts, key, _: {"ended": acts.end(request, key)})

    async def add_note(self, request: Request) -> Response:
        """Say something of a session."""

        def act(acts: Acts, key: str, text: str) -> dict[str, Any]:
            return {"note": msgspec.structs.asdict(acts.note(request, key, text))}

        return await self._act(request, ("text",), act)

    async def title(self, request: Request) -> Response:
        """Give a session a title."""

        def act(acts: Acts, key: str, text: str) -> dict[str, Any]:
            title, changed = acts.title(request, key, text)
            return {"title": title, "changed": changed}

        return await self._act(request, ("text",), act)

    async def clear_title(self, request: Request) -> Response:
        """Take a session's title and summary away."""
        return await self._act(request, (), lambda acts, key, _: {"cleared": acts.clear_title(request, key)})

    async def _act(
        self, request: Request, members: tuple[str, ...], act: Callable[[Acts, str, str], dict[str, Any]]
    ) -> Response:
        return await run_in_threadpool(self._answer, request, await request.body(), members, act)

    def _answer(
        self, request: Request, body: bytes, members: tuple[str, ...], act: Callable[[Acts, str, str], dict[str, Any]]
    ) -> Response:
        try:
            text = members_of(request, body, members).get("text", "")
            if self._acts is None:
                return store_off()
            return json(act(self._acts, request.path_params["id"], text))
        except BadParameter as error:
            return fault(400, str(error), parameter=error.name)
        except Malformed as error:
            return fault(400, str(error))
        except NoSession:
            return fault(404, UNKNOWN)
        except StoreDown as error:
            return fault(503, f"the store cannot be written: {error}", reason="store_down")

    def _read(self, question: Callable[[Database], Response]) -> Response:
        if self._store is None:
            return store_off()
        try:
            return self._store.read(question)
        except StoreDown as error:
            return store_down(error)
