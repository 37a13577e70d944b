"""Which step a climb takes next, without a network and on a clock of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from arbiter.attempt.climb import Climb, Step, in_order
from arbiter.attempt.conversation import Conversation
from arbiter.config.rates import Card
from arbiter.config.snapshot import Account, Endpoint, Provider, RequestLimits, Retry
from arbiter.errors import (
    ArbiterError,
    BadRequest,
    Cut,
    ErrorClass,
    Garbled,
    InStreamError,
    KeyRefused,
    Paused,
    ProtocolUnsupported,
    Resting,
    TimedOut,
    Unavailable,
    Unreachable,
    UpstreamStatus,
)
from arbiter.routing.plan import Pinned, Plan, Rung
from arbiter.state.base import Pause
from arbiter.state.memory import Memory

NO_ANSWER = Unreachable("nobody there")


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Walk:
    """A climb on a clock that moves by what its steps wait."""

    rungs: Sequence[Rung]
    clock: Clock = field(default_factory=Clock)
    options: dict[str, Any] = field(default_factory=dict)
    pinned: Pinned | None = None

    def __post_init__(self) -> None:
        self.state = Memory(monotonic=self.clock, now_ms=lambda: round(self.clock.now * 1000))
        self.begin()

    def begin(self) -> None:
        plan = Plan(tuple(self.rungs), "", pinned=self.pinned)
        conversation = Conversation(self.state, None, "asked", keeps=True)
        self.climb = Climb(plan, self.state, self.clock, lambda: 0.5, conversation, **self.options)

    def step(self) -> str | None:
        """The next step as "provider/account why", the clock moved on by its delay."""
        found = self.climb.next()
        if found is None:
            return None
        self.clock.now += found.delay_s
        return told(found)

    def fail(self, error: ArbiterError, *, took_s: float = 0.0, wait_s: float | None = None) -> str | None:
        self.clock.now += took_s
        self.climb.failed(error, wait_s)
        return self.step()

    def failing_always(self, error: ArbiterError, *, took_s: float = 0.0) -> list[str]:
        """Every step of a climb in which each fails alike."""
        steps = []
        found = self.step()
        while found is not None:
            steps.append(found)
            found = self.fail(error, took_s=took_s)
        return steps


def name(label: str) -> str:
    """What the state knows an account of `rung` by."""
    return Account(label, f"key of {label}").name


def told(step: Step) -> str:
    label = f":{step.account.label}" if step.account.label else ""
    return f"{step.rung.provider.name}{label} {step.why}"


def rung(name: str, *labels: str, window: int | None = None, **provider: Any) -> Rung:
    accounts = tuple(Account(label, f"key of {label}") for label in labels) or (Account(),)
    cards = {"m": Card(max_input=window)} if window else {}
    made = Provider(
        name, "openai", "openai-chat", Endpoint("https", f"{name}.test", 443), accounts, cards=cards, **provider
    )
    return Rung(made, "m")


def status(code: int, error_class: ErrorClass = ErrorClass.UPSTREAM_ERROR) -> UpstreamStatus:
    return UpstreamStatus(error_class, code, b"{}", (), f"the upstream said {code}")


LIMITED = status(429, ErrorClass.RATE_LIMITED_TRANSIENT)


# --- one target ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        NO_ANSWER,
        Cut("too early"),
        TimedOut("queue", 1),
        TimedOut("connect", 1),
        TimedOut("headers", 1),
        *[status(code) for code in (408, 502, 503, 504, 520, 521, 522, 523, 524, 529)],
    ],
    ids=lambda error: getattr(error, "phase", None) or str(getattr(error, "status", "")) + type(error).__name__,
)
def test_what_may_pass_is_tried_again_up_to_the_attempts(error):
    """SPEC 4.1: up to `retry.attempts` in all, on the only target there is."""
    walk = Walk([rung("a", retry=Retry(attempts=4))])
    assert walk.failing_always(error) == ["a first", "a retry", "a retry", "a retry"]
    assert walk.climb.verdict() is error


@pytest.mark.parametrize(
    "error",
    [status(500), status(501), status(505), status(599), Garbled("no HTTP"), BadRequest("no"), status(400), status(404),
     status(413), status(422), status(400, ErrorClass.CONTENT_POLICY)],
    ids=str,
)  # fmt: skip
def test_what_does_not_pass_is_tried_once(error):
    """SPEC 4.1, 4.6: a plain 500 meets the next try too, and a 4xx is the request's."""
    assert Walk([rung("a")]).failing_always(error) == ["a first"]


