"""A provider's usage object, read once into one convention (SPEC 9.1).

The tuple is (input, cache_read, cache_write, cache_write_5m, cache_write_1h, output, reasoning, total, audio_input,
audio_output, web_searches, cost_pd, service_tier). `input` excludes cache reads and writes: OpenAI-style
`prompt_tokens` include them and are reduced, Anthropic's `input_tokens` stand beside them. A count that nobody stated
is None, never 0; so is one that cannot be (negative, a fraction, text).

`cache_write` is the whole of the writes; the two after it are its parts by lifetime, where the provider splits them.
`reasoning` is a part of `output`, `audio_input` of all input, `audio_output` of `output`. `total` is what was stated,
never a sum of ours. `web_searches` are those that the provider ran itself. `cost_pd` is what the provider says that the
answer cost.

Source: FEATURES D.5, and the shapes in tests/vectors/usage.
"""

from __future__ import annotations

import json
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any

import msgspec

from arbiter._speedups.py.reduce import MAX_TOKENS, check_size, refuse

Count = int | None
Counts = tuple[Count, Count, Count, Count, Count, Count, Count, Count, Count, Count, Count, Count, str | None]

MAX_PD = 2**63 - 1  # what a store's column holds: nine million dollars
MAX_TIER_CHARS = 64
PD_PER_TICK = 100  # xAI counts in ticks of 1e-10 dollars


class Number(str):
    """A number with a fraction or an exponent, as it was written: a price has more digits than a float keeps."""

    __slots__ = ()


_EXACT = msgspec.json.Decoder(float_hook=Number)
_TOLERANT = json.JSONDecoder(parse_float=Number, parse_constant=refuse)
_LENIENT = Context(prec=40, traps=[])


def _count(value: object) -> int | None:
    """A count of tokens. JSON writers of other languages send whole numbers as 12.0."""
    if isinstance(value, Number):
        number = float(value)
        value = int(number) if number.is_integer() else None
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TOKENS:
        return value
    return None


def picodollars(value: object) -> int | None:
    """An amount of dollars, exactly, and rounded below a picodollar. None for what is no amount, or a negative one."""
    if isinstance(value, bool) or not isinstance(value, int | Number):
        return None
    dollars = Decimal(value, _LENIENT)
    if not dollars.is_finite() or dollars < 0 or (dollars and dollars.adjusted() > 7):
        return None  # the last: beyond what a column holds, and nothing that ought to be written out
    if dollars.adjusted() < -13:
        return 0
    amount = int(dollars.scaleb(12, _LENIENT).to_integral_value(ROUND_HALF_EVEN, _LENIENT)) if dollars else 0
    return amount if amount <= MAX_PD else None


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
        check_size(raw)
        value = _decoded(raw)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _decoded(raw: bytes) -> Any:
    try:
        return _EXACT.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        pass
    try:
        return _TOLERANT.decode(raw.decode())
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _known(counts: Counts) -> Counts | None:
    return counts if any(count is not None for count in counts) else None


def _cost(usage: dict[str, Any]) -> int | None:
    """What the provider says it cost.

    Shapes: OpenRouter's `cost`, which for a caller with a key of its own is the fee alone, the inference beside it;
    Perplexity's `cost.total_cost`, xAI's `cost_in_usd_ticks`, DeepInfra's `estimated_cost`, from which it bills.
    """
    cost = picodollars(usage.get("cost"))
    if cost is None:
        cost = picodollars(_part(usage, "cost").get("total_cost"))
    inference = picodollars(_part(usage, "cost_details").get("upstream_inference_cost"))
    if cost is None:
        cost = inference
    elif inference is not None and usage.get("is_byok") is True:
        cost = min(cost + inference, MAX_PD)
    if cost is None:
        ticks = _count(usage.get("cost_in_usd_ticks"))
        cost = ticks * PD_PER_TICK if ticks is not None else picodollars(usage.get("estimated_cost"))
    return cost


def _searches(usage: dict[str, Any]) -> int | None:
    """Shapes: Anthropic's `server_tool_use`, which OpenRouter has too; Perplexity's `num_search_queries`."""
    return _first(_part(usage, "server_tool_use").get("web_search_requests"), usage.get("num_search_queries"))


def _tier(usage: dict[str, Any]) -> str | None:
    tier = usage.get("service_tier")
    return tier if isinstance(tier, str) and 0 < len(tier) <= MAX_TIER_CHARS and tier.isascii() else None


def chat(raw: bytes) -> Counts | None:
    """Read the `usage` of a chat answer or chunk. None where it states nothing at all.

    Shapes: OpenAI and its followers (details may be null or absent), DeepSeek's `prompt_cache_hit_tokens`, and servers
    that answer a chat with Anthropic's names. Where a server's counts follow another convention, its own total tells.
    """
    usage = _members(raw)
    prompt = _count(usage.get("prompt_tokens"))
    if prompt is None and _count(usage.get("completion_tokens")) is None:
        return _messages(usage)
    return _inclusive(
        usage,
        prompt,
        _count(usage.get("completion_tokens")),
        _part(usage, "prompt_tokens_details"),
        _part(usage, "completion_tokens_details"),
    )


