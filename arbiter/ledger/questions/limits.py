"""What providers said of their limits, and what became of it: headroom, refusals, waits, a subscription's windows.

Everything here is a provider's own word (SPEC 9.8), but for one thing that says so: a `Projection`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from arbiter.accounting import ratelimits
from arbiter.ledger.database import Database

QUOTA = "quota_exhausted"
TRANSIENT = "transient"
LOOK_BACK = 20
"""Answers of one model among which the last word on its limits is looked for: an overloaded provider leaves it out."""
SAME_WINDOW_MS = 10 * 60_000
"""Two windows that end so near each other are one: providers round the moment."""
MIN_SPAN_MS = 5 * 60_000
"""Of two words on a window: nearer to each other they say nothing of a rate."""
MAX_ADVICE = 100_000
FAR_MS = 366 * 86_400_000
"""Further away than any window ends."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """Which attempts."""

    since_ms: int
    now_ms: int
    provider: str | None = None


class Headroom(msgspec.Struct, frozen=True, kw_only=True):
    """The last word on one limit. `is_over`: its window has ended since, and nobody knows what is left now."""

    provider: str
    account: str | None
    model: str | None
    kind: str
    per: str | None
    limit: int | None
    remaining: int | None
    headroom: float | None
    resets_ms: int | None
    is_over: bool
    at_ms: int


class Refusals(msgspec.Struct, frozen=True, kw_only=True):
    """Answers with status 429. `subtype`: transient | quota_exhausted."""

    provider: str
    account: str | None
    model: str | None
    subtype: str
    count: int
    last_ms: int


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """How long the provider asked us to stay away: spans that overlap count once, and none beyond now."""

    provider: str
    account: str | None
    times: int
    blocked_ms: int
    until_ms: int  # the end of the last of them, which may be yet to come


class Projection(msgspec.Struct, frozen=True, kw_only=True):
    """What comes of a window if it goes on as it went: ours, and no provider's word."""

    used_at_reset: float | None
    full_ms: int | None  # when all of it is used; None: not before it resets, nor within a year
    from_ms: int  # the rate is that between these two
    to_ms: int
    is_projection: bool = True


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """The last word on one window of a login."""

    provider: str
    account: str | None
    window: str
    minutes: int | None
    used: float | None
    headroom: float | None
    resets_ms: int | None
    status: str | None
    is_over: bool
    at_ms: int
    burn_per_hour: float | None  # the part of the window that was used, per hour
    projection: Projection | None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    since_ms: int
    headroom: list[Headroom]
    refusals: list[Refusals]
    waits: list[Wait]
    windows: list[Window]


class _Said(msgspec.Struct, frozen=True):
    """One answer's headers, read."""

    provider: str
    account: str | None
    model: str | None
    at_ms: int
    told: ratelimits.Told


def ask(database: Database, asked: Asked) -> Answer:
    """Everything about limits since `asked.since_ms`."""
    latest = _latest(database, asked)
    return Answer(
        since_ms=asked.since_ms,
        headroom=[room for said in latest for room in _headroom(said, asked.now_ms)],
        refusals=_refusals(database, asked),
        waits=_waits(database, asked),
        windows=_windows(database, asked, latest),
    )


def _named(row: Sequence[Any]) -> list[str]:
    """The order of answers: by the names that a row begins with, whatever a database thinks of NULL."""
    return [value or "" for value in row if value is None or isinstance(value, str)]


def _where(asked: Asked, condition: str) -> tuple[str, tuple[int | str, ...]]:
    if asked.provider is None:
        return f"WHERE started_ms >= ? AND {condition}", (asked.since_ms,)
    return f"WHERE started_ms >= ? AND {condition} AND provider = ?", (asked.since_ms, asked.provider)


# ---------------------------------------------------------------------------------------------------- the last words


_HEADERS = "SELECT provider, account, model_asked, started_ms, headers_us, rate_limits FROM attempts"


def _latest(database: Database, asked: Asked) -> list[_Said]:
    """The last answer of each model on each account that speaks of limits."""
    where, values = _where(asked, "rate_limits IS NOT NULL")
    keys = database.rows(
        f"SELECT provider, account, model_asked, MAX(started_ms) FROM attempts {where} "
        "GROUP BY provider, account, model_asked",
        values,
    )
    found = []
    for provider, account, model, newest_ms in sorted(keys, key=_named):
        where, values = _equal(provider=provider, account=account, model_asked=model)
        rows = database.rows(
            f"{_HEADERS} WHERE {where} AND rate_limits IS NOT NULL AND started_ms >= ? AND started_ms <= ? "
            "ORDER BY started_ms DESC LIMIT ?",
            (*values, asked.since_ms, newest_ms, LOOK_BACK),
        )
        said = next((one for one in map(_read, rows) if one.told.limits or one.told.quotas), None)
        if said is not None:
            found.append(said)
    return found


def _equal(**columns: str | None) -> tuple[str, tuple[str, ...]]:
    """A condition on some columns, and its values; NULL is equal to NULL here."""
    where = " AND ".join(f"{name} = ?" if value is not None else f"{name} IS NULL" for name, value in columns.items())
    return where, tuple(value for value in columns.values() if value is not None)


def _read(row: tuple[str, str | None, str | None, int, int | None, str]) -> _Said:
    provider, account, model, started_ms, headers_us, kept = row
    at_ms = started_ms + (headers_us or 0) // 1000
    return _Said(
        provider, account, model, at_ms, ratelimits.read(msgspec.json.decode(kept, type=dict[str, str]), at_ms)
    )


