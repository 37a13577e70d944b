"""Disks that are full when a test wants it.

with SmallDisk(folder, "1m") as disk:           # a tmpfs of its own; needs root and a kernel that lets it mount
    ...
    disk.resize("64m")                          # somebody made room

limit_files(gateway.workers, 600_000)           # no file of theirs may grow beyond that; None: as large as it likes
"""

from __future__ import annotations

import functools
import os
import resource
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self


class SmallDisk:
    """See the module's docstring."""

    def __init__(self, folder: Path, size: str) -> None:
        self.folder = folder
        self._size = size

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        _mount("-t", "tmpfs", "-o", f"size={self._size},mode=0700", "tmpfs", self.folder)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)

    def resize(self, size: str) -> None:
        _mount("-o", f"remount,size={size}", self.folder)

    def fill(self) -> None:
        """Leave no byte of it."""
        with (self.folder / "ballast").open("wb") as out:
            room = os.statvfs(self.folder)
            os.posix_fallocate(out.fileno(), 0, room.f_bavail * room.f_frsize)


def _mount(*arguments: object) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True, capture_output=True)


@functools.cache
def can_mount() -> bool:
    """Whether there can be a `SmallDisk` here."""
    try:
        with tempfile.TemporaryDirectory() as folder, SmallDisk(Path(folder) / "disk", "64k"):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


def limit_files(pids: Iterable[int], limit_bytes: int | None) -> None:
    """No file of these running processes may grow beyond `limit_bytes`: the kernel fails it, as on a full disk."""
    for pid in pids:
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard if limit_bytes is None else limit_bytes, hard))
