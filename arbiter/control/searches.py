"""The administration's search: where words were said."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from arbiter.control.api import answer, fault, json
from arbiter.ledger.questions import search
from arbiter.ledger.store import Readable


class Searches:
    """The endpoint under /admin/api/. `store` None: nothing is recorded."""

    def __init__(self, store: Readable | None) -> None:
        self._store = store

    def routes(self) -> list[Route]:
        return [Route("/admin/api/search", self.search)]

    def search(self, request: Request) -> Response:
        """The best matches first. No text is a wrong one to look for."""
        return answer(request, self._store, search.parse, search.find, _told)


def _told(found: search.Found, asked: search.Filters) -> Response:
    if found.state == "off":
        return fault(503, "there is no index to search: `search.index` is off", reason="search_off")
    return json(search.as_json(found))
