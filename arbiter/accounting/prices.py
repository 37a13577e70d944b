"""What an attempt cost: its tokens times the prices of its model, in integers.

No price is derived from another: a model without a price for cached input leaves a call that read from the cache
unpriced, and an unpriced call costs nobody knows what, which is not nothing (SPEC 9.3).
"""

from __future__ import annotations

from typing import Final, Literal

from arbiter.config.rates import Rate
from arbiter.model import Usage

CostSource = Literal[
    "override", "model_config", "provider", "catalog", "subscription", "reconciled", "echo", "unpriced"
]  # SPEC 9.3
STATED: Final = ("provider", "reconciled", "subscription", "echo")
"""Sources whose money is known by itself, and does not depend on what was counted."""
MAX_PD = 2**63 - 1  # what a store's column holds: nine million dollars


def cost_pd(usage: Usage, rate: Rate) -> int | None:
    """Return the cost of one attempt; None where a count or a price that it depends on is unknown.

    Units: picodollars. A rate is in picodollars per token, so this is exact.
    Shapes: cached input costs its own price, once; cache writes whose lifetime nobody stated cost as those for five
    minutes; reasoning and audio cost their own price where there is one, else that of what they are a part of. A cache
    of which nothing was reported was not used, and so it is with reasoning and audio.
    """
    read, written, hour = usage.cache_read or 0, usage.cache_write or 0, usage.cache_write_1h or 0
    if hour > written:
        hour = written
    if rate.tiers:
        if usage.input is None:
            return None
        whole = usage.input + read + written
        for above, tier in rate.tiers:
            if whole > above:
                rate = tier
                break
    total = rate.request or 0
    if usage.web_searches:
        # One whose price nobody knows adds nothing: what the tokens cost is known all the same (docs/ledger.md).
        total += usage.web_searches * (rate.web_search or 0)
    plain, made = usage.input, usage.output
    apart: list[tuple[int, int | None]] = []
    if read:
        if rate.cached_input is None:
            return None
        total += read * rate.cached_input
    if written > hour:
        if rate.cache_write_5m is None:
            return None
        total += (written - hour) * rate.cache_write_5m
    if hour:
        if rate.cache_write_1h is None:
            return None
        total += hour * rate.cache_write_1h
    if usage.audio_input or usage.audio_output or usage.reasoning:
        heard = _part(usage.audio_input, plain, rate.audio_input)
        spoken = _part(usage.audio_output, made, rate.audio_output)
        thought = _part(usage.reasoning, made, rate.reasoning, spoken)
        plain, made = plain and plain - heard, made and made - spoken - thought
        apart += ((heard, rate.audio_input), (spoken, rate.audio_output), (thought, rate.reasoning))
    for count, price in ((plain, rate.input), (made, rate.output), *apart):
        if count and price:
            total += count * price
        elif count != 0 and price != 0:  # one of them is unknown
            return None
    return total if total <= MAX_PD else None


def _part(count: int | None, whole: int | None, price: int | None, taken: int = 0) -> int:
    """How many tokens of `whole` are priced apart, where `taken` of them are so already."""
    return min(count, whole - taken) if count and whole and price is not None else 0
