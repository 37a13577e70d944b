"""The fleet's store: a PostgreSQL database that several gateways may share.

Every transaction says at its beginning what it may do and for how long, in the same round trip: the connection itself
has no settings that the next user of it, or a new one in its place, would have to know.

A server whose machine is gone, or whose processes stand still, answers nothing and closes nothing. The kernel's
keepalives notice the first; for the second a transaction that gets no answer within its time is cut from our side.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import re
import socket
import threading
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import psycopg
from psycopg.adapt import Dumper, Loader
from psycopg.types.numeric import Int8Dumper

from arbiter import clock
from arbiter.config.address import hidden
from arbiter.ledger import records, schema
from arbiter.ledger.database import Dialect, Statement, Unstorable, Values
from arbiter.ledger.sqlstore import SqlStore
from arbiter.ledger.store import QUERY_S, QueryTooSlow, StoreBusy, StoreDown, StoreRefused

BUSY_S = 5.0
CONNECT_S = 5
# A batch takes milliseconds. Much less would end those of a server that is only slow, again and again.
ANSWER_S = 15.0
MIGRATE_S = 3600.0
# A server that vanished is noticed within 5 + 3 × 2 seconds, also while we wait for it to take what we sent.
KEEPALIVE: Final[dict[str, Any]] = {
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 11_000,
}
MIGRATION_LOCK = int.from_bytes(b"arbiter", "big")
# Below this a table is counted: the statistics of a young one say nothing yet.
COUNTED_ROWS = 10_000

MANY_ROWS = 4

DIALECT: Final = Dialect("postgresql", schema.POSTGRESQL)

_NUL = rb"\u0000"
_encode = msgspec.json.Encoder().encode

# What is no mark: quoted texts and names, and comments.
_PIECES = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*.*?\*/|\?""", re.DOTALL)


class PostgresStore(SqlStore):
    """Rows in a server's database. `busy_s`: how long a lock is waited for; `query_s`: how long a question may take.

    Errors: as `SqlStore`.
    """

    def __init__(self, url: str, *, readonly: bool = False, busy_s: float = BUSY_S, query_s: float = QUERY_S) -> None:
        database = Postgres(url, readonly=readonly, busy_s=busy_s, query_s=query_s)
        super().__init__(database, database.name, readonly=readonly)


