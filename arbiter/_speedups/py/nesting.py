"""What a JSON text is made of, told without decoding it.

A decoder that recurses would be stopped by its own limit, which differs between versions and lies far above ours
(SPEC 14.1); one that meets three million members makes objects of them all. Most members of a request are never decoded
here at all, but somebody behind us does decode them. So we look before we decode, and cut instead of decoding.

All of these look at structure outside of strings, and at nothing else: what is no JSON gets some answer, and no error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

import msgspec

FINE = 0
DEEP = 1
"""Objects and arrays are nested deeper than is allowed."""
WIDE = 2
"""The outermost object or array has more members than is allowed."""

MAX_NAMED = 256
"""Levels of nesting that `path` names; what lies deeper is named by them."""
MAX_NAME_BYTES = 256
"""Bytes of a member's name that `path` tells."""
DEEPEST, WIDEST = 512, 1024
"""Of what `members` opens."""

_BLANK = b" \t\r\n"
_MEMBER = re.compile(rb'[ \t\r\n]*+"([^"\\]*+(?:\\.[^"\\]*+)*+)"[ \t\r\n]*+:[ \t\r\n]*+', re.DOTALL)
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

# Possessive: what was passed over is not kept to go back to, which would cost a hundred bytes for each one.
_STRUCTURE = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[{}\[\],:]', re.DOTALL)
_STRING_OR_BRACKET = re.compile(rb'"(?:[^"\\]++|\\.)*+("?)|[{}\[\]]', re.DOTALL)
_UNDERSCORED = re.compile(rb'"(?:([a-z]++_[a-z_]++)"[ \t\r\n]*+:|[^"\\]*+(?:\\.[^"\\]*+)*+"?)', re.DOTALL)
_ESCAPE = re.compile(rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[dD][89a-fA-F][0-9a-fA-F]{2}|.)",
                     re.DOTALL)  # fmt: skip


def _structure(data: bytes | memoryview) -> Iterator[tuple[int, int]]:
    """Each bracket, comma and colon outside of strings, and where it stands."""
    for found in _STRUCTURE.finditer(data):
        at = found.start()
        if data[at] != 34:
            yield data[at], at


def fault(data: bytes, depth: int, width: int) -> int:
    """DEEP where `data` is nested more than `depth` deep, WIDE where its outermost level has over `width` members.

    FINE otherwise; of two faults the one that comes first.
    """
    if data.count(b"{") + data.count(b"[") <= depth and data.count(b",") < width:
        return FINE
    level = commas = 0
    for byte, _ in _structure(data):
        if byte in b"{[":
            level += 1
            if level > depth:
                return DEEP
        elif byte in b"}]":
            level -= 1
        elif byte == 44 and level == 1:
            commas += 1
            if commas >= width:
                return WIDE
    return FINE


def members(data: bytes, depth: int, width: int) -> list[tuple[str, int, int]] | None:
    """The members of an object: of each its name, and where its value begins and ends. Names may come again.

    None for what is no JSON object, or not within `depth` and `width` as `fault` has them, or not well-formed UTF-8;
    and for what is seldom: half a surrogate pair, a name with an escape in it, over DEEPEST levels or WIDEST members.
    """
    depth, width = min(depth, DEEPEST), min(width, WIDEST)
    if not_utf8(data) >= 0 or fault(data, depth, width) != FINE:
        return None
    try:
        _decode_members(data)
    except (msgspec.MsgspecError, RecursionError):
        return None
    found: list[tuple[str, int, int]] = []
    at = data.index(b"{") + 1
    for end in cuts(data, width):
        member = _MEMBER.match(data, at, end)
        at = end + 1
        if member is not None:  # where there is none, there are none at all
            name, start = member[1], member.end()
            if b"\\" in name:
                return None
            found.append((name.decode(), start, start + len(data[start:end].rstrip(_BLANK))))
    return found


def raws(data: bytes, depth: int, width: int) -> dict[str, msgspec.Raw] | None:
    """The same members with the bytes of their values; of those that come again the last. None where `members` is."""
    found = members(data, depth, width)
    return None if found is None else {name: msgspec.Raw(data[start:stop]) for name, start, stop in found}


def length(members: dict[str, msgspec.Raw]) -> int:
    """How many bytes an object of these members has, one or more, with no blanks, and with no escapes in its names."""
    return sum([len(name.encode()) + len(memoryview(raw)) + 4 for name, raw in members.items()]) + 1


def beginning(data: msgspec.Raw | bytes, turns: int, most: int) -> bytes | None:
    """An array up to where its first so many entries end, if they do within `most` bytes; None where it has fewer."""
    head = bytes(memoryview(data)[:most])
    ends = cuts(head, turns) if turns > 0 and head[:1] == b"[" else []
    return head[: ends[-1]] if ends and len(ends) == turns else None


