"""What only memory has to see to: nobody else tidies it, and it must not grow for ever."""

from __future__ import annotations

from arbiter.state import memory
from arbiter.state.base import Counts, Origin, Pin
from arbiter.state.memory import Memory

PIN = Pin("fast", "anthropic", "claude-sonnet-4-5", "work")


def test_it_sweeps_itself_each_hour(time):
    state = Memory(monotonic=time.monotonic, now_ms=time.now_ms)
    state.set_pin(b"short", PIN, 60)
    state.set_pin(b"long", PIN, 7200)
    time.passes(3599)
    state.look()
    assert state.counts() == Counts(pins=2)
    time.passes(1)
    state.look()
    assert state.counts() == Counts(pins=1)


def test_it_keeps_the_latest_of_many(time, monkeypatch):
    """What is written again counts as late."""
    monkeypatch.setattr(memory, "KEPT", 3)
    state = Memory(monotonic=time.monotonic, now_ms=time.now_ms)
    for slot in (b"a", b"b", b"c", b"a", b"d"):
        state.set_pin(slot, PIN, 60)
        state.remember([slot], Origin("anthropic", "work", "claude"), 60)
    assert [slot for slot in (b"a", b"b", b"c", b"d") if state.pin(slot)] == [b"a", b"c", b"d"]
    assert state.origins([b"a", b"b"]) == [Origin("anthropic", "work", "claude"), None]
