"""The store over any relational database: the one query layer of SQLite and PostgreSQL (SPEC 7.7)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from arbiter.ledger import query, schema
from arbiter.ledger.database import Change, Database, Statement, Unstorable
from arbiter.ledger.query import Entry, Filters, Page
from arbiter.ledger.records import Row, storable, storable_value
from arbiter.ledger.row import AttemptRow, RequestRow
from arbiter.ledger.store import Counts, Position, StoreDown, StoreMissing, StoreOld, StoreRefused
from arbiter.ledger.tables import ATTEMPTS, REQUESTS

T = TypeVar("T")

MOST_NAMED = 3  # of what an old database lacks


class SqlStore:
    """Rows in a database. `readonly`: nothing is made or migrated, and writing fails.

    Errors: StoreDown, from here and from every method; StoreMissing where there are no tables to read, StoreOld where
    they are not today's; QueryTooSlow.
    """

    def __init__(self, database: Database, name: str, *, readonly: bool) -> None:
        self.database = database
        self.name = name
        try:
            if readonly:
                self._check()
            else:
                self._migrate()
        except BaseException:
            database.close()
            raise

    def write(self, batch: Sequence[Row], position: Position, also: Sequence[Change] = ()) -> None:
        requests = [row for row in batch if type(row) is RequestRow]
        attempts = [row for row in batch if type(row) is AttemptRow]
        try:
            self._write(requests, attempts, position, also)
        except (Unstorable, UnicodeEncodeError):
            # One number too large for a column must not keep the rest waiting for ever.
            also = [_storable(one) if isinstance(one, Statement) else one for one in also]
            try:
                self._write([storable(row) for row in requests], [storable(row) for row in attempts], position, also)
            except Unstorable as error:
                raise StoreRefused(f"{self.name}: {error}") from error

    def look(self) -> None:
        with self.database.transaction():
            self.database.rows("SELECT 1 FROM journal_positions LIMIT 1")

    def position(self, journal: str) -> int:
        with self.database.asking():
            found = self.database.rows("SELECT position FROM journal_positions WHERE journal = ?", (journal,))
        return int(found[0][0]) if found else 0

    def read(self, question: Callable[[Database], T]) -> T:
        """What `question` finds, all of it as it was at one moment, within the time that questions have."""
        with self.database.asking():
            return question(self.database)

    def change(self, work: Callable[[Database], T]) -> T:
        """What `work` does, in one transaction."""
        with self.database.transaction():
            return work(self.database)

    def requests(self, filters: Filters) -> Page:
        with self.database.asking():
            where, values = _where(filters, self._meant(filters.trace) if filters.trace is not None else {})
            sql = f"{REQUESTS.select}{where} ORDER BY received_ms DESC, id DESC LIMIT ?"
            found = self.database.rows(sql, (*values, filters.limit + 1))
            rows = [REQUESTS.load(RequestRow, values) for values in found[: filters.limit]]
            attempts = self._attempts([row.id for row in rows])
        entries = [Entry(row, attempts.get(row.id, [])) for row in rows]
        more = len(found) > filters.limit
        return Page(entries, query.write_cursor(rows[-1]) if more else None)

    def request(self, request_id: str) -> Entry | None:
        with self.database.asking():
            found = self.database.rows(f"{REQUESTS.select} WHERE id = ?", (request_id,))
            if not found:
                return None
            attempts = self._attempts([request_id])
        return Entry(REQUESTS.load(RequestRow, found[0]), attempts.get(request_id, []))

    def counts(self) -> Counts:
        with self.database.asking():
            return Counts(self.database.about("requests"), self.database.about("attempts"))

    def close(self) -> None:
        self.database.close()

    # ------------------------------------------------------------------ inside

    def _write(
        self, requests: Sequence[Row], attempts: Sequence[Row], position: Position, also: Sequence[Change]
    ) -> None:
        with self.database.transaction():
            for table, rows in ((REQUESTS, requests), (ATTEMPTS, attempts)):
                if self.database.run_many(table.inserts(rows)) < len(rows):
                    # Some are known. Asked for here and not with each insert, which would cost PostgreSQL a tenth more.
                    self.database.run_many(table.mends(rows))
            for change in also:
                if isinstance(change, Statement):
                    self.database.run_many(change)
                else:
                    change(self.database)
            self.database.run(
                "INSERT INTO journal_positions (journal, position) VALUES (?, ?)"
                " ON CONFLICT (journal) DO UPDATE SET position = excluded.position",
                (position.journal, position.sequence),
            )

    def _meant(self, text: str) -> dict[str, list[Any]]:
        """The condition for what an id means: of an attempt, a request or a trace, else what they begin with."""
        attempts = self.database.rows("SELECT request_id FROM attempts WHERE id = ?", (text,))
        if attempts:
            return {"id = ?": [attempts[0][0]]}
        same = {"(trace_id = ? OR client_trace_id = ? OR id = ?)": 3 * [text]}
        ((sql, values),) = same.items()
        if len(text) < query.MIN_PREFIX or self.database.rows(f"SELECT 1 FROM requests WHERE {sql} LIMIT 1", values):
            return same
        between = " OR ".join(f"{name} BETWEEN ? AND ?" for name in ("trace_id", "client_trace_id", "id"))
        # Nothing is beyond the last character there is.
        return {f"({between})": 3 * [text, text + "\U0010ffff"]}

    def _attempts(self, request_ids: Sequence[str]) -> dict[str, list[AttemptRow]]:
        by_request: dict[str, list[AttemptRow]] = {}
        if request_ids:
            marks = ", ".join("?" * len(request_ids))
            sql = f"{ATTEMPTS.select} WHERE request_id IN ({marks}) ORDER BY request_id, number, id"
            for values in self.database.rows(sql, request_ids):
                attempt = ATTEMPTS.load(AttemptRow, values)
                by_request.setdefault(attempt.request_id, []).append(attempt)
        return by_request

    def _check(self) -> None:
        with self.database.asking():
            present = self.database.tables()
            if "requests" not in present:
                raise StoreMissing(f"{self.name} has none of the gateway's tables")
            version = self._version(present)
        with self._refusing_newer():
            lacking = schema.lacking(version, present)
        if lacking or version < schema.VERSION:
            named = ", ".join(lacking[:MOST_NAMED]) + (" and more" if len(lacking) > MOST_NAMED else "")
            ours = "" if version == schema.VERSION else f", this one has schema {schema.VERSION}"
            what = f": it has no {named}" if lacking else ""
            raise StoreOld(f"{self.name} is of an earlier version (schema {version}{ours}){what}")

    def _migrate(self) -> None:
        with self.database.asking():
            if not self._plan():
                return
        with self.database.migrating():
            for statement in self._plan():  # anew: another process may have been first
                self.database.run(statement)

    def _plan(self) -> list[str]:
        present = self.database.tables()
        version = self._version(present)
        with self._refusing_newer():
            return schema.plan(version, present, self.database.indexes(), self.database.dialect.types)

    def _version(self, present: Mapping[str, list[str]]) -> int:
        if "schema_version" not in present:
            return 0
        return int(self.database.rows("SELECT MAX(version) FROM schema_version")[0][0] or 0)

    @contextlib.contextmanager
    def _refusing_newer(self) -> Iterator[None]:
        try:
            yield
        except schema.NewerSchema as error:
            raise StoreDown(f"{self.name}: {error}") from error


def _storable(statement: Statement) -> Statement:
    return Statement(statement.sql, [[storable_value(value) for value in row] for row in statement.rows])


_SAME = ("client", "status", "session", "affinity_key")
"""Filters for what a column of the same name holds."""


def _where(filters: Filters, meant: Mapping[str, list[Any]]) -> tuple[str, list[Any]]:
    """The conditions of a listing, with their values. `meant` is that of `filters.trace`."""
    parts = dict(meant)
    parts |= {f"{name} = ?": [value] for name in _SAME if (value := getattr(filters, name)) is not None}
    if filters.provider is not None:
        tried = "EXISTS (SELECT 1 FROM attempts a WHERE a.request_id = requests.id AND a.provider = ?)"
        parts[tried] = [filters.provider]
    if filters.errors:
        parts["outcome IN ('error', 'interrupted')"] = []
    if filters.since_ms is not None:
        parts["received_ms >= ?"] = [filters.since_ms]
    if filters.label is not None:
        parts["REPLACE(labels, ?, '') <> labels"] = [query.label_text(filters.label)]
    if filters.kind is not None:
        parts["kind = ?" if filters.kind == "client" else "kind <> 'client' AND kind = ?"] = [filters.kind]
    if filters.before is not None:
        parts["(received_ms, id) < (?, ?)"] = [*filters.before]
    where = " WHERE " + " AND ".join(parts) if parts else ""
    return where, [value for values in parts.values() for value in values]
