"""OpenAI Responses, inwards: named events -> events, and the unary answer, which is the response object at their end.

An answer is a list of items, each with its start, deltas and its whole at the end. What deltas said is told as they
come; what an item has at its end and no delta said is told then, since some servers stream no deltas of some items, or
nothing but the response. Items without a neutral counterpart (built-in tools) are not carried. The end:

    OPEN --response.completed, .incomplete--> Finished, Ended
    OPEN --response.failed, .cancelled, error, not JSON--> Failed; nothing after it is read
    OPEN --the bytes end--> Failed(Cut)

Which item an event belongs to is said by `output_index`, else by `item_id` (llama.cpp), else it is the latest.
"""

from __future__ import annotations

import re
import secrets
from typing import Any

import msgspec
from msgspec import Raw

from arbiter._speedups import nesting, reduce, sse
from arbiter.errors import Garbled
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
    ThinkingSigned,
    Usage,
    UsageReported,
)
from arbiter.wire import faults
from arbiter.wire.json import ABSENT, present
from arbiter.wire.reading import MAX_ANSWER_VALUES, MAX_DEPTH, EventReader, Frames, decoded, is_said, word
from arbiter.wire.responses_answer import finish_of, read_logprobs, read_usage
from arbiter.wire.responses_items import full_name


class _Part(msgspec.Struct):
    type: Any = None
    text: Any = None
    refusal: Any = None
    logprobs: Raw = ABSENT


class _Item(msgspec.Struct):
    type: Any = None
    id: Any = None
    call_id: Any = None
    name: Any = None
    namespace: Any = None
    arguments: Any = None
    input: Any = None
    content: list[_Part] | str | None = None
    summary: list[_Part] | None = None
    encrypted_content: Any = None


class _Typed(msgspec.Struct):
    type: Any = None


class _Incomplete(msgspec.Struct):
    reason: Any = None


class _Response(msgspec.Struct):
    id: Any = None
    model: Any = None
    status: Any = None
    output: list[Raw] | None = None
    incomplete_details: _Incomplete | None = None
    service_tier: Any = None
    usage: Raw = ABSENT
    error: Raw = ABSENT


class _Event(msgspec.Struct):
    type: Any = None
    response: Raw = ABSENT
    item: Raw = ABSENT
    item_id: Any = None
    output_index: int | None = None
    summary_index: int | None = None
    content_index: int | None = None
    delta: Any = None
    logprobs: Raw = ABSENT
    error: Raw = ABSENT


class _Wide(msgspec.Struct):
    """What is read of an event of very many values: one that repeats what was said."""

    type: str | None = None
    response: Raw = ABSENT
    item: Raw = ABSENT
    item_id: str | None = None
    output_index: int | None = None
    error: Raw = ABSENT


_EVENT = msgspec.json.Decoder(_Event)
_WIDE = msgspec.json.Decoder(_Wide)
_ITEM = msgspec.json.Decoder(_Item)
_TYPED = msgspec.json.Decoder(_Typed)
_RESPONSE = msgspec.json.Decoder(_Response)
_MAX_ID = 256  # characters of an item's id that tell it from others
_ID_CHARACTERS = re.compile(r"[^a-zA-Z0-9_-]")

_ENDS = {"response.completed", "response.incomplete", "response.failed", "response.cancelled", "response.done"}
_STARTS = {"response.created", "response.in_progress", "response.queued"}
_TEXT, _REFUSAL, _SUMMARY, _THOUGHT, _ARGUMENTS = "text", "refusal", "summary", "thought", "arguments"
_DELTAS = {
    "response.output_text.delta": _TEXT,
    "response.refusal.delta": _REFUSAL,
    "response.reasoning_summary_text.delta": _SUMMARY,
    "response.reasoning_text.delta": _THOUGHT,
    "response.reasoning.delta": _THOUGHT,  # before it was given the other name
    "response.function_call_arguments.delta": _ARGUMENTS,
    "response.custom_tool_call_input.delta": _ARGUMENTS,
}
_CALLS = ("function_call", "custom_tool_call")


class _State:
    """What is known of one item: what of it was said, by kind and number of the part; of a call, its own number."""

    __slots__ = ("is_free", "number", "said", "thinks_in")

    def __init__(self) -> None:
        self.said: set[tuple[str, int]] = set()
        self.number = -1
        self.is_free = False
        self.thinks_in = ""  # a thought is told once: its summary or itself, whichever came first


