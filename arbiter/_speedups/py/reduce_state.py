"""What every format's story of a stream has in common: marks, what an event may cost, and `State`.

The stories themselves are in `reduce` (chat, messages) and `reduce_responses`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import msgspec

from arbiter._speedups import nesting  # of the side this process runs on

Mark = tuple[int, int, int, bytes]
"""(kind, start, end, payload): where the event's block stands in the stream, and its joined data."""

USAGE_ONLY = 1
"""chat: no choices and a usage; what `include_usage` adds (SPEC 2.5)."""
FINISH = 2
"""A finish reason (one mark per choice that finishes), or `message_delta` with a stop reason."""
DONE = 3
"""`[DONE]`, or `message_stop`."""
ERROR = 4
"""An error object where an event was due, or an event named `error`."""
CLASH = 5
"""chat: a tool-call fragment at an index that belongs to another call of the choice (`index_of` says where its own call
belongs); and from the first of these on, every event with fragments, since a repair must see them all."""
AFTER_FINISH = 6
"""Output after the finish reason, after `[DONE]`/`message_stop` or after an error; or a second, different finish."""
FOREIGN = 7
"""JSON, but no event of this format."""
MALFORMED = 8
"""Not JSON, nested deeper than `MAX_DEPTH`, or of more than `MAX_VALUES` values beside its log probabilities."""
START = 9
"""messages: the first `message_start`."""
RESTART = 10
"""messages: another `message_start`; one answer starts once (SPEC 2.6)."""

EXCESS = 11
"""The event goes beyond `MAX_CALLS` or `MAX_KEPT_BYTES`; what is over is not kept, and the stream is to be cut."""

MAX_DEPTH = 200  # SPEC 14.1
MAX_VALUES = 100_000  # each becomes an object: an event of 16 MiB can hold eight million
MAX_CALLS = 1024
"""Tool calls of one answer, its choices, its tools' names: what a stream can make us remember, each to this number."""
MAX_KEPT_BYTES = 1 << 20
"""The same in bytes: of ids and names of calls together, and of a merged usage."""

_BLANK = b" \t\n\r"
RAW_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def refuse(constant: str) -> Any:
    """NaN and its kind, which Python's decoder takes for numbers."""
    raise ValueError(f"{constant} is not JSON")


_TOLERANT = json.JSONDecoder(parse_constant=refuse)


def check_size(data: bytes) -> None:
    """Errors: ValueError where decoding `data` would cost too much."""
    if nesting.fault(data, MAX_DEPTH, len(data) + 1) != nesting.FINE:
        raise ValueError("nested too deeply")
    if len(data) > MAX_VALUES and nesting.commas(data) >= MAX_VALUES:
        raise ValueError("too many values")


def decode(data: bytes) -> Any:
    """Decode one JSON text, lone surrogates included (models do send half an emoji).

    Errors: ValueError when it is not JSON, nested deeper than `MAX_DEPTH`, or of more than `MAX_VALUES` values.
    """
    check_size(data)
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError):
        pass
    try:
        return _TOLERANT.decode(data.decode())
    except RecursionError:
        raise ValueError("nested too deeply") from None


_LOGPROBS = re.compile(rb'"logprobs"\s*:\s*[\[{]')  # in a string, its quotes would stand behind backslashes


def slim(data: bytes) -> bytes:
    """`data` without what is in its log probabilities, where it has more than `MAX_VALUES` values.

    Shapes: an empty list or object stands in their place; `data` itself where it has fewer values.
    """
    if len(data) <= MAX_VALUES or nesting.commas(data) < MAX_VALUES:
        return data
    kept: list[bytes] = []
    start = 0
    while (found := _LOGPROBS.search(data, start)) is not None:
        end = _end_of(data, found.end() - 1)
        if end < 0:
            break
        kept += (data[start : found.end()], data[end - 1 : end])
        start = end
    return b"".join((*kept, data[start:]))


def _end_of(data: bytes, at: int) -> int:
    """Where the list or object ends that begins at `at`; -1 where it does not."""
    state, size = 0, 256
    while at < len(data):
        end, state = nesting.follow(data[at : at + size], state)
        if end >= 0:
            return at + end
        at += size
        size *= 2
    return -1


