"""What state answers, whoever keeps it: one suite over every implementation."""

from __future__ import annotations

import pytest

from arbiter.state import densities, rules
from arbiter.state.base import Counts, Origin, Pause, Pin

PIN = Pin("fast", "anthropic", "claude-sonnet-4-5", "work")
OTHER = Pin("fast", "openai", "gpt-5.2", "", moved=True)
SLOT, OTHER_SLOT = bytes(16), b"\xff" * 16
ACCOUNT = ("anthropic", "work")
HOURS_25 = 25 * 3600.0


# ------------------------------------------------------------------------------------------------------------- pins


def test_a_pin_is_read_as_it_was_written(state):
    state.set_pin(SLOT, PIN, HOURS_25)
    state.set_pin(OTHER_SLOT, OTHER, HOURS_25)
    assert (state.pin(SLOT), state.pin(OTHER_SLOT), state.pin(b"x" * 16)) == (PIN, OTHER, None)
    assert state.counts() == Counts(pins=2)


def test_a_pin_written_again_is_the_new_one(state):
    """What served last is where the conversation goes on."""
    state.set_pin(SLOT, PIN, 60)
    state.set_pin(SLOT, OTHER, 60)
    assert state.pin(SLOT) == OTHER
    assert state.counts() == Counts(pins=1)


def test_a_pin_ends_with_its_life_swept_or_not(state, time):
    state.set_pin(SLOT, PIN, 100)
    time.passes(99.9)
    assert state.pin(SLOT) == PIN
    time.passes(0.1)
    assert state.pin(SLOT) is None


def test_a_conversation_that_goes_on_keeps_its_pin(state, time):
    """Sliding: as long as no pause is longer than a life, it lives for ever."""
    state.set_pin(SLOT, PIN, 1000)
    for _ in range(10):
        time.passes(900)
        state.refresh_pin(SLOT, 1000)
    assert state.pin(SLOT) == PIN
    time.passes(1000)
    assert state.pin(SLOT) is None


def test_what_is_gone_is_not_called_back_by_a_refresh(state, time):
    state.refresh_pin(SLOT, 100)
    assert state.pin(SLOT) is None
    state.set_pin(SLOT, PIN, 100)
    time.passes(100)
    state.refresh_pin(SLOT, 100)
    assert state.pin(SLOT) is None


@pytest.mark.parametrize(("ttl_s", "slack_s"), [(HOURS_25, 60.0), (100.0, 5.0)])
def test_a_pin_is_extended_only_when_some_of_its_life_has_passed(state, time, ttl_s, slack_s):
    """A conversation in full swing does not write with each turn."""
    state.set_pin(SLOT, PIN, ttl_s)
    time.passes(slack_s)
    state.refresh_pin(SLOT, ttl_s)
    time.passes(ttl_s - slack_s)
    assert state.pin(SLOT) is None
    state.set_pin(SLOT, PIN, ttl_s)
    time.passes(slack_s + 0.1)
    state.refresh_pin(SLOT, ttl_s)
    time.passes(ttl_s - slack_s)
    assert state.pin(SLOT) == PIN


def test_pins_are_cleared_all_or_those_of_one_provider(state):
    for number in range(300):
        state.set_pin(number.to_bytes(16, "big"), PIN if number % 3 else OTHER, 60)
    assert state.clear_pins("openai") == 100
    assert state.pin((3).to_bytes(16, "big")) is None and state.pin((4).to_bytes(16, "big")) == PIN
    assert state.clear_pins() == 200
    assert state.counts() == Counts()


# -------------------------------------------------------------------------------------------------------- cooldowns


def rest(state, account=ACCOUNT):
    return state.standing().cooldowns.get(account)


def test_a_cooldown_lasts_as_long_as_it_was_told(state, time):
    state.cool(ACCOUNT, 30, is_told=True, is_quota=True)
    cooldown = rest(state)
    assert (cooldown.until, cooldown.is_told, cooldown.is_quota) == (time.monotonic() + 30, True, True)
    assert rest(state, ("anthropic", "")) is None


