"""What of a Responses conversation is bound to the account that answered it (SPEC 4.7a), and how it is taken out.

OpenAI encrypts what a model thought, and a compaction, for the account that asked; and what it stores (`store`, which
is the default) only that account may refer to: an answer by `previous_response_id`, one of its items by its id. Each of
these is remembered by *mark*: 16 bytes of xxh3-128 over the encrypted text, or over the owner and the id. An id is no
secret, so it counts only for the client that was given it.

What may go: the reasoning of turns that are closed, item by item. A turn is closed by a user's message behind it. What
is in an open tool loop may not, nor a compaction, nor what is only referred to: the conversation stands in there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import xxhash
from msgspec import Raw

from arbiter._speedups import nesting, sse
from arbiter.errors import BadRequest, Garbled
from arbiter.wire import marked
from arbiter.wire.bound import Stripped
from arbiter.wire.marked import Cutter

_INPUT, _PREVIOUS = "input", "previous_response_id"
_ENCRYPTED = b'"encrypted_content"'
_TELLING = (_ENCRYPTED, b'"item_reference"', b'"reasoning"')
_ITEM_DONE = b'"response.output_item.done"'
_ENDS = (b'"response.completed"', b'"response.incomplete"')
_NEWEST = re.compile(rb'"encrypted_content"\s*:\s*"([^"\\]+)"')
_BLANK = b" \t\r\n"

_UNREADABLE = (BadRequest, msgspec.MsgspecError, RecursionError, UnicodeError)

_encode = msgspec.json.Encoder().encode
_decode_str = msgspec.json.Decoder(str).decode


class _Item(msgspec.Struct):
    type: Any = None
    role: Any = None
    id: Any = None
    encrypted_content: Any = None


class _Response(msgspec.Struct):
    id: Any = None
    output: list[_Item] | None = None


class _Event(msgspec.Struct):
    type: Any = None
    item: _Item | None = None
    response: _Response | None = None


_decode_item = msgspec.json.Decoder(_Item).decode
_decode_response = msgspec.json.Decoder(_Response).decode
_decode_event = msgspec.json.Decoder(_Event).decode


def id_mark(owner: str | None, ident: str) -> bytes:
    """The mark of an answer, or of an item, that `owner` was given the id of."""
    who = b"" if owner is None else owner.encode("utf-8", "surrogatepass")
    return xxhash.xxh3_128_digest(b"id\0%b\0%b" % (who, ident.encode("utf-8", "replace")))


def newest(members: Mapping[str, Raw], owner: str | None) -> bytes | None:
    """The mark of what binds a request last: of the answer that it goes on from, else of the last that is encrypted.

    Who made that is who should be asked, whatever else is known of the conversation. One quick look, without decoding.
    """
    previous = _text(members.get(_PREVIOUS))
    if previous:
        return id_mark(owner, previous)
    raw = bytes(members.get(_INPUT, b""))
    at = raw.rfind(_ENCRYPTED)
    found = _NEWEST.match(raw, at) if at >= 0 else None
    return xxhash.xxh3_128_digest(found[1]) if found is not None else None


def refers(members: Mapping[str, Raw]) -> bool:
    """Whether the conversation stands elsewhere: only who keeps it can go on with it."""
    return bool(_text(members.get(_PREVIOUS))) or b'"item_reference"' in bytes(members.get(_INPUT, b""))


def marks(members: Mapping[str, Raw], owner: str | None) -> list[bytes]:
    """Return the mark of everything in a request that binds it, in order.

    Errors: none; what cannot be read bears no mark.
    """
    previous = _text(members.get(_PREVIOUS))
    found = [id_mark(owner, previous)] if previous else []
    try:
        for entry in _entries(Cutter(), members):
            mark = _mark(entry, owner)
            if mark is not None:
                found.append(mark)
    except _UNREADABLE:
        pass
    return found


class Keeper(NamedTuple):
    """What of an answer is remembered: of its `items`, where somebody else might be asked to go on with them, and its
    id, where it is `stored` for its `owner`."""

    owner: str | None
    items: bool
    stored: bool

    def of_answer(self, body: bytes) -> list[bytes]:
        """Return the marks of a unary answer. Errors: none; what cannot be read bears no mark."""
        try:
            response = _decode_response(nesting.whole(body))
        except _UNREADABLE:
            return []
        found = self.of_id(response.id)
        for item in response.output or ():
            found += self.of_item(item)
        return found

    def reader(self) -> MarkReader:
        return MarkReader(self)

    def of_id(self, ident: Any) -> list[bytes]:
        return [id_mark(self.owner, ident)] if self.stored and isinstance(ident, str) and ident else []

    def of_item(self, item: _Item) -> list[bytes]:
        if not self.items:
            return []
        found = self.of_id(item.id)
        if isinstance(item.encrypted_content, str) and item.encrypted_content:
            found.append(_of_text(item.encrypted_content))
        return found


class MarkReader:
    """The marks of an answer that streams, as its events pass by."""

    __slots__ = ("_keeper",)

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the marks of what the events in `piece` say; it holds whole events only.

        Errors: none; what cannot be read bears no mark.
        """
        if _ITEM_DONE not in piece and not any(end in piece for end in _ENDS):
            return []
        found: list[bytes] = []
        reader = sse.SSEReader()
        reader.open(piece)
        try:
            while (event := reader.next()) is not None:
                if b'"encrypted_content"' in event[1] or b'"id"' in event[1]:
                    self._read(event[1], found)
        except Garbled:
            pass
        return found

    def _read(self, payload: bytes, found: list[bytes]) -> None:
        try:
            event = _decode_event(nesting.whole(payload))
        except _UNREADABLE:
            return
        if event.type == "response.output_item.done" and event.item is not None:
            found += self._keeper.of_item(event.item)
        elif event.type in ("response.completed", "response.incomplete") and event.response is not None:
            found += self._keeper.of_id(event.response.id)


