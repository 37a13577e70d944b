"""Which step comes next: a climb's decisions, without its waits and its sockets.

Theory of operation. A plan's rungs stand in order, the accounts of each in theirs. `next()` names the step to take;
`failed()` hears how it ended and draws the consequence, by the error's `retry`:

    SAME     the same account after a delay, while attempts, budget and `before_fallback` allow; then the next rung
    KEY      the account is out; the next one of its rung, then the next rung
    NEXT     the rung is out (its other keys lead to the same house)
    LARGER   the rung is out, and with it every later one that has no larger context window
    NEVER    the climb is over

A target that cannot be told the request was never asked (`passed_over`): the climb goes on as if the plan had not named
it, and where it named nobody else, ends with what the first of them says. So it is found out (`tell`) before anything
depends on such a target: a request limit counts what is sent, a retry minds who else could be asked, and whoever cannot
be asked now is only waited for where waiting helps.

A time-out after the upstream had accepted is billed already: it is retried once at most, on another rung first.
Accounts that were told to rest are passed over without contact, those of which we only guess (a cooldown without a
hint, an open breaker) come last. The standing of accounts is looked at anew before each step: other workers learn too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

import msgspec

from arbiter.attempt import backoff
from arbiter.attempt.conversation import Conversation
from arbiter.config.snapshot import Account
from arbiter.errors import (
    ArbiterError,
    ErrorClass,
    KeyRefused,
    Paused,
    ProtocolUnsupported,
    Resting,
    Retry,
    TimedOut,
    Unavailable,
    UpstreamStatus,
    whole_seconds,
)
from arbiter.routing.groups import lot
from arbiter.routing.plan import Amount, Plan, Rung
from arbiter.state.base import Cooldown, State

_AFTER_ACCEPTANCE = frozenset(("first_event", "idle", "total", "unary"))
"""Phases in which the provider has the request, and works on it. A unary answer is silent until it is whole."""


class Step(msgspec.Struct, frozen=True):
    """One try to make: `rung` on `account`, `delay_s` from now. `why` it is made goes into its row."""

    rung: Rung
    account: Account
    why: str
    delay_s: float = 0.0


def at_once(plan: Plan, conversation: Conversation, *, minds_cooldowns: bool) -> Step | None:
    """The first step where nothing at all speaks against it, which is nearly always; else None, and `Climb` decides."""
    rung = plan.rungs[0]
    provider = rung.provider
    name, limits, standing = provider.name, provider.request_limits, conversation.standing
    if (
        len(provider.accounts) > 1
        or limits.per_minute
        or limits.per_day
        or name in standing.breakers
        or ("provider", name) in standing.pauses
    ):
        return None
    account = provider.accounts[0]
    key = (name, account.name)
    if key in standing.refused or (minds_cooldowns and key in standing.cooldowns):
        return None
    return Step(rung, account, "first")


class _Place:
    """One rung of the climb, and how it fared."""

    __slots__ = ("accounts", "failures", "fault", "is_limited", "is_out", "is_told", "rung")

    def __init__(self, rung: Rung, accounts: list[Account]) -> None:
        self.rung = rung
        self.fault: ArbiterError | None = None  # what keeps the request from being told to it
        self.is_told = False  # whether that is known
        self.is_limited = False  # one of its accounts was limited just now, or rests
        self.accounts = accounts
        self.failures = 0
        self.is_out = False


class Climb:
    """The steps of one request.

    `now` is the monotonic clock, `draw` gives numbers in [0, 1). `fits` says whether a rung may get this conversation
    at all, on one of its accounts (SPEC 4.7a), and `tell` what keeps the request from being told to it, if anything
    does. `amount` is how long the prompt is, and `small` says by name who has too small a window for it, and why: these
    are asked where nobody else can be. `minds_cooldowns` is False for what the providers count apart, and nobody waits
    for (count_tokens).
    """

    def __init__(
        self,
        plan: Plan,
        state: State,
        now: Callable[[], float],
        draw: Callable[[], float],
        conversation: Conversation,
        fits: Callable[[Rung, Account], bool] | None = None,
        *,
        tell: Callable[[Rung], ArbiterError | None] = lambda rung: None,
        amount: Amount | None = None,
        small: Mapping[str, str] = MappingProxyType({}),
        minds_cooldowns: bool = True,
    ) -> None:
        self._state = state
        self._now = now
        self._draw = draw
        self._plan = plan
        self._conversation = conversation
        self._fits = fits
        self._tell = tell
        self._amount = amount
        self._small = small
        self._minds_cooldowns = minds_cooldowns
        self._made: list[_Place] | None = None
        self._here: _Place | None = None  # where the last step was taken
        self._step: Step | None = None
        self._again: Step | None = None  # the next step, where it is clear already
        self._tries = 0
        self._first_failure = 0.0
        self._accepted = 0  # time-outs after acceptance
        self._last: ArbiterError | None = None
        self._rests: dict[tuple[str, str], Cooldown] = {}  # passed over, by account
        self._until: list[float] = []  # when somebody who may not be asked now may be asked again
        self._paused: dict[str, str] = {}  # providers, and the reasons that were given
        self._only: Rung | None = None
        self._is_last = True
        self.is_over = False
        self.unfit: list[Rung] = []  # passed over because they would refuse the conversation
        self.passed: dict[str, str] = {}  # who was not asked, or not in its turn, and why: for people

    # --- what to do ---------------------------------------------------------------------------------------------------

    def next(self) -> Step | None:
        """The next step; None where none is left, and `verdict` says how the climb ended."""
        if self.is_over:
            return None
        step, self._again = self._again, None
        if step is not None and self._here is not None and not self._admits(self._here):
            step = None
        if step is None:
            step = self._choose()
            if step is None and self._small and self._last is None and not self._until:
                # Nobody else could be asked: whoever is too small says so himself, in words that clients act upon.
                for name in self._small:
                    self.passed.pop(name, None)
                self._small = {}
                step = self._choose()
        self._step = step
        if step is not None:
            self._tries += 1
        return step

    def took(self, step: Step) -> None:
        """The first step was clear before there was a climb (`at_once`)."""
        self._step, self._tries = step, 1

    def still_stands(self, step: Step) -> bool:
        """Whether `step` may be taken after its delay. If not, it was none, and `next` is to be asked for another.

        While one request waits, another may have been told that the account is to rest.
        """
        standing, provider = self._state.standing(), step.rung.provider.name
        key = (provider, step.account.name)
        rest = standing.cooldowns.get(key) if self._minds_cooldowns else None
        if rest is not None and rest.is_told and rest.until > self._now():
            self._rest(key, rest)
        elif key not in standing.refused and ("provider", provider) not in standing.pauses:
            return True
        self._tries -= 1
        return False

    def _rest(self, key: tuple[str, str], rest: Cooldown) -> None:
        if key not in self._rests:
            self._rests[key] = rest
            self._until.append(rest.until)

    @property
    def _places(self) -> list[_Place]:
        if self._made is None:
            pinned = self._plan.pinned
            self._made = [
                _Place(
                    rung,
                    in_order(
                        rung.provider.accounts,
                        pinned.account if pinned is not None and pinned.provider == rung.provider.name else None,
                        self._conversation.slot,
                        self._draw,
                    ),
                )
                for rung in self._plan.rungs
            ]
        return self._made

    def _choose(self) -> Step | None:
        last_resort: tuple[_Place, Account] | None = None
        for place, account, is_doubtful in self._candidates():
            if is_doubtful:
                last_resort = last_resort or (place, account)
            elif self._admits(place):
                return self._to(place, account)
        if last_resort is not None and self._admits(last_resort[0]):
            return self._to(*last_resort)
        return None

    def _to(self, place: _Place, account: Account) -> Step:
        before, self._here = self._here, place
        why = "first" if not self._tries else "key" if before is place else "fallback"
        return Step(place.rung, account, why)

    def _candidates(self, *, probing: bool = True) -> Iterator[tuple[_Place, Account, bool]]:
        """Whoever may be contacted now, in order; True for those of whom nothing good is expected."""
        standing, now = self._state.standing(), self._now()
        for place in self._places:
            if place.is_out or (self._only is not None and place.rung is not self._only):
                continue
            if place.rung.name in self._small:
                self.passed[place.rung.name] = self._small[place.rung.name]
                continue
            provider = place.rung.provider
            pause = standing.pauses.get(("provider", provider.name)) if standing.pauses else None
            if pause is not None:
                self._paused[provider.name] = pause.reason
                self.passed[provider.name] = "is paused"
                continue
            breaker = standing.breakers.get(provider.name) if standing.breakers else None
            is_broken: bool | None = None if breaker is not None and breaker.open_until else False
            for account in place.accounts:
                key = (provider.name, account.name)
                who = f"{provider.name}:{account.label}" if account.label else provider.name
                if self._fits is not None and not self._fits(place.rung, account):
                    if place.rung not in self.unfit:
                        self.unfit.append(place.rung)
                    self.passed[f"{who}/{place.rung.model}"] = "would refuse what another made of the conversation"
                    continue
                if key in standing.refused:
                    self.passed[who] = "had its key refused"
                    continue
                rest = standing.cooldowns.get(key) if self._minds_cooldowns else None
                if rest is not None and rest.until <= now:
                    rest = None
                if rest is not None and rest.is_told:
                    place.is_limited = True
                    self._rest(key, rest)
                    self.passed.setdefault(who, f"rests {rest.until - now:.1f} s as it was told")
                    continue
                if is_broken is None and breaker is not None:
                    # Once its time is up, whoever asks first tries it, and the others wait for how that ends.
                    is_broken = breaker.open_until > now or (probing and not self._state.probe(provider.name))
                if is_broken or rest is not None:
                    why = "its connections fail" if is_broken else "it had a 429"
                    self.passed.setdefault(who, f"is asked last: {why}")
                yield place, account, bool(is_broken) or rest is not None

    def _admits(self, place: _Place) -> bool:
        provider = place.rung.provider
        limits = provider.request_limits
        if not (limits.per_minute or limits.per_day) or not self._minds_cooldowns:
            return True
        if self._fault(place) is not None:
            return True  # nothing will be sent
        wait_s = self._state.admit(provider.name, limits.per_minute, limits.per_day)
        if wait_s > 0:
            self._until.append(self._now() + wait_s)
            place.is_out = True
            self.passed[provider.name] = f"reached its limit, for {wait_s:.0f} s"
            return False
        return True

    def _fault(self, place: _Place) -> ArbiterError | None:
        """What keeps the request from being told to this target; looked for once."""
        if not place.is_told:
            place.is_told, place.fault = True, self._tell(place.rung)
        return place.fault

    def unknown(self, besides: Rung | None = None) -> Iterator[Rung]:
        """Targets of which nobody has found out yet whether they can be told the request, in order."""
        return (one.rung for one in self._places if not (one.is_out or one.is_told or one.rung is besides))

    def can_tell(self, rung: Rung) -> bool:
        """Find it out."""
        return not any(self._is_untold(place) for place in self._places if place.rung is rung)

    @property
    def has_contacted(self) -> bool:
        return self._last is not None

    def _is_untold(self, place: _Place) -> bool:
        return isinstance(self._fault(place), ProtocolUnsupported)

    # --- what happened ------------------------------------------------------------------------------------------------

    def failed(self, error: ArbiterError, hint_s: float | None = None) -> None:
        """The last step failed with `error`; the provider asked us to stay away for `hint_s`, where it did."""
        step = self._step
        assert step is not None, "a step was taken"
        place = self._here = self._here or self._places[0]
        self._last = error
        now = self._now()
        self._first_failure = self._first_failure or now
        retry = error.retry
        if not self._minds_cooldowns and retry is not Retry.KEY:
            self.is_over = True  # a count is estimated sooner than asked for again
        elif isinstance(error, TimedOut) and error.phase in _AFTER_ACCEPTANCE:
            self._after_acceptance(place, step)
        elif retry is Retry.SAME:
            self._same_or_on(place, step, now, hint_s)
        elif retry is Retry.KEY:
            if hint_s is not None:
                self._until.append(now + hint_s)
            place.accounts = [account for account in place.accounts if account is not step.account]
            place.is_limited = place.is_limited or error.code is not ErrorClass.CONFIG
            if not place.accounts:
                # A configuration that does not work is not an outage: it ends here, and looks like what it is. Where
                # another key was only limited, that is what the provider's pool is.
                self.is_over = not place.is_limited
                place.is_out = True
        elif retry is Retry.LARGER:
            self._keep_larger(place)
        elif retry is Retry.NEXT:
            place.is_out = True
        else:
            self.is_over = True

    def _same_or_on(self, place: _Place, step: Step, now: float, hint_s: float | None) -> None:
        place.failures += 1
        retry = place.rung.provider.retry
        limit = retry.before_fallback if self._has_others(place) else retry.attempts
        delay_s = backoff.delay_s(retry, place.failures, hint_s, self._draw())
        in_time = now - self._first_failure + delay_s <= retry.budget_s
        if place.failures < limit and self._tries < retry.attempts and in_time:
            self._again = Step(step.rung, step.account, "retry", delay_s)
        else:
            place.is_out = True

    def _after_acceptance(self, place: _Place, step: Step) -> None:
        self._accepted += 1
        if self._accepted > place.rung.provider.retry.accepted_timeout:
            self.is_over = True
        elif self._has_others(place):
            place.is_out = True
        elif self._tries < place.rung.provider.retry.attempts:
            self._again = Step(step.rung, step.account, "retry")
        else:
            self.is_over = True

    def _keep_larger(self, place: _Place) -> None:
        place.is_out = True
        # Of a target whose window nobody knows, it is known that this prompt does not fit.
        rung = place.rung
        window = rung.window or (self._amount.tokens(rung.name) if self._amount is not None else 0)
        for other in self._places:
            if (other.rung.window or 0) <= window:
                other.is_out = True

    def _has_others(self, place: _Place) -> bool:
        """Whether another rung is left that may be contacted, and told the request."""
        if not self._is_last:
            return True
        others = (other for other, _, _ in self._candidates(probing=False) if other is not place)
        return any(not self._is_untold(other) for other in others)

    def admit(self, rung: Rung, *, is_last: bool) -> None:
        """`rung` may be tried after all, and only it: the request was made to fit it. `is_last`: no other will be."""
        self._fits = None
        self._only, self._is_last = rung, is_last

    def passed_over(self, error: ProtocolUnsupported) -> None:
        """The last step was none: its target cannot be told the request, which `error` says, and nothing was sent."""
        assert self._step is not None, "a step was taken"
        rung = self._step.rung
        self._tries -= 1
        self.passed[rung.name] = untold(error)
        for place in self._places:
            if place.rung is rung:
                place.is_out = place.is_told = True
                place.fault = error

    def repeat(self, why: str) -> None:
        """Take the last step once more, for a reason of the answer's own."""
        assert self._step is not None, "a step was taken"
        self._again = Step(self._step.rung, self._step.account, why)

    # --- how it ended -------------------------------------------------------------------------------------------------

    @property
    def wait_s(self) -> float | None:
        """The shortest wait that a provider, or a limit of ours, told us; None where nobody did."""
        return max(0.0, min(self._until) - self._now()) if self._until else None

    def verdict(self) -> ArbiterError:
        """What the client is told: of the last contact, or why nobody was contacted."""
        wait_s = self.wait_s
        if self._last is not None:
            if wait_s is not None and self._last.status == 429:
                _say_when(self._last, wait_s)
            return self._last
        if all(self._is_untold(place) for place in self._places):
            return self._nobody_told()
        if wait_s is not None:
            asked = ", ".join(sorted({provider for provider, _ in self._rests}))
            why = f"{asked} asked us to wait" if asked else "the configured request limit is reached"
            is_quota = bool(self._rests) and all(rest.is_quota for rest in self._rests.values())
            return Resting(f"nobody was contacted: {why}; try again in {wait_s:.1f} s", wait_s, is_quota=is_quota)
        if self._paused:
            told = [f"{name}: {reason}" if reason else name for name, reason in sorted(self._paused.items())]
            return Paused(f"an operator has paused the provider {', '.join(told)}")
        if self.unfit:
            return Unavailable(
                "the conversation holds what only its maker accepts (the thinking of an open tool loop, or a reference "
                "to an answer), and that one cannot be asked now"
            )
        provider = next(place.rung.provider.name for place in self._places if not self._is_untold(place))
        return KeyRefused(
            f"the provider {provider!r} refused every key that is configured for it; replace them and reload"
        )

    def _nobody_told(self) -> ArbiterError:
        """Whoever rests, or is paused, could not be told the request either: the first one's reason says it for all."""
        first: ArbiterError | None = None
        for place in self._places:
            fault = self._fault(place)
            assert isinstance(fault, ProtocolUnsupported), "none of them can be told it"
            first = first or fault
            self.passed[place.rung.name] = untold(fault)
        assert first is not None, "a plan names somebody"
        return first


