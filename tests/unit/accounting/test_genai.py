"""The release's own prices: our integers are what genai-prices itself calculates."""

from __future__ import annotations

import datetime
from bisect import bisect_right
from decimal import Decimal

import genai_prices
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbiter.accounting import genai
from arbiter.accounting.prices import cost_pd
from arbiter.config.rates import DAY_MS, Rate
from arbiter.model import Usage

AT = datetime.datetime(2026, 11, 20, 3, 30, tzinfo=datetime.UTC)
AT_MS = int(AT.timestamp() * 1000)


def rate(vendor: str, model: str, tier: str = "", at: datetime.datetime = AT) -> Rate | None:
    at_ms = int(at.timestamp() * 1000)
    listed = genai.packaged().find(vendor, model, tier, at_ms // DAY_MS)
    return None if listed is None else listed.rates[bisect_right(listed.begins, at_ms % DAY_MS) - 1]


COUNTS = st.integers(0, 400_000)


@pytest.mark.parametrize(
    ("vendor", "model", "tier"),
    [
        ("anthropic", "claude-sonnet-4-5-20250929", ""),
        ("anthropic", "claude-haiku-5-5", ""),
        ("anthropic", "claude-fable-5-2", "fast"),
        ("anthropic", "claude-haiku-4-5", "batch"),
        ("deepseek", "deepseek-v4-pro", ""),
    ],
)
@given(fresh=COUNTS, read=COUNTS, minutes=COUNTS, hour=COUNTS, output=COUNTS, searches=st.integers(0, 9))
def test_the_same_tokens_cost_what_genai_prices_says(
    vendor: str, model: str, tier: str, fresh: int, read: int, minutes: int, hour: int, output: int, searches: int
) -> None:
    """Tiers, cache writes of both lifetimes, searches, times of day, batch and fast: to the picodollar."""
    found = rate(vendor, model, tier)
    assert found is not None
    if found.cache_write_1h is None:
        minutes = hour = 0
    used = Usage(
        input=fresh,
        cache_read=read,
        cache_write=minutes + hour,
        cache_write_1h=hour,
        output=output,
        web_searches=searches,
    )
    context = {"batch": {"processing": "batch"}, "fast": {"speed": "fast"}}.get(tier)
    theirs = genai_prices.calc_price(
        genai_prices.Usage(
            input_tokens=fresh + read + minutes + hour,
            cache_read_tokens=read,
            cache_write_tokens=minutes + hour,
            cache_write_1h_tokens=hour,
            output_tokens=output,
            web_searches=searches,
        ),
        model,
        provider_id=vendor,
        genai_request_timestamp=AT,
        price_context=context,
    )
    assert cost_pd(used, found) == theirs.total_price * Decimal(10**12)


def test_a_price_holds_from_its_day_and_its_time_of_day() -> None:
    """DeepSeek's hours: one day has several prices, and each moment finds its own."""
    quiet, busy = (rate("deepseek", "deepseek-v4-pro", at=AT.replace(hour=hour)) for hour in (0, 3))
    assert quiet is not None and busy is not None and quiet != busy
    assert rate("deepseek", "deepseek-v4-pro", at=AT.replace(hour=4, minute=0)) == quiet
    before, after = (
        rate("google", "gemini-3.6-flash", at=AT.replace(year=year, month=1, day=2)) for year in (2026, 2027)
    )
    assert before != after


def test_a_tier_that_is_not_listed_has_no_price() -> None:
    """Nobody knows what it costs; it is not the usual price."""
    assert rate("openai", "gpt-5.2", "flex") != rate("openai", "gpt-5.2") is not None
    assert rate("anthropic", "claude-sonnet-4-5", "priority") is None
    # Listed, but not yet in force.
    early = datetime.datetime(2026, 10, 1, tzinfo=datetime.UTC)
    assert rate("anthropic", "claude-haiku-4-5", "batch", early) is None
    assert rate("anthropic", "claude-haiku-4-5", "batch") is not None


def test_what_is_not_listed_is_not_priced_as_something_near_to_it() -> None:
    listed = rate("openai", "gpt-5.2")
    assert listed is not None and listed.cached_input is not None and listed.cache_write_5m is None
    assert rate("openai", "no-such-model") is None and rate("nobody", "gpt-5.2") is None


@pytest.mark.parametrize(
    ("url", "vendor"),
    [
        ("https://api.anthropic.com", "anthropic"),
        ("https://api.openai.com/v1", "openai"),
        ("https://openrouter.ai/api/v1", "openrouter"),
        ("https://bedrock-runtime.eu-west-1.amazonaws.com/openai/v1", "aws"),
        ("https://gateway.example/v1", None),
    ],
)
def test_an_address_names_its_vendor(url: str, vendor: str | None) -> None:
    assert genai.packaged().vendor(url) == vendor


def test_every_price_of_the_release_can_be_read() -> None:
    """All models of all vendors, of every tier they name: whole numbers, and never below nothing."""
    prices, count = genai.packaged(), 0
    for vendor in prices.vendors():
        provider = next(one for one in prices._providers if one.id == vendor)
        for model in provider.models:
            tiers = {value for variant in model.price_variants or () for value in variant.when.values()}
            for tier in ("", *sorted(tiers)):
                listed = prices.find(vendor, model.id, tier, AT_MS // DAY_MS)
                for found in listed.rates if listed is not None else ():
                    assert all(pd is None or pd >= 0 for _, pd in found.items())
                    count += 1
    assert count > 2000 and len(prices) > 2000
    newest = prices.newest(AT.date())
    assert newest is not None and newest.year >= 2026