class Postgres:
    """One connection to the server (`database.Database`), made anew where it is found dead between two transactions."""

    dialect = DIALECT

    def __init__(self, url: str, *, readonly: bool, busy_s: float, query_s: float) -> None:
        self.name = hidden(url)
        self._url = url
        self._query_s = query_s
        self._until = math.inf  # on the monotonic clock, while a question is asked
        self._mode = "READ ONLY" if readonly else "READ WRITE"
        self._busy = f"SET LOCAL lock_timeout = {_ms(busy_s)}"
        self._lock = threading.Lock()
        self._is_closed = False
        self._db = self._connect()
        try:
            with self._transaction(f"BEGIN {self._mode}", ANSWER_S):
                (encoding,) = self.rows("SHOW server_encoding")[0]
            if encoding != "UTF8":
                raise StoreDown(f"{self.name}: its encoding is {encoding}; make a database with ENCODING 'UTF8'")
        except BaseException:
            self._db.close()
            raise

    def rows(self, sql: str, values: Values = ()) -> list[tuple[Any, ...]]:
        if clock.monotonic() > self._until:  # many quick questions are one slow one
            raise self._too_slow()
        return self._db.execute(marked(sql), values).fetchall()

    def run(self, sql: str, values: Values = ()) -> int:
        return self._db.execute(marked(sql), values).rowcount

    def run_many(self, statement: Statement) -> int:
        if not statement.rows:
            return 0
        whole = _as_one(statement)
        if whole is not None:
            return self._db.execute(*whole).rowcount
        # Sent one after the other without waiting for the answers between them.
        self._many.executemany(marked(statement.sql), statement.rows)
        return self._many.rowcount

    def about(self, table: str) -> int:
        sql = (
            "SELECT GREATEST(c.reltuples, pg_stat_get_live_tuples(c.oid)),"
            f" (SELECT COUNT(*) FROM (SELECT 1 FROM {table} LIMIT {COUNTED_ROWS}) few)"
            f" FROM pg_class c WHERE c.oid = '{table}'::regclass"
        )
        estimated, counted = self.rows(sql)[0]
        return int(counted if counted < COUNTED_ROWS else max(estimated, counted))

    def indexes(self) -> set[str]:
        return {name for (name,) in self.rows("SELECT indexname FROM pg_indexes WHERE schemaname = current_schema()")}

    def tables(self) -> dict[str, list[str]]:
        sql = (
            "SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid"
            " JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p')"
            " AND a.attnum > 0 AND NOT a.attisdropped ORDER BY c.relname, a.attnum"
        )
        found: dict[str, list[str]] = {}
        for table, column in self.rows(sql):
            found.setdefault(table, []).append(column)
        return found

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        with self._lock, self._transaction(f"BEGIN {self._mode}; {self._busy}", ANSWER_S):
            yield

    def alone(self, name: str) -> None:
        self.rows("SELECT pg_advisory_xact_lock(hashtextextended(?, 0))", (name,))

    @contextlib.contextmanager
    def migrating(self) -> Iterator[None]:
        first = f"BEGIN {self._mode}; SELECT pg_advisory_xact_lock({MIGRATION_LOCK}); {self._busy}"
        with self._lock, self._transaction(first, MIGRATE_S):
            yield

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        limit_s = self._query_s
        if not self._lock.acquire(timeout=limit_s):
            raise QueryTooSlow(f"other questions have kept the store busy for {limit_s:g} s: ask again")
        try:
            first = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = {_ms(limit_s)}"
            # The server's own limit is for each statement; a question has several, and may spend its time between them.
            # Twice as much for all of it: a server that stood still for a while is waited for, and gone on with.
            self._until = clock.monotonic() + 2 * limit_s
            with self._transaction(first, 2 * limit_s):
                yield
        finally:
            self._until = math.inf
            self._lock.release()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._db.close()

    # ------------------------------------------------------------------ inside

    def _connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        with self._translated():
            db = psycopg.connect(
                self._url,
                autocommit=True,  # transactions begin and end where we say so
                cursor_factory=psycopg.RawCursor,
                connect_timeout=CONNECT_S,
                client_encoding="utf8",
                application_name="arbiter",
                **KEEPALIVE,
            )
        self._many = db.cursor()
        for type_ in (int, bool):
            db.adapters.register_dumper(type_, _Int8)
            # Without a type of its own a value takes the column's: one prepared statement does for every row.
            self._many.adapters.register_dumper(type_, _Untyped)
        db.adapters.register_dumper(str, _Text)
        db.adapters.register_loader("numeric", _Number)
        db.adapters.register_loader("bool", _Flag)
        return db

    @contextlib.contextmanager
    def _transaction(self, first: str, limit_s: float) -> Iterator[None]:
        with self._translated(), self._within(limit_s) as cut:
            self._begin(first, cut)
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(psycopg.Error):
                    self._db.execute("ROLLBACK")
                raise

    def _begin(self, first: str, cut: _Cut) -> None:
        try:
            self._db.execute(first)
        except psycopg.OperationalError:
            if cut.was_made or self._is_closed or not self._db.closed:
                raise
            # The server was started again meanwhile. Nothing has been done, so nothing is done twice.
            self._db = self._connect()
            self._db.execute(first)

    @contextlib.contextmanager
    def _within(self, limit_s: float) -> Iterator[_Cut]:
        """Cut the connection if this takes longer: whoever waits for the server is told that it has closed it."""
        cut = _Cut()
        timer = threading.Timer(limit_s, cut.make, [self])
        timer.daemon = True
        timer.start()
        try:
            yield cut
        except psycopg.OperationalError as error:
            if cut.was_made:
                raise StoreDown(f"{self.name}: no answer for {limit_s:g} s") from error
            raise
        finally:
            cut.forget()
            timer.cancel()

    def _too_slow(self) -> QueryTooSlow:
        return QueryTooSlow(f"this takes more than {self._query_s:g} s: narrow the filters, for example with `since`")

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except psycopg.errors.QueryCanceled as error:
            raise self._too_slow() from error
        except (psycopg.DataError, UnicodeEncodeError) as error:
            raise Unstorable(_text(error)) from error
        except psycopg.errors.LockNotAvailable as error:
            raise StoreBusy(f"{self.name}: {_text(error)}") from error
        except psycopg.errors.InsufficientPrivilege as error:
            raise StoreDown(f"{self.name}: {_text(error)}") from error
        except (psycopg.IntegrityError, psycopg.ProgrammingError, psycopg.NotSupportedError) as error:
            raise StoreRefused(f"{self.name}: {_text(error)}") from error
        except psycopg.Error as error:
            raise StoreDown(f"{self.name}: {_text(error)}") from error


