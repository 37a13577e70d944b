"""OpenAI Chat, inwards: chunks -> events, and the unary answer, which is one chunk that says everything.

A chunk may carry anything at any time: text, reasoning, several calls, the finish reason, usage, or only one of them.
The end is read as SPEC 2.7 says:

    OPEN --finish_reason--> FINISHED --[DONE], or the bytes end--> Ended
    OPEN --[DONE]---------> Finished(stop), Ended(inferred)
    OPEN --the bytes end--> Failed(Cut)
    any  --error object, not a chunk at all--> Failed; nothing after it is read

What servers do to tool calls is undone by `Calls`.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from arbiter._speedups import carry, nesting, reduce, sse
from arbiter.errors import ErrorClass, Garbled, InStreamError
from arbiter.model import (
    Answer,
    Ended,
    Event,
    Failed,
    Finished,
    Part,
    RefusalDelta,
    Started,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ThinkingRedacted,
    Usage,
    UsageReported,
)
from arbiter.wire import chat_proofs, faults
from arbiter.wire.chat_answer import LOGPROBS, finish_of, read_usage
from arbiter.wire.chat_calls import Calls, CallSlice, Function, plain_calls
from arbiter.wire.chat_parse import REASONING
from arbiter.wire.json import ABSENT, one_line, present
from arbiter.wire.reading import MAX_ANSWER_VALUES, EventReader, decoded, is_said, word


class _Part(msgspec.Struct):
    """One part of a content in list form, or one of OpenRouter's `reasoning_details`."""

    type: Any = None
    text: Any = None
    content: Any = None
    refusal: Any = None
    summary: Any = None
    thinking: Raw = ABSENT


class _Said(msgspec.Struct):
    """A delta; or a whole message, which has the same members."""

    content: str | list[_Part] | None = None
    refusal: Any = None
    reasoning_content: Raw = ABSENT
    reasoning: Raw = ABSENT
    reasoning_details: Raw = ABSENT
    extra_content: Raw = ABSENT
    tool_calls: list[CallSlice] | None = None
    function_call: Function | None = None


class _Choice(msgspec.Struct):
    index: int | None = None
    delta: _Said | None = None
    message: _Said | None = None
    finish_reason: Any = None
    logprobs: Raw = ABSENT
    usage: Raw = ABSENT  # Kimi's place for it
    error: Raw = ABSENT


class _Groq(msgspec.Struct):
    usage: Raw = ABSENT


class _Chunk(msgspec.Struct):
    object: Any = None
    type: Any = None
    id: Any = None
    model: Any = None
    choices: list[_Choice] | None = None
    service_tier: Any = None
    usage: Raw = ABSENT
    x_groq: _Groq | None = None
    error: Raw = ABSENT


class _Wide(msgspec.Struct):
    """A whole answer, of which nothing is decoded that may be long."""

    class Choice(msgspec.Struct):
        class Message(msgspec.Struct):
            content: Raw = ABSENT
            tool_calls: Raw = ABSENT

        message: Message | None = None

    choices: list[Choice] | None = None


_CHUNK = msgspec.json.Decoder(_Chunk)
_WIDE = msgspec.json.Decoder(_Wide)
_STR = msgspec.json.Decoder(str)
_PARTS = msgspec.json.Decoder(list[_Part])
_PART = msgspec.json.Decoder(_Part)

# The finish reasons of a model that did not finish: OpenRouter and vLLM, Mistral; DeepSeek.
_FAILED = {"error": ErrorClass.UPSTREAM_ERROR, "insufficient_system_resource": ErrorClass.OVERLOADED}


