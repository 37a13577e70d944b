"""What of a Responses conversation is bound to the account that answered it (SPEC 4.7a), and how it is taken out.

OpenAI encrypts what a model thought, and a compaction, for the account that asked; and what it stores (`store`, which
is the default) only that account may refer to: an answer by `previous_response_id`, one of its items by its id, a
`conversation` by its own. Each of these is remembered by *mark*: 16 bytes of xxh3-128 over the encrypted text, or over
the owner and the id. An id is no secret, so it counts only for the client that was given it. That it was given to
somebody is remembered, too: what is known, and not this client's own, is another's.

What may go: the reasoning of turns that are closed, item by item. A turn is closed by a user's message behind it. What
is in an open tool loop may not, nor a compaction, nor what is only referred to: the conversation stands in there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import xxhash
from msgspec import Raw

from arbiter._speedups import nesting, sse
from arbiter.errors import BadRequest, Garbled
from arbiter.model import Opaque
from arbiter.wire import marked
from arbiter.wire.bound import Stripped
from arbiter.wire.marked import Cutter
from arbiter.wire.vault import is_sealed

_INPUT, _PREVIOUS, _CONVERSATION = "input", "previous_response_id", "conversation"
_ENCRYPTED = b'"encrypted_content"'
_ITEM, _ITEM_DONE = b'"response.output_item.', b'"response.output_item.done"'
_ITEMS = ("response.output_item.added", "response.output_item.done")
_WHOLE = (b'"response.created"', b'"response.completed"', b'"response.incomplete"')
_WHOLES = ("response.created", "response.completed", "response.incomplete")
_NEWEST = re.compile(rb'"encrypted_content"\s*:\s*"([^"\\]+)"')
_ID = re.compile(rb'"(?:i|\\u0069)(?:d|\\u0064)"')
_OWN_ID = re.compile(r"rs_[0-9a-f]{32}_\d+")  # how `responses_answer.Names` makes one
_OWN_ITEM = re.compile(r"(?:msg|fc|ctc|rs)_([0-9a-f]{32})_\d+")
OWN_ANSWER = "resp_"
"""How the id of an answer of the gateway's begins, before its trace id."""
_BLANK = b" \t\r\n"
_MOST_OBJECTS = 100_000  # that are read in one go; more are cut apart first, which is slower and counts them

_UNREADABLE = (BadRequest, msgspec.MsgspecError, RecursionError, UnicodeError)

_encode = msgspec.json.Encoder().encode
_decode_str = msgspec.json.Decoder(str).decode


class _Item(msgspec.Struct):
    type: Any = None
    role: Any = None
    id: Any = None
    encrypted_content: Any = None


class _Named(msgspec.Struct):
    """An item, and of what is encrypted no more than whether it is there: that is most of its bytes."""

    type: Any = None
    role: Any = None
    id: Any = None
    encrypted_content: Raw = Raw(b"")

    @property
    def is_encrypted(self) -> bool:
        return bytes(self.encrypted_content) not in (b"", b"null", b'""')


class _Response(msgspec.Struct):
    id: Any = None
    output: list[_Item] | None = None
    data: list[_Item] | None = None  # of a list of items


class _Event(msgspec.Struct):
    type: Any = None
    item: _Item | None = None
    response: _Response | None = None


_decode_item = msgspec.json.Decoder(_Item).decode
_decode_named = msgspec.json.Decoder(list[_Named]).decode
_decode_response = msgspec.json.Decoder(_Response).decode
_decode_event = msgspec.json.Decoder(_Event).decode


def id_mark(owner: str | None, ident: str) -> bytes:
    """The mark of an answer, or of an item, that `owner` was given the id of."""
    who = b"" if owner is None else owner.encode("utf-8", "surrogatepass")
    return xxhash.xxh3_128_digest(b"id\0%b\0%b" % (who, ident.encode("utf-8", "replace")))


def known_mark(ident: str) -> bytes:
    """The mark of whatever anybody was given the id of."""
    return xxhash.xxh3_128_digest(b"known\0%b" % ident.encode("utf-8", "replace"))


