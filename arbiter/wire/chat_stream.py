"""OpenAI Chat streams: chunks -> events, and events -> chunks.

Reading. A chunk may carry anything at any time: text, reasoning, several calls, the finish reason, usage, or only one
of them. What servers do to tool calls is undone here, so that every call opens once, with its id and name, under a
number of its own: the same `index` for all calls, no `index` at all, the id on every slice, the name after the id,
arguments as an object. The end is read as SPEC 2.7 says:

    OPEN --finish_reason--> FINISHED --[DONE], or the bytes end--> Ended
    OPEN --[DONE]---------> Finished(stop), Ended(inferred)
    OPEN --the bytes end--> Failed(Cut)
    any  --error object, not a chunk at all--> Failed; nothing after it is read

Writing. Blocks have no ends in this format, so the writer keeps little: whether the role chunk left, which calls still
lack arguments (they get `{}` before the finish: `""` is no JSON), and the usage, which leaves as a chunk of its own
before `[DONE]`, and only for a client that asked.

    NEW --first event: role chunk--> OPEN --Finished--> FINISHED --Ended: usage, [DONE]--> CLOSED
    any --Failed: an error event--> CLOSED
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
    Usage,
    UsageReported,
)
from arbiter.wire import faults
from arbiter.wire.chat_answer import FINISH_OUT, finish_of, read_usage, write_usage
from arbiter.wire.chat_errors import write_error_event
from arbiter.wire.chat_parse import REASONING, argument_slice, spoken_reasoning
from arbiter.wire.json import ABSENT, encode, present
from arbiter.wire.moulds import NO_MOULDS, Moulds
from arbiter.wire.reading import EventReader


class _FunctionSlice(msgspec.Struct):
    name: str | None = None
    arguments: Raw = ABSENT


class _CallSlice(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _FunctionSlice | None = None


class _Delta(msgspec.Struct):
    content: str | list[_TextSlice] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: Raw = ABSENT
    tool_calls: list[_CallSlice] | None = None


class _TextSlice(msgspec.Struct):
    type: str
    text: str | None = None


class _Choice(msgspec.Struct):
    index: int = 0
    delta: _Delta | None = None
    finish_reason: str | None = None
    logprobs: Raw = ABSENT


class _Chunk(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    choices: list[_Choice] | None = None
    usage: Raw = ABSENT
    error: Raw = ABSENT


_CHUNK = msgspec.json.Decoder(_Chunk)


class _Call:
    """A call under way. It opens once its name is known; slices that came before wait in `held`."""

    __slots__ = ("held", "id", "name", "number")

    def __init__(self, id: str, name: str) -> None:
        self.id = id
        self.name = name
        self.number: int | None = None
        self.held = ""


class ChatReader(EventReader):
    """Read one upstream stream of this format."""

    def __init__(self, limit: int = LIMIT_BYTES) -> None:
        super().__init__(limit)
        self._started = False
        self._calls: list[_Call] = []
        self._opened = 0
        self._at: dict[int, _Call] = {}  # by the upstream's index, the latest call there
        self._id: str | None = None

    def _read(self, name: bytes, payload: bytes, events: list[Event]) -> None:
        if payload.strip() == b"[DONE]":
            self._done(events)
            return
        try:
            chunk = _CHUNK.decode(payload)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise Garbled(f"the upstream sent an event that is no chunk of a chat completion: {error}") from error
        if present(chunk.error) is not None or name == b"error":
            events.append(Failed(faults.in_stream(payload)))
            return
        usage = read_usage(present(chunk.usage))
        choice = next((one for one in chunk.choices or () if one.index == 0), None)
        if choice is None and usage is None:
            return  # somebody's own side channel, or Azure's first chunk about the prompt
        if not self._started:
            self._started = True
            self._id = chunk.id or None
            events.append(Started(self._id, chunk.model or None))
        if choice is not None:
            self._read_choice(choice, events)
        if usage is not None:
            events.append(UsageReported(usage))

    def place_of(self, call: int) -> int:
        return next((index for index, one in self._at.items() if one.number == call), -1)

    def _done(self, events: list[Event]) -> None:
        inferred = self.order.finish is None
        if inferred:
            self._flush(events)
            events.append(Finished(finish_of("stop", bool(self._calls))))
        events.append(Ended(inferred))

    def _read_choice(self, choice: _Choice, events: list[Event]) -> None:
        delta = choice.delta
        if delta is not None:
            spelling, reasoning = spoken_reasoning(delta.reasoning_content, delta.reasoning)
            if reasoning:
                events.append(ThinkingDelta(reasoning, spelling))
            text = delta.content or ""
            if not isinstance(text, str):
                text = "".join(one.text or "" for one in text)
            logprobs = present(choice.logprobs)
            if text or logprobs is not None:
                events.append(TextDelta(text, logprobs))
            if delta.refusal:
                events.append(RefusalDelta(delta.refusal))
            for one in delta.tool_calls or ():
                self._read_call(one, events)
        if choice.finish_reason:
            self._flush(events)
            self.finish_word = choice.finish_reason
            events.append(Finished(finish_of(choice.finish_reason, bool(self._calls))))

    def _read_call(self, one: _CallSlice, events: list[Event]) -> None:
        function = one.function or _FunctionSlice()
        call = self._call_of(one, function.name or "")
        if not call.name and function.name:
            call.name = function.name
        arguments = argument_slice(function.arguments)
        if call.number is None:
            call.held += arguments
            if call.name:
                self._open(call, events)
        elif arguments:
            events.append(CallDelta(call.number, arguments))

    def _call_of(self, one: _CallSlice, name: str) -> _Call:
        """Return the call that a slice belongs to; a new one where it begins one."""
        if one.id:
            known = next((call for call in self._calls if call.id == one.id), None)
        elif one.index is not None:
            known = self._at.get(one.index)
        else:
            known = self._calls[-1] if self._calls and not name else None
        if known is None:
            if not one.id and not name:
                raise Garbled("the upstream sent a slice of a tool call that it never opened")
            # A server without call ids: the result must still find its call, and no other turn's.
            known = _Call(one.id or f"call_{(self._id or '')[-24:]}_{len(self._calls)}", name)
            self._calls.append(known)
        if one.index is not None:
            self._at[one.index] = known
        return known

    def _open(self, call: _Call, events: list[Event]) -> None:
        call.number = self._opened
        self._opened += 1
        events.append(CallStarted(call.number, call.id, call.name))
        if call.held:
            events.append(CallDelta(call.number, call.held))

    def _flush(self, events: list[Event]) -> None:
        """Open what never got a name; the client should see that there was a call."""
        for call in self._calls:
            if call.number is None:
                self._open(call, events)


class ChatWriter:
    """Write one client stream. `include_usage`: the client asked for the usage chunk."""

    def __init__(self, trace_id: str, model: str, created_s: int, *, include_usage: bool = True) -> None:
        head = {"id": f"chatcmpl-{trace_id}", "object": "chat.completion.chunk", "created": created_s, "model": model}
        self._head = b"data: " + encode(head)[:-1]
        self._delta = self._head + b',"choices":[{"index":0,"delta":'
        self._trace_id = trace_id
        self._include_usage = include_usage
        self._order = Order()
        self._opened = False
        self._last = -1
        self._bare: dict[int, None] = {}  # calls without arguments so far
        self._usage: Usage | None = None

    def write(self, event: Event) -> bytes:
        """Return the bytes for `event`.

        Errors: Garbled where the event breaks the order (SPEC 2.6).
        """
        if not self._order.admit(event):
            return b""
        if isinstance(event, Failed):
            return write_error_event(event.error, self._trace_id)
        if self._opened:
            return self._write(event)
        self._opened = True
        return self._chunk({"role": "assistant", "content": ""}) + self._write(event)

    def moulds(self) -> Moulds:
        """Return what may be moved past the writer until the next `write`."""
        if not self._opened or self._order.finish is not None or self._order.closed:
            return NO_MOULDS
        return Moulds(
            self._mould("content"),
            self._mould("reasoning_content"),
            self._mould("reasoning"),
            (
                self._delta + b'{"tool_calls":[{"index":%d,"function":{"arguments":' % self._last,
                b'}}]},"finish_reason":null}]}\n\n',
            )
            if self._last >= 0 and self._last not in self._bare
            else None,
            self._last,
        )

    def _mould(self, member: str) -> tuple[bytes, bytes]:
        return self._delta + b'{"' + member.encode() + b'":', b'},"finish_reason":null}]}\n\n'

    def carried(self, arguments: str) -> None:
        """Nothing here depends on arguments that were moved."""

    def _write(self, event: Event) -> bytes:
        if isinstance(event, TextDelta):
            tail = b',"logprobs":' + event.logprobs if event.logprobs is not None else b""
            return self._chunk({"content": event.text}, tail=tail)
        if isinstance(event, ThinkingDelta):
            return self._chunk({event.spelling or REASONING: event.text})
        if isinstance(event, CallDelta):
            self._bare.pop(event.index, None)
            return self._call(event.index, {"function": {"arguments": event.arguments}})
        if isinstance(event, CallStarted):
            self._bare[event.index] = None
            self._last = event.index
            function = {"name": event.name, "arguments": ""}
            return self._call(event.index, {"id": event.id, "type": "function", "function": function})
        if isinstance(event, RefusalDelta):
            return self._chunk({"refusal": event.text})
        if isinstance(event, UsageReported):
            self._usage = event.usage if self._usage is None else self._usage.merged(event.usage)
        elif isinstance(event, Started):
            self._usage = event.usage
        elif isinstance(event, Finished):
            filled = [self._call(index, {"function": {"arguments": "{}"}}) for index in self._bare]
            return b"".join(filled) + self._chunk({}, event.finish)
        elif isinstance(event, Ended):
            return self._end()
        return b""  # signatures and redacted thinking: nothing here could hold them

    def _call(self, index: int, members: dict[str, Any]) -> bytes:
        return self._chunk({"tool_calls": [{"index": index, **members}]})

    def _chunk(self, delta: dict[str, Any], finish: Finish | None = None, tail: bytes = b"") -> bytes:
        reason = b'"' + FINISH_OUT[finish].encode() + b'"' if finish is not None else b"null"
        return self._delta + encode(delta) + tail + b',"finish_reason":' + reason + b"}]}\n\n"

    def _end(self) -> bytes:
        usage = b""
        if self._include_usage and self._usage is not None:
            usage = self._head + b',"choices":[],"usage":' + encode(write_usage(self._usage)) + b"}\n\n"
        return usage + b"data: [DONE]\n\n"
