"""What operators did, newest first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from arbiter.ledger import query
from arbiter.ledger.database import Database
from arbiter.ledger.session_rows import AuditRow
from arbiter.ledger.tables import AUDIT

MAX_LIMIT = 500
DEFAULT_LIMIT = 50
PARAMETERS = ("since", "action", "who", "target", "limit")


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """Which actions; None asks for all."""

    since_ms: int | None = None
    action: str | None = None
    who: str | None = None
    target: str | None = None
    limit: int = DEFAULT_LIMIT


def parse(params: Mapping[str, str], now_ms: int) -> Filters:
    """Filters from query parameters. Errors: BadParameter."""
    query.only(params, PARAMETERS)
    return Filters(
        since_ms=query.since(params["since"], now_ms) if "since" in params else None,
        action=query.text("action", params),
        who=query.text("who", params),
        target=query.text("target", params),
        limit=query.limited(params, DEFAULT_LIMIT, MAX_LIMIT),
    )


def listing(db: Database, filters: Filters) -> list[AuditRow]:
    """The newest of them."""
    parts: list[str] = []
    values: list[Any] = []
    for name in ("action", "who", "target"):
        if (value := getattr(filters, name)) is not None:
            parts.append(f"{name} = ?")
            values.append(value)
    if filters.since_ms is not None:
        parts.append("at_ms >= ?")
        values.append(filters.since_ms)
    where = f" WHERE {' AND '.join(parts)}" if parts else ""
    found = db.rows(f"{AUDIT.select}{where} ORDER BY at_ms DESC, id DESC LIMIT ?", (*values, filters.limit))
    return [AUDIT.load(AuditRow, one) for one in found]
