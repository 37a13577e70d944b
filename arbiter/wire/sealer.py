"""Watches an answer on its way to a client of another format, and hands the client its reasoning along, sealed.

What was thought since the last item is sealed where the next call opens, or the model finishes: by then all is known
that an item is bound to. So it stands in front of the call that it was thought for, in every format.

Plain deltas are moved past the events (`wire.moulds`), and read here from what was moved. That needs one kind of mould
at a time, or nobody could tell whose strings these are: that of whatever was said last.

Most answers hold no thought. Until one does, what is said is put aside unread, up to a bound: an item is bound to it,
but there may be none.

    DOZING --anything of a thought: what was put aside is read--> AWAKE
"""

from __future__ import annotations

from hashlib import sha256

import msgspec

from arbiter.model import (
    Answer,
    CallDelta,
    CallStarted,
    Event,
    Finished,
    RedactedThinking,
    RefusalDelta,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ThinkingRedacted,
    ThinkingSealed,
    ThinkingSigned,
)
from arbiter.wire.chat_proofs import Gathered
from arbiter.wire.moulds import Mould, Moulds
from arbiter.wire.native import CHAT, RESPONSES
from arbiter.wire.vault import MAX_SEALED_BYTES, Origin, Sealed, Thought, Vault, squeezed

_decode_str = msgspec.json.Decoder(str).decode
_END = b"\n\n"
_MOST_MOVED_BYTES = 256 << 10
_STRING_BYTES = 64  # what one costs beside its text
_TEXT, _REASONING_CONTENT, _REASONING, _CALL = "text", "reasoning_content", "reasoning", "call"
_THOUGHTS = frozenset((Thinking, RedactedThinking))
_OF_THOUGHTS = (ThinkingDelta, ThinkingSigned, ThinkingRedacted)


def may_seal(answer: Answer) -> bool:
    """Whether there is anything in a whole answer for which it must be taken through a `Sealer`."""
    return not _THOUGHTS.isdisjoint(map(type, answer.parts))


