"""Log lines about what may happen with every request or every second, and is news once."""

from __future__ import annotations

from arbiter import clock
from arbiter.log import Log

EVERY_S = 60.0


class Seldom:
    """One such line: said the first time, then at most once in `EVERY_S`, with how many times it happened since."""

    __slots__ = ("_log", "_message", "_next_at", "_times")

    def __init__(self, log: Log, message: str) -> None:
        self._log = log
        self._message = message
        self._times = 0
        self._next_at = 0.0

    def warn(self) -> None:
        if times := self._due():
            self._log.warn(self._message, times=times)

    def error(self, error: BaseException, *, trace_id: str | None = None) -> None:
        if times := self._due():
            self._log.error(self._message, trace_id=trace_id, error=error, times=times)

    def _due(self) -> int:
        """How often it happened since it was said last; 0 where that is not long ago."""
        self._times += 1
        now = clock.monotonic()
        if now < self._next_at:
            return 0
        times, self._times, self._next_at = self._times, 0, now + EVERY_S
        return times


class Lasting:
    """What is so for a while: a line when it begins and one when it has ended, however often it is met in between."""

    __slots__ = ("_began", "_ended", "_lasts", "_log")

    def __init__(self, log: Log, began: str, ended: str) -> None:
        self._log = log
        self._began = began
        self._ended = ended
        self._lasts = False

    def met(self, error: BaseException) -> None:
        if not self._lasts:
            self._log.warn(f"{self._began}: {error}")
        self._lasts = True

    def over(self) -> None:
        if self._lasts:
            self._log.warn(self._ended)
        self._lasts = False
