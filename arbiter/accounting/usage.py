"""Usage of an attempt, from the raw JSON that a tap kept, and how much of it to believe (SPEC 9.1, 9.2)."""

from __future__ import annotations

from typing import Literal

from arbiter import _speedups
from arbiter.model import Usage

Source = Literal["provider", "partial", "missing"]


def chat(raw: bytes | None) -> Usage | None:
    """Return the usage of an OpenAI Chat answer or stream (the last usage object in it); None where there is none."""
    found = _speedups.usage.chat(raw) if raw is not None else None
    return Usage(*found) if found is not None else None


def messages(start: bytes | None, delta: bytes | None = None) -> Usage | None:
    """Return the usage of an Anthropic answer, or of a stream: what message_start said, and message_delta after it.

    The counts of both are cumulative, so the later one replaces the earlier; nothing is added up.
    """
    first = _speedups.usage.messages(start) if start is not None else None
    last = _speedups.usage.messages(delta) if delta is not None else None
    found = _speedups.usage.merge_messages(first, last)
    return Usage(*found) if found is not None else None


def source(usage: Usage | None, *, finished: bool) -> Source:
    """Return where the counts of an attempt come from, for its row.

    A stream that died has told the input at most: those counts are real, and not the whole.
    """
    if usage is None or usage == Usage():
        return "missing"
    whole = finished and usage.input is not None and usage.output is not None
    return "provider" if whole else "partial"