def test_delays_double_until_the_budget_is_spent():
    """SPEC 4.1: 250 ms, doubling, at most 8 s, and nothing begins later than 10 s after the first failure."""
    walk = Walk([rung("a", retry=Retry(attempts=50))])
    delays = []
    walk.step()
    while True:
        walk.climb.failed(NO_ANSWER)
        step = walk.climb.next()
        if step is None:
            break
        delays.append(step.delay_s)
        walk.clock.now += step.delay_s
    assert delays == [0.75 * 0.25 * 2**n for n in range(len(delays))]
    assert sum(delays) <= 10 < sum(delays) + 0.75 * 0.25 * 2 ** len(delays)


def test_the_budget_counts_from_the_first_failure_not_from_the_start():
    """One time-out of a minute does not forbid the only retry."""
    walk = Walk([rung("a")])
    walk.step()
    assert walk.fail(TimedOut("headers", 60), took_s=60) == "a retry"
    assert walk.fail(TimedOut("headers", 60), took_s=60) is None


def test_a_wait_that_an_overloaded_provider_asks_for_is_kept_or_not_begun():
    """A retry before its time is what the provider asked us not to do."""
    walk = Walk([rung("a")])
    walk.step()
    walk.climb.failed(status(503, ErrorClass.OVERLOADED), 3.0)
    step = walk.climb.next()
    assert step is not None and step.delay_s == 3.0
    walk.climb.failed(status(503, ErrorClass.OVERLOADED), 30.0)
    assert walk.climb.next() is None


@pytest.mark.parametrize("phase", ["first_event", "idle", "total", "unary"])
def test_a_timeout_after_acceptance_is_retried_once(phase):
    """SPEC 4.2: it is billed already."""
    assert Walk([rung("a")]).failing_always(TimedOut(phase, 9)) == ["a first", "a retry"]
    none = rung("a", retry=Retry(accepted_timeout=0))
    assert Walk([none]).failing_always(TimedOut(phase, 9)) == ["a first"]


def test_a_timeout_after_acceptance_goes_to_the_next_target_first():
    """SPEC 4.2: on the same one only where there is no other; and then no third time anywhere."""
    assert Walk([rung("a"), rung("b"), rung("c")]).failing_always(TimedOut("first_event", 9)) == [
        "a first",
        "b fallback",
    ]


# --- the pool -----------------------------------------------------------------------------------------------------


def test_a_429_tries_the_other_keys_and_then_the_next_target():
    """SPEC 4.4: the cooldown belongs to the account."""
    walk = Walk([rung("a", "one", "two"), rung("b")], pinned=Pinned("a", "m", "one"))
    assert walk.failing_always(LIMITED) == ["a:one first", "a:two key", "b fallback"]


def test_a_429_is_not_retried_on_its_own_account():
    """With nobody else to ask, the client is told; it knows best whether to wait."""
    walk = Walk([rung("a")])
    assert walk.failing_always(LIMITED) == ["a first"]


def test_a_refused_key_rotates_and_the_last_one_ends_the_climb():
    """SPEC 4.5: a configuration that does not work must not look like an outage that a fallback hides."""
    walk = Walk([rung("a", "one", "two"), rung("b")], pinned=Pinned("a", "m", "one"))
    refused = KeyRefused("401")
    assert walk.failing_always(refused) == ["a:one first", "a:two key"]
    assert walk.climb.verdict() is refused