def owed_mark(owner: str | None, ident: str) -> bytes:
    """The mark of an answer that was still being made when it was given to `owner`: nobody has counted its tokens."""
    return xxhash.xxh3_128_digest(b"owed\0%b" % id_mark(owner, ident))


def kept_mark(owner: str | None, ident: str) -> bytes:
    """The mark of an answer that the gateway gave an id of its own, and keeps for `owner`: no provider knows it."""
    return xxhash.xxh3_128_digest(b"kept\0%b" % id_mark(owner, ident))


class Referred(NamedTuple):
    """Something that a request only refers to, and its provider keeps."""

    what: str  # for people
    ident: str
    param: str  # the member of the request

    @property
    def kept_as(self) -> str:
        """What the gateway would keep it under, if the id is one of its own: items are kept with their answers."""
        made = _OWN_ITEM.fullmatch(self.ident)
        return f"{OWN_ANSWER}{made[1]}" if made is not None else self.ident


def referred(members: Mapping[str, Raw]) -> list[Referred]:
    """Return what a request refers to by its id.

    Errors: BadRequest where there are more items than anybody looks through.
    """
    found = []
    previous, conversation = previous_of(members), conversation_of(members)
    if previous:
        found.append(Referred("Previous response", previous, _PREVIOUS))
    if conversation:
        found.append(Referred("Conversation", conversation, _CONVERSATION))
    items = _with_ids(members)
    return found + [Referred("Item", item.id, _INPUT) for item in items if _is_reference(item)]


def own_items(members: Mapping[str, Raw]) -> dict[str, str]:
    """Return the items that a request only refers to and whose ids this gateway made: id -> trace id of their answer.

    Errors: BadRequest where there are more items than anybody looks through.
    """
    made = {item.id: _OWN_ITEM.fullmatch(item.id) for item in _with_ids(members) if _is_only_named(item)}
    return {ident: match[1] for ident, match in made.items() if match is not None}


def _with_ids(members: Mapping[str, Raw]) -> list[_Item]:
    """Return the items of a request that have an id: without one, nothing is referred to. Of what is encrypted it is
    only told that it is there.

    All of them are read, however an item spells what it is: who wants another's must not be able to hide it.
    Errors: BadRequest where there are more items than anybody looks through.
    """
    raw = bytes(members.get(_INPUT, b""))
    if not marked.is_array(raw):
        return []
    if raw.count(b"{") <= _MOST_OBJECTS:
        try:
            items = _decode_named(nesting.whole(raw))
        except _UNREADABLE:
            pass  # not all of them are objects
        else:
            return [_Item(one.type, one.role, one.id, one.is_encrypted) for one in items if one.id is not None]
    try:
        entries = Cutter().pieces_of(raw)
    except BadRequest:
        raise BadRequest(f"{_INPUT}: there are more items than are looked through", param=_INPUT) from None
    return [item for item in map(_item, entries) if item is not None and item.id is not None]


def _may_have_id(raw: bytes) -> bool:
    """Whether there could be an id in `raw`, also in escapes that no encoder writes. False is certain."""
    return b'"id"' in raw or (b"\\u00" in raw and _ID.search(raw) is not None)


def with_items(members: Mapping[str, Raw], items: Mapping[str, Raw]) -> dict[str, Raw]:
    """Return the request with these items, by id, in the place of the references to them.

    Shapes: every other byte is as it came.
    """
    raw = bytes(members[_INPUT])
    entries = [_in_place(entry, items) for entry in _entries(Cutter(), members, telling=False)]
    return {**members, _INPUT: Raw(marked.joined(raw, entries))}


def _in_place(entry: bytes, items: Mapping[str, Raw]) -> bytes:
    item = _item(entry) if _may_have_id(entry) else None
    found = items.get(item.id) if item is not None and _is_only_named(item) else None
    return entry if found is None else bytes(found)


def is_only_named(part: object) -> bool:
    """Whether a part of a request is an item that stands elsewhere."""
    if not isinstance(part, Opaque):
        return False
    item = _item(part.raw)
    return item is not None and _is_only_named(item)


