"""What a table that a later version brought begins with, in a database that has rows already (`schema.plan`).

A session's row is made of the requests that name it, as `sessions` would have made it of each in its turn; and these
get the numbers of their turns, so that the next one goes on from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from arbiter.ledger.session_rows import APART, KINDS, NO_TURNS

_TOLD = "session IS NOT NULL AND kind = 'client'"
_ENDED = "COALESCE(finished_ms, received_ms)"
_ASIDE = ", ".join(f"'{kind}'" for kind in sorted(NO_TURNS))
_TURN = f"outcome = 'ok' AND endpoint NOT IN {APART} AND COALESCE(request_kind, '') NOT IN ({_ASIDE})"


def _count(condition: str) -> str:
    return f"SUM(CASE WHEN {condition} THEN 1 ELSE 0 END)"


_SESSIONS: Final = {
    "id": "COALESCE(client, '') || ' ' || session",
    "session": "session",
    "client": "client",
    "agent": "MIN(agent)",
    "parent": "MIN(CASE WHEN parent_session <> session THEN parent_session END)",
    "is_told": "1",
    "first_ms": "MIN(received_ms)",
    "last_ms": f"MAX({_ENDED})",
    "requests": "COUNT(*)",
    "turns": _count(_TURN),
    "failed": _count("outcome <> 'ok'"),
    **{column: _count(f"request_kind = '{kind}'") for kind, column in KINDS.items()},
}
_PARENTS: Final = {
    "id": "COALESCE(client, '') || ' ' || parent",
    "session": "parent",
    "client": "client",
    "is_told": "1",
    **dict.fromkeys(("requests", "turns", "failed", *KINDS.values()), "0"),
}

SEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "sessions": (
        f"INSERT INTO sessions ({', '.join(_SESSIONS)}) SELECT {', '.join(_SESSIONS.values())}"
        f" FROM requests WHERE {_TOLD} GROUP BY client, session",
        # Those that nobody has seen but as a parent.
        f"INSERT INTO sessions ({', '.join(_PARENTS)}) SELECT DISTINCT {', '.join(_PARENTS.values())}"
        " FROM sessions WHERE parent IS NOT NULL ON CONFLICT (id) DO NOTHING",
        "UPDATE requests SET turn_index = told.turn FROM (SELECT id AS turn_of, ROW_NUMBER() OVER"
        f" (PARTITION BY client, session ORDER BY {_ENDED}, id) AS turn FROM requests WHERE {_TOLD} AND {_TURN}) told"
        " WHERE told.turn_of = requests.id",
    )
}
"""By table: statements for when it has just been made, and all columns are there."""
