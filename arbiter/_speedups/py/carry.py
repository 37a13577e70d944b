"""Carries plain deltas from one format's stream to another's without a look at what they say.

A carrier reads the upstream's stream. A *mould* is what stands before and behind a delta's string in the client's
format. While a kind of delta has one, such a delta is moved: its JSON string, quotes and escapes as they came, is put
between the two, and waits for `take`. Every other event is handed out, for a reader to understand.

What is moved says one thing and nothing else: exactly one string that is not empty. Anything odd, or written in a way
that two decoders might take differently, is handed out; so a carrier is never wrong, only slow.

This file is the definition: a full decode to see that an event is sound, then a look at its members' own bytes. The
compiled twin recognises the same deltas in one pass, whose bounds count here too: what a number may look like, and how
deep the values may be nested that nobody looks at.

Source: SPEC 2.2, 2.10.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from arbiter._speedups import nesting  # of the side this process runs on
from arbiter._speedups.py.reduce import decode
from arbiter._speedups.py.sse import LIMIT_BYTES, Event, SSEReader

Mould = tuple[bytes, bytes] | None
"""What stands before and behind the string; None where such a delta is handed out."""

MAX_MOVED_BYTES = 1 << 16
"""An event of more data is handed out: nobody streams such deltas, and moving one would save little."""

_CHAT_KINDS = {b"content": "text", b"reasoning_content": "reasoning_content", b"reasoning": "reasoning"}
_KEPT = (b"reasoning_details", b"extra_content")
_MESSAGES_KINDS = {
    b"text": ("text", b'"text_delta"'),
    b"thinking": ("reasoning_content", b'"thinking_delta"'),
    b"partial_json": ("arguments", b'"input_json_delta"'),
}

_STRUCTURE = frozenset([b"choices", b"delta", b"tool_calls", b"function"])
_MAX_NESTING = 32  # of any other member

_BLANK = b" \t\n\r"
_STRING = re.compile(rb'"((?:[^"\\]|\\.)*+)"[ \t\n\r]*(:?)')
_MEMBER = re.compile(rb'[ \t\n\r]*"([^"]*)"[ \t\n\r]*:')
_LONG = re.compile(rb"[0-9]{18}|[eE][-+]?[0-9]{3}")
_GOING_ON = re.compile(rb"(?:[^\\}]|\\(?!u007[dD]).)*+", re.DOTALL)
_EMPTY = re.compile(rb"null|\[[ \t\n\r]*\]")
_INDEX = re.compile(rb"0|[1-9][0-9]{0,14}")


class _Odd(Exception):
    """Not a plain delta."""


class _Said(NamedTuple):
    """The one thing that a plain delta says: a JSON string of a kind, and the place of its call or block."""

    kind: str
    raw: bytes
    place: int


def is_event(name: bytes, payload: bytes) -> bool:
    """Whether what was handed out counts as an event: a ping does not, nor does a blank."""
    if name == b"ping" or not payload.strip(_BLANK):
        return False
    if b'"ping"' not in payload or len(payload) > MAX_MOVED_BYTES:
        return True
    try:
        value = decode(payload)
    except ValueError:
        return True
    return not (isinstance(value, dict) and value.get("type") == "ping")


class _Carrier(SSEReader):
    """A reader of an upstream's stream whose `next` gives the events that are not moved.

    Where it raises Garbled, what was moved before can still be taken.
    """

    def __init__(self, limit: int = LIMIT_BYTES) -> None:
        super().__init__(limit)
        self.events = 0  # without pings
        # Of what was moved: UTF-8 bytes after unescaping.
        self.text_bytes = 0
        self.thinking_bytes = 0
        self.argument_bytes = 0
        self._moved: list[bytes] = []
        self._kept: list[bytes] = []
        self._moulds: dict[str, tuple[bytes, bytes]] = {}
        self._place = -1
        self._keep = False

    def aim(
        self, text: Mould, reasoning_content: Mould, reasoning: Mould, arguments: Mould, place: int, keep: bool
    ) -> None:
        """Say what is moved from here on: the kinds that have a mould.

        `place`: of arguments, only those at this index (of the call in chat, of the block in messages). `keep`: what is
        moved of them is also kept; a slice that could be the end of an object, as it holds a closing brace, is handed
        out.
        """
        moulds = {"text": text, "reasoning_content": reasoning_content, "reasoning": reasoning, "arguments": arguments}
        self._moulds = {kind: mould for kind, mould in moulds.items() if mould is not None}
        self._place = place
        self._keep = keep

    def next(self) -> Event | None:
        """Return the next event that is not moved, as (event name or b"", joined data); None where none is complete."""
        while (event := super().next()) is not None:
            if not self._moulds or not self._is_moved(*event):
                self.events += is_event(*event)
                return event
        return None

    def take(self) -> bytes:
        """Return what was moved since the last take."""
        moved = b"".join(self._moved)
        self._moved.clear()
        return moved

    def kept(self) -> bytes:
        """Return the arguments kept since the last call, joined: the inside of one JSON string."""
        kept = b"".join(self._kept)
        self._kept.clear()
        return kept

    def _is_moved(self, name: bytes, payload: bytes) -> bool:
        try:
            said = self._read(name, _sound(payload))
        except _Odd:
            return False
        if said is not None:
            mould = self._moulds.get(said.kind)
            if mould is None:
                return False
            if said.kind == "arguments" and (said.place != self._place or (self._keep and _may_end(said.raw))):
                return False
            self._moved += mould[0], said.raw, mould[1]
            self._count(said)
        self.events += 1
        return True

    def _count(self, said: _Said) -> None:
        size = len(msgspec.json.decode(said.raw, type=str).encode())
        if said.kind == "text":
            self.text_bytes += size
        elif said.kind == "arguments":
            self.argument_bytes += size
            if self._keep:
                self._kept.append(said.raw[1:-1])
        else:
            self.thinking_bytes += size

    def _read(self, name: bytes, payload: bytes) -> _Said | None:
        """Return what a plain event says; None where it says nothing. Errors: _Odd where it is not plain."""
        raise NotImplementedError


class ChatCarrier(_Carrier):
    """Carry the deltas of a chat-completions stream.

    While anything is moved, a chunk that says nothing is passed over. One with something that the upstream wants back
    (`wire.chat_proofs`) says more than its string.
    """

    def _read(self, name: bytes, payload: bytes) -> _Said | None:
        chunk = _members(payload, b"id", b"model", b"object", b"choices", b"usage", b"error")
        object = chunk.get(b"object", b'""')
        _need(name in (b"", b"message") and b"type" not in chunk and b"x_groq" not in chunk)
        _need(object[:1] == b'"' and b"\\" not in object and object != b'"error"')
        _need(_null(chunk, b"usage") and _null(chunk, b"error"))
        choices = _items(chunk.get(b"choices", b""))
        _need(len(choices) == 1)
        choice = _members(choices[0], b"index", b"delta", b"finish_reason", b"usage", b"logprobs")
        _need(choice.get(b"index") == b"0" and not _string(choice, b"finish_reason"))
        _need(_null(choice, b"usage") and _null(choice, b"logprobs"))
        delta = _members(choice.get(b"delta", b"{}"), b"tool_calls", b"function_call", b"refusal", *_KEPT, *_CHAT_KINDS)
        _need(_null(delta, b"function_call") and not _string(delta, b"refusal") and not _keeps(delta))
        found = [_Said(kind, delta[member], -1) for member, kind in _CHAT_KINDS.items() if _string(delta, member)]
        calls = _items(delta[b"tool_calls"]) if not _null(delta, b"tool_calls") else []
        _need(len(found) + len(calls) <= 1)
        if calls:
            return self._fragment(calls[0])
        return found[0] if found else None

    def _fragment(self, raw: bytes) -> _Said:
        fragment = _members(raw, b"index", b"id", b"function", *_KEPT)
        _need(not _keeps(fragment))
        function = _members(fragment.get(b"function", b""), b"name", b"arguments")
        _need(not _string(fragment, b"id") and not _string(function, b"name") and _string(function, b"arguments"))
        return _Said("arguments", function[b"arguments"], _index(fragment))


class MessagesCarrier(_Carrier):
    """Carry the deltas of an Anthropic messages stream."""

    def _read(self, name: bytes, payload: bytes) -> _Said:
        event = _members(payload, b"type", b"index", b"delta")
        _need(name in (b"", b"content_block_delta") and event.get(b"type") == b'"content_block_delta"')
        delta = _members(event.get(b"delta", b""), b"type", *_MESSAGES_KINDS)
        found = [member for member in _MESSAGES_KINDS if _string(delta, member)]
        _need(len(found) == 1)
        kind, type = _MESSAGES_KINDS[found[0]]
        _need(delta.get(b"type") == type)
        return _Said(kind, delta[found[0]], _index(event))


def _need(condition: bool) -> None:
    if not condition:
        raise _Odd


def _sound(payload: bytes) -> bytes:
    """Return the payload if it is JSON that everyone reads alike.

    Errors: _Odd at half of a surrogate pair, an escape in a name, a number that is not short.
    """
    payload = payload.strip(_BLANK)
    _need(len(payload) <= MAX_MOVED_BYTES and nesting.whole(payload) == payload)
    try:
        decode(payload)
    except ValueError:
        raise _Odd from None
    _need(not any(found[2] and b"\\" in found[1] for found in _STRING.finditer(payload)))
    _need(_LONG.search(_STRING.sub(b"", payload)) is None)
    return payload


def _members(raw: bytes, *known: bytes) -> dict[bytes, bytes]:
    """Return the raw members of an object. Errors: _Odd for another value, and where a known name comes twice."""
    _need(raw[:1] == b"{")
    members: dict[bytes, bytes] = {}
    for member in _cut(raw):
        found = _MEMBER.match(member)
        if found is not None:
            name, value = found[1], member[found.end() :].strip(_BLANK)
            if name not in _STRUCTURE or name not in known:
                _need(nesting.fault(value, _MAX_NESTING, len(value) + 1) == nesting.FINE)
            _need(name not in known or name not in members)
            members[name] = value
    return members


def _items(raw: bytes) -> list[bytes]:
    """Return the raw items of an array. Errors: _Odd for another value."""
    _need(raw[:1] == b"[")
    return [item for item in (part.strip(_BLANK) for part in _cut(raw)) if item]


def _cut(raw: bytes) -> list[bytes]:
    ends = nesting.cuts(raw, len(raw))
    return [raw[start + 1 : end] for start, end in zip([0, *ends], ends, strict=False)]


def _may_end(raw: bytes) -> bool:
    """Whether a JSON string holds a closing brace."""
    return _GOING_ON.fullmatch(raw) is None


def _null(members: dict[bytes, bytes], name: bytes) -> bool:
    return members.get(name, b"null") == b"null"


def _string(members: dict[bytes, bytes], name: bytes) -> bool:
    """Whether the member says something; not if it is empty, null or absent. Errors: _Odd for another value."""
    _need(_null(members, name) or members[name][:1] == b'"')
    return not _null(members, name) and members[name] != b'""'


def _keeps(members: dict[bytes, bytes]) -> bool:
    """Whether there is anything among the members that the upstream wants back."""
    return any(_EMPTY.fullmatch(members.get(name, b"null")) is None for name in _KEPT)


def _index(members: dict[bytes, bytes]) -> int:
    found = _INDEX.fullmatch(members.get(b"index", b""))
    _need(found is not None)
    return int(members[b"index"])
