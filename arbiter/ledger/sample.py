"""A sample of a request's text, for whoever estimates its tokens where the provider counted none."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Raw

from arbiter.inputs import CONVERSATIONS, INSTRUCTIONS

MAX_BYTES = 64 << 10
_PIECES = 64
_MEMBERS = ("tools", *INSTRUCTIONS, *CONVERSATIONS)

_encoded = re.compile(rb"[A-Za-z0-9+/=_-]++\Z").match


def of(members: Mapping[str, Raw]) -> tuple[bytes | None, int]:
    """At most `MAX_BYTES` of the prompt's JSON, evenly taken, and of how many bytes that is a sample.

    Shapes: what is encoded in base64 (an image) is no text, and counts in neither. None where there is no text.
    """
    texts = [memoryview(members[name]) for name in _MEMBERS if name in members]
    total = sum(map(len, texts))
    if total <= MAX_BYTES:
        whole = b"\n".join(texts)
        return (whole or None), total
    taken, kept = 0, []
    size = MAX_BYTES // _PIECES
    for number in range(_PIECES):
        at = number * (total - size) // (_PIECES - 1)
        piece = _piece(texts, at, size)
        taken += len(piece)
        if _encoded(piece) is None:
            kept.append(piece)
    found = b"".join(kept)
    return (found or None), total * len(found) // taken if taken else 0


def _piece(texts: list[memoryview], at: int, size: int) -> bytes:
    """So many bytes from `at` on, fewer where a text ends."""
    for text in texts:
        if at < len(text):
            return bytes(text[at : at + size])
        at -= len(text)
    return b""
