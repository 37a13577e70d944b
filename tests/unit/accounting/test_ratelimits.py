"""What providers say of their limits, in each of their spellings."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbiter.accounting import ratelimits
from arbiter.accounting.ratelimits import Limit, Quota

AT_MS = 1_790_000_000_000
AT_S = AT_MS // 1000


def _stated(one: Limit | Quota) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(one).items() if value is not None}


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        # OpenAI, Azure, Groq, xAI
        (
            {"x-ratelimit-limit-requests": "10000", "x-ratelimit-limit-tokens": "2000000",
             "x-ratelimit-remaining-requests": "9999", "x-ratelimit-remaining-tokens": "1999981",
             "x-ratelimit-reset-requests": "6ms", "x-ratelimit-reset-tokens": "1m30.5s"},
            [{"kind": "requests", "limit": 10000, "remaining": 9999, "resets_ms": AT_MS + 6},
             {"kind": "tokens", "limit": 2000000, "remaining": 1999981, "resets_ms": AT_MS + 90_500}],
        ),
        # Anthropic
        (
            {"anthropic-ratelimit-input-tokens-limit": "2000000", "anthropic-ratelimit-input-tokens-remaining": "0",
             "anthropic-ratelimit-input-tokens-reset": "2026-09-21T14:13:21Z",
             "anthropic-ratelimit-output-tokens-remaining": "400000"},
            [{"kind": "input-tokens", "limit": 2000000, "remaining": 0, "resets_ms": 1790000001000},
             {"kind": "output-tokens", "remaining": 400000}],
        ),
        # Mistral: per minute and per month, without a reset
        (
            {"x-ratelimit-limit-req-minute": "60", "x-ratelimit-limit-tokens-month": "4000000",
             "x-ratelimit-remaining-req-minute": "59", "x-ratelimit-remaining-tokens-month": "3950246",
             "x-ratelimit-tokens-query-cost": "2804"},
            [{"kind": "requests", "per": "minute", "limit": 60, "remaining": 59},
             {"kind": "tokens", "per": "month", "limit": 4000000, "remaining": 3950246}],
        ),
        # Cerebras: fractions of seconds, longer than a float is exact
        (
            {"x-ratelimit-limit-requests-day": "14400", "x-ratelimit-remaining-requests-day": "13693",
             "x-ratelimit-reset-requests-day": "11726.2840924263",
             "x-ratelimit-reset-tokens-minute": "26.28409242630005"},
            [{"kind": "requests", "per": "day", "limit": 14400, "remaining": 13693, "resets_ms": AT_MS + 11_726_284},
             {"kind": "tokens", "per": "minute", "resets_ms": AT_MS + 26_284}],
        ),
        # Fireworks
        (
            {"x-ratelimit-limit-tokens-prompt": "60000", "x-ratelimit-remaining-tokens-generated": "100",
             "x-ratelimit-over-limit": "yes"},
            [{"kind": "input-tokens", "limit": 60000}, {"kind": "output-tokens", "remaining": 100}],
        ),
        # OpenRouter on a 429: an epoch in milliseconds
        (
            {"x-ratelimit-limit": "20", "x-ratelimit-remaining": "0", "x-ratelimit-reset": str(AT_MS + 60_000)},
            [{"kind": "requests", "limit": 20, "remaining": 0, "resets_ms": AT_MS + 60_000}],
        ),
        # the IETF's drafts
        (
            {"ratelimit-limit": "100, 100;w=60", "ratelimit-remaining": "50;w=60", "ratelimit-reset": "30"},
            [{"kind": "requests", "limit": 100, "remaining": 50, "resets_ms": AT_MS + 30_000}],
        ),
        # nonsense
        (
            {"x-ratelimit-limit-requests": "many", "x-ratelimit-remaining-requests": "-1",
             "x-ratelimit-reset-requests": "soon", "x-ratelimit-reset-tokens": "9" * 30, "retry-after": "1"},
            [],
        ),
    ],
)  # fmt: skip
def test_each_spelling_comes_to_the_same_terms(headers: dict[str, str], said: list[dict[str, Any]]) -> None:
    """A limit, what remains, and the moment at which its window ends; what was not said is unknown."""
    assert [_stated(one) for one in ratelimits.read(headers, AT_MS).limits] == said


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        # Claude's subscriptions: fractions and epochs; a window of one model, and what is no window
        (
            {"anthropic-ratelimit-unified-status": "allowed", "anthropic-ratelimit-unified-reset": str(AT_S + 60),
             "anthropic-ratelimit-unified-representative-claim": "five_hour",
             "anthropic-ratelimit-unified-5h-utilization": "0.42", "anthropic-ratelimit-unified-5h-status": "allowed",
             "anthropic-ratelimit-unified-5h-reset": str(AT_S + 3600),
             "anthropic-ratelimit-unified-7d-utilization": "1.03", "anthropic-ratelimit-unified-7d-status": "rejected",
             "anthropic-ratelimit-unified-7d_oi-utilization": "0.02",
             "anthropic-ratelimit-unified-overage-status": "rejected"},
            [{"window": "5h", "minutes": 300, "used": 0.42, "resets_ms": AT_MS + 3_600_000, "status": "allowed"},
             {"window": "7d", "minutes": 10080, "used": 1.03, "status": "rejected"},
             {"window": "7d_oi", "minutes": 10080, "used": 0.02}],
        ),
        # ChatGPT's: percents, the span before the moment, limits of one model
        (
            {"x-codex-primary-used-percent": "42.5", "x-codex-primary-window-minutes": "300",
             "x-codex-primary-reset-at": str(AT_S + 9999), "x-codex-primary-reset-after-seconds": "600",
             "x-codex-secondary-used-percent": "13", "x-codex-secondary-reset-at": str(AT_S + 86400),
             "x-codex-bengalfox-primary-used-percent": "100", "x-codex-active-limit": "codex_bengalfox"},
            [{"window": "primary", "minutes": 300, "used": 0.425, "resets_ms": AT_MS + 600_000},
             {"window": "secondary", "used": 0.13, "resets_ms": AT_MS + 86_400_000},
             {"window": "bengalfox-primary", "used": 1.0}],
        ),
        ({"anthropic-ratelimit-unified-5h-utilization": "much"}, [{"window": "5h", "minutes": 300}]),
    ],
)  # fmt: skip
def test_the_windows_of_a_subscription_are_read(headers: dict[str, str], said: list[dict[str, Any]]) -> None:
    """SPEC 9.8a."""
    told = ratelimits.read(headers, AT_MS)
    assert [_stated(one) for one in told.quotas] == said and told.limits == []


@pytest.mark.parametrize(
    ("limit", "remaining", "part"),
    [(100, 25, 0.25), (100, 0, 0.0), (100, 120, 1.0), (0, 0, None), (None, 5, None), (5, None, None)],
)
def test_headroom_is_the_part_that_is_left(limit: int | None, remaining: int | None, part: float | None) -> None:
    assert Limit(kind="tokens", limit=limit, remaining=remaining).headroom == part


def test_only_what_speaks_of_limits_is_kept() -> None:
    """A conversation's state is a secret of the client's, and everything else is nobody's business."""
    kept = {"retry-after": "3", "retry-after-ms": "2500", "x-ratelimit-limit-tokens": "5", "ratelimit": "a;r=1",
            "anthropic-ratelimit-unified-5h-utilization": "0.1", "x-codex-plan-type": "pro"}  # fmt: skip
    others = {"date": "x", "set-cookie": "s=1", "x-request-id": "r", "x-codex-turn-state": "secret", "ratelimi": "1"}
    assert ratelimits.snapshot(list((others | kept | others).items())) == kept
    assert ratelimits.snapshot(list(others.items())) is None and ratelimits.snapshot([]) is None


