"""How numbers are written for people, on pages and on the console."""

from __future__ import annotations

import pytest

from arbiter.control import show
from tests.fakes.rows import attempt_row, request_row


@pytest.mark.parametrize(
    ("us", "told"),
    [
        (None, "–"),
        (49, "< 0.1 ms"),
        (1_234, "1.2 ms"),
        (85_400, "85 ms"),
        (1_234_000, "1.23 s"),
        (12_340_000, "12.3 s"),
        (245_000_000, "4 min 5 s"),
        (7_199_000_000, "119 min 59 s"),
        (7_500_000_000, "2 h 5 min"),
        (4_000 * 3_600_000_000, "4,000 h 0 min"),
    ],
)
def test_a_duration_has_as_many_digits_as_matter(us, told):
    assert show.duration(us) == told


@pytest.mark.parametrize(
    ("part", "told"),
    [
        (0, "0%"),
        (0.0001, "<0.1%"),
        (0.004, "0.4%"),
        (0.1, "10%"),
        (0.87, "87%"),
        (0.996, "99.6%"),
        (0.99999, "99.9%"),
        (1, "100%"),
    ],
)
def test_a_share_is_all_or_nothing_only_where_it_is(part, told):
    assert show.percent(part) == told


@pytest.mark.parametrize(
    ("elapsed_ms", "tokens_per_s", "told"),
    [
        (None, None, None),
        (2_000, None, "2.00 s"),
        (2_000, 40.0, "2.00 s, 40 tokens a second"),
        (245_000, 12.345, "4 min 5 s, 12.3 tokens a second"),
        (7_500_000, 0.034, "2 h 5 min, 0.034 tokens a second"),
        (1, 99.96, "1.0 ms, 100 tokens a second"),
        (1_000, 1234.5, "1.00 s, 1,234 tokens a second"),
    ],
)
def test_a_pace_has_as_many_digits_as_matter(elapsed_ms, tokens_per_s, told):
    assert show.pace(elapsed_ms, tokens_per_s) == told


def test_counts_tell_what_is_a_part_of_what():
    """`~` before each sum that the provider did not report to its end."""
    whole = attempt_row(request_row(1), cache_write_tokens=200, reasoning_tokens=5)
    assert show.tokens(whole) == "2,200 in (800 cached, 200 written to the cache), 64 out (5 reasoning)"
    searched = attempt_row(request_row(1), cached_tokens=None, web_searches=3)
    assert show.tokens(searched) == "1,200 in, 64 out, 3 web searches"
    assert show.tokens(attempt_row(request_row(1), web_searches=1)).endswith(", 64 out, 1 web search")
    cut = attempt_row(request_row(1), usage_source="partial", cached_tokens=None, output_tokens=None)
    assert show.tokens(cut) == "~1,200 in, – out"
    nothing = {"input_tokens": None, "cached_tokens": None, "output_tokens": None}
    ours = {"usage_source": "estimated", "estimated_input_tokens": 1500, "estimated_output_tokens": 9}
    assert show.tokens(attempt_row(request_row(1), **nothing, **ours)) == "~1,500 in, ~9 out"
    assert show.tokens(attempt_row(request_row(1), **nothing, usage_source="missing")) == "not reported"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"cost_source": "catalog"}, "$0.0035"),
        ({"cost_source": "catalog", "usage_source": "estimated"}, "~$0.0035"),
        ({"cost_source": "model_config", "usage_source": "partial"}, "~$0.0035"),
        ({"cost_source": "provider", "usage_source": "estimated"}, "$0.0035"),
        ({"cost_source": "reconciled", "usage_source": "partial"}, "$0.0035"),
    ],
)
def test_a_cost_is_as_exact_as_what_it_was_worked_out_from(fields, told):
    assert show.cost(attempt_row(request_row(1), cost_pd=3_500_000_000, **fields)) == told