def _headroom(said: _Said, now_ms: int) -> Iterable[Headroom]:
    for one in said.told.limits:
        yield Headroom(
            provider=said.provider,
            account=said.account,
            model=said.model,
            kind=one.kind,
            per=one.per,
            limit=one.limit,
            remaining=one.remaining,
            headroom=one.headroom,
            resets_ms=one.resets_ms,
            is_over=one.resets_ms is not None and one.resets_ms <= now_ms,
            at_ms=said.at_ms,
        )


# ------------------------------------------------------------------------------------------------- refusals and waits


def _refusals(database: Database, asked: Asked) -> list[Refusals]:
    where, values = _where(asked, "status = 429")
    rows = database.rows(
        "SELECT provider, account, model_asked, "
        f"CASE WHEN error_class = '{QUOTA}' THEN '{QUOTA}' ELSE '{TRANSIENT}' END AS subtype, "
        f"COUNT(*), MAX(started_ms) FROM attempts {where} "
        "GROUP BY provider, account, model_asked, subtype",
        values,
    )
    return [
        Refusals(provider=provider, account=account, model=model, subtype=subtype, count=int(count), last_ms=int(last))
        for provider, account, model, subtype, count, last in sorted(rows, key=_named)
    ]


def _waits(database: Database, asked: Asked) -> list[Wait]:
    where, values = _where(asked, "retry_after_ms IS NOT NULL")
    rows = database.rows(
        "SELECT provider, account, COALESCE(finished_ms, started_ms), retry_after_ms FROM attempts "
        f"{where} ORDER BY started_ms DESC LIMIT ?",
        (*values, MAX_ADVICE),
    )
    spans: dict[tuple[str, str | None], list[tuple[int, int]]] = {}
    for provider, account, began_ms, wait_ms in rows:
        spans.setdefault((provider, account), []).append((began_ms, began_ms + wait_ms))
    return [
        Wait(
            provider=provider,
            account=account,
            times=len(found),
            blocked_ms=_union(found, asked.now_ms),
            until_ms=max(end for _, end in found),
        )
        for (provider, account), found in sorted(spans.items(), key=lambda item: _named(item[0]))
    ]


def _union(spans: list[tuple[int, int]], now_ms: int) -> int:
    total = covered_ms = 0
    for began_ms, end_ms in sorted(spans):
        end_ms = min(end_ms, now_ms)
        total += max(0, end_ms - max(began_ms, covered_ms))
        covered_ms = max(covered_ms, end_ms)
    return total


# --------------------------------------------------------------------------------------------- a subscription's windows


def _windows(database: Database, asked: Asked, latest: list[_Said]) -> list[Window]:
    newest: dict[tuple[str, str | None, str], tuple[_Said, ratelimits.Quota]] = {}
    for said in latest:
        for quota in said.told.quotas:
            key = (said.provider, said.account, quota.window)
            if key not in newest or newest[key][0].at_ms < said.at_ms:
                newest[key] = (said, quota)
    return [_window(database, asked, said, quota) for said, quota in newest.values()]


def _window(database: Database, asked: Asked, said: _Said, quota: ratelimits.Quota) -> Window:
    first = _first(database, asked, said, quota)
    burn = projection = None
    if first is not None and quota.used is not None and first[1].used is not None:
        hours = (said.at_ms - first[0]) / 3_600_000
        burn = max(0.0, quota.used - first[1].used) / hours
        is_over = quota.resets_ms is not None and quota.resets_ms <= asked.now_ms
        projection = None if is_over else _project(said.at_ms, first[0], quota, burn)
    return Window(
        provider=said.provider,
        account=said.account,
        window=quota.window,
        minutes=quota.minutes,
        used=quota.used,
        headroom=max(0.0, 1 - quota.used) if quota.used is not None else None,
        resets_ms=quota.resets_ms,
        status=quota.status,
        is_over=quota.resets_ms is not None and quota.resets_ms <= asked.now_ms,
        at_ms=said.at_ms,
        burn_per_hour=burn,
        projection=projection,
    )


def _first(
    database: Database, asked: Asked, said: _Said, quota: ratelimits.Quota
) -> tuple[int, ratelimits.Quota] | None:
    """The first word on the same window, and when it came; None where it is too near to the last."""
    began_ms = asked.since_ms
    if quota.resets_ms is not None and quota.minutes is not None:
        began_ms = max(began_ms, quota.resets_ms - quota.minutes * 60_000)
    where, values = _equal(provider=said.provider, account=said.account)
    rows = database.rows(
        f"{_HEADERS} WHERE {where} AND rate_limits IS NOT NULL AND started_ms >= ? ORDER BY started_ms LIMIT ?",
        (*values, began_ms, LOOK_BACK),
    )
    for early in map(_read, rows):
        for one in early.told.quotas:
            if one.window == quota.window and one.used is not None and _is_same(one, quota):
                return (early.at_ms, one) if said.at_ms - early.at_ms >= MIN_SPAN_MS else None
    return None


def _is_same(one: ratelimits.Quota, other: ratelimits.Quota) -> bool:
    if one.resets_ms is None or other.resets_ms is None:
        return one.resets_ms is other.resets_ms
    return abs(one.resets_ms - other.resets_ms) <= SAME_WINDOW_MS


def _project(at_ms: int, from_ms: int, quota: ratelimits.Quota, burn: float) -> Projection:
    used = quota.used or 0.0
    used_at_reset = None
    if quota.resets_ms is not None:
        used_at_reset = used + burn * max(0, quota.resets_ms - at_ms) / 3_600_000
    full_ms = at_ms + round(max(0.0, 1 - used) / burn * 3_600_000) if burn > 0 else None
    if full_ms is not None and full_ms > (at_ms + FAR_MS if quota.resets_ms is None else quota.resets_ms):
        full_ms = None
    return Projection(used_at_reset=used_at_reset, full_ms=full_ms, from_ms=from_ms, to_ms=at_ms)