class Sealer:
    """The reasoning of one answer of `origin`'s, for the client `owner`."""

    __slots__ = ("_aside", "_calls", "_digest", "_gathered", "_gathered_at", "_is_awake", "_is_over", "_kind", "_mould",
                 "_moved", "_moved_bytes", "_origin", "_owner", "_said", "_size", "_spelling", "_texts", "_thoughts",
                 "_vault")  # fmt: skip

    def __init__(self, vault: Vault, origin: Origin, owner: str | None) -> None:
        self._vault = vault
        self._origin = origin
        self._owner = owner
        self._kind = ""  # of what was said last
        self._mould: Mould = None  # of that kind, as it was aimed last
        self._is_awake = False
        self._aside: list[tuple[Mould, bytes] | str] = []  # text that was said, in moulds, or as it is
        self._moved: list[bytes] = []  # in that mould, and not read yet
        self._moved_bytes = 0  # of these, and of what was put aside
        self._said = 0  # characters of text that are no blanks
        self._digest = sha256()  # of those
        self._calls: list[str] = []
        self._thoughts: list[Thought] = []  # since the last item
        self._texts: list[str] = []  # of the thought under way
        self._spelling: str | None = None
        self._gathered: Gathered | None = None  # what a chat's message has of members, since the last item
        self._gathered_at = (0, 0)  # where that began: behind so many characters, and calls
        self._size = 0
        self._is_over = False  # there is more than an item can hold

    def take(self, event: Event) -> tuple[Event, ...]:
        """Return what the client is told in place of `event`: that, and in front of it an item where one is due."""
        kind = type(event)
        if not self._is_awake:
            if kind not in _OF_THOUGHTS:
                self._doze(event)
                return (event,)
            self._read_aside()
            self._is_awake = True
        self._read_moved()
        if type(event) is ThinkingDelta:
            self._kind = _REASONING if event.spelling == "reasoning" else _REASONING_CONTENT
            self._think(event.text, event.spelling)
        elif type(event) is TextDelta or type(event) is RefusalDelta:
            self._kind = _TEXT if kind is TextDelta else ""
            self._end_thought()
            if kind is TextDelta:
                self._say(event.text)
        elif kind is CallDelta:
            self._kind = _CALL
        elif type(event) is ThinkingSigned:
            self._end_thought(event.signature or None, event.item)
        elif type(event) is ThinkingRedacted:
            if event.place == "message":
                self._gather(event.data)
                return ()
            self._end_thought()
            self._keep(Thought(self._said, len(self._calls), data=event.data, place=event.place), len(event.data))
            if event.place == "call":
                return ()  # no client's format has it
        elif type(event) is CallStarted:
            self._kind = _CALL
            self._end_thought()
            self._calls.append(event.id)
            return self._sealed(event, event.id)
        elif kind is Finished:
            self._end_thought()
            return self._sealed(event, None)
        return (event,)

    def narrowed(self, moulds: Moulds) -> Moulds:
        """Return those of `moulds` that may be used until the next event: of the kind of what was said last."""
        self._look()
        if self._kind == _CALL:
            self._mould = None
            return moulds._replace(text=None, reasoning_content=None, reasoning=None)
        if self._kind == _TEXT:
            self._mould = moulds.text
            return Moulds(text=self._mould)
        if self._kind == _REASONING_CONTENT:
            self._mould = moulds.reasoning_content
            return Moulds(reasoning_content=self._mould)
        self._mould = moulds.reasoning if self._kind == _REASONING else None
        return Moulds(reasoning=self._mould)

    def moved(self, moved: bytes) -> None:
        """Be told of what was moved since the last look, in the shape that it left in."""
        if self._mould is not None and moved:
            self._moved.append(moved)
            self._moved_bytes += len(moved)
            if self._moved_bytes > _MOST_MOVED_BYTES:
                self._look()

    def _look(self) -> None:
        """Read what was moved; put it aside where it may never be needed."""
        if self._is_awake:
            self._read_moved()
        elif self._moved:
            self._aside.append((self._mould, b"".join(self._moved)))
            self._moved.clear()
            if self._moved_bytes > _MOST_MOVED_BYTES:
                self._read_aside()

    def _doze(self, event: Event) -> None:
        self._look()
        if type(event) is TextDelta:
            self._kind = _TEXT
            self._aside.append(event.text)
            self._moved_bytes += len(event.text) + _STRING_BYTES
            if self._moved_bytes > _MOST_MOVED_BYTES:
                self._read_aside()
        elif type(event) is RefusalDelta:
            self._kind = ""
        elif type(event) is CallDelta:
            self._kind = _CALL
        elif type(event) is CallStarted:
            self._kind = _CALL
            self._calls.append(event.id)

    def _read_aside(self) -> None:
        self._look()
        for one in self._aside:
            self._say(one if isinstance(one, str) else _told(*one))
        self._aside.clear()
        self._moved_bytes = 0

    def _read_moved(self) -> None:
        if self._mould is None or not self._moved:
            return
        text = _told(self._mould, b"".join(self._moved))
        self._moved.clear()
        self._moved_bytes = 0
        if self._kind == _TEXT:
            self._say(text)
        else:
            self._think(text, self._spelling)

    def _think(self, text: str, spelling: str | None) -> None:
        if self._texts and spelling != self._spelling:
            self._end_thought()
        self._spelling = spelling
        self._size += len(text)
        if self._size > MAX_SEALED_BYTES:
            self._is_over = True
            self._texts.clear()
            self._thoughts.clear()
        elif not self._is_over:
            self._texts.append(text)

    def _say(self, text: str) -> None:
        text = squeezed(text)
        self._said += len(text)
        self._digest.update(text.encode("utf-8", "surrogatepass"))

    def _end_thought(self, signature: str | None = None, item: bytes | None = None) -> None:
        text = "".join(self._texts)
        self._texts.clear()
        if text or signature or item is not None:
            thought = Thought(self._said, len(self._calls), text, signature, self._spelling, item)
            self._keep(thought, len(signature or "") + len(item or b""))

    def _gather(self, slice: str) -> None:
        if self._is_over:
            return
        if self._gathered is None:
            self._gathered, self._gathered_at = Gathered(), (self._said, len(self._calls))
        before = self._gathered.size
        self._gathered.add(slice)
        self._size += self._gathered.size - before
        if self._size > MAX_SEALED_BYTES:
            self._is_over = True
            self._gathered = None

    def _keep(self, thought: Thought, size: int) -> None:
        self._size += size
        self._is_over = self._is_over or self._size > MAX_SEALED_BYTES
        if self._is_over:
            self._thoughts.clear()
        else:
            self._thoughts.append(thought)

    def _sealed(self, event: Event, call_id: str | None) -> tuple[Event, ...]:
        if self._gathered is not None:
            gathered, self._gathered = self._gathered.whole(), None
            self._thoughts.insert(0, Thought(*self._gathered_at, data=gathered, place="message"))
        thoughts = tuple(self._thoughts)
        self._thoughts.clear()
        if not any(_is_wanted(one, self._origin.format) for one in thoughts):
            return (event,)
        digest = self._digest.digest()[:16]
        sealed = Sealed(self._origin, tuple(self._calls), self._said, digest, thoughts)
        item = self._vault.seal(sealed, self._owner)
        return (event,) if item is None else (ThinkingSealed(item, call_id), event)


def _is_wanted(thought: Thought, format: str) -> bool:
    """Whether an upstream of that format could do anything with it again."""
    if format == CHAT:
        return bool(thought.text) or thought.data is not None
    if format == RESPONSES:
        return thought.item is not None
    return thought.signature is not None or thought.data is not None


def _told(mould: Mould, moved: bytes) -> str:
    """Read what was moved in one mould, all at once: that costs a stream a tenth of what reading each delta would."""
    assert mould is not None, "nothing is moved without one"
    before, behind = mould
    # Each is an event that ends with a blank line; no string holds one.
    events = moved.split(_END)[:-1]
    start, end = len(before) + 1, len(_END) - len(behind) - 1
    return _decode_str(b'"%b"' % b"".join([event[start:end] for event in events]))
