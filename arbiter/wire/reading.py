"""What every format's stream reader does alike: take frames until the stream is over, and say how it ended (SPEC 2.7).

OPEN --the format's terminal event, or a finish and then the bytes' end--> Ended
OPEN --a fault, or the bytes' end without a finish--> Failed; nothing after it is read

Events leave in order (`order.Order`): one start before everything else, repetitions swallowed, and output behind the
finish reason is a fault like any other. So whoever writes what a reader told cannot go wrong.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeVar

import msgspec

from arbiter._speedups import nesting, reduce, sse
from arbiter._speedups.py.carry import is_event
from arbiter.errors import Cut, Garbled
from arbiter.fold import folded
from arbiter.model import Answer, Ended, Event, Failed, Started
from arbiter.order import FINISHED, NEW, Order
from arbiter.wire.json import present
from arbiter.wire.moulds import Carrier, Mould

MAX_DEPTH = 200  # SPEC 14.1
MAX_ANSWER_VALUES = 2_000_000
"""Values of a whole answer, of which few become objects. Log probabilities, which stay text, are not counted: a token
with twenty alternatives is some 130 values."""

T = TypeVar("T")


class Frames:
    """Splits an upstream stream into events, and moves none of them."""

    def __init__(self, limit: int = sse.LIMIT_BYTES) -> None:
        self._reader = sse.SSEReader(limit)
        self.events = 0
        self.text_bytes = self.thinking_bytes = self.argument_bytes = 0  # of what was moved

    def open(self, data: bytes) -> None:
        self._reader.open(data)

    def end(self) -> None:
        self._reader.end()

    def next(self) -> tuple[bytes, bytes] | None:
        event = self._reader.next()
        self.events += event is not None and is_event(*event)
        return event

    def take(self) -> bytes:
        return b""

    def kept(self) -> bytes:
        return b""

    def aim(
        self, text: Mould, reasoning_content: Mould, reasoning: Mould, arguments: Mould, place: int, keep: bool
    ) -> None:
        """Nothing is moved, whatever could be."""


class EventReader(ABC):
    """Read one upstream stream. A fault in it is a `Failed` event behind the events before it, never an exception.

    A format reads one frame in `_read`; `order` knows where the stream stands.
    """

    keeps = False  # does it ask for the arguments that are moved past it?

    def __init__(self, frames: Carrier) -> None:
        self.frames = frames
        self.finish_word: str | None = None
        self.order = Order()

    @abstractmethod
    def _read(self, name: bytes, payload: bytes, events: list[Event]) -> None:
        """Add the events of one frame. Errors: Garbled, which ends the stream."""

    @abstractmethod
    def place_of(self, call: int) -> int:
        """Return the upstream's index of the slices of call number `call`; -1 where they cannot be told by it."""

    @abstractmethod
    def carried(self, arguments: str) -> None:
        """Be told, before anything else is read, of arguments that were moved to the place asked for last."""

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
        if self.order.stage is FINISHED:
            events += self._admitted([Ended()])
        elif not self.order.closed:
            events += self._admitted([Failed(Cut("the upstream's stream ended before the answer was whole"))])
        return events

    def closing(self) -> list[Event]:
        """Return what ends a stream whose model has finished, where the bytes break off behind that."""
        return [Ended()]

    def answer(self, events: list[Event]) -> Answer:
        """Fold what this reader read of a whole answer: `fold.collect` without asking for the order again.

        Errors: the answer's own error where it failed; Garbled where it never ended.
        """
        answer = folded(events)
        if not self.order.closed:
            raise Garbled("the stream never ended")
        return answer

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
        """Return `events` as far as they are in order; a fault takes the place of the first that is not."""
        order = self.order
        if order.stage is NEW and events and type(events[0]) not in (Started, Failed):
            events.insert(0, Started())
        admitted: list[Event] = []
        try:
            for event in events:
                if order.admit(event):
                    admitted.append(event)
        except Garbled as error:
            admitted.append(Failed(error))
            order.admit(admitted[-1])
        return admitted


def decoded(decoder: msgspec.json.Decoder[T], payload: bytes, what: str, max_values: int = reduce.MAX_VALUES) -> T:
    """Decode what an upstream sent. Half of a surrogate pair becomes U+FFFD: models do send half an emoji.

    Errors: Garbled, with a text that repeats nothing of the payload, where it is no JSON, not of this shape, no UTF-8,
    nested too deeply, or of too many values beside its log probabilities.
    """
    if len(payload) > max_values and nesting.commas(payload) >= max_values <= nesting.commas(reduce.slim(payload)):
        raise Garbled(f"the upstream sent a {what} of too many values")
    if nesting.fault(payload, MAX_DEPTH, len(payload) + 1) != nesting.FINE:
        raise Garbled(f"the upstream sent a {what} that is nested too deeply")
    if nesting.not_utf8(payload) >= 0:  # the decoder looks only into what it decodes, and some of it is decoded later
        raise Garbled(f"the upstream sent a {what} that is not valid UTF-8")
    try:
        return decoder.decode(payload)
    except (msgspec.DecodeError, RecursionError) as error:
        fault = error
    readable = nesting.whole(payload)
    if readable is not payload:
        try:
            return decoder.decode(readable)
        except (msgspec.DecodeError, RecursionError) as error:
            fault = error
    raise Garbled(f"the upstream sent what is no {what}: {fault}") from fault


def word(value: object) -> str | None:
    """Return a member that should be text, if it is; an empty one says nothing."""
    return value if isinstance(value, str) and value else None


def is_said(raw: msgspec.Raw) -> bool:
    """Say whether a member that reports an error does: some servers send it empty with every event."""
    value = present(raw)
    return value is not None and value[:1] in (b"{", b'"') and value not in (b"{}", b'""')
