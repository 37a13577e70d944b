"""Rows taken apart into columns, and columns put together for statements that take several rows each."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import msgspec


class Taker:
    """What rows of one kind have in some of their fields."""

    def __init__(self, kind: type[msgspec.Struct], fields: Sequence[str]) -> None:
        self._fields = tuple(fields)

    def take(self, rows: Sequence[msgspec.Struct]) -> list[list[Any] | None]:
        """Return the column of each field; None for one in which no row has a value."""
        columns: list[list[Any] | None] = []
        for name in self._fields:
            column = [getattr(row, name) for row in rows]
            columns.append(column if column.count(None) < len(column) else None)
        return columns


def varies(column: list[Any]) -> bool:
    """Return whether not all of its values are equal; there is one at least."""
    return column[0] != column[-1] or column.count(column[0]) < len(column)


def together(columns: Sequence[list[Any]], varying: Sequence[bool], rows: int, at_once: int) -> list[tuple[Any, ...]]:
    """Return the values of the first `rows` rows, those of `at_once` of them in one tuple: of its first row all, of the
    others those of the columns that vary.

    Shapes: `rows` is a multiple of `at_once`, and no more than there are.
    """
    firsts = zip(*[values[:rows:at_once] for values in columns], strict=True)
    others = list(zip(*itertools.compress(columns, varying), strict=True))
    return [
        (*first, *itertools.chain.from_iterable(others[at + 1 : at + at_once]))
        for at, first in zip(range(0, rows, at_once), firsts, strict=True)
    ]
