"""The pages of what was spent and of what prompt caches saved and lost: the questions of `arbiter cost` and `arbiter
cache`, asked by a form, with a way from each sum to what it is made of.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from arbiter import clock
from arbiter.config.snapshot import Snapshot
from arbiter.control import reports
from arbiter.control.pages import HOME, look
from arbiter.ledger import losses, query
from arbiter.ledger.database import Database
from arbiter.ledger.questions import cache, cost
from arbiter.ledger.store import Readable

COST, CACHE = HOME + "cost", HOME + "cache"

_DEEPER = {"model": "day", "provider": "model", "client": "model", "agent": "model"}
"""What a part of a cost is split by, once it is looked at alone."""


class ReportPages:
    """`render` makes a page of a template's name and its values. `store` None: nothing is recorded."""

    def __init__(
        self, store: Readable | None, snapshot: Callable[[], Snapshot], render: Callable[..., Response]
    ) -> None:
        self._store = store
        self._snapshot = snapshot
        self._render = partial(render, reports=reports)

    def routes(self) -> list[Route]:
        return [Route(COST, self.cost), Route(CACHE, self.cache)]

    def cost(self, request: Request) -> Response:
        """What was spent, the most expensive first."""

        def page(db: Database) -> Response:
            asked = _asked(request)
            filters = cost.parse(asked, clock.now_ms())
            found = cost.report(db, filters, self._snapshot().pricing.prepaid)
            most = max((one.metered_pd + one.estimated_pd for one in found.groups), default=0)
            return self._render(
                "cost.html",
                found=found,
                asked=asked,
                filters=filters,
                most=most,
                path=COST,
                splits=list(cost.GROUPS),
                since=asked.get("since", cost.DEFAULT_SINCE),
                deeper=partial(_deeper, asked, filters.by),
            )

        return look(self._store, self._render, COST, page)

    def cache(self, request: Request) -> Response:
        """What caches saved; what was lost of them, why, and in which calls."""

        def page(db: Database) -> Response:
            asked = _asked(request)
            filters = cache.parse(asked, clock.now_ms())
            return self._render(
                "cache.html",
                found=cache.report(db, filters),
                asked=asked,
                filters=filters,
                path=CACHE,
                splits=list(cache.GROUPS),
                causes=losses.CAUSES,
                since=asked.get("since", "" if filters.since_ms is None else cache.DEFAULT_SINCE),
                narrowed=lambda **more: f"{CACHE}?{urlencode({**asked, **more})}",
            )

        return look(self._store, self._render, CACHE, page)


def _asked(request: Request) -> dict[str, str]:
    """What the form asks for; an empty field asks for nothing."""
    return {name: value for name, value in query.once(request.query_params.multi_items()).items() if value}


def _deeper(asked: dict[str, str], by: str, name: str | None) -> str | None:
    """Where one part of the sum is looked at alone; None where there is nothing more to see."""
    if name is None or by == "day":
        return None
    if by == "session":
        return f"{HOME}?{urlencode({'session': name})}"
    split = _DEEPER[by]
    if split in asked:  # it is one already
        split = "day"
    return f"{COST}?{urlencode({**asked, 'by': split, by: name})}"