class ResponsesReader(EventReader):
    """Read one upstream stream of this format."""

    def __init__(self, limit: int = sse.LIMIT_BYTES) -> None:
        super().__init__(Frames(limit))
        self._items: dict[int | str, _State] = {}  # by output index, and by id
        self._latest: _State | None = None
        self._count = 0
        self._calls = 0
        self._opened: dict[str, _State] = {}  # the calls, by their own id
        self._mark = ""  # what ids of our own are made of
        self._thought: _State | None = None  # the thought that was told last, and nothing behind it

    def place_of(self, call: int) -> int:
        return -1  # nothing is moved

    def carried(self, arguments: str) -> None:
        """Nothing is moved past this reader."""

    def _read(self, name: bytes, payload: bytes, events: list[Event]) -> None:
        payload = payload.strip()
        if not payload or name == b"ping" or payload == b"[DONE]":  # the other format's word, from some façades
            return
        event = _read_event(payload)
        kind = event.type if isinstance(event.type, str) else name.decode("utf-8", "replace")
        if kind in _DELTAS:
            said = word(event.delta)
            if said is not None:
                self._say(self._item_of(event), _DELTAS[kind], _number(event), said, event.logprobs, events)
        elif kind == "response.output_item.added":
            item = present(event.item)
            if item is not None:
                self._add(item, event.output_index, events)
        elif kind == "response.output_item.done":
            item = present(event.item)
            if item is not None:
                self._complete(item, event.output_index, events)
        elif kind in _STARTS:
            self._start(_response(event.response), events)
        elif kind in _ENDS:
            self._end(kind, _response(event.response), payload, events)
        elif kind == "error" or name == b"error" or is_said(event.error):
            events.append(Failed(faults.in_stream(payload)))

    def read_answer(self, body: bytes) -> list[Event]:
        """Return the events of a unary answer, in order and whole.

        Errors: Garbled where it is none of this format.
        """
        response = decoded(_RESPONSE, body, "response", MAX_ANSWER_VALUES)
        if response.output is None and response.status is None:
            if is_said(response.error):
                raise faults.in_stream(body)
            raise Garbled("the upstream's answer has no output")
        events: list[Event] = []
        self._end(f"response.{word(response.status) or 'completed'}", response, body, events)
        return self._admitted(events)

    # --- Beginning and end --------------------------------------------------------------------------------------------

    def _start(self, response: _Response, events: list[Event]) -> None:
        id = word(response.id)
        self._mark = self._mark or _ID_CHARACTERS.sub("", (id or "")[-64:])[-24:]
        events.append(Started(id, word(response.model)))

    def _end(self, kind: str, response: _Response, payload: bytes, events: list[Event]) -> None:
        self._start(response, events)  # where nothing else did
        tier = word(response.service_tier)
        usage = read_usage(present(response.usage))
        if tier is not None:
            usage = (usage or Usage()).merged(Usage(service_tier=tier))
        if kind in ("response.failed", "response.cancelled"):
            if usage is not None:
                events.append(UsageReported(usage))
            error = present(response.error)
            events.append(Failed(faults.in_stream(b'{"error":%b}' % error if error is not None else payload)))
            return
        if not self._count:
            for index, item in enumerate(response.output or ()):
                self._complete(bytes(item), index, events)
        reason = word(response.incomplete_details.reason) if response.incomplete_details is not None else None
        status = word(response.status) or kind.removeprefix("response.")
        self.finish_word = reason or status
        events.append(Finished(finish_of(self.finish_word, bool(self._calls))))
        if usage is not None:
            events.append(UsageReported(usage))
        events.append(Ended())

    # --- Items --------------------------------------------------------------------------------------------------------

    def _item_of(self, event: _Event) -> _State:
        """Return the item that a delta belongs to. Servers may not have said that it began."""
        found = None
        if event.output_index is not None:
            found = self._items.get(event.output_index)
        if found is None and isinstance(event.item_id, str):
            found = self._items.get(event.item_id[:_MAX_ID])
        if found is None and (event.output_index is None or not self._items):
            found = self._latest
        return found if found is not None else self._new(event.output_index, event.item_id)

    def _new(self, index: int | None, id: Any) -> _State:
        self._count += 1
        if self._count > reduce.MAX_CALLS:
            raise Garbled(f"the upstream sent more than {reduce.MAX_CALLS:,} items")
        state = self._latest = _State()
        if index is not None:
            self._items[index] = state
        if isinstance(id, str) and id:
            self._items[id[:_MAX_ID]] = state
        return state

    def _known(self, item: _Item, index: int | None) -> _State | None:
        if index is not None:
            return self._items.get(index)
        return self._items.get(item.id[:_MAX_ID]) if isinstance(item.id, str) else None

    def _add(self, raw: bytes, index: int | None, events: list[Event]) -> _State | None:
        """Note an item that begins, and open it if it is a call."""
        item = _read_item(raw)
        state = self._new(index, item.id)
        if item.type in _CALLS:
            self._open(state, item, events)
        return state

    def _open(self, state: _State, item: _Item, events: list[Event]) -> None:
        self._thought = None
        if not self._mark:
            self._mark = secrets.token_hex(8)
        state.number = self._calls
        state.is_free = item.type == "custom_tool_call"
        self._calls += 1
        # A server without call ids, or with one for two: a result must still find its call, and no other turn's.
        id = word(item.call_id) or word(item.id)
        if id is None or id in self._opened:
            id = f"call_{self._mark}_{state.number}"
        self._opened[id] = state
        name = full_name(word(item.namespace), word(item.name) or "")
        events.append(CallStarted(state.number, id, name, state.is_free))

    def _complete(self, raw: bytes, index: int | None, events: list[Event]) -> None:
        """Tell what an item has at its end and no delta said."""
        item = _read_item(raw)
        state = self._known(item, index)
        if state is None and index is None:
            state = self._opened.get(word(item.call_id) or "")  # of a server that gave it another id at first, or none
        if state is None:
            state = self._new(index, item.id)
        if item.type in _CALLS:
            if state.number < 0:
                self._open(state, item, events)
            self._say_rest(state, _ARGUMENTS, 0, item.input if state.is_free else item.arguments, events)
            if not state.is_free and not state.said:
                self._say(state, _ARGUMENTS, 0, "{}", ABSENT, events)
        elif item.type == "message":
            content = [_Part("output_text", item.content)] if isinstance(item.content, str) else item.content or []
            for place, part in enumerate(content):
                kind, said = (_REFUSAL, part.refusal) if part.type == "refusal" else (_TEXT, part.text)
                self._say_rest(state, kind, place, said, events, part.logprobs)
        elif item.type == "reasoning":
            thoughts = [] if isinstance(item.content, str) else item.content or []
            for kind, parts in ((_THOUGHT, thoughts), (_SUMMARY, item.summary or [])):
                for place, part in enumerate(parts):
                    self._say_rest(state, kind, place, part.text, events)
            if word(item.encrypted_content):
                events.append(ThinkingSigned("", raw))
                self._thought = None

    def _say_rest(
        self, state: _State, kind: str, part: int, said: Any, events: list[Event], logprobs: Raw = ABSENT
    ) -> None:
        if isinstance(said, str) and said and (kind, part) not in state.said:
            self._say(state, kind, part, said, logprobs, events)

    def _say(self, state: _State, kind: str, part: int, said: str, logprobs: Raw, events: list[Event]) -> None:
        if kind == _ARGUMENTS:
            if state.number < 0:
                raise Garbled("the upstream sent arguments of a call that it never opened")
            part = 0
        elif kind in (_SUMMARY, _THOUGHT):
            state.thinks_in = state.thinks_in or kind
            if state.thinks_in != kind:
                return
        is_new = (kind, part) not in state.said
        if is_new and len(state.said) >= reduce.MAX_CALLS:
            raise Garbled(f"the upstream sent more than {reduce.MAX_CALLS:,} parts of an item")
        state.said.add((kind, part))
        if kind == _ARGUMENTS:
            events.append(CallDelta(state.number, said))
        elif kind in (_SUMMARY, _THOUGHT):
            if self._thought is not None and self._thought is not state:
                events.append(ThinkingSigned(""))
            elif is_new and self._thought is state:
                said = f"\n\n{said}"
            self._thought = state
            events.append(ThinkingDelta(said))
            return
        elif kind == _REFUSAL:
            events.append(RefusalDelta(said))
        else:
            raw = present(logprobs)
            if raw is not None and nesting.fault(raw, MAX_DEPTH, reduce.MAX_VALUES) != nesting.FINE:
                raise Garbled("the upstream sent log probabilities of more tokens than anybody writes")
            events.append(TextDelta(said, read_logprobs(raw) if raw is not None else None))
        self._thought = None


