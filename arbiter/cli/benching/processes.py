"""What the kernel knows about a process and everything below it."""

from __future__ import annotations

import os
from pathlib import Path

_PROC = Path("/proc")


def tree(root: int) -> list[int]:
    """`root` and all that descend from it, as of now; nothing where it is gone."""
    found = [root]
    for pid in found:
        for children in _PROC.glob(f"{pid}/task/*/children"):
            try:
                found.extend(map(int, children.read_text().split()))
            except OSError:
                continue
    return found if (_PROC / str(root)).exists() else []


def cpu_us(pids: list[int]) -> float:
    """CPU time that all their threads have had (the scheduler's own count)."""
    total = 0
    for pid in pids:
        for schedstat in _PROC.glob(f"{pid}/task/*/schedstat"):
            try:
                total += int(schedstat.read_text().split()[0])
            except (OSError, IndexError):
                continue
    return total / 1000


def rss_bytes(pids: list[int]) -> int:
    """Resident memory of all of them; pages that they share are counted for each."""
    total = 0
    for pid in pids:
        try:
            total += int((_PROC / str(pid) / "statm").read_text().split()[1])
        except (OSError, IndexError):
            continue
    return total * os.sysconf("SC_PAGE_SIZE")