def _is_only_named(item: _Item) -> bool:
    """Whether an item is `{"id": …}` and nothing else; its type need not be said, and a message has a role."""
    is_bare = item.type == "item_reference" or (item.type is None and item.role is None)
    return is_bare and isinstance(item.id, str) and bool(item.id)


def previous_of(members: Mapping[str, Raw]) -> str | None:
    """Return the id of the answer that a request goes on from."""
    return _text(members.get(_PREVIOUS)) or None


def conversation_of(members: Mapping[str, Raw]) -> str | None:
    """Return the id of the conversation that a request belongs to, however it is written."""
    raw = members.get(_CONVERSATION)
    if raw is None or bytes(raw)[:1] != b"{":
        return _text(raw) or None
    try:
        ident = _decode_item(nesting.whole(bytes(raw))).id
    except _UNREADABLE:
        return None
    return ident if isinstance(ident, str) and ident else None


def newest(members: Mapping[str, Raw], owner: str | None) -> bytes | None:
    """The mark of what binds a request last: of the answer or the conversation that it goes on from, else of the last
    that is encrypted.

    Who made that is who should be asked, whatever else is known of the conversation. One quick look, without decoding.
    """
    previous = _text(members.get(_PREVIOUS)) or conversation_of(members)
    if previous:
        return id_mark(owner, previous)
    raw = bytes(members.get(_INPUT, b""))
    at = raw.rfind(_ENCRYPTED)
    found = _NEWEST.match(raw, at) if at >= 0 else None
    return xxhash.xxh3_128_digest(found[1]) if found is not None else None


def refers(members: Mapping[str, Raw]) -> bool:
    """Whether the conversation stands elsewhere: only who keeps it can go on with it."""
    stands_there = bool(_text(members.get(_PREVIOUS)) or conversation_of(members))
    return stands_there or any(map(_is_only_named, _with_ids(members)))


def is_own(type: Any, ident: Any, encrypted: Any) -> bool:
    """Whether an item is reasoning that this gateway told of or sealed, which binds to nobody and is none elsewhere."""
    if type != "reasoning":
        return False
    if encrypted is None:
        return isinstance(ident, str) and _OWN_ID.fullmatch(ident) is not None
    return is_sealed(encrypted)


def marks(members: Mapping[str, Raw], owner: str | None) -> list[bytes]:
    """Return the mark of everything in a request that binds it, in order.

    Errors: none; what cannot be read bears no mark.
    """
    found = _whole_marks(members, owner)
    try:
        for entry in _entries(Cutter(), members):
            mark = _mark(entry, owner)
            if mark is not None:
                found.append(mark)
    except _UNREADABLE:
        pass
    return found


def _whole_marks(members: Mapping[str, Raw], owner: str | None) -> list[bytes]:
    """The marks of the answer and of the conversation that a request goes on from."""
    idents = (_text(members.get(_PREVIOUS)), conversation_of(members))
    return [id_mark(owner, ident) for ident in idents if ident]


class Keeper(NamedTuple):
    """What of an answer is remembered: what is encrypted of its `items`, where somebody else might be asked to go on
    with them; and where it is `stored` for its `owner`, its id, those of its items, and of its `conversation`."""

    owner: str | None
    items: bool
    stored: bool
    conversation: str | None = None

    def of_answer(self, body: bytes) -> list[bytes]:
        """Return the marks of a unary answer. Errors: none; what cannot be read bears no mark."""
        try:
            response = _decode_response(nesting.whole(body))
        except _UNREADABLE:
            return []
        found = self.of_response(response.id)
        for item in (*(response.output or ()), *(response.data or ())):
            found += self.of_id(item.id) + self.of_content(item)
        return found

    def reader(self) -> MarkReader:
        return MarkReader(self)

    def of_response(self, ident: Any) -> list[bytes]:
        return self.of_id(ident) + self.of_id(self.conversation)

    def of_id(self, ident: Any) -> list[bytes]:
        if not self.stored or not isinstance(ident, str) or not ident:
            return []
        # Where memory is short, what came first goes first: whose it is must not be forgotten before that it is one's.
        return [known_mark(ident), id_mark(self.owner, ident)]

    def of_content(self, item: _Item) -> list[bytes]:
        if not self.items or not isinstance(item.encrypted_content, str) or not item.encrypted_content:
            return []
        return [_of_text(item.encrypted_content)]


