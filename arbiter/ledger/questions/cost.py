"""What was spent: by whom, on which model, on which day, and how far the sums can be trusted.

Money that the provider's counts come to and money that our own estimates come to are never added up, and neither is
what a subscription's calls would have cost.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal

import msgspec

from arbiter.accounting.prices import STATED
from arbiter.config.rates import DAY_MS, Prepaid
from arbiter.ledger import query, sums
from arbiter.ledger.database import Database
from arbiter.ledger.query import APPROXIMATE, APPROXIMATE_COST, BadParameter

MAX_LIMIT = 500
DEFAULT_LIMIT = 50
DEFAULT_SINCE = "7d"
PARAMETERS = ("since", "by", "provider", "model", "client", "session", "agent", "limit")

By = Literal["model", "provider", "client", "session", "agent", "day"]
GROUPS: Final[Mapping[str, str]] = {
    "model": "a.model_asked",
    "provider": "a.provider",
    "client": "r.client",
    "session": "r.session",
    "agent": "r.agent",
    "day": f"r.received_ms / {DAY_MS}",
}
"""What the report may be split by, and its column."""

TOKENS = ("input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens")
_SUMS = (
    *(f"a.{name}" for name in TOKENS),
    "CASE WHEN a.input_tokens IS NULL THEN a.estimated_input_tokens END",
    "CASE WHEN a.output_tokens IS NULL THEN a.estimated_output_tokens END",
)

# What an attempt used and nobody reported. One that failed and metered nothing, like a 429, leaves nothing open.
_METERED = "(a.usage_source <> 'missing' OR a.outcome = 'ok')"
_UNREPORTED = {
    "input_tokens": "a.input_tokens IS NULL AND a.estimated_input_tokens IS NULL",
    "cached_tokens": "a.cached_tokens IS NULL",
    "cache_write_tokens": "a.cache_write_tokens IS NULL",
    "output_tokens": "a.output_tokens IS NULL AND a.estimated_output_tokens IS NULL",
}

_FROM = "FROM requests r JOIN attempts a ON a.request_id = r.id"
_FILTERED = {
    "provider": "a.provider",
    "model": "a.model_asked",
    "client": "r.client",
    "session": "r.session",
    "agent": "r.agent",
}


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """Which attempts; None asks for all. A model goes by its provider's name for it."""

    since_ms: int | None = None
    by: By = "model"
    provider: str | None = None
    model: str | None = None
    client: str | None = None
    session: str | None = None
    agent: str | None = None
    limit: int = DEFAULT_LIMIT


class Source(msgspec.Struct, kw_only=True):
    """Attempts whose price comes from one source (SPEC 9.3).

    Of `cost_pd` a part is that of `approximate` attempts: by estimates, or by what a cut answer had counted.
    """

    attempts: int = 0
    cost_pd: int = 0
    approximate: int = 0


