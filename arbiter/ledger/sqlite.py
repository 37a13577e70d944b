"""The embedded store: one SQLite file in WAL mode, so that reading never waits for the recorder.

What becomes of a log (`-wal`) that somebody takes away while it is open: nothing more is written, and whoever notices
has SQLite move all of it into the file, through a connection that has it open still, and closes every connection that
this process has. Those that are opened then begin a new log. All must go: SQLite keeps its index of the log for as long
as one is open, and looks up in the new log what was in the other. Where a log that the index does not speak of stands
in the place of the lost one, nothing is opened: its pages would be taken for those of the other. People take it away.
"""

from __future__ import annotations

import contextlib
import math
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

from arbiter import clock
from arbiter.ledger import grouped, schema
from arbiter.ledger.database import Dialect, Statement, Unstorable, Values
from arbiter.ledger.sqlstore import SqlStore
from arbiter.ledger.store import QUERY_S, QueryTooSlow, StoreBusy, StoreDown, StoreMissing, StoreMoved, StoreRefused

BUSY_S = 5.0
_AGAIN_S = 0.02
_opening = threading.Lock()
"""Held while a file is made or opened. To close any descriptor of a file gives up every lock that this process has on
it: a thread that made the file, and closes it behind another's first lock, would take that one away unseen. The next
process to leave the database would then be the last, for all it knows, and take the log away. Held also while the
connections of a lost log are closed, so that none is opened meanwhile."""
_RESCUE_S = 0.5
"""How long they are waited for; who gives up tries again soon."""
# How many steps SQLite's machine takes between two looks at the clock: a fraction of a millisecond.
STEPS_PER_LOOK = 10_000
CACHE_KIB = 16 << 10
LOG_PAGES = 4000  # of 4 KiB, in the -wal file
LOG_BYTES = 64 << 20  # of that file, once it is written from its beginning again

REFUSALS: Final = {
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_TOOBIG,
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_RANGE,
}

WORDS: Final[Mapping[int | None, str]] = {
    sqlite3.SQLITE_NOTADB: "is no SQLite database",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened: this user may not read it, or not write beside it",
    sqlite3.SQLITE_READONLY_DIRECTORY: "cannot be opened: this user may not write beside it, as is needed "
    "while no gateway runs",
}
"""What some errors of SQLite mean here, where its own words do not tell."""

DIALECT: Final = Dialect("sqlite", schema.SQLITE)


class SqliteStore(SqlStore):
    """Rows in a file. `query_s`: how long a question may take, and as long again for its turn.

    Errors: as `SqlStore`; StoreMissing also where there is no file to read.
    """

    def __init__(self, path: Path, *, readonly: bool = False, busy_s: float = BUSY_S, query_s: float = QUERY_S) -> None:
        self.path = path
        database = Sqlite(path, readonly=readonly, busy_s=busy_s, query_s=query_s)
        super().__init__(database, str(path), readonly=readonly)


