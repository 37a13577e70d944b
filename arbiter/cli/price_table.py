"""Rates as a table for the console."""

from __future__ import annotations

from collections.abc import Iterable

from arbiter.cli.table import number, render, soft
from arbiter.config import units
from arbiter.config.rates import FEES, TOKEN_PRICES, Rate

SPARE = {
    "request": 1,
    "web_search": 7,
    "audio_input": 6,
    "audio_output": 5,
    "reasoning": 4,
    "cache_write_1h": 3,
    "cache_write_5m": 2,
}


def price_table(named: Iterable[tuple[str, Rate]]) -> str:
    """Rates under their names, each tier in a line below; rare kinds of prices only where somebody has one."""
    rows = [
        (f"  input above {above:,}" if above else name, tier)
        for name, rate in named
        for above, tier in ((0, rate), *reversed(rate.tiers))
    ]
    usual = ("input", "cached_input", "cache_write_5m", "cache_write_1h", "output")
    kinds = [kind for kind in TOKEN_PRICES if kind in usual or any(getattr(rate, kind) is not None for _, rate in rows)]
    fees = [fee for fee in FEES if any(getattr(rate, fee) for _, rate in rows)]
    shown = []
    for name, rate in rows:
        prices = [None if (pd := getattr(rate, kind)) is None else units.price(pd) for kind in kinds]
        extra = [None if (pd := getattr(rate, fee)) is None else units.written(pd / 10**12) for fee in fees]
        shown.append((name, *prices, *extra))
    columns = [number(kind.replace("_", " "), spare=SPARE.get(kind, 0)) for kind in kinds]
    columns += [number(f"USD per {fee.replace('_', ' ')}", spare=SPARE[fee]) for fee in fees]
    return render((soft("model", least=24), *columns), shown)
