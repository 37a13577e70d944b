"""What prompt caches saved, and what was lost of them: by cause, by who was asked, and each of the largest losses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import msgspec

from arbiter.ledger import query, sums
from arbiter.ledger.database import Database
from arbiter.ledger.losses import ALARMS
from arbiter.ledger.query import BadParameter

MAX_LIMIT = 500
DEFAULT_LIMIT = 10
DEFAULT_SINCE = "24h"
PARAMETERS = ("since", "session", "provider", "model", "cause", "by", "limit")

By = Literal["provider", "model", "session", "client"]
GROUPS: Final[Mapping[str, str]] = {
    "provider": "a.provider",
    "model": "a.model_asked",
    "session": "r.session",
    "client": "r.client",
}
"""What the report may be split by, and its column."""

_FROM = "FROM requests r JOIN attempts a ON a.request_id = r.id"


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """Which calls; None asks for all. `cause` is for the largest losses alone."""

    since_ms: int | None = None
    session: str | None = None
    provider: str | None = None
    model: str | None = None  # as the provider was asked for it
    cause: str | None = None
    by: By | None = None
    limit: int = DEFAULT_LIMIT


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """How much of what was sent was read from a cache. Calls that do not say are left out."""

    calls: int
    cached_tokens: int
    cache_write_tokens: int
    input_tokens: int  # without the other two

    @property
    def sent(self) -> int:
        return self.cached_tokens + self.cache_write_tokens + self.input_tokens

    @property
    def hit_rate(self) -> float | None:
        """None where nothing was sent."""
        return self.cached_tokens / self.sent if self.sent else None


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """Losses of one cause. `lost_pd` adds up what is known; of `unpriced` calls nobody knows it."""

    cause: str
    calls: int
    lost_tokens: int
    lost_pd: int | None
    unpriced: int

    @property
    def is_explained(self) -> bool:
        return self.cause not in ALARMS


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """The same for a part of the calls; `name` None: those that have none."""

    name: str | None
    tokens: Tokens
    causes: list[Cause]


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """One call that lost something."""

    started_ms: int
    request_id: str
    trace_id: str
    attempt_id: str
    client: str | None
    session: str | None
    provider: str
    model: str | None
    cause: str
    lost_tokens: int
    lost_pd: int | None
    at: int | None
    within: str | None
    against: str | None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """`causes`: those to look into first, then those that explain themselves, each by how much they lost."""

    tokens: Tokens
    causes: list[Cause]
    groups: list[Group] | None
    largest: list[Lost]


def parse(params: Mapping[str, str], now_ms: int) -> Filters:
    """Filters from query parameters. Without `since` it is the last 24 hours, and of a session its whole life.

    Errors: BadParameter naming the parameter, also for one that does not exist.
    """
    query.only(params, PARAMETERS)
    by = params.get("by")
    if by is not None and by not in GROUPS:
        raise BadParameter("by", f"one of {', '.join(GROUPS)}")
    since = params.get("since", None if "session" in params else DEFAULT_SINCE)
    return Filters(
        since_ms=query.since(since, now_ms) if since is not None else None,
        session=query.text("session", params),
        provider=query.text("provider", params),
        model=query.text("model", params),
        cause=query.text("cause", params),
        by=by,  # type: ignore[arg-type]
        limit=query.limited(params, DEFAULT_LIMIT, MAX_LIMIT),
    )


def report(database: Database, filters: Filters) -> Report:
    """What the calls that match saved and lost."""
    where, values = _where(filters)
    column = GROUPS[filters.by] if filters.by is not None else None
    groups = None
    if column is not None:
        tokens = _tokens(database, column, where, values)
        lost = _causes(database, column, where, values)
        groups = [Group(name=name, tokens=found, causes=lost.pop(name, [])) for name, found in tokens.items()]
        groups += [Group(name=name, tokens=_NONE, causes=causes) for name, causes in lost.items()]
        groups.sort(key=lambda group: (-_lost(group.causes), -group.tokens.sent, group.name or ""))
    return Report(
        tokens=_tokens(database, "1", where, values).get(1, _NONE),
        causes=_causes(database, "1", where, values).get(1, []),
        groups=groups,
        largest=_largest(database, filters, where, values),
    )


def as_json(found: Report, filters: Filters) -> dict[str, Any]:
    """A report as the admin API and `arbiter cache --json` give it."""
    shown: dict[str, Any] = {"since_ms": filters.since_ms, **_tokens_json(found.tokens)}
    shown["causes"] = [_cause_json(cause) for cause in found.causes]
    if found.groups is not None:
        shown["by"] = filters.by
        shown["groups"] = [
            {"name": group.name, **_tokens_json(group.tokens), "causes": [_cause_json(cause) for cause in group.causes]}
            for group in found.groups
        ]
    shown["largest"] = [_priced(msgspec.structs.asdict(lost)) for lost in found.largest]
    return shown


# ---------------------------------------------------------------------- inside

_NONE = Tokens(calls=0, cached_tokens=0, cache_write_tokens=0, input_tokens=0)


def _lost(causes: list[Cause]) -> int:
    return sum(cause.lost_tokens for cause in causes)


def _tokens(database: Database, column: str, where: str, values: list[Any]) -> dict[Any, Tokens]:
    def sql(sum_of: Callable[[str], str]) -> str:
        counts = ("cached_tokens", "cache_write_tokens", "input_tokens")
        added = ", ".join(sum_of(f"COALESCE(a.{name}, 0)") for name in counts)
        return f"SELECT {column}, COUNT(*), {added} {_FROM} WHERE a.cached_tokens IS NOT NULL{where} GROUP BY {column}"

    return {
        name: Tokens(calls=calls, cached_tokens=cached, cache_write_tokens=written, input_tokens=plain)
        for name, calls, cached, written, plain in sums.rows(database, sql, values)
    }


def _causes(database: Database, column: str, where: str, values: list[Any]) -> dict[Any, list[Cause]]:
    def sql(sum_of: Callable[[str], str]) -> str:
        return (
            f"SELECT {column}, a.cache_verdict, COUNT(*), {sum_of('a.cache_lost_tokens')},"
            f" {sum_of('a.cache_lost_pd')}, COUNT(*) - COUNT(a.cache_lost_pd) {_FROM}"
            f" WHERE a.cache_verdict IS NOT NULL{where} GROUP BY {column}, a.cache_verdict"
        )

    found: dict[Any, list[Cause]] = {}
    for name, cause, calls, tokens, pd, unpriced in sums.rows(database, sql, values):
        one = Cause(cause=cause, calls=calls, lost_tokens=tokens or 0, lost_pd=pd, unpriced=unpriced)
        found.setdefault(name, []).append(one)
    for causes in found.values():
        causes.sort(key=lambda cause: (cause.is_explained, -cause.lost_tokens, cause.cause))
    return found


def _largest(database: Database, filters: Filters, where: str, values: list[Any]) -> list[Lost]:
    cause = " AND a.cache_verdict = ?" if filters.cause is not None else ""
    sql = (
        "SELECT a.started_ms, r.id, r.trace_id, a.id, r.client, r.session, a.provider, a.model_asked, a.cache_verdict,"
        f" a.cache_lost_tokens, a.cache_lost_pd, a.cache_lost_at, a.cache_lost_in, a.cache_against {_FROM}"
        f" WHERE a.cache_verdict IS NOT NULL{where}{cause}"
        " ORDER BY a.cache_lost_tokens DESC, a.started_ms DESC, a.id LIMIT ?"
    )
    asked = [*values, *([filters.cause] if filters.cause is not None else []), filters.limit]
    names = Lost.__struct_fields__
    return [Lost(**dict(zip(names, row, strict=True))) for row in database.rows(sql, asked)]


def _where(filters: Filters) -> tuple[str, list[Any]]:
    parts = {
        "r.received_ms >= ?": filters.since_ms,
        "r.session = ?": filters.session,
        "a.provider = ?": filters.provider,
        "a.model_asked = ?": filters.model,
    }
    asked = {condition: value for condition, value in parts.items() if value is not None}
    return "".join(f" AND {condition}" for condition in asked), list(asked.values())


def _tokens_json(tokens: Tokens) -> dict[str, Any]:
    return {"hit_rate": tokens.hit_rate, **msgspec.structs.asdict(tokens)}


def _cause_json(cause: Cause) -> dict[str, Any]:
    return {"is_explained": cause.is_explained, **_priced(msgspec.structs.asdict(cause))}


def _priced(shown: dict[str, Any]) -> dict[str, Any]:
    pd = shown["lost_pd"]
    return shown | {"lost_usd": None if pd is None else pd / 10**12}
