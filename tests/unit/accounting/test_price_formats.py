"""Price lists of other people: what of them is a price, and what is no list at all."""

from __future__ import annotations

import json
from typing import Any

import pytest

from arbiter.accounting.price_formats import BadPrices, parse
from arbiter.config.rates import Rate

SONNET = {
    "litellm_provider": "anthropic",
    "mode": "chat",
    "input_cost_per_token": 3e-06,
    "cache_read_input_token_cost": 3e-07,
    "cache_creation_input_token_cost": 3.75e-06,
    "cache_creation_input_token_cost_above_1hr": 6e-06,
    "output_cost_per_token": 1.5e-05,
    "input_cost_per_token_above_200k_tokens": 6e-06,
    "output_cost_per_token_above_200k_tokens": 2.25e-05,
    "cache_read_input_token_cost_above_200k_tokens": 6e-07,
    "cache_creation_input_token_cost_above_200k_tokens": 7.5e-06,
    "cache_creation_input_token_cost_above_1hr_above_200k_tokens": 1.2e-05,
    "max_input_tokens": 200000,
    "supports_vision": True,
}


def rates(found: Any, vendor: str, model: str, tier: str = "") -> Rate | None:
    """What the list says of a model."""
    listed = parse(json.dumps(found).encode(), "x")[1].find(vendor, model, tier, 0)
    return None if listed is None else listed.rates[0]


def test_litellms_prices_are_those_of_one_token() -> None:
    """Written as floats, read as decimals: not a picodollar is lost, and a tier holds for all kinds of tokens."""
    assert rates({"claude-sonnet-4-5": SONNET}, "anthropic", "Claude-Sonnet-4-5") == Rate(
        input=3_000_000,
        cached_input=300_000,
        cache_write_5m=3_750_000,
        cache_write_1h=6_000_000,
        output=15_000_000,
        tiers=((200_000, Rate(6_000_000, 600_000, 7_500_000, 12_000_000, 22_500_000)),),
    )


@pytest.mark.parametrize(
    ("key", "provider", "vendor", "model"),
    [
        ("openrouter/anthropic/claude-x", "openrouter", "openrouter", "anthropic/claude-x"),
        ("gemini/gemini-x", "gemini", "google", "gemini-x"),
        ("vertex_ai/claude-x", "vertex_ai-anthropic_models", "google", "claude-x"),
        ("us.anthropic.claude-x-v1:0", "bedrock_converse", "aws", "us.anthropic.claude-x-v1:0"),
        ("azure/gpt-x", "azure", "azure", "gpt-x"),
        ("xai/grok-x", "xai", "x-ai", "grok-x"),
        ("house/model", "house", "house", "model"),
    ],
)
def test_litellms_providers_have_their_usual_names_here(key: str, provider: str, vendor: str, model: str) -> None:
    entry = {"litellm_provider": provider, "input_cost_per_token": 1e-06}
    assert rates({key: entry}, vendor, model) == Rate(input=1_000_000)


@pytest.mark.parametrize(("high", "price"), [(0.01, 10_000_000_000), (0.02, None)])
def test_litellms_price_of_a_search_counts_where_it_is_one(high: float, price: int | None) -> None:
    """By the size of its context, which no usage tells."""
    sizes = {"search_context_size_low": 0.01, "search_context_size_medium": 0.01, "search_context_size_high": high}
    found = rates({"claude-x": SONNET | {"search_context_cost_per_query": sizes}}, "anthropic", "claude-x")
    assert found is not None and found.web_search == price


def test_litellms_service_tiers_name_what_they_change() -> None:
    entry = {
        "litellm_provider": "openai",
        "input_cost_per_token": 2e-06,
        "output_cost_per_token": 8e-06,
        "cache_read_input_token_cost": 5e-07,
        "input_cost_per_token_flex": 1e-06,
        "output_cost_per_token_flex": 4e-06,
        "input_cost_per_token_batches": 1e-06,
    }
    assert rates({"m": entry}, "openai", "m", "flex") == Rate(input=10**6, cached_input=500_000, output=4 * 10**6)
    assert rates({"m": entry}, "openai", "m", "batch") == Rate(input=10**6, cached_input=500_000, output=8 * 10**6)
    assert rates({"m": entry}, "openai", "m", "priority") is None