def test_an_outage_does_not_try_the_other_keys_of_the_same_house():
    walk = Walk([rung("a", "one", "two", retry=Retry(before_fallback=1)), rung("b")], pinned=Pinned("a", "m", "one"))
    assert walk.failing_always(NO_ANSWER)[:2] == ["a:one first", "b fallback"]


def test_keys_that_failed_with_429_do_not_use_up_the_retries_of_the_next():
    walk = Walk([rung("a", "one", "two", retry=Retry(attempts=8))], pinned=Pinned("a", "m", "one"))
    assert walk.step() == "a:one first"
    assert walk.fail(LIMITED) == "a:two key"
    assert walk.fail(status(503)) == "a:two retry"
    assert walk.fail(status(503)) == "a:two retry"


# --- fallback -----------------------------------------------------------------------------------------------------


def test_before_fallback_bounds_the_tries_while_others_remain():
    """SPEC 4.1: two tries, then on; the last target has all that are left."""
    walk = Walk([rung("a", retry=Retry(attempts=5)), rung("b", retry=Retry(attempts=5))])
    assert walk.failing_always(NO_ANSWER) == ["a first", "a retry", "b fallback", "b retry", "b retry"]


def test_every_target_gets_its_try_also_after_the_budget():
    """A fallback is no retry: the budget of the first target's retries does not take it away."""
    walk = Walk([rung("a"), rung("b"), rung("c")])
    assert walk.failing_always(TimedOut("headers", 60), took_s=60) == ["a first", "a retry", "b fallback", "c fallback"]


def test_a_500_falls_back_and_a_400_does_not():
    assert Walk([rung("a"), rung("b")]).failing_always(status(500)) == ["a first", "b fallback"]
    assert Walk([rung("a"), rung("b")]).failing_always(status(400, ErrorClass.BAD_REQUEST)) == ["a first"]


def test_an_overlong_prompt_goes_only_where_more_fits():
    """SPEC 4.6: only a larger *known* window."""
    too_long = status(400, ErrorClass.CONTEXT_LENGTH)
    rungs = [rung("a", window=100), rung("same", window=100), rung("unknown"), rung("large", window=200)]
    walk = Walk(rungs)
    assert walk.failing_always(too_long) == ["a first", "large fallback"]
    assert walk.climb.verdict() is too_long


def test_who_cannot_be_told_the_request_is_passed_over_as_if_nobody_had_named_it():
    """SPEC 4.8: nothing was sent, so whoever is asked next is the first, and no try is used up."""
    walk = Walk([rung("a", "one", "two"), rung("b", retry=Retry(attempts=2, before_fallback=2)), rung("c")])
    assert str(walk.step()).startswith("a:")
    walk.climb.passed_over(ProtocolUnsupported("no sound here"))
    assert walk.step() == "b first"
    assert walk.fail(NO_ANSWER) == "b retry"
    assert walk.fail(NO_ANSWER) == "c fallback"
    assert walk.climb.passed == {"a/m": "cannot be told it (no sound here)"}
    walk.climb.passed_over(ProtocolUnsupported("nor here"))
    assert walk.step() is None
    assert walk.climb.verdict() is NO_ANSWER  # SPEC 4.8: of the last contact


def test_a_first_step_that_was_clear_before_the_climb_is_passed_over_too():
    walk = Walk([rung("a"), rung("b")])
    a = walk.rungs[0]
    walk.climb.took(Step(a, a.provider.accounts[0], "first"))
    walk.climb.passed_over(ProtocolUnsupported("no sound here"))
    assert walk.step() == "b first"


def test_where_nobody_can_be_told_the_client_hears_what_the_first_says():
    first = ProtocolUnsupported("no sound here")
    walk = Walk([rung("a"), rung("b")])
    walk.step()
    walk.climb.passed_over(first)
    assert walk.step() == "b first"
    walk.climb.passed_over(ProtocolUnsupported("nor here"))
    assert walk.step() is None and walk.climb.verdict() is first


