"""A few of the user's words, for whoever is to find a title for the conversation (SPEC 8.4)."""

from __future__ import annotations

from msgspec import Raw

from arbiter._speedups import nesting
from arbiter.inputs import conversation_of
from arbiter.sessions.affinity import entries, users_words
from arbiter.sessions.signals import Members

CHARS = 2000
"""Of each of the two texts."""
LOOKED_BYTES = 1 << 20
"""A longer history is not looked through for the latest words: that would take a millisecond for each MiB."""
LOOKED_TURNS = 64
"""From the end. Agents go on for long without a word of the user's."""


def of(members: Members) -> list[str]:
    """What the user said first, and latest where that is something else; nothing where the user said nothing."""
    raw = conversation_of(members)
    if raw is None:
        return []
    if bytes(memoryview(raw)[:1]) == b'"':  # a bare string is one message of the user's
        raw = Raw(b'[{"role":"user","content":%b}]' % bytes(raw))
    first = next((words for entry in entries(raw) if (words := _words(entry))), "")
    latest = _latest(bytes(raw)) if first and len(memoryview(raw)) <= LOOKED_BYTES else ""
    return [words for words in dict.fromkeys((first, latest)) if words]


def _latest(raw: bytes) -> str:
    ends = nesting.cuts(raw, len(raw))
    starts = [1, *(end + 1 for end in ends)]
    for at in range(len(ends) - 1, max(-1, len(ends) - 1 - LOOKED_TURNS), -1):
        if words := _words(raw[starts[at] : ends[at]]):
            return words
    return ""


def _words(entry: bytes) -> str:
    return "\n".join(users_words(entry) or ())[:CHARS]
