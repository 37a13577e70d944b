"""The administration's view of money: what was spent, and what is left of what was paid in advance."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from arbiter import clock
from arbiter.config.snapshot import Snapshot
from arbiter.control.api import fault, json, store_down, store_off
from arbiter.ledger import query
from arbiter.ledger.questions import cost
from arbiter.ledger.store import Readable, StoreDown


class Costs:
    """The endpoint under /admin/api/. `store` None: nothing is recorded."""

    def __init__(self, store: Readable | None, snapshot: Callable[[], Snapshot]) -> None:
        self._store = store
        self._snapshot = snapshot

    def routes(self) -> list[Route]:
        return [Route("/admin/api/cost", self.cost)]

    def cost(self, request: Request) -> Response:
        """What was spent, by model or by whatever else is asked for."""
        try:
            filters = cost.parse(query.once(request.query_params.multi_items()), clock.now_ms())
        except query.BadParameter as error:
            return fault(400, str(error), parameter=error.name)
        if self._store is None:
            return store_off()
        prepaid = self._snapshot().pricing.prepaid
        try:
            found = self._store.read(lambda database: cost.report(database, filters, prepaid))
        except StoreDown as error:
            return store_down(error)
        return json(cost.as_json(found, filters))