class Spent(msgspec.Struct, kw_only=True):
    """What a part of the attempts used and cost. `name` None: those that have none.

    A count is None where no attempt has one; `unreported` says how many more attempts used something that it lacks.
    `metered_pd` adds up what is known by the providers' counts, `estimated_pd` by our own; `equivalent_pd` is what a
    subscription's calls would have cost. Of `unpriced` attempts nobody knows it; `free` ones cost exactly nothing.
    `partial` ones were cut, and are metered by what they had counted until then.
    """

    name: str | None = None
    requests: int = 0
    failed: int = 0  # of the requests
    attempts: int = 0
    input_tokens: int | None = None  # without the next two
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    estimated_input_tokens: int | None = None  # ours, of the attempts whose provider reported none
    estimated_output_tokens: int | None = None
    unreported: dict[str, int] = msgspec.field(default_factory=dict)  # attempts by count; none is left out
    partial: int = 0  # attempts
    partial_priced: int = 0  # of those, which are in `metered_pd` by their counts
    metered_pd: int = 0
    metered: int = 0  # attempts that were priced by the providers' counts
    estimated_pd: int = 0
    estimated: int = 0  # attempts that were priced by an estimate
    equivalent_pd: int = 0
    unpriced: int = 0
    free: int = 0
    sources: dict[str, Source] = msgspec.field(default_factory=dict)

    @property
    def all_input(self) -> int | None:
        """What was sent, from a cache or not, with our estimates."""
        return _together(self.input_tokens, self.cached_tokens, self.cache_write_tokens, self.estimated_input_tokens)

    @property
    def all_output(self) -> int | None:
        """What was answered, with our estimates."""
        return _together(self.output_tokens, self.estimated_output_tokens)

    @property
    def is_approximate(self) -> bool:
        """Whether the counts hold an estimate, or those of an answer that was cut."""
        return bool(self.partial) or _together(self.estimated_input_tokens, self.estimated_output_tokens) is not None


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of money paid in advance; less by nobody knows how much for the `unpriced`.

    `approximate` attempts are charged by estimates, or by what a cut answer had counted.
    """

    provider: str
    account: str | None
    balance_pd: int
    since_ms: int
    spent_pd: int
    unpriced: int
    approximate: int = 0

    @property
    def left_pd(self) -> int:
        return self.balance_pd - self.spent_pd


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """`groups`: the most expensive first, or by day; `more` of them are left out."""

    total: Spent
    groups: list[Spent]
    more: int
    prepaid: list[Left]


def parse(params: Mapping[str, str], now_ms: int) -> Filters:
    """Filters from query parameters. Errors: BadParameter naming the parameter, also for one that does not exist."""
    query.only(params, PARAMETERS)
    by = params.get("by", "model")
    if by not in GROUPS:
        raise BadParameter("by", f"one of {', '.join(GROUPS)}")
    return Filters(
        since_ms=query.since(params.get("since", DEFAULT_SINCE), now_ms),
        by=by,  # type: ignore[arg-type]
        limit=query.limited(params, DEFAULT_LIMIT, MAX_LIMIT),
        **{name: query.text(name, params) for name in _FILTERED},
    )


def report(database: Database, filters: Filters, prepaid: Iterable[Prepaid] = ()) -> Report:
    """What the attempts that match cost."""
    where, values = _where(filters)
    groups = list(_spent(database, GROUPS[filters.by], where, values).values())
    total = _spent(database, "1", where, values).get(1, Spent())
    total.name = None
    if filters.by == "day":
        groups.sort(key=lambda one: str(one.name), reverse=True)
        for group in groups:
            group.name = datetime.date.fromordinal(_EPOCH + int(group.name or 0)).isoformat()
    else:
        groups.sort(key=_by_cost)
    return Report(
        total=total,
        groups=groups[: filters.limit],
        more=max(0, len(groups) - filters.limit),
        prepaid=[_left(database, one) for one in prepaid],
    )


def as_json(found: Report, filters: Filters) -> dict[str, Any]:
    """A report as the admin API and `arbiter cost --json` give it."""
    total = _json(found.total)
    del total["name"]
    return {
        "since_ms": filters.since_ms,
        "by": filters.by,
        "total": total,
        "groups": [_json(group) for group in found.groups],
        "more": found.more,
        "prepaid": [
            {**msgspec.structs.asdict(left), "left_pd": left.left_pd, "left_usd": left.left_pd / 10**12}
            for left in found.prepaid
        ],
    }


# ---------------------------------------------------------------------- inside

_EPOCH = datetime.date(1970, 1, 1).toordinal()


def _spent(database: Database, column: str, where: str, values: list[Any]) -> dict[Any, Spent]:
    counted = f"CASE WHEN {APPROXIMATE} THEN a.usage_source END"

    def sql(sum_of: Callable[[str], str]) -> str:
        money = ", ".join(sum_of(f"COALESCE({what}, 0)") for what in ("a.cost_pd", "a.equivalent_pd"))
        used = ", ".join(sum_of(what) for what in _SUMS)
        open = ", ".join(f"COUNT(CASE WHEN {_METERED} AND {what} THEN 1 END)" for what in _UNREPORTED.values())
        return (
            f"SELECT {column}, a.cost_source, {counted}, COUNT(*), COUNT(a.cost_pd),"
            f" COUNT(CASE WHEN a.cost_pd = 0 THEN 1 END), {money}, {used}, {open} {_FROM}{where}"
            f" GROUP BY {column}, a.cost_source, {counted}"
        )

    fields = (*TOKENS, "estimated_input_tokens", "estimated_output_tokens")
    found: dict[Any, Spent] = {}
    for name, source, usage, attempts, priced, free, cost_pd, other_pd, *counts in sums.rows(database, sql, values):
        one = found.setdefault(name, Spent(name=None if name is None else str(name)))
        if source == "subscription":  # apart, by what it would have cost
            priced = free = 0
        approximate = priced if usage is not None and source not in STATED else 0
        one.attempts += attempts
        for field, count in zip(fields, counts[: len(fields)], strict=True):
            setattr(one, field, _together(getattr(one, field), count))
        for field, lacking in zip(_UNREPORTED, counts[len(fields) :], strict=True):
            if lacking:
                one.unreported[field] = one.unreported.get(field, 0) + lacking
        if usage == "partial":
            one.partial += attempts
            one.partial_priced += approximate
        if usage == "estimated" and approximate:
            one.estimated += priced
            one.estimated_pd += cost_pd
        else:
            one.metered += priced
            one.metered_pd += cost_pd
        one.equivalent_pd += other_pd
        one.free += free
        if source == "unpriced":
            one.unpriced += attempts
        if source is not None:
            share = one.sources.setdefault(source, Source())
            share.attempts += attempts
            share.cost_pd += cost_pd
            share.approximate += approximate
    failed = "COUNT(DISTINCT CASE WHEN r.outcome IN ('error', 'interrupted') THEN r.id END)"
    asked = f"SELECT {column}, COUNT(DISTINCT r.id), {failed} {_FROM}{where} GROUP BY {column}"
    for name, requests, failures in database.rows(asked, values):
        if name in found:  # its first row may have come since the other question
            found[name].requests, found[name].failed = requests, failures
    return found


def _together(*counts: int | None) -> int | None:
    """The sum of those that are known; None where none is."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _by_cost(one: Spent) -> tuple[int, int, int, str]:
    return -one.metered_pd - one.estimated_pd, -one.equivalent_pd, -one.attempts, one.name or ""


