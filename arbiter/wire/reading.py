"""What every format's stream reader does alike: take frames until the stream is over, and say how it ended (SPEC 2.7).

OPEN --the format's terminal event, or a finish and then the bytes' end--> Ended
OPEN --a fault, or the bytes' end without a finish--> Failed; nothing after it is read

Events leave in order (`model.Order`): one start before everything else, repetitions swallowed, and output behind the
finish reason is a fault like any other. So whoever writes what a reader told cannot go wrong.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from arbiter._speedups import sse
from arbiter.errors import Cut, Garbled
from arbiter.model import Ended, Event, Failed, Order, Stage, Started
from arbiter.wire.moulds import Carrier, Mould


class _Frames:
    def __init__(self, limit: int) -> None:
        self._reader = sse.SSEReader(limit)
        self._queue: list[tuple[bytes, bytes]] = []
        self._fault: Garbled | None = None
        self.events = self.text_bytes = self.thinking_bytes = self.argument_bytes = 0

    def open(self, data: bytes) -> None:
        try:
            self._queue += self._reader.feed(data)
        except Garbled as fault:
            self._fault = fault

    def end(self) -> None:
        try:
            self._queue += self._reader.finish()
        except Garbled as fault:
            self._fault = fault

    def next(self) -> tuple[bytes, bytes] | None:
        if self._queue:
            self.events += 1
            return self._queue.pop(0)
        if self._fault is None:
            self.open(b"")
        if self._fault is not None:
            raise self._fault
        return None

    def take(self) -> bytes:
        return b""

    def kept(self) -> bytes:
        return b""

    def aim(
        self, text: Mould, reasoning_content: Mould, reasoning: Mould, arguments: Mould, place: int, keep: bool
    ) -> None:
        pass


class EventReader(ABC):
    """Read one upstream stream. A fault in it is a `Failed` event behind the events before it, never an exception.

    A format reads one frame in `_read`.
    """

    def __init__(self, limit: int = sse.LIMIT_BYTES) -> None:
        self.frames: Carrier = self._carrier(limit)
        self.finish_word: str | None = None
        self.order = Order()

    def _carrier(self, limit: int) -> Carrier:
        return _Frames(limit)

    @abstractmethod
    def _read(self, name: bytes, payload: bytes, events: list[Event]) -> None:
        """Add the events of one frame. Errors: Garbled, which ends the stream."""

    @abstractmethod
    def place_of(self, call: int) -> int:
        """Return the upstream's index of the slices of call number `call`; -1 where they cannot be told by it."""

    def read(self, name: bytes, payload: bytes) -> list[Event]:
        """Return the events of one frame; the last is `Failed` where the upstream failed, or broke its format."""
        if self.order.closed:
            return []
        events: list[Event] = []
        try:
            self._read(name, payload, events)
        except Garbled as error:
            events.append(Failed(error))
        return self._admitted(events)

    def feed(self, data: bytes) -> list[Event]:
        """Return the events that `data` completed, none of them moved. Any cut of the stream gives the same events."""
        self.frames.open(data)
        return self._drained()

    def finish(self) -> list[Event]:
        """Return what the end of the bytes means: `Ended`, or `Failed` where the answer was not whole."""
        self.frames.aim(None, None, None, None, -1, False)
        self.frames.end()
        events = self._drained()
        if not self.order.closed:
            whole = self.order.finish is not None
            cut = Cut("the upstream's stream ended before the answer was whole")
            events += self._admitted([Ended() if whole else Failed(cut)])
        return events

    def _drained(self) -> list[Event]:
        events: list[Event] = []
        try:
            while (frame := self.frames.next()) is not None:
                events += self.read(*frame)
        except Garbled as error:
            if not self.order.closed:
                events += self._admitted([Failed(error)])
        return events

    def _admitted(self, events: list[Event]) -> list[Event]:
        admitted: list[Event] = []
        order = self.order
        if events and order.stage is Stage.NEW and not isinstance(events[0], Started | Failed):
            events.insert(0, Started())
        try:
            for event in events:
                if order.admit(event):
                    admitted.append(event)
        except Garbled as error:
            failed = Failed(error)
            order.admit(failed)
            admitted.append(failed)
        return admitted
