"""State while LMDB cannot be used: nobody who asks sees an error, and what was learned is not lost."""

from __future__ import annotations

import logging

import lmdb
import pytest

from arbiter.state import records
from arbiter.state.base import Origin, Pause, Pin
from arbiter.state.environment import Environment

PIN = Pin("fast", "anthropic", "claude-sonnet-4-5", "work")
OTHER = Pin("fast", "openai", "gpt-5.2", "", moved=True)
SLOT, OTHER_SLOT = bytes(16), b"\xff" * 16
ACCOUNT, OTHER_ACCOUNT = ("anthropic", "work"), ("openai", "")
MINE = Origin("anthropic", "work", "claude")


@pytest.fixture
def break_it(monkeypatch):
    """Make LMDB fail from now on; returns how often it was asked since. `None` mends it."""
    real = {name: getattr(Environment, name) for name in ("begin", "read")}
    asked = []

    def start(error, *names):
        def fail(environment):
            asked.append(error)
            raise error

        asked.clear()
        for name in real:
            monkeypatch.setattr(Environment, name, fail if error is not None and name in names else real[name])
        return asked

    return start


def use_all(state):
    """Every question there is."""
    state.standing()
    state.pin(SLOT)
    state.set_pin(SLOT, PIN, 60)
    state.refresh_pin(SLOT, 60)
    state.cool(ACCOUNT, 5, is_told=True, is_quota=False)
    state.failed("anthropic")
    state.served("anthropic")
    state.probe("anthropic")
    state.refuse(ACCOUNT)
    state.admit("agent", 1, 1)
    state.remember(iter([SLOT]), MINE, 60)
    state.origins([SLOT, OTHER_SLOT])
    state.forget(OTHER_SLOT)
    state.share("worker-1", {"a/m": 1}, {"a/m": [(1.0, 1.0)]})
    state.busy("worker-2")
    state.measures()
    state.clear_cooldowns()
    state.clear_pins()
    state.clear_refused()
    state.pause(Pause("all", "", 1))
    state.resume("all", "")
    state.counts()
    state.sweep()
    state.is_crowded()
    state.look()


ERRORS = [
    lmdb.MapFullError("full"),
    lmdb.DiskError("no space left"),
    lmdb.ReadonlyError("read only"),
    lmdb.CorruptedError("corrupted"),
    lmdb.PanicError("panic"),
    lmdb.ReadersFullError("readers"),
    OSError(5, "Input/output error"),
]


@pytest.mark.parametrize("names", [("begin",), ("read",), ("begin", "read")])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_whatever_lmdb_says_nobody_who_asks_sees_an_error(open_shared, break_it, error, names):
    state = open_shared()
    use_all(state)
    break_it(error, *names)
    use_all(state)
    assert str(error) in state.reason
    break_it(None)


@pytest.mark.parametrize("question", ["standing", "set_pin", "cool", "admit", "probe", "remember"])
def test_the_question_that_meets_the_failure_is_answered(open_shared, break_it, question):
    """From the memory, which begins with the standing as it was."""
    state = open_shared()
    state.cool(ACCOUNT, 60, is_told=True, is_quota=False)
    state.pause(Pause("all", "", 1))
    state.standing()
    break_it(lmdb.CorruptedError("corrupted"), "begin", "read")
    if question == "standing":
        assert set(state.standing().cooldowns) == {ACCOUNT}
    elif question == "set_pin":
        state.set_pin(SLOT, PIN, 60)
        assert state.pin(SLOT) == PIN
    elif question == "cool":
        state.cool(OTHER_ACCOUNT, 5, is_told=True, is_quota=False)
        assert set(state.standing().cooldowns) == {ACCOUNT, OTHER_ACCOUNT}
    elif question == "admit":
        assert state.admit("agent", 1, 0) == 0 and state.admit("agent", 1, 0) > 0
    elif question == "probe":
        assert state.probe("anthropic")
    else:
        state.remember(iter([SLOT]), MINE, 60)
        assert state.origins([SLOT]) == [MINE]
    assert set(state.standing().pauses) == {("all", "")}


