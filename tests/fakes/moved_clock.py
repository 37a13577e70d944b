"""A wall clock that a test moves, in the processes of a real gateway: hours pass between two requests.

    clock = Clock(folder / "clock")
    Gateway({..., "plugins": [clock.plugin]}, folder, env=clock.env)
    clock.advance(minutes=6)

The plugin moves `time.time_ns`, by which rows get their times, and nothing else: durations and deadlines go by the
monotonic clock. The test's own upstream asks `clock.now_ms()`.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path
from typing import ClassVar

_VARIABLE = "ARBITER_TESTS_CLOCK"
_LAYOUT = struct.Struct("<q")


class Clock:
    """The test's hand on the clock."""

    plugin: ClassVar = {"use": "tests.fakes.moved_clock:MovedClock", "required": True}

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(mmap.PAGESIZE))
        self._file = _mapped(path)
        self.env = {_VARIABLE: str(path)}

    def advance(self, *, minutes: float) -> None:
        """Let so much time pass."""
        (moved_ms,) = _LAYOUT.unpack_from(self._file)
        _LAYOUT.pack_into(self._file, 0, moved_ms + round(minutes * 60_000))

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + int(_LAYOUT.unpack_from(self._file)[0])


class MovedClock:
    """The plugin: this process's wall clock is the test's."""

    def startup(self, snapshot: object) -> None:
        moved, real = _mapped(Path(os.environ[_VARIABLE])), time.time_ns
        time.time_ns = lambda: real() + 1_000_000 * int(_LAYOUT.unpack_from(moved)[0])


def _mapped(path: Path) -> mmap.mmap:
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), 0)