def test_a_cooldown_is_extended_and_never_shortened(state, time):
    state.cool(ACCOUNT, 30, is_told=True, is_quota=False)
    end = rest(state).until
    time.passes(10)
    state.cool(ACCOUNT, 5, is_told=True, is_quota=True)
    assert rest(state).until == end and not rest(state).is_quota
    state.cool(ACCOUNT, 25, is_told=True, is_quota=False)
    assert rest(state).until == end + 5


def test_a_told_wait_outranks_a_guess(state, time):
    """The provider knows: its word replaces our guess, and no guess replaces it while it lasts."""
    state.cool(ACCOUNT, 5, is_told=False, is_quota=False)
    state.cool(ACCOUNT, 2, is_told=True, is_quota=False)
    assert (rest(state).until, rest(state).is_told) == (time.monotonic() + 2, True)
    state.cool(ACCOUNT, 60, is_told=False, is_quota=False)
    assert (rest(state).until, rest(state).is_told) == (time.monotonic() + 2, True)
    time.passes(2)
    state.cool(ACCOUNT, 5, is_told=False, is_quota=False)
    assert (rest(state).until, rest(state).is_told) == (time.monotonic() + 5, False)


@pytest.mark.parametrize("wait_s", [0.0, -1.0, float("nan")])
def test_no_wait_is_no_cooldown(state, wait_s):
    state.cool(ACCOUNT, wait_s, is_told=True, is_quota=False)
    assert rest(state) is None


def test_standing_is_one_object_until_something_in_it_changes(state):
    """Whoever derives something from it may keep that for as long."""
    state.cool(ACCOUNT, 30, is_told=True, is_quota=False)
    first = state.standing()
    state.set_pin(SLOT, PIN, 60)
    state.admit("a", 5, 5)
    state.cool(ACCOUNT, 10, is_told=True, is_quota=False)
    assert state.standing() is first
    state.refuse(ACCOUNT)
    assert state.standing() is not first
    assert first.refused == frozenset()


def test_cooldowns_and_breakers_are_cleared_all_or_those_of_one_provider(state):
    state.cool(ACCOUNT, 30, is_told=True, is_quota=False)
    state.cool(("openai", ""), 30, is_told=True, is_quota=False)
    state.failed("anthropic")
    state.refuse(ACCOUNT)
    assert state.clear_cooldowns("anthropic") == 2
    assert set(state.standing().cooldowns) == {("openai", "")} and not state.standing().breakers
    assert (state.clear_cooldowns(), state.clear_cooldowns()) == (1, 0)
    assert state.standing().refused == {ACCOUNT}


# --------------------------------------------------------------------------------------------------------- breakers


def breaker(state):
    return state.standing().breakers.get("anthropic")


def open_breaker(state):
    for _ in range(rules.BREAKER_FAILURES):
        state.failed("anthropic")


def test_failures_in_a_row_open_a_breaker(state, time):
    for number in range(1, rules.BREAKER_FAILURES):
        state.failed("anthropic")
        assert (breaker(state).failures, breaker(state).open_until) == (number, 0.0)
    state.failed("anthropic")
    assert breaker(state).open_until == time.monotonic() + 1


def test_an_answer_begins_the_row_anew(state):
    for _ in range(rules.BREAKER_FAILURES - 1):
        state.failed("anthropic")
    assert breaker(state) is not None
    state.served("anthropic")
    assert breaker(state) is None
    state.failed("anthropic")
    assert breaker(state).failures == 1


def test_failures_far_apart_are_not_in_a_row(state, time):
    for _ in range(rules.BREAKER_FAILURES * 2):
        time.passes(rules.BREAKER_FORGOTTEN_S)
        state.failed("anthropic")
    assert breaker(state).failures == 1


def test_a_breaker_stays_open_longer_each_time_up_to_a_minute(state, time):
    open_breaker(state)
    waits = []
    for _ in range(9):
        waits.append(breaker(state).open_until - time.monotonic())
        time.passes(waits[-1])
        assert state.probe("anthropic")
        state.failed("anthropic")
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_what_fails_while_a_breaker_is_open_does_not_prolong_it(state):
    """A hundred requests that were under way fail with the one that opened it."""
    open_breaker(state)
    end = breaker(state).open_until
    for _ in range(100):
        state.failed("anthropic")
    assert breaker(state).open_until == end


