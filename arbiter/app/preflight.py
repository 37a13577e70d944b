"""What is looked at before anything starts, so that what cannot work says so in one line and ends there.

An address that is taken, a directory that cannot be written: `CannotStart`. A journal, a shared state or captured
content that a crash of the machine left damaged is no reason not to serve: it is moved aside, and a new one begins.
"""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import fcntl
import multiprocessing
import os
import shutil
import signal
import socket
import stat
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import lmdb

from arbiter.app.running import RUN
from arbiter.config import keyring, reasoning
from arbiter.config.snapshot import Server, Snapshot
from arbiter.config.source import ConfigError
from arbiter.ledger import capture_file, slots
from arbiter.log import Log
from arbiter.state import environment, shared

_log = Log(__name__)

_PROBE_S = 30.0
_PROBE_WHILE_SERVING_S = 5.0  # the supervisor looks after nobody meanwhile
_DEATHS_BY_DAMAGE = (-signal.SIGBUS, -signal.SIGSEGV, -signal.SIGABRT)
_STATE_IS_LOST = "pins, counters and pauses that were only there are lost"


class CannotStart(Exception):
    """The gateway cannot start; its text is what the console shows, with what to do about it."""


def check(snapshot: Snapshot) -> None:
    """Look at the address and the directories. Errors: CannotStart."""
    server = snapshot.server
    if server.socket is not None:
        _check_unix_socket(Path(server.socket))
    else:
        _check_address(server)
    if snapshot.storage.url != "none":
        _check_directory(snapshot.state_dir, "state")
        if snapshot.storage.path is not None:
            _check_directory(snapshot.storage.path.parent, "storage.url")


@contextlib.contextmanager
def state_held(snapshot: Snapshot) -> Iterator[None]:
    """The state directory is ours alone within. Errors: CannotStart where another gateway has it.

    A record lock (POSIX): it belongs to this process and no child inherits it, so it ends with the supervisor however
    that ends, and the next one need not wait for children that are still on their way out.
    """
    if snapshot.storage.url == "none":
        yield
        return
    held = _hold(snapshot.state_dir)
    try:
        yield
    finally:
        if held >= 0:
            os.close(held)


