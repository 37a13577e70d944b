"""The native lane: the client's format is the upstream's, so bytes that need no change are not changed.

A request is opened one level deep and spliced: members that must change are encoded anew, every other member, known
or not, keeps its bytes. A stream is forwarded as it came while a tap reads it on the side; `NativeStream` holds what
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
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import Raw

from arbiter import inputs
from arbiter._speedups import nesting, reduce, sse
from arbiter.errors import ArbiterError, BadRequest, Garbled
from arbiter.model import Target
from arbiter.pieces import LEAST_BYTES, Body, Pieces
from arbiter.wire import faults, gemini_names, native_marks
from arbiter.wire.attribution import MARKER
from arbiter.wire.course import COMPLETE, CUT, FAILED, OPEN, OPENING_BYTES, Begun
from arbiter.wire.gemini_names import Addressed
from arbiter.wire.json import around

CHAT, MESSAGES, RESPONSES, GEMINI = "openai-chat", "anthropic-messages", "openai-responses", "google-gemini"
GEMINI_EMBEDDINGS = "google-embeddings"

Tap = reduce.ChatTap | reduce.MessagesTap | reduce.ResponsesTap | reduce.GeminiTap

_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_str = msgspec.json.Decoder(str).decode
_decode_bool = msgspec.json.Decoder(bool).decode
_decode_any = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode

_MAX_MEMBERS = 1024  # SPEC 14.1's "no unbounded": each becomes two objects here; the largest real request has some 40
_BLANK = b" \t\r\n"


class _TextBlock(msgspec.Struct):
    text: str


_decode_text_block = msgspec.json.Decoder(_TextBlock).decode


class Written(msgspec.Struct, frozen=True):
    """Members, and the body in which they came."""

    members: dict[str, Raw]
    body: bytes

    def is_of(self, members: dict[str, Raw]) -> bool:
        """Whether `members`, written anew, would be this body: each of them once, and no blanks around."""
        if members is not self.members and members != self.members:  # nearly all are the same objects
            return False
        return len(self.body) == nesting.length(members)


class Opened(msgspec.Struct, frozen=True):
    """A request body, opened one level deep."""

    members: dict[str, Raw]
    model: str
    stream: bool
    previous: Raw | None = None
    """The answer that it goes on from, where `members` hold all of the conversation in its place."""
    edits: tuple[str, ...] = ()
    """JSON paths at which `members` hold what was captured earlier, in the place of what only named it."""
    written: Written | None = None
    """How `members` came, or others that these were made of."""

    @property
    def told(self) -> dict[str, Raw]:
        """The members as an answer repeats them."""
        return self.members if self.previous is None else {**self.members, "previous_response_id": self.previous}


def open_body(body: bytes, depth: int = 200, addressed: Addressed | None = None) -> Opened:
    """Open a request body; `depth` is how deeply it may be nested.

    Shapes: what a format says in the path, `addressed`, becomes members in front of the body's own.
    Errors: BadRequest naming the member at fault; the value is never repeated.
    """
    members = nesting.raws(body, depth, _MAX_MEMBERS)
    if members is not None:
        written = Written(members, body)
    else:
        members, written = _looked_through(body, depth), None
    if addressed is not None:
        _check_name(addressed.model)
        told = {"model": Raw(_encode(addressed.model)), **({"stream": Raw(b"true")} if addressed.stream else {})}
        return Opened({**told, **_without(members, *_ADDRESSED)}, addressed.model, addressed.stream)
    if "model" not in members:
        raise BadRequest("`model` is missing", param="model")
    model: str = _member(members, "model", _decode_str, "a string")
    if not model:
        raise BadRequest("`model` is empty", param="model")
    if ".." in model:
        _check_name(model)
    stream = members.get("stream")
    streams = stream is not None and bytes(stream) != b"null"
    is_stream = streams and _member(members, "stream", _decode_bool, "true or false")
    return Opened(members, model, is_stream, None, (), written)


_ADDRESSED = ("model", "stream")
"""Members that stand for what a path says, and are none of the body's."""


def _looked_through(body: bytes, depth: int) -> dict[str, Raw]:
    """The members of a body that is not opened in one look: what is wrong with it, if anything is.

    Errors: BadRequest.
    """
    bad = nesting.not_utf8(body)
    if bad >= 0:
        raise BadRequest(f"the request body is not valid UTF-8 (byte {bad})")
    match nesting.fault(body, depth, _MAX_MEMBERS):
        case nesting.DEEP:
            raise BadRequest("the request body is nested too deeply")
        case nesting.WIDE:
            raise BadRequest(f"the request body has more than {_MAX_MEMBERS:,} members at its top level")
    try:
        return _members(body)
    except RecursionError:
        raise BadRequest("the request body is nested too deeply") from None
    except msgspec.ValidationError:
        raise BadRequest("the request body must be a JSON object") from None
    except msgspec.DecodeError as error:
        raise BadRequest(
            f"the request body is not valid JSON: {str(error).removeprefix('JSON is malformed: ')}"
        ) from None


def _check_name(model: str) -> None:
    # Some providers have the model in the path, and a server that goes up there answers for a model, or for something
    # else, that nobody let this client ask for. An operator whose server has such a name declares it by another.
    if ".." in model.split("/"):
        raise BadRequest("`model` holds `..` between slashes, which names no model", param="model")


def _without(members: dict[str, Raw], *names: str) -> dict[str, Raw]:
    return {name: raw for name, raw in members.items() if name not in names}