def test_one_request_at_a_time_tries_a_provider_whose_breaker_was_open(state, time):
    assert state.probe("anthropic") and state.probe("anthropic")  # there is nothing to be careful about
    open_breaker(state)
    assert not state.probe("anthropic")
    time.passes(1)
    assert state.probe("anthropic")
    assert not state.probe("anthropic")
    state.served("anthropic")
    assert state.probe("anthropic") and state.probe("anthropic")


def test_a_probe_that_nobody_ended_gives_way_to_another(state, time):
    """Its worker was killed."""
    open_breaker(state)
    time.passes(1)
    assert state.probe("anthropic")
    time.passes(rules.PROBE_S - 0.1)
    assert not state.probe("anthropic")
    time.passes(0.1)
    assert state.probe("anthropic")


def test_a_probe_whose_client_left_gives_way_at_once(state, time):
    open_breaker(state)
    state.release("anthropic")  # whoever was sent before it opened
    assert not state.probe("anthropic")
    time.passes(1)
    assert state.probe("anthropic")
    state.release("anthropic")
    assert state.standing().breakers["anthropic"].openings == 1  # it is as it was
    assert state.probe("anthropic")
    assert not state.probe("anthropic")
    state.release("nobody")
    assert "nobody" not in state.standing().breakers


# ----------------------------------------------------------------------------------------------- refusals and pauses


def test_a_refused_key_stays_refused_until_the_configuration_is_read_again(state, time):
    state.refuse(ACCOUNT)
    state.refuse(ACCOUNT)
    time.passes(86_400 * 7)
    state.sweep()
    assert state.standing().refused == {ACCOUNT}
    assert state.clear_refused() == 1
    assert state.standing().refused == frozenset()


def test_a_pause_lasts_until_it_is_lifted(state, time):
    everything, one = Pause("all", "", 5, "an outage"), Pause("provider", "openai", 6)
    state.pause(everything)
    state.pause(one)
    time.passes(86_400 * 7)
    state.sweep()
    assert state.standing().pauses == {("all", ""): everything, ("provider", "openai"): one}
    assert state.resume("all", "") and not state.resume("all", "")
    assert state.standing().pauses == {("provider", "openai"): one}


# --------------------------------------------------------------------------------------------------------- counters


def test_no_more_are_let_in_than_a_minute_allows(state, time):
    time.wall_ms = 28_000_000 * rules.MINUTE_MS + 45_000
    assert [state.admit("agent", 3, 0) for _ in range(5)] == [0, 0, 0, 15, 15]
    assert state.admit("another", 3, 0) == 0
    time.passes(15)
    assert [state.admit("agent", 3, 0) for _ in range(4)] == [0, 0, 0, 60]


def test_no_more_are_let_in_than_a_day_allows(state, time):
    """Of UTC. What was turned away is not counted."""
    time.wall_ms = 20_000 * rules.DAY_MS + rules.DAY_MS - 120_000
    assert [state.admit("agent", 2, 3) for _ in range(3)] == [0, 0, 60]
    time.passes(60)
    assert [state.admit("agent", 2, 3) for _ in range(3)] == [0, 60, 60]
    assert state.admit("agent", 0, 3) == 60
    time.passes(60)
    assert state.admit("agent", 2, 3) == 0


def test_who_has_no_limit_is_not_counted(state):
    assert {state.admit("agent", 0, 0) for _ in range(10)} == {0}
    assert state.admit("agent", 1, 0) == 0


# -------------------------------------------------------------------------------------------------------- artefacts


def test_of_several_who_forget_an_artefact_one_hears_that_it_was_there(state, time):
    mine, mark = Origin("anthropic", "work", "claude"), b"m" * 16
    assert not state.forget(mark)
    state.remember([mark], mine, 100)
    assert [state.forget(mark) for _ in range(3)] == [True, False, False]
    assert state.origins([mark]) == [None]
    state.remember([mark], mine, 100)
    time.passes(101)
    assert not state.forget(mark)


