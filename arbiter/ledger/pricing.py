"""The recorder's stage that says what attempts cost, and requests with them. Workers report tokens; money is made here.

A request costs what its attempts do together. One that used tokens at an unknown price makes the sum unknown, since
what is left of it would pass for the whole; one that a subscription served adds exactly nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from arbiter.accounting.prices import MAX_PD
from arbiter.accounting.tariff import Metered, Tariff
from arbiter.config.rates import Rate
from arbiter.ledger.database import Database, Statement
from arbiter.ledger.recorder import Batch
from arbiter.ledger.row import AttemptRow
from arbiter.ledger.store import Readable
from arbiter.metrics import Metrics
from arbiter.model import Usage

SETTLED_AT_ONCE = 200

Costs = tuple[int | None, str | None]
"""What an attempt cost, and where that comes from; the second is None where nothing was metered."""


class Pricing:
    """A `Stage`. `tariff` gives the one of the day; `metrics` are the control process's own.

    `missing` hears of stored attempts that have no price.
    """

    def __init__(
        self,
        tariff: Callable[[], Tariff],
        metrics: Metrics | None = None,
        missing: Callable[[Sequence[AttemptRow]], None] = lambda rows: None,
    ) -> None:
        self._tariff = tariff
        self._metrics = metrics
        self._missing = missing

    def take(self, batch: Batch, store: Readable) -> None:
        tariff = self._tariff()
        costs: dict[str, dict[str, Costs]] = {}
        for row in batch.attempts:
            price(row, tariff)
            cost = row.cost_pd, row.cost_source
            known = costs.get(row.request_id)
            if known is None:
                costs[row.request_id] = {row.id: cost}
            else:
                known[row.id] = cost
        # Attempts come before their request, and nearly always with it.
        early = [row.id for row in batch.requests if row.attempts and len(costs.get(row.id, ())) < row.attempts]
        if early:
            for request_id, attempt_id, cost_pd, source in store.read(lambda db: costs_of(db, early)):
                costs.setdefault(request_id, {}).setdefault(attempt_id, (cost_pd, source))
        for request in batch.requests:
            request.cost_pd = together(costs.get(request.id, {}).values())
        # One that was taken for interrupted, and ended well, may come after its request.
        late = costs.keys() - {request.id for request in batch.requests}
        if late:
            late = {row.request_id for row in batch.attempts if row.cost_source is not None} & late
        if late:
            batch.also.append(partial(settle, request_ids=late))

    def stored(self, batch: Batch) -> None:
        without = [row for row in batch.attempts if row.cost_source == "unpriced" and not row.pricing_available]
        if without:
            self._missing(without)
        if self._metrics is None:
            return
        sums: dict[str, int] = {}
        for row in batch.attempts:
            if row.cost_pd is not None:
                source = row.cost_source or ""
                sums[source] = sums.get(source, 0) + row.cost_pd
        for source, cost_pd in sums.items():
            self._metrics.count("arbiter_cost_usd_total", (source,), cost_pd / 10**12)
        self._metrics.flush()

    def forget(self) -> None:
        """There is nothing to forget."""


def price(row: AttemptRow, tariff: Tariff) -> None:
    """Fill in what an attempt cost, by its tokens and by when it ended."""
    if row.usage_source == "missing" and row.provider_cost_pd is None:
        row.pricing_available = rate(row, tariff) is not None
        return
    metered = Metered(
        provider=row.provider,
        models=_models(row),
        at_ms=_ended_ms(row),
        usage=usage(row),
        service_tier=row.service_tier,
        provider_cost_pd=row.provider_cost_pd,
    )
    priced = tariff.price(metered)
    row.cost_pd, row.cost_source, row.price = priced.cost_pd, priced.source, priced.label
    row.equivalent_pd = priced.equivalent_pd
    row.pricing_available = priced.is_known


def rate(row: AttemptRow, tariff: Tariff) -> Rate | None:
    """What an attempt's tokens cost each; None where nobody knows."""
    quote = tariff.find(row.provider, _models(row), _ended_ms(row), row.service_tier)
    return quote.rate if quote is not None else None


def usage(row: AttemptRow) -> Usage:
    """The tokens to be paid for: those that were reported, and our estimate of a side that was not.

    A stream that was cut may have metered its prompt alone.
    """
    return Usage(
        input=row.estimated_input_tokens if row.input_tokens is None else row.input_tokens,
        cache_read=row.cached_tokens,
        cache_write=row.cache_write_tokens,
        cache_write_1h=row.cache_write_1h_tokens,
        output=row.estimated_output_tokens if row.output_tokens is None else row.output_tokens,
        reasoning=row.reasoning_tokens,
        audio_input=row.audio_input_tokens,
        audio_output=row.audio_output_tokens,
        web_searches=row.web_searches,
    )


def together(costs: Iterable[Costs]) -> int | None:
    """What a request cost, by its attempts; None where nobody knows, and for a sum that no column holds."""
    total: int | None = None
    for cost_pd, source in costs:
        if source is None:
            continue
        if source == "subscription":
            cost_pd = 0
        if cost_pd is None:
            return None
        total = (total or 0) + cost_pd
    return total if total is None or total <= MAX_PD else None


def costs_of(db: Database, request_ids: Sequence[str]) -> list[tuple[str, str, int | None, str | None]]:
    """The stored attempts of some requests: request, attempt, and what it cost."""
    marks = ", ".join("?" * len(request_ids))
    sql = f"SELECT request_id, id, cost_pd, cost_source FROM attempts WHERE request_id IN ({marks})"
    return [(row[0], row[1], row[2], row[3]) for row in db.rows(sql, request_ids)]


def settle(db: Database, request_ids: Iterable[str]) -> None:
    """Have these requests cost what their attempts cost. Within a transaction."""
    ids = list(dict.fromkeys(request_ids))
    for start in range(0, len(ids), SETTLED_AT_ONCE):
        some = ids[start : start + SETTLED_AT_ONCE]
        costs: dict[str, list[Any]] = {}
        for request_id, _, cost_pd, source in costs_of(db, some):
            costs.setdefault(request_id, []).append((cost_pd, source))
        sums = [(together(costs.get(request_id, ())), request_id) for request_id in some]
        db.run_many(Statement("UPDATE requests SET cost_pd = ? WHERE id = ?", sums))


def _models(row: AttemptRow) -> tuple[str, ...]:
    asked, served = row.model_asked, row.model_served
    if asked and served and asked != served:
        return asked, served
    one = asked or served
    return (one,) if one else ()


def _ended_ms(row: AttemptRow) -> int:
    return row.finished_ms or row.started_ms
