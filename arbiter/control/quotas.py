"""The administration's view of limits: what providers said of them."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from arbiter import clock
from arbiter.control.api import fault, json, store_down, store_off
from arbiter.ledger import query
from arbiter.ledger.questions import limits
from arbiter.ledger.store import Readable, StoreDown

PARAMETERS = ("since", "provider")
SINCE = "24h"


class Quotas:
    """The endpoint under /admin/api/. `store` None: nothing is recorded."""

    def __init__(self, store: Readable | None) -> None:
        self._store = store

    def routes(self) -> list[Route]:
        return [Route("/admin/api/quota", self.quota)]

    def quota(self, request: Request) -> Response:
        """What there is to say about limits."""
        now_ms = clock.now_ms()
        try:
            params = query.once(request.query_params.multi_items())
            unknown = next((name for name in params if name not in PARAMETERS), None)
            if unknown is not None:
                raise query.BadParameter(unknown, f"no such parameter; there are {', '.join(PARAMETERS)}")
            since_ms = query.since(params.get("since", SINCE), now_ms)
        except query.BadParameter as error:
            return fault(400, str(error), parameter=error.name)
        if self._store is None:
            return store_off()
        asked = limits.Asked(since_ms=since_ms, now_ms=now_ms, provider=params.get("provider"))
        try:
            return json(self._store.read(lambda database: limits.ask(database, asked)))
        except StoreDown as error:
            return store_down(error)
