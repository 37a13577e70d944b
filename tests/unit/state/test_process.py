"""A process is known by more than its pid."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from arbiter.state import process


def test_this_process_is_alive():
    assert process.is_alive(process.current())


def test_another_owner_of_the_same_pid_is_somebody_else():
    """A reused pid has another start time; a reused pid and time belong to another boot."""
    me = process.current()
    assert not process.is_alive(msgspec.structs.replace(me, start_ticks=me.start_ticks + 1))
    assert not process.is_alive(msgspec.structs.replace(me, boot="another boot"))


def test_a_killed_process_is_dead_also_before_its_parent_looked():
    """A zombie still has its pid and start time, and will never write again."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        stat = Path(f"/proc/{child.pid}/stat").read_bytes()
        ticks = int(stat[stat.rindex(b")") + 2 :].split()[19])
        identity = process.Identity(child.pid, ticks, process.boot_id())
        assert process.is_alive(identity)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, and still there to be asked for
        assert not process.is_alive(identity)
    finally:
        child.kill()
        child.communicate()
    assert not process.is_alive(identity)


@pytest.mark.parametrize("read", ["read_text", "read_bytes"])
def test_where_nobody_can_look_nobody_is_dead(monkeypatch, read):
    """Whoever has no descriptor left would take all workers for dead, and write down as interrupted what they do."""
    me = process.current()

    def none_left(path: Path) -> bytes:
        raise OSError(errno.EMFILE, "Too many open files", str(path))

    monkeypatch.setattr(Path, read, none_left)
    assert process.is_alive(me)
