"""The embedded store: one SQLite file in WAL mode, so that reading never waits for the recorder."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from arbiter import clock
from arbiter.ledger import query, schema
from arbiter.ledger.query import Entry, Filters, Page
from arbiter.ledger.records import Row, storable
from arbiter.ledger.row import AttemptRow, RequestRow
from arbiter.ledger.store import Counts, Position, QueryTooSlow, StoreDown, StoreMissing

BUSY_S = 5.0
# How many steps SQLite's machine takes between two looks at the clock: a fraction of a millisecond.
STEPS_PER_LOOK = 10_000

R = TypeVar("R", bound=msgspec.Struct)


class _Table:
    """One row type as a table: its statements, and the way of a value into a column and back."""

    def __init__(self, name: str, row: type[msgspec.Struct]) -> None:
        self.columns = schema.columns(row)
        names = ", ".join(column.name for column in self.columns)
        marks = ", ".join("?" * len(self.columns))
        self.select = f"SELECT {names} FROM {name}"
        self.insert = f"INSERT INTO {name} ({names}) VALUES ({marks}) ON CONFLICT (id) DO NOTHING"
        self._json = tuple(index for index, column in enumerate(self.columns) if column.kind == "json")

    def bind(self, row: msgspec.Struct) -> Sequence[Any]:
        values: tuple[Any, ...] = msgspec.structs.astuple(row)
        for index in self._json:
            if values[index] is not None:
                value = msgspec.json.encode(values[index]).decode()
                values = (*values[:index], value, *values[index + 1 :])
        return values

    def load(self, row: type[R], values: Sequence[Any]) -> R:
        found = {}
        for column, value in zip(self.columns, values, strict=True):
            if value is None:
                found[column.name] = column.default  # a column younger than the row
            elif column.kind == "json":
                found[column.name] = msgspec.json.decode(value)
            elif column.kind == "boolean":
                found[column.name] = bool(value)
            else:
                found[column.name] = value
        return row(**found)


_REQUESTS = _Table("requests", RequestRow)
_ATTEMPTS = _Table("attempts", AttemptRow)


class SqliteStore:
    """One connection to the file. Calls from several threads take turns.

    Shapes: with `readonly` nothing is made or migrated, and writing fails. With `query_s` a question to the rows may
    take so long, and wait so long for its turn; None is for ever.
    Errors: StoreDown, from here and from every method; StoreMissing when there is no file to read; QueryTooSlow.
    """

    def __init__(
        self, path: Path, *, readonly: bool = False, busy_s: float = BUSY_S, query_s: float | None = None
    ) -> None:
        self.path = path
        self._query_s = query_s
        self._lock = threading.Lock()
        if readonly and not path.exists():
            raise StoreMissing(f"there is no store at {path}")
        try:
            if not readonly:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                # SQLite would make it with the umask's mode; its -wal and -shm files take over the mode of this one.
                os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            self._db = sqlite3.connect(
                f"{path.resolve().as_uri()}?mode={'ro' if readonly else 'rw'}",
                uri=True,
                timeout=busy_s,
                isolation_level=None,
                check_same_thread=False,
            )
        except (OSError, sqlite3.Error) as error:
            raise StoreDown(f"{path}: {error}") from error
        try:
            with self._translated():
                if readonly:
                    self._db.execute("PRAGMA query_only = ON")
                    if not self._present():
                        raise StoreMissing(f"{path} holds no ledger yet")
                else:
                    self._db.execute("PRAGMA journal_mode = WAL")
                    # A batch leaves the journal once it is committed here, so a commit must be on the disk.
                    self._db.execute("PRAGMA synchronous = FULL")
                    self._migrate()
        except BaseException:
            self._db.close()
            raise

    def write(self, batch: Sequence[Row], position: Position) -> None:
        requests = [row for row in batch if type(row) is RequestRow]
        attempts = [row for row in batch if type(row) is AttemptRow]
        with self._lock, self._translated():
            try:
                self._write(requests, attempts, position)
            except (OverflowError, UnicodeEncodeError):
                # One number too large for a column must not keep the rest waiting for ever.
                self._write([storable(row) for row in requests], [storable(row) for row in attempts], position)

    def position(self, journal: str) -> int:
        with self._lock, self._translated():
            found = self._db.execute("SELECT position FROM journal_positions WHERE journal = ?", (journal,)).fetchone()
        return int(found[0]) if found else 0

    def requests(self, filters: Filters) -> Page:
        with self._asking():
            where, values = _where(filters, prefix=filters.trace is not None and not self._is_whole(filters.trace))
            sql = f"{_REQUESTS.select}{where} ORDER BY received_ms DESC, id DESC LIMIT ?"
            found = self._db.execute(sql, (*values, filters.limit + 1)).fetchall()
            rows = [_REQUESTS.load(RequestRow, values) for values in found[: filters.limit]]
            attempts = self._attempts([row.id for row in rows])
        entries = [Entry(row, attempts.get(row.id, [])) for row in rows]
        more = len(found) > filters.limit
        return Page(entries, query.write_cursor(rows[-1]) if more else None)

    def request(self, request_id: str) -> Entry | None:
        with self._asking():
            found = self._db.execute(f"{_REQUESTS.select} WHERE id = ?", (request_id,)).fetchone()
            if found is None:
                return None
            attempts = self._attempts([request_id])
        return Entry(_REQUESTS.load(RequestRow, found), attempts.get(request_id, []))

    def counts(self) -> Counts:
        # COUNT(*) reads a whole index. Row numbers are given out in order, and nothing is deleted from the middle.
        span = "(SELECT MAX(rowid) FROM {0}) - (SELECT MIN(rowid) FROM {0}) + 1"
        with self._asking():
            requests, attempts = self._db.execute(
                f"SELECT {span.format('requests')}, {span.format('attempts')}"
            ).fetchone()
        return Counts(requests or 0, attempts or 0)

    def close(self) -> None:
        with self._lock, contextlib.suppress(sqlite3.Error):
            self._db.close()

    # ------------------------------------------------------------------ inside

    def _write(self, requests: Sequence[Row], attempts: Sequence[Row], position: Position) -> None:
        with self._transaction():
            self._db.executemany(_REQUESTS.insert, [_REQUESTS.bind(row) for row in requests])
            self._db.executemany(_ATTEMPTS.insert, [_ATTEMPTS.bind(row) for row in attempts])
            self._db.execute(
                "INSERT INTO journal_positions (journal, position) VALUES (?, ?)"
                " ON CONFLICT (journal) DO UPDATE SET position = excluded.position",
                (position.journal, position.sequence),
            )

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        """Our turn to look at rows, and no longer than `query_s`. Errors: StoreDown, QueryTooSlow."""
        limit_s = self._query_s
        if not self._lock.acquire(timeout=-1 if limit_s is None else limit_s):
            raise QueryTooSlow(f"other questions have kept the store busy for {limit_s:g} s: ask again")
        try:
            if limit_s is None:
                with self._translated():
                    yield
                return
            until = clock.monotonic() + limit_s
            self._db.set_progress_handler(lambda: clock.monotonic() > until, STEPS_PER_LOOK)
            try:
                with self._translated():
                    yield
            finally:
                with contextlib.suppress(sqlite3.Error):  # closed meanwhile
                    self._db.set_progress_handler(None, 0)
        finally:
            self._lock.release()

    def _is_whole(self, trace: str) -> bool:
        """Whether some request has exactly this trace id: then it does not stand for longer ones."""
        sql = "SELECT 1 FROM requests WHERE trace_id = ? OR client_trace_id = ? LIMIT 1"
        return self._db.execute(sql, (trace, trace)).fetchone() is not None

    def _attempts(self, request_ids: Sequence[str]) -> dict[str, list[AttemptRow]]:
        by_request: dict[str, list[AttemptRow]] = {}
        if request_ids:
            marks = ", ".join("?" * len(request_ids))
            sql = f"{_ATTEMPTS.select} WHERE request_id IN ({marks}) ORDER BY request_id, number, id"
            for values in self._db.execute(sql, request_ids):
                attempt = _ATTEMPTS.load(AttemptRow, values)
                by_request.setdefault(attempt.request_id, []).append(attempt)
        return by_request

    def _migrate(self) -> None:
        with self._transaction():
            present = self._present()
            version = 0
            if "schema_version" in present:
                version = int(self._db.execute("SELECT MAX(version) FROM schema_version").fetchone()[0] or 0)
            try:
                statements = schema.plan(version, present, schema.SQLITE)
            except schema.NewerSchema as error:
                raise StoreDown(f"{self.path}: {error}") from error
            for statement in statements:
                self._db.execute(statement)

    def _present(self) -> dict[str, list[str]]:
        tables = [name for (name,) in self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {
            table: [name for (name,) in self._db.execute("SELECT name FROM pragma_table_info(?)", (table,))]
            for table in tables
        }

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
                raise QueryTooSlow(
                    f"this takes more than {self._query_s:g} s: narrow the filters, for example with `since`"
                ) from error
            raise StoreDown(f"{self.path}: {error}") from error


def _where(filters: Filters, *, prefix: bool) -> tuple[str, list[Any]]:
    """The conditions of a listing. With `prefix`, a long enough trace also means every id that begins with it."""
    parts: list[str] = []
    values: list[Any] = []
    if filters.trace is not None and prefix and len(filters.trace) >= query.MIN_PREFIX:
        parts.append("(trace_id BETWEEN ? AND ? OR client_trace_id BETWEEN ? AND ?)")
        values += 2 * [filters.trace, filters.trace + "\U0010ffff"]  # the last character there is: nothing is beyond
    elif filters.trace is not None:
        parts.append("(trace_id = ? OR client_trace_id = ?)")
        values += [filters.trace, filters.trace]
    if filters.provider is not None:
        parts.append("EXISTS (SELECT 1 FROM attempts a WHERE a.request_id = requests.id AND a.provider = ?)")
        values.append(filters.provider)
    if filters.client is not None:
        parts.append("client = ?")
        values.append(filters.client)
    if filters.status is not None:
        parts.append("status = ?")
        values.append(filters.status)
    if filters.errors:
        parts.append("outcome IN ('error', 'interrupted')")
    if filters.since_ms is not None:
        parts.append("received_ms >= ?")
        values.append(filters.since_ms)
    if filters.session is not None:
        parts.append("session = ?")
        values.append(filters.session)
    if filters.affinity_key is not None:
        parts.append("affinity_key = ?")
        values.append(filters.affinity_key)
    if filters.before is not None:
        parts.append("(received_ms, id) < (?, ?)")
        values += filters.before
    return (" WHERE " + " AND ".join(parts) if parts else ""), values