def without_reasoning(members: Mapping[str, Raw], owner: str | None, foreign: set[bytes]) -> Stripped | None:
    """Return the request without those reasoning items of closed turns that `foreign` names.

    Shapes: every other byte is as it came. None where something that may not go is foreign, and where there is more of
    the request than anybody may look through.
    """
    previous = _text(members.get(_PREVIOUS))
    if previous and id_mark(owner, previous) in foreign:
        return None
    raw = bytes(members.get(_INPUT, b""))
    try:
        entries = _entries(Cutter(), members, telling=False)
        items = list(map(_item, entries))
    except _UNREADABLE:
        return None
    closed = max((place for place, item in enumerate(items) if item is not None and item.role == "user"), default=0)
    kept: list[bytes] = []
    for place, (entry, item) in enumerate(zip(entries, items, strict=True)):
        if item is None or _mark_of(item, owner) not in foreign:
            kept.append(entry)
        elif place >= closed or item.type != "reasoning":
            return None
    if len(kept) == len(entries):
        return Stripped(members, ())
    return Stripped({**members, _INPUT: Raw(marked.joined(raw, kept))}, ("$.input",))


def nudged(members: Mapping[str, Raw], text: str) -> Mapping[str, Raw]:
    """Return the request with one more message of the user's at its end (SPEC 4.7).

    Shapes: every other byte is as it came; a request without input is as it came altogether.
    """
    raw = bytes(members.get(_INPUT, b"")).strip(_BLANK)
    message = b'{"role":"user","content":%b}' % _encode(text)
    if raw[:1] == b'"':
        return {**members, _INPUT: Raw(b'[{"role":"user","content":%b},%b]' % (raw, message))}
    if not marked.is_array(raw) or raw[-1:] != b"]":
        return members
    before = raw[:-1]
    comma = b"" if before.strip(_BLANK) == b"[" else b","
    return {**members, _INPUT: Raw(b"%b%b%b]" % (before, comma, message))}


def _of_text(text: str) -> bytes:
    return xxhash.xxh3_128_digest(text.encode("utf-8", "replace"))


def _text(raw: Raw | None) -> str | None:
    try:
        return _decode_str(raw) if raw is not None else None
    except _UNREADABLE:
        return None


def _entries(cutter: Cutter, members: Mapping[str, Raw], *, telling: bool = True) -> list[bytes]:
    """Return the items of a request; with `telling` only those that may bear a mark."""
    raw = bytes(members.get(_INPUT, b""))
    if not marked.is_array(raw) or (telling and not any(word in raw for word in _TELLING)):
        return []
    entries = cutter.pieces_of(raw)
    return [entry for entry in entries if any(word in entry for word in _TELLING)] if telling else entries


def _item(entry: bytes) -> _Item | None:
    try:
        return _decode_item(nesting.whole(entry.strip(_BLANK)))
    except _UNREADABLE:
        return None


def _mark(entry: bytes, owner: str | None) -> bytes | None:
    item = _item(entry)
    return _mark_of(item, owner) if item is not None else None


def _mark_of(item: _Item, owner: str | None) -> bytes | None:
    """The mark of an item of the input; None where it is bound to nobody."""
    if isinstance(item.encrypted_content, str) and item.encrypted_content:
        return _of_text(item.encrypted_content)
    refers = item.type == "item_reference" or item.type == "reasoning"
    return id_mark(owner, item.id) if refers and isinstance(item.id, str) and item.id else None