@pytest.mark.parametrize("what", ["rests", "paused", "refused"])
def test_whoever_could_be_told_and_cannot_be_asked_now_decides_what_the_client_hears(what):
    """A 400 would tell it never to come back."""
    walk = Walk([rung("a"), rung("b", "key")])
    if what == "rests":
        walk.state.cool(("b", name("key")), 12, is_told=True, is_quota=False)
    elif what == "paused":
        walk.state.pause(Pause("provider", "b", "maintenance"))
    else:
        walk.state.refuse(("b", name("key")))
    walk.step()
    walk.climb.passed_over(ProtocolUnsupported("no sound here"))
    assert walk.step() is None
    said = walk.climb.verdict()
    assert isinstance(said, {"rests": Resting, "paused": Paused, "refused": KeyRefused}[what])
    assert "'a'" not in str(said)


NO_SOUND = ProtocolUnsupported("no sound here")


def deaf(*names: str) -> dict[str, Any]:
    """Options of a climb in which these cannot be told the request."""
    return {"tell": lambda rung: NO_SOUND if rung.provider.name in names else None}


def test_a_request_limit_counts_nothing_that_is_not_sent():
    """SPEC 4.5: what the provider never saw is not taken from whoever it can serve."""
    walk = Walk([rung("a", request_limits=RequestLimits(per_minute=1)), rung("b")], options=deaf("a"))
    for _ in range(3):
        walk.begin()
        assert str(walk.step()).startswith("a")
        walk.climb.passed_over(NO_SOUND)
        assert walk.step() == "b first"
    walk.options = {}
    walk.begin()
    assert walk.step() == "a first"


@pytest.mark.parametrize("what", ["rests", "paused", "refused", "limited"])
def test_nobody_is_waited_for_who_cannot_be_told_the_request_either(what):
    """A 429 or a 503 would have the client come back with what never can be served."""
    limits = RequestLimits(per_minute=1) if what == "limited" else RequestLimits()
    walk = Walk([rung("a"), rung("b", "key", request_limits=limits)])
    if what == "rests":
        walk.state.cool(("b", name("key")), 12, is_told=True, is_quota=False)
    elif what == "paused":
        walk.state.pause(Pause("provider", "b", "maintenance"))
    elif what == "refused":
        walk.state.refuse(("b", name("key")))
    else:
        assert walk.state.admit("b", 1, 0) == 0
    walk.options = deaf("a", "b")
    walk.begin()
    step = walk.step()
    while step is not None:
        walk.climb.passed_over(NO_SOUND)
        step = walk.step()
    assert walk.climb.verdict() is NO_SOUND
    assert walk.climb.passed["b/m"] == walk.climb.passed["a/m"] == "cannot be told it (no sound here)"


@pytest.mark.parametrize(
    ("error", "tries"), [(NO_ANSWER, ["a first", "a retry", "a retry"]), (TimedOut("idle", 1), ["a first", "a retry"])]
)
def test_who_cannot_be_told_the_request_is_no_other_to_fall_back_to(error, tries):
    """SPEC 4.1: the only one who can serve it is tried as if the plan named nobody else."""
    walk = Walk([rung("a", retry=Retry(attempts=3, before_fallback=1)), rung("b")], options=deaf("b"))
    step, taken = walk.step(), []
    while step is not None and step.startswith("a"):
        taken.append(step)
        step = walk.fail(error)
    assert taken == tries


def test_who_is_surely_too_small_is_asked_only_where_nobody_else_can_be():
    """SPEC 1.1, 4.6: the estimate chooses, and never takes the only one away."""
    small = {"a/m": "takes 100 tokens, and the prompt is longer"}
    walk = Walk([rung("a", window=100), rung("b")], options={"small": small})
    assert walk.failing_always(status(500)) == ["b first"]
    assert walk.climb.passed["a/m"] == small["a/m"]
    walk = Walk([rung("a", window=100), rung("b", "key")], options={"small": small})
    walk.state.refuse(("b", name("key")))
    assert walk.failing_always(status(400, ErrorClass.CONTEXT_LENGTH)) == ["a first"]
    assert "a/m" not in walk.climb.passed
    walk = Walk([rung("a", window=100), rung("b", "key")], options={"small": small})
    walk.state.cool(("b", name("key")), 12, is_told=True, is_quota=False)
    assert walk.step() is None
    assert isinstance(walk.climb.verdict(), Resting)


