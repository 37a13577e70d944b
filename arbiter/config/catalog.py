"""The rows of `models`: what models cost, and what else the operator knows of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from arbiter.config import price_schema
from arbiter.config.address import Fault
from arbiter.config.decode import join, nearest
from arbiter.config.rates import FEES, Card, Rate
from arbiter.config.snapshot import Provider
from arbiter.config.words import check_identifier


class Catalog:
    """Reads the rows. `stands` says whether a key is in the file, `warnings` takes what is probably not meant."""

    def __init__(self, error: Fault, stands: Callable[[str], bool], warnings: list[str]) -> None:
        self._error = error
        self._stands = stands
        self._warnings = warnings

    def known(
        self, rows: Iterable[price_schema.CatalogRow], providers: Mapping[str, Provider], default: str | None
    ) -> dict[str, Provider]:
        """The providers with their rates and cards, under the names that their models are asked for by.

        `default` is `routing.default_provider`. Errors: what `error(path, message)` makes.
        """
        rates: dict[str, dict[str, Rate]] = {name: {} for name in providers}
        cards: dict[str, dict[str, Card]] = {name: {} for name in providers}
        for index, row in enumerate(rows):
            here = join("models", index)
            name, _, model_id = row.model.partition("/")
            provider, path = providers.get(name), join(here, "model")
            whole = {f"{known.name}/{model.id}" for known in providers.values() for model in known.models}
            if provider is None or not model_id:
                message = f'expected provider/model, and "{row.model}" is none{nearest(row.model, whole)}'
                raise self._error(path, message)
            check_identifier(model_id, partial(self._error, path))
            model = provider.model(model_id)
            # Names that are not declared reach a provider that lists none, and the default one.
            if model is None and provider.models and name != default:
                hint = nearest(row.model, whole)
                raise self._error(path, f'{name} declares no model "{model_id}"{hint}')
            asked = model.upstream if model is not None else model_id
            if asked in rates[name] or asked in cards[name]:
                raise self._error(path, f'"{asked}" of {name} has a row already')
            card = self._card(row, here)
            if card != Card():
                cards[name][asked] = card
            if card == Card() or row.tiers or _rate(row) != Rate():
                rates[name][asked] = self._tiered(row, here, provider)
        return {name: replace(provider, rates=rates[name], cards=cards[name]) for name, provider in providers.items()}

    def _card(self, row: price_schema.CatalogRow, here: str) -> Card:
        path = join(here, "input_modalities")
        if self._stands(path) and not row.input_modalities:
            raise self._error(path, "a model that takes nothing in; name what it takes, or remove the key")
        for index, kind in enumerate(row.input_modalities):
            if kind in row.input_modalities[:index]:
                raise self._error(join(path, index), f'"{kind}" is listed twice')
        modalities, metadata = tuple(row.input_modalities) or None, tuple(row.metadata.items())
        return Card(row.max_input_tokens, row.latency_ms_p50, modalities, metadata)

    def _tiered(self, row: price_schema.CatalogRow, here: str, provider: Provider) -> Rate:
        tiers: dict[int, Rate] = {}
        for index, tier in enumerate(row.tiers):
            path = join(join(here, "tiers"), index)
            if tier.above_input_tokens in tiers:
                raise self._error(path, f"there is a tier above {tier.above_input_tokens} already")
            tiers[tier.above_input_tokens] = self._priced(tier, path, provider)
        return replace(self._priced(row, here, provider), tiers=tuple(sorted(tiers.items(), reverse=True)))

    def _priced(self, written: price_schema.Prices, path: str, provider: Provider) -> Rate:
        rate = _rate(written)
        if rate == Rate():
            message = "no price stands here; at least one …_usd_per_mtok is needed, 0 where it is free"
            if isinstance(written, price_schema.CatalogRow) and not written.tiers:
                message += ", or max_input_tokens, latency_ms_p50, input_modalities or metadata"
            raise self._error(path, message)
        usual = {"input", "cached_input", "output"} | ({"cache_write_5m"} if provider.type == "anthropic" else set())
        missing = [f"{kind}_usd_per_mtok" for kind, pd in rate.items() if pd is None and kind in usual]
        if missing:
            self._warnings.append(f"{path}: without {', '.join(missing)}; what uses such tokens has no known cost")
        return rate


def _rate(written: price_schema.Prices) -> Rate:
    return Rate(
        input=written.input_pd,
        cached_input=written.cached_input_pd,
        cache_write_5m=written.cache_write_5m_pd,
        cache_write_1h=written.cache_write_1h_pd,
        output=written.output_pd,
        reasoning=written.reasoning_pd,
        audio_input=written.audio_input_pd,
        audio_output=written.audio_output_pd,
        **fees(written),
    )


def fees(written: price_schema.Prices | price_schema.Override) -> dict[str, Any]:
    """What is charged for other things than tokens, in picodollars for one."""
    found = {name: getattr(written, f"{name}_micro") for name in FEES}
    return {name: None if micro is None else micro * 10**6 for name, micro in found.items()}
