"""What of a Messages conversation is bound to the account that answered it (SPEC 4.7a), and how it is taken out.

Anthropic signs each block of thinking, and another provider, or another organization's account, refuses a signature
that is not its own. So what an upstream signed is remembered by *mark*: 16 bytes of xxh3-128 over the `signature` of a
`thinking` block, or over the `data` of a `redacted_thinking` one, as text. The block comes back in every later request,
spelled as the client's encoder likes, and has the same mark.

Which blocks may go, by what Anthropic says of thinking and by how it answers:

- Those of a closed turn may. It ignores them, and asks for none.
- Those of an open tool loop may not: the message before the last tool results has to begin with its thinking, or the
  request is refused. A turn is closed by a user's message without any tool result in it. One with results and text, as
  Claude Code's reminders make it, still answers the calls before it, and closes nothing.
- A message that loses one block loses all that it thought: what was left would no longer come first.
- A message of nothing but thinking goes as a whole. An empty one is refused; two messages of a user in a row are read
  as one. No text is put in its place: it would become part of the conversation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import xxhash
from msgspec import Raw

from arbiter._speedups import nesting, sse
from arbiter.errors import BadRequest, Garbled
from arbiter.wire import marked
from arbiter.wire.marked import Cutter
from arbiter.wire.vault import is_sealed

_MESSAGES = "messages"
_THINKING, _REDACTED = b'thinking"', b'redacted_thinking"'
"""How the name of either kind of block goes on behind its quote; the first is how both end. In a text, the quote would
stand behind a backslash."""
_SIGNED = b'"signature"'
_BLANK = b" \t\r\n"

_UNREADABLE = (BadRequest, msgspec.MsgspecError, RecursionError, UnicodeError)

_encode = msgspec.json.Encoder().encode


class Stripped(msgspec.Struct, frozen=True):
    """A request without what another account signed, and which of its members had to change."""

    members: Mapping[str, Raw]
    changed: tuple[str, ...]  # JSON paths


def marks(members: Mapping[str, Raw]) -> list[bytes]:
    """Return the mark of every signed block in a request, in order.

    Errors: none; what cannot be read bears no mark.
    """
    messages = members.get(_MESSAGES)
    raw = bytes(messages) if messages is not None else b""
    if not _may_hold(raw):
        return []
    cutter = Cutter()
    found: list[bytes] = []
    try:
        for turn in _turns(cutter, raw):
            if _may_hold(turn):
                found += _marks_of(cutter, _content(cutter, turn))
    except _UNREADABLE:
        pass
    return found


def marks_of_answer(body: bytes) -> list[bytes]:
    """Return the mark of every signed block in a unary answer, in order.

    Errors: none; what cannot be read bears no mark.
    """
    if not _may_hold(body):
        return []
    cutter = Cutter()
    try:
        return list(_marks_of(cutter, _content(cutter, body)))
    except _UNREADABLE:
        return []


class _Delta(msgspec.Struct):
    signature: Any = None


class _Block(msgspec.Struct):
    type: Any = None
    signature: Any = None
    data: Any = None


class _Event(msgspec.Struct):
    index: Any = None
    delta: _Delta | None = None
    content_block: _Block | None = None


_decode_event = msgspec.json.Decoder(_Event).decode


class SignatureReader:
    """The marks of an answer that streams, as its events pass by."""

    __slots__ = ("_index", "_signature")

    def __init__(self) -> None:
        self._index: object = None  # of the block that was signed last
        self._signature = ""

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the marks of what the events in `piece` signed; it holds whole events only.

        Shapes: a signature in several slices has the mark of all of it and the mark of the latest slice: some clients
        join the slices, the vendor's own keep the last one. What came before the last slice leaves marks that nobody
        will ever show; upstreams send one.
        Errors: none; what cannot be read bears no mark.
        """
        if _SIGNED not in piece and _THINKING not in piece:
            return []
        found: list[bytes] = []
        reader = sse.SSEReader()
        reader.open(piece)
        try:
            while (event := reader.next()) is not None:
                if _SIGNED in event[1] or _THINKING in event[1]:
                    self._read(event[1], found)
        except Garbled:
            pass
        return found

    def _read(self, payload: bytes, found: list[bytes]) -> None:
        try:
            event = _decode_event(nesting.whole(payload))
        except _UNREADABLE:
            return
        block, delta = event.content_block, event.delta
        if block is not None:
            self._index, self._signature = event.index, ""
            if block.type == "redacted_thinking" and isinstance(block.data, str) and block.data:
                found.append(_mark(block.data))
            elif block.type == "thinking":
                self._sign(block.signature, found)
        elif delta is not None:
            if event.index != self._index:
                self._index, self._signature = event.index, ""
            self._sign(delta.signature, found)

    def _sign(self, slice: object, found: list[bytes]) -> None:
        if isinstance(slice, str) and slice:
            if self._signature:
                found.append(_mark(slice))
            self._signature += slice
            found.append(_mark(self._signature))


