"""OpenAI Chat, inwards: chunks -> events, and the unary answer, which is one chunk that says everything.

A chunk may carry anything at any time: text, reasoning, several calls, the finish reason, usage, or only one of them.
The end is read as SPEC 2.7 says:

    OPEN --finish_reason--> FINISHED --[DONE], or the bytes end--> Ended
    OPEN --[DONE]---------> Finished(stop), Ended(inferred)
    OPEN --the bytes end--> Failed(Cut)
    any  --error object, not a chunk at all--> Failed; nothing after it is read

What servers do to tool calls is undone here, so that every call opens once, with its id and its whole name, under a
number of its own. A call goes through three states:

    KNOWN --its name, then a first slice of arguments, another call, or the finish--> OPEN
    OPEN  --arguments that end where they began (`Span`)--> WHOLE

Which call a slice belongs to is decided by its id, else by its index, else it is the latest. It begins another one
where its id is new, where it names another function than an open call has, or where it begins new arguments behind
whole ones. A name comes in pieces (Gemini), or again with every slice (MiniMax): until the call opens, a piece that
repeats the name or begins with it replaces it, and any other is added.
"""

from __future__ import annotations

import re
import secrets
from typing import Any

import msgspec
from msgspec import Raw

from arbiter._speedups import carry
from arbiter._speedups.py.reduce import MAX_CALLS, MAX_KEPT_BYTES
from arbiter._speedups.py.sse import LIMIT_BYTES
from arbiter.errors import ErrorClass, Garbled, InStreamError
from arbiter.model import (
    Answer,
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
    UsageReported,
    collect,
)
from arbiter.wire import faults
from arbiter.wire.chat_answer import LOGPROBS, finish_of, read_usage
from arbiter.wire.chat_parse import REASONING, argument_slice
from arbiter.wire.json import ABSENT, present
from arbiter.wire.reading import EventReader, decoded, is_said, word
from arbiter.wire.span import Span


class _Function(msgspec.Struct):
    name: Any = None
    arguments: Raw = ABSENT


class _CallSlice(msgspec.Struct):
    index: int | None = None
    id: Any = None
    function: _Function | None = None
    type: Any = None


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
    tool_calls: list[_CallSlice] | None = None
    function_call: _Function | None = None


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
    usage: Raw = ABSENT
    x_groq: _Groq | None = None
    error: Raw = ABSENT


_CHUNK = msgspec.json.Decoder(_Chunk)
_STR = msgspec.json.Decoder(str)
_PARTS = msgspec.json.Decoder(list[_Part])
_PART = msgspec.json.Decoder(_Part)
_ID_CHARACTERS = re.compile(r"[^a-zA-Z0-9_-]")

# The finish reasons of a model that did not finish: OpenRouter and vLLM, Mistral; DeepSeek.
_FAILED = {"error": ErrorClass.UPSTREAM_ERROR, "insufficient_system_resource": ErrorClass.OVERLOADED}


class _Call:
    """A call under way. Arguments that come before its name wait in `held`."""

    __slots__ = ("held", "id", "is_fed", "is_minted", "name", "number", "place", "span")

    def __init__(self, id: str, place: int | None) -> None:
        self.id = id
        self.is_minted = False  # the upstream gave none
        self.name = ""
        self.place = place
        self.number = -1  # among the calls that opened
        self.held: list[str] = []
        self.is_fed = False  # has arguments
        self.span: Span | None = Span()  # None once slices may have passed the reader by

    @property
    def is_whole(self) -> bool:
        return self.span is not None and self.span.whole


