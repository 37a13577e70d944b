"""Price lists of others as JSON: LiteLLM's map, models.dev's `api.json`, genai-prices' data. Told apart by their shape.

An entry without a price of tokens is passed over, and so is one with a price that is none (negative, out of all
bounds); where these are many, the list cannot be used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Literal

from arbiter.accounting.listed import FlatList, PriceList
from arbiter.config.rates import FEES, Rate, rounded
from arbiter.config.units import HIGHEST_FEE_PD, HIGHEST_PD

Format = Literal["litellm", "models.dev", "genai-prices"]

_VENDORS = {
    # LiteLLM's names
    "azure_ai": "azure",
    "bedrock": "aws",
    "bedrock_converse": "aws",
    "cohere_chat": "cohere",
    "fireworks_ai": "fireworks",
    "gemini": "google",
    "moonshot": "moonshotai",
    "text-completion-openai": "openai",
    "together_ai": "together",
    "xai": "x-ai",
    # models.dev's
    "amazon-bedrock": "aws",
    "fireworks-ai": "fireworks",
    "google-vertex": "google",
    "google-vertex-anthropic": "google",
    "togetherai": "together",
}
"""What genai-prices calls them; others have one name everywhere."""

_TOKENS = {
    "input": "input_cost_per_token",
    "cached_input": "cache_read_input_token_cost",
    "cache_write_5m": "cache_creation_input_token_cost",
    "cache_write_1h": "cache_creation_input_token_cost_above_1hr",
    "output": "output_cost_per_token",
    "reasoning": "output_cost_per_reasoning_token",
    "audio_input": "input_cost_per_audio_token",
    "audio_output": "output_cost_per_audio_token",
}
_ABOVE = re.compile(r"_above_([0-9]+)k_tokens$")
_TIERS = {"flex": "_flex", "priority": "_priority", "batch": "_batches"}
_MILLIONS = {
    "input": "input",
    "cached_input": "cache_read",
    "cache_write_5m": "cache_write",
    "output": "output",
    "reasoning": "reasoning",
    "audio_input": "input_audio",
    "audio_output": "output_audio",
}

MOST_BAD = 0.05

Rates = dict[tuple[str, str], dict[str, Rate]]
Windows = dict[tuple[str, str], int]


class BadPrices(ValueError):
    """A list that cannot be used; the text says why."""


def parse(raw: bytes, of: str) -> tuple[Format, PriceList]:
    """The list in `raw`, which bears its format's name and `of`: where it is from, or which one it is.

    Errors: BadPrices.
    """
    try:
        found = json.loads(raw, parse_float=Decimal, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise BadPrices(f"this is no JSON: {error}") from error
    except ArithmeticError as error:
        raise BadPrices("a number in it is out of all bounds") from error
    if isinstance(found, list):
        return "genai-prices", _genai(found, f"genai-prices {of}")
    if not isinstance(found, dict) or not all(isinstance(entry, dict) for entry in found.values()):
        raise BadPrices(
            "this is no price list: neither LiteLLM's map, nor models.dev's api.json, nor genai-prices' data"
        )
    if any("litellm_provider" in entry for entry in found.values()):
        return "litellm", _flat(*_litellm(found), f"litellm {of}")
    if any(isinstance(entry.get("models"), dict) for entry in found.values()):
        return "models.dev", _flat(*_models_dev(found), f"models.dev {of}")
    raise BadPrices("no entry of it has a `litellm_provider` or `models`, so it is no list that is known here")


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON's")


def _genai(found: list[Any], name: str) -> PriceList:
    # It is large, and comes with a framework that only its own lists need.
    from arbiter.accounting import genai

    try:
        prices = genai.parsed(found, name)
        for vendor in prices.vendors():
            prices.find(vendor, "\0", "", 0)  # once, so that each expression in it is known to be one
    except (ValueError, TypeError, KeyError, AttributeError, re.error) as error:
        raise BadPrices(f"these are no prices of genai-prices: {str(error)[:200]}") from error
    if not len(prices):
        raise BadPrices("there is no price in it")
    return prices


def _flat(rates: Rates, windows: Windows, name: str) -> PriceList:
    if not rates:
        raise BadPrices("there is no price in it")
    return FlatList(name, rates, windows)


def _note_window(windows: Windows, key: tuple[str, str], tokens: Any) -> None:
    if type(tokens) is int and tokens > 0:
        windows.setdefault(key, tokens)


# ------------------------------------------------------------------------------------------------------- LiteLLM


def _litellm(found: Mapping[str, dict[str, Any]]) -> tuple[Rates, Windows]:
    rates: Rates = {}
    windows: Windows = {}
    bad: list[BadPrices] = []
    for key, entry in found.items():
        provider = entry.get("litellm_provider")
        if key == "sample_spec" or not isinstance(provider, str):
            continue
        try:
            tiers = _service_tiers(entry, key)
        except BadPrices as error:
            bad.append(error)
            continue
        if not tiers:
            continue
        vendor = "google" if provider.startswith("vertex_ai") else _VENDORS.get(provider, provider)
        model = key.removeprefix(f"{provider}/").removeprefix("vertex_ai/").removeprefix("azure/").lower()
        rates.setdefault((vendor, model), tiers)
        _note_window(windows, (vendor, model), entry.get("max_input_tokens"))
    return _mostly(rates, bad), windows


def _service_tiers(entry: Mapping[str, Any], key: str) -> dict[str, Rate]:
    """An entry's rates by service tier. What a tier does not name costs the usual; one that names nothing is none."""
    tiers: dict[str, Rate] = {}
    usual = _tiered(entry, key, "")
    if usual is not None:
        tiers[""] = usual
        for tier, suffix in _TIERS.items():
            if any(field + suffix in entry for field in (_TOKENS["input"], _TOKENS["output"])):
                tiers[tier] = _tiered(entry, key, suffix) or usual
    return tiers


