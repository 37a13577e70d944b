"""What is stored already, priced anew from its stored tokens (SPEC 9.4).

It goes through requests by their arrival, a few in a transaction, so that the recorder never waits long; whoever stops
it half-way has repriced half, and can start again. What did not come from prices keeps its cost: a provider's own
figure, a share of its bill, a subscription's. Nor is anything known of a provider that the configuration no longer has:
what was stored of it stays.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import msgspec

from arbiter.accounting.tariff import Tariff
from arbiter.ledger import losses
from arbiter.ledger.comparison import call_of
from arbiter.ledger.database import Database, Statement
from arbiter.ledger.pricing import price, rate, settle
from arbiter.ledger.row import AttemptRow
from arbiter.ledger.tables import ATTEMPTS

KEPT = frozenset({"provider", "reconciled", "imported", "subscription"})
PAGE = 200  # requests in one transaction

_CHANGED = ("cost_pd", "cost_source", "price", "pricing_available", "equivalent_pd", "cache_lost_pd")
_UPDATE = f"UPDATE attempts SET {', '.join(f'{name} = ?' for name in _CHANGED)} WHERE id = ?"


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows: requests that arrived from `since_ms` until just before `until_ms`, and their attempts there."""

    since_ms: int
    until_ms: int
    provider: str | None = None
    model: str | None = None  # as the provider was asked for it
    unpriced: bool = False  # only attempts without a known price


class Outcome(msgspec.Struct, kw_only=True):
    """What was done, or would be: so many requests and attempts looked at, the money of those that changed."""

    requests: int = 0
    attempts: int = 0
    kept: int = 0  # attempts whose cost did not come from prices
    unconfigured: int = 0  # attempts kept because the configuration has no such provider
    changed: int = 0
    priced: int = 0  # of the changed: had no cost, and has one
    lost_price: int = 0  # of the changed: had a cost, and has none
    before_pd: int = 0
    after_pd: int = 0


Next = tuple[int, str] | None
"""Where the next page begins: after the request that arrived then, with this id."""
Change = Callable[[Callable[[Database], tuple[Outcome, Next]]], tuple[Outcome, Next]]
"""Runs our work on a store, in one transaction: `SqlStore.change`, or `read` where nothing is to change."""


def reprice(
    window: Window,
    tariff: Tariff,
    change: Change,
    *,
    dry_run: bool = False,
    progress: Callable[[Outcome], None] = lambda outcome: None,
) -> Outcome:
    """Price what is in the window. `change` runs each page; `progress` hears of it afterwards. Errors: StoreDown."""
    outcome = Outcome()
    at: Next = (window.since_ms, "")
    while at is not None:
        done, at = change(partial(_page, window=window, at=at, tariff=tariff, dry_run=dry_run))
        for name in Outcome.__struct_fields__:
            setattr(outcome, name, getattr(outcome, name) + getattr(done, name))
        progress(outcome)
    return outcome


# ---------------------------------------------------------------------- inside


def _page(db: Database, *, window: Window, at: tuple[int, str], tariff: Tariff, dry_run: bool) -> tuple[Outcome, Next]:
    """One page of requests from `at` on, and where the next one begins; None after the last."""
    sql = (
        "SELECT received_ms, id FROM requests WHERE (received_ms, id) > (?, ?) AND received_ms < ?"
        " ORDER BY received_ms, id LIMIT ?"
    )
    found = db.rows(sql, (*at, window.until_ms, PAGE))
    outcome = Outcome(requests=len(found))
    if found:
        changed = _changed(_attempts(db, window, [request_id for _, request_id in found]), tariff, outcome)
        if changed and not dry_run:
            rows = [(*_values(row), row.id) for row in changed]
            db.run_many(Statement(_UPDATE, rows))
            settle(db, (row.request_id for row in changed))
    return outcome, (found[-1][0], found[-1][1]) if len(found) == PAGE else None


def _attempts(db: Database, window: Window, request_ids: Sequence[str]) -> list[AttemptRow]:
    where, values = f"request_id IN ({', '.join('?' * len(request_ids))})", list(request_ids)
    for name, column in (("provider", "provider"), ("model", "model_asked")):
        if (wanted := getattr(window, name)) is not None:
            where, values = f"{where} AND {column} = ?", [*values, wanted]
    if window.unpriced:
        where += " AND cost_source = 'unpriced'"
    return [ATTEMPTS.load(AttemptRow, row) for row in db.rows(f"{ATTEMPTS.select} WHERE {where}", values)]


def _changed(rows: Iterable[AttemptRow], tariff: Tariff, outcome: Outcome) -> list[AttemptRow]:
    changed = []
    for row in rows:
        outcome.attempts += 1
        if row.cost_source in KEPT:
            outcome.kept += 1
            continue
        if not tariff.knows(row.provider):
            outcome.unconfigured += 1
            continue
        new = copy.copy(row)
        new.cost_pd = new.cost_source = new.price = new.equivalent_pd = None
        price(new, tariff)
        if row.cache_lost_tokens is not None:
            new.cache_lost_pd = losses.lost_pd(call_of(row), row.cache_lost_tokens, rate(row, tariff))
        if _values(new) == _values(row):
            continue
        changed.append(new)
        outcome.changed += 1
        outcome.priced += row.cost_pd is None and new.cost_pd is not None
        outcome.lost_price += row.cost_pd is not None and new.cost_pd is None
        outcome.before_pd += row.cost_pd or 0
        outcome.after_pd += new.cost_pd or 0
    return changed


def _values(row: AttemptRow) -> tuple[Any, ...]:
    return tuple(getattr(row, name) for name in _CHANGED)
