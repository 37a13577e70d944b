"""What an attempt cost: its tokens times the prices of its model, in integers.

No price is derived from another: a model without a price for cached input leaves a call that read from the cache
unpriced, and an unpriced call costs nobody knows what, which is not nothing (SPEC 9.3).
"""

from __future__ import annotations

from arbiter.config.snapshot import Rate
from arbiter.model import Usage

MODEL_CONFIG = "model_config"  # the prices stand in the configuration's `models`
UNPRICED = "unpriced"  # tokens were used, and nobody knows for how much
MAX_PD = 2**63 - 1  # what a store's column holds: nine million dollars


def cost_pd(usage: Usage, rate: Rate) -> int | None:
    """Return the cost of one attempt; None where a count or a price that it depends on is unknown.

    Units: picodollars. A rate is in picodollars per token, so this is exact.
    Shapes: cached input costs its own price, once; cache writes whose lifetime nobody stated cost as those for five
    minutes; reasoning is a part of the output. A cache of which nothing was reported was not used.
    """
    read, written = usage.cache_read or 0, usage.cache_write or 0
    hour = min(usage.cache_write_1h or 0, written)
    if rate.tiers:
        if usage.input is None:
            return None
        whole = usage.input + read + written
        rate = next((tier for above, tier in rate.tiers if whole > above), rate)
    total = 0
    for count, price in (
        (usage.input, rate.input),
        (read, rate.cached_input),
        (written - hour, rate.cache_write_5m),
        (hour, rate.cache_write_1h),
        (usage.output, rate.output),
    ):
        if count == 0 or price == 0:
            continue
        if count is None or price is None:
            return None
        total += count * price
    return total if total <= MAX_PD else None