def test_an_error_inside_a_stream_counts_as_what_it_says():
    for code, steps in [
        (ErrorClass.OVERLOADED, ["a first", "a retry", "b fallback"]),
        (ErrorClass.RATE_LIMITED_TRANSIENT, ["a first", "b fallback"]),
        (ErrorClass.UPSTREAM_ERROR, ["a first", "b fallback"]),
        (ErrorClass.BAD_REQUEST, ["a first"]),
        (ErrorClass.CONFIG, ["a first"]),
    ]:
        error = InStreamError("inside")
        error.classify(code)
        walk = Walk([rung("a"), rung("b", retry=Retry(attempts=1))])
        assert walk.failing_always(error) == steps, code


# --- what others learnt -------------------------------------------------------------------------------------------


def test_a_told_cooldown_is_never_contacted_before_its_time():
    """SPEC 4.4: refused without contact, with the shortest remaining wait."""
    walk = Walk([rung("a"), rung("b")])
    walk.state.cool(("a", ""), 30, is_told=True, is_quota=False)
    walk.state.cool(("b", ""), 12, is_told=True, is_quota=True)
    walk.begin()
    assert walk.step() is None
    verdict = walk.climb.verdict()
    assert isinstance(verdict, Resting) and verdict.status == 429
    assert verdict.code is ErrorClass.RATE_LIMITED_TRANSIENT and ("retry-after", "12") in verdict.headers
    walk.clock.now += 13
    walk.begin()
    assert walk.step() == "b first"


def test_a_retry_is_not_taken_where_its_account_was_told_to_rest_meanwhile():
    """While one request waits for its retry, another may be told a wait that holds for both."""
    walk = Walk([rung("a"), rung("b")])
    walk.step()
    walk.climb.failed(status(502))
    retry = walk.climb.next()
    assert retry is not None and told(retry) == "a retry" and walk.climb.still_stands(retry)
    walk.state.cool(("a", ""), 30, is_told=True, is_quota=False)
    assert not walk.climb.still_stands(retry)
    assert walk.step() == "b fallback"
    alone = Walk([rung("a")])
    alone.step()
    alone.climb.failed(status(502))
    retry = alone.climb.next()
    alone.state.cool(("a", ""), 30, is_told=True, is_quota=False)
    assert retry is not None and not alone.climb.still_stands(retry)
    assert alone.step() is None and alone.climb.verdict().status == 502


def test_only_quotas_left_is_told_as_a_quota():
    walk = Walk([rung("a")])
    walk.state.cool(("a", ""), 3600, is_told=True, is_quota=True)
    walk.begin()
    assert walk.step() is None and walk.climb.verdict().code is ErrorClass.QUOTA_EXHAUSTED


def test_a_guessed_cooldown_goes_last_and_is_still_tried():
    """SPEC 4.4: without a hint from the provider, nobody is refused for our guess."""
    walk = Walk([rung("a"), rung("b")])
    walk.state.cool(("a", ""), 5, is_told=False, is_quota=False)
    walk.begin()
    assert walk.failing_always(status(500)) == ["b first", "a fallback"]


def test_the_shortest_wait_of_all_accounts_reaches_the_client():
    """SPEC 4.4: also where the last one contacted asked for longer."""
    walk = Walk([rung("a", "one", "two")], pinned=Pinned("a", "m", "one"))
    last = UpstreamStatus(ErrorClass.RATE_LIMITED_TRANSIENT, 429, b"{}", (("retry-after", "60"),), "slow down")
    assert walk.step() == "a:one first"
    assert walk.fail(LIMITED, wait_s=7.0) == "a:two key"
    assert walk.fail(last, wait_s=60.0) is None
    assert walk.climb.verdict() is last and last.upstream_headers == (("retry-after", "7"),)


