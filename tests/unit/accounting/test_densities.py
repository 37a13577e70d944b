"""How many tokens a byte is, by what is known of whom."""

from __future__ import annotations

import pytest

from arbiter.accounting.densities import BYTES_PER_TOKEN, PRIOR_BYTES, density, is_believable

T, C = "up/model", "claude-cli"


def test_without_any_knowledge_it_is_that_of_ordinary_text():
    assert density({}, T, C) == 1 / BYTES_PER_TOKEN


def test_much_text_is_believed_alone_and_little_is_mixed():
    """Nothing jumps: the more there was, the nearer."""
    texts = (0.0, PRIOR_BYTES / 4, PRIOR_BYTES / 2, PRIOR_BYTES)
    found = [density({(T, C): (text, text * 0.5)}, T, C) for text in texts]
    assert found == [0.25, 0.3125, 0.375, 0.5]
    assert density({(T, C): (9.0 * PRIOR_BYTES, 4.5 * PRIOR_BYTES)}, T, C) == 0.5


def test_a_client_nobody_knows_has_what_the_target_has_for_everybody():
    learned = {(T, ""): (1e6, 4e5), (T, C): (1e6, 3e5), ("up/other", ""): (1e6, 9e5)}
    assert density(learned, T, "somebody") == pytest.approx(0.4)
    assert density(learned, T, C) == pytest.approx(0.3)
    assert density(learned, T, "") == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("text", "tokens", "is_one"), [(1000, 250, True), (1000, 24, False), (1000, 2001, False), (0, 5, False)]
)
def test_what_cannot_be_this_prompts_count_is_not_believed(text: int, tokens: int, is_one: bool):
    assert is_believable(text, tokens) is is_one
