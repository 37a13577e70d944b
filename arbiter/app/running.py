"""Which gateways run on a data directory, for commands that have something to tell them.

A gateway's control process listens in its run directory, which is locked for as long as the supervisor lives
(`preflight.make_run_dir`). A file in the data directory names it. A gateway that keeps nothing makes no data directory;
it is found where run directories usually are, by the name of the data directory that it would have.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

RUN = "arbiter-run-"
FOLDER = "running"
WHOSE = "data"


def announce(data_dir: Path, run_dir: Path, *, keeps_nothing: bool) -> None:
    """We run. Where the data directory cannot be written, no command has changed anything in it either."""
    (run_dir / WHOSE).write_text(str(data_dir), "utf-8")
    if keeps_nothing and not data_dir.exists():
        return
    with contextlib.suppress(OSError):
        folder = data_dir / FOLDER
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / run_dir.name).write_text(str(run_dir), "utf-8")


def withdraw(data_dir: Path, run_dir: Path) -> None:
    """We are about to end."""
    with contextlib.suppress(OSError):
        (data_dir / FOLDER / run_dir.name).unlink()


def gateways(data_dir: Path) -> Iterator[Path]:
    """The control sockets of those that run, or are about to."""
    folder = data_dir / FOLDER
    found = set()
    for name in sorted(os.listdir(folder)) if folder.is_dir() else ():
        with contextlib.suppress(OSError):  # it has ended in this very moment
            run_dir = Path((folder / name).read_text("utf-8"))
            if is_held(run_dir):
                found.add(run_dir)
            else:
                (folder / name).unlink(missing_ok=True)
    for whose in Path(tempfile.gettempdir()).glob(f"{RUN}*/{WHOSE}"):
        with contextlib.suppress(OSError):
            if whose.read_text("utf-8") == str(data_dir) and is_held(whose.parent):
                found.add(whose.parent)
    for run_dir in sorted(found):
        yield run_dir / "control.sock"


def is_held(run_dir: Path) -> bool:
    """Whether the supervisor of that run lives."""
    try:
        lock = os.open(run_dir / "lock", os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False
