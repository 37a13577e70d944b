"""Rows put into a table of SQLite several to a statement, where what they have in common is bound once.

A statement for each row costs SQLite as much around it (cursors opened on a table and its indexes, and closed) as the
row itself, and half of what a batch's rows hold is the same in all of them. Each set of columns and of common ones
makes a statement of its own, which costs what some fifteen rows do where it is not known: few rows are not worth one.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import Final

from arbiter._speedups import columns
from arbiter.ledger.database import Columns, Statement

AT_ONCE: Final = 10
"""How many rows to a statement: more give nothing more."""
LEAST_ROWS: Final = 50
STATEMENTS_KNOWN = 64

_SHARES: Final = sys.version_info[:2] != (3, 12)
"""Python 3.12 takes a numbered mark for a named one, and warns of each."""


def statements(statement: Statement) -> Sequence[Statement]:
    """What does the same as `statement`, within a transaction that nothing is left of where it fails."""
    rows = statement.rows
    if statement.into is None or not isinstance(rows, Columns) or len(rows) < LEAST_ROWS:
        return (statement,)
    table, names = statement.into
    whole = len(rows) - len(rows) % AT_ONCE
    varies = tuple([not _SHARES or columns.varies(values) for values in rows.columns])
    together = columns.together(rows.columns, varies, whole, AT_ONCE)
    first = Statement(_insert(table, tuple(names), varies), together)
    return (first, Statement(statement.sql, rows[whole:])) if whole < len(rows) else (first,)


@functools.lru_cache(STATEMENTS_KNOWN)
def _insert(table: str, names: tuple[str, ...], varies: tuple[bool, ...]) -> str:
    """One that takes all values of a row, and of those that follow it the ones that vary."""
    marks = ", ".join("?" * len(names))
    others = ", ".join(["?" if is_bound else f"?{at}" for at, is_bound in enumerate(varies, 1)])
    # OR FAIL: what went before a row that cannot be stored stays for the transaction to undo. Else SQLite would keep
    # each page as it was before the statement, to undo that by itself.
    return (
        f"INSERT OR FAIL INTO {table} ({', '.join(names)}) VALUES ({marks}){f', ({others})' * (AT_ONCE - 1)}"
        " ON CONFLICT (id) DO NOTHING"
    )
