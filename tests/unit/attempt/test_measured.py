"""What a worker sees of its targets, and hears of the others."""

from __future__ import annotations

from arbiter.accounting.facts import Facts
from arbiter.attempt.measured import Measured
from arbiter.model import Usage
from arbiter.state.memory import Memory

T = "up/model"
S = 1_000_000_000


def test_requests_under_way_are_counted_over_all_workers():
    state = Memory()
    one, two = Measured(state, "one"), Measured(state, "two")
    one.began(T)
    two.began(T)
    two.began(T)
    assert one.busy(T) == 1
    for worker in (one, two, one):
        worker.exchange(wants_speeds=True)
    assert one.busy(T) == 3 and two.busy(T) == 3
    two.ended(T)
    two.ended(T)
    two.exchange(wants_speeds=True)
    one.exchange(wants_speeds=True)
    assert one.busy(T) == 1 and two.busy(T) == 1


def test_an_ended_request_that_nobody_began_is_no_debt():
    measured = Measured(Memory(), "one")
    measured.ended(T)
    measured.began(T)
    assert measured.busy(T) == 1


def stream(first_s: float, last_s: float, output: int | None) -> Facts:
    usage = Usage(output=output) if output is not None else None
    return Facts(usage=usage, first_event_ns=round(first_s * S), last_event_ns=round(last_s * S))


def test_the_pace_of_a_stream_is_measured_and_shared():
    """Seconds to the first event from the send, tokens per second from the first event to the last."""
    now = [100.0]
    state = Memory(monotonic=lambda: now[0])
    one, two = Measured(state, "one"), Measured(state, "two")
    for first in (0.5, 1.0, 3.0):
        one.saw(T, 0, stream(first, first + 2, 100))
    one.exchange(wants_speeds=True)
    now[0] += 2
    two.exchange(wants_speeds=True)
    assert two.speed(T) == (1.0, 50.0) and two.speed("up/other") is None


def test_what_says_nothing_of_its_pace_still_says_when_it_began():
    """No count, or no time between the first event and the last: `fastest_measured` goes by the first event."""
    now = [100.0]
    state = Memory(monotonic=lambda: now[0])
    measured = Measured(state, "one")
    measured.saw(T, 0, Facts())
    measured.exchange(wants_speeds=True)
    now[0] += 2
    measured.exchange(wants_speeds=True)
    assert measured.speed(T) is None
    for facts in (stream(1, 2, None), stream(1, 2, 0), stream(1, 1.01, 9)):
        measured.saw(T, 0, facts)
    measured.exchange(wants_speeds=True)
    now[0] += 2
    measured.exchange(wants_speeds=True)
    assert measured.speed(T) == (1.0, 0.0)
