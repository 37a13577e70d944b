"""What holds for a model's prompt cache: the configuration's word, then what is known of it by name, then the rest."""

from __future__ import annotations

import pytest

from arbiter.accounting.caches import Cache, cache
from arbiter.config.load import parse
from arbiter.config.redacted import redacted

CONFIG = """
providers:
  one:
    { type: anthropic, key: k, cache: { floor: 512, ttl: 1h }, models: [a, { id: b, upstream: B, cache: { ttl: 2h } }] }
  plain: { type: openai, key: k }
"""


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("claude-sonnet-4-5-20250929", Cache(2048, 1024, 300, drops_thinking=True)),
        ("anthropic/claude-sonnet-4.6", Cache(2048, 2048, 300)),
        ("anthropic.claude-haiku-4-5-20251001-v1:0", Cache(2048, 4096, 300, drops_thinking=True)),
        ("claude-3-5-haiku-latest", Cache(2048, 2048, 300, drops_thinking=True)),
        ("claude-3-7-sonnet-20250219", Cache(2048, 1024, 300, drops_thinking=True)),
        ("claude-opus-4-1", Cache(2048, 1024, 300, drops_thinking=True)),
        ("claude-opus-4-20250514", Cache(2048, 1024, 300, drops_thinking=True)),
        ("Claude-Opus-4-6", Cache(2048, 4096, 300)),
        ("claude-opus-5", Cache(2048, 1024, 300)),
        ("gpt-5.2", Cache(8192, 1024, 300)),
        ("openai/gpt-5.6-codex", Cache(8192, 1024, 1800)),
        ("gemini-2.5-pro", Cache(8192, 4096, 3600)),
        ("deepseek-chat", Cache(8192, 64, 7200)),
        ("qwen3-coder", Cache(8192, 1024, 300)),
        (None, Cache(8192, 1024, 300)),
    ],
)
def test_a_known_model_is_known_by_its_name_whoever_serves_it(model, expected):
    assert cache(None, model, "openai-chat") == expected


def test_an_unknown_model_of_anthropics_format_reads_to_the_token():
    assert cache(None, "mock-model", "anthropic-messages") == Cache(2048, 4096, 300)


def test_the_configuration_goes_first_and_the_models_own_word_before_it():
    """Each number by itself: what is not said is what is known."""
    providers = parse(CONFIG, "a.yaml", {}).providers
    assert cache(providers["one"], "a", "anthropic-messages") == Cache(512, 4096, 3600)
    assert cache(providers["one"], "B", "anthropic-messages") == Cache(512, 4096, 7200)
    assert cache(providers["one"], "claude-opus-5", "anthropic-messages") == Cache(512, 1024, 3600)
    assert cache(providers["plain"], "gpt-5.2", "openai-chat") == Cache()


def test_what_was_said_is_shown_and_told_from_another_configuration():
    """`arbiter check` shows it, and the epoch of the rows tells two such files apart."""
    said, other = parse(CONFIG, "a.yaml", {}), parse(CONFIG.replace("ttl: 1h", "ttl: 3h"), "a.yaml", {})
    assert redacted(said)["providers"]["one"]["cache"] == {"floor": 512, "minimum": None, "ttl": "1h"}
    assert said.epoch != other.epoch
