"""Columns added up, however large that gets. An upstream may say that an answer cost nine million dollars: two of them
are too much for 64 bits, and must not take the report of all the others with them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from arbiter.ledger.database import Database


def rows(
    database: Database, sql: Callable[[Callable[[str], str]], str], values: Sequence[Any] = ()
) -> list[tuple[Any, ...]]:
    """What a question finds; `sql` makes it, given how to write the sum of a column. Sums are whole numbers.

    Shapes: the sum of nothing but NULL is None. SQLite's are exact as far as 64 bits go, and right to 15 digits beyond.
    """
    try:
        return database.rows(sql(lambda what: f"SUM({what})"), values)
    except sqlite3.OperationalError as error:
        if "integer overflow" not in str(error):
            raise
    found = database.rows(sql(lambda what: f"CASE WHEN COUNT({what}) > 0 THEN TOTAL({what}) END"), values)
    return [tuple([int(value) if isinstance(value, float) else value for value in row]) for row in found]