class MarkReader:
    """The marks of an answer that streams, as its events pass by.

    An item is its client's from when it is added: by then another could name it. What it holds is known at its
    end.
    """

    __slots__ = ("_ident", "_items", "_keeper", "_telling")

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._telling = _ITEM if keeper.stored else _ITEM_DONE  # where nothing is stored, no id need be known
        self._ident: Any = None  # of the response, once it was told
        self._items: set[str] = set()  # likewise

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the marks of what the events in `piece` say; it holds whole events only.

        Errors: none; what cannot be read bears no mark.
        """
        if self._telling not in piece and not any(word in piece for word in _WHOLE):
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
        item = event.item
        if event.type in _ITEMS and item is not None:
            if isinstance(item.id, str) and item.id not in self._items:
                self._items.add(item.id)
                found += self._keeper.of_id(item.id)
            if event.type == _ITEMS[1]:
                found += self._keeper.of_content(item)
        elif event.type in _WHOLES and event.response is not None and event.response.id != self._ident:
            self._ident = event.response.id
            found += self._keeper.of_response(self._ident)


def without_reasoning(members: Mapping[str, Raw], owner: str | None, foreign: set[bytes]) -> Stripped | None:
    """Return the request without those reasoning items of closed turns that `foreign` names.

    Shapes: every other byte is as it came. None where something that may not go is foreign, and where there is more of
    the request than anybody may look through.
    """
    if not foreign.isdisjoint(_whole_marks(members, owner)):
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


def behind(members: Mapping[str, Raw], items: Sequence[Raw]) -> dict[str, Raw]:
    """Return the request with `items` before its own.

    Shapes: every other byte is as it came; text becomes a user's message.
    """
    raw = bytes(members.get(_INPUT, b"")).strip(_BLANK)
    own = raw[1:-1].strip(_BLANK) if marked.is_array(raw) else b'{"role":"user","content":%b}' % raw if raw else b""
    return {**members, _INPUT: Raw(b"[%b]" % b",".join([*map(bytes, items), *([own] if own else [])]))}


def without_bare_thoughts(members: Mapping[str, Raw]) -> Mapping[str, Raw]:
    """Return the request without the reasoning that its own maker did not encrypt, and nobody here could refer to."""
    raw = bytes(members.get(_INPUT, b""))
    try:
        entries = _entries(Cutter(), members, telling=False)
    except _UNREADABLE:
        return members
    kept = [entry for entry in entries if b'"reasoning"' not in entry or not _is_bare(_item(entry))]
    return members if len(kept) == len(entries) else {**members, _INPUT: Raw(marked.joined(raw, kept))}


def _is_bare(item: _Item | None) -> bool:
    return item is not None and item.type == "reasoning" and not item.encrypted_content


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
    if not marked.is_array(raw) or (telling and not _may_tell(raw)):
        return []
    entries = cutter.pieces_of(raw)
    return list(filter(_may_tell, entries)) if telling else entries


def _may_tell(raw: bytes) -> bool:
    """Whether there could be something in `raw` that bears a mark. False is certain."""
    return _ENCRYPTED in raw or _may_have_id(raw)


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
    if is_own(item.type, item.id, item.encrypted_content):
        return None
    if isinstance(item.encrypted_content, str) and item.encrypted_content:
        return _of_text(item.encrypted_content)
    return id_mark(owner, item.id) if _is_reference(item) else None


def _is_reference(item: _Item) -> bool:
    """Whether an item of the input is only a reference to one that is kept."""
    if _is_only_named(item):
        return True
    return item.type == "reasoning" and not item.encrypted_content and isinstance(item.id, str) and bool(item.id)
