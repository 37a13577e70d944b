"""The only module that reads a clock.

Wall time is stored; monotonic time measures and decides.
"""

from __future__ import annotations

import time

monotonic = time.monotonic
"""Seconds on a clock that never goes back; for durations and deadlines."""

monotonic_ns = time.monotonic_ns
"""The same clock in nanoseconds, for timings that go into rows."""


def now_ms() -> int:
    """Wall-clock time in Unix milliseconds; for stored times only."""
    return time.time_ns() // 1_000_000


class Deadline:
    """A moment by which something must be done; handed down, so that time-outs never add up."""

    __slots__ = ("_at",)

    def __init__(self, seconds: float) -> None:
        self._at = monotonic() + seconds if seconds > 0 else float("inf")

    def left_s(self) -> float:
        """Seconds left, never below zero; `inf` where no limit was set."""
        return max(0.0, self._at - monotonic())
