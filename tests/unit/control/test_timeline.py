"""Where an attempt's time went: stretches without gaps or overlaps, whatever was measured."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from arbiter.control import show, timeline
from arbiter.ledger.query import Entry
from tests.fakes.rows import attempt_row, request_row


def one(**fields):
    request = request_row()
    attempt = attempt_row(request, **fields)
    return Entry(request, [attempt]), attempt


def test_a_streamed_answer_shows_each_wait():
    entry, attempt = one(queue_us=2_000, connect_us=10_000, headers_us=50_000, first_event_us=90_000)
    found = timeline.stretches(entry, attempt)
    assert [(part.phase, part.start_us, part.end_us) for part in found] == [
        ("queue", 0, 2_000),
        ("connect", 2_000, 12_000),
        ("headers", 12_000, 62_000),
        ("first_event", 62_000, 90_000),
        ("stream", 90_000, 880_000),
        ("rest", 880_000, 890_000),
    ]
    assert found[0].left == 0 and abs(found[-1].left + found[-1].width - 100 * 890 / 900) < 1e-9


def test_an_answer_in_one_piece_has_a_body_in_place_of_events():
    entry, attempt = one(queue_us=0, connect_us=None, headers_us=700_000, first_event_us=None, last_event_us=None)
    assert [part.phase for part in timeline.stretches(entry, attempt)] == ["headers", "body"]


def test_a_failure_takes_the_time_until_it_was_known():
    entry, attempt = one(
        outcome="error", queue_us=0, connect_us=None, headers_us=None, first_event_us=None, last_event_us=None
    )
    assert [(part.phase, part.took_us) for part in timeline.stretches(entry, attempt)] == [("lost", 890_000)]


def test_an_interrupted_attempt_has_no_line():
    entry, attempt = one(
        queue_us=None, connect_us=None, headers_us=None, first_event_us=None, last_event_us=None, total_us=None
    )
    assert timeline.stretches(entry, attempt) == []


def test_a_second_try_begins_where_the_first_left_off():
    request = request_row(total_us=1_000_000)
    second = attempt_row(request, 2, started_ms=request.received_ms + 400, total_us=600_000, last_event_us=590_000)
    assert timeline.stretches(Entry(request, [second]), second)[0].left == 40


def test_a_beginning_rounded_to_its_millisecond_does_not_stretch_the_line():
    request = request_row(total_us=1_000)
    attempt = attempt_row(
        request, started_ms=request.received_ms + 1, total_us=600, queue_us=0, connect_us=None, headers_us=100,
        first_event_us=None, last_event_us=None,
    )  # fmt: skip
    entry = Entry(request, [attempt])
    assert timeline.whole_us(entry) == 1_000
    assert timeline.stretches(entry, attempt)[0].left == 40


moment = st.none() | st.integers(0, 10**9)


@given(
    started=st.integers(-5000, 5000), total=moment, queue_us=moment, connect_us=moment, headers_us=moment,
    first_event_us=moment, last_event_us=moment, total_us=moment, outcome=st.sampled_from(["ok", "error", "cancelled"]),
)  # fmt: skip
def test_whatever_was_measured_the_line_holds(started, total, **fields):
    """Clocks step back, moments are missing or out of order: still no gap, no overlap, nothing outside the line."""
    request = request_row(total_us=total)
    attempt = attempt_row(request, started_ms=request.received_ms + started, **fields)
    at = 0
    for part in timeline.stretches(Entry(request, [attempt]), attempt):
        assert part.start_us == at and part.end_us > at and part.label
        assert part.left >= 0 and part.left + part.width <= 100.000001
        at = part.end_us


def test_numbers_are_short_and_unknown_is_a_dash():
    assert [show.duration(us) for us in (None, 0, 420, 85_400, 999_600, 1_234_000, 12_340_000, 245_000_000)] == [
        "–", "< 0.1 ms", "0.4 ms", "85 ms", "1.00 s", "1.23 s", "12.3 s", "4 min 5 s",
    ]  # fmt: skip
    assert [show.size(value) for value in (None, 0, 1023, 4096, 3 << 20)] == [
        "–",
        "0 B",
        "1023 B",
        "4.0 KiB",
        "3.0 MiB",
    ]
    assert [show.count(value) for value in (None, 0, 1234567)] == ["–", "0", "1,234,567"]
    assert show.iso(0) == "1970-01-01T00:00:00.000Z" and show.clock(10**30) == "00:00:00"