class Sqlite:
    """One connection to the file (`database.Database`)."""

    dialect = DIALECT

    def __init__(self, path: Path, *, readonly: bool, busy_s: float, query_s: float) -> None:
        self.path = path
        self._query_s = query_s
        self._busy_s = busy_s
        self._until = math.inf  # on the monotonic clock, while a question is asked
        self._lock = threading.Lock()
        self._readonly = readonly
        self._is_open = True
        self._is_left = False
        try:
            if path.is_dir():
                inside = path / "arbiter.db"
                raise StoreDown(f"{path} is a directory" + (f"; do you mean {inside}?" if inside.exists() else ""))
            if readonly and not path.exists():
                raise StoreMissing(f"there is no store at {path}")
            if not readonly:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _opening:
                if not readonly:
                    _make(path)
                self._file = _identity(path)
                self._log: tuple[int, int] | None = None  # once there surely is one
                self._see_no_lost_log()
                self._db = sqlite3.connect(
                    f"{path.resolve().as_uri()}?mode={'ro' if readonly else 'rw'}",
                    uri=True,
                    timeout=busy_s,
                    isolation_level=None,
                    check_same_thread=False,
                )
                _connections.setdefault(self._file, []).append(self)
        except OSError as error:
            raise StoreDown(f"{path}: {error.strerror}") from error
        except sqlite3.Error as error:
            raise _down(path, error) from error
        try:
            with self._lock, self._translated():
                if readonly:
                    self._db.execute("PRAGMA query_only = ON")
                else:
                    _use_log(self._db, busy_s)
                    # A batch leaves the journal once it is committed here, so a commit must be on the disk.
                    self._db.execute("PRAGMA synchronous = FULL")
                    # Indexes over random ids touch a page per row: kept in memory, and moved from the log into the file
                    # less often, they cost a fifth less.
                    self._db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
                    self._db.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}")
                    # What grew behind a long question does not stay that large for good.
                    self._db.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
        except BaseException:
            self._let_go()
            raise

    def rows(self, sql: str, values: Values = ()) -> list[tuple[Any, ...]]:
        if clock.monotonic() > self._until:  # many quick questions are one slow one
            raise self._too_slow()
        return self._db.execute(sql, values).fetchall()

    def run(self, sql: str, values: Values = ()) -> int:
        return self._db.execute(sql, values).rowcount

    def run_many(self, statement: Statement) -> int:
        made = [self._db.executemany(one.sql, one.rows) for one in grouped.statements(statement)]
        return sum([max(0, cursor.rowcount) for cursor in made])

    def about(self, table: str) -> int:
        # COUNT(*) reads a whole index. Row numbers are given out in order, and rows are deleted at the old end.
        found = self.rows(f"SELECT (SELECT MAX(rowid) FROM {table}) - (SELECT MIN(rowid) FROM {table}) + 1")
        return int(found[0][0] or 0)

    def indexes(self) -> set[str]:
        return {name for (name,) in self._db.execute("SELECT name FROM sqlite_master WHERE type = 'index'")}

    def tables(self) -> dict[str, list[str]]:
        names = [name for (name,) in self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {
            table: [name for (name,) in self._db.execute("SELECT name FROM pragma_table_info(?)", (table,))]
            for table in names
        }

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        with self._lock, self._translated():
            self._check_file()
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
                self._know_log()
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise

    def alone(self, name: str) -> None:
        """Whoever is within a transaction is, here."""

    def migrating(self) -> AbstractContextManager[None]:
        return self.transaction()  # which nobody else has meanwhile

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        limit_s = self._query_s
        if not self._lock.acquire(timeout=limit_s):
            raise QueryTooSlow(f"other questions have kept the store busy for {limit_s:g} s: ask again")
        try:
            self._check_file()
            self._until = until = clock.monotonic() + limit_s
            self._db.set_progress_handler(lambda: clock.monotonic() > until, STEPS_PER_LOOK)
            with self._translated():
                try:
                    # One snapshot for all that is asked within. While it lasts the log is moved into the file only as
                    # far as the snapshot goes: it lasts no longer than the question may.
                    self._db.execute("BEGIN")
                    yield
                    self._know_log()
                finally:
                    self._until = math.inf
                    with contextlib.suppress(sqlite3.Error):  # closed meanwhile
                        self._db.set_progress_handler(None, 0)
                        self._db.execute("ROLLBACK")  # there is nothing to keep
        finally:
            self._lock.release()

    def _know_log(self) -> None:
        if self._log is None:
            with contextlib.suppress(OSError):  # not every file system can have one
                self._log = _identity(self._log_path)

    def _check_file(self) -> None:
        """What is open must still be what the path leads to, else rows go where nobody finds them."""
        if not self._is_open:
            raise StoreMoved(f"{self._log_path} was removed while it was open")
        for path, known in ((self.path, self._file), (self._log_path, self._log)):
            if known is None:
                continue
            try:
                found = _identity(path)
            except OSError as error:
                raise StoreMoved(f"{path}: {error.strerror}; it was removed while it was open") from error
            if found != known:
                raise StoreMoved(f"{path} was replaced by another file while it was open")

    @property
    def _log_path(self) -> Path:
        return self.path.with_name(f"{self.path.name}-wal")

    def close(self) -> None:
        if self._has_lost_log():
            with _opening:
                if not self._is_open or self._rescue_log() or not self._readonly:
                    self._is_left = True  # where it could still move the log, it waits for who opens the file next
                    return
        with self._lock:
            self._let_go()

    def _let_go(self) -> None:
        self._is_open = False
        with contextlib.suppress(ValueError):
            _connections.get(self._file, []).remove(self)
        with contextlib.suppress(sqlite3.Error):
            self._db.close()

    def _see_no_lost_log(self) -> None:
        """Errors: StoreMoved where others here have a log open that was taken away, and cannot be saved now."""
        kin = list(_connections.get(self._file, ()))
        lost = next((one for one in kin if one._has_lost_log()), None)
        if lost is None:
            for one in kin:
                if one._is_left:  # its log is back
                    one._let_go()
        elif not lost._rescue_log():
            why = "another stands in its place" if self._log_path.exists() else "cannot be moved into the file now"
            raise StoreMoved(f"{self._log_path} was removed while it was open, and {why}")

    def _has_lost_log(self) -> bool:
        """Whether its log was taken away, and nobody who knows of the others goes on in another."""
        try:
            if not self._is_open or self._log is None or _identity(self.path) != self._file:
                return False
            if _identity(self._log_path) == self._log:
                return False
            # The head of SQLite's index tells which log it is of, by two random numbers.
            with self._log_path.open("rb") as log:
                named = log.read(24)[16:]
            return not named or named != _head(self.path.with_name(f"{self.path.name}-shm"))[32:]
        except FileNotFoundError:
            return self.path.exists()
        except OSError:
            return False

    def _rescue_log(self) -> bool:
        """Have all of a lost log moved into the file, and close whatever is open of it here; False where that cannot be
        now. `_opening` is held."""
        kin = list(_connections[self._file])
        until = clock.monotonic() + _RESCUE_S
        with contextlib.ExitStack() as held:
            for one in kin:
                if not one._lock.acquire(timeout=max(0.0, until - clock.monotonic())):
                    return False
                held.callback(one._lock.release)
            with contextlib.suppress(FileNotFoundError):
                if self._log_path.stat().st_size:
                    return False
            if not any(one._log == self._log and one._moves_log() for one in kin):
                return False
            for one in kin:
                one._let_go()
        return True

    def _moves_log(self) -> bool:
        """Move all of the log into the file, whatever its name is now; False where somebody reads what is in it."""
        if self._readonly:
            return False
        try:
            self._db.execute(f"PRAGMA busy_timeout = {_RESCUE_S * 1000:.0f}")
            ((busy, left, _),) = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self._db.execute(f"PRAGMA busy_timeout = {self._busy_s * 1000:.0f}")
        except sqlite3.Error:
            return False
        return not busy and not left

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
                raise self._too_slow() from error
            if self._is_refusal(error):
                raise StoreRefused(f"{self.path}: {error}") from error
            raise _down(self.path, error) from error
        except (OverflowError, UnicodeEncodeError) as error:
            raise Unstorable(str(error)) from error

    def _too_slow(self) -> QueryTooSlow:
        return QueryTooSlow(f"this takes more than {self._query_s:g} s: narrow the filters, for example with `since`")

    def _is_refusal(self, error: sqlite3.Error) -> bool:
        code = getattr(error, "sqlite_errorcode", None)
        if code is not None:
            return code & 0xFF in REFUSALS
        # Raised by the driver itself: a value that it cannot bind, or that it was closed.
        try:
            return self._db.total_changes >= 0
        except sqlite3.ProgrammingError:
            return False


_connections: dict[tuple[int, int], list[Sqlite]] = {}
"""What this process has open, by file."""


def _down(path: Path, error: sqlite3.Error) -> StoreDown:
    code = getattr(error, "sqlite_errorcode", None)
    words = WORDS.get(code)
    # The lower byte is the kind; the others say more of it.
    kind = StoreBusy if code is not None and code & 0xFF == sqlite3.SQLITE_BUSY else StoreDown
    return kind(f"{path}: {error}" if words is None else f"{path} {words}")


def _use_log(db: sqlite3.Connection, busy_s: float) -> None:
    """Have writes go to a log beside the file. Errors: sqlite3.Error.

    Where another connection writes at that moment SQLite does not wait to change this, as it does for all else.
    """
    until = clock.monotonic() + busy_s
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or clock.monotonic() > until:
                raise
            time.sleep(_AGAIN_S)


def _identity(path: Path) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino


def _head(path: Path) -> bytes:
    """The first 40 bytes of a file that this process has open; b"" where it has not. Errors: OSError.

    They are read through the descriptor that is there: to close one of our own would give up SQLite's locks on it.
    """
    wanted = _identity(path)
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found = os.fstat(int(name))
            if (found.st_dev, found.st_ino) == wanted:
                return os.pread(int(name), 40, 0)
    return b""


def _make(path: Path) -> None:
    """Make the file where there is none. Errors: OSError.

    SQLite would make it with the umask's mode; its -wal and -shm files take over the mode of this one. One that is
    there is not touched (`_opening`).
    """
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
