"""Names that are never given twice, and chance."""

from __future__ import annotations

import random

from arbiter.clock import now_ms

_unique = random.Random()  # ids must not repeat; nothing is trusted to them
_AT_A_TIME, _LUCK_BYTES = 64, 25
_luck: list[str] = []  # digits for that many requests, so that chance and its digits are made in one go
_BYTES = tuple([f"{byte:02x}" for byte in range(256)])
_moment = (-1, "", "")  # a quarter of a second, its digits in an id, and those in a trace id


def seed() -> None:
    """Make this process's ids its own. Workers are forked: call it after the fork."""
    _unique.seed()
    _luck.clear()


def new_id() -> str:
    """32 hexadecimal digits; an id of a later millisecond sorts after one of an earlier."""
    return f"{now_ms():012x}{_unique.getrandbits(80):020x}"


def of_request(at_ms: int) -> tuple[str, str]:
    """An id as `new_id` has them, of this moment, and a trace id: 32 hexadecimal digits, too. The first three of those
    tell the second, and come again after some 70 minutes; the rest is luck.

    Whoever keeps an index of trace ids writes to a few pages of it at a time, and not to one for each.
    """
    global _moment
    luck = _luck.pop() if _luck else _more_luck()
    quarter = at_ms >> 8
    if quarter != _moment[0]:
        _moment = quarter, f"{quarter:010x}", f"{quarter >> 2 & 0xFFF:03x}"
    _, digits, second = _moment
    return f"{digits}{_BYTES[at_ms & 255]}{luck[:20]}", second + luck[21:]


def _more_luck() -> str:
    _luck.extend(_unique.randbytes(_LUCK_BYTES * _AT_A_TIME).hex("-", _LUCK_BYTES).split("-"))
    return _luck.pop()


def draw() -> float:
    """A number in [0, 1)."""
    return _unique.random()
