"""The administration's search: where words were said."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from arbiter import clock
from arbiter.control.api import fault, json, store_down, store_off
from arbiter.ledger import query
from arbiter.ledger.questions import search
from arbiter.ledger.store import Readable, StoreDown


class Searches:
    """The endpoint under /admin/api/. `store` None: nothing is recorded."""

    def __init__(self, store: Readable | None) -> None:
        self._store = store

    def routes(self) -> list[Route]:
        return [Route("/admin/api/search", self.search)]

    def search(self, request: Request) -> Response:
        """The best matches first. No text is a wrong one to look for."""
        try:
            filters = search.parse(query.once(request.query_params.multi_items()), clock.now_ms())
        except query.BadParameter as error:
            return fault(400, str(error), parameter=error.name)
        if self._store is None:
            return store_off()
        try:
            found = self._store.read(lambda database: search.find(database, filters))
        except StoreDown as error:
            return store_down(error)
        if found.state == "off":
            return fault(503, "there is no index to search: `search.index` is off", reason="search_off")
        return json(search.as_json(found))
