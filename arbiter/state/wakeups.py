"""Wakes processes that wait for an LMDB lock which is free.

LMDB's locks survive the death of their holder, but a wake-up does not survive the death of who was woken: where a
process waits for the lock, is woken because the lock was given back, and is killed before it could run, the others
that wait sleep on, and nobody wakes them before two more happen to meet at the lock. (Of three writers of which one
is killed again and again, one of the others slept for good after a few dozen kills.) To be woken for nothing does no
harm: whoever is looks at the lock, and sleeps again. So everybody wakes everybody, now and then.

A lock is a word in the file `lock.mdb`, which LMDB maps. The mapping is found by its file; to open that file here
would end, when it is closed, the claim on it that this process has (POSIX locks).
"""

from __future__ import annotations

import ctypes
import platform
from pathlib import Path

# The readers' lock and the writers' lock: LMDB 0.9 with mutexes of 40 bytes, aligned to cache lines (MDB_txninfo).
LOCKS_AT = (24, 64)

_SYSCALLS = {"x86_64": 202, "aarch64": 98, "riscv64": 98}
_FUTEX_WAKE = 1
_EVERYBODY = 0x7FFFFFFF


class Waker:
    """Wakes whoever waits for the locks of the environment at `path`, which this process has open."""

    def __init__(self, path: Path) -> None:
        self._number = _SYSCALLS.get(platform.machine())
        self._addresses: list[int] = []
        self._syscall = ctypes.CDLL(None).syscall
        self._syscall.restype = ctypes.c_long
        base = _mapping_of(path / "lock.mdb")
        if base is not None and self._number is not None:
            self._addresses = [base + offset for offset in LOCKS_AT]

    def wake(self) -> int:
        """Returns how many were asleep."""
        woken = 0
        for address in self._addresses:
            woken += max(
                0, self._syscall(self._number, ctypes.c_void_p(address), _FUTEX_WAKE, _EVERYBODY, None, None, 0)
            )
        return woken


def _mapping_of(file: Path) -> int | None:
    """Where the beginning of a file is mapped in this process; None where it is not, or where that is not told."""
    try:
        inode = str(file.stat().st_ino)
        lines = Path("/proc/self/maps").read_text("utf-8", "replace").splitlines()
    except OSError:
        return None
    for line in lines:
        # Addresses, permissions, offset, device, inode, path.
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[4] == inode and int(fields[2], 16) == 0 and fields[5].startswith(str(file)):
            return int(fields[0].partition("-")[0], 16)
    return None
