"""Sessions as the administration shows them, and what an operator may do to one: end it, and say something of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from arbiter import clock
from arbiter.control.actions import Malformed, members_of
from arbiter.control.api import fault, json, store_down, store_off
from arbiter.control.audit import Audit, who_asks
from arbiter.ledger import query, sessions
from arbiter.ledger.database import Database
from arbiter.ledger.query import BadParameter
from arbiter.ledger.questions import sessions as questions
from arbiter.ledger.store import Changer, Readable, StoreDown

NOTE_CHARS = 4096
UNKNOWN = "there is no session of this id; an id is `client session`, as the list shows it"

T = TypeVar("T")


class Sessions:
    """The endpoints under /admin/api/sessions. `store` and `changer` None: nothing is recorded."""

    def __init__(self, store: Readable | None, changer: Changer | None, audit: Audit) -> None:
        self._store = store
        self._changer = changer
        self._audit = audit

    def routes(self) -> list[Route]:
        return [
            Route("/admin/api/sessions", self.listing),
            Route("/admin/api/sessions/{id:path}/end", self.end, methods=["POST"]),
            Route("/admin/api/sessions/{id:path}/notes", self.add_note, methods=["POST"]),
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
        body = await request.body()
        return await run_in_threadpool(self._end, request, body)

    def _end(self, request: Request, body: bytes) -> Response:
        key, now_ms = request.path_params["id"], clock.now_ms()
        try:
            members_of(request, body, ())
        except BadParameter as error:
            return fault(400, str(error), parameter=error.name)
        except Malformed as error:
            return fault(400, str(error))

        def work(db: Database) -> bool | None:
            return sessions.end(db, key, now_ms) if sessions.find(db, [key]) else None

        return self._change(request, "end", key, work, lambda ended: {"ended": ended})

    async def add_note(self, request: Request) -> Response:
        """Say something of a session."""
        body = await request.body()
        return await run_in_threadpool(self._add_note, request, body)

    def _add_note(self, request: Request, body: bytes) -> Response:
        key, now_ms = request.path_params["id"], clock.now_ms()
        try:
            text = members_of(request, body, ("text",)).get("text", "").strip()
            if not text or len(text) > NOTE_CHARS:
                raise BadParameter("text", f"between 1 and {NOTE_CHARS} characters")
        except BadParameter as error:
            return fault(400, str(error), parameter=error.name)
        except Malformed as error:
            return fault(400, str(error))

        def work(db: Database) -> object:
            if not sessions.find(db, [key]):
                return None
            return msgspec.structs.asdict(sessions.add_note(db, key, now_ms, who_asks(request), text))

        return self._change(request, "note", key, work, lambda note: {"note": note})

    def _read(self, question: Callable[[Database], Response]) -> Response:
        if self._store is None:
            return store_off()
        try:
            return self._store.read(question)
        except StoreDown as error:
            return store_down(error)

    def _change(
        self,
        request: Request,
        action: str,
        key: str,
        work: Callable[[Database], T | None],
        told: Callable[[T], object],
    ) -> Response:
        if self._changer is None:
            return store_off()
        try:
            done = self._changer.change(work)
        except StoreDown as error:
            return fault(503, f"the store cannot be written: {error}", reason="store_down")
        if done is None:
            return fault(404, UNKNOWN)
        if done is not False:
            self._audit.note(request, action, key)
        return json(told(done))
