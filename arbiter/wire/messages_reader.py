"""Anthropic Messages, inwards: named events -> events, and the unary answer, read as a stream of whole blocks.

Blocks come one after the other, each with its start, deltas and stop; the neutral events keep what is said in them and
the signatures that end a block of thinking. Blocks without a neutral counterpart (built-in tools and their results) are
not carried. The end is read as SPEC 2.7 says:

    OPEN --message_delta with a stop_reason--> FINISHED --message_stop, or the bytes end--> Ended
    OPEN --message_stop--> Finished(stop), Ended(inferred)
    OPEN --the bytes end--> Failed(Cut)
    any  --error, not JSON--> Failed; nothing after it is read

A block that ended says so only where something depends on it: a call without arguments gets `{}`, so that everybody
knows it is whole, and thinking without a signature ends (`ThinkingSigned("")`) where more thinking follows.
"""

from __future__ import annotations

import re
import secrets
from typing import Any

import msgspec
from msgspec import Raw

from arbiter._speedups import carry, reduce, sse
from arbiter.errors import Garbled
from arbiter.model import (
    Answer,
    CallDelta,
    CallStarted,
    Ended,
    Event,
    Failed,
    Finished,
    Started,
    Text,
    TextDelta,
    ThinkingDelta,
    ThinkingRedacted,
    ThinkingSigned,
    UsageReported,
)
from arbiter.wire import faults
from arbiter.wire.json import ABSENT, present
from arbiter.wire.messages_answer import finish_of, read_usage
from arbiter.wire.reading import EventReader, decoded, is_said, word


class _Message(msgspec.Struct):
    id: Any = None
    model: Any = None
    usage: Raw = ABSENT


class _Block(msgspec.Struct):
    type: Any = None
    text: Any = None
    thinking: Any = None
    signature: Any = None
    data: Any = None
    id: Any = None
    name: Any = None
    input: Raw = ABSENT


class _Delta(msgspec.Struct):
    text: Any = None
    thinking: Any = None
    signature: Any = None
    partial_json: Any = None
    stop_reason: Any = None
    stop_sequence: Any = None


class _Event(msgspec.Struct):
    type: Any = None
    index: int | None = None
    message: Raw = ABSENT  # an error without an object of its own has text there
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: Raw = ABSENT
    error: Raw = ABSENT


class _Body(msgspec.Struct):
    type: Any = None
    id: Any = None
    model: Any = None
    content: list[_Block] | str | None = None
    stop_reason: Any = None
    stop_sequence: Any = None
    usage: Raw = ABSENT
    error: Raw = ABSENT


_EVENT = msgspec.json.Decoder(_Event)
_MESSAGE = msgspec.json.Decoder(_Message)
_BODY = msgspec.json.Decoder(_Body)
_ID_CHARACTERS = re.compile(r"[^a-zA-Z0-9_-]")


class _Call:
    """A call under way. `whole` is input that came with the start of its block, and counts unless slices come."""

    __slots__ = ("is_fed", "number", "whole")

    def __init__(self, number: int, whole: str) -> None:
        self.number = number
        self.whole = whole
        self.is_fed = False


