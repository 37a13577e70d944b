"""Gemini, inwards: chunks -> events, and the unary answer, which is a chunk that came alone.

A chunk has parts of one candidate, and perhaps a finish reason, usage and the model's name. There is no terminal event:
the bytes end. Older models repeat the finish reason in every chunk, so it counts once nothing more has come:

    OPEN --a chunk with a finish reason--> OPEN, and the end of the bytes is the end of the answer
    OPEN --the bytes end, after a finish reason--> Finished, Ended
    OPEN --the bytes end--> Failed(Cut)
    any  --an error, not JSON, a reason that is a failure--> Failed; nothing after it is read

Usage comes with every chunk and counts from the start, so the last one says it all. A signature on a call, or on the
text that ends an answer, is told as the end of the thought that led there (`wire.signatures`). Other candidates than
the first are not carried.
"""

from __future__ import annotations

import re
import secrets
from typing import Any

import msgspec
from msgspec import Raw

from arbiter._speedups import nesting, reduce, sse
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
    ThinkingSigned,
    UsageReported,
)
from arbiter.order import FINISHED, NEW
from arbiter.wire import faults
from arbiter.wire.gemini_answer import BROKEN, finish_of, read_usage
from arbiter.wire.gemini_names import ANSWER, camel
from arbiter.wire.json import ABSENT, present
from arbiter.wire.reading import MAX_ANSWER_VALUES, EventReader, Frames, decoded, is_said, word
from arbiter.wire.signatures import tagged


class _Call(msgspec.Struct):
    id: Any = None
    name: Any = None
    args: Raw = ABSENT


class _Part(msgspec.Struct, rename="camel"):
    text: Any = None
    thought: Any = None
    thought_signature: Any = None
    function_call: _Call | None = None


class _Content(msgspec.Struct):
    parts: list[_Part] | None = None


class _Candidate(msgspec.Struct, rename="camel"):
    index: Any = None
    content: _Content | None = None
    finish_reason: Any = None
    finish_message: Any = None


class _Feedback(msgspec.Struct, rename="camel"):
    block_reason: Any = None
    block_reason_message: Any = None


class _Chunk(msgspec.Struct, rename="camel"):
    candidates: list[_Candidate] | None = None
    prompt_feedback: _Feedback | None = None
    usage_metadata: Raw = ABSENT
    model_version: Any = None
    response_id: Any = None
    error: Raw = ABSENT


_CHUNK = msgspec.json.Decoder(_Chunk)
_CHUNKS = msgspec.json.Decoder(list[Raw])
_ID_CHARACTERS = re.compile(r"[^a-zA-Z0-9_-]")