def without_thinking(members: Mapping[str, Raw], foreign: set[bytes]) -> Stripped | None:
    """Return the request without the thinking of those closed turns that `foreign` names a block of.

    Shapes: every other byte is as it came. None where a block that may not go is foreign, and where there is more of
    the request than anybody may look through: it can then only be asked of whom it came from.
    """
    messages = members.get(_MESSAGES)
    raw = bytes(messages) if messages is not None else b""
    if not _may_hold(raw):
        return Stripped(members, ())
    cutter = Cutter()
    try:
        turns = _turns(cutter, raw)
        closed = _closed(cutter, turns)
        kept: list[bytes] = []
        for place, turn in enumerate(turns):
            after = _stripped(cutter, turn, foreign) if _may_hold(turn) else turn
            if after != turn and place >= closed:
                return None
            if after is not None:
                kept.append(after)
    except _UNREADABLE:
        return None
    if kept == turns:
        return Stripped(members, ())
    return Stripped({**members, _MESSAGES: Raw(marked.joined(raw, kept))}, ("$.messages",))


def is_open(members: Mapping[str, Raw], words: Sequence[bytes]) -> bool:
    """Whether one of `words` stands in the turn that is not closed yet.

    Errors: BadRequest where there is more of the request than anybody may look through.
    """
    cutter = Cutter()
    turns = _turns(cutter, bytes(members.get(_MESSAGES, b"")))
    return any(word in turn for turn in turns[_closed(cutter, turns) :] for word in words)


def nudged(members: Mapping[str, Raw], text: str) -> Mapping[str, Raw]:
    """Return the request with one more message of the user's at its end (SPEC 4.7), in either format.

    Shapes: every other byte is as it came; a request without an array of messages is as it came altogether.
    """
    raw = bytes(members.get(_MESSAGES, b""))
    end = len(raw.rstrip(_BLANK)) - 1
    if not marked.is_array(raw) or raw[end:].rstrip(_BLANK) != b"]":
        return members
    before = raw[:end]
    comma = b"" if before.strip(_BLANK) == b"[" else b","
    message = b'{"role":"user","content":%b}' % _encode(text)
    return {**members, _MESSAGES: Raw(b"%b%b%b%b" % (before, comma, message, raw[end:]))}


def _may_hold(raw: bytes) -> bool:
    """Whether there could be a signed block in `raw`; one look for both kinds, as it is at the whole of a request."""
    return nesting.begins(raw, _THINKING, _REDACTED)


def _mark(signature: str) -> bytes:
    return xxhash.xxh3_128_digest(signature.encode())


def _turns(cutter: Cutter, messages: bytes) -> list[bytes]:
    return cutter.pieces_of(messages) if marked.is_array(messages) else []


def _content(cutter: Cutter, turn: bytes) -> list[bytes]:
    """Return the blocks of a message, or of an answer; none where its content is a string, or anything else."""
    if not marked.is_object(turn):
        return []
    content = _values(cutter, turn).get(b"content", b"")
    return cutter.pieces_of(content) if marked.is_array(content) else []


def _values(cutter: Cutter, block: bytes) -> dict[bytes, bytes]:
    return {one.name: one.value.strip(_BLANK) for one in cutter.members_of(block)}


def _marks_of(cutter: Cutter, blocks: list[bytes]) -> list[bytes]:
    return [mark for block in blocks if (mark := _signed(cutter, block)[1]) is not None]


def _signed(cutter: Cutter, block: bytes) -> tuple[bool, bytes | None]:
    """Return whether a block is one of thinking, and its mark if it has one."""
    if not marked.is_object(block) or b"thinking" not in block:
        return False, None
    found = _values(cutter, block)
    kind = marked.word(found.get(b"type", b""))
    if kind not in marked.NO_PLACE:
        return False, None
    signature = marked.word(found.get(b"signature" if kind == "thinking" else b"data", b""))
    # What this gateway sealed is bound to nobody: whoever is asked gets of it what is its own.
    return True, _mark(signature) if signature and not is_sealed(signature) else None


def _closed(cutter: Cutter, turns: list[bytes]) -> int:
    """Return before which place all turns are closed: that of the last message of a user without a tool result."""
    for place in reversed(range(len(turns))):
        if marked.is_object(turns[place]) and _closes(cutter, turns[place]):
            return place
    return 0


def _closes(cutter: Cutter, turn: bytes) -> bool:
    found = _values(cutter, turn)
    if marked.word(found.get(b"role", b"")) != "user":
        return False
    content = found.get(b"content", b"")
    if not marked.is_array(content) or b"tool_result" not in content:
        return True
    return not any(_is_result(cutter, block) for block in cutter.pieces_of(content))


def _is_result(cutter: Cutter, block: bytes) -> bool:
    if not marked.is_object(block):
        return False
    # Also those of tools that Anthropic runs: `web_search_tool_result`.
    return (marked.word(_values(cutter, block).get(b"type", b"")) or "").endswith("tool_result")


def _stripped(cutter: Cutter, turn: bytes, foreign: set[bytes]) -> bytes | None:
    """Return a message without its thinking if some of it is foreign; None where nothing is left of it."""
    if not marked.is_object(turn):
        return turn
    before = cutter.members_of(turn)
    after = []
    for one in before:
        if one.name != b"content" or not marked.is_array(one.value):
            after.append(one)
            continue
        blocks = cutter.pieces_of(one.value)
        judged = [_signed(cutter, block) for block in blocks]
        if not any(mark in foreign for _, mark in judged):
            return turn
        kept = [block for block, (is_thinking, _) in zip(blocks, judged, strict=True) if not is_thinking]
        if not kept:
            return None
        after.append(one.with_value(marked.joined(one.value, kept)))
    return marked.joined(turn, [one.text for one in after])
