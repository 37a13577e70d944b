"""Which price holds for an attempt, and what the attempt cost by it (SPEC 9.3).

The first of these that knows it: an override of `prices.overrides`; the model's row in `models`; the provider's own
figure; a price list. What a subscription or the built-in echo provider served costs nothing, which is known; what
nobody knows has no cost.
"""

from __future__ import annotations

import fnmatch
import ipaddress
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from arbiter.accounting.listed import Listed, PriceList, plain_tier
from arbiter.accounting.model_names import spellings
from arbiter.accounting.prices import MAX_PD, CostSource, cost_pd
from arbiter.config.rates import DAY_MS, Override, Pricing, Rate, rounded
from arbiter.config.snapshot import Provider
from arbiter.model import Usage

# Names come from clients where a provider takes any.
_MOST_KNOWN = 4096
_FREE: Final = Rate(
    input=0, cached_input=0, cache_write_5m=0, cache_write_1h=0, output=0, reasoning=0, audio_input=0, audio_output=0
)


class Quote(msgspec.Struct, frozen=True):
    """A price, and where it comes from: a source of SPEC 9.3, and in words."""

    rate: Rate
    source: CostSource
    label: str


_Day = tuple[tuple[int, ...], tuple[Quote, ...]]
"""When the prices of a model on one day begin, in milliseconds of it, and what they are; none where nobody knows."""
_UNKNOWN: Final[_Day] = ((), ())


class Metered(msgspec.Struct, frozen=True, kw_only=True):
    """What a cost depends on. `models` are the names of the model, the best first; moments are Unix milliseconds."""

    provider: str
    models: tuple[str, ...]
    at_ms: int
    usage: Usage
    service_tier: str | None = None
    provider_cost_pd: int | None = None


class Priced(msgspec.Struct, frozen=True):
    """A verdict. `cost_pd` None: nobody knows. `equivalent_pd`: what a subscription's would have cost otherwise.

    `is_known`: there is a price of the model, which may all the same not cover what was used of it.
    """

    cost_pd: int | None
    source: CostSource
    label: str | None = None
    equivalent_pd: int | None = None
    is_known: bool = False


