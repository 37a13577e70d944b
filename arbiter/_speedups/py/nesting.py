"""What a JSON text is made of, told without decoding it.

A decoder that recurses would be stopped by its own limit, which differs between versions and lies far above ours
(SPEC 14.1); one that meets three million members makes objects of them all. Most members of a request are never decoded
here at all, but somebody behind us does decode them. So we look before we decode, and cut instead of decoding.

All of these look at structure outside of strings, and at nothing else: what is no JSON gets some answer, and no error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

FINE = 0
DEEP = 1
"""Objects and arrays are nested deeper than is allowed."""
WIDE = 2
"""The outermost object or array has more members than is allowed."""

_STRUCTURE = re.compile(rb'"(?:[^"\\]|\\.)*"?|[{}\[\],]', re.DOTALL)
_ESCAPE = re.compile(rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[dD][89a-fA-F][0-9a-fA-F]{2}|.)",
                     re.DOTALL)  # fmt: skip


def _structure(data: bytes) -> Iterator[tuple[int, int]]:
    """Each bracket and comma outside of strings, and where it stands."""
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
        elif level == 1:
            commas += 1
            if commas >= width:
                return WIDE
    return FINE


def commas(data: bytes) -> int:
    """How many commas stand outside of strings: with them, how many values a decoder would make of `data`."""
    return sum(byte == 44 for byte, _ in _structure(data))


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
        elif level == 1:
            ends.append(at)
    return ends


def not_utf8(data: bytes) -> int:
    """Where the first sequence stands that is not well-formed UTF-8; -1 where all of it is."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start
    return -1


def whole(data: bytes) -> bytes:
    r"""`data` with each escape of half a surrogate pair (``\ud800``) replaced by the equally long one of U+FFFD.

    JSON allows half a pair (RFC 8259, section 8.2), decoders to UTF-8 do not. `data` itself where there is none.
    """
    if b"\\u" not in data:
        return data
    masked = _ESCAPE.sub(lambda found: b"\\ufffd" if len(found[0]) == 6 else found[0], data)
    return data if masked == data else masked
