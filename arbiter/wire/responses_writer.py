"""OpenAI Responses, outwards: events -> named events, item by item.

    NEW --first event: response.created, response.in_progress--> OPEN
    OPEN --text, a thought, a call: response.output_item.added--> that item is open
    an item --something that does not belong into it: its .done events--> closed
    OPEN --Finished: what is open is closed--> FINISHED --Ended: response.completed or .incomplete--> CLOSED
    any --Failed: error, response.failed--> CLOSED

Each item ends with its whole, and the response with all of them, so whatever was said is kept: as the JSON that it was
sent as, never decoded again. An item of text or thought ends where anything else begins. A call ends there, too, if its
arguments are whole (`Span`); until then it stays open beside what follows, which this format can tell apart.

Every event has a number of its own, so no delta may pass the writer by.
"""

from __future__ import annotations

from typing import Any

from msgspec import Raw

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
    ThinkingRedacted,
    ThinkingSealed,
    ThinkingSigned,
    Usage,
    UsageReported,
)
from arbiter.order import Order
from arbiter.wire import responses_answer as answer
from arbiter.wire.json import NO_MEMBERS, Members, encode
from arbiter.wire.moulds import NO_MOULDS, Moulds
from arbiter.wire.responses_answer import COMPLETED, Head, Names
from arbiter.wire.responses_errors import failed_events
from arbiter.wire.span import BLANK, Span

MAX_KEPT_BYTES = 64 << 20
"""What an answer may amount to, all of which its last event repeats."""

_IN_PROGRESS = "in_progress"
_TEXT, _REFUSAL, _THOUGHT = "text", "refusal", "thought"


class _Said:
    """A string under construction, as the inside of its JSON."""

    __slots__ = ("_slices",)

    def __init__(self) -> None:
        self._slices = bytearray()

    def add(self, quoted: bytes) -> None:
        self._slices += quoted[1:-1]

    def __bool__(self) -> bool:
        return bool(self._slices)

    @property
    def is_bare(self) -> bool:
        """Whether nothing was said, or no more than an empty object."""
        return len(self._slices) < 64 and bytes(self._slices).strip(rb" \t\r\n") in (b"", b"{}")

    def whole(self) -> Raw:
        return Raw(b'"%b"' % bytes(self._slices))


class _Call:
    """A call that is open."""

    __slots__ = ("id", "named", "place", "said", "span", "started")

    def __init__(self, place: int, id: str, named: dict[str, str], started: CallStarted) -> None:
        self.place = place
        self.id = id  # of the item
        self.named = named
        self.started = started
        self.said = _Said()
        self.span = Span()

    @property
    def is_whole(self) -> bool:
        """Whether nothing more can belong to it. Free text tells nobody where it ends."""
        return self.span.whole and not self.started.is_free

    def status(self, finish: str, items: int) -> str:
        """Return its status in an answer of so many items that ended with the status `finish`."""
        if self.is_whole and not self.said.is_bare:
            return COMPLETED
        arguments = None if self.started.is_free else "{}" if self.said.is_bare else "{"
        return answer.status_of_call(finish, arguments, is_last=self.place == items - 1)

    def item(self, status: str, arguments: Any) -> dict[str, Any]:
        build = answer.free_call_item if self.started.is_free else answer.call_item
        return build(self.id, status, self.started.id, self.named, arguments)


