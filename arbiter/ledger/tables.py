"""Row types as tables: their statements, and the way of a value into a column and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from arbiter._speedups import columns
from arbiter.ledger import schema
from arbiter.ledger.blocks import BlockRow, HeadersRow, UseRow
from arbiter.ledger.database import Columns, Statement, Values
from arbiter.ledger.row import AttemptRow, RequestRow
from arbiter.ledger.session_rows import AuditRow, NoteRow, SessionRow

INSERTS_KNOWN = 256

_encode = msgspec.json.Encoder().encode

R = TypeVar("R", bound=msgspec.Struct)


class Table:
    """One row type as a table."""

    def __init__(self, name: str, row: type[msgspec.Struct]) -> None:
        self.name = name
        self.columns = schema.columns(row)
        names = ", ".join(column.name for column in self.columns)
        marks = ", ".join("?" * len(self.columns))
        self.select = f"SELECT {names} FROM {name}"
        self._new = {column.name: f"excluded.{column.name}" for column in self.columns if column.name != "id"}
        self._into = f"INSERT INTO {name} ({names}) VALUES ({marks}) ON CONFLICT (id) DO UPDATE SET "
        self.upsert = self._into + _sets(self._new)
        self.names = tuple(column.name for column in self.columns)
        self._take = columns.Taker(row, self.names).take
        self._json = {column.name for column in self.columns if column.kind == "json"}
        self._booleans = {column.name for column in self.columns if column.kind == "boolean"}
        self._has_blobs = any(column.kind == "blob" for column in self.columns)
        self._inserts: dict[tuple[str, ...], str] = {}

    def inserts(self, rows: Sequence[msgspec.Struct]) -> Statement:
        """Each of `rows`, but that one whose id is known already changes nothing.

        Only columns that some row has a value for are named: to bind a NULL costs a driver more than to bind a number.
        """
        used = {name: values for name, values in zip(self.names, self._take(rows), strict=True) if values is not None}
        names = tuple(used) or self.names
        bound = Columns([self._bound(name, used.get(name) or [None] * len(rows)) for name in names])
        return Statement(self._insert(names), bound, None if self._has_blobs else (self.name, names))

    def upserts(self, rows: Sequence[msgspec.Struct]) -> Statement:
        """Each of `rows` in the place of the one with its id."""
        return Statement(self.upsert, self.bound(rows))

    def mends(self, rows: Sequence[msgspec.Struct]) -> Statement:
        """Each of `rows` in the place of the one with its id that was taken for interrupted, if it knows better.

        Which session that is of may have been found out when it was stored.
        """
        new = self._new | {"session": f"COALESCE(excluded.session, {self.name}.session)"}
        knows_better = f"{self.name}.outcome = 'interrupted' AND excluded.outcome <> 'interrupted'"
        return Statement(f"{self._into}{_sets(new)} WHERE {knows_better}", self.bound(rows))

    def bound(self, rows: Sequence[msgspec.Struct]) -> list[Values]:
        """The rows' values as a driver takes them."""
        taken = zip(self.names, self._take(rows), strict=True)
        return list(zip(*[self._bound(name, values or [None] * len(rows)) for name, values in taken], strict=True))

    def _bound(self, name: str, values: list[Any]) -> list[Any]:
        if name in self._json:
            return [value if value is None else _encode(value).decode() for value in values]
        if name in self._booleans:
            if values and not columns.varies(values):  # as they mostly do not
                return [value if value is None else int(value) for value in values[:1]] * len(values)
            return [value if value is None else int(value) for value in values]
        return values

    def _insert(self, names: tuple[str, ...]) -> str:
        known = self._inserts.get(names)
        if known is None:
            if len(self._inserts) >= INSERTS_KNOWN:
                self._inserts.clear()
            marks = ", ".join("?" * len(names))
            known = f"INSERT INTO {self.name} ({', '.join(names)}) VALUES ({marks}) ON CONFLICT (id) DO NOTHING"
            self._inserts[names] = known
        return known

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


def _sets(values: Mapping[str, str]) -> str:
    return ", ".join(f"{column} = {value}" for column, value in values.items())


REQUESTS = Table("requests", RequestRow)
ATTEMPTS = Table("attempts", AttemptRow)
BLOCKS = Table("blocks", BlockRow)
USES = Table("request_blocks", UseRow)
HEADERS = Table("request_headers", HeadersRow)
SESSIONS = Table("sessions", SessionRow)
NOTES = Table("notes", NoteRow)
AUDIT = Table("audit", AuditRow)
