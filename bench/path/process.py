"""What the kernel knows about a tree of processes: CPU time, memory, which of them serves a port."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterable
from pathlib import Path

PROC = Path("/proc")


def tree(root: int) -> list[int]:
    """`root` and everything below it, as of now."""
    children: dict[int, list[int]] = {}
    for stat in PROC.glob("[0-9]*/stat"):
        try:
            # The name may hold blanks and brackets; the parent follows its last bracket.
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue
        children.setdefault(parent, []).append(int(stat.parent.name))
    found = [root]
    for pid in found:
        found.extend(children.get(pid, ()))
    return found


def cpu_ns(pids: Iterable[int]) -> int:
    """CPU time that the threads of `pids` have had, in nanoseconds (the scheduler's own count, not clock ticks)."""
    total = 0
    for pid in pids:
        for schedstat in PROC.glob(f"{pid}/task/*/schedstat"):
            try:
                total += int(schedstat.read_text().split()[0])
            except OSError:
                continue
    return total


def rss_bytes(pid: int) -> int:
    """Resident memory of one process; 0 where it is gone."""
    try:
        return int((PROC / str(pid) / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def server_of(port: int, candidates: Iterable[int]) -> int:
    """Which of `candidates` accepts connections on `port`: connect once, and see who holds the other end."""
    with socket.create_connection(("127.0.0.1", port)) as ours:
        mine = ours.getsockname()[1]
        ours.sendall(b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        ours.recv(1)  # so it has been accepted
        for line in (PROC / "net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if int(fields[1][-4:], 16) == port and int(fields[2][-4:], 16) == mine:
                wanted = f"socket:[{fields[9]}]"
                break
        else:
            raise RuntimeError(f"nobody accepted a connection on port {port}")
        for pid in candidates:
            for fd in PROC.glob(f"{pid}/fd/*"):
                try:
                    if os.readlink(fd) == wanted:
                        return pid
                except OSError:
                    continue
    raise RuntimeError(f"port {port} is served by none of {sorted(candidates)}")


class Peak:
    """The highest resident memory that these processes have together while the block runs."""

    def __init__(self, *pids: int) -> None:
        self.pids = pids
        self.bytes = self._now()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _now(self) -> int:
        return sum(rss_bytes(pid) for pid in self.pids)

    def _watch(self) -> None:
        while not self._stop.wait(0.1):
            self.bytes = max(self.bytes, self._now())

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