class GeminiReader(EventReader):
    """Read one upstream stream of this format."""

    def __init__(self, limit: int = sse.LIMIT_BYTES) -> None:
        super().__init__(Frames(limit))
        self._calls = 0
        self._ids: set[str] = set()
        self._mark = ""  # what ids of our own are made of

    def place_of(self, call: int) -> int:
        """Calls come whole here."""
        return -1

    def carried(self, arguments: str) -> None:
        """Nothing is moved past this reader."""

    def closing(self) -> list[Event]:
        if self.order.stage is FINISHED or self.finish_word is None:
            return [Ended()]
        return [Finished(finish_of(self.finish_word, self._calls > 0)), Ended()]

    def finish(self) -> list[Event]:
        self.frames.end()
        events = self._drained()
        if self.finish_word is not None and not self.order.closed:
            events += self._admitted(self.closing())
        return events + super().finish()

    def _read(self, name: bytes, payload: bytes, events: list[Event]) -> None:
        payload = payload.strip()
        if not payload or payload == b"[DONE]":
            return
        self.take(decoded(_CHUNK, _in_one_spelling(payload), "chunk of a Gemini stream"), payload, events)

    def take(self, chunk: _Chunk, payload: bytes, events: list[Event]) -> None:
        """Add the events of one chunk."""
        if is_said(chunk.error) and not chunk.candidates:
            events.append(Failed(faults.in_stream(payload)))
            return
        if not (chunk.candidates or chunk.prompt_feedback or present(chunk.usage_metadata)):
            return
        if self.order.stage is NEW and not events:
            id = word(chunk.response_id)
            self._mark = _ID_CHARACTERS.sub("", (id or "")[-64:])[-24:]
            events.append(Started(id, word(chunk.model_version)))
        first = next((one for one in chunk.candidates or () if one.index in (None, 0)), None)
        reason = None
        if first is not None:
            for part in first.content.parts or () if first.content is not None else ():
                self._take_part(part, events)
            reason = word(first.finish_reason)
        usage = read_usage(present(chunk.usage_metadata))
        if usage is not None:
            events.append(UsageReported(usage))
        if reason is None and chunk.prompt_feedback is not None:
            reason = word(chunk.prompt_feedback.block_reason)
        if reason in BROKEN:
            said = word(first.finish_message) if first is not None else None
            error = InStreamError(said or f"the model wrote what could not be read ({reason})")
            error.classify(ErrorClass.UPSTREAM_ERROR)
            events.append(Failed(error))
        elif reason is not None and reason != "FINISH_REASON_UNSPECIFIED":
            self.finish_word = reason

    def _take_part(self, part: _Part, events: list[Event]) -> None:
        signature, text = word(part.thought_signature), word(part.text)
        if part.thought is True:
            if text is not None:
                events.append(ThinkingDelta(text))
            if signature is not None:
                self._sign(signature, events)
        elif part.function_call is not None:
            if signature is not None:
                self._sign(signature, events)
            self._call(part.function_call, events)
        else:
            if text is not None:
                events.append(TextDelta(text))
            if signature is not None:
                self._sign(signature, events)

    def _sign(self, signature: str, events: list[Event]) -> None:
        events.append(ThinkingSigned(tagged(signature)))

    def _call(self, call: _Call, events: list[Event]) -> None:
        if self._calls >= reduce.MAX_CALLS:
            raise Garbled(f"the upstream sent more than {reduce.MAX_CALLS:,} tool calls")
        # Google often gives no id; a result must still find its call, and no other turn's.
        id = word(call.id)
        if id is None or id in self._ids:
            self._mark = self._mark or secrets.token_hex(8)
            id = f"call_{self._mark}_{self._calls}"
        self._ids.add(id)
        events.append(CallStarted(self._calls, id, word(call.name) or ""))
        events.append(CallDelta(self._calls, (present(call.args) or b"{}").decode()))
        self._calls += 1


def _in_one_spelling(payload: bytes) -> bytes:
    try:
        return camel(payload, ANSWER)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return payload  # whoever decodes it will say what is wrong


def parse_answer(body: bytes) -> Answer:
    """Return the upstream's unary answer; a stream's chunks in an array, as Google writes them unasked, are one too.

    Errors: Garbled where it is none of this format; InStreamError where a 200 holds an error object.
    """
    chunks: list[Any] = [body]
    if body.lstrip()[:1] == b"[":
        chunks = [bytes(one) for one in decoded(_CHUNKS, body, "answer", MAX_ANSWER_VALUES)]
    reader = GeminiReader()
    events: list[Event] = []
    for raw in chunks:
        chunk = decoded(_CHUNK, _in_one_spelling(raw), "answer", MAX_ANSWER_VALUES)
        if chunk.candidates is None and chunk.prompt_feedback is None:
            if is_said(chunk.error):
                raise faults.in_stream(nesting.whole(raw))
            if len(chunks) == 1 and not present(chunk.usage_metadata):
                raise Garbled("the upstream's answer has no candidates")
        found: list[Event] = []
        reader.take(chunk, raw, found)
        events += reader._admitted(found)
    if reader.finish_word is None:
        reader.finish_word = "STOP"  # a whole answer is over, whatever it says
    if not reader.order.closed:
        events += reader._admitted(reader.closing())
    return reader.answer(events)