@pytest.mark.parametrize(("written", "told"), [(200_000, 200_000), ("200000", None), (0, None), (True, None)])
def test_a_window_is_told_where_it_is_one(written: Any, told: int | None) -> None:
    """LiteLLM's of input, models.dev's of the whole context, and that of genai-prices."""
    flat = {"claude-x": {**SONNET, "max_input_tokens": written}}
    dev = {"anthropic": {"models": {"claude-x": {"cost": {"input": 3, "output": 15}, "limit": {"context": written}}}}}
    for found in (flat, dev):
        listed = parse(json.dumps(found).encode(), "x")[1].find("anthropic", "Claude-X", "", 0)
        assert listed is not None and listed.max_input == told


def test_what_has_no_price_of_tokens_is_not_listed() -> None:
    found = {
        "sample_spec": {"litellm_provider": "one of", "input_cost_per_token": 0},
        "image": {"litellm_provider": "openai", "input_cost_per_image": 1},
        "free": {"litellm_provider": "openai", "input_cost_per_token": 0, "output_cost_per_token": 0.0},
    }
    name, prices = parse(json.dumps(found).encode(), "of today")
    assert (name, prices.name, len(prices)) == ("litellm", "litellm of today", 1)
    assert rates(found, "openai", "free") == Rate(input=0, output=0)


def test_models_devs_prices_are_those_of_a_million() -> None:
    found = {
        "anthropic": {
            "id": "anthropic",
            "models": {
                "claude-x": {"cost": {"input": 3, "output": 15, "cache_read": 0.3, "cache_write": 3.75}},
                "older": {"cost": {"input": 1, "output": 2, "context_over_200k": {"input": 2, "output": 3}}},
                "newer": {
                    "cost": {
                        "input": 1,
                        "output": 2,
                        "cache_read": 0.5,
                        "tiers": [{"tier": {"type": "context", "size": 272_000}, "input": 2, "output": 3}],
                        "context_over_200k": {"input": 9},
                    }
                },
                "unknown": {"name": "no cost"},
            },
        },
        "amazon-bedrock": {"models": {"y": {"cost": {"input": 1, "output": 1, "input_audio": 7}}}},
    }
    assert rates(found, "anthropic", "claude-x") == Rate(3_000_000, 300_000, 3_750_000, None, 15_000_000)
    assert rates(found, "anthropic", "older") == Rate(
        input=10**6, output=2 * 10**6, tiers=((200_000, Rate(input=2 * 10**6, output=3 * 10**6)),)
    )
    newer = rates(found, "anthropic", "newer")
    assert newer is not None and newer.tiers == (
        (272_000, Rate(input=2 * 10**6, cached_input=500_000, output=3 * 10**6)),
    )
    assert rates(found, "aws", "y") == Rate(input=10**6, output=10**6, audio_input=7 * 10**6)
    assert len(parse(json.dumps(found).encode(), "x")[1]) == 4


def test_genai_prices_own_data_is_a_list_of_vendors() -> None:
    """The shape that its project publishes, dates and tiers included."""
    found = [
        {
            "id": "anthropic",
            "name": "Anthropic",
            "api_pattern": r"https://api\.anthropic\.com",
            "models": [
                {
                    "id": "claude-x",
                    "match": {"starts_with": "claude-x"},
                    "prices": {
                        "input_mtok": {"base": 3, "tiers": [{"start": 200_000, "price": 6}]},
                        "output_mtok": "15",
                    },
                }
            ],
        }
    ]
    assert rates(found, "anthropic", "claude-x-2026") == Rate(
        input=3_000_000, output=15_000_000, tiers=((200_000, Rate(input=6_000_000, output=15_000_000)),)
    )


