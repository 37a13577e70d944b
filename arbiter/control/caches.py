"""The administration's view of prompt caches: what they saved, what was lost of them, and why."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from arbiter.control.api import answer, json
from arbiter.ledger.questions import cache
from arbiter.ledger.store import Readable


class Caches:
    """The endpoint under /admin/api/. `store` None: nothing is recorded."""

    def __init__(self, store: Readable | None) -> None:
        self._store = store

    def routes(self) -> list[Route]:
        return [Route("/admin/api/cache", self.cache)]

    def cache(self, request: Request) -> Response:
        """A report by cause, and the largest losses."""
        return answer(
            request, self._store, cache.parse, cache.report, lambda found, asked: json(cache.as_json(found, asked))
        )
