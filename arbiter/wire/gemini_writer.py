"""Gemini, outwards: events -> chunks, each a small answer of its own.

    NEW --text, a thought--> a chunk each      a call --its arguments are whole--> a chunk with the call
    any --Ended: a chunk with the finish reason and the usage--> CLOSED
    any --Failed: a chunk with an error--> CLOSED

Calls have no slices in this format: their arguments wait until they are whole (`Span`), or until the model has
finished. Calls leave in the order in which they began. There is no terminal event and nothing between the chunks:
Google's SDKs fail on a comment.

Text and thoughts may pass the writer by (`moulds`); a chunk of text is the same pieces around whatever it says.
"""

from __future__ import annotations

from typing import Any

from arbiter.errors import Garbled
from arbiter.model import (
    STOP,
    CallDelta,
    CallStarted,
    Ended,
    Event,
    Failed,
    Finished,
    RefusalDelta,
    Started,
    TextDelta,
    ThinkingDelta,
    ThinkingSealed,
    ThinkingSigned,
    Usage,
    UsageReported,
)
from arbiter.order import Order
from arbiter.wire.gemini_answer import call_part, candidate, write_usage
from arbiter.wire.gemini_errors import write_error_event
from arbiter.wire.gemini_sealed import signature_of
from arbiter.wire.json import NO_MEMBERS, Members, encode
from arbiter.wire.moulds import NO_MOULDS, Moulds
from arbiter.wire.signatures import googles
from arbiter.wire.span import Span

MAX_WAITING_CHARS = 16 << 20
"""What the arguments of calls may amount to while they wait."""


class _Call:
    """A call that has not left."""

    __slots__ = ("arguments", "id", "name", "signature", "span")

    def __init__(self, started: CallStarted, signature: str | None) -> None:
        self.id, self.name = started.id, started.name
        self.signature = signature
        self.arguments: list[str] = []
        self.span = Span()


class GeminiWriter:
    """Write one client stream. `model` stands in where the upstream named none.

    `created_s`, `include_usage` and `asked` are other formats' business; this one always tells.
    """

    def __init__(
        self,
        trace_id: str,
        model: str,
        created_s: int,
        *,
        include_usage: bool = True,
        asked: Members = NO_MEMBERS,
    ) -> None:
        self._trace_id = trace_id
        self._model = model
        self._order = Order()
        self._moulds = NO_MOULDS
        self._usage: Usage | None = None
        self._finish = STOP
        self._calls: dict[int, _Call] = {}  # those that have not left, by number
        self._called = 0  # that started
        self._waiting = 0  # characters of their arguments
        self._signature: str | None = None  # for the next call

    def write(self, event: Event) -> bytes:
        """Return the bytes for `event`.

        Errors: Garbled where the event breaks the order (SPEC 2.6), or too much of it waits.
        """
        if not self._order.admit(event):
            return b""
        if type(event) is Failed:
            self._moulds = NO_MOULDS
            return write_error_event(event.error, self._trace_id)
        if self._moulds is NO_MOULDS:
            self._open(event)
        return self._write(event)

    def moulds(self) -> Moulds:
        """Return what may be moved past the writer until the next `write`."""
        return self._moulds if self._order.finish is None else NO_MOULDS

    def carried(self, arguments: str) -> None:
        """Arguments are never moved past this writer."""

    def _open(self, event: Event) -> None:
        if type(event) is Started:
            self._usage = event.usage
            self._model = event.model or self._model
        tail = encode({"modelVersion": self._model, "responseId": self._trace_id})
        self._tail = b"," + tail[1:] + b"\n\n"
        before = b'data: {"candidates":[{"content":{"parts":[{"text":'
        behind = b'}],"role":"model"},"index":0}]' + self._tail
        thought = before, b',"thought":true' + behind
        self._moulds = Moulds(text=(before, behind), reasoning_content=thought, reasoning=thought)

    def _write(self, event: Event) -> bytes:
        if type(event) is TextDelta or type(event) is RefusalDelta:
            return self._say(event.text, self._moulds.text)
        if type(event) is ThinkingDelta:
            return self._say(event.text, self._moulds.reasoning)
        if type(event) is ThinkingSigned:
            self._signature = googles(event.signature) or self._signature
        elif type(event) is ThinkingSealed:
            self._signature = signature_of(event.item, event.call_id)
        elif type(event) is CallStarted:
            self._begin(event)
        elif type(event) is CallDelta:
            return self._take_slice(event)
        elif type(event) is UsageReported:
            self._usage = event.usage if self._usage is None else self._usage.merged(event.usage)
        elif type(event) is Finished:
            self._finish = event.finish
            return self._release(to_the_last=True)
        elif type(event) is Ended:
            return self._end()
        return b""  # redacted thinking: nothing here could hold it

    def _say(self, text: str, mould: tuple[bytes, bytes] | None) -> bytes:
        assert mould is not None, "it is there from the first event on"
        return mould[0] + encode(text) + mould[1] if text else b""

    def _begin(self, call: CallStarted) -> None:
        if call.index != self._called:
            raise Garbled(f"tool call {call.index} opens where number {self._called} is due")
        self._called += 1
        self._calls[call.index] = _Call(call, self._signature)
        self._signature = None

    def _take_slice(self, event: CallDelta) -> bytes:
        call = self._calls.get(event.index)
        if call is None:
            if 0 <= event.index < self._called:
                return b""  # behind the end of its arguments
            raise Garbled(f"the upstream sent arguments for tool call {event.index}, which is not open")
        call.arguments.append(call.span.feed(event.arguments))
        self._waiting += len(event.arguments)
        if self._waiting > MAX_WAITING_CHARS:
            raise Garbled("the upstream sent more arguments of tool calls than can wait")
        return self._release()

    def _release(self, *, to_the_last: bool = False) -> bytes:
        """Write the calls that are whole, as far as none before them is not."""
        written: list[bytes] = []
        for number, call in list(self._calls.items()):
            if not (to_the_last or call.span.whole):
                break
            del self._calls[number]
            arguments = "".join(call.arguments)
            self._waiting -= len(arguments)
            part = call_part(call.id, call.name, arguments, call.signature)
            written.append(b"data: " + encode({"candidates": [candidate([part])]})[:-1] + self._tail)
        return b"".join(written)

    def _end(self) -> bytes:
        last: dict[str, Any] = {"text": ""}
        if self._signature is not None:
            last["thoughtSignature"] = self._signature
        said = {"candidates": [candidate([last], self._finish)], "usageMetadata": write_usage(self._usage)}
        return b"data: " + encode(said)[:-1] + self._tail