@pytest.mark.parametrize("price", [-5, 1e30, "1e999999"])
def test_a_price_of_genai_prices_that_is_none_is_unknown(price: Any) -> None:
    """And not a cost below nothing, nor a number that no column holds."""
    model = {"id": "m", "match": {"equals": "m"}, "prices": {"input_mtok": 1, "output_mtok": price}}
    found = [{"id": "a", "name": "A", "api_pattern": "a", "models": [model]}]
    assert rates(found, "a", "m") == Rate(input=1_000_000)


def test_a_fee_for_a_request_may_be_dearer_than_any_token() -> None:
    entry = {"litellm_provider": "a", "input_cost_per_token": 1e-06, "input_cost_per_request": 0.5}
    assert rates({"m": entry}, "a", "m") == Rate(input=1_000_000, request=500_000_000_000)
    with pytest.raises(BadPrices, match="another unit"):
        rates({"m": {**entry, "input_cost_per_request": 10**6}}, "a", "m")


def test_a_tier_begins_at_a_number_of_tokens() -> None:
    tiers = [{"tier": {"type": "context", "size": size}, "input": 3} for size in (True, -5, 0, "7", 100_000)]
    found = {"p": {"models": {"m": {"cost": {"input": 1, "output": 2, "tiers": tiers}}}}}
    known = rates(found, "p", "m")
    assert known is not None and [above for above, _ in known.tiers] == [100_000]


def test_a_few_bad_entries_are_left_out_and_many_make_no_list() -> None:
    """OpenRouter's automatic choice is listed at -1: that is no price, and no reason to do without the others."""
    good = {f"m{number}": {"litellm_provider": "openai", "input_cost_per_token": 1e-06} for number in range(40)}
    bad = {"auto": {"litellm_provider": "openrouter", "input_cost_per_token": -1, "output_cost_per_token": -1}}
    assert len(parse(json.dumps({**good, **bad}).encode(), "x")[1]) == 40
    with pytest.raises(BadPrices, match="auto"):
        parse(json.dumps({"m": good["m1"], **bad}).encode(), "x")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"<html>",
        b"\xff\xfe",
        b"7",
        b"[]",
        b"[1]",
        b'[{"id": "x"}]',
        b"{}",
        b'{"a": 1}',
        b'{"a": {"b": 1}}',
        b'{"a": {"litellm_provider": "x", "input_cost_per_token": NaN}}',
        b'{"a": {"litellm_provider": "x", "input_cost_per_token": 1e999}}',
        b'{"a": {"litellm_provider": "x", "input_cost_per_token": 1e999999}}',
        b'{"a": {"litellm_provider": "x", "input_cost_per_token": 1e9999999999999999999}}',
        b'{"a": {"litellm_provider": "x", "input_cost_per_token": "NaN"}}',
        b'{"a": {"litellm_provider": "x", "input_cost_per_token": "sNaN"}}',
        b'{"a": {"litellm_provider": "x", "input_cost_per_token": "-Infinity"}}',
        b'{"request-a": {"litellm_provider": "x", "input_cost_per_token": 1}}',
        b'[{"id": "a", "name": "A", "api_pattern": "a", "models": [{"id": "b", "match": {"regex": "("}, "prices": {}}]}]',  # noqa: E501
        b'{"a": {"litellm_provider": "x", "input_cost_per_token": "cheap"}}',
        b'{"a": {"litellm_provider": "x", "input_cost_per_token": [1]}}',
        b'{"a": {"litellm_provider": "x", "input_cost_per_token": 3}}',
        b'{"a": {"models": {}}}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_price_list_is_refused(raw: bytes) -> None:
    """A page that says that the file has moved, half a file, dollars where dollars a token were meant."""
    with pytest.raises(BadPrices):
        parse(raw, "x")
