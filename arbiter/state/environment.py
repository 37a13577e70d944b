"""Opens the LMDB environments that the processes of one gateway share.

Theory of operation. LMDB maps one file into every process. Readers never wait; writers take turns on one lock that
survives the death of its holder. Commits are not flushed to the disk one by one (`sync=False`): the kernel has every
committed page, so a killed process loses nothing, and a thread flushes once a second for the sake of the machine's
own death. The same thread frees the reader slots of processes that died while reading, once a minute, and four times
a second wakes those that a killed process left asleep before a free lock (see `wakeups`).

An environment is opened in the process that uses it, never before a fork: LMDB's locks do not survive one. A process
that finds itself the child of an opener refuses to touch it. LMDB also forbids to open the same files twice in one
process, so a second `open_shared` gets the first one's environment, and the last `close` closes it.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from pathlib import Path
from typing import Any

import lmdb

from arbiter.chore import Chore
from arbiter.state.wakeups import Waker

# What LMDB says of files that are no longer, or never were, an environment of its own.
DAMAGE = (
    lmdb.InvalidError,
    lmdb.CorruptedError,
    lmdb.PageNotFoundError,
    lmdb.PanicError,
    lmdb.VersionMismatchError,
    lmdb.IncompatibleError,
)
MAX_DBS = 16
MAX_READERS = 512
READER_BYTES = 64  # in the lock's file
WAKE_EVERY_S = 0.25
SYNC_EVERY_S = 1.0
READER_CHECK_EVERY_S = 60.0

_shared: dict[Path, Environment] = {}
_shared_lock = threading.Lock()
_all: weakref.WeakSet[Environment] = weakref.WeakSet()


def _disown() -> None:
    for environment in _all:
        environment.is_ours = False


# Not asked with each transaction, because that costs as much as to begin one.
os.register_at_fork(after_in_child=_disown)


class Environment:
    """One LMDB environment, as this process sees it. Get one from `open_shared`."""

    def __init__(self, path: Path, map_bytes: int) -> None:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = path
        self.pid = os.getpid()
        self.users = 1
        self.is_ours = True  # False in the child of a fork
        self.dirty = False  # set by whoever commits; `_tend` clears it
        self.beside: set[int] = set()  # descriptors of files that are flushed along with it
        _allocate(path / "lock.mdb")
        self.lmdb: lmdb.Environment = lmdb.open(
            str(path),
            map_size=map_bytes,
            max_dbs=MAX_DBS,
            max_readers=MAX_READERS,
            max_spare_txns=4,
            mode=0o600,
            sync=False,
            # The 0.9 engine: what the measurements and the format on disk were made with.
            lib_version=0,
        )
        _all.add(self)
        self._databases: dict[bytes, Any] = {}
        self._databases_lock = threading.Lock()
        self.page_bytes: int = self.lmdb.stat()["psize"]
        self.lmdb.reader_check()
        self._waker = Waker(self.path)
        self._sync_in_s, self._check_in_s = SYNC_EVERY_S, READER_CHECK_EVERY_S
        self._tending = Chore(f"lmdb-{path.name}", self._tend, every_s=WAKE_EVERY_S, first_s=WAKE_EVERY_S)
        self._tending.start()

    def open_db(self, name: bytes) -> Any:
        """A named database, made when missing.

        Opened once per process: py-lmdb waits for the write lock here without letting go of the GIL, which the thread
        that holds that lock may need to give it back.
        """
        with self._databases_lock:
            database = self._databases.get(name)
            if database is None:
                database = self._databases[name] = self.lmdb.open_db(name)
            return database

    def read(self) -> lmdb.Transaction[bytes]:
        """A read transaction: a consistent view, and nobody waits for it. Keep it short, it keeps old pages alive."""
        if not self.is_ours:
            raise lmdb.Error("this LMDB environment was opened before a fork")
        return self.lmdb.begin()

    def begin(self) -> lmdb.Transaction[bytes]:
        """A write transaction. It holds the one write lock of all processes: a few lines, and no `await`, inside it.

        Errors: lmdb.Error also in a forked child, which must open its own environment.
        """
        if not self.is_ours:
            raise lmdb.Error("this LMDB environment was opened before a fork")
        self.dirty = True
        return self.lmdb.begin(write=True)

    def used_bytes(self, *databases: Any) -> int:
        """What the given databases really occupy; pages freed and not yet reused do not count."""
        with self.read() as txn:
            pages = 0
            for database in databases:
                stat = txn.stat(database)
                pages += stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
        return pages * self.page_bytes

    def close(self) -> None:
        """Flush and close, once the last user in this process is done."""
        with _shared_lock:
            self.users -= 1
            if self.users > 0:
                return
            _shared.pop(self.path, None)
            if os.getpid() != self.pid:
                return
            self._tending.stop()
            try:
                self.lmdb.sync(True)
            finally:  # else it could not be opened again
                self.lmdb.close()

    def _tend(self) -> None:
        self._waker.wake()
        self._sync_in_s -= WAKE_EVERY_S
        self._check_in_s -= WAKE_EVERY_S
        try:
            if self._sync_in_s <= 0:
                self._sync_in_s = SYNC_EVERY_S
                if self.dirty:
                    self.dirty = False
                    for descriptor in self.beside.copy():
                        with contextlib.suppress(OSError):  # closed meanwhile
                            os.fdatasync(descriptor)
                    self.lmdb.sync(True)
            if self._check_in_s <= 0:
                self._check_in_s = READER_CHECK_EVERY_S
                self.lmdb.reader_check()
        except lmdb.Error:
            # A full or broken disk. Whoever writes next meets the same error and reports it.
            self.dirty = True


def _allocate(lock: Path) -> None:
    """See to it that the lock's file has room on the disk. Errors: OSError where there is none.

    LMDB makes it sparse and writes to it through a mapping: on a full disk that would kill the process (SIGBUS). Only
    before it is opened: closing a second descriptor of it would give up LMDB's own locks.
    """
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, MAX_READERS * READER_BYTES)
    finally:
        os.close(descriptor)


def open_shared(path: Path, map_bytes: int) -> Environment:
    """The environment at `path` for this process, opened now or already open.

    Units: `map_bytes` bounds the file; it is sparse, so a large map costs nothing until it is filled.
    Errors: lmdb.Error or OSError when it cannot be opened.
    """
    path = path.resolve()
    with _shared_lock:
        known = _shared.get(path)
        if known is not None and known.pid == os.getpid():
            known.users += 1
            return known
        environment = Environment(path, map_bytes)
        _shared[path] = environment
        return environment
