"""State in LMDB: what is shared, what outlives a restart, and what nobody can read."""

from __future__ import annotations

import lmdb
import msgspec
import pytest

from arbiter.state import records, rules
from arbiter.state.base import Counts, Origin, Pause, Pin, Standing
from arbiter.state.environment import Environment
from arbiter.state.lmdb_state import BOUND, CROWDED

PIN = Pin("fast", "anthropic", "claude-sonnet-4-5", "work")
SLOT = bytes(16)
ACCOUNT = ("anthropic", "work")
MINE = Origin("anthropic", "work", "claude")


def fill(state):
    """One of each."""
    state.set_pin(SLOT, PIN, 86_400)
    state.remember([SLOT], MINE, 86_400)
    state.cool(ACCOUNT, 3600, is_told=True, is_quota=False)
    state.refuse(ACCOUNT)
    state.lack("http://up/v1", 900)
    for _ in range(rules.BREAKER_FAILURES):
        state.failed("anthropic")
    state.pause(Pause("all", "", 5))
    state.admit("agent", 0, 1)
    state.share("worker-1", {"a/m": 1}, {"a/m": [(1.0, 10.0)]})


# ----------------------------------------------------------------------------------------------- who sees what, when


def test_what_one_says_the_next_question_of_another_hears(open_lmdb):
    """No copy of it is older than the question."""
    one, other = open_lmdb(), open_lmdb()
    for end in (30, 60, 90):
        one.cool(ACCOUNT, end, is_told=True, is_quota=False)
        assert other.standing() == one.standing()
        assert other.standing().cooldowns[ACCOUNT].until == 1000 + end
    other.clear_cooldowns()
    assert one.standing() == Standing()


def test_standing_is_decoded_anew_only_when_it_changed(open_lmdb, monkeypatch):
    one, other = open_lmdb(), open_lmdb()
    one.cool(ACCOUNT, 30, is_told=True, is_quota=False)
    first = other.standing()
    monkeypatch.setattr(records, "read_cooldown", None)
    for number in range(10):
        one.set_pin(bytes([number]), PIN, 60)
        assert other.standing() is first


def test_who_answered_without_a_breaker_writes_nothing(open_lmdb, monkeypatch):
    """Nearly every request ends so."""
    state = open_lmdb()
    state.set_pin(SLOT, PIN, 600)
    state.standing()
    monkeypatch.setattr(Environment, "begin", None)
    state.served("anthropic")
    state.refresh_pin(SLOT, 600)
    state.share("worker-1", {}, {})
    assert state.probe("anthropic")


def test_two_that_ask_at_the_same_time_get_one_probe(open_lmdb, time):
    """Also when the second one's standing is from before the first one's lease."""
    one, other = open_lmdb(), open_lmdb()
    for _ in range(rules.BREAKER_FAILURES):
        one.failed("anthropic")
    time.passes(1)
    stale = other.standing()
    assert one.probe("anthropic")
    other.standing = lambda: stale
    assert not other.probe("anthropic")


def test_a_pin_that_moved_meanwhile_is_not_moved_back_by_a_refresh(open_lmdb, time, monkeypatch):
    one, other = open_lmdb(), open_lmdb()
    one.set_pin(SLOT, PIN, 600)
    time.passes(300)
    moved = Pin("fast", "openai", "gpt-5.2", "", moved=True)
    begin = Environment.begin

    def just_before(environment):
        monkeypatch.setattr(Environment, "begin", begin)
        other.set_pin(SLOT, moved, 600)
        return begin(environment)

    monkeypatch.setattr(Environment, "begin", just_before)
    one.refresh_pin(SLOT, 600)
    assert one.pin(SLOT) == moved


# ------------------------------------------------------------------------------------------------- what outlives what


def test_a_reload_and_a_new_worker_find_everything(open_lmdb):
    """They are of the same run."""
    state = open_lmdb()
    fill(state)
    known = state.standing()
    state.close()
    again = open_lmdb()
    assert again.standing() == known
    assert (set(known.cooldowns), set(known.breakers), known.refused) == ({ACCOUNT}, {"anthropic"}, {ACCOUNT})
    assert set(known.lacking) == {"http://up/v1"}
    assert again.pin(SLOT) == PIN and again.busy("worker-2") == {"a/m": 1}


def test_a_restart_keeps_pins_artefacts_pauses_day_counts_and_measures_only(open_lmdb):
    """Whoever restarts the gateway wants its providers tried again."""
    state = open_lmdb()
    fill(state)
    state.close()
    again = open_lmdb("another-run")
    assert again.standing() == Standing(pauses={("all", ""): Pause("all", "", 5)})
    assert again.pin(SLOT) == PIN and again.origins([SLOT]) == [MINE]
    assert again.admit("agent", 0, 1) > 0
    assert again.measures() == {"a/m": (1.0, 10.0)} and again.busy("worker-2") == {}


def test_entries_of_another_run_are_as_good_as_absent(open_lmdb, time):
    """After a restart of the machine its clock stands anywhere: an old end must not hold anybody up."""
    state = open_lmdb()
    fill(state)
    again = open_lmdb("another-run")
    again.cool(ACCOUNT, 5, is_told=False, is_quota=False)
    again.failed("anthropic")
    assert again.standing().cooldowns[ACCOUNT].until == time.monotonic() + 5
    assert again.standing().breakers["anthropic"].failures == 1
    assert again.probe("anthropic")