class ChatReader(EventReader):
    """Read one upstream stream of this format."""

    keeps = True  # what follows whole arguments may be an echo of them, or another call

    def __init__(self, limit: int = sse.LIMIT_BYTES) -> None:
        super().__init__(carry.ChatCarrier(limit))
        self._has_choice = False
        self._has_started = False
        self._calls = Calls()

    def place_of(self, call: int) -> int:
        """Return the upstream's index of the slices of call number `call`; -1 where they cannot be told by it."""
        return self._calls.place_of(call)

    def carried(self, arguments: str) -> None:
        """Be told of arguments that were moved past the reader."""
        self._calls.carried(arguments)

    def _read(self, name: bytes, payload: bytes, events: list[Event]) -> None:
        payload = payload.strip()
        if not payload or name == b"ping":
            return
        if payload == b"[DONE]":
            self._done(events)
            return
        self._read_chunk(name, decoded(_CHUNK, payload, "chunk of a chat completion"), payload, events)

    def read_answer(self, found: _Chunk, body: bytes) -> list[Event]:
        """Return the events of a unary answer, in order and whole; `found` is what `body` was decoded to.

        Errors: Garbled where it is none of this format.
        """
        events: list[Event] = []
        for choice in found.choices or ():
            for place, call in enumerate(choice.message.tool_calls or () if choice.message is not None else ()):
                call.index = place  # each of them is whole, also where two have the same id
        self._read_chunk(b"", found, body, events)
        if not self._has_choice and not any(type(event) is Failed for event in events):
            raise Garbled("the upstream's answer has no choices")
        return self._admitted(events) + self.read(b"", b"[DONE]")

    def _read_chunk(self, name: bytes, chunk: _Chunk, payload: bytes, events: list[Event]) -> None:
        if name == b"error" or chunk.object == "error" or chunk.type == "error" or is_said(chunk.error):
            events.append(Failed(faults.in_stream(payload)))
            return
        choice = _first(chunk.choices or [])
        held = (chunk.usage, choice.usage if choice else ABSENT, chunk.x_groq.usage if chunk.x_groq else ABSENT)
        usage = next((found for raw in held if (found := read_usage(present(raw))) is not None), None)
        if choice is None and usage is None:
            return  # somebody's own side channel, or Azure's first chunk about the prompt
        if not self._has_started:
            self._has_started = True
            id = word(chunk.id)
            self._calls.name_after(id)
            events.append(Started(id, word(chunk.model), _of_tier(chunk)))
        if choice is not None:
            self._has_choice = True
            self._read_choice(choice, events)
        if usage is not None:
            events.insert(len(events) - isinstance(events[-1] if events else None, Failed), UsageReported(usage))

    def _done(self, events: list[Event]) -> None:
        inferred = self.order.finish is None
        if inferred:
            self._calls.open_all(events)
            events.append(Finished(finish_of("stop", self._calls.has_any)))
        events.append(Ended(inferred))

    def _read_choice(self, choice: _Choice, events: list[Event]) -> None:
        said = choice.delta or choice.message
        logprobs = _logprobs(choice.logprobs)
        if said is not None:
            self._read_said(said, logprobs, events)
        elif logprobs is not None:
            events.append(TextDelta("", logprobs))
        reason = word(choice.finish_reason)
        if is_said(choice.error):
            events.append(Failed(faults.in_stream(b'{"error":%b}' % bytes(choice.error))))
        elif reason in _FAILED:
            error = InStreamError(f"the upstream stopped with the finish reason {reason!r}")
            error.classify(_FAILED[reason])
            events.append(Failed(error))
        elif reason is not None:
            self._calls.open_all(events)
            self.finish_word = self.finish_word or reason
            events.append(Finished(finish_of(reason, self._calls.has_any)))

    def _read_said(self, said: _Said, logprobs: bytes | None, events: list[Event]) -> None:
        proof = chat_proofs.of_message(said.reasoning_details, said.extra_content)
        if proof is not None:
            events.append(ThinkingRedacted(proof, "message"))
        spelling, reasoning = _reasoning(said)
        if reasoning:
            events.append(ThinkingDelta(reasoning, spelling))
        if isinstance(said.content, list):  # Mistral's reasoning models stream parts
            _read_parts(said.content, logprobs, events)
        elif said.content or logprobs is not None:
            events.append(TextDelta(said.content or "", logprobs))
        refusal = word(said.refusal)
        if refusal is not None:
            events.append(RefusalDelta(refusal))
        for position, one in enumerate(said.tool_calls or ()):
            # Several in one chunk, without index or id, are told apart by nothing but that each has its name.
            self._calls.read(one, events, is_new=position > 0)
        if said.function_call is not None:
            self._calls.read(CallSlice(-1, None, said.function_call), events)


def _check_width(body: bytes) -> None:
    """Count what becomes an object each; log probabilities stay text, and so does what nobody knows.

    Errors: Garbled.
    """
    if len(body) <= reduce.MAX_VALUES or nesting.commas(body) < reduce.MAX_VALUES:
        return
    choices = decoded(_WIDE, body, "chat completion", MAX_ANSWER_VALUES).choices or []
    messages = [choice.message for choice in choices if choice.message is not None]
    values = sum(nesting.commas(bytes(raw)) for one in messages for raw in (one.content, one.tool_calls))
    if len(choices) + values >= reduce.MAX_VALUES:
        raise Garbled("the upstream sent a chat completion of too many values")


def _first(choices: list[_Choice]) -> _Choice | None:
    """Return the choice that is ours: the one numbered 0, or a whole answer's first."""
    for position, choice in enumerate(choices):
        if (position if choice.index is None else choice.index) == 0:
            return choice
    return choices[0] if choices and choices[0].message is not None else None