def _tiered(entry: Mapping[str, Any], key: str, suffix: str) -> Rate | None:
    """An entry's rate, each price by its name with `suffix`, else by its plain name; None where there is none."""
    limits = sorted({int(match[1]) * 1000 for field in entry if (match := _ABOVE.search(field))}, reverse=True)
    base = _priced(entry, key, suffix, "")
    if base is None:
        return None
    tiers = []
    for limit in limits:
        above = _priced(entry, key, suffix, f"_above_{limit // 1000}k_tokens")
        if above is not None:
            tiers.append((limit, above))
    return Rate(**{**_fields(base), "tiers": tuple(tiers)})


def _priced(entry: Mapping[str, Any], key: str, suffix: str, above: str) -> Rate | None:
    prices: dict[str, Any] = {}
    for name, field in _TOKENS.items():
        value = None
        for written in (field + above + suffix, field + suffix + above, field + above, field + suffix, field):
            if (value := entry.get(written)) is not None:
                break
        prices[name] = _pd(value, 10**12, f"{key}: {field}")
    if prices["input"] is None and prices["output"] is None:
        return None
    fee = _pd(entry.get("input_cost_per_request"), 10**12, f"{key}: input_cost_per_request", HIGHEST_FEE_PD)
    return Rate(**prices, request=fee, web_search=_search(entry, key))


def _search(entry: Mapping[str, Any], key: str) -> int | None:
    """What a search costs, where it costs the same for any size of its context: nobody reports which one it was."""
    sizes = entry.get("search_context_cost_per_query")
    prices = set(sizes.values()) if isinstance(sizes, dict) else set()
    field = f"{key}: search_context_cost_per_query"
    return _pd(prices.pop(), 10**12, field, HIGHEST_FEE_PD) if len(prices) == 1 else None


# ---------------------------------------------------------------------------------------------------- models.dev


def _models_dev(found: Mapping[str, dict[str, Any]]) -> tuple[Rates, Windows]:
    rates: Rates = {}
    windows: Windows = {}
    bad: list[BadPrices] = []
    for provider, entry in found.items():
        vendor = _VENDORS.get(provider, provider)
        models = entry.get("models")
        for model, facts in models.items() if isinstance(models, dict) else ():
            cost = facts.get("cost") if isinstance(facts, dict) else None
            if not isinstance(cost, dict):
                continue
            try:
                rate = _by_the_million(cost, f"{provider}/{model}")
            except BadPrices as error:
                bad.append(error)
                continue
            if rate is not None:
                key = vendor, str(model).lower()
                rates.setdefault(key, {"": rate})
                limit = facts.get("limit")
                _note_window(windows, key, limit.get("context") if isinstance(limit, dict) else None)
    return _mostly(rates, bad), windows


def _by_the_million(cost: Mapping[str, Any], key: str) -> Rate | None:
    base = _card(cost, key)
    if base.input is None and base.output is None:
        return None
    tiers = sorted(((limit, _card(card, key)) for limit, card in _contexts(cost)), key=lambda one: -one[0])
    return Rate(**{**_fields(base), "tiers": tuple(tiers)})


def _contexts(cost: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The prices for much input; the newer way to write them, else the older one."""
    tiers = cost.get("tiers")
    if isinstance(tiers, list):
        for card in tiers:
            tier = card.get("tier") if isinstance(card, dict) else None
            size = tier.get("size") if isinstance(tier, dict) and tier.get("type") == "context" else None
            if type(size) is int and size > 0:
                yield size, {**cost, **card}
    elif isinstance(card := cost.get("context_over_200k"), dict):
        yield 200_000, {**cost, **card}


def _card(cost: Mapping[str, Any], key: str) -> Rate:
    prices: dict[str, Any] = {name: _pd(cost.get(field), 10**6, f"{key}: {field}") for name, field in _MILLIONS.items()}
    return Rate(**prices)


# ---------------------------------------------------------------------------------------------------------- both


def _mostly(rates: Rates, bad: list[BadPrices]) -> Rates:
    if len(bad) > MOST_BAD * (len(rates) + len(bad)):
        raise BadPrices(f"{len(bad)} of its entries are none, the first: {bad[0]}")
    return rates


def _fields(rate: Rate) -> dict[str, Any]:
    return {**dict(rate.items()), **{name: getattr(rate, name) for name in FEES}}


def _pd(value: Any, scale: int, what: str, most: int = HIGHEST_PD) -> int | None:
    """Picodollars from dollars for one, or for a million."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = Decimal(value)
        except ArithmeticError:
            raise BadPrices(f"{what} is no price") from None
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise BadPrices(f"{what} is no price")
    if (isinstance(value, Decimal) and not value.is_finite()) or value < 0:
        raise BadPrices(f"{what} is no price")
    if value > Decimal(most) / scale:
        raise BadPrices(f"{what} is over ${most // 10**6:,} for a million of them: another unit was meant")
    return rounded(Decimal(value) * scale)