def test_a_sweep_removes_entries_of_another_run(open_lmdb):
    state = open_lmdb()
    fill(state)
    again = open_lmdb("another-run")
    assert again.sweep() == 5  # cooldown, breaker, refusal, missing endpoint, what was under way
    assert state.standing() == again.standing()


def test_a_worker_of_the_same_name_goes_on_with_what_its_predecessor_measured(open_lmdb, time):
    open_lmdb().share("worker-1", {}, {"a/m": [(1.0, 10.0), (1.0, 10.0)]})
    open_lmdb().share("worker-1", {}, {"a/m": [(9.0, 90.0)]})
    assert open_lmdb().measures() == {"a/m": (1.0, 10.0)}


# -------------------------------------------------------------------------------------------------- unreadable things


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x01",
        b"\x01\xc1",
        b"\x01" + msgspec.msgpack.encode([]),
        b"\x01" + msgspec.msgpack.encode(["a", "b", "c", "d"]),
        b"\x01" + msgspec.msgpack.encode({"a": 7}),
        b"\x01" + (1 << 60).to_bytes(8, "big"),
        b"\x01" + (1 << 60).to_bytes(8, "big") + b"\xc1",
        b"\x01" + (1 << 60).to_bytes(8, "big") + msgspec.msgpack.encode([1, 2, 3, 4]),
        b"\x02" + msgspec.msgpack.encode([1 << 50, ["a", "b", "c", "d"]]),
        b"\xff" * 100,
    ],
)
def test_what_cannot_be_read_is_absent_and_can_be_written_anew(open_lmdb, raw):
    """Garbage, or the records of a newer version that somebody has gone back from."""
    state = open_lmdb()
    fill(state)
    for database in (state._standing, state._pins, state._artefacts, state._counters, state._measures):
        with state._env.begin() as txn:
            with txn.cursor(database) as cursor:
                keys = [key for key, _ in cursor if key != records.GENERATION]
            for key in keys:
                txn.put(key, raw, db=database)
    again = open_lmdb()
    assert again.standing() == Standing()
    assert again.pin(SLOT) is None and again.origins([SLOT]) == [None]
    assert again.busy("worker-2") == {} and again.measures() == {}
    again.refresh_pin(SLOT, 60)
    assert again.clear_pins("anthropic") == 0
    fill(again)
    assert again.pin(SLOT) == PIN and again.origins([SLOT]) == [MINE]
    assert again.standing().refused == {ACCOUNT} and again.admit("agent", 0, 1) > 0


@pytest.mark.parametrize(("version", "left"), [(b"\x01", Counts()), (b"\x02", Counts(1, 1))])
def test_a_sweep_takes_garbage_but_leaves_what_is_a_newer_version_s(open_lmdb, version, left):
    state = open_lmdb()
    with state._env.begin() as txn:
        for database in (state._pins, state._artefacts):
            txn.put(SLOT, version + b"whatever", db=database)
    state.sweep()
    assert state.counts() == left


def test_names_may_be_as_long_as_anybody_likes(open_lmdb):
    """LMDB bounds its keys."""
    state, account = open_lmdb(), ("p" * 5000, "ü" * 5000)
    state.cool(account, 5, is_told=True, is_quota=False)
    state.refuse(account)
    state.failed(account[0])
    state.pause(Pause("client", account[1], 1))
    state.share(account[1], {"a": 1}, {})
    assert state.admit(account[1], 1, 0) == 0 and state.admit(account[1], 1, 0) > 0
    standing = state.standing()
    assert (set(standing.cooldowns), standing.refused) == ({account}, {account})


# -------------------------------------------------------------------------------------------------------------- room


def fill_up(state, time, share):
    """Write pins that expire one after the other, until so much of the map is in use; returns how many."""
    number = 0
    while state.fullness() <= share:
        for _ in range(100):
            state.set_pin(records.key(b"", str(number)), PIN, 60 + number)
            number += 1
    return number


def test_a_crowded_map_is_swept_of_what_would_expire_first(open_lmdb, time):
    """Conversations that go on are the last to lose their pins."""
    state = open_lmdb(map_bytes=2 << 20)
    number = fill_up(state, time, CROWDED)
    removed = state.sweep()
    assert state.fullness() < CROWDED * 0.6
    assert number / 2 < removed < number
    assert state.pin(records.key(b"", str(number - 1))) == PIN
    assert state.pin(records.key(b"", "0")) is None
    assert state.sweep() == 0


def test_nothing_grows_beyond_the_bound_and_what_is_small_is_still_shared(open_lmdb, time):
    """A map that is full to the last page could not even be swept."""
    state = open_lmdb(map_bytes=2 << 20)
    with pytest.raises(lmdb.MapFullError):
        fill_up(state, time, 1.0)
    with pytest.raises(lmdb.MapFullError):
        state.try_write()
    with pytest.raises(lmdb.MapFullError):
        state.remember([SLOT], MINE, 60)
    assert BOUND < state.fullness() < BOUND + 0.02
    state.cool(ACCOUNT, 1000, is_told=True, is_quota=False)
    state.refresh_pin(records.key(b"", "0"), 86_400)
    assert set(state.standing().cooldowns) == {ACCOUNT} and state.admit("agent", 1, 0) == 0
    number = state.counts().pins
    time.passes(60 + number)
    assert state.sweep() == number - 1 + 1  # all but the refreshed one, and the cooldown
    state.try_write()
    state.set_pin(SLOT, PIN, 60)
