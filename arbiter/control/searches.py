"""The administration's search: where words were said, or what means the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from arbiter import clock
from arbiter.config.snapshot import Snapshot
from arbiter.control.api import answer, fault, json, store_down, store_off
from arbiter.control.embedding import NoVectors
from arbiter.ledger import meaning, query
from arbiter.ledger.query import BadParameter
from arbiter.ledger.questions import meaning as meanings
from arbiter.ledger.questions import search
from arbiter.ledger.store import Readable, StoreDown

MEANING_OFF = "searching by meaning is off: `search.embed.alias` names nobody; `q` looks for words"


class Embeds(Protocol):
    """`control.embedding.Embedding`, as far as it is needed."""

    def asked(self, text: str) -> bytes: ...


class Searches:
    """The endpoint under /admin/api/. `store` None: nothing is recorded; `embeds` None: nobody makes vectors."""

    def __init__(self, store: Readable | None, snapshot: Callable[[], Snapshot], embeds: Embeds | None) -> None:
        self._store = store
        self._snapshot = snapshot
        self._embeds = embeds

    def routes(self) -> list[Route]:
        return [Route("/admin/api/search", self.search)]

    def search(self, request: Request) -> Response:
        """The best matches first. No text is a wrong one to look for."""
        if "meaning" not in request.query_params:
            return answer(request, self._store, search.parse, search.find, _told)
        try:
            return self._by_meaning(query.once(request.query_params.multi_items()))
        except BadParameter as error:
            return fault(400, str(error), parameter=error.name)
        except (NoVectors, meanings.OtherWidth) as error:
            return fault(503, f"there is no vector of what is looked for: {error}", reason="no_vector")
        except StoreDown as error:
            return store_down(error)

    def _by_meaning(self, params: Mapping[str, str]) -> Response:
        """Errors: BadParameter, NoVectors, OtherWidth, StoreDown."""
        filters = meanings.parse(params, clock.now_ms())
        if self._store is None:
            return store_off()
        model = meaning.wanted(self._snapshot())
        if model is None or self._embeds is None:
            return fault(503, MEANING_OFF, reason="meaning_off")
        state = self._store.read(meaning.state_of)
        if state is None or not meaning.is_open(state, model):
            return fault(503, "the vectors are just being made anew: ask again soon", reason="meaning_building")
        return json(meanings.as_json(meanings.find(self._store, self._embeds.asked(filters.q), state, filters)))


def _told(found: search.Found, asked: search.Filters) -> Response:
    if found.state == "off":
        return fault(503, "there is no index to search: `search.index` is off", reason="search_off")
    return json(search.as_json(found))