def begins(data: bytes | memoryview, first: bytes, second: bytes) -> bool:
    """Whether a string in `data` may begin with one of two words. Within a string, a quote is escaped."""
    return _beginning(first, second).search(data) is not None


def units(data: bytes | memoryview) -> int:
    r"""How many times ``\u`` stands in `data`, also where the backslash is an escaped one."""
    return bytes(data).count(b"\\u")


@lru_cache(16)
def _beginning(*words: bytes) -> re.Pattern[bytes]:
    return re.compile(rb'(?<!\\)"(?:' + b"|".join(map(re.escape, words)) + b")")


def commas(data: bytes | memoryview) -> int:
    """How many commas stand outside of strings: with them, how many values a decoder would make of `data`."""
    return sum(byte == 44 for byte, _ in _structure(data))


def underscored(data: bytes) -> bool:
    """Whether a member, wherever it stands, has a name of small letters with an underscore between them."""
    return any(found[1] is not None for found in _UNDERSCORED.finditer(data))


def cuts(data: bytes, limit: int) -> list[int]:
    """Where each member of the outermost object or array ends: at its comma, or at the bracket. At most `limit`."""
    ends: list[int] = []
    level = 0
    for byte, at in _structure(data):
        if len(ends) >= limit:
            break
        if byte in b"{[":
            level += 1
        elif byte in b"}]":
            level -= 1
            if level == 0:
                ends.append(at)
                break
        elif byte == 44 and level == 1:
            ends.append(at)
    return ends


def follow(data: bytes, state: int) -> tuple[int, int]:
    """How far a JSON text has come that arrives in slices: (where it ends in this one, or -1; the state for the next).

    It ends with its first object, array or string; a bare number or word never does, as more of it may come. The state
    is 0 before the first slice and behind the end.
    """
    level = state >> 2
    opened = (b'"' if state & 1 else b"") + (b"\\" if state & 2 else b"")
    text = opened + data
    for found in _STRING_OR_BRACKET.finditer(text):
        byte = text[found.start()]
        if byte == 34 and not found[1]:
            # Where it does not reach the end, a backslash is left: what it escapes is yet to come.
            return -1, level << 2 | (found.end() < len(text)) << 1 | 1
        level += 1 if byte in b"{[" else -1 if byte in b"}]" else 0
        if level <= 0:
            return found.end() - len(opened), 0
    return -1, level << 2


def not_utf8(data: bytes) -> int:
    """Where the first sequence stands that is not well-formed UTF-8; -1 where all of it is."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start
    return -1


def path(data: bytes, at: int) -> list[int | bytes]:
    """What leads to the byte `at`: of each object and array around it the member or the entry in which it stands.

    Shapes: a number, or what stands between the quotes of a name, undecoded and cut at MAX_NAME_BYTES. An object in
    which no name was told yet is left out. At most MAX_NAMED levels.
    """
    around: list[int | bytes | None] = []
    level = 0
    name: bytes | None = None
    for found in _STRUCTURE.finditer(data, 0, at):
        start, here = found.start(), level - 1
        byte = data[start]
        if byte == 34:
            name = data[start + 1 : min(found.end() - 1, start + 1 + MAX_NAME_BYTES)]
        elif byte in b"{[":
            level += 1
            if level <= MAX_NAMED:
                around.append(None if byte == 123 else 0)
        elif byte in b"}]":
            level = max(level - 1, 0)
            del around[level:]
        elif 0 <= here < MAX_NAMED:
            inside = around[here]
            if byte == 44:
                around[here] = inside + 1 if isinstance(inside, int) else None
            elif not isinstance(inside, int):
                around[here] = name
    return [one for one in around if one is not None]


def half(data: bytes) -> int:
    r"""Where the first escape of half a surrogate pair stands (``\ud800``); -1 where none does.

    JSON allows half a pair (RFC 8259, section 8.2), decoders to UTF-8 do not.
    """
    return next((found.start() for found in _ESCAPE.finditer(data) if _is_half(found)), -1) if b"\\u" in data else -1


def _is_half(escape: re.Match[bytes]) -> bool:
    return escape.end() - escape.start() == 6


def whole(data: bytes) -> bytes:
    """`data` with each escape of half a surrogate pair replaced by the equally long one of U+FFFD.

    `data` itself where there is none.
    """
    if half(data) < 0:
        return data
    return _ESCAPE.sub(lambda found: b"\\ufffd" if _is_half(found) else found[0], data)
