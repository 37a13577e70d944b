"""What every format's stream reader does alike: take frames until the stream is over, and say how it ended (SPEC 2.7).

OPEN --the format's terminal event, or a finish and then the bytes' end--> Ended
OPEN --a fault, or the bytes' end without a finish--> Failed; nothing after it is read
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from arbiter._speedups import sse
from arbiter.errors import Cut, Garbled
from arbiter.model import Ended, Event, Failed


class EventReader(ABC):
    """Read one upstream stream. A fault in it is a `Failed` event behind the events before it, never an exception.

    A format reads one frame in `_read`, sets `_finished` at a finish reason and `_closed` at its terminal event.
    """

    def __init__(self) -> None:
        self._frames = sse.SSEReader()
        self._closed = False
        self._finished = False

    @abstractmethod
    def _read(self, name: bytes, payload: bytes, events: list[Event]) -> None:
        """Add the events of one frame. Errors: Garbled, which ends the stream."""

    def feed(self, data: bytes) -> list[Event]:
        """Return the events that `data` completed."""
        events: list[Event] = []
        try:
            for name, payload in self._frames.feed(data):
                self._read(name, payload, events)
        except Garbled as error:
            self._fail(error, events)
        return events

    def finish(self) -> list[Event]:
        """Return what the end of the bytes means."""
        events: list[Event] = []
        try:
            for name, payload in self._frames.finish():
                self._read(name, payload, events)
        except Garbled as error:
            self._fail(error, events)
        if not self._closed:
            if self._finished:
                self._closed = True
                events.append(Ended())
            else:
                self._fail(Cut("the upstream's stream ended before the answer was whole"), events)
        return events

    def _fail(self, error: Garbled | Cut, events: list[Event]) -> None:
        if not self._closed:
            self._closed = True
            events.append(Failed(error))