def test_the_last_contact_is_what_the_client_hears_of():
    """SPEC 4.8: a 429 only where all that was left were 429s."""
    walk = Walk([rung("a"), rung("b")])
    walk.step()
    walk.fail(LIMITED, wait_s=30.0)
    broken = status(500)
    assert walk.fail(broken) is None and walk.climb.verdict() is broken


def test_an_open_breaker_goes_last_and_one_at_a_time_probes_it():
    """SPEC 4.9: the breaker orders; it never takes the last target away."""
    walk = Walk([rung("a"), rung("b")])
    for _ in range(5):
        walk.state.failed("a")
    walk.begin()
    assert walk.failing_always(status(500)) == ["b first", "a fallback"]
    walk.clock.now += 2  # half open
    walk.begin()
    assert walk.step() == "a first"
    conversation = Conversation(walk.state, None, "asked", keeps=True)
    other = Climb(Plan(tuple(walk.rungs), ""), walk.state, walk.clock, lambda: 0.5, conversation)
    step = other.next()
    assert step is not None and told(step) == "b first"
    walk.state.served("a")
    walk.begin()
    assert walk.step() == "a first"


def test_looking_whether_others_are_left_takes_no_probe():
    walk = Walk([rung("a"), rung("b")])
    for _ in range(5):
        walk.state.failed("b")
    walk.clock.now += 2
    walk.begin()
    assert walk.step() == "a first" and walk.fail(NO_ANSWER) == "a retry"
    assert walk.state.probe("b"), "the one probe is still to be had"


def test_a_refused_key_is_left_alone_and_a_pool_of_them_is_a_fault_of_the_configuration():
    walk = Walk([rung("a", "one", "two")], pinned=Pinned("a", "m", "one"))
    walk.state.refuse(("a", name("one")))
    walk.begin()
    assert walk.step() == "a:two first"
    walk.state.refuse(("a", name("two")))
    walk.begin()
    assert walk.step() is None
    verdict = walk.climb.verdict()
    assert isinstance(verdict, KeyRefused) and "every key" in str(verdict)


def test_a_paused_provider_is_passed_over_and_alone_it_says_so():
    walk = Walk([rung("a"), rung("b")])
    walk.state.pause(Pause("provider", "a", 0))
    walk.begin()
    assert walk.step() == "b first"
    alone = Walk([rung("a")])
    alone.state.pause(Pause("provider", "a", 0))
    alone.begin()
    assert alone.step() is None and isinstance(alone.climb.verdict(), Paused)


def test_our_own_limit_passes_a_provider_over():
    limited = rung("a", request_limits=RequestLimits(per_minute=1))
    walk = Walk([limited, rung("b")])
    assert walk.step() == "a first"
    walk.begin()
    assert walk.step() == "b first"
    alone = Walk([limited])
    assert alone.step() == "a first"
    alone.begin()
    assert alone.step() is None
    verdict = alone.climb.verdict()
    assert isinstance(verdict, Resting) and 0 < int(dict(verdict.headers)["retry-after"]) <= 60


def test_counting_tokens_neither_waits_for_a_cooldown_nor_uses_up_a_limit():
    """SPEC 1.5a: fourteen at once must not cost a generation anything."""
    limited = rung("a", request_limits=RequestLimits(per_minute=1))
    walk = Walk([limited], options={"minds_cooldowns": False})
    walk.state.cool(("a", ""), 30, is_told=True, is_quota=False)
    for _ in range(3):
        walk.begin()
        assert walk.step() == "a first"
    assert walk.state.admit("a", 1, 0) == 0