def _read_parts(parts: list[_Part], logprobs: bytes | None, events: list[Event]) -> None:
    for part in parts:
        if part.type in ("thinking", "reasoning"):
            thinking = _spoken(part.thinking) or word(part.text) or ""
            if thinking:
                events.append(ThinkingDelta(thinking))
        elif part.type == "refusal":
            refusal = word(part.refusal)
            if refusal is not None:
                events.append(RefusalDelta(refusal))
        else:
            text = word(part.text)
            if text is not None:
                events.append(TextDelta(text, logprobs))
                logprobs = None
    if logprobs is not None:
        events.append(TextDelta("", logprobs))


def _reasoning(said: _Said) -> tuple[str, str]:
    """Return the member that reasoning came in, and its text. Some servers send the same under several names."""
    for spelling, raw in ((REASONING, said.reasoning_content), ("reasoning", said.reasoning)):
        text = _spoken(raw)
        if text:
            return spelling, text
    return "reasoning", _spoken(said.reasoning_details)


def _spoken(raw: Raw) -> str:
    """Return reasoning as text, whether it is a string, an object that holds one, or a list of those."""
    value = present(raw) if raw is not ABSENT else None
    if value is None:
        return ""
    if value[:1] == b'"':
        return _STR.decode(value)
    if value[:1] == b"{":
        return _said_by(decoded(_PART, value, "reasoning"))
    if value[:1] == b"[":
        return "".join(_said_by(part) for part in decoded(_PARTS, value, "reasoning"))
    return ""


def _said_by(part: _Part) -> str:
    return word(part.text) or word(part.content) or word(part.summary) or ""


def _logprobs(raw: Raw) -> bytes | None:
    """Return log probabilities as JSON in one line; None where they say nothing."""
    value = present(raw)
    if value is None or value[:1] != b"{":
        return None
    try:
        found = LOGPROBS.decode(value)
    except msgspec.DecodeError:
        return None
    if not (found.content or found.refusal):
        return None
    return one_line(value)


def parse_answer(body: bytes) -> Answer:
    """Return the upstream's unary answer.

    Errors: Garbled where it is none of this format; InStreamError where a 200 holds an error object.
    """
    _check_width(body)
    found = decoded(_CHUNK, body, "chat completion", MAX_ANSWER_VALUES)
    plain = _plain(found)
    if plain is not None:
        return plain
    reader = ChatReader()
    return reader.answer(reader.read_answer(found, body))


_UNSAID = (ABSENT, Raw(b"null"))
_PLAIN = (b"", b"n", b'"')  # how reasoning begins where it is a string, or is not there


def _plain(found: _Chunk) -> Answer | None:
    """Return an answer of reasoning, text and calls that came to an end, as nearly all do: all that makes the reader so
    long is for others. None where there is anything else in it, or anything to put right."""
    choice = found.choices[0] if found.choices and len(found.choices) == 1 else None
    said = choice.message if choice is not None else None
    if choice is None or said is None or choice.delta is not None or choice.index:
        return None
    text, reason = said.content, choice.finish_reason
    if type(reason) is not str or not reason or reason in _FAILED:
        return None
    if not (
        (type(text) is str or text is None)
        and (text or said.tool_calls)
        and (said.refusal is None or said.refusal == "")
        and said.reasoning_details in _UNSAID
        and said.extra_content in _UNSAID
        and said.function_call is None
        and choice.logprobs in _UNSAID
        and choice.usage in _UNSAID
        and choice.error in _UNSAID
        and found.object == "chat.completion"
        and found.type is None
        and found.x_groq is None
        and found.error in _UNSAID
    ):
        return None
    parts: list[Part] = []
    if not (said.reasoning_content in _UNSAID and said.reasoning in _UNSAID):
        if not (bytes(said.reasoning_content)[:1] in _PLAIN and bytes(said.reasoning)[:1] in _PLAIN):
            return None
        spelling, reasoning = _reasoning(said)
        if reasoning:
            parts.append(Thinking(reasoning, spelling=spelling))
    if text:
        parts.append(Text(text))
    if said.tool_calls:
        calls = plain_calls(said.tool_calls)
        if calls is None:
            return None
        parts += calls
    usage, counted = _of_tier(found), read_usage(present(found.usage))
    if counted is not None:
        usage = counted if usage is None else usage.merged(counted)
    return Answer(
        id=word(found.id),
        model=word(found.model),
        parts=tuple(parts),
        finish=finish_of(reason, has_calls=bool(said.tool_calls)),
        usage=usage,
    )


def _of_tier(found: _Chunk) -> Usage | None:
    """Return what is known of the usage before anything is counted."""
    tier = word(found.service_tier)
    return Usage(service_tier=tier) if tier is not None else None
