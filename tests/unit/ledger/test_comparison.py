"""Which call a call is compared with, by what is in the store and what is about to be."""

from __future__ import annotations

import random

import pytest

from arbiter.config.load import demo_snapshot
from arbiter.config.rates import Rate
from arbiter.ledger.comparison import Comparison
from arbiter.ledger.recorder import Batch
from arbiter.ledger.store import Position
from arbiter.metrics import Metrics, render
from tests.fakes.histories import attempt, request_of, turns
from tests.fakes.rows import request_row

RATE = Rate(input=3_000_000, cached_input=300_000, cache_write_5m=3_750_000)
FIRST = {"input_tokens": 10, "cached_tokens": 0, "cache_write_tokens": 50_000}
WARM = {"input_tokens": 10, "cached_tokens": 50_000, "cache_write_tokens": 1_000}
COLD = {"input_tokens": 10, "cached_tokens": 0, "cache_write_tokens": 51_000}


class Ledger:
    """A store behind the stage, as the recorder has them."""

    def __init__(self, store, metrics=None):
        self.store = store
        self.metrics = metrics
        self.position = 0
        self.restart()

    def restart(self):
        self.stage = Comparison(demo_snapshot, lambda row: RATE, self.metrics)

    def record(self, *attempts, requests=()):
        """One batch, of which `requests` may tell more. Returns the causes of its calls, in their order."""
        told = {row.id: row for row in (*map(request_of, attempts), *requests)}
        batch = Batch(list(told.values()), list(attempts))
        self.stage.take(batch, self.store)
        self.position += 1
        self.store.write([*batch.requests, *batch.attempts], Position("j", self.position), batch.also)
        self.stage.stored(batch)
        return [row.cache_verdict for row in attempts]


@pytest.fixture
def ledger(place):
    one = Ledger(place.open())
    yield one
    one.store.close()


def test_the_call_before_is_found_in_the_store(ledger):
    """The row says what was lost, why, for how much, and against which call."""
    ledger.record(attempt(0, turns(1), **FIRST))
    ledger.restart()
    row = attempt(1, turns(3), **COLD)
    assert ledger.record(row) == ["miss"]
    assert (row.cache_lost_tokens, row.cache_against) == (50_000, "a0")
    assert row.cache_lost_pd == 50_000 * 3_450_000
    stored = ledger.store.read(lambda db: db.rows("SELECT cache_verdict, cache_lost_pd FROM attempts WHERE id = 'a1'"))
    assert stored == [("miss", 50_000 * 3_450_000)]


def test_the_call_before_may_be_in_the_same_batch_and_behind(ledger):
    """Two workers write to one journal: what ended first need not stand first."""
    assert ledger.record(attempt(1, turns(3), **COLD), attempt(0, turns(1), **FIRST)) == ["miss", None]


def test_a_batch_that_comes_again_is_judged_the_same(ledger):
    ledger.record(attempt(0, turns(1), **FIRST))
    batch = Batch([], [attempt(1, turns(3), **COLD)])
    ledger.stage.take(batch, ledger.store)
    ledger.stage.forget()
    assert ledger.record(attempt(1, turns(3), **COLD)) == ["miss"]


def test_a_call_is_not_compared_with_one_still_under_way(ledger):
    """Two calls in flight at once: neither left anything that the other could have read."""
    first = attempt(0, turns(1), **FIRST)
    second = attempt(0.05, turns(1), **(FIRST | {"cache_write_tokens": 50_500}))
    assert ledger.record(first, second) == [None, None]


def test_only_a_completed_call_is_compared_with(ledger):
    """A failed attempt, and one that nobody waited for, leave nothing certain."""
    ledger.record(attempt(0, turns(1), **FIRST))
    failed = attempt(0.5, turns(3), **COLD)
    failed.outcome, failed.output_tokens = "error", None
    ledger.record(failed)
    assert ledger.record(attempt(1, turns(3), **WARM)) == [None]


