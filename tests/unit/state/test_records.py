"""How state is written down: what is dated is read whole, or reads as absent."""

from __future__ import annotations

import pytest

from arbiter.state import records
from arbiter.state.base import Pin

PIN = Pin("fast", "anthropic", "claude-sonnet-4-5", "work")
ENDS_MS = 1_790_000_000_000


def test_what_is_dated_lives_until_its_time():
    raw = records.encode_dated(ENDS_MS, PIN)
    assert records.read_expiry(raw) == ENDS_MS
    assert records.read_dated_pin(raw, ENDS_MS - 1) == (PIN, ENDS_MS)
    assert records.read_dated_pin(raw, ENDS_MS) == (None, 0)


def test_it_is_written_as_it_always_was():
    """A version, eight bytes that say when its life ends, and the value: older gateways read the same files."""
    assert records.encode_dated(ENDS_MS, ["a"]) == b"\x01" + ENDS_MS.to_bytes(8, "big") + b"\x91\xa1a"


@pytest.mark.parametrize("size", range(12))
def test_what_was_cut_short_reads_as_absent(size):
    """However far into the future its broken time may seem to be."""
    raw = (b"\x01" + b"\xff" * 8 + records.encode_dated(ENDS_MS, PIN)[9:])[:size]
    assert records.read_dated_pin(raw, 0) == (None, 0)
    assert (records.read_expiry(raw) is None) == (size <= 9)


def test_what_a_newer_version_wrote_reads_as_absent():
    raw = b"\x02" + records.encode_dated(ENDS_MS, PIN)[1:]
    assert records.read_dated_pin(raw, 0) == (None, 0) and records.read_expiry(raw) is None


def test_two_that_say_the_same_are_read_with_the_time_of_each():
    """The value is remembered, its time is not."""
    for ends_ms in (ENDS_MS, ENDS_MS + 5):
        assert records.read_dated_pin(records.encode_dated(ends_ms, PIN), 0) == (PIN, ends_ms)
