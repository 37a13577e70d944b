"""What an attempt costs: exact, each token once, and unknown rather than guessed."""

from __future__ import annotations

from decimal import Decimal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbiter.accounting.prices import MAX_PD, cost_pd
from arbiter.config import units
from arbiter.config.rates import Rate
from arbiter.model import Usage


def rate(**usd_per_mtok: str) -> Rate:
    """A rate as the configuration reads it."""
    return Rate(**{name: units.price_pd(text) for name, text in usd_per_mtok.items()})


SONNET = rate(input="3", cached_input="0.30", cache_write_5m="3.75", cache_write_1h="6", output="15")
USD = 10**12


def test_three_dollars_per_million_tokens_are_three_dollars() -> None:
    """STYLE 8: a rate is picodollars per token, so a cost is a sum of products of integers."""
    assert cost_pd(Usage(input=1_000_000, output=0), SONNET) == 3 * USD
    assert cost_pd(Usage(input=1, output=0), rate(input="0.075", output="1")) == 75_000
    assert cost_pd(Usage(input=1, output=0), rate(input="0.000001", output="1")) == 1


TOKENS = st.integers(0, 10**9)
TEXTS = st.decimals("0", "100000", places=6).map(lambda price: f"{price:f}")


@given(counts=st.tuples(TOKENS, TOKENS, TOKENS, TOKENS), prices=st.tuples(TEXTS, TEXTS, TEXTS, TEXTS))
def test_no_digit_of_a_price_is_lost(counts: tuple[int, ...], prices: tuple[str, ...]) -> None:
    """The integer is what arbitrary precision says; beyond what a store can hold it is unknown."""
    counted = Usage(input=counts[0], cache_read=counts[1], cache_write=counts[2], output=counts[3])
    priced = rate(input=prices[0], cached_input=prices[1], cache_write_5m=prices[2], output=prices[3])
    exact = sum(count * Decimal(price) * 10**6 for count, price in zip(counts, prices, strict=True))
    assert cost_pd(counted, priced) == (exact if exact <= MAX_PD else None)


def test_cached_input_costs_its_own_price_once() -> None:
    """`input` is without what came from the cache already (SPEC 9.1): 86 at $2, 1920 at $0.50, 300 at $8."""
    counted = Usage(input=86, cache_read=1920, output=300)
    assert cost_pd(counted, rate(input="2", cached_input="0.5", output="8")) == 3_532_000_000


def test_cache_writes_are_split_by_their_lifetime() -> None:
    counted = Usage(input=1000, cache_read=0, cache_write=1_000_000, cache_write_1h=600_000, output=100)
    assert cost_pd(counted, SONNET) == 5_104_500_000_000


@pytest.mark.parametrize(
    ("split", "cost"),
    [
        ({}, 10 * 3_750_000),
        ({"cache_write_1h": 4}, 6 * 3_750_000 + 4 * 6_000_000),
        ({"cache_write_1h": 99}, 10 * 6_000_000),  # a part is never more than the whole
    ],
)
def test_writes_of_no_stated_lifetime_cost_as_those_for_five_minutes(split: dict[str, int], cost: int) -> None:
    assert cost_pd(Usage(input=0, cache_write=10, output=0, **split), SONNET) == cost


def test_reasoning_is_a_part_of_the_output() -> None:
    with_reasoning = Usage(input=5, output=100, reasoning=90)
    assert cost_pd(with_reasoning, SONNET) == cost_pd(Usage(input=5, output=100), SONNET) == 1_515_000_000


@pytest.mark.parametrize("unknown", ["input", "output"])
def test_a_count_that_is_needed_and_unknown_makes_the_cost_unknown(unknown: str) -> None:
    """A free kind of token is the exception: however many there were, they cost nothing."""
    counted = msgspec.structs.replace(Usage(input=10, output=20), **{unknown: None})
    assert cost_pd(counted, rate(input="1", output="2")) is None
    free = rate(**{"input": "1", "output": "2", unknown: "0"})
    assert cost_pd(counted, free) == (10_000_000 if unknown == "output" else 40_000_000)