def test_of_several_who_claim_an_artefact_all_hear_of_the_first(state, time):
    """Until its time is up, or it is forgotten; what is known already cannot be claimed."""
    mark, first, second = b"c" * 16, Origin("a", "claim", "https://a"), Origin("b", "claim", "https://b")
    assert [state.claim(mark, one, 60) for one in (first, second, first)] == [None, first, first]
    time.passes(61)
    assert state.claim(mark, second, 60) is None and state.origins([mark]) == [second]
    assert state.forget(mark) and state.claim(mark, first, 60) is None
    state.remember([mark], second, 60)
    assert state.claim(mark, first, 60) == second


def test_what_is_another_ones_by_now_is_not_forgotten(state):
    """Who frees what it saw must not free what came in its place."""
    mark, seen, now = b"l" * 16, Origin("a", "claim", "https://a"), Origin("a", "ann", "https://a")
    state.remember([mark], seen, 60)
    assert not state.forget(mark, now) and state.origins([mark]) == [seen]
    state.remember([mark], now, 60)
    assert not state.forget(mark, seen) and state.origins([mark]) == [now]
    assert state.forget(mark, now) and state.origins([mark]) == [None]
    assert not state.forget(mark, now)


def test_an_artefact_is_known_by_who_made_it(state, time):
    mine, other = Origin("anthropic", "work", "claude"), Origin("openai", "", "gpt")
    marks = [bytes([number]) * 16 for number in range(4)]
    state.remember(marks[:2], mine, 100)
    state.remember(iter(marks[2:3]), other, 200)
    assert state.origins(marks) == [mine, mine, other, None]
    assert state.counts() == Counts(artefacts=3)
    time.passes(100)
    assert state.origins(marks) == [None, None, other, None]


def test_an_artefact_that_is_seen_again_lives_on(state, time):
    """A history comes again with each turn; also with another maker, if a provider took it over."""
    mark, mine, other = bytes(16), Origin("anthropic", "work", "claude"), Origin("anthropic", "home", "claude")
    state.remember([mark], mine, 100)
    time.passes(90)
    state.remember([mark], mine, 100)
    time.passes(90)
    assert state.origins([mark]) == [mine]
    state.remember([mark], other, 100)
    assert state.origins([mark]) == [other]


# --------------------------------------------------------------------------------------------------------- measures


def test_what_others_have_under_way_is_added_up(state):
    state.share("worker-1", {"a/m": 1, "b/m": 5}, {})
    state.share("worker-2", {"a/m": 2}, {})
    state.share("worker-3", {"a/m": 40, "c/m": 1}, {})
    assert state.busy("worker-3") == {"a/m": 3, "b/m": 5}


def test_a_worker_that_fell_silent_does_not_count(state, time):
    state.share("worker-1", {"a/m": 1}, {})
    time.passes(3)
    state.share("worker-2", {"a/m": 2}, {})
    time.passes(2)
    assert state.busy("worker-3") == {"a/m": 2}
    time.passes(3)
    assert state.busy("worker-3") == {}


def test_a_worker_that_says_the_same_each_second_counts(state, time):
    """Though it is not written down each time."""
    for _ in range(20):
        state.share("worker-1", {"a/m": 1}, {})
        time.passes(1)
        assert state.busy("worker-2") == {"a/m": 1}


def test_medians_are_of_all_workers(state):
    state.share("worker-1", {}, {"a/m": [(1.0, 10.0), (2.0, 20.0)], "b/m": [(0.5, 0.0)]})
    state.share("worker-2", {}, {"a/m": [(9.0, 90.0)]})
    assert state.measures() == {"a/m": (2.0, 20.0), "b/m": (0.5, 0.0)}