def test_what_is_broken_is_not_tried_again_on_the_way_of_a_request(open_shared, break_it, time):
    """A disk that hangs for a moment each time would be felt by every request."""
    state = open_shared()
    asked = break_it(lmdb.CorruptedError("corrupted"), "begin", "read")
    state.standing()
    assert len(asked) == 1
    for _ in range(100):
        time.passes(10)
        state.standing()
        state.pin(SLOT)
        state.set_pin(SLOT, PIN, 60)
    assert len(asked) == 1


def test_it_is_tried_again_at_most_once_a_second(open_shared, break_it, time):
    state = open_shared()
    asked = break_it(lmdb.DiskError("no space left"), "begin")
    state.set_pin(SLOT, PIN, 60)
    for _ in range(40):
        state.look()
        time.passes(0.25)
    assert len(asked) == 1 + 9


def test_where_only_writing_fails_what_was_written_is_still_read(open_shared, break_it, time):
    """A full disk must not make every conversation cold."""
    state = open_shared()
    state.set_pin(SLOT, PIN, 600)
    state.set_pin(OTHER_SLOT, PIN, 600)
    state.remember([SLOT], MINE, 600)
    break_it(lmdb.DiskError("no space left"), "begin")
    state.set_pin(OTHER_SLOT, OTHER, 600)
    state.remember([OTHER_SLOT], MINE, 600)
    assert state.reason
    assert (state.pin(SLOT), state.pin(OTHER_SLOT)) == (PIN, OTHER)
    assert state.origins([SLOT, OTHER_SLOT, b"x" * 16]) == [MINE, MINE, None]
    time.passes(500)
    state.refresh_pin(SLOT, 600)
    time.passes(500)
    assert state.pin(SLOT) == PIN


def test_when_it_works_again_it_learns_what_was_learned_meanwhile(open_shared, open_lmdb, break_it, time):
    state, other = open_shared(), open_lmdb()
    state.pause(Pause("all", "", 1))
    state.set_pin(OTHER_SLOT, PIN, 600)
    state.standing()
    break_it(lmdb.DiskError("no space left"), "begin")
    state.set_pin(SLOT, OTHER, 100)
    state.set_pin(OTHER_SLOT, OTHER, 1)
    state.remember([SLOT], MINE, 60)
    state.cool(ACCOUNT, 30, is_told=True, is_quota=True)
    state.cool(OTHER_ACCOUNT, 1, is_told=True, is_quota=True)
    state.refuse(ACCOUNT)
    state.lack("http://up/v1", 900)
    state.pause(Pause("client", "a", 1))
    state.resume("all", "")
    break_it(None)
    time.passes(1)
    state.look()
    assert state.reason == ""
    assert other.standing() == state.standing()
    assert other.standing().cooldowns[ACCOUNT].until == time.monotonic() + 29
    assert set(other.standing().cooldowns) == {ACCOUNT} and other.standing().refused == {ACCOUNT}
    assert other.standing().lacking == {"http://up/v1": time.monotonic() + 899}
    assert set(other.standing().pauses) == {("client", "a")}
    assert other.pin(SLOT) == OTHER and other.origins([SLOT]) == [MINE]
    assert other.pin(OTHER_SLOT) == PIN, "what has expired meanwhile overwrites nothing"
    time.passes(99)
    assert other.pin(SLOT) is None


def test_a_pause_is_heard_of_where_only_writing_fails(open_shared, open_lmdb, break_it, time):
    """The kill switch is a small write, and may still fit on a disk that takes nothing of ours any more."""
    state, other = open_shared(), open_lmdb()
    state.pause(Pause("client", "before", 1))
    state.standing()
    break_it(lmdb.DiskError("no space left"), "begin")
    state.set_pin(SLOT, PIN, 60)
    break_it(None)  # others can; this one has not tried again
    state._try_at = float("inf")
    other.pause(Pause("all", "", 2))
    other.resume("client", "before")
    state.look()
    assert state.reason and set(state.standing().pauses) == {("all", "")}
    state.pause(Pause("client", "own", 3))
    other.resume("all", "")
    state.look()
    assert set(state.standing().pauses) == {("client", "own")}
    state._try_at = 0.0
    state.look()
    assert not state.reason and set(other.standing().pauses) == {("client", "own")}