def _left(database: Database, prepaid: Prepaid) -> Left:
    where, values = " WHERE r.received_ms >= ? AND a.provider = ?", [prepaid.since_ms, prepaid.provider]
    if prepaid.account is not None:
        where, values = f"{where} AND a.account = ?", [*values, prepaid.account]
    unpriced = "COUNT(CASE WHEN a.cost_source = 'unpriced' THEN 1 END)"
    about = f"COUNT(CASE WHEN {APPROXIMATE_COST} THEN 1 END)"
    found = sums.rows(
        database, lambda sum_of: f"SELECT {sum_of('a.cost_pd')}, {unpriced}, {about} {_FROM}{where}", values
    )
    ((spent_pd, count, approximate),) = found
    return Left(**_named(prepaid), spent_pd=spent_pd or 0, unpriced=count, approximate=approximate)


def _named(prepaid: Prepaid) -> dict[str, Any]:
    return {name: getattr(prepaid, name) for name in ("provider", "account", "balance_pd", "since_ms")}


def _where(filters: Filters) -> tuple[str, list[Any]]:
    parts, values = [], []
    if filters.since_ms is not None:
        parts.append("r.received_ms >= ?")
        values.append(filters.since_ms)
    for name, column in _FILTERED.items():
        value = getattr(filters, name)
        if value is not None:
            parts.append(f"{column} = ?")
            values.append(value)
    return (" WHERE " + " AND ".join(parts) if parts else ""), values


def _json(spent: Spent) -> dict[str, Any]:
    shown = msgspec.to_builtins(spent)
    assert isinstance(shown, dict)
    shown["is_approximate"] = spent.is_approximate
    for name in ("metered", "estimated", "equivalent"):
        shown[f"{name}_usd"] = shown[f"{name}_pd"] / 10**12
    for source in shown["sources"].values():
        source["cost_usd"] = source["cost_pd"] / 10**12
    return shown