def test_a_copy_is_bounded_and_has_no_secrets() -> None:
    headers = [(f"x-ratelimit-{n}", "v" * 1000) for n in range(1000)] + [("x-ratelimit-" + "n" * 1000, "1")]
    kept = ratelimits.snapshot([headers[-1], *headers])
    assert kept is not None and len(kept) == ratelimits.MAX_HEADERS
    assert all(len(name) < 20 and len(value) == ratelimits.MAX_CHARS for name, value in kept.items())
    assert ratelimits.snapshot(
        [("retry-after", "sk-1"), ("retry-after", "2")], lambda text: text.replace("sk", "**")
    ) == {"retry-after": "**-1"}


NAMES = st.sampled_from(
    ["x-ratelimit-limit-requests", "x-ratelimit-reset-tokens-minute", "anthropic-ratelimit-unified-5h-utilization",
     "anthropic-ratelimit-unified-5h-reset", "x-codex-primary-used-percent", "x-codex-primary-reset-at",
     "ratelimit-reset"]
)  # fmt: skip
VALUES = st.text(max_size=70) | st.from_regex(r"[-+0-9.eTZ:,;smhd ]{0,30}", fullmatch=True) | st.floats().map(str)


@given(st.dictionaries(NAMES | st.text(max_size=20), VALUES), st.integers(0, 2**45))
def test_no_header_breaks_the_reading(headers: dict[str, str], at_ms: int) -> None:
    """Whatever a provider writes there, the answer is a value, and its numbers fit into JSON."""
    told = ratelimits.read(headers, at_ms)
    for limit in told.limits:
        assert all(value is None or 0 <= value < 10**15 for value in (limit.limit, limit.remaining))
    msgspec.json.encode(told)
