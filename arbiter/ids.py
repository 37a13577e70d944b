"""Names that are never given twice, and chance."""

from __future__ import annotations

import random

from arbiter.clock import now_ms

_unique = random.Random()  # ids must not repeat; nothing is trusted to them


def seed() -> None:
    """Make this process's ids its own. Workers are forked: call it after the fork."""
    _unique.seed()


def new_id() -> str:
    """32 hexadecimal digits; an id of a later millisecond sorts after one of an earlier."""
    return f"{now_ms():012x}{_unique.getrandbits(80):020x}"


def of_request(at_ms: int) -> tuple[str, str]:
    """An id as `new_id` has them, of this moment, and a trace id: 32 hexadecimal digits, too. The first three of those
    tell the second, and come again after some 70 minutes; the rest is luck.

    Whoever keeps an index of trace ids writes to a few pages of it at a time, and not to one for each.
    """
    # Digits of bytes cost a third of what a number's do.
    luck = _unique.getrandbits(200).to_bytes(25, "big").hex()
    second = (at_ms >> 10 & 0xFFF).to_bytes(2, "big").hex()
    return at_ms.to_bytes(6, "big").hex() + luck[:20], second[1:] + luck[21:]


def draw() -> float:
    """A number in [0, 1)."""
    return _unique.random()
