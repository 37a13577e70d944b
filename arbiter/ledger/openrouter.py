"""What OpenRouter says an answer cost, asked after by the answer's id, for rows without a cost (FEATURES P80).

The figure is ready some seconds after the answer. Few are asked for at a time: 50 calls, 3 s each, 30 s in all, and no
further ones once it says that we ask too much. Rows of which it knows nothing come after all others
the next time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Literal
from urllib.parse import quote

import msgspec

from arbiter import clock
from arbiter.accounting.prices import MAX_PD
from arbiter.config.rates import rounded
from arbiter.config.snapshot import Provider
from arbiter.ledger import fetch
from arbiter.ledger.database import Database
from arbiter.ledger.fetch import Unfetched
from arbiter.ledger.pricing import settle

MOST_CALLS = 50
CALL_S = 3.0
ALL_S = 30.0
ANSWER_BYTES = 1 << 20
PRICE = "openrouter generation"


class Row(msgspec.Struct, frozen=True):
    """An attempt without a cost, and what OpenRouter calls its answer."""

    id: str
    request_id: str
    provider: str
    account: str | None
    response_id: str


class Outcome(msgspec.Struct, kw_only=True):
    """`rows` have no cost; of so many it was asked for, and `found`. `stopped` says why not of all."""

    rows: int = 0
    asked: int = 0
    found: int = 0
    unknown: int = 0  # OpenRouter knows no such answer, or not yet
    failed: int = 0
    found_pd: int = 0
    stopped: Literal["too many calls", "out of time", "rate limited"] | None = None


def is_openrouter(provider: Provider) -> bool:
    host = provider.endpoint.host
    if "openrouter" in (provider.type, provider.priced_as):
        return True
    return host == "openrouter.ai" or host.endswith(".openrouter.ai")


def waiting(db: Database, providers: Mapping[str, Provider], since_ms: int) -> list[Row]:
    """The rows to ask for: the oldest first, but whoever was asked for before comes last, the longest ago first."""
    names = [name for name, provider in providers.items() if is_openrouter(provider)]
    if not names:
        return []
    sql = (
        "SELECT id, request_id, provider, account, response_id FROM attempts WHERE started_ms >= ? AND cost_pd IS NULL"
        " AND response_id IS NOT NULL AND (cost_source IS NULL OR cost_source = 'unpriced')"
        f" AND provider IN ({', '.join('?' * len(names))}) "
        " ORDER BY COALESCE(cost_asked_ms, 0), started_ms, id"
    )
    return [Row(*row) for row in db.rows(sql, (since_ms, *names))]


def look_up(
    rows: list[Row],
    providers: Mapping[str, Provider],
    change: Callable[[Callable[[Database], None]], None],
    progress: Callable[[Outcome], None] = lambda outcome: None,
) -> Outcome:
    """Ask for each row's cost and keep it. Errors: StoreDown."""
    outcome = Outcome(rows=len(rows))
    until = clock.monotonic() + ALL_S
    for row in rows:
        left_s = until - clock.monotonic()
        if outcome.asked >= MOST_CALLS or left_s <= 0:
            outcome.stopped = "too many calls" if left_s > 0 else "out of time"
            break
        outcome.asked += 1
        answer = _ask(row, providers[row.provider], min(CALL_S, left_s))
        if answer is not None and answer.status == 429:
            outcome.stopped = "rate limited"
            break
        cost_pd = _cost_pd(answer.body) if answer is not None and answer.status == 200 else None
        if cost_pd is not None:
            _keep(row, cost_pd, change)
            outcome.found += 1
            outcome.found_pd += cost_pd
        else:
            _pass_over(row, change)
            is_unknown = answer is not None and answer.status == 404
            outcome.unknown += is_unknown
            outcome.failed += not is_unknown
        progress(outcome)
    return outcome


# ---------------------------------------------------------------------- inside


def _ask(row: Row, provider: Provider, timeout_s: float) -> fetch.Fetched | None:
    keys = {account.label: account.key for account in provider.accounts}
    key = keys.get(row.account) or provider.accounts[0].key
    url = f"{provider.endpoint.url}/generation?id={quote(row.response_id, safe='')}"
    headers = {"authorization": f"Bearer {key}"} if key else {}
    try:
        return fetch.get(url, timeout_s=timeout_s, limit_bytes=ANSWER_BYTES, headers=headers)
    except Unfetched:
        return None


def _cost_pd(body: bytes) -> int | None:
    """The cost in an answer; an explicit 0 is one."""
    try:
        found: Any = json.loads(body, parse_float=Decimal)
        usd = found["data"]["total_cost"]
    except (ValueError, ArithmeticError, KeyError, TypeError, RecursionError):
        return None
    if isinstance(usd, bool) or not isinstance(usd, int | Decimal) or not 0 <= usd <= MAX_PD // 10**12:
        return None
    return rounded(Decimal(usd) * 10**12)


def _keep(row: Row, cost_pd: int, change: Callable[[Callable[[Database], None]], None]) -> None:
    def work(db: Database) -> None:
        sql = "UPDATE attempts SET cost_pd = ?, provider_cost_pd = ?, cost_source = 'provider', price = ? WHERE id = ?"
        db.run(sql, (cost_pd, cost_pd, PRICE, row.id))
        settle(db, [row.request_id])

    change(work)


def _pass_over(row: Row, change: Callable[[Callable[[Database], None]], None]) -> None:
    """Have the others asked for before this one is again, in this run or the next."""

    def work(db: Database) -> None:
        db.run("UPDATE attempts SET cost_asked_ms = ? WHERE id = ?", (clock.now_ms(), row.id))

    change(work)