def test_what_others_cleared_meanwhile_does_not_come_back(open_shared, open_lmdb, break_it, time):
    """Only what this process learned by itself is news."""
    state, other = open_shared(), open_lmdb()
    state.cool(ACCOUNT, 600, is_told=True, is_quota=False)
    state.pause(Pause("all", "", 1))
    state.standing()
    break_it(lmdb.ReadersFullError("readers"), "read")
    state.standing()
    break_it(None)
    other.clear_cooldowns()
    other.resume("all", "")
    time.passes(1)
    state.look()
    assert not state.reason
    assert not state.standing().cooldowns and not state.standing().pauses


def test_one_line_is_logged_for_each_trouble(open_shared, break_it, time, caplog):
    """Also when it comes and goes, as on a disk that is all but full: then it is tried more and more seldom."""
    caplog.set_level(logging.INFO, "arbiter")
    state = open_shared()
    for wait_s in (1, 2, 4, 8, 16):
        break_it(lmdb.DiskError("no space left"), "begin")
        for number in range(20):
            state.set_pin(bytes([number]), PIN, 60)
        break_it(None)
        time.passes(wait_s - 0.1)
        state.look()
        assert state.reason
        time.passes(0.1)
        state.look()
        assert state.reason == ""
    assert [record.levelno for record in caplog.records] == [logging.WARNING, logging.INFO]
    time.passes(60)
    break_it(lmdb.DiskError("no space left"), "begin")
    state.set_pin(SLOT, PIN, 60)
    break_it(None)
    time.passes(1)
    state.look()
    assert state.reason == "" and len(caplog.records) == 4


# ------------------------------------------------------------------------------------------------- real damage


def test_a_full_map_costs_no_pin(open_shared, open_lmdb, time):
    state, number = open_shared(map_bytes=1 << 20), 0
    while not state.reason:
        state.set_pin(records.key(b"", str(number)), PIN, 60 if number else 6000)
        number += 1
    assert number > 1000
    assert all(state.pin(records.key(b"", str(at))) == PIN for at in range(number))
    time.passes(1)
    state.look()
    assert "full" in state.reason.lower() and state.is_crowded()
    time.passes(60)
    assert state.sweep() > 1000
    time.passes(1)
    state.look()
    assert state.reason == "" and not state.is_crowded()
    state.set_pin(SLOT, PIN, 60)
    assert open_lmdb().pin(SLOT) == PIN


def test_a_place_that_cannot_be_used_is_used_once_it_can(open_shared, open_lmdb, time, tmp_path):
    """Forbidden, read-only, something else in its place."""
    (tmp_path / "state").write_text("not a directory")
    state = open_shared()
    assert state.reason
    use_all(state)
    state.cool(ACCOUNT, 30, is_told=True, is_quota=False)
    state.look()
    assert state.reason
    (tmp_path / "state").unlink()
    time.passes(1)
    state.look()
    assert state.reason == ""
    assert set(open_lmdb().standing().cooldowns) == {ACCOUNT}


def test_a_file_that_is_no_environment_is_left_alone(open_shared, tmp_path, time):
    """The supervisor moves it aside, who alone knows that nobody else has it open."""
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "data.mdb").write_bytes(b"\xa5" * 65536)
    state = open_shared()
    assert state.reason
    use_all(state)
    time.passes(1)
    state.look()
    assert state.reason
    assert (tmp_path / "state" / "data.mdb").read_bytes() == b"\xa5" * 65536


@pytest.mark.parametrize("is_broken", [False, True])
def test_a_successor_of_a_file_that_was_moved_aside_is_told_everything(
    open_shared, open_lmdb, break_it, time, tmp_path, is_broken
):
    """Nobody else knows it any more. Whether it was noticed to be broken before makes no difference."""
    state = open_shared()
    state.cool(ACCOUNT, 30, is_told=True, is_quota=False)
    state.pause(Pause("all", "", 1))
    state.set_pin(SLOT, PIN, 600)
    known = state.standing()
    if is_broken:
        break_it(lmdb.CorruptedError("corrupted"), "read")
        state.pin(SLOT)
        time.passes(1)
        state.look()
        assert state.reason
        break_it(None)
    (tmp_path / "state").rename(tmp_path / "state.damaged")
    time.passes(1)
    state.look()
    assert state.reason == ""
    assert state.standing() == known
    assert state.pin(SLOT) is None
    other = open_lmdb()
    assert other.standing() == known
    other.set_pin(SLOT, OTHER, 60)
    assert state.pin(SLOT) == OTHER
