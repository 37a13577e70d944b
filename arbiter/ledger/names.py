"""What a session is called, and who said so (SPEC 8.4).

Three give titles. What an operator wrote stands until an operator says otherwise, also that there is to be none; an
agent's own, which it shows to its user, stands above the alias's. The summary is the alias's alone. What says the same
again changes nothing, and not when it was changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from arbiter.ledger.database import Database, Statement
from arbiter.sessions.naming import Name

ALIAS, AGENT, OPERATOR = "alias", "agent", "operator"

_IS_OPEN = f"(title_by IS NULL OR title_by = '{ALIAS}')"
_IS_CLEARED = f"title IS NULL AND COALESCE(title_by, '') = '{OPERATOR}'"
_OF_AGENTS: Final = (
    f"UPDATE sessions SET title = ?, title_by = '{AGENT}', titled_ms = CASE WHEN title = ? THEN titled_ms ELSE ? END"
    f" WHERE id = ? AND COALESCE(title_by, '') <> '{OPERATOR}'"
)


def by_alias(db: Database, key: str, name: Name, at_ms: int) -> bool:
    """The alias has found a name; whether anything changed."""
    sql = f"UPDATE sessions SET title = ?, title_by = '{ALIAS}', titled_ms = ? WHERE id = ? AND {_IS_OPEN}"
    changed = db.run(f"{sql} AND COALESCE(title, '') <> ?", (name.title, at_ms, key, name.title))
    if name.summary is not None:
        sql = "UPDATE sessions SET summary = ?, titled_ms = ? WHERE id = ? AND title IS NOT NULL"
        changed += db.run(f"{sql} AND COALESCE(summary, '') <> ?", (name.summary, at_ms, key, name.summary))
    return changed > 0


def by_agents(titles: Iterable[tuple[str, str, int]]) -> Statement:
    """Agents were told these: session, title, when."""
    return Statement(_OF_AGENTS, [(title, title, at_ms, key) for key, title, at_ms in titles])


def by_operator(db: Database, key: str, title: str, at_ms: int) -> bool:
    """An operator calls it so; whether anything changed."""
    sql = f"UPDATE sessions SET title = ?, title_by = '{OPERATOR}', titled_ms = ? WHERE id = ?"
    is_other = f"(COALESCE(title, '') <> ? OR COALESCE(title_by, '') <> '{OPERATOR}')"
    return db.run(f"{sql} AND {is_other}", (title, at_ms, key, title)) > 0


def clear(db: Database, key: str, at_ms: int) -> bool:
    """An operator wants it to have no title, and no summary; whether there was anything to do. It stays without."""
    sql = f"UPDATE sessions SET title = NULL, summary = NULL, title_by = '{OPERATOR}', titled_ms = ? WHERE id = ?"
    return db.run(f"{sql} AND NOT ({_IS_CLEARED})", (at_ms, key)) > 0


def wants(db: Database, key: str) -> bool:
    """Whether the alias has anything to find out about this session."""
    sql = f"SELECT CASE WHEN {_IS_CLEARED} THEN 1 ELSE 0 END FROM sessions WHERE id = ?"
    return db.rows(sql, (key,)) == [(0,)]
