"""Which gateways run on a data directory, for commands that have something to tell them.

Each has a file there that names its run directory, where its control process listens. A run directory is locked for as
long as its supervisor lives (`preflight.make_run_dir`), so a file that was left behind is told from a gateway.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

FOLDER = "running"


def announce(data_dir: Path, run_dir: Path) -> None:
    """We run. Where the data directory cannot be written, no command has changed anything in it either."""
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
    for name in sorted(os.listdir(folder)) if folder.is_dir() else ():
        try:
            run_dir = Path((folder / name).read_text("utf-8"))
        except OSError:
            continue  # it has ended in this very moment
        if is_held(run_dir):
            yield run_dir / "control.sock"
        else:
            (folder / name).unlink(missing_ok=True)


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