def test_a_count_is_asked_for_once_with_each_key():
    """Somebody waits for a screen, and an estimate is at hand."""
    pooled = rung("a", "one", "two")
    for error in (status(503), status(500), TimedOut("unary", 10)):
        walk = Walk([pooled, rung("b")], options={"minds_cooldowns": False})
        assert len(walk.failing_always(error)) == 1
        assert walk.climb.verdict() is error
    assert len(Walk([pooled], options={"minds_cooldowns": False}).failing_always(status(429))) == 2


# --- who fits -----------------------------------------------------------------------------------------------------


def test_a_target_that_would_refuse_the_conversation_is_passed_over():
    """SPEC 4.7a."""
    walk = Walk([rung("a"), rung("b"), rung("c")], options={"fits": lambda rung, account: rung.provider.name != "b"})
    assert walk.failing_always(status(500)) == ["a first", "c fallback"]
    assert [rung.provider.name for rung in walk.climb.unfit] == ["b"]
    walk.climb.admit(walk.climb.unfit[0], is_last=True)
    assert walk.step() == "b fallback"
    assert walk.fail(status(500)) is None


def test_nobody_fits_and_nobody_was_asked():
    walk = Walk([rung("a")], options={"fits": lambda rung, account: False})
    assert walk.step() is None and isinstance(walk.climb.verdict(), Unavailable)


# --- the order of a pool ------------------------------------------------------------------------------------------

POOL = [Account(label) for label in "abcdef"]


def test_one_conversation_always_comes_to_the_same_order():
    """Two first requests of it at the same time meet in one cache, in whatever process."""
    orders = {
        tuple(account.label for account in in_order(POOL, None, b"slot", iter([n / 10]).__next__)) for n in range(10)
    }
    assert len(orders) == 1


def test_many_conversations_spread_over_the_pool():
    firsts = [in_order(POOL, None, str(n).encode(), lambda: 0.0)[0].label for n in range(600)]
    assert all(60 <= firsts.count(account.label) <= 140 for account in POOL)


def test_without_a_conversation_the_order_is_drawn():
    assert len({in_order(POOL, None, None, iter([n / 100]).__next__)[0].label for n in range(100)}) == len(POOL)


def test_taking_a_key_away_moves_nobody_else():
    """Rendezvous: whoever was not on the key that went stays where it was."""
    for n in range(200):
        slot = str(n).encode()
        before = in_order(POOL, None, slot, lambda: 0.0)
        after = in_order(POOL[:-1], None, slot, lambda: 0.0)
        assert [account for account in before if account.label != "f"] == after


def test_the_pinned_account_comes_first():
    assert in_order(POOL, "d", b"slot", lambda: 0.0)[0].label == "d"
    assert len(in_order(POOL, "gone", b"slot", lambda: 0.0)) == len(POOL)


# --- what people are told -----------------------------------------------------------------------------------------


def test_who_was_passed_over_is_told_with_the_reason():
    """A row that says `alias -> a` and was served by b must say why."""
    walk = Walk([rung("a", "one", "two"), rung("b"), rung("c"), rung("d")], pinned=Pinned("a", "m", "one"))
    walk.state.cool(("a", name("one")), 30, is_told=True, is_quota=False)
    walk.state.cool(("b", ""), 5, is_told=False, is_quota=False)
    walk.state.refuse(("a", name("two")))
    walk.state.pause(Pause("provider", "c", 0, "maintenance"))
    walk.begin()
    assert walk.step() == "d first"
    assert walk.climb.passed == {
        "a:one": "rests 30.0 s as it was told",
        "a:two": "had its key refused",
        "b": "is asked last: it had a 429",
        "c": "is paused",
    }


def test_nobody_passed_over_is_nothing_to_tell():
    walk = Walk([rung("a"), rung("b")])
    walk.failing_always(status(500))
    assert walk.climb.passed == {}


def test_the_reason_of_a_pause_is_told():
    walk = Walk([rung("a")])
    walk.state.pause(Pause("provider", "a", 0, "maintenance"))
    walk.begin()
    assert walk.step() is None and "a: maintenance" in str(walk.climb.verdict())