def test_measures_are_of_the_last_hour_and_the_last_64(state, time):
    state.share("worker-1", {}, {"a/m": [(9.0, 1.0)] * 200, "b/m": [(9.0, 1.0)]})
    time.passes(1800)
    state.share("worker-1", {}, {"a/m": [(1.0, 9.0)] * 40})
    assert state.measures()["a/m"] == (1.0, 9.0)
    time.passes(1800)
    assert state.measures() == {"a/m": (1.0, 9.0)}
    time.passes(1800)
    assert state.measures() == {}


def test_what_is_learned_of_densities_is_added_up(state, time):
    """Whoever learned it."""
    pair, other = ("a/m", "claude-cli"), ("a/m", "")
    state.learn({pair: (1000.0, 250.0), other: (10.0, 5.0)})
    state.learn({pair: (3000.0, 900.0)})
    time.passes(6)
    assert state.learned() == {pair: (4000.0, 1150.0), other: (10.0, 5.0)}


def test_older_text_gives_way_to_newer(state, time):
    """Its weight is bounded, so that a model that is another one today is soon known as that."""
    pair = ("a/m", "c")
    state.learn({pair: (densities.KEPT_BYTES * 4.0, densities.KEPT_BYTES * 1.0)})
    state.learn({pair: (densities.KEPT_BYTES * 1.0, densities.KEPT_BYTES * 0.5)})
    time.passes(6)
    assert state.learned() == {pair: (densities.KEPT_BYTES, densities.KEPT_BYTES * 0.375)}


def test_densities_are_forgotten_after_a_month_of_silence(state, time):
    state.learn({("a/m", "c"): (10.0, 5.0)})
    time.passes(15 * 86_400)
    state.learn({("b/m", "c"): (10.0, 5.0)})
    time.passes(15 * 86_400)
    assert set(state.learned()) == {("b/m", "c")}
    assert state.sweep() == 1


def test_no_client_fills_the_state_with_names(state, time):
    for start in range(0, 2 * densities.MOST, 256):
        state.learn({("a/m", f"made-up-{number}"): (10.0, 5.0) for number in range(start, start + 256)})
    time.passes(6)
    assert len(state.learned()) == densities.MOST


# ------------------------------------------------------------------------------------------------------------ sweep


def test_a_sweep_removes_what_has_expired_and_nothing_else(state, time):
    for number in range(2500):
        state.set_pin(number.to_bytes(16, "big"), PIN, 50 if number % 2 else 500)
    state.remember([SLOT], Origin("a", "", "m"), 50)
    state.remember([OTHER_SLOT], Origin("a", "", "m"), 500)
    state.cool(ACCOUNT, 50, is_told=True, is_quota=False)
    state.cool(("openai", ""), 500, is_told=True, is_quota=False)
    assert state.sweep() == 0
    time.passes(50)
    assert state.sweep() == 1250 + 1 + 1
    assert state.counts() == Counts(1250, 1)
    assert set(state.standing().cooldowns) == {("openai", "")}
    assert state.sweep() == 0


def test_a_sweep_removes_breakers_counters_and_measures_of_old(state, time):
    state.failed("anthropic")
    state.admit("agent", 5, 5)
    state.share("worker-1", {"a/m": 1}, {"a/m": [(1.0, 1.0)]})
    time.passes(2 * 86_400)
    assert state.sweep() == 4
    assert state.sweep() == 0


# ------------------------------------------------------------------------------------------------- missing endpoints


def test_who_lacks_an_endpoint_is_known_until_its_time_is_up(state, time):
    """SPEC 6.1: per base URL, for all workers."""
    before = state.standing()
    state.lack("http://up/v1", 900)
    state.lack("http://down/v1", 100)
    assert before.lacking == {}
    now = time.monotonic()
    assert state.standing().lacking == {"http://up/v1": now + 900, "http://down/v1": now + 100}
    time.passes(100)
    assert state.sweep() == 1
    assert set(state.standing().lacking) == {"http://up/v1"}


def test_clearing_everything_asks_for_missing_endpoints_again(state):
    """Somebody updated the server, and need not wait; one provider's cooldowns have nothing to do with it."""
    state.lack("http://up/v1", 900)
    assert (state.clear_cooldowns("anthropic"), state.clear_cooldowns()) == (0, 1)
    assert state.standing().lacking == {}
