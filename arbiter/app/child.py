"""One place among the supervisor's children: who fills it, what it has said, and how the predecessors fared."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from arbiter.app import linux
from arbiter.lines import Applied, Apply, Line, Message, Prices, Serving

_QUICK_S = 5.0  # a child that lived shorter than this died young
_WAITS_S = (0.0, 0.1, 0.25, 0.5)  # before the successor of a child that had served
_START_WAITS_S = (0.1, 0.5, 1.0, 2.0, 5.0)  # before another try at a start that failed


class Child:
    """Without a `process`, the next one starts when `due`.

    `make` makes a process that is not started yet, from our end and its end of a new line. Snapshots are numbered:
    `runs` is the one that it says it runs, 0 before it serves.
    """

    def __init__(self, name: str, make: Callable[[Line, Line], Any]) -> None:
        self.name = name
        self._make = make
        self.process: Any = None
        self.line: Line | None = None
        self.pid = 0
        self.has_served = False
        self.failed_starts = 0  # in a row
        self.quick_deaths = 0  # in a row, of processes that had served
        self.due = 0.0
        self.runs = 0
        self._born = 0.0
        self._born_with = 0
        self._handed = 0
        self._told: Prices | None = None

    def start(self, number: int) -> None:
        """Fork one, with snapshot `number`."""
        ours, theirs = Line.pair()
        process = self._make(ours, theirs)
        with linux.signals_held():
            process.start()
        theirs.close()
        self.process, self.pid, self.line = process, process.pid, ours
        self.has_served = False
        self.runs = 0
        self._born_with = self._handed = number
        self._told = None
        self._born = time.monotonic()

    def hand(self, number: int, descriptor: int) -> None:
        """Hand it a newer snapshot; one that has left too much unread gets it later."""
        if self.line is not None and self._handed < number and self.line.send(Apply(number), descriptor):
            self._handed = number

    def wants(self, number: int) -> bool:
        """Whether it lives, and was not handed this snapshot yet."""
        return self.line is not None and self._handed < number

    def tell(self, prices: Prices) -> None:
        """Tell it of prices, once; one that has left too much unread is told later."""
        if self.line is not None and self._told != prices and self.line.send(prices):
            self._told = prices

    def hear(self) -> Iterator[Message]:
        """What it says that is not about itself."""
        for message, _ in self.line.receive() if self.line is not None else ():
            if isinstance(message, Serving):
                self.has_served = True
                self.runs = max(self.runs, self._born_with)
            elif isinstance(message, Applied):
                self.runs = max(self.runs, message.number)
            else:
                yield message

    def bury(self) -> tuple[int, float]:
        """The process has ended: its exit code, and how long its successor is to wait."""
        self.process.join()
        exit_code = self.process.exitcode
        self.process.close()
        self.process = None
        self.runs = 0
        if self.line is not None:
            self.line.close()
            self.line = None
        now = time.monotonic()
        if self.has_served:
            self.failed_starts = 0
            self.quick_deaths = self.quick_deaths + 1 if now - self._born < _QUICK_S else 0
            wait_s = _WAITS_S[min(self.quick_deaths, len(_WAITS_S) - 1)]
        else:
            wait_s = _START_WAITS_S[min(self.failed_starts, len(_START_WAITS_S) - 1)]
            self.failed_starts += 1
        self.due = now + wait_s
        return exit_code, wait_s
