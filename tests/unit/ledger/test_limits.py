"""What providers said of their limits, asked of a store in either database."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from arbiter.ledger.questions import limits
from arbiter.ledger.questions.limits import Answer, Asked
from arbiter.ledger.store import Position
from tests.fakes.rows import attempt_row, request_row

NOW_MS = 1_790_000_000_000
HOUR_MS = 3_600_000


def said(number: int, minutes_ago: float, rate_limits: dict[str, str] | None = None, **fields: Any) -> Any:
    started_ms = NOW_MS - round(minutes_ago * 60_000)
    values = {"started_ms": started_ms, "finished_ms": started_ms, "headers_us": 0, "account": "main", **fields}
    return attempt_row(request_row(number), rate_limits=rate_limits, **values)


def ask(store: Any, rows: list[Any], **asked: Any) -> Answer:
    store.write(rows, Position("j", 1))
    values = {"since_ms": NOW_MS - 24 * HOUR_MS, "now_ms": NOW_MS, **asked}
    return store.read(lambda database: limits.ask(database, Asked(**values)))


def test_headroom_is_each_models_last_word_on_each_account(store):
    """Of several answers the newest counts, and one that says nothing of limits takes nothing back."""
    rows = [
        said(1, 30, {"x-ratelimit-limit-tokens": "100", "x-ratelimit-remaining-tokens": "90"}),
        said(2, 20, {"x-ratelimit-limit-tokens": "100", "x-ratelimit-remaining-tokens": "40",
                     "x-ratelimit-reset-tokens": "30m"}),
        said(3, 10, {"retry-after": "3"}, status=529),
        said(4, 5, None),
        said(5, 9, {"x-ratelimit-remaining-requests": "7", "x-ratelimit-reset-requests": "1s"}, account=None),
        said(6, 25 * 60, {"x-ratelimit-remaining-requests": "7"}, model_asked="old"),
    ]  # fmt: skip
    found = {(one.account, one.kind): one for one in ask(store, rows).headroom}
    assert set(found) == {("main", "tokens"), (None, "requests")}
    one = found["main", "tokens"]
    assert (one.limit, one.remaining, one.headroom, one.is_over) == (100, 40, 0.4, False)
    assert (one.at_ms, one.resets_ms) == (NOW_MS - 20 * 60_000, NOW_MS + 10 * 60_000)
    other = found[None, "requests"]
    assert (other.limit, other.remaining, other.headroom, other.is_over) == (None, 7, None, True)


def test_a_refusal_is_counted_by_what_it_means(store):
    """SPEC 9.8: 429 by subtype; an overloaded provider is none of them."""
    rows = [
        said(1, 3, status=429, outcome="error", error_class="rate_limited_transient"),
        said(2, 2, status=429, outcome="error", error_class="rate_limited_transient"),
        said(3, 1, status=429, outcome="error", error_class="quota_exhausted"),
        said(4, 1, status=529, outcome="error", error_class="overloaded"),
        said(5, 1, status=429, outcome="error", error_class="quota_exhausted", provider="other", account=None),
    ]
    found = [(one.provider, one.subtype, one.count, one.last_ms) for one in ask(store, rows).refusals]
    assert found == [
        ("openai", "quota_exhausted", 1, NOW_MS - 60_000),
        ("openai", "transient", 2, NOW_MS - 120_000),
        ("other", "quota_exhausted", 1, NOW_MS - 60_000),
    ]
    only = ask(store, [], provider="other")
    assert [one.provider for one in only.refusals] == ["other"]


def test_spans_that_overlap_block_once_and_not_beyond_now(store):
    """Three refused requests that were told to wait the same minute were not blocked for three."""
    rows = [
        said(1, 10, retry_after_ms=60_000),
        said(2, 9.5, retry_after_ms=60_000),
        said(3, 5, retry_after_ms=1_000),
        said(4, 1, retry_after_ms=10 * 60_000),
    ]
    (wait,) = ask(store, rows).waits
    assert (wait.times, wait.until_ms) == (4, NOW_MS + 9 * 60_000)
    assert wait.blocked_ms == 90_000 + 1_000 + 60_000


def unified(used: str, resets_ms: int) -> dict[str, str]:
    name = "anthropic-ratelimit-unified-5h"
    return {f"{name}-utilization": used, f"{name}-reset": str(resets_ms // 1000), f"{name}-status": "allowed"}


def test_a_window_burns_at_the_rate_between_its_first_and_its_last_word(store):
    """SPEC 9.8a: over all models of the login; the projection says that it is one, and from where to where."""
    resets_ms = NOW_MS + 2 * HOUR_MS
    rows = [
        said(1, 4 * 60, unified("0.99", NOW_MS - 3 * HOUR_MS)),  # the window before this one
        said(2, 120, unified("0.10", resets_ms), model_asked="a"),
        said(3, 60, unified("0.30", resets_ms - 1000), model_asked="b"),
        said(4, 0, unified("0.50", resets_ms), model_asked="c"),
    ]
    (window,) = ask(store, rows).windows
    assert (window.window, window.minutes, window.used, window.headroom) == ("5h", 300, 0.5, 0.5)
    assert window.burn_per_hour == pytest.approx(0.2)
    ahead = window.projection
    assert ahead is not None and ahead.is_projection
    assert ahead.used_at_reset == pytest.approx(0.9) and ahead.full_ms is None
    assert (ahead.from_ms, ahead.to_ms) == (NOW_MS - 2 * HOUR_MS, NOW_MS)


def test_a_window_that_will_be_full_says_when(store):
    resets_ms = NOW_MS + 4 * HOUR_MS
    rows = [said(1, 60, unified("0.1", resets_ms)), said(2, 0, unified("0.6", resets_ms))]
    (window,) = ask(store, rows).windows
    assert window.projection is not None
    assert window.projection.full_ms == pytest.approx(NOW_MS + 0.8 * HOUR_MS, abs=2)


def test_a_window_that_hardly_burns_is_full_at_no_time_to_speak_of(store):
    """Where nobody says when it ends: a moment beyond all calendars would be no answer."""
    rows = [
        said(1, 60, {"anthropic-ratelimit-unified-5h-utilization": "0"}),
        said(2, 0, {"anthropic-ratelimit-unified-5h-utilization": f"0.{'0' * 40}1"}),
    ]
    (window,) = ask(store, rows).windows
    assert window.projection is not None and window.projection.full_ms is None


@pytest.mark.parametrize(
    ("minutes_ago", "used", "resets_ms"),
    [(2, "0.1", NOW_MS + HOUR_MS), (60, "much", NOW_MS + HOUR_MS), (60, "0.1", NOW_MS - HOUR_MS)],
)
def test_too_little_is_no_projection(store, minutes_ago, used, resets_ms):
    """Two words a moment apart, one that cannot be read, and one of another window."""
    rows = [said(1, minutes_ago, unified(used, resets_ms)), said(2, 0, unified("0.2", NOW_MS + HOUR_MS))]
    (window,) = ask(store, rows).windows
    assert (window.used, window.burn_per_hour, window.projection) == (0.2, None, None)


def test_a_window_that_has_ended_is_not_projected(store):
    """What is left of the next one nobody has said yet."""
    resets_ms = NOW_MS - HOUR_MS
    rows = [said(1, 180, unified("0.1", resets_ms)), said(2, 120, unified("0.2", resets_ms))]
    (window,) = ask(store, rows).windows
    assert window.is_over and window.projection is None and window.burn_per_hour == pytest.approx(0.1)


def test_nothing_said_is_nothing_known(store):
    answer = ask(store, [said(1, 1)])
    assert (answer.headroom, answer.refusals, answer.waits, answer.windows) == ([], [], [], [])
    msgspec.json.encode(answer)