def responses(raw: bytes) -> Counts | None:
    """Read the `usage` of a Responses answer. None where it states nothing at all.

    Shapes: its `input_tokens` hold what was cached, as a chat's `prompt_tokens` do and Anthropic's of that name do not.
    A server that answers with a chat's names is read as one.
    """
    usage = _members(raw)
    prompt, output = _count(usage.get("input_tokens")), _count(usage.get("output_tokens"))
    if prompt is None and output is None:
        return chat(raw)
    return _inclusive(
        usage, prompt, output, _part(usage, "input_tokens_details"), _part(usage, "output_tokens_details")
    )


def _inclusive(
    usage: dict[str, Any], prompt: int | None, output: int | None, details: dict[str, Any], parts: dict[str, Any]
) -> Counts | None:
    """The counts of a usage whose input holds what was cached; `details` are of its input, `parts` of its output."""
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
    cached = (cache_read or 0) + (cache_write or 0)
    rest = None if prompt is None else prompt - cached
    reasoning = _first(parts.get("reasoning_tokens"), usage.get("reasoning_tokens"))
    total = _count(usage.get("total_tokens"))
    if output is not None and reasoning is not None and reasoning > output:
        output += reasoning  # Perplexity: what is more than the whole is no part of it
    elif prompt is not None and output is not None and total is not None and total > prompt + output:
        beyond = total - prompt - output
        if beyond == reasoning:
            output += beyond  # xAI states the two beside each other
        elif beyond == cached:
            rest = prompt  # as Anthropic counts, under OpenAI's names
        elif reasoning is None:
            output += beyond  # Gemini: thoughts are in its total, and nowhere else
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
            _count(details.get("audio_tokens")),
            _count(parts.get("audio_tokens")),
            _searches(usage),
            _cost(usage),
            _tier(usage),
        )
    )


def messages(raw: bytes) -> Counts | None:
    """Read the `usage` of an Anthropic answer, of `message_start` or `message_delta`. None where it states nothing."""
    return _messages(_members(raw))


def _messages(usage: dict[str, Any]) -> Counts | None:
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
            None,
            None,
            _searches(usage),
            _cost(usage),
            _tier(usage),
        )
    )


def merge_messages(start: Counts | None, delta: Counts | None) -> Counts | None:
    """One answer's usage from both of its reports: `message_delta` counts from the start, so what it states wins."""
    if start is None or delta is None:
        return start if delta is None else delta
    return tuple([old if new is None else new for old, new in zip(start, delta, strict=True)])  # type: ignore[return-value]


def gemini(raw: bytes) -> Counts | None:
    """Read the `usageMetadata` of a Gemini answer or chunk. None where it states nothing.

    Shapes: the prompt holds what was cached; what a tool of Google's fed back is input beside it. Thoughts are output
    beside what was said, and where the total says that they are in there, they are not counted twice. Of counts by kind
    only sound matters. Vertex tells the tier as a kind of traffic.
    """
    usage = _members(raw)
    prompt, said = _count(usage.get("promptTokenCount")), _count(usage.get("candidatesTokenCount"))
    cache_read = _count(usage.get("cachedContentTokenCount"))
    fed_back = _count(usage.get("toolUsePromptTokenCount"))
    reasoning, total = _count(usage.get("thoughtsTokenCount")), _count(usage.get("totalTokenCount"))
    rest = None if prompt is None else prompt + (fed_back or 0) - (cache_read or 0)
    output = said
    if reasoning is not None:
        is_within = said is not None and reasoning <= said and total == (prompt or 0) + (fed_back or 0) + said
        output = said if is_within and reasoning else (said or 0) + reasoning
    return _known(
        (
            None if rest is None or rest < 0 else rest,
            cache_read,
            None,
            None,
            None,
            output,
            reasoning,
            total,
            _sound(usage.get("promptTokensDetails")),
            _sound(usage.get("candidatesTokensDetails")),
            None,
            None,
            _googles_tier(usage),
        )
    )


_TRAFFIC = {"ON_DEMAND_PRIORITY": "priority", "ON_DEMAND_FLEX": "flex"}


def _googles_tier(usage: dict[str, Any]) -> str | None:
    tier = usage.get("serviceTier")
    if isinstance(tier, str) and tier.lower() in ("flex", "priority", "standard"):
        return tier.lower()
    traffic = usage.get("trafficType")
    return _TRAFFIC.get(traffic) if isinstance(traffic, str) else None


def _sound(details: object) -> int | None:
    """Tokens of sound in counts by kind: `[{"modality": "AUDIO", "tokenCount": 5}, ...]`."""
    for one in details if isinstance(details, list) else ():
        if isinstance(one, dict) and one.get("modality") == "AUDIO":
            return _count(one.get("tokenCount"))
    return None
