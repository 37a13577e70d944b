"""The page that shows what just happened: requests, newest first, each opening to its attempts.

Server-rendered. The list asks for itself again every two seconds and says what it shows by a fingerprint; nothing
new is answered by 204, so an idle page neither flickers nor loses the reader's place. Without scripts it is a plain
page with links.
"""

from __future__ import annotations

import shlex
import zlib
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import jinja2
import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from arbiter import __version__, clock
from arbiter.config.snapshot import Alias, Provider, Snapshot
from arbiter.control import contents, show, timeline
from arbiter.ledger import query
from arbiter.ledger.database import Database
from arbiter.ledger.query import BadParameter
from arbiter.ledger.recorder import RecorderState
from arbiter.ledger.store import QueryTooSlow, Readable, StoreDown

HOME = "/admin/ui/"
VIEWS = {HOME: "Requests", HOME + "sessions": "Sessions", HOME + "cost": "Cost", HOME + "cache": "Cache"}
ROWS = 50
FILTERS = ("trace", "provider", "client", "status", "errors", "since", "session", "affinity_key", "kind", "cursor")
OWN = ("fragment", "seen")  # what the page itself asks with

# The page has no inline script or style, so the browser may refuse all of them, ours and others'.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)


class Pages:
    """The endpoints under /admin/ui/."""

    def __init__(
        self,
        store: Readable | None,
        recorder_state: Callable[[], RecorderState] | None,
        snapshot: Callable[[], Snapshot],
    ) -> None:
        self._store = store
        self._recorder_state = recorder_state
        self._snapshot = snapshot
        self._templates = jinja2.Environment(
            loader=jinja2.PackageLoader("arbiter.control"),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=jinja2.StrictUndefined,
        )
        self._templates.filters.update(
            clock=show.clock,
            cost=show.cost,
            count=show.count,
            day=show.day,
            duration=show.duration,
            ended=show.ended,
            iso=show.iso,
            later=show.later,
            loss=show.loss,
            percent=show.percent,
            pin=show.pin,
            size=show.size,
            status=show.status,
            target=show.target,
            text=show.text,
            thousands=show.thousands,
            tokens=show.tokens,
            upstream=show.upstream,
            usd=show.usd,
            why=show.why,
        )
        self._templates.globals.update(
            version=__version__,
            home=HOME,
            views=VIEWS,
            path=HOME,  # where the page is without its filters, for those that say no other
            stretches=timeline.stretches,
            sums=show.sums,
            counted=show.counted,
            losses=show.LOSSES,
            pace=show.pace,
            approximate=show.APPROXIMATE,
            at_least=show.AT_LEAST,
            min_prefix=query.MIN_PREFIX,
        )

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/admin", _to_home),
            Route("/admin/", _to_home),
            Route("/admin/ui", _to_home),
            Route(HOME, self.page),
            Route(HOME + "requests", self.rows),
            Route(HOME + "requests/{id}", self.page),
            Mount(HOME + "static", StaticFiles(packages=[("arbiter.control", "static")])),
        ]

    def page(self, request: Request) -> Response:
        """The whole page, with the request of the path opened where there is one; `fragment=1`: only that request."""
        opened = request.path_params.get("id")
        if self._store is None:
            return self.render("off.html", 503)
        try:
            entry = self._store.request(opened) if opened is not None else None
            if entry is None and opened is not None and (place := self._of_trace(opened)) is not None:
                return RedirectResponse(f"{place}?{request.url.query}".rstrip("?"), 302)
            captured: dict[str, Any] = {"content": None}
            if entry is not None:
                captured = contents.for_detail(self._store, self._snapshot(), entry.request.id)
            if request.query_params.get("fragment") == "1":
                found = 404 if opened is not None and entry is None else 200
                return self.render("detail.html", found, entry=entry, opened=opened, **captured)
            listing = self._list(request)
        except QueryTooSlow as error:
            return self.render("slow.html", 503, reason=str(error))
        except StoreDown as error:
            return self.render("down.html", 503, reason=str(error))
        except BadParameter as error:
            return self.render("wrong.html", 400, reason=str(error))
        status = 404 if opened is not None and entry is None else 200
        return self.render("page.html", status, entry=entry, opened=opened, **captured, **listing)

    def _of_trace(self, opened: str) -> str | None:
        """Where the request is that has this for its trace id, or the requests that do; None where there are none."""
        assert self._store is not None
        try:
            found = self._store.requests(msgspec.structs.replace(query.parse({"trace": opened}, 0), limit=2)).entries
        except BadParameter:
            return None
        if len(found) == 1:
            return f"{HOME}requests/{found[0].request.id}"
        return f"{HOME}?{urlencode({'trace': opened})}" if found else None

    def rows(self, request: Request) -> Response:
        """The list alone, as it refreshes itself; 204 when it would be what `seen` says is there already."""
        if self._store is None:
            return Response(status_code=503)
        try:
            listing = self._list(request)
        except StoreDown:
            return Response(status_code=503)
        except BadParameter:
            return Response(status_code=400)
        if request.query_params.get("seen") == listing["seen"]:
            return Response(status_code=204, headers={"cache-control": "no-store"})
        return self.render("list.html", **listing)

    def _list(self, request: Request) -> dict[str, Any]:
        """What the list shows. Errors: StoreDown, BadParameter."""
        assert self._store is not None
        given = query.once(request.query_params.multi_items())
        for name in given:
            if name not in FILTERS and name not in OWN:
                raise BadParameter(name, f"the page has no such filter; it has {', '.join(FILTERS)}")
        # An empty field of the form asks for nothing.
        asked = {name: value for name, value in given.items() if name in FILTERS and value}
        filters = msgspec.structs.replace(query.parse(asked, clock.now_ms()), limit=ROWS)
        page = self._store.requests(filters)
        books = self._recorder_state() if self._recorder_state is not None else RecorderState()
        kept = {name: value for name, value in asked.items() if name != "cursor"}
        shown: dict[str, Any] = {
            "entries": page.entries,
            "asked": asked,
            "is_live": "cursor" not in asked,
            "older": f"{HOME}?{urlencode({**kept, 'cursor': page.next})}" if page.next else None,
            "newest": f"{HOME}?{urlencode(kept)}" if kept else HOME,
            "again": urlencode(asked),
            "books": books,
            "try_line": self._try_line(),
            "storage": self._snapshot().storage.shown,
        }
        shown["is_approximate"] = any(entry.is_approximate for entry in page.entries)
        known = (page.entries[0].request.id if page.entries else "", len(page.entries), books.healthy, books.reason)
        shown["seen"] = f"{zlib.crc32(repr((known, _waiting(books), asked)).encode()):08x}"
        return shown

    def _try_line(self) -> tuple[str, str]:
        """A first request for whoever sees an empty list: the gateway's address, and the rest of the command."""
        snapshot = self._snapshot()
        model, wire = "MODEL", "any"
        for provider in snapshot.providers.values():
            if provider.models:
                model, wire = provider.models[0].id, provider.wire
                break
        for alias in list(snapshot.aliases.values())[:1]:
            model, wire = alias.name, _first_provider(snapshot, alias).wire
        body: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": "Say hello"}], "stream": True}
        path, headers = "/v1/chat/completions", ["content-type: application/json"]
        if wire == "anthropic-messages":
            path = "/v1/messages"
            body["max_tokens"] = 100
            headers.append("anthropic-version: 2023-06-01")
        if snapshot.auth.mode == "require":
            headers.append("authorization: Bearer YOUR-KEY")
        host = snapshot.server.bind
        host = "127.0.0.1" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
        words = " ".join(f"-H {shlex.quote(header)}" for header in headers)
        return (
            f"http://{host}:{snapshot.server.port}",
            f"{path} {words} -d {shlex.quote(msgspec.json.encode(body).decode())}",
        )

    def render(self, template: str, status: int = 200, **values: Any) -> Response:
        """A page made of a template and its values."""
        snapshot = self._snapshot()
        text = self._templates.get_template(template).render(snapshot=snapshot, epoch=snapshot.epoch, **values)
        return Response(
            text,
            status,
            media_type="text/html",
            headers={
                "cache-control": "no-store",
                "content-security-policy": CONTENT_SECURITY_POLICY,
                # With none at all a browser would not say of a form's request that it is from here.
                "referrer-policy": "same-origin",
                "x-content-type-options": "nosniff",
            },
        )


def look(
    store: Readable | None, render: Callable[..., Response], path: str, page: Callable[[Database], Response]
) -> Response:
    """What `page` makes of the store, or why it cannot be shown; `path` is where it is without filters."""
    if store is None:
        return render("off.html", 503, path=path)
    try:
        return store.read(page)
    except QueryTooSlow as error:
        return render("slow.html", 503, reason=str(error), path=path)
    except StoreDown as error:
        return render("down.html", 503, reason=str(error), path=path)
    except BadParameter as error:
        return render("wrong.html", 400, reason=str(error), path=path)


def _first_provider(snapshot: Snapshot, alias: Alias) -> Provider:
    """Of a group the first member's, as deep as groups go; the configuration holds no circle."""
    member = alias.members[0]
    if member.provider is not None:
        return snapshot.providers[member.provider]
    return _first_provider(snapshot, snapshot.aliases[member.alias or ""])


def _waiting(books: RecorderState) -> int:
    """Rows worth a word: a handful under way is how a healthy recorder looks."""
    return books.depth if not books.healthy else 0


def _to_home(request: Request) -> Response:
    return RedirectResponse(HOME, 307)
