"""One connection to a relational database, as the query layer speaks to it.

The SQL is what SQLite and PostgreSQL have in common; what differs is named in `Dialect`. A value is marked by `?`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, overload

import msgspec

Values = Sequence[Any]


class Dialect(msgspec.Struct, frozen=True):
    """`types` names the column type of each `schema.Kind`."""

    name: str  # sqlite | postgresql
    types: Mapping[str, str]


class Columns(Sequence[Values]):
    """Rows that are kept by column; there is one column at least."""

    __slots__ = ("columns",)

    def __init__(self, columns: Sequence[list[Any]]) -> None:
        self.columns = columns

    def __iter__(self) -> Iterator[Values]:
        return zip(*self.columns, strict=True)

    def __len__(self) -> int:
        return len(self.columns[0])

    @overload
    def __getitem__(self, at: int) -> Values: ...
    @overload
    def __getitem__(self, at: slice) -> Columns: ...
    def __getitem__(self, at: int | slice) -> Values:
        if isinstance(at, slice):
            return Columns([values[at] for values in self.columns])
        return [values[at] for values in self.columns]


class Statement(msgspec.Struct, frozen=True):
    """One change, made once for each of `rows`.

    `into`: it does no more than put them into these columns of a table, of whole numbers and text, where their id is
    not known yet.
    """

    sql: str
    rows: Sequence[Values]
    into: tuple[str, Sequence[str]] | None = None


class Unstorable(ValueError):
    """A value that no column of this database holds. Nothing of the transaction is done."""


class Database(Protocol):
    """Calls from several threads take turns. Every method may block.

    Errors: StoreDown; `asking` also QueryTooSlow; whatever takes values also Unstorable.
    """

    @property
    def dialect(self) -> Dialect: ...

    def rows(self, sql: str, values: Values = ()) -> list[tuple[Any, ...]]:
        """What a question finds. Within `asking` or `transaction`."""

    def run(self, sql: str, values: Values = ()) -> int:
        """Change something; returns how many rows. Within `transaction`."""

    def run_many(self, statement: Statement) -> int:
        """Change something for each of its rows; returns how many changed in all. Within `transaction`."""

    def transaction(self) -> AbstractContextManager[None]:
        """All that is done within, or nothing."""

    def asking(self) -> AbstractContextManager[None]:
        """Our turn to look at rows, for as long as a question may take: all that is asked within sees them as they were
        at one moment, whatever comes meanwhile."""

    def alone(self, name: str) -> None:
        """Wait until nobody else is who asked the same of this name, and be it until the transaction is over. Within
        `transaction`."""

    def migrating(self) -> AbstractContextManager[None]:
        """A transaction, for as long as it may take; of all processes that want one, one at a time."""

    def about(self, table: str) -> int:
        """About how many rows a table has, at the same small cost for any number. Within `asking`."""

    def indexes(self) -> set[str]:
        """The names of the indexes there are. Within `asking` or `transaction`."""

    def tables(self) -> dict[str, list[str]]:
        """The tables there are, with their columns. Within `asking` or `transaction`."""

    def close(self) -> None:
        """Let go of the connection; idempotent."""


Change = Statement | Callable[[Database], None]
"""What is done within somebody's transaction: one statement, or what only a look at the tables there can tell."""
