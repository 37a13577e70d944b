"""The worst case of a request's wait is the worst that an adversary can do to a real climb, and no less or more."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arbiter.attempt import patience
from arbiter.attempt.climb import Climb
from arbiter.attempt.conversation import Conversation
from arbiter.attempt.patience import Wait
from arbiter.config.snapshot import Account, Budgets, Endpoint, Provider, Retry
from arbiter.errors import ArbiterError, ErrorClass, TimedOut, Unreachable, UpstreamStatus
from arbiter.routing.plan import Plan, Rung
from arbiter.state.memory import Memory

BROKEN = Unreachable("it broke")
LIMITED = UpstreamStatus(ErrorClass.RATE_LIMITED_TRANSIENT, 429, b"", (), "slow down")
FAILED = UpstreamStatus(ErrorClass.UPSTREAM_ERROR, 500, b"", (), "a bug")
OVERDUE = TimedOut("unary", 1.0)

Move = tuple[ArbiterError, float, bool]
"""How an attempt ends, which part of its longest time it takes, and whether the provider asks for what is left of the
budget."""

MOVES: tuple[Move, ...] = (
    (BROKEN, 0.0, True),
    (BROKEN, 1.0, False),
    (BROKEN, 1.0, True),
    (LIMITED, 1.0, False),
    (FAILED, 0.0, False),
    (FAILED, 1.0, False),
    (OVERDUE, 1.0, False),
)


def provider(name: str, longest_s: float, keys: int = 1, **retry: float) -> Provider:
    """Its unary attempts last `longest_s` at most: a quarter each to find a connection and to make one."""
    budgets = Budgets(queue_s=longest_s / 4, connect_s=longest_s / 4, unary_s=longest_s / 2)
    accounts = tuple(Account(f"key-{number}", str(number)) for number in range(keys))
    made = Retry(**retry)  # type: ignore[arg-type]
    return Provider(name, "openai", "openai-chat", Endpoint("http", name, 80), accounts, budgets=budgets, retry=made)


class Walk:
    """One climb, driven by moves on a clock of its own."""

    def __init__(self, providers: Sequence[Provider]) -> None:
        self.now = 1000.0
        self.first_failure: float | None = None
        state = Memory(monotonic=lambda: self.now, now_ms=lambda: round(self.now * 1000))
        plan = Plan(tuple(Rung(provider, "m") for provider in providers), "")
        self.climb = Climb(plan, state, lambda: self.now, lambda: 0.0, Conversation(state, None, "m", keeps=True))
        self.step = self.climb.next()

    def move(self, move: Move) -> None:
        """Fail the present step, and go to the next one, which may be none."""
        assert self.step is not None
        error, part, fills = move
        provider = self.step.rung.provider
        self.now += part * sum(seconds for name, seconds in provider.budgets.items() if name in NAMES)
        self.first_failure = self.now if self.first_failure is None else self.first_failure
        left = self.first_failure + provider.retry.budget_s - self.now
        # What is left after rounding: a wait that ends a hair after the budget would not be taken.
        self.climb.failed(error, left - 1e-9 if fills and left > 0 else None)
        self.step = self.climb.next()
        if self.step is not None:
            self.now += self.step.delay_s


NAMES = ("queue", "connect", "unary")


def waits(providers: Sequence[Provider]) -> Iterator[float]:
    """How long a climb took, for every sequence of moves."""
    open_paths: list[tuple[Move, ...]] = [()]
    while open_paths:
        path = open_paths.pop()
        walk = Walk(providers)
        for move in path:
            walk.move(move)
        if walk.step is None:
            yield walk.now - 1000.0
        else:
            open_paths += [(*path, move) for move in MOVES]


@pytest.mark.parametrize(
    "providers",
    [
        [provider("a", 40, attempts=1, accepted_timeout=0)],
        [provider("a", 40, attempts=2, accepted_timeout=0)],
        [provider("a", 40, attempts=3, accepted_timeout=1)],
        [provider("a", 4, attempts=3, accepted_timeout=0)],
        [provider("a", 40, attempts=3, accepted_timeout=1, budget_s=0.0)],
        [provider("a", 40, keys=2, attempts=2, accepted_timeout=1)],
        [provider("a", 40, keys=3, attempts=1, accepted_timeout=0)],
        [provider("a", 40, attempts=2, accepted_timeout=1), provider("b", 40, attempts=2, accepted_timeout=1)],
        [provider("a", 40, attempts=3, accepted_timeout=0), provider("b", 8, attempts=3, accepted_timeout=0)],
        [provider("a", 40, before_fallback=1, accepted_timeout=0), provider("b", 8, attempts=2, accepted_timeout=0)],
        # The first is not tried again, the second has long to be: what was spent before fits into its budget.
        [
            provider("a", 4, attempts=1, accepted_timeout=0),
            provider("b", 8, accepted_timeout=0, budget_s=100, attempts=3),
        ],
        # Two keys of the first cost the second its second try.
        [
            provider("a", 2, keys=2, attempts=1, accepted_timeout=0),
            provider("b", 8, accepted_timeout=0, budget_s=100, attempts=3),
        ],
        [provider("a", 4, attempts=1, accepted_timeout=1), provider("b", 8, keys=2, attempts=1, accepted_timeout=0)],
        [provider(name, 8, attempts=2, accepted_timeout=0, before_fallback=1) for name in "abc"],
        # Only the one with the shortest attempts may be tried again, and it is neither listed first nor last.
        *(
            [
                provider("a", 2, attempts=1, accepted_timeout=0, budget_s=0.0),
                provider("b", 1, attempts=2, accepted_timeout=0, budget_s=0.2, before_fallback=before),
                provider("c", 2, attempts=1, accepted_timeout=0, budget_s=0.0),
                provider("d", 2, attempts=1, accepted_timeout=0, budget_s=0.0),
            ]
            for before in (1, 2)
        ),
    ],
    ids=lambda providers: "+".join(
        f"{len(one.accounts)}x{sum(b for _, b in one.budgets.items()):g}" for one in providers
    ),
)
def test_the_worst_case_is_what_the_worst_adversary_does(providers: list[Provider]) -> None:
    """Every climb of every order, with attempts that end at once or at the last moment, in every way they can end."""
    worst = max(max(waits(order)) for order in permutations(providers))
    assert patience.unary(providers).seconds == pytest.approx(worst, abs=1e-6)


PROVIDERS = st.builds(
    lambda longest_s, keys, attempts, before, accepted, budget_s, base_s: provider(
        "p",
        longest_s,
        keys,
        attempts=attempts,
        before_fallback=before,
        accepted_timeout=accepted,
        budget_s=budget_s,
        base_s=base_s,
        cap_s=8.0,
    ),
    st.floats(0.1, 100),
    st.integers(1, 3),
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(0, 2),
    st.sampled_from([0.0, 0.1, 1.0, 10.0, 1000.0]),
    st.sampled_from([0.01, 0.25, 8.0]),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(PROVIDERS, min_size=1, max_size=4), st.integers(0, 2**32))
def test_no_adversary_does_worse(providers: list[Provider], seed: int) -> None:
    """Whatever the settings and however the attempts go: the climb is over by then."""
    choose = random.Random(seed)
    limit = patience.unary(providers).seconds
    assert limit is not None
    for _ in range(20):
        walk = Walk(choose.sample(providers, len(providers)))
        while walk.step is not None:
            error, _, fills = choose.choice(MOVES)
            walk.move((error, 1.0 if error is OVERDUE else choose.choice([0.0, 0.1, 0.9, 1.0]), fills))
        assert walk.now - 1000.0 <= limit + 1e-6


DEFAULT = Retry()


def target(name: str = "up", keys: int = 1, retry: Retry = DEFAULT, **budgets: float) -> Provider:
    accounts = tuple(Account(f"key-{number}", str(number)) for number in range(keys))
    return Provider(
        name, "openai", "openai-chat", Endpoint("http", name, 80), accounts, budgets=Budgets(**budgets), retry=retry
    )


def test_the_defaults_bound_unary_requests_and_leave_accepted_streams_alone() -> None:
    """Three attempts of 620 s and the budget between them; a stream has 80 s until headers, twice."""
    up = [target()]
    assert patience.unary(up) == Wait(620 + 10 + 620 + 620, "up.timeouts.unary (3 × 600s)")
    assert patience.stream(up) == Wait(None, "up.timeouts.first_event is off")
    assert patience.unaccepted(up) == Wait(80 + 10 + 80, "up.timeouts.headers (2 × 60s)")


@pytest.mark.parametrize(
    ("budgets", "seconds", "reason"),
    [
        ({"first_event_s": 100.0}, 3 * 120 + 10, "up.timeouts.first_event (3 × 100s)"),
        ({"first_event_s": 5.0}, 3 * 25 + 10, "up.timeouts.queue (3 × 10s)"),
        ({"total_s": 300.0}, 3 * 300 + 10, "up.timeouts.total (3 × 300s)"),
        ({"total_s": 5.0}, 3 * 20 + 10, "up.timeouts.queue (3 × 10s)"),
        ({"total_s": 50.0, "first_event_s": 100.0}, 3 * 50 + 10, "up.timeouts.total (3 × 50s)"),
        ({"total_s": 500.0, "first_event_s": 100.0}, 3 * 120 + 10, "up.timeouts.first_event (3 × 100s)"),
        ({"total_s": 300.0, "headers_s": 0.0}, 3 * 300 + 10, "up.timeouts.total (3 × 300s)"),
        ({"idle_s": 10.0}, None, "up.timeouts.first_event is off"),
        ({"headers_s": 0.0}, None, "up.timeouts.headers is off"),
        ({"first_event_s": 10.0, "queue_s": 0.0}, None, "up.timeouts.queue is off"),
        ({"first_event_s": 10.0, "connect_s": 0.0, "total_s": 9.0}, None, "up.timeouts.connect is off"),
    ],
)
def test_a_streams_wait_is_bounded_by_its_first_event_or_its_total(
    budgets: dict[str, float], seconds: float | None, reason: str
) -> None:
    """`headers` and `first_event` share one clock, `total` runs from the beginning, pings move `idle`."""
    wait = patience.stream([target(**budgets)])
    assert wait.seconds == seconds and wait.reason == reason


def test_before_headers_only_headers_count_and_total_ends_them_for_good() -> None:
    assert patience.unaccepted([target(headers_s=30.0)]).seconds == 50 + 10 + 50
    assert patience.unaccepted([target(headers_s=30.0, first_event_s=100.0)]).seconds == 120 + 10 + 120
    # A time-out of `total` is never taken for one that nobody accepted.
    assert patience.unaccepted([target(headers_s=30.0, total_s=40.0)]).seconds == 40 + 10 + 40 + 40


def test_what_is_off_anywhere_has_no_limit() -> None:
    wait = patience.unary([target("a"), target("b", unary_s=0.0)])
    assert wait == Wait(None, "b.timeouts.unary is off")


def test_each_key_may_hold_an_attempt_for_its_whole_time() -> None:
    once = Retry(attempts=1, accepted_timeout=0)
    assert patience.unary([target(keys=3, retry=once)]).seconds == 3 * 620


def test_the_budget_may_be_what_decides() -> None:
    short = {"queue_s": 0.1, "connect_s": 0.1, "unary_s": 0.3}
    assert patience.unary([target(retry=Retry(budget_s=60.0), **short)]) == Wait(61.5, "up.retry.budget (60s)")


def test_any_target_may_be_first_and_any_last() -> None:
    """A pin puts the slow one first, a cooldown puts it last; either way is counted."""
    slow, quick = target("slow"), target("quick", unary_s=10.0)
    assert patience.unary([slow, quick]).seconds == patience.unary([quick, slow]).seconds
    # The slow one last, with its time-out after acceptance tried again; first, it would have its second try.
    assert patience.unary([slow, quick]).seconds == max(30 + 10 + 30 + 620 + 620, 620 + 10 + 620 + 30 + 30)


def test_many_targets_are_no_work() -> None:
    """A plan of 256 targets with a pool each is looked at in well under a second."""
    many = [target(f"t{number}", keys=3) for number in range(256)]
    assert patience.unary(many).seconds == 256 * 3 * 620 + 10 + 620