def _members(text: bytes) -> dict[str, Raw]:
    """The members of a JSON object, undecoded.

    Errors: msgspec's, for what is no object or no JSON; BadRequest for a name that is no text.
    """
    try:
        return _decode_members(text)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        # The decoder refuses the escape of half a surrogate pair in any string, also in those it passes over; JSON does
        # not, and agents do cut text in the middle of an emoji. Nobody here reads those strings: they may pass.
        readable = nesting.whole(text)
        if readable is text:
            raise
    _decode_members(readable)
    members: dict[str, Raw] = {}
    start = readable.index(b"{") + 1
    for end in nesting.cuts(readable, _MAX_MEMBERS):
        ((name, value),) = _decode_members(b"{%b}" % readable[start:end]).items()
        member = text[start:end].rstrip(_BLANK)
        colon = len(member) - len(memoryview(value))
        if member[:colon] != readable[start : start + colon]:
            raise BadRequest("the name of a member holds half of a surrogate pair")
        members[name] = Raw(member[colon:])
        start = end + 1
    return members


def _member(members: dict[str, Raw], name: str, decode: Any, expected: str) -> Any:
    try:
        return decode(members[name])
    except msgspec.ValidationError:
        raise BadRequest(f"`{name}` must be {expected}", param=name) from None
    except msgspec.DecodeError:  # the body is JSON: only this is left
        raise BadRequest(f"`{name}` holds half of a surrogate pair", param=name) from None


class Spliced(msgspec.Struct, frozen=True):
    """What goes upstream, and what was done to it."""

    body: Body
    changed: tuple[str, ...]  # JSON paths
    asked_usage: bool  # we asked for the usage chunk, the client did not


def fidelity(changed: tuple[str, ...]) -> str:
    """The value of `X-Arbiter-Fidelity` (SPEC 2.1) for a request that was changed at these JSON paths."""
    if not changed:
        return "verbatim"
    return "model-only" if changed == ("$.model",) else ",".join(changed)


class Changing(Protocol):
    """What a provider wants otherwise in every body."""

    def applied(self, members: Mapping[str, Raw]) -> tuple[Mapping[str, Raw], tuple[str, ...]]: ...


def splice(
    opened: Opened, wire: str, model: str, target: Target, *, asks_usage: bool, changes: Changing | None = None
) -> Spliced:
    """The upstream body for `opened`: the rung's `model`; usage asked for, where a stream is to tell it;
    the attribution line dropped and cache marks replaced where `target` says so; then what `changes` wants otherwise.

    The body is written anew from its members, even when nothing changes: of duplicate keys only the last one, the one
    that routing saw, may go out. What is written so already is not copied, nor is a long conversation.
    """
    members, written = opened.members, opened.written
    changed: list[str] = []
    asked_usage = False
    if model != opened.model:
        members = {**members, "model": Raw(_encode(model))}
        changed.append("$.model")
    if wire == CHAT and asks_usage:
        options = _with_usage(members.get("stream_options"))
        if options is not None:
            members = {**members, "stream_options": options}
            changed.append("$.stream_options.include_usage")
            asked_usage = True
    elif wire in (GEMINI, GEMINI_EMBEDDINGS):
        members = _without(members, *_ADDRESSED)
        named = gemini_names.of_model(members, model)
        changed += [f"$.{name}.model" for name, raw in named.items() if raw is not members[name]]
        members = dict(named)
    elif wire == MESSAGES:
        system = _without_attribution(members.get("system")) if target.drop_attribution else None
        if system is not None:
            members = {**members, "system": system}
            changed.append("$.system[0]")
            if bytes(system) == b"[]":
                members = {name: value for name, value in members.items() if name != "system"}
        settled, replaced = native_marks.settled(members, target)
        members = dict(settled)
        changed += [f"$.{name}" for name in replaced]
    if changes is not None:
        taken, names = changes.applied(members)
        members = dict(taken)
        changed += [path for name in names if (path := f"$.{name}") not in changed]
    body = written.body if written is not None and written.is_of(members) else _written(members)
    return Spliced(body, tuple(changed), asked_usage)


def _written(members: Mapping[str, Raw]) -> Body:
    """An object of these members. A long conversation stays where it is."""
    name = inputs.name_in(members)
    if name is None or len(memoryview(members[name])) < LEAST_BYTES:
        return _encode(members)
    before, after = around(members, name)
    return Pieces(before, memoryview(members[name]), after)


def _with_usage(options: Raw | None) -> Raw | None:
    """`stream_options` with `include_usage: true`, or None where it is already so."""
    if options is None or bytes(options) == b"null":
        return Raw(b'{"include_usage":true}')
    try:
        if nesting.fault(bytes(options), len(bytes(options)), _MAX_MEMBERS) == nesting.WIDE:
            raise BadRequest(f"`stream_options` has more than {_MAX_MEMBERS:,} members", param="stream_options")
        members = _members(bytes(options))
    except (msgspec.MsgspecError, RecursionError):
        raise BadRequest("`stream_options` must be an object", param="stream_options") from None
    if bytes(members.get("include_usage", b"")) == b"true":
        return None
    return Raw(_encode({**members, "include_usage": Raw(b"true")}))


def _without_attribution(system: Raw | None) -> Raw | None:
    """The `system` array without Claude Code's first entry, or None where there is no such entry."""
    # The cheap look first: the line stands within the first hundred bytes or not at all.
    if system is None or MARKER.encode() not in bytes(memoryview(system)[:256]):
        return None
    blocks = bytes(system)
    if blocks[:1] != b"[":
        return None
    # Only the first entry is looked at; an array may have millions.
    (end,) = nesting.cuts(blocks, 1)
    try:
        text = _decode_text_block(blocks[1:end]).text
    except (msgspec.MsgspecError, RecursionError):
        return None
    if not text.startswith(MARKER):
        return None
    return Raw(b"[" + blocks[end + 1 : -1].strip(_BLANK) + b"]")


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