def _hold(state_dir: Path) -> int:
    """The descriptor that holds the lock; -1 where a full disk has no room for its file."""
    try:
        held = os.open(state_dir / "lock", os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            return -1
        raise CannotStart(f"{state_dir / 'lock'} cannot be opened: {error.strerror}") from error
    try:
        fcntl.lockf(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError) as error:
        owner = os.pread(held, 300, 0).decode("utf-8", "replace").strip()
        os.close(held)
        raise CannotStart(
            f"{state_dir} is in use by another gateway ({owner}); "
            "stop that one, or set ARBITER_DATA_DIR (or `state` and `storage.url`) to another place"
        ) from error
    except OSError as error:
        os.close(held)
        raise CannotStart(f"{state_dir} cannot be locked: {error.strerror}; put it on a local disk") from error
    with contextlib.suppress(OSError):  # a full disk: only the words are missing then
        os.ftruncate(held, 0)
        os.pwrite(held, f"pid {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    return held


def make_run_dir(state_dir: Path) -> Path:
    """A directory of this run's own, private and short of name: unix sockets allow 107 bytes.

    Beside the state where the system has no place for temporary files (a read-only root). What runs left behind that
    were killed whole goes. Errors: CannotStart.
    """
    try:
        place = Path(tempfile.gettempdir())
    except OSError:
        place = state_dir
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        _sweep(place)
        while True:
            run_dir = Path(tempfile.mkdtemp(prefix=RUN, dir=place))
            if _lock(run_dir) >= 0:  # kept open for as long as we live; else somebody swept it in this very moment
                return run_dir
    except OSError as error:
        raise CannotStart(
            f"there is no directory for temporary files ({error.strerror}); set TMPDIR to one that can be written"
        ) from error


def _lock(run_dir: Path) -> int:
    """Hold the directory until the last process of ours, supervisor or child, has ended; -1 where somebody does.

    Returns the descriptor that holds it.
    """
    held = os.open(run_dir / "lock", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(held)
        return -1
    return held


def _sweep(place: Path) -> None:
    for old in place.glob(f"{RUN}*/lock"):
        with contextlib.suppress(OSError):
            if old.stat().st_uid == os.geteuid() and (held := _lock(old.parent)) >= 0:
                shutil.rmtree(old.parent, ignore_errors=True)
                os.close(held)


def _check_address(server: Server) -> None:
    where = f"{server.bind}:{server.port}"
    family = socket.AF_INET6 if ":" in server.bind else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # Without SO_REUSEPORT, which the workers use and which would let a second gateway share the port unnoticed.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((server.bind, server.port))
        except PermissionError as error:
            raise CannotStart(f"{where}: {error.strerror}; ports below 1024 may need privileges") from error
        except OSError as error:
            hint = "choose another with --port (or PORT=…)" if _is_taken(error) else "choose another with --bind"
            raise CannotStart(f"{where}: {error.strerror}; {hint}") from error


def _is_taken(error: OSError) -> bool:
    return error.errno == errno.EADDRINUSE


def _check_unix_socket(path: Path) -> None:
    """Free, or left by a gateway that was killed: then it goes."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise CannotStart(f"{path}: there is something that is not a socket; choose another path with --socket")
    except FileNotFoundError as error:
        if not path.parent.is_dir():
            message = f"{path}: there is no directory {path.parent}; make it, or choose another path with --socket"
            raise CannotStart(message) from error
        if not os.access(path.parent, os.W_OK | os.X_OK):
            message = f"{path}: {path.parent} cannot be written; choose another path with --socket"
            raise CannotStart(message) from error
        return
    except OSError as error:
        raise CannotStart(f"{path}: {error.strerror}; choose another path with --socket") from error
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except OSError as error:
            raise CannotStart(f"{path}: {error}; choose another path with --socket") from error
    raise CannotStart(f"{path} is in use; choose another path with --socket")


def _check_directory(path: Path, key: str) -> None:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        if error.errno == errno.ENOSPC:  # room may come, and requests are served without it (SPEC 7.6)
            return
        raise CannotStart(
            f"{path} cannot be written: {error.strerror}; "
            f"make it writable for user {os.geteuid()}, or set ARBITER_DATA_DIR (or `{key}`) to another place"
        ) from error


# --- damage -----------------------------------------------------------------------------------------------------------


def make_reasoning_key(snapshot: Snapshot) -> None:
    """Make the key that reasoning is sealed with, in the data directory, where there is none yet and something is kept.

    Errors: ConfigError for a file of keys that holds something else. One that cannot be made keeps nobody from serving.
    """
    file = reasoning.path_in(snapshot.data_dir)
    if snapshot.has_own_keys or snapshot.storage.url == "none" or reasoning.read(file):
        return
    try:
        with keyring.held(file):  # another gateway may be starting on it
            if not reasoning.read(file):
                reasoning.write(file, [reasoning.new()])
    except ConfigError as error:
        _log.warn("no key to seal reasoning with could be made: it does not cross formats", error=error)


def set_damage_aside(snapshot: Snapshot) -> None:
    """Move what is damaged of journal, shared state and captured content out of the way, before anybody opens them.

    Only the supervisor does this. They are read in a process of its own: damaged pages may kill their reader, and a
    supervisor that had opened LMDB could not fork workers.
    """
    if snapshot.storage.url != "none":
        journal, state = snapshot.state_dir / "journal", snapshot.state_dir / shared.DIRECTORY
        aside = _set_aside(journal, "the journal", "rows that were only there are lost", _PROBE_S)
        if aside is not None:
            _keep_open_records(aside, journal)
        _set_aside(state, "the shared state", _STATE_IS_LOST, _PROBE_S)
        # Also where nothing is captured now: control stores what was, as long as this is there.
        content = snapshot.state_dir / capture_file.DIRECTORY
        _set_aside(content, "captured content", "what was not stored yet is lost", _PROBE_S)


def look_after_death(snapshot: Snapshot, exit_code: int | None) -> bool:
    """A child has ended: if it did as one does that reads damaged pages, look at the shared state again.

    Returns whether it was moved aside. Whoever has it open notices within a second, and opens its successor. The
    journal and captured content stay where they are: those who have them open would go on writing to what was moved.
    """
    if exit_code not in _DEATHS_BY_DAMAGE:
        return False
    return look_at_state(snapshot)


def look_at_state(snapshot: Snapshot) -> bool:
    """Look at the shared state while it is in use, and move it aside if it is damaged; returns whether it was."""
    if snapshot.storage.url == "none":
        return False
    return (
        _set_aside(snapshot.state_dir / shared.DIRECTORY, "the shared state", _STATE_IS_LOST, _PROBE_WHILE_SERVING_S)
        is not None
    )


def _set_aside(path: Path, what: str, loss: str, limit_s: float) -> Path | None:
    """Move an LMDB environment aside if it is damaged; returns where to, None where it stays."""
    if not path.is_dir():
        return None
    reason = _damage(path, what, limit_s)
    if not reason:
        return None
    aside = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}")
    try:
        path.rename(aside)
    except OSError as error:
        _log.warn(f"{what} is damaged and cannot be moved aside; remove it", reason=reason, error=error, path=path)
        return None
    _log.warn(f"{what} is damaged and was moved aside; {loss}", reason=reason, moved_to=aside)
    return aside


def _keep_open_records(aside: Path, journal: Path) -> None:
    """Have the recorder find what was under way: those files stand beside the damaged one, and are whole."""
    try:
        journal.mkdir(mode=0o700)
        for file in slots.files(aside).values():
            file.rename(journal / file.name)
    except OSError as error:
        _log.warn("what was under way in the damaged journal is not told of", error=error, path=aside)


def _damage(path: Path, what: str, limit_s: float) -> str:
    """What is wrong with an environment; empty when nothing is, or when that is not known."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    probe = context.Process(name="arbiter-probe", target=_try_out, args=(path, sender))
    probe.start()
    sender.close()
    probe.join(limit_s)
    if probe.is_alive():
        _log.warn(f"{what} could not be looked through in time; it is used as it is", seconds=limit_s)
        probe.kill()
        probe.join()
        return ""
    if probe.exitcode is not None and probe.exitcode < 0:
        return f"reading it ended in {signal.Signals(-probe.exitcode).name}"
    try:
        return str(receiver.recv())
    except EOFError:
        return ""
    finally:
        receiver.close()


def _try_out(path: Path, answer: Connection) -> None:
    """Read all there is, and begin to write, which looks at what the free pages are."""
    faulthandler.disable()  # that it may die of this is known
    try:
        # As large as what is there, whatever is said here; nothing is added.
        env = lmdb.open(str(path), map_size=1 << 20, max_dbs=environment.MAX_DBS, sync=False, mode=0o600, lib_version=0)
        with env.begin() as txn, txn.cursor() as names:
            found = list(names.iternext(values=False))
        for database in [env.open_db(name, create=False) for name in found]:
            with env.begin() as txn, txn.cursor(database) as cursor:
                for _ in cursor:
                    pass
        txn = env.begin(write=True)
        txn.put(b"probe", b"")
        txn.abort()
        answer.send("")
    except environment.DAMAGE as error:
        answer.send(str(error))
    except (lmdb.Error, OSError):
        answer.send("")  # full, forbidden: nothing that a new one would cure; whoever writes to it will say so
    finally:
        answer.close()
        os._exit(0)
