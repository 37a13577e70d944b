"""Who a process is, so that another one can tell later whether it still lives.

A pid alone is no identity: it is reused, and a restarted container gives everybody the pids of its last life. The
kernel's start time (clock ticks since boot) tells two owners of one pid apart, and the boot id two boots.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec


class Identity(msgspec.Struct, array_like=True, frozen=True):
    """One process on this host, in this boot.

    Units: `start_ticks` are clock ticks since boot, field 22 of /proc/PID/stat.
    """

    pid: int
    start_ticks: int
    boot: str

    @property
    def key(self) -> str:
        """The same three as one short word, for use as a database key."""
        return f"{self.boot[:8]}-{self.pid}-{self.start_ticks}"


def current() -> Identity:
    """This process."""
    pid, ticks = os.getpid(), None
    with contextlib.suppress(OSError):
        ticks = _start_ticks(pid)
    return Identity(pid, ticks or 0, boot_id())


def is_alive(identity: Identity) -> bool:
    """Whether that very process still runs. A zombie does not: it will write nothing more."""
    try:
        return identity.boot == _boot_id() and identity.start_ticks == _start_ticks(identity.pid)
    except OSError:
        # We have no descriptor left to look with: that says nothing of others, and whoever is taken for dead has what
        # it does written down as interrupted.
        return True


def boot_id() -> str:
    """The kernel's random id of this boot; empty where it cannot be read."""
    try:
        return _boot_id()
    except OSError:
        return ""


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except FileNotFoundError:
        return ""


def _start_ticks(pid: int) -> int | None:
    """Start time of a running process; None when there is none, or only its zombie. Errors: OSError, where nobody can
    look."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the command in parentheses and may itself hold spaces and parentheses: count from its end.
    fields = stat[stat.rindex(b")") + 2 :].split()
    if fields[0] in (b"Z", b"X"):
        return None
    return int(fields[19])
