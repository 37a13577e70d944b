"""The administration's view of prompt caches: what they saved, what was lost of them, and why."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from arbiter import clock
from arbiter.control.api import fault, json, store_down, store_off
from arbiter.ledger import query
from arbiter.ledger.questions import cache
from arbiter.ledger.store import Readable, StoreDown


class Caches:
    """The endpoint under /admin/api/. `store` None: nothing is recorded."""

    def __init__(self, store: Readable | None) -> None:
        self._store = store

    def routes(self) -> list[Route]:
        return [Route("/admin/api/cache", self.cache)]

    def cache(self, request: Request) -> Response:
        """A report by cause, and the largest losses."""
        try:
            filters = cache.parse(query.once(request.query_params.multi_items()), clock.now_ms())
        except query.BadParameter as error:
            return fault(400, str(error), parameter=error.name)
        if self._store is None:
            return store_off()
        try:
            found = self._store.read(lambda database: cache.report(database, filters))
        except StoreDown as error:
            return store_down(error)
        return json(cache.as_json(found, filters))