class MessagesReader(EventReader):
    """Read one upstream stream of this format."""

    def __init__(self, limit: int = sse.LIMIT_BYTES) -> None:
        super().__init__(carry.MessagesCarrier(limit))
        self._latest = 0  # the block that started last
        self._blocks: dict[int, _Call | None] = {}  # by index, the latest there; None where it is no call
        self._places: list[int] = []  # of the calls, by number
        self._ids: set[str] = set()  # of the calls
        self._is_thinking = False  # the last block was thinking, and nothing has ended it yet
        self._signature = ""  # of the block of thinking that is open
        self._mark = ""  # what ids of our own are made of

    def place_of(self, call: int) -> int:
        """Return the index of the block of call number `call`; -1 before its first slice, and where another took it."""
        place = self._places[call] if 0 <= call < len(self._places) else -1
        one = self._blocks.get(place)
        return place if one is not None and one.number == call and one.is_fed else -1

    def carried(self, arguments: str) -> None:
        """Nothing here depends on arguments that passed by: a block says where it ends."""

    def _read(self, name: bytes, payload: bytes, events: list[Event]) -> None:
        payload = payload.strip()
        if not payload or name == b"ping" or payload == b"[DONE]":  # the other format's word, from some façades
            return
        event = decoded(_EVENT, payload, "event of a message stream")
        kind = event.type if isinstance(event.type, str) else name.decode("utf-8", "replace")
        if kind == "content_block_delta":
            if event.delta is not None:
                self._read_delta(self._latest if event.index is None else event.index, event.delta, events)
        elif kind == "content_block_start":
            if event.content_block is not None:
                index = self._latest + 1 if event.index is None else event.index
                self._read_block(index, event.content_block, events)
        elif kind == "content_block_stop":
            self._stop_block(self._latest if event.index is None else event.index, events)
        elif kind == "message_start":
            message = present(event.message)
            self._start(decoded(_MESSAGE, message, "start of a message") if message is not None else _Message(), events)
        elif kind == "message_delta":
            self._finish(event.delta or _Delta(), events)
            self._report(event.usage, events)
        elif kind == "message_stop":
            inferred = self.order.finish is None
            if inferred:
                self._stop_all(events)
                events.append(Finished(finish_of("end_turn", bool(self._places))))
            events.append(Ended(inferred))
        elif kind == "error" or name == b"error" or is_said(event.error):
            events.append(Failed(faults.in_stream(payload)))

    def read_answer(self, body: _Body) -> list[Event]:
        """Return the events of a unary answer, in order and whole."""
        events: list[Event] = []
        self._start(_Message(body.id, body.model), events)
        content = [_Block("text", body.content)] if isinstance(body.content, str) else body.content or []
        for index, block in enumerate(content):
            self._read_block(index, block, events)
            self._stop_block(index, events)
        self._finish(_Delta(stop_reason=word(body.stop_reason) or "end_turn", stop_sequence=body.stop_sequence), events)
        self._report(body.usage, events)
        return self._admitted([*events, Ended()])

    def _start(self, message: _Message, events: list[Event]) -> None:
        id = word(message.id)
        self._mark = self._mark or _ID_CHARACTERS.sub("", (id or "")[-64:])[-24:]
        events.append(Started(id, word(message.model), read_usage(present(message.usage))))

    def _report(self, raw: Raw, events: list[Event]) -> None:
        usage = read_usage(present(raw))
        if usage is not None:
            events.append(UsageReported(usage))

    def _finish(self, delta: _Delta, events: list[Event]) -> None:
        reason = word(delta.stop_reason)
        if reason is not None:
            self._stop_all(events)
            self.finish_word = self.finish_word or reason
            events.append(Finished(finish_of(reason, bool(self._places)), word(delta.stop_sequence)))

    def _read_block(self, index: int, block: _Block, events: list[Event]) -> None:
        self._sign(events)
        self._latest = index
        self._blocks[index] = None
        if len(self._blocks) > reduce.MAX_CALLS or len(self._places) >= reduce.MAX_CALLS:
            raise Garbled(f"the upstream sent more than {reduce.MAX_CALLS:,} blocks or tool calls")
        text, thinking = word(block.text), word(block.thinking)
        if block.type == "thinking":
            if self._is_thinking:
                events.append(ThinkingSigned(""))
            self._is_thinking = True
            self._signature = word(block.signature) or ""
            if thinking is not None:
                events.append(ThinkingDelta(thinking))
            return
        if block.type == "text":
            self._is_thinking = self._is_thinking and text is None
            if text is not None:
                events.append(TextDelta(text))
        elif block.type == "redacted_thinking":
            self._is_thinking = False
            events.append(ThinkingRedacted(word(block.data) or ""))
        elif block.type == "tool_use":
            self._is_thinking = False
            self._open(index, block, events)

    def _open(self, index: int, block: _Block, events: list[Event]) -> None:
        whole = present(block.input)
        text = whole.decode() if whole is not None and whole.strip(b"{} \t\r\n") else ""
        call = self._blocks[index] = _Call(len(self._places), text)
        self._places.append(index)
        if not self._mark:
            self._mark = secrets.token_hex(8)
        # A server without call ids, or with one for two: a result must still find its call, and no other turn's.
        id = word(block.id)
        if id is None or id in self._ids:
            id = f"toolu_{self._mark}_{call.number}"
        self._ids.add(id)
        events.append(CallStarted(call.number, id, word(block.name) or ""))

    def _read_delta(self, index: int, delta: _Delta, events: list[Event]) -> None:
        text, thinking, slice = word(delta.text), word(delta.thinking), word(delta.partial_json)
        if text is not None:
            self._sign(events)
            self._is_thinking = False
            events.append(TextDelta(text))
        elif slice is not None:
            if index not in self._blocks:
                raise Garbled("the upstream sent input of a block that it never started")
            call = self._blocks[index]
            if call is not None:  # else of a built-in tool
                call.is_fed, call.whole = True, ""
                events.append(CallDelta(call.number, slice))
        elif thinking is not None:
            self._is_thinking = True
            events.append(ThinkingDelta(thinking))
        elif word(delta.signature) is not None:
            self._is_thinking = True
            self._signature = delta.signature  # the SDKs, too, keep the last one

    def _stop_block(self, index: int, events: list[Event]) -> None:
        if index == self._latest:
            self._sign(events)
        call = self._blocks.get(index)
        if call is not None and not call.is_fed:
            call.is_fed = True
            events.append(CallDelta(call.number, call.whole or "{}"))

    def _stop_all(self, events: list[Event]) -> None:
        """Stop what servers leave open."""
        if self.order.finish is None:
            self._sign(events)
            for index in self._blocks:
                self._stop_block(index, events)

    def _sign(self, events: list[Event]) -> None:
        if self._signature:
            events.append(ThinkingSigned(self._signature))
            self._signature, self._is_thinking = "", False


def parse_answer(body: bytes) -> Answer:
    """Return the upstream's unary answer.

    Errors: Garbled where it is none of this format; InStreamError where a 200 holds an error object.
    """
    found = decoded(_BODY, body, "message")
    if found.content is None:
        if found.type == "error" or is_said(found.error):
            raise faults.in_stream(body)
        raise Garbled("the upstream's answer has no content")
    plain = _plain(found)
    if plain is not None:
        return plain
    reader = MessagesReader()
    return reader.answer(reader.read_answer(found))


def _plain(found: _Body) -> Answer | None:
    """Return an answer of nothing but one text, as the reader would; None where it is any other."""
    content = found.content
    if type(content) is not list or len(content) != 1:
        return None
    text = content[0].text
    if content[0].type != "text" or type(text) is not str or not text:
        return None
    return Answer(
        id=word(found.id),
        model=word(found.model),
        parts=(Text(text),),
        finish=finish_of(word(found.stop_reason) or "end_turn", has_calls=False),
        stop_sequence=word(found.stop_sequence),
        usage=read_usage(present(found.usage)),
    )