def test_a_cancelled_call_may_have_lost_as_well(ledger):
    """What it read stands in its first event, and it is billed."""
    ledger.record(attempt(0, turns(1), **FIRST))
    row = attempt(1, turns(3), **COLD)
    row.outcome, row.usage_source = "cancelled", "partial"
    assert ledger.record(row) == ["miss"]


def test_counting_tokens_leaves_no_cache(ledger):
    count = attempt(0, turns(1), input_tokens=50_000)
    count.output_tokens = None
    ledger.record(count)
    assert ledger.record(attempt(1, turns(3), **COLD)) == [None]


def test_changed_instructions_are_another_slot_and_still_told(ledger):
    """The session's last call is the call before, where this one has its history and its tools."""
    ledger.record(attempt(0, turns(5), **FIRST))
    row = attempt(1, turns(7), system="You are an agent. It is Tuesday.", conversation="d" * 32, **COLD)
    assert ledger.record(row) == ["system"]
    assert (row.cache_lost_in, row.cache_against) == ("system", "a0")


def test_a_call_may_be_stored_a_batch_before_its_request(ledger):
    """Where one batch ends between the two, a call of the next one finds it all the same."""
    first = attempt(0, turns(5), **FIRST)
    row = attempt(1, turns(7), system="You are an agent. It is Tuesday.", conversation="d" * 32, **COLD)
    ledger.store.write([first], Position("j", 1))
    assert ledger.record(row, requests=[request_of(first)]) == ["system"]


def test_calls_that_count_nothing_hide_none(ledger):
    """A session that has had tokens counted between two calls still has the one before."""
    ledger.record(attempt(0, turns(5), **FIRST))
    counted = [attempt(0.001 * number, turns(5), id=f"c{number}", input_tokens=9) for number in range(1, 20)]
    for row in counted:
        row.output_tokens = None
    ledger.record(*counted)
    row = attempt(1, turns(7), system="You are an agent. It is Tuesday.", conversation="d" * 32, **COLD)
    assert ledger.record(row) == ["system"]


def test_a_title_and_a_subagent_go_on_from_nothing(ledger):
    """They have other instructions, and begin anew."""
    ledger.record(attempt(0, turns(5), **FIRST))
    title = attempt(0.2, turns(1), system="Make a title.", tools="", conversation="d" * 32, **COLD)
    agent = attempt(0.4, turns(2), system="You search.", conversation="e" * 32, **COLD)
    again = attempt(0.6, turns(4), system="You search.", conversation="e" * 32, **WARM)
    assert ledger.record(title, agent, again) == [None, None, None]
    assert ledger.record(attempt(1, turns(7), **WARM)) == [None]


def test_a_subagent_with_many_inputs_has_other_tools(ledger):
    """One that is given a long history to read is no continuation of a short one."""
    ledger.record(attempt(0, turns(1), **FIRST))
    agent = attempt(1, turns(9), system="You search.", tools="search", conversation="e" * 32, **COLD)
    kind = attempt(1, turns(9), system="You search.", request_kind="subagent", conversation="f" * 32, id="k", **COLD)
    assert ledger.record(agent, kind) == [None, None]


def test_another_client_with_the_same_session_id_is_another(ledger):
    ledger.record(attempt(0, turns(5), **FIRST))
    row = attempt(1, turns(7), system="Another.", conversation="d" * 32, client="other", **COLD)
    assert ledger.record(row) == [None]


def test_two_runs_of_one_task_in_one_slot_are_told_apart(ledger):
    """Each goes on from its own last call, however the two alternate, and none of them has lost anything.

    The second run's first call looks like going back to the beginning, and in a cache it is just that.
    """
    for turn in range(1, 12):
        for run, at in (("x", 0.0), ("y", 0.4)):
            inputs = ["u the task", *turns(2 * turn, run)]
            usage = FIRST if turn == 1 else {"input_tokens": 9, "cached_tokens": 48_000 + 2_000 * turn}
            row = attempt(turn + at, inputs, **(usage | {"cache_write_tokens": 2_000 if turn > 1 else 50_000}))
            assert ledger.record(row) == ["rewind" if (turn, run) == (1, "y") else None]


