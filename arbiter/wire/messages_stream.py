"""Anthropic Messages streams: named events -> events, and back.

Reading. Blocks come one after the other, each with its start, deltas and stop; the neutral events keep what is said in
them and the signatures that end a block of thinking. Blocks without a neutral counterpart (built-in tools and their
results) are not carried. The end is read as SPEC 2.7 says:

    OPEN --message_delta with a stop_reason--> FINISHED --message_stop, or the bytes end--> Ended
    OPEN --message_stop--> Finished(stop), Ended(inferred)
    OPEN --the bytes end--> Failed(Cut)
    any  --error, not JSON--> Failed; nothing after it is read

Writing. One block is open at a time, and the writer's state is which:

    NEW --first event: message_start--> BETWEEN
    BETWEEN --text, thinking, a call: content_block_start--> that block
    a block --something that does not belong into it: content_block_stop--> BETWEEN
    BETWEEN --Finished--> FINISHED --Ended: message_delta, message_stop--> CLOSED
    any --Failed: an error event--> CLOSED

message_delta waits for the end because it carries the usage, which other formats tell after the finish.

Calls may be interleaved elsewhere, not here. When a call starts while the open one has no complete arguments yet, it
waits, with its slices, until they are complete or something else follows; upstreams that send one call after the
other, which is nearly all, never wait.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from arbiter._speedups.py.sse import LIMIT_BYTES
from arbiter.errors import Garbled
from arbiter.model import (
    CallDelta,
    CallStarted,
    Ended,
    Event,
    Failed,
    Finish,
    Finished,
    Order,
    RefusalDelta,
    Started,
    TextDelta,
    ThinkingDelta,
    ThinkingRedacted,
    ThinkingSigned,
    Usage,
    UsageReported,
)
from arbiter.wire import faults
from arbiter.wire.json import ABSENT, encode, present
from arbiter.wire.messages_answer import FINISH_OUT, finish_of, read_usage, write_usage
from arbiter.wire.messages_errors import write_error_event
from arbiter.wire.moulds import NO_MOULDS, Moulds
from arbiter.wire.reading import EventReader


class _Message(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    usage: Raw = ABSENT


class _Block(msgspec.Struct):
    type: str
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    input: Raw = ABSENT


class _Delta(msgspec.Struct):
    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None
    stop_sequence: str | None = None


class _Event(msgspec.Struct):
    type: str | None = None
    index: int = 0
    message: _Message | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: Raw = ABSENT


_EVENT = msgspec.json.Decoder(_Event)


class MessagesReader(EventReader):
    """Read one upstream stream of this format."""

    def __init__(self, limit: int = LIMIT_BYTES) -> None:
        super().__init__(limit)
        self._calls: dict[int, int] = {}  # block index -> number of the call
        self._whole: dict[int, str] = {}  # block index -> input that came with the start, until slices come

    def _read(self, name: bytes, payload: bytes, events: list[Event]) -> None:
        try:
            event = _EVENT.decode(payload)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise Garbled(f"the upstream sent an event that is none of a message stream: {error}") from error
        kind = event.type or name.decode()
        if kind == "content_block_delta":
            if event.delta is not None:
                self._read_delta(event.index, event.delta, events)
        elif kind == "content_block_start":
            if event.content_block is not None:
                self._read_block(event.index, event.content_block, events)
        elif kind == "content_block_stop":
            whole = self._whole.pop(event.index, "")
            if whole:
                events.append(CallDelta(self._calls[event.index], whole))
        elif kind == "message_start":
            message = event.message or _Message()
            events.append(Started(message.id or None, message.model or None, read_usage(present(message.usage))))
        elif kind == "message_delta":
            delta = event.delta
            if delta is not None and delta.stop_reason:
                self.finish_word = delta.stop_reason
                events.append(Finished(finish_of(delta.stop_reason, bool(self._calls)), delta.stop_sequence))
            usage = read_usage(present(event.usage))
            if usage is not None:
                events.append(UsageReported(usage))
        elif kind == "message_stop":
            inferred = self.order.finish is None
            if inferred:
                events.append(Finished(finish_of("end_turn", bool(self._calls))))
            events.append(Ended(inferred))
        elif kind == "error":
            events.append(Failed(faults.in_stream(payload)))

    def place_of(self, call: int) -> int:
        return next((i for i, number in self._calls.items() if number == call and i not in self._whole), -1)

    def _read_block(self, index: int, block: _Block, events: list[Event]) -> None:
        if block.type == "text":
            if block.text:
                events.append(TextDelta(block.text))
        elif block.type == "thinking":
            if block.thinking:
                events.append(ThinkingDelta(block.thinking))
            if block.signature:
                events.append(ThinkingSigned(block.signature))
        elif block.type == "redacted_thinking":
            events.append(ThinkingRedacted(block.data or ""))
        elif block.type == "tool_use":
            number = self._calls[index] = len(self._calls)
            events.append(CallStarted(number, block.id or "", block.name or ""))
            whole = present(block.input)
            if whole is not None and whole.strip(b"{} \t\r\n"):
                self._whole[index] = whole.decode()

    def _read_delta(self, index: int, delta: _Delta, events: list[Event]) -> None:
        if delta.text:
            events.append(TextDelta(delta.text))
        elif delta.partial_json:
            number = self._calls.get(index)
            if number is not None:  # else of a built-in tool
                self._whole.pop(index, None)
                events.append(CallDelta(number, delta.partial_json))
        elif delta.thinking:
            events.append(ThinkingDelta(delta.thinking))
        elif delta.signature:
            events.append(ThinkingSigned(delta.signature))


class MessagesWriter:
    """Write one client stream. `created_s` and `include_usage` are other formats' business; this one always tells."""

    def __init__(self, trace_id: str, model: str, created_s: int, *, include_usage: bool = True) -> None:
        self._trace_id = trace_id
        self._model = model
        self._order = Order()
        self._opened = False
        self._block: str | int | None = None  # "text", "thinking", or the number of a call
        self._index = -1  # of the latest block
        self._arguments: list[str] = []  # of the open call
        self._waiting: dict[int, tuple[CallStarted, list[str]]] = {}
        self._usage: Usage | None = None
        self._finished = Finished(Finish.STOP)

    def write(self, event: Event) -> bytes:
        """Return the bytes for `event`.

        Errors: Garbled where the event breaks the order (SPEC 2.6).
        """
        if not self._order.admit(event):
            return b""
        if isinstance(event, Failed):
            return write_error_event(event.error, self._trace_id)
        if isinstance(event, Started):
            self._usage = event.usage
        if self._opened:
            return self._write(event)
        self._opened = True
        return self._start() + self._write(event)

    def _start(self) -> bytes:
        message: dict[str, Any] = {
            "id": f"msg_{self._trace_id}",
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": write_usage(self._usage),
        }
        return _event("message_start", {"message": message})

    def moulds(self) -> Moulds:
        """Return what may be moved past the writer until the next `write`."""
        if self._block == "text":
            return Moulds(text=self._mould("text_delta", "text"))
        if self._block == "thinking":
            mould = self._mould("thinking_delta", "thinking")
            return Moulds(reasoning_content=mould, reasoning=mould)
        if isinstance(self._block, int) and not self._waiting:
            mould = self._mould("input_json_delta", "partial_json")
            return Moulds(arguments=mould, call=self._block, keep=True)
        return NO_MOULDS

    def _mould(self, kind: str, member: str) -> tuple[bytes, bytes]:
        head = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":"%b","%b":'
        return head % (self._index, kind.encode(), member.encode()), b"}}\n\n"

    def carried(self, arguments: str) -> None:
        """Be told of arguments of the open call that were moved past the writer."""
        self._arguments.append(arguments)

    def _write(self, event: Event) -> bytes:
        if isinstance(event, TextDelta | RefusalDelta):
            if not event.text:
                return b""
            head = self._enter("text", {"type": "text", "text": ""})
            return head + self._delta({"type": "text_delta", "text": event.text})
        if isinstance(event, CallDelta):
            return self._write_slice(event)
        if isinstance(event, ThinkingDelta):
            return self._think() + self._delta({"type": "thinking_delta", "thinking": event.text})
        if isinstance(event, CallStarted):
            return self._write_call(event)
        if isinstance(event, ThinkingSigned):
            signed = self._think() + self._delta({"type": "signature_delta", "signature": event.signature})
            return signed + self._close()
        if isinstance(event, ThinkingRedacted):
            block = {"type": "redacted_thinking", "data": event.data}
            return self._enter("redacted", block) + self._close()
        if isinstance(event, UsageReported):
            self._usage = event.usage if self._usage is None else self._usage.merged(event.usage)
        elif isinstance(event, Finished):
            self._finished = event
            return self._drain() + self._close()
        elif isinstance(event, Ended):
            return self._end()
        return b""

    def _think(self) -> bytes:
        return self._enter("thinking", {"type": "thinking", "thinking": "", "signature": ""})

    def _enter(self, block: str | int, start: dict[str, Any]) -> bytes:
        """Be inside `block`: close what is open, and open it if it is not."""
        if self._block == block:
            return b""
        before = (self._drain() if self._waiting else b"") + self._close()
        self._block = block
        self._index += 1
        return before + _event("content_block_start", {"index": self._index, "content_block": start})

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return _event("content_block_delta", {"index": self._index, "delta": delta})

    def _close(self) -> bytes:
        if self._block is None:
            return b""
        self._block = None
        return _event("content_block_stop", {"index": self._index})

    def _write_call(self, call: CallStarted) -> bytes:
        if isinstance(self._block, int) and not _is_whole(self._arguments):
            self._waiting[call.index] = (call, [])
            return b""
        self._arguments = []
        return self._enter(call.index, _tool_use(call))

    def _write_slice(self, event: CallDelta) -> bytes:
        if event.index == self._block and isinstance(self._block, int):
            self._arguments.append(event.arguments)
            written = self._delta({"type": "input_json_delta", "partial_json": event.arguments})
            return written + self._release() if self._waiting and _is_whole(self._arguments) else written
        if event.index in self._waiting:
            self._waiting[event.index][1].append(event.arguments)
            return b""
        raise Garbled(f"the upstream sent arguments for tool call {event.index}, which is not open")

    def _release(self) -> bytes:
        """The open call is whole: write the waiting ones, up to one that is not."""
        written = b""
        while self._waiting and _is_whole(self._arguments):
            written += self._next()
        return written

    def _drain(self) -> bytes:
        """Write all waiting calls; whatever they lack will not come."""
        written = b""
        while self._waiting:
            written += self._next()
        return written

    def _next(self) -> bytes:
        index = next(iter(self._waiting))
        call, slices = self._waiting.pop(index)
        waiting, self._waiting = self._waiting, {}
        self._arguments = slices
        written = self._enter(index, _tool_use(call))
        self._waiting = waiting
        if slices:
            written += self._delta({"type": "input_json_delta", "partial_json": "".join(slices)})
        return written

    def _end(self) -> bytes:
        finish = self._finished
        delta = {"stop_reason": FINISH_OUT[finish.finish], "stop_sequence": finish.stop_sequence}
        usage = write_usage(self._usage)
        return _event("message_delta", {"delta": delta, "usage": usage}) + _event("message_stop", {})


def _tool_use(call: CallStarted) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}


def _is_whole(slices: list[str]) -> bool:
    """Say whether the arguments so far are complete JSON. None at all may be yet to come."""
    try:
        msgspec.json.decode("".join(slices))
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _event(kind: str, members: dict[str, Any]) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + encode({"type": kind, **members}) + b"\n\n"