class _Cut:
    """The end of a connection on which nobody answers. Made or forgotten, never both: its number is soon another's."""

    def __init__(self) -> None:
        self.was_made = False
        self._is_over = False
        self._lock = threading.Lock()

    def make(self, database: Postgres) -> None:
        with self._lock, contextlib.suppress(psycopg.Error, OSError):
            if self._is_over:
                return
            self.was_made = True
            with socket.socket(fileno=os.dup(database._db.fileno())) as line:
                line.shutdown(socket.SHUT_RDWR)

    def forget(self) -> None:
        with self._lock:
            self._is_over = True


class _Int8(Int8Dumper):
    """Whole numbers are BIGINT, whatever their size; so is a flag."""

    def dump(self, obj: Any) -> bytes:
        return b"%d" % obj


class _Untyped(Dumper):
    """A whole number of no type, for the server to find out."""

    oid = 0

    def dump(self, obj: Any) -> bytes:
        return b"%d" % obj


class _Text(Dumper):
    """A text without what cannot be in the database, where it was left out too (`records.storable`)."""

    oid = 0

    def dump(self, obj: Any) -> bytes:
        return str(records.storable_value(obj)).encode()


class _Number(Loader):
    """A sum of BIGINT is NUMERIC there, and a whole number here."""

    def load(self, data: Any) -> int | float:
        text = bytes(data).decode()
        return float(text) if "." in text or text == "NaN" else int(text)


class _Flag(Loader):
    """A comparison is 1 or 0, as in SQLite."""

    def load(self, data: Any) -> int:
        return int(bytes(data) == b"t")


@functools.lru_cache(1024)
def marked(sql: str) -> bytes:
    """The statement with `$1`, `$2`, … in place of each `?` that stands for a value."""
    count = 0

    def number(match: re.Match[str]) -> str:
        nonlocal count
        if match[0] != "?":
            return match[0]
        count += 1
        return f"${count}"

    return _PIECES.sub(number, sql).encode()


def _as_one(statement: Statement) -> tuple[bytes, list[str]] | None:
    """The same with all rows in one value, which costs us half of what it takes to bind each of theirs.

    None where they are few, or where something in them has to be left out.
    """
    if statement.into is None or len(statement.rows) < MANY_ROWS:
        return None
    table, names = statement.into
    try:
        rows = _encode([dict(zip(names, row, strict=True)) for row in statement.rows])
    except (UnicodeEncodeError, OverflowError):
        return None
    if _NUL in rows:
        return None
    columns = ", ".join(names)
    sql = (
        f"INSERT INTO {table} ({columns}) SELECT {columns} FROM json_populate_recordset(NULL::{table}, $1::json)"
        " ON CONFLICT (id) DO NOTHING"
    )
    return sql.encode(), [rows.decode()]


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))  # 0 would be "for ever"


def _text(error: Exception) -> str:
    """What went wrong, in one line."""
    diag = getattr(error, "diag", None)
    return (getattr(diag, "message_primary", None) or " ".join(str(error).split()) or type(error).__name__)[:500]