def text_size(text: object) -> int:
    """UTF-8 bytes of a string (a lone surrogate counts three, as its replacement would); 0 for anything else."""
    return len(text.encode("utf-8", "surrogatepass")) if isinstance(text, str) else 0


def word_of(text: object) -> bytes | None:
    """A non-empty string as bytes that decode again, else None."""
    return text.encode("utf-8", "replace") if isinstance(text, str) and text else None


def json_size(value: object) -> int:
    """UTF-8 bytes of call arguments: of the text, or of the compact JSON where an object came in its place."""
    if isinstance(value, dict | list):
        return len(compact(value)) if value else 0
    return text_size(value)


def is_compaction(part: object) -> bool:
    """Whether a part of an answer stands for the context before it from now on: Anthropic's block, OpenAI's item."""
    return isinstance(part, dict) and part.get("type") == "compaction"


def compact(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def bytes_of(usage: dict[str, Any], find: Callable[[], msgspec.Raw]) -> bytes:
    """The usage object's own bytes; written anew where a lone surrogate elsewhere in the event bars the way to them."""
    try:
        return bytes(find())
    except (msgspec.MsgspecError, RecursionError):
        return compact(usage)


def number_of(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


class State:
    """What both formats remember. `plain` says whether an ordinary delta can still pass without a judgement."""

    def __init__(self) -> None:
        self.events = 0
        self.pings = 0
        self.text_bytes = 0
        self.thinking_bytes = 0
        self.argument_bytes = 0
        self.done = False
        self.errored = False
        self.tool_names: list[bytes] = []
        self.response_id: bytes | None = None
        self.model: bytes | None = None
        self._excess = False  # of the event in hand
        self._kept_bytes = 0

    def _has_room(self, word: bytes) -> bool:
        """Whether `word` may be kept; if not, the event in hand is one too many."""
        if self._kept_bytes + len(word) > MAX_KEPT_BYTES:
            self._excess = True
            return False
        self._kept_bytes += len(word)
        return True

    def _name(self, name: bytes) -> None:
        """Remember the name of a tool that was called."""
        if len(self.tool_names) >= MAX_CALLS:
            self._excess = True
        elif self._has_room(name):
            self.tool_names.append(name)

    def take(self, name: bytes, payload: bytes, start: int, end: int, marks: list[Mark]) -> None:
        """Read one event, and add its marks."""
        data = payload.strip(_BLANK)
        if not data:
            return
        kinds: list[int] = []
        if data == b"[DONE]":
            self.events += 1
            self._done(kinds)
        else:
            try:
                value = decode(slim(data))  # nobody here reads log probabilities, and an honest answer has very many
            except ValueError:
                value = None
                kinds.append(MALFORMED)
            members: dict[str, Any] = value if isinstance(value, dict) else {}
            if not kinds and not self._is_ours(members) and self._is_ping(name, members):
                self.pings += 1
                return
            self.events += 1
            if self._is_error(name, members):
                self.errored = True
                kinds = [ERROR]
                self._note(data, members)
            elif not kinds:
                self._excess = False
                self._read(name, data, members, kinds)
                if self._excess:
                    kinds = [EXCESS]
        for kind in kinds:
            marks.append((kind, start, end, payload))

    def _is_ping(self, name: bytes, members: dict[str, Any]) -> bool:
        return name == b"ping" or members.get("type") == "ping"

    def _is_error(self, name: bytes, members: dict[str, Any]) -> bool:
        error = members.get("error")
        return (
            name == b"error"
            or members.get("object") == "error"
            or members.get("type") == "error"
            or (isinstance(error, dict | str) and bool(error))
        )

    def _done(self, kinds: list[int]) -> None:
        raise NotImplementedError

    def _is_ours(self, members: dict[str, Any]) -> bool:
        raise NotImplementedError

    def _note(self, data: bytes, members: dict[str, Any]) -> None:
        raise NotImplementedError

    def _read(self, name: bytes, data: bytes, members: dict[str, Any], kinds: list[int]) -> None:
        raise NotImplementedError
