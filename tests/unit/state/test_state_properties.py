"""Memory and LMDB give the same answers, whatever is asked in whatever order."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from arbiter.state import rules
from arbiter.state.base import Cooldown, Origin, Pause, Pin
from arbiter.state.lmdb_state import LmdbState
from arbiter.state.memory import Memory
from tests.unit.state.conftest import Time

names = st.sampled_from(["a", "b"])
accounts = st.tuples(names, st.sampled_from(["", "x"]))
slots = st.sampled_from([bytes([number]) * 16 for number in range(3)])
pins = st.builds(Pin, names, names, names, names, st.booleans())
lives = st.sampled_from([1.0, 30.0, 3600.0, 90_000.0])
limits = st.integers(0, 3)
flags = st.booleans()

questions = st.one_of(
    st.tuples(st.just("pin"), slots),
    st.tuples(st.just("set_pin"), slots, pins, lives),
    st.tuples(st.just("refresh_pin"), slots, lives),
    st.tuples(st.just("failed"), names),
    st.tuples(st.just("served"), names),
    st.tuples(st.just("probe"), names),
    st.tuples(st.just("refuse"), accounts),
    st.tuples(st.just("lack"), st.sampled_from(["http://a", "http://b"]), st.sampled_from([1.0, 60.0])),
    st.tuples(st.just("admit"), names, limits, limits),
    st.tuples(st.just("remember"), st.lists(slots), st.builds(Origin, names, names, names), lives),
    st.tuples(st.just("origins"), st.lists(slots)),
    st.tuples(st.just("clear_cooldowns"), st.none() | names),
    st.tuples(st.just("clear_pins"), st.none() | names),
    st.tuples(st.just("clear_refused")),
    st.tuples(st.just("pause"), st.builds(Pause, st.just("client"), names, st.just(1))),
    st.tuples(st.just("resume"), st.just("client"), names),
    st.tuples(st.just("sweep")),
    st.tuples(st.just("counts")),
)
waits = st.sampled_from([0.0, 0.5, 5.0, 60.0])
coolings = st.tuples(accounts, waits, flags, flags)
passing = st.sampled_from([0.1, 1.0, 29.0, 61.0, 4000.0, 90_000.0])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(questions, questions, coolings, passing), max_size=40))
def test_memory_and_lmdb_agree(steps):
    time = Time()
    with tempfile.TemporaryDirectory() as place:
        memory = Memory(monotonic=time.monotonic, now_ms=time.now_ms)
        shared = LmdbState(Path(place), "this-run", monotonic=time.monotonic, now_ms=time.now_ms)
        try:
            for step in steps:
                if isinstance(step, float):
                    time.passes(step)
                elif isinstance(step[0], tuple):
                    account, wait_s, is_told, is_quota = step
                    for state in (memory, shared):
                        state.cool(account, wait_s, is_told=is_told, is_quota=is_quota)
                else:
                    name, *args = step
                    assert getattr(memory, name)(*args) == getattr(shared, name)(*args)
                assert memory.standing() == shared.standing()
        finally:
            shared.close()


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 200), flags)))
def test_the_end_of_a_cooldown_is_never_brought_forward_but_by_the_provider_s_word(steps):
    """A told wait is kept to its end; only a guess may end before its time."""
    now, rest = 0.0, None
    for passes, wait_s, is_told in steps:
        now += passes
        new = rules.cooled(rest, now, wait_s, is_told, False) or rest
        if rest is not None and rest.until > now:
            assert new.until >= rest.until or (is_told and not rest.is_told)
            assert new.is_told or not rest.is_told
        if is_told and wait_s > 0:
            assert new.is_told and new.until >= now + wait_s
        rest = new
    assert rest is None or isinstance(rest, Cooldown)


@given(st.lists(st.integers(0, 30_000), max_size=200))
def test_in_no_minute_and_on_no_day_more_are_let_in_than_allowed(steps):
    """And whoever waits as long as it was told is let in, if nobody else came."""
    now_ms, count, let_in = 1_750_000_000_000, None, {}
    for passes_ms in steps:
        now_ms += passes_ms
        wait_s, new = rules.counted(count, now_ms, 3, 50)
        if new is None:
            assert 0 < wait_s <= 86_400
            assert rules.counted(count, now_ms + round(wait_s * 1000), 3, 50)[0] == 0
            continue
        count = new
        for window in (rules.MINUTE_MS, rules.DAY_MS):
            let_in[window, now_ms // window] = let_in.get((window, now_ms // window), 0) + 1
    assert all(number <= (3 if window == rules.MINUTE_MS else 50) for (window, _), number in let_in.items())
