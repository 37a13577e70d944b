"""How long a target is left alone between two tries."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from arbiter.attempt.backoff import delay_s
from arbiter.config.snapshot import Retry


def test_it_doubles_and_stops_at_the_cap():
    assert [delay_s(Retry(), n, None, 1.0) for n in range(1, 9)] == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0]


@given(st.integers(1, 10**6), st.floats(0, 1, exclude_max=True))
def test_it_is_spread_over_the_upper_half(failures: int, draw: float):
    whole = delay_s(Retry(), failures, None, 1.0)
    assert whole / 2 <= delay_s(Retry(), failures, None, draw) <= whole <= 8.0


def test_a_wait_that_was_asked_for_is_never_cut_short():
    assert delay_s(Retry(), 1, 12.5, 0.3) == 12.5
    assert delay_s(Retry(), 6, 0.1, 1.0) == 8.0