def _read_event(payload: bytes) -> _Event:
    if len(payload) <= reduce.MAX_VALUES or nesting.commas(payload) < reduce.MAX_VALUES:
        return decoded(_EVENT, payload, "event of a response")
    wide = decoded(_WIDE, payload, "event of a response", MAX_ANSWER_VALUES)
    return _Event(wide.type, wide.response, wide.item, wide.item_id, wide.output_index, error=wide.error)


def _number(event: _Event) -> int:
    number = event.summary_index if event.summary_index is not None else event.content_index
    return number or 0


def _response(raw: Raw) -> _Response:
    value = present(raw)
    return decoded(_RESPONSE, value, "response", MAX_ANSWER_VALUES) if value is not None else _Response()


def _read_item(raw: bytes) -> _Item:
    """Return an item. Those of a kind that nobody here knows may hold anything under the names of the others."""
    kind = decoded(_TYPED, raw, "item", MAX_ANSWER_VALUES).type
    if kind not in ("message", "reasoning", *_CALLS):
        return _Item(kind)
    return decoded(_ITEM, raw, "item", MAX_ANSWER_VALUES)


def parse_answer(body: bytes) -> Answer:
    """Return the upstream's unary answer.

    Errors: Garbled where it is none of this format; InStreamError where a 200 holds a failed response.
    """
    reader = ResponsesReader()
    return reader.answer(reader.read_answer(body))
