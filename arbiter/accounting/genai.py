"""The prices of genai-prices: those that come with the release, or newer ones of the same shape.

Its own arithmetic takes 71 µs a call. We ask it which prices hold, once a day for each model, and multiply ourselves.
Its tokens are inclusive (input holds what was cached), which matters to whoever counts and not to who reads prices.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from functools import cache
from typing import Any

import genai_prices
from genai_prices.types import (
    ModelInfo,
    ModelPrice,
    PriceVariant,
    Provider,
    StartDateConstraint,
    TieredPrices,
    TimeOfDateConstraint,
)

from arbiter.accounting.listed import Listed
from arbiter.config.rates import DAY_MS, Rate, rounded
from arbiter.config.units import HIGHEST_FEE_PD, HIGHEST_PD

_PRICES = {
    "input": "input_mtok",
    "cached_input": "cache_read_mtok",
    "cache_write_5m": "cache_write_5m_mtok",
    "cache_write_1h": "cache_write_1h_mtok",
    "output": "output_mtok",
    "reasoning": "output_reasoning_mtok",
    "audio_input": "input_audio_mtok",
    "audio_output": "output_audio_mtok",
}
_FEES = {"request": "requests_kcount", "web_search": "web_searches_kcount"}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class GenaiPrices:
    """A `PriceList` over its providers."""

    def __init__(self, providers: list[Provider], name: str) -> None:
        self.name = name
        self._providers = providers
        self._by_id = {provider.id: provider for provider in providers}

    def find(self, vendor: str, model: str, tier: str, day: int) -> Listed | None:
        provider = self._by_id.get(vendor)
        info = provider.find_model(model.lower(), all_providers=self._providers) if provider is not None else None
        if info is None:
            return None
        context, midnight = _context(tier), _EPOCH + datetime.timedelta(days=day)
        if tier and not any(_fits(variant, context, midnight) for variant in info.price_variants or ()):
            return None
        begins = _turns(info)
        moments = [midnight + datetime.timedelta(milliseconds=begin) for begin in begins]
        rates = tuple(_rate(info.get_prices(moment, context)) for moment in moments)
        return Listed(f"{vendor}/{info.id}", tuple(begins), rates, info.context_window)

    def vendor(self, url: str) -> str | None:
        """Whose API lives at this address."""
        return next((provider.id for provider in self._providers if re.match(provider.api_pattern, url)), None)

    def vendors(self) -> Iterable[str]:
        return self._by_id

    def newest(self, known: datetime.date) -> datetime.date | None:
        """The latest change of a price that it dates, up to the day on which it was `known`: it is no older than that.
        What it dates later was scheduled, and says nothing of its age when that day has come."""
        dates = [
            condition.constraint.start_date
            for provider in self._providers
            for model in provider.models
            for condition in (model.prices if isinstance(model.prices, list) else ())
            if isinstance(condition.constraint, StartDateConstraint)
        ]
        return max((date for date in dates if date <= known), default=None)

    def __len__(self) -> int:
        return sum(len(provider.models) for provider in self._providers)


@cache
def packaged() -> GenaiPrices:
    """Those of the release."""
    from genai_prices.data import providers

    return GenaiPrices(providers, f"genai-prices {genai_prices.__version__}")


def parsed(raw: list[Any], name: str) -> GenaiPrices:
    """Those of its data file, as JSON holds it. Errors: ValueError."""
    from genai_prices.types import _providers_from_raw  # its own way in is to fetch the file itself

    return GenaiPrices(_providers_from_raw(raw), name)


def _context(tier: str) -> dict[str, str]:
    """What its variants of a price ask for, of what a service tier can tell."""
    if not tier:
        return {"service_tier": "default", "processing": "standard", "speed": "standard"}
    return {
        "service_tier": tier,
        "processing": "batch" if tier == "batch" else "standard",
        "speed": "fast" if tier == "fast" else "standard",
    }


def _fits(variant: PriceVariant, context: dict[str, str], at: datetime.datetime) -> bool:
    holds = not isinstance(variant.constraint, StartDateConstraint) or variant.constraint.active(at)
    return holds and all(context.get(key) == value for key, value in variant.when.items())


def _turns(info: ModelInfo) -> list[int]:
    """The milliseconds of a day at which prices may change; the first is midnight."""
    conditions = [one.constraint for one in info.prices] if isinstance(info.prices, list) else []
    conditions += [variant.constraint for variant in info.price_variants or ()]
    turns = {0}
    for constraint in conditions:
        if isinstance(constraint, TimeOfDateConstraint):
            turns |= {_ms_of_day(constraint.start_time), _ms_of_day(constraint.end_time)}
    return sorted(turns)


def _ms_of_day(moment: datetime.time) -> int:
    offset = moment.utcoffset() or datetime.timedelta()
    since = datetime.timedelta(hours=moment.hour, minutes=moment.minute, seconds=moment.second) - offset
    return int(since.total_seconds() * 1000) % DAY_MS


def _rate(prices: ModelPrice) -> Rate:
    written = {name: getattr(prices, key) for name, key in _PRICES.items()}
    # One price for all writes is that of those for five minutes, unless a lifetime has its own.
    if written["cache_write_5m"] is None:
        written["cache_write_5m"] = prices.cache_write_mtok
    fees: dict[str, Any] = {name: _fee(getattr(prices, key)) for name, key in _FEES.items()}
    limits = sorted(
        {tier.start for price in written.values() if isinstance(price, TieredPrices) for tier in price.tiers}
    )
    base, *tiers = [_at(written, fees, limit) for limit in (-1, *limits)]
    return replace(base, tiers=tuple(sorted(zip(limits, tiers, strict=True), reverse=True)))


def _at(written: dict[str, Any], fees: dict[str, Any], above: int) -> Rate:
    """The prices of one tier."""
    prices: dict[str, Any] = {name: _pd(price, above) for name, price in written.items()}
    return Rate(**prices, **fees)


def _fee(kcount: object) -> int | None:
    """Picodollars for one, from dollars for a thousand; None also for what is no price."""
    is_one = isinstance(kcount, Decimal) and 0 <= kcount <= HIGHEST_FEE_PD // 10**9
    return rounded(kcount * 10**9) if is_one else None  # type: ignore[operator]


def _pd(price: Decimal | TieredPrices | None, above: int) -> int | None:
    """Picodollars per token, for input above a limit of tiers; None also for what is no price."""
    if isinstance(price, TieredPrices):
        steps = [tier.price for tier in price.tiers if tier.start <= above]
        price = steps[-1] if steps else price.base
    return None if price is None or not 0 <= price <= HIGHEST_PD // 10**6 else rounded(price * 10**6)
