"""What a price list says of a model: its rates on one day, each from a time of that day on, and its window."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

import msgspec

from arbiter.config.rates import Rate

# A tier that a list does not name costs something else than the usual, and nobody knows what.
_USUAL_TIERS = frozenset({"", "default", "standard", "auto", "on_demand", "scale"})


class Listed(msgspec.Struct, frozen=True):
    """One model's prices on one day. `begins` are the milliseconds of that day at which each of `rates` begins."""

    model: str  # by the list's own name, with its vendor: anthropic/claude-sonnet-4-5
    begins: tuple[int, ...]
    rates: tuple[Rate, ...]
    max_input: int | None = None  # tokens; None where the list does not say


class PriceList(Protocol):
    """Prices by vendor and model. Vendors are named as genai-prices names them."""

    @property
    def name(self) -> str:
        """The list and its version, for whoever asks where a price came from."""

    def find(self, vendor: str, model: str, tier: str, day: int) -> Listed | None:
        """The prices of a model on one day (days since 1970), asked for by exactly this name."""

    def __len__(self) -> int: ...


def plain_tier(service_tier: str | None) -> str:
    """The service tier that has prices of its own; "" for the usual one, whatever it is called."""
    if service_tier is None or service_tier in _USUAL_TIERS:
        return ""
    tier = service_tier.lower()
    return "" if tier in _USUAL_TIERS else tier


class FlatList:
    """A list of prices that hold at all times: by (vendor, model), and by service tier below that. `windows` are the
    tokens of input that models take."""

    def __init__(
        self,
        name: str,
        rates: Mapping[tuple[str, str], Mapping[str, Rate]],
        windows: Mapping[tuple[str, str], int] = MappingProxyType({}),
    ) -> None:
        self.name = name
        self._rates = rates
        self._windows = windows

    def find(self, vendor: str, model: str, tier: str, day: int) -> Listed | None:
        key = vendor, model.lower()
        rate = self._rates.get(key, {}).get(tier)
        return None if rate is None else Listed("/".join(key), (0,), (rate,), self._windows.get(key))

    def __len__(self) -> int:
        return len(self._rates)
