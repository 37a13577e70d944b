"""Bedrock Converse, inwards: its events -> events, and the unary answer, read as a stream of whole blocks.

The events are Anthropic's in other words, and reach this reader as server-sent ones (`dialects.unframing`). The end:

    OPEN --messageStop--> FINISHED --metadata, then the bytes end--> Ended
    OPEN --the bytes end--> Failed(Cut)
    any  --an exception, not JSON--> Failed; nothing after it is read
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from arbiter._speedups import reduce, sse
from arbiter._speedups.py.reduce import MAX_TOKENS
from arbiter.errors import ErrorClass, Garbled, InStreamError
from arbiter.model import (
    Answer,
    CallDelta,
    CallStarted,
    Ended,
    Event,
    Failed,
    Finished,
    Started,
    TextDelta,
    ThinkingDelta,
    ThinkingRedacted,
    ThinkingSigned,
    Usage,
    UsageReported,
)
from arbiter.wire import faults
from arbiter.wire.json import ABSENT, present
from arbiter.wire.messages_answer import finish_of
from arbiter.wire.reading import EventReader, Frames, decoded, word

_REASONS = {"guardrail_intervened": "refusal", "content_filtered": "refusal"}
"""Reasons that Anthropic has another word for."""
_FAILURES = ("malformed_model_output", "malformed_tool_use")


class _ToolUse(msgspec.Struct):
    id: Any = msgspec.field(name="toolUseId", default=None)
    name: Any = None
    input: Raw = ABSENT


class _Reasoning(msgspec.Struct):
    """Of a delta; of a whole answer, where the text and its signature stand in `whole`."""

    text: Any = None
    signature: Any = None
    redacted: Any = msgspec.field(name="redactedContent", default=None)
    whole: _Reasoning | None = msgspec.field(name="reasoningText", default=None)


class _Block(msgspec.Struct):
    """A delta, or a whole block."""

    text: Any = None
    tool: _ToolUse | None = msgspec.field(name="toolUse", default=None)
    reasoning: _Reasoning | None = msgspec.field(name="reasoningContent", default=None)


class _Tier(msgspec.Struct):
    type: Any = None


class _Event(msgspec.Struct):
    index: int = msgspec.field(name="contentBlockIndex", default=0)
    start: _Block | None = None
    delta: _Block | None = None
    reason: Any = msgspec.field(name="stopReason", default=None)
    usage: Raw = ABSENT
    tier: _Tier | None = msgspec.field(name="serviceTier", default=None)


class _Message(msgspec.Struct):
    content: list[_Block] | None = None


class _Output(msgspec.Struct):
    message: _Message | None = None


class _Body(msgspec.Struct):
    output: _Output | None = None
    reason: Any = msgspec.field(name="stopReason", default=None)
    usage: Raw = ABSENT
    tier: _Tier | None = msgspec.field(name="serviceTier", default=None)


class _Written(msgspec.Struct):
    ttl: Any = None
    tokens: Any = msgspec.field(name="inputTokens", default=None)


class _Usage(msgspec.Struct):
    input: Any = msgspec.field(name="inputTokens", default=None)
    output: Any = msgspec.field(name="outputTokens", default=None)
    total: Any = msgspec.field(name="totalTokens", default=None)
    read: Any = msgspec.field(name="cacheReadInputTokens", default=None)
    written: Any = msgspec.field(name="cacheWriteInputTokens", default=None)
    details: list[_Written] | None = msgspec.field(name="cacheDetails", default=None)


_EVENT = msgspec.json.Decoder(_Event)
_BODY = msgspec.json.Decoder(_Body)
_USAGE = msgspec.json.Decoder(_Usage)


class ConverseReader(EventReader):
    """Read one upstream stream of this format."""

    def __init__(self, limit: int = sse.LIMIT_BYTES) -> None:
        super().__init__(Frames(limit))
        self._calls: dict[int, int] = {}  # by block, its call's number
        self._numbers = 0
        self._fed: set[int] = set()  # the numbers of calls that have arguments
        self._signature = ""  # of the block of thinking that is open

    def place_of(self, call: int) -> int:
        return -1  # nothing is moved

    def carried(self, arguments: str) -> None:
        """Nothing is moved."""

    def _read(self, name: bytes, payload: bytes, events: list[Event]) -> None:
        if not payload.strip():
            return
        if name == b"error" or name.endswith(b"Exception"):
            events.append(Failed(faults.in_stream(payload)))
            return
        event = decoded(_EVENT, payload, "event of a Converse stream")
        if name == b"contentBlockDelta" and event.delta is not None:
            self._delta(event.index, event.delta, events)
        elif name == b"contentBlockStart" and event.start is not None and event.start.tool is not None:
            self._open(event.index, event.start.tool, events)
        elif name == b"contentBlockStop":
            self._stop(event.index, events)
        elif name == b"messageStart":
            events.append(Started())
        elif name == b"messageStop":
            self._finish(word(event.reason), events)
        elif name == b"metadata":
            self._report(event.usage, event.tier, events)

    def read_answer(self, body: _Body) -> list[Event]:
        """Return the events of a unary answer, in order and whole."""
        events: list[Event] = [Started()]
        message = body.output.message if body.output is not None else None
        for index, block in enumerate((message.content if message is not None else None) or ()):
            if block.tool is not None:
                self._open(index, block.tool, events)
                whole = present(block.tool.input)
                if whole is not None:
                    self._feed(index, whole.decode(), events)
            else:
                told = block.reasoning
                if told is not None and told.whole is not None:
                    block = _Block(reasoning=_Reasoning(told.whole.text))
                    self._signature = word(told.whole.signature) or ""
                self._delta(index, block, events)
            self._stop(index, events)
        self._finish(word(body.reason) or "end_turn", events)
        if type(events[-1]) is Failed:
            return self._admitted(events)
        self._report(body.usage, body.tier, events)
        return self._admitted([*events, Ended()])

    def _open(self, index: int, tool: _ToolUse, events: list[Event]) -> None:
        if self._numbers >= reduce.MAX_CALLS:
            raise Garbled(f"the upstream sent more than {reduce.MAX_CALLS:,} tool calls")
        number = self._calls[index] = self._numbers
        self._numbers += 1
        events.append(CallStarted(number, word(tool.id) or f"tooluse_{number}", word(tool.name) or ""))

    def _feed(self, index: int, arguments: str, events: list[Event]) -> None:
        number = self._calls.get(index)
        if number is None:
            raise Garbled("the upstream sent input of a call that it never started")
        self._fed.add(number)
        events.append(CallDelta(number, arguments))

    def _delta(self, index: int, delta: _Block, events: list[Event]) -> None:
        text = word(delta.text)
        if text is not None:
            events.append(TextDelta(text))
        if delta.tool is not None:
            slice = present(delta.tool.input)
            arguments = decoded(_TEXT, slice, "slice of a call") if slice is not None and slice[:1] == b'"' else None
            if arguments:
                self._feed(index, arguments, events)
        told = delta.reasoning
        if told is not None:
            thought, redacted = word(told.text), word(told.redacted)
            if thought is not None:
                events.append(ThinkingDelta(thought))
            if redacted is not None:
                events.append(ThinkingRedacted(redacted))
            self._signature = word(told.signature) or self._signature

    def _stop(self, index: int, events: list[Event]) -> None:
        if self._signature:
            events.append(ThinkingSigned(self._signature))
            self._signature = ""
        number = self._calls.get(index)
        if number is not None and number not in self._fed:
            self._fed.add(number)
            events.append(CallDelta(number, "{}"))

    def _finish(self, reason: str | None, events: list[Event]) -> None:
        for index in self._calls:
            self._stop(index, events)
        if reason in _FAILURES:
            error = InStreamError(f"the model's output could not be read ({reason})")
            error.classify(ErrorClass.UPSTREAM_ERROR)
            events.append(Failed(error))
            return
        reason = reason or "end_turn"
        self.finish_word = self.finish_word or reason
        events.append(Finished(finish_of(_REASONS.get(reason, reason), bool(self._numbers))))

    def _report(self, raw: Raw, tier: _Tier | None, events: list[Event]) -> None:
        usage = read_usage(present(raw), word(tier.type) if tier is not None else None)
        if usage is not None:
            events.append(UsageReported(usage))


_TEXT = msgspec.json.Decoder(str)


def read_usage(raw: bytes | None, tier: str | None = None) -> Usage | None:
    """Return a usage object in neutral counts, None where it is none: its input stands beside what was cached."""
    if raw is None:
        return None
    found = decoded(_USAGE, raw, "usage")
    by_ttl: dict[str, int] = {}
    for one in found.details or ():
        count = _count(one.tokens)
        if count is not None and one.ttl in ("5m", "1h"):
            by_ttl[one.ttl] = by_ttl.get(one.ttl, 0) + count
    usage = Usage(
        input=_count(found.input),
        cache_read=_count(found.read),
        cache_write=_count(found.written),
        cache_write_5m=by_ttl.get("5m"),
        cache_write_1h=by_ttl.get("1h"),
        output=_count(found.output),
        total=_count(found.total),
        service_tier=tier if tier is not None and len(tier) <= 64 and tier.isascii() else None,
    )
    return usage if usage.is_stated else None


def _count(value: object) -> int | None:
    """A count of tokens. What cannot be one is unknown."""
    return value if type(value) is int and 0 <= value <= MAX_TOKENS else None


def parse_answer(body: bytes) -> Answer:
    """Return the upstream's unary answer.

    Errors: Garbled where it is none of this format; InStreamError where a 200 holds an error, or says that it failed.
    """
    found = decoded(_BODY, body, "Converse answer")
    if found.output is None:
        raise Garbled("the upstream's answer has no output")
    reader = ConverseReader()
    return reader.answer(reader.read_answer(found))