class ChatReader(EventReader):
    """Read one upstream stream of this format."""

    def __init__(self, limit: int = LIMIT_BYTES) -> None:
        super().__init__(carry.ChatCarrier(limit))
        self.has_choice = False
        self._has_started = False
        self._calls: list[_Call] = []
        self._opened: list[_Call] = []
        self._kept = 0
        self._waiting = 0  # calls that are not open yet
        self._at: dict[int, _Call] = {}  # by the upstream's index, the latest call there
        self._by_id: dict[str, _Call] = {}
        self._mark = ""  # what ids of our own are made of

    def place_of(self, call: int) -> int:
        """Return the upstream's index of the slices of call number `call`; -1 where they cannot be told by it.

        So it is for calls without id, which only their arguments tell apart, and before the first slice.
        """
        one = self._opened[call] if 0 <= call < len(self._opened) else None
        if one is None or one.place is None or one.is_minted or not one.is_fed or one.is_whole:
            return -1
        if self._at.get(one.place) is not one:
            return -1
        one.span = None
        return one.place

    def _read(self, name: bytes, payload: bytes, events: list[Event]) -> None:
        payload = payload.strip()
        if not payload or name == b"ping":
            return
        if payload == b"[DONE]":
            self._done(events)
            return
        chunk = decoded(_CHUNK, payload, "chunk of a chat completion")
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
            self._mark = _ID_CHARACTERS.sub("", id or "")[-24:] or secrets.token_hex(8)
            events.append(Started(id, word(chunk.model)))
        if choice is not None:
            self.has_choice = True
            self._read_choice(choice, events)
        if usage is not None:
            events.insert(len(events) - isinstance(events[-1] if events else None, Failed), UsageReported(usage))

    def _done(self, events: list[Event]) -> None:
        inferred = self.order.finish is None
        if inferred:
            self._open_all(events)
            events.append(Finished(finish_of("stop", bool(self._calls))))
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
            error.code = _FAILED[reason]
            events.append(Failed(error))
        elif reason is not None:
            self._open_all(events)
            self.finish_word = self.finish_word or reason
            events.append(Finished(finish_of(reason, bool(self._calls))))

    def _read_said(self, said: _Said, logprobs: bytes | None, events: list[Event]) -> None:
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
            if one.type == "custom":
                continue  # of a tool that does not cross, so nobody asked for it
            # Several in one chunk, without index or id, are told apart by nothing but that each has its name.
            self._read_call(one, events, is_new=position > 0)
        if said.function_call is not None:
            self._read_call(_CallSlice(-1, None, said.function_call), events)

    # --- Tool calls ---------------------------------------------------------------------------------------------------

    def _read_call(self, one: _CallSlice, events: list[Event], *, is_new: bool = False) -> None:
        function = one.function
        id, name = word(one.id), word(function.name) if function is not None else None
        arguments = argument_slice(function.arguments) if function is not None else ""
        if arguments == "{}" and function is not None and bytes(function.arguments)[:1] == b"{":
            arguments = ""  # an object that slices may yet fill; a call without arguments gets one anyhow
        is_new = is_new and one.index is None and id is None and name is not None
        known = None if is_new else self._known(one.index, id, name, arguments)
        if known is None:
            if function is None and id is None:
                return  # says nothing
            known = self._begin(one.index, id, name, events)
        if one.index is not None:
            self._at[one.index] = known
        self._add(known, name or "", arguments, events)

    def _known(self, index: int | None, id: str | None, name: str | None, arguments: str) -> _Call | None:
        """Return the call that a slice belongs to, None where it begins one."""
        here = self._at.get(index) if index is not None else None
        if id is not None:
            call = self._by_id.get(id)
            if call is None:
                # The id may come after the name; not if the call there has one, or is under way.
                if here is None or not here.is_minted or here.is_fed or (name and here.name):
                    return None
                here.id, here.is_minted = id, False
                self._by_id[id] = here
                return here
            elsewhere = here is None and index is not None and call.place is not None and call.place != index
            return None if elsewhere and name else call
        if index is None and self._calls:
            here = self._calls[-1]
        if here is None:
            return None
        if here.is_fed:
            differs = name is not None and name != here.name
            again = here.is_whole and arguments.lstrip()[:1] == "{"
            return None if differs or again else here
        if index is None and name is not None and here.name not in ("", name):
            return None
        return here

    def _begin(self, index: int | None, id: str | None, name: str | None, events: list[Event]) -> _Call:
        if len(self._calls) >= MAX_CALLS:
            raise Garbled(f"the upstream sent more than {MAX_CALLS:,} tool calls")
        latest = self._calls[-1] if self._calls else None
        here = self._at.get(index) if index is not None else latest
        if id is None and name is None and here is None:
            raise Garbled("the upstream sent a slice of a tool call that it never opened")
        self._open_named(events)
        is_new = id is not None and id not in self._by_id
        # A server without call ids, or with bare numbers: the result must still find its call, and no other turn's.
        own = f"call_{self._mark}_{len(self._calls)}"
        call = _Call(id if id is not None and is_new and not id.isdecimal() else own, index)
        call.is_minted = not is_new
        if id is None and name is None and here is not None:
            call.name = here.name  # new arguments behind whole ones: the same function, called again
        self._calls.append(call)
        self._waiting += 1
        if id is not None and is_new:
            self._keep(len(id))
            self._by_id[id] = call
        return call

    def _add(self, call: _Call, name: str, arguments: str, events: list[Event]) -> None:
        if call.number < 0:
            named = name if name.startswith(call.name) else call.name + name
            self._keep(len(named) - len(call.name))
            call.name = named
            if arguments:
                self._keep(len(arguments))
                call.held.append(arguments)
            if call.held and call.name:
                self._open(call, events)
        elif arguments and not call.is_whole:  # else they are told again, or end in blanks
            self._feed(call, arguments, events)

    def _keep(self, size: int) -> None:
        """Count what has to be remembered of calls: ids, names, and arguments without a name."""
        self._kept += size
        if self._kept > MAX_KEPT_BYTES:
            raise Garbled("the upstream sent too much of the names of its tool calls, or too much without a name")

    def _open(self, call: _Call, events: list[Event]) -> None:
        call.number = len(self._opened)
        self._opened.append(call)
        self._waiting -= 1
        events.append(CallStarted(call.number, call.id, call.name))
        if call.held:
            self._feed(call, "".join(call.held), events)
            call.held.clear()

    def _feed(self, call: _Call, arguments: str, events: list[Event]) -> None:
        call.is_fed = True
        if call.span is not None:
            call.span.feed(arguments)
        events.append(CallDelta(call.number, arguments))

    def _open_named(self, events: list[Event]) -> None:
        for call in self._calls if self._waiting else ():
            if call.number < 0 and call.name:
                self._open(call, events)

    def _open_all(self, events: list[Event]) -> None:
        """Open what never got a name, too; the client should see that there was a call."""
        for call in self._calls if self._waiting else ():
            if call.number < 0:
                self._open(call, events)


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
    return value.replace(b"\r", b" ").replace(b"\n", b" ")


def parse_answer(body: bytes) -> Answer:
    """Return the upstream's unary answer.

    Errors: Garbled where it is none of this format; InStreamError where a 200 holds an error object.
    """
    reader = ChatReader()
    events = reader.read(b"", body)
    if not reader.has_choice and not any(isinstance(event, Failed) for event in events):
        raise Garbled("the upstream's answer has no choices")
    return collect(events + reader.read(b"", b"[DONE]"))
