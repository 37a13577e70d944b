"""Row types as tables: their statements, and the way of a value into a column and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from arbiter.ledger import schema
from arbiter.ledger.blocks import BlockRow, HeadersRow, UseRow
from arbiter.ledger.database import Statement, Values
from arbiter.ledger.row import AttemptRow, RequestRow
from arbiter.ledger.session_rows import SessionRow

R = TypeVar("R", bound=msgspec.Struct)


class Table:
    """One row type as a table."""

    def __init__(self, name: str, row: type[msgspec.Struct]) -> None:
        self.name = name
        self.columns = schema.columns(row)
        names = ", ".join(column.name for column in self.columns)
        marks = ", ".join("?" * len(self.columns))
        self.select = f"SELECT {names} FROM {name}"
        self.insert = f"INSERT INTO {name} ({names}) VALUES ({marks}) ON CONFLICT (id) DO NOTHING"
        others = [column.name for column in self.columns if column.name != "id"]
        changed = ", ".join(f"{column} = excluded.{column}" for column in others)
        self.upsert = f"INSERT INTO {name} ({names}) VALUES ({marks}) ON CONFLICT (id) DO UPDATE SET {changed}"
        self._names = tuple(column.name for column in self.columns)
        # Columns lead; what is never stored stands behind them.
        self._leads = row.__struct_fields__[: len(self._names)] == self._names
        self._json = tuple(index for index, column in enumerate(self.columns) if column.kind == "json")

    def inserts(self, rows: Sequence[msgspec.Struct]) -> Statement:
        """Each of `rows`, but that one whose id is known already changes nothing."""
        return Statement(self.insert, [self.bind(row) for row in rows])

    def upserts(self, rows: Sequence[msgspec.Struct]) -> Statement:
        """Each of `rows` in the place of the one with its id."""
        return Statement(self.upsert, [self.bind(row) for row in rows])

    def bind(self, row: msgspec.Struct) -> Values:
        if self._leads:
            values: tuple[Any, ...] = msgspec.structs.astuple(row)[: len(self._names)]
        else:
            values = tuple([getattr(row, name) for name in self._names])
        for index in self._json:
            if values[index] is not None:
                value = msgspec.json.encode(values[index]).decode()
                values = (*values[:index], value, *values[index + 1 :])
        return values

    def load(self, row: type[R], values: Values) -> R:
        found = {}
        for column, value in zip(self.columns, values, strict=True):
            if value is None:
                found[column.name] = column.default  # a column younger than the row
            elif column.kind == "json":
                found[column.name] = msgspec.json.decode(value)
            elif column.kind == "boolean":
                found[column.name] = bool(value)
            elif column.kind == "blob":
                found[column.name] = bytes(value)
            else:
                found[column.name] = value
        return row(**found)


REQUESTS = Table("requests", RequestRow)
ATTEMPTS = Table("attempts", AttemptRow)
BLOCKS = Table("blocks", BlockRow)
USES = Table("request_blocks", UseRow)
HEADERS = Table("request_headers", HeadersRow)
SESSIONS = Table("sessions", SessionRow)