def test_a_provider_that_forgot_one_of_two_runs_is_a_miss(ledger):
    """The other run's last call is newer, and has nothing to do with it."""
    ledger.record(attempt(0, ["u", *turns(4, "x")], **FIRST))
    ledger.record(attempt(0.5, ["u", *turns(30, "y")], **FIRST))
    row = attempt(1, ["u", *turns(6, "x")], **COLD)
    assert ledger.record(row) == ["miss"]
    assert row.cache_against == "a0"


def test_going_back_is_compared_with_the_newest_call(ledger):
    """Not with the one that it goes back to: that one was five turns ago, and would look idle."""
    for turn in range(6):
        usage = FIRST if not turn else {"input_tokens": 9, "cached_tokens": 49_000 + turn, "cache_write_tokens": 1_000}
        assert ledger.record(attempt(2 * turn, turns(2 * turn + 1), **usage)) == [None]
    row = attempt(11, [*turns(3), "a3", "u4, but otherwise"], **(COLD | {"cache_write_tokens": 30_000}))
    assert ledger.record(row) == ["rewind"]
    assert row.cache_against == "a10"


def test_a_side_question_does_not_stand_between_two_turns(ledger):
    """It has the whole history before it, in the same slot; the next turn goes on from the turn before."""
    ledger.record(attempt(0, turns(9), **FIRST))
    assert ledger.record(attempt(0.3, [*turns(10), "u a side question"], **WARM)) == [None]
    assert ledger.record(attempt(1, turns(11), **WARM)) == [None]
    assert ledger.record(attempt(1.5, turns(13), **COLD)) == ["miss"]


def test_the_agents_own_word_stands_in_the_request(ledger):
    """Which may come with the attempt."""
    ledger.record(attempt(0, turns(9), **FIRST))
    longer = ["u so far: …", *turns(12)]
    row = attempt(1, longer, **COLD)
    told = request_row(id=row.request_id, follows_compaction=True)
    assert ledger.record(row, requests=[told]) == ["compaction"]
    other = attempt(2, [*longer, "a", "u"], **COLD)
    assert ledger.record(other) == ["miss"]


def test_losses_are_counted_once_they_are_stored(tmp_path, place):
    metrics = Metrics(tmp_path / "metrics-control.bin")
    one = Ledger(place.open(), metrics)
    one.record(attempt(0, turns(1), **FIRST))
    one.stage.take(Batch([], [attempt(1, turns(3), **COLD)]), one.store)
    one.stage.forget()
    one.record(attempt(1, turns(3), **COLD))
    one.store.close()
    text = render([tmp_path / "metrics-control.bin"], "1")
    assert 'arbiter_cache_loss_tokens_total{cause="miss"} 50000' in text


@pytest.mark.parametrize("seed", range(2))
def test_ordinary_days_have_no_losses_in_any_order(ledger, seed):
    """Conversations that only go on, with any number of parallel results, their rows in any order: nothing is lost."""
    luck = random.Random(seed)
    rows = []
    for talk in range(4):
        history, minute, left = [f"u the task {talk}"], talk * 0.1, 0
        for turn in range(15):
            written = luck.randint(200, 3_000) if left else 40_000
            where = {"conversation": f"{talk:032d}", "session": f"s{talk}", "id": f"t{talk}-{turn:02d}"}
            usage = {"input_tokens": 5, "cached_tokens": left, "cache_write_tokens": written}
            rows.append(attempt(minute, history, **where, **usage))
            left += written
            minute += luck.uniform(0.2, 4.5)
            calls = luck.randint(1, 9)
            history = [*history, *[f"a{turn}.{n}" for n in range(calls)], *[f"u{turn}.{n}" for n in range(calls)]]
    rows.sort(key=lambda row: row.finished_ms)
    while rows:
        size = luck.randint(1, 9)
        batch, rows = rows[:size], rows[size:]
        luck.shuffle(batch)
        assert ledger.record(*batch) == [None] * len(batch)
