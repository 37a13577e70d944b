"""The administration's view of limits: what providers said of them."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from arbiter.control.api import answer, json
from arbiter.ledger import query
from arbiter.ledger.questions import limits
from arbiter.ledger.store import Readable

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
        return answer(request, self._store, _parse, limits.ask, lambda found, asked: json(found))


def _parse(params: Mapping[str, str], now_ms: int) -> limits.Asked:
    """Errors: BadParameter."""
    query.only(params, PARAMETERS)
    since_ms = query.since(params.get("since", SINCE), now_ms)
    return limits.Asked(since_ms=since_ms, now_ms=now_ms, provider=params.get("provider"))