def test_a_cache_nobody_spoke_of_was_not_used() -> None:
    """Most servers say nothing of a cache; their prompt is priced whole."""
    assert cost_pd(Usage(input=10, output=20), SONNET) == 330_000_000


@pytest.mark.parametrize("missing", ["input", "cached_input", "cache_write_5m", "cache_write_1h", "output"])
def test_a_price_that_is_needed_and_unknown_makes_the_cost_unknown(missing: str) -> None:
    """No price is derived from another, and one that is not needed is not missed."""
    partly = Rate(**{**dict(SONNET.items()), missing: None})
    member = {"cached_input": "cache_read", "cache_write_5m": "cache_write"}.get(missing, missing)
    used = Usage(input=1, cache_read=1, cache_write=2, cache_write_1h=1, output=1)
    unused = msgspec.structs.replace(used, **{member: 1 if missing == "cache_write_5m" else 0})
    assert cost_pd(used, partly) is None
    assert cost_pd(unused, partly) == cost_pd(unused, SONNET) is not None


def test_a_tier_replaces_every_price_once_all_input_is_above_its_limit() -> None:
    """Input, cache reads and cache writes count together; the highest tier that fits is used, alone."""
    long = rate(input="6", cached_input="0.60", cache_write_5m="7.50", cache_write_1h="12", output="22.50")
    huge = rate(input="60", output="225")
    tiered = Rate(**dict(SONNET.items()), tiers=((1_000_000, huge), (200_000, long)))  # type: ignore[arg-type]
    at = Usage(input=100_000, cache_read=60_000, cache_write=40_000, output=10)
    above = msgspec.structs.replace(at, cache_read=60_001)
    assert cost_pd(at, tiered) == cost_pd(at, SONNET)
    assert cost_pd(above, tiered) == cost_pd(above, long) != cost_pd(above, SONNET)
    assert cost_pd(Usage(input=1_000_001, output=1), tiered) == 1_000_001 * 60_000_000 + 225_000_000
    # The tier names no price for cached input, and the row's own is another one's.
    assert cost_pd(Usage(input=1_000_001, cache_read=1, output=1), tiered) is None
    # Nobody knows which tier it was.
    assert cost_pd(Usage(output=1), tiered) is None


def test_reasoning_and_audio_cost_their_own_prices_where_they_have_any() -> None:
    """Each token once: what is priced apart is no longer priced as what it is a part of."""
    apart = rate(input="1", output="10", reasoning="3", audio_input="40", audio_output="80")
    used = Usage(input=100, output=50, reasoning=20, audio_input=30, audio_output=10)
    assert cost_pd(used, apart) == (70 * 1 + 30 * 40 + 20 * 10 + 10 * 80 + 20 * 3) * 10**6
    assert cost_pd(used, rate(input="1", output="10")) == (100 * 1 + 50 * 10) * 10**6
    # A part is never more than the whole, whatever was reported.
    more = Usage(input=10, output=10, reasoning=9, audio_input=99, audio_output=8)
    assert cost_pd(more, apart) == (10 * 40 + 8 * 80 + 2 * 3) * 10**6


def test_each_search_costs_its_fee_and_one_of_no_known_price_adds_nothing() -> None:
    """Beside the tokens, in every tier; a price of 0 is a price."""
    usage = Usage(input=10, output=1, web_searches=3)
    rate = Rate(input=2, output=3, web_search=10**10, tiers=((5, Rate(input=4, output=3, web_search=10**9)),))
    assert cost_pd(usage, rate) == 10 * 4 + 3 + 3 * 10**9
    assert cost_pd(usage, Rate(input=2, output=3)) == cost_pd(usage, Rate(input=2, output=3, web_search=0)) == 23
    assert cost_pd(Usage(input=10, output=1), Rate(input=2, output=3, web_search=10**10)) == 23


def test_a_fee_is_paid_once_for_each_request_and_in_every_tier() -> None:
    fee = 10**10
    tiered = Rate(input=1, output=1, request=fee, tiers=((10, Rate(input=2, output=2, request=fee)),))
    assert cost_pd(Usage(input=10, output=1), tiered) == 11 + fee
    assert cost_pd(Usage(input=11, output=1), tiered) == 24 + fee
    assert cost_pd(Usage(input=0, output=0), tiered) == fee
