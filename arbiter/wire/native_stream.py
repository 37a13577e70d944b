"""The native lane's answer: one upstream stream on its way to a client of the same format.

A stream is forwarded as it came while a tap reads it on the side; `NativeStream` holds what
the relay has to know of it:

    OPEN  --[DONE] / message_stop / response.completed or .incomplete-->  COMPLETE
    OPEN  --finish reason, then any end-->        COMPLETE   (the missing terminal event is added; Gemini has none)
    OPEN  --an error event, response.failed-->    FAILED     (it is in `last_words`; whatever follows it is dropped)
    OPEN  --any other end, or not SSE at all-->   CUT

Only whole events are forwarded, so that whatever comes next (a removed event, our own error event) starts on a clean
line. Declared repairs (SPEC 2.1) are named in `repairs`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from arbiter._speedups import nesting, reduce, sse
from arbiter.errors import ArbiterError, Garbled
from arbiter.wire import faults
from arbiter.wire.course import COMPLETE, CUT, FAILED, OPEN, OPENING_BYTES, Begun
from arbiter.wire.native import CHAT, GEMINI, MESSAGES, RESPONSES

Tap = reduce.ChatTap | reduce.MessagesTap | reduce.ResponsesTap | reduce.GeminiTap

_decode_any = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode

_FAULTS = {
    reduce.AFTER_FINISH: "the upstream sent data after its finish reason",
    reduce.RESTART: "the upstream started its answer twice",
    reduce.MALFORMED: "the upstream sent an event that is not JSON, or JSON of too many values",
}

_TAPS: dict[str, type[Tap]] = {
    CHAT: reduce.ChatTap,
    MESSAGES: reduce.MessagesTap,
    RESPONSES: reduce.ResponsesTap,
    GEMINI: reduce.GeminiTap,
}
# Responses finish with their terminal event, so none is ever missing; Gemini has none.
_TERMINAL = {CHAT: b"data: [DONE]\n\n", MESSAGES: b'event: message_stop\ndata: {"type":"message_stop"}\n\n'}


_BOM = b"\xef\xbb\xbf"
_BEGINS_OF_OTHERS = (b"\n:", b"\nevent:", b"\nid:", b"\nretry:")
_OTHER_LINES = re.compile(rb"^(?::|event:|id:|retry:)[^\r\n]*(?:\r\n|\n|\Z)", re.MULTILINE)
_BLANKS = re.compile(rb"(\r?\n\r?\n)(?:\r?\n)+")


def _says_anything(events: bytes) -> bool:
    """Whether whole events hold more than comments and pings."""
    blocks = events.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n\n")
    return any(b"data:" in block and b"ping" not in block[:64] for block in blocks)


def _closed(event: bytes) -> bytes:
    return event.rstrip(b"\r\n") + b"\n\n"


class NativeStream:
    """One upstream SSE stream on its way to a client of the same format (`wire.course.Course`)."""

    __slots__ = (
        "_base",
        "_drop_usage",
        "_events_before",
        "_held",
        "_indices",
        "_latest",
        "ending",
        "failure",
        "finish_inferred",
        "garbled",
        "is_bare",
        "last_words",
        "opening_bytes",
        "protocol_fault",
        "repairs",
        "tap",
        "wire",
    )  # fmt: skip

    def __init__(self, wire: str, *, drop_usage: bool, limit: int) -> None:
        self.wire = wire
        self.tap = _TAPS[wire](limit)
        # The first two events of Responses repeat the request's instructions and tools, some 40 KB of a coding agent's.
        self.opening_bytes = (1 << 20) if wire == RESPONSES else OPENING_BYTES
        self.ending = OPEN
        self.failure: bytes | None = None  # the payload of the error event
        self.is_bare = False
        self._events_before = 0  # the read at hand
        self.last_words = b""  # that event, which `feed` and `end` leave out
        self.garbled: Garbled | None = None  # why the stream was cut, where its bytes are no event stream
        self.finish_inferred = False
        self.protocol_fault: str | None = None  # what of the upstream's stream broke the format's rules, and went on
        self.repairs: list[str] = []
        self._drop_usage = drop_usage
        self._latest = b""  # the events that were passed on last, where they are numbered
        # The unfinished event at the end, as it came: joined only once it is whole, or every read would copy it again.
        self._held: list[bytes] = []
        self._base = 0  # absolute offset of _held
        self._indices: dict[
            tuple[int, int | None], int
        ] = {}  # (choice, the upstream's index) -> the index of its open call

    @property
    def events(self) -> int:
        return self.tap.events

    @property
    def has_finished(self) -> bool:
        return self.tap.finish is not None

    @property
    def has_begun(self) -> bool:
        return self.has_spoken or bool(self.tap.thinking_bytes) or self.tap.finish is not None

    @property
    def has_spoken(self) -> bool:
        tap = self.tap
        return bool(tap.text_bytes or tap.argument_bytes or tap.tool_names)

    def fault(self) -> ArbiterError | None:
        return faults.in_stream(self.failure) if self.failure is not None else self.garbled

    @property
    def is_failed_response(self) -> bool:
        """Whether the error event is the response that failed, whole."""
        try:
            return _decode_typed(nesting.whole(self.failure or b"")).type in _FAILED_RESPONSES
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return False

    @property
    def has_event(self) -> bool:
        return self.tap.events > 0 or self.ending in (COMPLETE, FAILED)

    def begun(self) -> Begun:
        """What the client was told so far; only of Responses is it of any use."""
        tap = self.tap
        ident, model = (word.decode("utf-8", "replace") if word else None for word in (tap.response_id, tap.model))
        created_s = tap.created_s if isinstance(tap, reduce.ResponsesTap) else None
        number = _last_number(self._latest + self.last_words)
        return Begun(ident, model, created_s, number + 1 if number is not None else tap.events)

    def feed(self, data: bytes) -> bytes:
        """Take what the socket gave. Bytes that are no event stream (SPEC 2.10) cut it after the events before them."""
        if self.ending is not OPEN:
            return b""
        piece = self._feed(data)
        if self.wire == GEMINI and piece:
            piece = self._plain(piece)
        if piece and self.wire == RESPONSES and self.tap.events > self._events_before:
            self._latest = piece
        return piece

    def _plain(self, events: bytes) -> bytes:
        """Events of Gemini's as Google sends them. Its SDKs read every line that is no `data: ` as JSON, and fail on a
        comment; an error that stands there in lines of its own is theirs to read."""
        if events[:5] == b"data:" and not any(begin in events for begin in _BEGINS_OF_OTHERS):
            return events
        plain = _BLANKS.sub(rb"\1", _OTHER_LINES.sub(b"", events.removeprefix(_BOM))).lstrip(b"\r\n")
        if plain != events and "comments" not in self.repairs:
            self.repairs.append("comments")
        return plain

    def _feed(self, data: bytes) -> bytes:
        self._events_before = self.tap.events
        try:
            marks = self.tap.feed(data)
        except Garbled as fault:
            marks = []
            self._cut(fault)
        base = self._base
        ready = self.tap.boundary - base
        if self._held:
            if not ready and not marks:
                self._held.append(data)
                return b""
            data = b"".join((*self._held, data))
        if ready == len(data):
            self._held = []
        else:
            self._held = [data[ready:]]
            data = data[:ready]
        self._base = base + ready
        if not marks:
            return data
        data = self._apply(marks, data, base)
        if self._held and self.ending is OPEN:
            try:
                self.tap.feed(b"")  # a fault behind a mark is only told to who asks again
            except Garbled as fault:
                self._cut(fault)
        return data

    def _cut(self, fault: Garbled) -> None:
        self.garbled, self.ending = fault, CUT
        self.is_bare = not self.tap.events

    def end(self, error: ArbiterError | None) -> bytes:
        """The upstream's side ended, by itself or by `error`."""
        if self.ending is not OPEN:
            return b""
        self._events_before = self.tap.events
        try:
            marks = self.tap.end()
        except Garbled:
            marks = []
        out = b""
        if marks and error is None and not any(mark[0] == reduce.MALFORMED for mark in marks):
            # Only the blank line after it is missing: an event that an end of file completes (SPEC 2.10).
            out = self._apply(marks, b"".join(self._held), self._base)
            if self.wire == GEMINI and out:
                out = self._plain(out)
            if self.last_words:
                self.last_words = _closed(self.last_words)
            elif out:
                out = _closed(out)
            if out or self.last_words:
                self.repairs.append("blank_line")
        self._held = []
        if self.ending is OPEN:
            if self.tap.finish is not None and not self.tap.done:
                if self.wire in _TERMINAL:
                    out += _TERMINAL[self.wire]
                    self.repairs.append("terminal_event")
                self.ending = COMPLETE
            else:
                self.ending = CUT
        return out

    def _apply(self, marks: Sequence[tuple[int, int, int, bytes]], data: bytes, base: int) -> bytes:
        """`data`, which starts at absolute offset `base`, with what the marks ask for."""
        out: list[bytes] = []
        sent = 0
        for kind, start, end, payload in marks:
            if kind == reduce.USAGE_ONLY:
                if self._drop_usage:
                    out.append(data[sent : start - base])
                    sent = end - base
            elif kind == reduce.CLASH and isinstance(self.tap, reduce.ChatTap):
                repaired = self._reindexed(self.tap, payload)
                if repaired is not None:
                    out += (data[sent : start - base], b"data: ", repaired, b"\n\n")
                    sent = end - base
            elif kind == reduce.EXCESS:
                self._cut(
                    Garbled("the upstream sent more than 1,024 tool calls or choices, or too much of their names")
                )
                return b"".join((*out, data[sent : start - base]))
            elif kind in _FAULTS:
                self.protocol_fault = _FAULTS[kind]
            elif kind == reduce.ERROR:
                self.ending, self.failure = FAILED, payload
                self.is_bare = not self._events_before and not _says_anything(data[: start - base])
                self.last_words = data[start - base : end - base]
                return b"".join((*out, data[sent : start - base]))
            elif kind == reduce.DONE:
                self.ending = COMPLETE
                self.finish_inferred = self.tap.finish is None
                return b"".join((*out, data[sent : end - base]))
        if not sent:
            return data
        out.append(data[sent:])
        return b"".join(out)

    def _reindexed(self, tap: reduce.ChatTap, payload: bytes) -> bytes | None:
        """The chunk with each tool call at an index of its own: some upstreams send all parallel calls at index 0."""
        try:
            chunk = _decode_any(payload)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None
        choices = chunk.get("choices")
        for position, choice in enumerate(choices if isinstance(choices, list) else ()):
            if not isinstance(choice, dict):
                continue
            number = _index(choice.get("index"))
            delta = choice.get("delta")
            calls = delta.get("tool_calls") if isinstance(delta, dict) else None
            for call in calls if isinstance(calls, list) else ():
                if isinstance(call, dict):
                    self._place(tap, position if number is None else number, call)
        if "tool_indices" not in self.repairs:
            self.repairs.append("tool_indices")
        return _encode(chunk)

    def _place(self, tap: reduce.ChatTap, choice: int, call: dict[str, Any]) -> None:
        """Give a fragment the index of its call; one whose call has none keeps what it came with."""
        index, ident = _index(call.get("index")), call.get("id")
        key = choice, index
        if isinstance(ident, str) and ident:
            self._indices[key] = tap.index_of(choice, ident.encode("utf-8", "replace"))
        place = self._indices.get(key, -1)
        if place >= 0:
            call["index"] = place


class _Typed(msgspec.Struct):
    type: object = None


_FAILED_RESPONSES = ("response.failed", "response.cancelled")
_decode_typed = msgspec.json.Decoder(_Typed).decode


class _Numbered(msgspec.Struct):
    sequence_number: int | None = None


_decode_numbered = msgspec.json.Decoder(_Numbered).decode


def _last_number(events: bytes) -> int | None:
    """The number of the last of these events that has one."""
    reader = sse.SSEReader()
    reader.open(events)
    found = None
    try:
        while (event := reader.next()) is not None:
            try:
                number = _decode_numbered(nesting.whole(event[1])).sequence_number
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                continue
            found = number if number is not None else found
    except Garbled:
        pass
    return found


def _index(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
