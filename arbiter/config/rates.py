"""What models cost and can do, as the configuration knows it: rates, cards, and where other prices come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote_plus, urlsplit

DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Card:
    """What the catalog knows of a model. None: unknown, which is neither yes nor no."""

    max_input: int | None = None  # tokens
    latency_ms_p50: float | None = None
    input_modalities: tuple[str, ...] | None = None
    metadata: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Rate:
    """What a model's tokens cost.

    Units: picodollars per token, `request` per request, `web_search` per search that the provider ran. $3 per million
    tokens is 3_000_000. None: no price is known, which is not 0; but of `reasoning`, `audio_input` and `audio_output`
    that they have none of their own and cost what other output or input does, of `request` that there is no fee, and
    what a `web_search` costs is not counted.
    Shapes: `tiers`, highest first, hold this for requests with more input than that; the first that fits is used alone.
    """

    input: int | None = None
    cached_input: int | None = None
    cache_write_5m: int | None = None
    cache_write_1h: int | None = None
    output: int | None = None
    reasoning: int | None = None
    audio_input: int | None = None
    audio_output: int | None = None
    request: int | None = None
    web_search: int | None = None
    tiers: tuple[tuple[int, Rate], ...] = ()

    def items(self) -> Iterator[tuple[str, int | None]]:
        """Each price of tokens by its name, without tiers."""
        for name in TOKEN_PRICES:
            yield name, getattr(self, name)

    def each(self, change: Callable[[str, int | None], int | None]) -> Rate:
        """The rate with every price, those of its tiers and the fee too, changed by (name, price)."""
        prices: dict[str, Any] = {name: change(name, getattr(self, name)) for name in (*TOKEN_PRICES, *FEES)}
        return replace(self, tiers=tuple((above, tier.each(change)) for above, tier in self.tiers), **prices)


TOKEN_PRICES = (
    "input",
    "cached_input",
    "cache_write_5m",
    "cache_write_1h",
    "output",
    "reasoning",
    "audio_input",
    "audio_output",
)


FEES = ("request", "web_search")


class Known(NamedTuple):
    """What others know of a model: its price now, and how many tokens of input it takes; None: not known."""

    rate: Rate | None = None
    max_input: int | None = None


def rounded(number: int | Decimal, divisor: int = 1) -> int:
    """The nearest whole picodollar; of two that are as near, the even one."""
    return int((Decimal(number) / divisor).to_integral_value(ROUND_HALF_EVEN))


@dataclass(frozen=True, slots=True)
class Override:
    """Prices of the operator's own, laid over what is known of a model otherwise.

    `prices` replaces what it names, `keep` is what is left of all others after a discount, in millionths. `provider`
    and `model` match as in a shell. It holds from `from_ms` until just before `until_ms`; None is no limit.
    """

    number: int  # its place in the file, from 1
    provider: str
    model: str
    service_tier: str | None
    from_ms: int | None
    until_ms: int | None
    prices: Rate
    keep: int = 1_000_000


@dataclass(frozen=True, slots=True)
class Prepaid:
    """Money that a provider (or one of its accounts) was paid in advance, since `since_ms`."""

    provider: str
    account: str | None
    balance_pd: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class Pricing:
    """Where prices come from beside the catalog's rows.

    `source` is a price file that takes the place of the release's own prices; `stored` is where one that was imported
    or fetched is kept. `refresh_s` 0: nothing is ever fetched.
    """

    stored: Path = Path("data/prices.json")
    source: Path | None = None
    refresh_s: float = 0.0
    refresh_url: str = field(default="", repr=False)  # its query may hold a token
    max_age_s: float = 0.0
    overrides: tuple[Override, ...] = ()
    prepaid: tuple[Prepaid, ...] = ()

    @property
    def refresh_from(self) -> str:
        """`refresh_url` for people: without its query."""
        return self.refresh_url.partition("?")[0]

    def secrets(self) -> Iterator[str]:
        """What stands in the query of `refresh_url`, as it is sent and as it is meant."""
        for part in urlsplit(self.refresh_url).query.split("&"):
            written = part.partition("=")[2] or part
            yield from (written, unquote_plus(written))
