"""Usage of an attempt, from the raw JSON that a tap kept, and how much of it to believe (SPEC 9.1, 9.2)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from arbiter import _speedups
from arbiter.model import Usage

_ADDABLE = ("input", "cache_read", "cache_write", "cache_write_5m", "cache_write_1h", "output", "reasoning")

Source = Literal["provider", "partial", "missing"]


def chat(raw: bytes | None, tier: str | None = None) -> Usage | None:
    """Return the usage of an OpenAI Chat answer or stream (the last usage object in it); None where nothing is said.

    `tier` is the answer's `service_tier`, which stands beside the usage in this format.
    """
    return _beside(_speedups.usage.chat(raw) if raw is not None else None, tier)


def responses(raw: bytes | None, tier: str | None = None) -> Usage | None:
    """Return the usage of an OpenAI Responses answer, or of a stream's terminal event. The rest is as for `chat`."""
    return _beside(_speedups.usage.responses(raw) if raw is not None else None, tier)


def gemini(raw: bytes | None) -> Usage | None:
    """Return the usage of a Gemini answer, or of a stream's last chunk; None where nothing is said."""
    found = _speedups.usage.gemini(raw) if raw is not None else None
    return Usage(*found) if found is not None else None


def _beside(found: tuple[Any, ...] | None, tier: str | None) -> Usage | None:
    if tier is None:
        return Usage(*found) if found is not None else None
    usage = Usage(*found) if found is not None else Usage()
    return usage if usage.service_tier is not None else msgspec.structs.replace(usage, service_tier=tier)


def messages(start: bytes | None, delta: bytes | None = None, *, is_cut: bool = False) -> Usage | None:
    """Return the usage of an Anthropic answer, or of a stream: what message_start said, and message_delta after it. Of
    a stream that was cut, the output counts that message_delta had told, and no other.

    The counts of both are cumulative, so the later one replaces the earlier. Only what the provider spent on compacting
    the context on the way is added: it is billed alike, and stands among the `iterations` alone. A client must not be
    told that sum, since it takes the counts for the size of its context.
    """
    first = _speedups.usage.messages(start) if start is not None else None
    last = _speedups.usage.messages(delta) if delta is not None else None
    found = _speedups.usage.merge_messages(first, last)
    if found is None:
        return None
    usage = Usage(*found)
    if is_cut and (last is None or Usage(*last).output is None):
        usage = usage.announced()
    for raw in (delta, start):
        if raw is not None and b'"compaction"' in raw:
            return _with_compactions(usage, raw)
    return usage


class _Iterations(msgspec.Struct):
    iterations: list[msgspec.Raw] = []


class _Iteration(msgspec.Struct):
    type: str = ""


_decode_iterations = msgspec.json.Decoder(_Iterations).decode
_decode_iteration = msgspec.json.Decoder(_Iteration).decode


def _with_compactions(usage: Usage, raw: bytes) -> Usage:
    """Add them. An adviser's iterations are another model's, with prices of its own, and are not."""
    try:
        for one in _decode_iterations(raw).iterations:
            spent = _speedups.usage.messages(bytes(one)) if _decode_iteration(one).type == "compaction" else None
            if spent is not None:
                usage = _sum(usage, Usage(*spent))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        pass  # an odd member costs that fact, not the rest
    return usage


def _sum(usage: Usage, spent: Usage) -> Usage:
    added = {
        name: (getattr(usage, name) or 0) + more for name in _ADDABLE if (more := getattr(spent, name)) is not None
    }
    return msgspec.structs.replace(usage, **added)


def source(usage: Usage | None, *, finished: bool) -> Source:
    """Return where the counts of an attempt come from, for its row.

    A stream that died has told the input at most: those counts are real, and not the whole.
    """
    if usage is None:
        return "missing"
    if finished and usage.input is not None and usage.output is not None:
        return "provider"
    return "partial" if usage.is_stated else "missing"
