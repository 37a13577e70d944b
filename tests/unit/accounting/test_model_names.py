"""Under which names a price list is asked for a model."""

from __future__ import annotations

import pytest

from arbiter.accounting.model_names import spellings


@pytest.mark.parametrize(
    ("asked", "last"),
    [
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
        ("claude-sonnet-4-5@20250929", "claude-sonnet-4-5"),
        ("gpt-5.2-mini-2026-08-07", "gpt-5.2-mini"),
        ("claude-sonnet-4-5[1m]", "claude-sonnet-4-5"),
        ("claude-3-5-haiku-latest", "claude-3-5-haiku"),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5"),
        ("eu.anthropic.claude-3-5-haiku-20241022-v1:0", "claude-3-5-haiku"),
        ("apac.amazon.nova-lite-v1:0:300k", "nova-lite"),
        ("global.anthropic.claude-haiku-4-5-20251001-v1:0", "claude-haiku-4-5"),
        ("us-gov.anthropic.claude-3-haiku-20240307-v1:0", "claude-3-haiku"),
        ("bedrock/us.meta.llama3-3-70b-instruct-v1:0", "llama3-3-70b-instruct"),
        ("anthropic/claude-sonnet-4.5:nitro", "claude-sonnet-4.5"),
        ("models/gemini-2.5-flash", "gemini-2.5-flash"),
        ("publishers/anthropic/models/claude-opus-4-5@20251101", "claude-opus-4-5"),
        ("gpt-5.2", "gpt-5.2"),
        # Models of their own, whatever they are called after.
        ("deepseek/deepseek-r1:free", "deepseek-r1:free"),
        ("qwen2.5:14b", "qwen2.5:14b"),
        ("gpt-4-32k", "gpt-4-32k"),
        ("us.", "us."),
    ],
)
def test_a_name_loses_what_changes_no_price_and_nothing_else(asked: str, last: str) -> None:
    """The name as it came is always the first to be tried, so that an exact entry wins."""
    names = list(spellings(asked))
    assert names[0] == asked and names[-1] == last
    assert len(names) == len(set(names)) and all(names)


def test_every_step_is_tried_on_its_own() -> None:
    """Bedrock prices regions apart: the regional name comes before the one without a region."""
    assert list(spellings("us.anthropic.claude-sonnet-4-5-20250929-v1:0")) == [
        "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "anthropic.claude-sonnet-4-5-20250929-v1:0",
        "anthropic.claude-sonnet-4-5-20250929",
        "anthropic.claude-sonnet-4-5",
        "claude-sonnet-4-5",
    ]
