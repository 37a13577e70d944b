"""The JSON half of the administration: what was asked, and how the gateway is doing."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from arbiter import __version__, clock
from arbiter.config.snapshot import Snapshot
from arbiter.ledger import query
from arbiter.ledger.database import Database
from arbiter.ledger.recorder import RecorderState
from arbiter.ledger.store import QueryTooSlow, Readable, StoreDown

P = TypeVar("P")
T = TypeVar("T")

STORE_OFF = "nothing is recorded: `storage.url` is `none`"


class Api:
    """The endpoints under /admin/api/. They are plain functions, which Starlette runs in threads."""

    def __init__(
        self,
        store: Readable | None,
        recorder_state: Callable[[], RecorderState] | None,
        snapshot: Callable[[], Snapshot],
        extra: Callable[[], dict[str, Any]] | None,
    ) -> None:
        self._store = store
        self._recorder_state = recorder_state
        self._snapshot = snapshot
        self._extra = extra
        self._began_ms = clock.now_ms()
        self._began = clock.monotonic()

    def routes(self) -> list[Route]:
        return [
            Route("/admin/api/requests", self.requests),
            Route("/admin/api/requests/{id}", self.request),
            Route("/admin/api/state", self.state),
        ]

    def requests(self, request: Request) -> Response:
        """A page of requests, newest first."""
        try:
            filters = query.parse(query.once(request.query_params.multi_items()), clock.now_ms())
        except query.BadParameter as error:
            return fault(400, str(error), parameter=error.name)
        if self._store is None:
            return store_off()
        try:
            page = self._store.requests(filters)
        except StoreDown as error:
            return store_down(error)
        return json(
            {"requests": [query.as_json(entry, attempts=False) for entry in page.entries], "next": page.next},
        )

    def request(self, request: Request) -> Response:
        """One request with its attempts."""
        if self._store is None:
            return store_off()
        try:
            entry = self._store.request(request.path_params["id"])
        except StoreDown as error:
            return store_down(error)
        if entry is None:
            return fault(404, "there is no request of this id")
        return json(query.as_json(entry, attempts=True))

    def state(self, request: Request) -> Response:
        """How the gateway is doing: processes, journal, recorder, store."""
        shown = self.describe()
        unshared = request.headers.get("x-arbiter-sharing")
        if unshared and "sharing" in shown:
            shown["sharing"] = {"healthy": False, "reason": unshared}
        return json(shown)

    def describe(self) -> dict[str, Any]:
        """What `state` answers, as values."""
        snapshot = self._snapshot()
        shown: dict[str, Any] = {
            "version": __version__,
            "epoch": snapshot.epoch,
            "control": {
                "pid": os.getpid(),
                "started_ms": self._began_ms,
                "uptime_s": round(clock.monotonic() - self._began, 3),
            },
            "storage": {
                "url": snapshot.storage.shown,
                "on": self._store is not None,
                "on_full": snapshot.storage.on_full,
            },
            "store": self._describe_store(),
            "recorder": None,
            "journal": None,
            "workers": [],
        }
        if self._recorder_state is not None:
            state = self._recorder_state()
            shown["recorder"] = {
                "healthy": state.healthy,
                "reason": state.reason,
                "recorded": state.recorded,
                "interrupted": state.interrupted,
                "rejected": state.rejected,
                "spoilt": state.spoilt,
                "last_batch_ms": state.last_batch_ms,
            }
            shown["journal"] = {
                "depth": state.depth,
                "open": state.open,
                "bytes": state.journal_bytes,
                "limit_bytes": state.journal_limit_bytes,
            }
            shown["workers"] = state.workers
        if self._extra is not None:
            shown |= self._extra()
        return shown

    def _describe_store(self) -> dict[str, Any]:
        if self._store is None:
            return {"healthy": True, "reason": STORE_OFF, "requests_about": None, "attempts_about": None}
        try:
            counts = self._store.counts()
        except StoreDown as error:
            is_busy = isinstance(error, QueryTooSlow)
            return {"healthy": is_busy, "reason": str(error), "requests_about": None, "attempts_about": None}
        return {"healthy": True, "reason": "", "requests_about": counts.requests, "attempts_about": counts.attempts}


def json(value: Any, status: int = 200) -> Response:
    """A JSON answer that nobody keeps."""
    headers = {"cache-control": "no-store"}
    return Response(msgspec.json.encode(value), status, media_type="application/json", headers=headers)


def fault(code: int, detail: str, **more: str) -> Response:
    """Every error of the administration has this shape; `more` tells a program what the text tells people."""
    return json({"code": code, "detail": detail, **more}, code)


def answer(
    request: Request,
    store: Readable | None,
    parse: Callable[[Mapping[str, str], int], P],
    find: Callable[[Database, P], T],
    show: Callable[[T, P], Response],
) -> Response:
    """What the store says to a question: `parse` reads the query's parameters, `find` looks, `show` tells.

    400 for a parameter that is none, 503 where nothing is recorded or the store does not answer.
    """
    try:
        asked = parse(query.once(request.query_params.multi_items()), clock.now_ms())
    except query.BadParameter as error:
        return fault(400, str(error), parameter=error.name)
    if store is None:
        return store_off()
    try:
        found = store.read(lambda database: find(database, asked))
    except StoreDown as error:
        return store_down(error)
    return show(found, asked)


def store_off() -> Response:
    """503, so that "nothing is kept" is never taken for "nothing happened"."""
    return fault(503, STORE_OFF, reason="storage_off")


def store_down(error: StoreDown) -> Response:
    """503, with a reason that tells a store that fails from a question that asks too much of it."""
    if isinstance(error, QueryTooSlow):
        return fault(503, str(error), reason="query_too_slow")
    return fault(503, f"the store cannot be read: {error}", reason="store_down")