class Tariff:
    """The prices of one configuration. `lists` are asked in turn; `vendor_at` tells whose API an address is.

    Safe for use by one thread at a time.
    """

    def __init__(
        self,
        pricing: Pricing,
        providers: Mapping[str, Provider],
        lists: Iterable[PriceList],
        vendor_at: Callable[[str], str | None],
    ) -> None:
        self._overrides = pricing.overrides
        self._providers = providers
        self._lists = lists
        self._vendor_at = vendor_at
        self._vendors: dict[str, str | None] = {}
        self._days: dict[tuple[str, str, str | None, int], _Day] = {}

    def rate(self, provider: str, model: str, at_ms: int) -> Rate | None:
        """What the model cost at that moment, at the usual tier; None where nobody knows."""
        quote = self.find(provider, (model,), at_ms)
        return quote.rate if quote is not None else None

    def find(self, provider: str, models: Iterable[str], at_ms: int, service_tier: str | None = None) -> Quote | None:
        """The price that held then. Of several names of a model the first that has a price counts."""
        day, ms = divmod(at_ms, DAY_MS)
        for model in models:
            key = (provider, model, service_tier, day)
            begins, quotes = self._days.get(key) or self._day(*key)
            if len(quotes) > 1:
                quote: Quote | None = quotes[bisect_right(begins, ms) - 1]
            else:
                quote = quotes[0] if quotes else None
            override = self._override(provider, model, at_ms, service_tier) if self._overrides else None
            if override is not None and (quote is not None or override.prices != Rate()):
                return _laid_over(override, quote)
            if quote is not None:
                return quote
        return None

    def window(self, provider: str, model: str, at_ms: int) -> int | None:
        """How many tokens of input the lists say that the model takes; None where they do not."""
        vendor = self.vendor(provider)
        found = self._look_up(vendor, model, "", at_ms // DAY_MS) if vendor is not None else None
        return found[0].max_input if found is not None else None

    def price(self, metered: Metered) -> Priced:
        """What an attempt cost."""
        quote = self.find(metered.provider, metered.models, metered.at_ms, metered.service_tier)
        cost = cost_pd(metered.usage, quote.rate) if quote is not None else None
        theirs = metered.provider_cost_pd
        if theirs is not None and not 0 <= theirs <= MAX_PD:
            theirs = None
        is_known = quote is not None
        known = self._providers.get(metered.provider)
        if known is not None and known.billing == "subscription":
            label = quote.label if quote is not None and cost is not None else None
            return Priced(0, "subscription", label, cost, is_known)
        if quote is not None and cost is not None and (quote.source != "catalog" or theirs is None):
            return Priced(cost, quote.source, quote.label, None, True)
        if theirs is not None:
            return Priced(theirs, "provider", "the provider's own figure", None, is_known)
        return Priced(None, "unpriced", quote.label if quote is not None else None, None, is_known)

    def knows(self, provider: str) -> bool:
        """Whether the configuration has such a provider."""
        return provider in self._providers

    def vendor(self, provider: str) -> str | None:
        """Whose prices hold for a provider; None where nobody's do."""
        if provider not in self._vendors:
            known = self._providers.get(provider)
            self._vendors[provider] = None if known is None else self._vendor(known)
        return self._vendors[provider]

    # ------------------------------------------------------------------ inside

    def _vendor(self, provider: Provider) -> str | None:
        if provider.priced_as is not None:
            return provider.priced_as
        return self._vendor_at(provider.endpoint.url) if is_listed(provider) else None

    def _override(self, provider: str, model: str, at_ms: int, service_tier: str | None) -> Override | None:
        tier = plain_tier(service_tier)
        for one in self._overrides:
            if (
                _is_for(one, provider, model)
                and (one.service_tier is None or plain_tier(one.service_tier) == tier)
                and (one.from_ms is None or at_ms >= one.from_ms)
                and (one.until_ms is None or at_ms < one.until_ms)
            ):
                return one
        return None

    def _day(self, provider: str, model: str, service_tier: str | None, day: int) -> _Day:
        if len(self._days) >= _MOST_KNOWN:
            self._days.clear()
        found = self._days[provider, model, service_tier, day] = self._quotes(provider, model, service_tier, day)
        return found

    def _quotes(self, provider: str, model: str, service_tier: str | None, day: int) -> _Day:
        known = self._providers.get(provider)
        declared = known.rates.get(model) if known is not None else None
        if declared is not None:
            return (0,), (Quote(declared, "model_config", "models"),)
        vendor = self.vendor(provider)
        if known is not None and known.type == "echo" and vendor is None:
            return (0,), (Quote(_FREE, "echo", "the built-in echo provider"),)
        found = self._look_up(vendor, model, plain_tier(service_tier), day) if vendor is not None else None
        if found is None:
            return _UNKNOWN
        listed, label = found
        return listed.begins, tuple([Quote(rate, "catalog", label) for rate in listed.rates])

    def _look_up(self, vendor: str, model: str, tier: str, day: int) -> tuple[Listed, str] | None:
        names = list(spellings(model))
        for prices in self._lists:
            for name in names:
                listed = prices.find(vendor, name, tier, day)
                if listed is not None:
                    return listed, f"{prices.name} {listed.model}{f' ({tier})' if tier else ''}"
        if vendor == "openrouter" and model.endswith(":free"):
            return Listed(f"{vendor}/{model}", (0,), (_FREE,)), f"{vendor} :free"
        return None


def _laid_over(override: Override, quote: Quote | None) -> Quote:
    """What an override leaves of a price, with its own in place."""
    own = override.prices

    def changed(name: str, pd: int | None) -> int | None:
        mine: int | None = getattr(own, name)
        return mine if mine is not None or pd is None else rounded(pd * override.keep, 10**6)

    label = f"override #{override.number}"
    if quote is None:
        return Quote(own, "override", label)
    return Quote(quote.rate.each(changed), "override", f"{label} on {quote.label}")


def charged_pd(usage: Usage, provider: Provider, model: str, overrides: Sequence[Override]) -> int | None:
    """What an answer cost, for whoever has no price lists at hand; None where its row may come to say another sum.

    `model` is the name that the provider was sent. This is `Tariff.price` at the prices that stood when the
    configuration was read: so it says nothing of prices that end, and of service tiers only what the provider itself
    does.
    """
    if provider.billing == "subscription":
        return 0
    mine = [one for one in overrides if _is_for(one, provider.name, model)] if overrides else ()
    for one in mine:
        if one.from_ms is not None or one.until_ms is not None or one.service_tier is not None:
            return None
    rate = provider.rate(model) if not plain_tier(usage.service_tier) else None
    cost = cost_pd(usage, rate) if rate is not None and usage.is_stated else None
    is_own = bool(mine) or model in provider.rates
    if usage.cost_pd is not None and 0 <= usage.cost_pd <= MAX_PD and (cost is None or not is_own):
        return None if is_own and cost is None else usage.cost_pd
    return cost


def _is_for(override: Override, provider: str, model: str) -> bool:
    return fnmatch.fnmatchcase(provider, override.provider) and fnmatch.fnmatchcase(model, override.model)


def is_listed(provider: Provider) -> bool:
    """Whether a price list may know a provider's models: an address of one's own names no vendor."""
    endpoint = provider.endpoint
    if provider.priced_as is not None:
        return True
    if endpoint.scheme == "echo" or endpoint.uds is not None or "." not in endpoint.host:
        return False
    try:
        return ipaddress.ip_address(endpoint.host).is_global
    except ValueError:
        return True
