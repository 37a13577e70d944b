"""A provider's usage object, read once into one convention (SPEC 9.1).

The tuple is (input, cache_read, cache_write, cache_write_5m, cache_write_1h, output, reasoning, total). `input`
excludes cache reads and writes: OpenAI-style `prompt_tokens` include them and are reduced, Anthropic's `input_tokens`
stand beside them. A count that nobody stated is None, never 0; so is one that cannot be (negative, a fraction, text).

`cache_write` is the whole of the writes; the two after it are its parts by lifetime, where the provider splits them.
`reasoning` is a part of `output`. `total` is what was stated, never a sum of ours.

Source: FEATURES D.5, and the shapes in tests/vectors/usage.
"""

from __future__ import annotations

from typing import Any

from arbiter._speedups.py.reduce import decode

Counts = tuple[int | None, int | None, int | None, int | None, int | None, int | None, int | None, int | None]

# A count beyond this is no count of tokens, and would not fit into a store's column.
MAX_TOKENS = 10**15 - 1


def _count(value: object) -> int | None:
    """A count of tokens. JSON writers of other languages send whole numbers as 12.0."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TOKENS:
        return value
    return None


def _first(*values: object) -> int | None:
    """The first that is a count."""
    for value in values:
        count = _count(value)
        if count is not None:
            return count
    return None


def _part(holder: dict[str, Any], name: str) -> dict[str, Any]:
    part = holder.get(name)
    return part if isinstance(part, dict) else {}


def _members(raw: bytes) -> dict[str, Any]:
    try:
        value = decode(raw)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _known(counts: Counts) -> Counts | None:
    return counts if any(count is not None for count in counts) else None


def chat(raw: bytes) -> Counts | None:
    """Read the `usage` of a chat answer or chunk. None where it states no count at all.

    Shapes: OpenAI and its followers (details may be null or absent), DeepSeek's `prompt_cache_hit_tokens`, and servers
    that answer a chat with Anthropic's names.
    """
    usage = _members(raw)
    prompt = _count(usage.get("prompt_tokens"))
    if prompt is None and _count(usage.get("completion_tokens")) is None:
        return messages(raw)
    details = _part(usage, "prompt_tokens_details")
    written = _part(details, "cache_creation") or _part(usage, "cache_creation")
    cache_read = _first(
        details.get("cached_tokens"),
        usage.get("prompt_cache_hit_tokens"),  # DeepSeek, beside prompt_cache_miss_tokens
        usage.get("cached_tokens"),  # Kimi
        usage.get("cache_read_input_tokens"),
    )
    cache_write = _first(
        details.get("cache_write_tokens"),  # OpenRouter, OpenAI
        details.get("cache_creation_tokens"),
        details.get("cache_creation_input_tokens"),  # Alibaba
        usage.get("cache_creation_input_tokens"),
    )
    rest = None if prompt is None else prompt - (cache_read or 0) - (cache_write or 0)
    output = _count(usage.get("completion_tokens"))
    reasoning = _first(_part(usage, "completion_tokens_details").get("reasoning_tokens"), usage.get("reasoning_tokens"))
    total = _count(usage.get("total_tokens"))
    if prompt is not None and output is not None and reasoning and total == prompt + output + reasoning:
        output += reasoning  # xAI states the two beside each other; its total gives it away
    return _known(
        (
            # Less than nothing: the parts contradict the whole, so what is left is unknown.
            None if rest is None or rest < 0 else rest,
            cache_read,
            cache_write,
            _count(written.get("ephemeral_5m_input_tokens")),
            _count(written.get("ephemeral_1h_input_tokens")),
            output,
            reasoning,
            total,
        )
    )


def messages(raw: bytes) -> Counts | None:
    """Read the `usage` of an Anthropic answer, of `message_start` or `message_delta`. None where it states no count."""
    usage = _members(raw)
    written = _part(usage, "cache_creation")
    five = _count(written.get("ephemeral_5m_input_tokens"))
    hour = _count(written.get("ephemeral_1h_input_tokens"))
    cache_write = _count(usage.get("cache_creation_input_tokens"))
    if cache_write is None and (five is not None or hour is not None):
        cache_write = (five or 0) + (hour or 0)
    return _known(
        (
            _count(usage.get("input_tokens")),
            _count(usage.get("cache_read_input_tokens")),
            cache_write,
            five,
            hour,
            _count(usage.get("output_tokens")),
            _count(_part(usage, "output_tokens_details").get("thinking_tokens")),
            _count(usage.get("total_tokens")),
        )
    )


def merge_messages(start: Counts | None, delta: Counts | None) -> Counts | None:
    """One answer's usage from both of its reports: `message_delta` counts from the start, so what it states wins."""
    if start is None or delta is None:
        return start if delta is None else delta
    a, b = start, delta
    return (
        a[0] if b[0] is None else b[0],
        a[1] if b[1] is None else b[1],
        a[2] if b[2] is None else b[2],
        a[3] if b[3] is None else b[3],
        a[4] if b[4] is None else b[4],
        a[5] if b[5] is None else b[5],
        a[6] if b[6] is None else b[6],
        a[7] if b[7] is None else b[7],
    )
