"""Rows of `models`: prices, and the facts beside them."""

from __future__ import annotations

import json

import pytest

from arbiter.config.load import ConfigError, parse
from arbiter.config.rates import Card, Rate
from arbiter.config.redacted import redacted
from arbiter.config.snapshot import Snapshot

UP = "providers: { up: { type: ollama, models: [gpt, { id: mini, upstream: mini-2026 }] } }\n"


def read(row: str) -> Snapshot:
    return parse(f"{UP}models:\n- {{ {row} }}\n", "arbiter.yaml", {})


def test_a_row_may_tell_facts_without_a_price() -> None:
    """A card stands under the name that the model goes by at the provider, as a price does."""
    snapshot = read("model: up/mini, max_input_tokens: 400000, latency_ms_p50: 412.5, input_modalities: [text, image]")
    up = snapshot.providers["up"]
    assert up.cards == {"mini-2026": Card(400_000, 412.5, ("text", "image"))} and up.rates == {}
    assert snapshot.models["mini"][0] is up and snapshot.warnings == ()


def test_a_row_may_tell_both() -> None:
    up = read("model: up/gpt, output_usd_per_mtok: 2, max_input_tokens: 8").providers["up"]
    assert up.rates == {"gpt": Rate(output=2_000_000)} and up.cards == {"gpt": Card(max_input=8)}


def test_a_row_may_hold_words_of_the_operators_own() -> None:
    """Nothing reads them, so they are enough for a row, and no price."""
    up = read("model: up/gpt, metadata: { family: old, tier: '2' }").providers["up"]
    assert up.cards == {"gpt": Card(metadata=(("family", "old"), ("tier", "2")))} and up.rates == {}


def test_a_row_that_tells_prices_has_no_card() -> None:
    assert read("model: up/gpt, output_usd_per_mtok: 2").providers["up"].cards == {}


def test_rows_are_shown_as_they_can_be_written() -> None:
    row = (
        "model: up/mini, input_usd_per_mtok: 0, max_input_tokens: 8, latency_ms_p50: 2, input_modalities: [audio, file]"
    )
    snapshot = read(row)
    shown = redacted(snapshot)["models"]
    again = parse(f"{UP}models: {json.dumps(shown)}\n", "a", {})
    assert again.providers == snapshot.providers and again.epoch == snapshot.epoch
    assert shown[0]["model"] == "up/mini" and shown[0]["input_modalities"] == ["audio", "file"]


def test_a_changed_fact_is_another_configuration() -> None:
    assert read("model: up/gpt, max_input_tokens: 8").epoch != read("model: up/gpt, max_input_tokens: 9").epoch


@pytest.mark.parametrize(
    ("row", "path", "words"),
    [
        ("model: up/gpt", "models[0]", "or max_input_tokens, latency_ms_p50, input_modalities or metadata"),
        (
            "model: up/gpt, max_input_tokens: 1, tiers: [{ above_input_tokens: 9, input_usd_per_mtok: 1 }]",
            "models[0]",
            "no price stands here",
        ),
        ("model: up/gpt, max_input_tokens: 0", "models[0].max_input_tokens", "must be at least 1"),
        ("model: up/gpt, latency_ms_p50: 0", "models[0].latency_ms_p50", "expected a number above 0"),
        ("model: up/gpt, latency_ms_p50: 1s", "models[0].latency_ms_p50", "expected a number above 0"),
        ("model: up/gpt, latency_ms_p50: 1000000001", "models[0].latency_ms_p50", "expected a number above 0"),
        ("model: up/gpt, input_modalities: []", "models[0].input_modalities", "takes nothing in"),
        ("model: up/gpt, input_modalities: [text, text]", "models[0].input_modalities[1]", "listed twice"),
        ("model: up/gpt, input_modalities: [vision]", "models[0].input_modalities[0]", 'did you mean "image"?'),
        ("model: up/gpt, input_modalities: [video]", "models[0].input_modalities[0]", '"video" is not built yet'),
        ("model: up/gpt, metadata: { a: [b] }", "models[0].metadata.a", "expected"),
        ("model: up/gpt, max_output_tokens: 1", "models[0].max_output_tokens", "it stands with the provider's model"),
    ],
)
def test_a_mistake_is_named_with_its_path_and_a_way_out(row: str, path: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(row)
    assert words in caught.value.message and (caught.value.path, caught.value.line) == (path, 3)


def test_a_model_has_one_row_whatever_it_tells() -> None:
    with pytest.raises(ConfigError, match=r'models\[1\]\.model: "gpt" of up has a row already'):
        parse(
            f"{UP}models:\n- {{ model: up/gpt, max_input_tokens: 8 }}\n- {{ model: up/gpt, input_usd_per_mtok: 1 }}\n",
            "a",
            {},
        )
