"""Prompt-cache marks in raw JSON of Anthropic's format: taken out of it, put into it, and every other byte as it came.

JSON is cut here at its commas and never decoded but for names and a few words. So half a surrogate pair in a text, a
number that no double holds or a block of a kind that nobody knows stands in nobody's way, and the blanks between the
members are the same with a mark and without (SPEC 2.4).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from arbiter._speedups import nesting
from arbiter.errors import BadRequest
from arbiter.model import CacheMark

MARK = b"cache_control"
NO_PLACE = ("thinking", "redacted_thinking")

_HOLDS = (b"content", b"source", b"tool_references")
"""The members of a block in which other blocks may be. What a model wrote (`input`) is none: it may name anything."""
_MOST = 200_000
"""How many messages, tools, blocks and members of these are looked at for one request. Anthropic takes 100,000
messages, which would have 300,000; but nobody may keep the others waiting for so long."""
_LEVELS = 5
"""How deep a block in a block may be. The format knows four: a result, a document in it, its source, the text there."""
_MOST_MARKS = 20_000
"""How many marks are worth the search. Anthropic takes four."""

_NAME = re.compile(rb'\s*+"([^"\\]*+(?:\\.[^"\\]*+)*+)"\s*+:\s*+', re.DOTALL)
_PLAIN = b'"cache_control"'
# With some of its letters as escapes, which no encoder writes, or another word of thirteen such letters.
_SPELLED = re.compile(rb'"(?:[acehlnort_]|\\u00[5-7][0-9a-fA-F]){13}"')
_BLANK = b" \t\r\n"
_decode_str = msgspec.json.Decoder(str).decode


class Member(NamedTuple):
    name: bytes
    text: bytes
    """The whole member as it came, with the blanks around it."""
    value: bytes

    def with_value(self, value: bytes) -> Member:
        return Member(self.name, self.text[: len(self.text) - len(self.value)] + value, value)


def may_bear(raw: bytes) -> bool:
    """Whether there could be a mark in `raw`. False is certain."""
    return _PLAIN in raw or (b"\\u00" in raw and _SPELLED.search(raw) is not None)


def check_count(raw: bytes) -> None:
    """Errors: BadRequest where there are more marks in `raw` than anybody sets."""
    if raw.count(_PLAIN) > _MOST_MARKS or (b"\\u00" in raw and len(_SPELLED.findall(raw)) > _MOST_MARKS):
        raise BadRequest(f"more than {_MOST_MARKS:,} cache marks")


class Cutter:
    """Cuts the JSON of one request: into so many pieces in all and no more, however they are spread over it."""

    def __init__(self) -> None:
        self._left = _MOST

    def pieces_of(self, around: bytes) -> list[bytes]:
        """Return what stands in an array, or the members of an object, each with the blanks around it.

        Errors: BadRequest where there are too many, with all those before.
        """
        ends = nesting.cuts(around, self._left + 1)
        if len(ends) > self._left:
            raise BadRequest(f"more than {_MOST:,} entries and members, among which nobody looks for cache marks")
        self._left -= len(ends)
        start = around.index(b"{" if is_object(around) else b"[") + 1
        found = []
        for end in ends:
            found.append(around[start:end])
            start = end + 1
        return [] if len(found) == 1 and not found[0].strip(_BLANK) else found

    def members_of(self, block: bytes) -> list[Member]:
        """Return the members of an object, also two of one name."""
        found = []
        for piece in self.pieces_of(block):
            name = _NAME.match(piece)
            if name is not None:
                word = name[1]
                if b"\\" in word:
                    word = _decode_str(nesting.whole(b'"%b"' % word)).encode()
                found.append(Member(word, piece, piece[name.end() :]))
        return found

    def each(self, array: bytes, change: Callable[[bytes], bytes]) -> bytes:
        """Return `array` with each of its items changed; the very same bytes where none is."""
        before = self.pieces_of(array)
        after = list(map(change, before))
        return array if before == after else joined(array, after)

    def unmarked(self, block: bytes, taken: list[bytes] | None = None, *, levels: int = _LEVELS) -> bytes:
        """Return `block` without a mark on it or inside of it; the very same bytes where there is none.

        Shapes: `taken` gets the marks that are more than null, those inside of it first.
        Errors: BadRequest where there is too much to look at.
        """
        if not levels or not is_object(block) or not may_bear(block):
            return block
        before = self.members_of(block)
        own: list[bytes] = []
        kept: list[Member] = []
        for one in before:
            if one.name == MARK:
                own.append(one.value.strip(_BLANK))
            elif one.name in _HOLDS:
                kept.append(one.with_value(self._unmarked_inside(one.value, taken, levels - 1)))
            else:
                kept.append(one)
        if taken is not None:
            taken += (one for one in own if one != b"null")
        texts = [one.text for one in kept]
        if texts and own:  # the blanks at the two ends are the object's own
            first, last = before[0].text, before[-1].text
            texts[0] = first[: len(first) - len(first.lstrip(_BLANK))] + texts[0].lstrip(_BLANK)
            texts[-1] = texts[-1].rstrip(_BLANK) + last[len(last.rstrip(_BLANK)) :]
        return joined(block, texts) if own or kept != before else block

    def _unmarked_inside(self, value: bytes, taken: list[bytes] | None, levels: int) -> bytes:
        if is_array(value):
            return self.each(value, lambda one: self.unmarked(one, taken, levels=levels)) if may_bear(value) else value
        return self.unmarked(value, taken, levels=levels)

    def bears(self, block: bytes) -> bool:
        """Whether a mark may sit on `block`: not on thinking, nor on empty text, nor on what has no type (SPEC 2.8)."""
        if not is_object(block):
            return False
        found = {one.name: one.value.strip(_BLANK) for one in self.members_of(block)}
        kind = word(found.get(b"type", b""))
        if kind == "text":
            return bool((word(found.get(b"text", b"")) or "").strip())
        return bool(kind) and kind not in NO_PLACE


def is_object(raw: bytes) -> bool:
    return raw.lstrip(_BLANK)[:1] == b"{"


def is_array(raw: bytes) -> bool:
    return raw.lstrip(_BLANK)[:1] == b"["


def joined(around: bytes, pieces: list[bytes]) -> bytes:
    """Return what `around` is, an object or an array, with `pieces` in it."""
    start = len(around) - len(around.lstrip(_BLANK)) + 1
    end = len(around.rstrip(_BLANK)) - 1
    return around[:start] + b",".join(pieces) + around[end:]


def unmarked(block: bytes, taken: list[bytes] | None = None) -> bytes:
    """Return one block by itself without a mark, as `Cutter.unmarked` does."""
    return Cutter().unmarked(block, taken)


def is_marked(block: bytes) -> bool:
    """Whether there is a mark on `block`, or inside of it."""
    taken: list[bytes] = []
    unmarked(block, taken)
    return bool(taken)


def marked(block: bytes, cache: CacheMark) -> bytes:
    """Return `block`, which bears none, with a mark behind its last member."""
    inside = block.rstrip(_BLANK)[:-1].rstrip(_BLANK)
    comma = b"" if inside.endswith(b"{") else b","
    return inside + comma + b'"cache_control":' + spelled(cache) + block[len(inside) :]


def spelled(cache: CacheMark) -> bytes:
    """Return what the format writes for a mark."""
    return b'{"type":"ephemeral"}' if cache.ttl is None else b'{"type":"ephemeral","ttl":"%b"}' % cache.ttl.encode()


def word(value: bytes) -> str | None:
    """Return the text of a JSON string; None where the value is something else."""
    return _decode_str(nesting.whole(value)) if value[:1] == b'"' else None