class ResponsesWriter:
    """Write one client stream. `model` stands in where the upstream named none; `asked` is repeated in the response.

    `include_usage` is another format's business; this one always tells.
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
        self._created_s = created_s
        self._asked = asked
        self._head: Head | None = None
        self._names = Names(trace_id, asked)
        self._order = Order()
        self._number = 0  # of the next event
        self._done: list[bytes] = []  # the items that are closed, by place
        self._kept = 0
        self._usage: Usage | None = None
        self._finished = STOP
        # The message or the thought that is open: its place, its id, its closed parts, and the part that is open.
        self._place = -1
        self._id = ""
        self._parts: list[dict[str, Any]] = []
        self._part: str | None = None
        self._said = _Said()
        self._logprobs: list[Raw] = []
        self._delta = b""  # how a delta of the open part begins, behind its number
        self._calls: dict[int, _Call] = {}  # those that are open, by number
        self._called = 0  # calls that started

    def write(self, event: Event) -> bytes:
        """Return the bytes for `event`.

        Errors: Garbled where the event breaks the order (SPEC 2.6), or the answer is too large to be repeated.
        """
        # The bulk of every stream, where nothing could be out of order: a part is open only where output may come.
        if type(event) is TextDelta and self._part is _TEXT and event.logprobs is None:
            return self._say(event.text) if event.text else b""
        if type(event) is ThinkingDelta and self._part is _THOUGHT:
            return self._say(event.text) if event.text else b""
        if not self._order.admit(event):
            return b""
        is_first, number = self._head is None, self._number
        opening = self._open(event) if is_first else b""
        try:
            return opening + self._write(event)
        except Garbled:
            self._number = number  # the client has seen nothing of it
            if is_first:
                self._head = None
            raise

    def moulds(self) -> Moulds:
        """Return what may be moved past the writer: nothing, as each event has its number."""
        return NO_MOULDS

    def carried(self, arguments: str) -> None:
        """Nothing is moved past this writer."""

    # --- The response -------------------------------------------------------------------------------------------------

    def _open(self, event: Event) -> bytes:
        model = event.model if type(event) is Started and event.model else self._model
        self._head = Head(self._trace_id, model, self._created_s, self._asked)
        if type(event) is Failed:
            return b""
        response = self._head.build(_IN_PROGRESS, b"")
        return self._response("response.created", response) + self._response("response.in_progress", response)

    def _write(self, event: Event) -> bytes:
        kind = type(event)
        if kind is TextDelta or kind is RefusalDelta:
            return self._write_text(event)  # type: ignore[arg-type]
        if type(event) is ThinkingDelta:
            return self._enter(_THOUGHT) + self._say(event.text) if event.text else b""
        if kind is ThinkingSigned or type(event) is ThinkingRedacted:  # nothing here could hold them; the thought ends
            is_end = type(event) is not ThinkingRedacted or event.place == "block"
            return self._close() if is_end and self._part is _THOUGHT else b""
        if type(event) is ThinkingSealed:
            return self._write_sealed(event.item)
        if type(event) is CallStarted:
            return self._start_call(event)
        if type(event) is CallDelta:
            return self._say_arguments(event)
        if type(event) is UsageReported:
            self._usage = event.usage if self._usage is None else self._usage.merged(event.usage)
        elif type(event) is Started:
            self._usage = event.usage
        elif type(event) is Finished:
            self._finished = event.finish
            return self._close(answer.status_of(event.finish)) + self._close_calls(answer.status_of(event.finish))
        elif kind is Ended:
            return self._end()
        elif type(event) is Failed:
            assert self._head is not None, "it is there from the first event on"
            self._part = None
            whole = [item for item in self._done if item]
            return failed_events(event.error, self._head, b",".join(whole), self._number)
        return b""

    def _end(self) -> bytes:
        assert self._head is not None, "it is there from the first event on"
        status, output = answer.status_of(self._finished), b",".join(self._done)
        response = self._head.build(status, output, finish=self._finished, usage=self._usage)
        return self._response(f"response.{status}", response)

    # --- Messages and thoughts ----------------------------------------------------------------------------------------

    def _write_text(self, event: TextDelta | RefusalDelta) -> bytes:
        raw = event.logprobs if type(event) is TextDelta else None
        logprobs = answer.write_logprobs(raw) if raw is not None else []
        if not event.text and not logprobs:
            return b""
        before = self._enter(_REFUSAL if type(event) is RefusalDelta else _TEXT)
        self._logprobs += logprobs
        self._keep(len(raw or b""))
        return before + self._say(event.text, logprobs)

    def _enter(self, part: str) -> bytes:
        """Be inside of a part of that kind: close what is open, and open it if it is not."""
        if self._part is part:
            return b""
        is_thought = part is _THOUGHT
        if self._part is not None and self._part is not _THOUGHT and not is_thought:
            before = self._close_part()  # text and refusals are parts of one message
        else:
            before = self._close() + self._close_whole_calls()
            self._place, self._id = self._next("rs" if is_thought else "msg")
            item = answer.reasoning_item(self._id, []) if is_thought else self._message(_IN_PROGRESS, [])
            before += self._item("added", self._place, encode(item))
        self._part = part
        place, empty = self._of_part(), _built(part, "", [])
        kind = "reasoning_summary_part" if is_thought else "content_part"
        self._delta = b'"item_id":"%b",%b,' % (self._id.encode(), encode(place)[1:-1])
        return before + self._event(f"response.{kind}.added", {"item_id": self._id, **place, "part": empty})

    def _say(self, text: str, logprobs: list[Raw] | None = None) -> bytes:
        quoted = encode(text)
        self._said.add(quoted)
        self._keep(len(quoted))
        kind = _DELTAS[self._part or _TEXT]
        delta = b'%b"delta":%b' % (self._delta, quoted)
        if self._part is _TEXT:
            delta += b',"logprobs":%b' % (encode(logprobs) if logprobs else b"[]")
        return self._numbered(kind, delta)

    def _close_part(self) -> bytes:
        """End the open part: its whole text, and the part itself."""
        part, place = self._part, {"item_id": self._id, **self._of_part()}
        assert part is not None, "a part is open"
        text, built = self._said.whole(), _built(part, self._said.whole(), self._logprobs)
        told: dict[str, Any] = {_MEMBERS[part]: text}
        if part is _TEXT:
            told["logprobs"] = self._logprobs
        name = _DELTAS[part].removesuffix("delta") + "done"
        kind = "reasoning_summary_part" if part is _THOUGHT else "content_part"
        self._parts.append(built)
        self._part, self._said, self._logprobs = None, _Said(), []
        return self._event(name, {**place, **told}) + self._event(f"response.{kind}.done", {**place, "part": built})

    def _close(self, status: str = COMPLETED) -> bytes:
        """End the open message or thought, if there is one."""
        if self._part is None:
            return b""
        is_thought = self._part is _THOUGHT
        before = self._close_part()
        item = answer.reasoning_item(self._id, self._parts) if is_thought else self._message(status, self._parts)
        self._parts = []
        return before + self._finish_item(self._place, encode(item))

    def _message(self, status: str, content: list[Any]) -> dict[str, Any]:
        return answer.message_item(self._id, status, content)

    def _of_part(self) -> dict[str, int]:
        """Return where the open part is."""
        index = "summary_index" if self._part is _THOUGHT else "content_index"
        return {"output_index": self._place, index: len(self._parts)}

    def _write_sealed(self, sealed: str) -> bytes:
        """Hand reasoning along: an item without a summary, as the vendor's are that tell nothing."""
        before = self._close() + self._close_whole_calls()
        place, id = self._next("rs")
        self._keep(len(sealed))
        before += self._item("added", place, encode(answer.reasoning_item(id, [])))
        return before + self._finish_item(place, encode(answer.reasoning_item(id, [], sealed)))

    # --- Calls --------------------------------------------------------------------------------------------------------

    def _start_call(self, event: CallStarted) -> bytes:
        if event.index != self._called:
            raise Garbled(f"tool call {event.index} opens where number {self._called} is due")
        before = self._close() + self._close_whole_calls()
        self._called += 1
        place, id = self._next("ctc" if event.is_free else "fc")
        call = self._calls[event.index] = _Call(place, id, self._names.call(event.name), event)
        return before + self._item("added", place, encode(call.item(_IN_PROGRESS, "")))

    def _say_arguments(self, event: CallDelta) -> bytes:
        call = self._calls.get(event.index)
        if call is None:
            if 0 <= event.index < self._called and not event.arguments.strip(BLANK):
                return b""
            raise Garbled(f"the upstream sent arguments for tool call {event.index}, which is not open")
        if not event.arguments:
            return b""
        if not call.started.is_free:
            call.span.feed(event.arguments)
        quoted = encode(event.arguments)
        call.said.add(quoted)
        self._keep(len(quoted))
        return self._numbered(_kind(call, "delta"), self._of_call(call) + b'"delta":%b' % quoted)

    def _close_whole_calls(self) -> bytes:
        whole = [number for number, call in self._calls.items() if call.is_whole]
        return b"".join([self._close_call(number, COMPLETED) for number in whole])

    def _close_calls(self, status: str) -> bytes:
        """End all calls. What the model was cut off in is incomplete; calls that it had ended are not."""
        items = len(self._done)
        closed = [self._close_call(number, call.status(status, items)) for number, call in [*self._calls.items()]]
        return b"".join(closed)

    def _close_call(self, number: int, status: str) -> bytes:
        call = self._calls.pop(number)
        before = b""
        if not call.said and not call.started.is_free:
            call.said.add(b'"{}"')  # nothing at all is no JSON
            before = self._numbered(_kind(call, "delta"), self._of_call(call) + b'"delta":"{}"')
        whole = call.said.whole()
        if call.started.is_free:
            done = self._of_call(call) + b'"input":%b' % bytes(whole)
        else:
            done = self._of_call(call) + b'"arguments":%b,"name":%b' % (bytes(whole), encode(call.named["name"]))
        item = encode(call.item(status, whole))
        return before + self._numbered(_kind(call, "done"), done) + self._finish_item(call.place, item)

    def _of_call(self, call: _Call) -> bytes:
        return b'"item_id":%b,"output_index":%d,' % (encode(call.id), call.place)

    # --- Events -------------------------------------------------------------------------------------------------------

    def _next(self, kind: str) -> tuple[int, str]:
        """Return the place and the id of a new item."""
        place = len(self._done)
        self._done.append(b"")
        return place, self._names.id(kind, place)

    def _keep(self, size: int) -> None:
        self._kept += size
        if self._kept > MAX_KEPT_BYTES:
            raise Garbled("the upstream sent a longer answer than can be repeated at its end")

    def _finish_item(self, place: int, item: bytes) -> bytes:
        self._done[place] = item
        return self._item("done", place, item)

    def _item(self, what: str, place: int, item: bytes) -> bytes:
        return self._numbered(f"response.output_item.{what}", b'"output_index":%d,"item":%b' % (place, item))

    def _response(self, kind: str, response: bytes) -> bytes:
        return self._numbered(kind, b'"response":%b' % response)

    def _event(self, kind: str, members: dict[str, Any]) -> bytes:
        return self._numbered(kind, encode(members)[1:-1])

    def _numbered(self, kind: str, members: bytes) -> bytes:
        """Return one event; `members` are the inside of its object."""
        name, number = kind.encode(), self._number
        self._number += 1
        return b'event: %b\ndata: {"type":"%b","sequence_number":%d,%b}\n\n' % (name, name, number, members)


_DELTAS = {
    _TEXT: "response.output_text.delta",
    _REFUSAL: "response.refusal.delta",
    _THOUGHT: "response.reasoning_summary_text.delta",
}
_MEMBERS = {_TEXT: "text", _REFUSAL: "refusal", _THOUGHT: "text"}  # of a part's text in its .done event


def _built(part: str, text: Any, logprobs: list[Raw]) -> dict[str, Any]:
    if part is _TEXT:
        return answer.text_part(text, logprobs)
    return answer.refusal_part(text) if part is _REFUSAL else answer.summary_part(text)


def _kind(call: _Call, what: str) -> str:
    return f"response.{'custom_tool_call_input' if call.started.is_free else 'function_call_arguments'}.{what}"
