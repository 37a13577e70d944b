"""Rates as a table for the console."""

from __future__ import annotations

from collections.abc import Iterable

from arbiter.cli.table import number, render, soft
from arbiter.config import units
from arbiter.config.rates import TOKEN_PRICES, Rate

SPARE = {"audio_input": 6, "audio_output": 5, "reasoning": 4, "cache_write_1h": 3, "cache_write_5m": 2}


def price_table(named: Iterable[tuple[str, Rate]]) -> str:
    """Rates under their names, each tier in a line below; rare kinds of prices only where somebody has one."""
    rows = [
        (f"  input above {above:,}" if above else name, tier)
        for name, rate in named
        for above, tier in ((0, rate), *reversed(rate.tiers))
    ]
    usual = ("input", "cached_input", "cache_write_5m", "cache_write_1h", "output")
    kinds = [kind for kind in TOKEN_PRICES if kind in usual or any(getattr(rate, kind) is not None for _, rate in rows)]
    has_fee = any(rate.request for _, rate in rows)
    shown = []
    for name, rate in rows:
        prices = [None if (pd := getattr(rate, kind)) is None else units.price(pd) for kind in kinds]
        shown.append((name, *prices, *([units.written((rate.request or 0) / 10**12)] if has_fee else [])))
    named_kinds = (number(kind.replace("_", " "), spare=SPARE.get(kind, 0)) for kind in kinds)
    return render(
        (soft("model", least=24), *named_kinds, *([number("USD per request", spare=1)] if has_fee else [])), shown
    )