def _say_when(error: ArbiterError, wait_s: float) -> None:
    """Tell the client of a 429 the shortest wait of all accounts; the last one's own may be longer."""
    advice = ("retry-after", str(whole_seconds(wait_s)))
    if isinstance(error, UpstreamStatus):
        said = any(name == "retry-after" for name, _ in error.upstream_headers)
        if said and error.wait_s is not None and error.wait_s <= wait_s + 1:
            return  # it says so itself, and passes as it came
        rest = tuple(pair for pair in error.upstream_headers if pair[0] not in ("retry-after", "retry-after-ms"))
        error.upstream_headers = (*rest, advice)
    else:
        error.headers = (*(pair for pair in error.headers if pair[0] != "retry-after"), advice)


def untold(error: ProtocolUnsupported) -> str:
    """Why a target was passed over that cannot be told the request, as a rationale has it."""
    return f"cannot be told it ({error})"


def in_order(
    accounts: Sequence[Account], pinned: str | None, slot: bytes | None, draw: Callable[[], float]
) -> list[Account]:
    """A pool's accounts as a conversation tries them: the pinned one, then by an order of the conversation's own.

    One conversation always comes to the same order, whoever asks, so that two first requests of it meet in one cache;
    many conversations spread over all. Without a slot the order is drawn.
    """
    if len(accounts) == 1:
        return list(accounts)
    seed = slot if slot is not None else str(draw()).encode()
    order = sorted(accounts, key=lambda account: lot(seed, (account.label or "").encode()))
    return sorted(order, key=lambda account: account.label != pinned) if pinned is not None else order
