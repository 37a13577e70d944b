"""The administration's view of money: what was spent, and what is left of what was paid in advance."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from arbiter.config.snapshot import Snapshot
from arbiter.control.api import answer, json
from arbiter.ledger.questions import cost
from arbiter.ledger.store import Readable


class Costs:
    """The endpoint under /admin/api/. `store` None: nothing is recorded."""

    def __init__(self, store: Readable | None, snapshot: Callable[[], Snapshot]) -> None:
        self._store = store
        self._snapshot = snapshot

    def routes(self) -> list[Route]:
        return [Route("/admin/api/cost", self.cost)]

    def cost(self, request: Request) -> Response:
        """What was spent, by model or by whatever else is asked for."""
        prepaid = self._snapshot().pricing.prepaid
        return answer(
            request,
            self._store,
            cost.parse,
            lambda database, asked: cost.report(database, asked, prepaid),
            lambda found, asked: json(cost.as_json(found, asked)),
        )
