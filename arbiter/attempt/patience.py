"""How long a request can wait, at worst, before it is answered or fails: a pure function of its targets' settings.

The adversary chooses how long each attempt takes and how it ends; the climb (`climb.py`) answers by its rules. What is
given here is the supremum, in seconds from the climb's beginning; "answered" means a stream's first event, or a whole
unary answer.

One attempt. It can last D = queue + connect + what follows the send: for a unary request `unary`; for a stream
`first_event`, which shares its clock with `headers` and is the limit of both where it is set, else `headers`. `total`
cuts a stream short from the attempt's beginning, once it is connected. With `first_event` and `total` off a stream may
stay silent for ever after its headers, as pings move `idle`: there is no D. An attempt that breaks off an instant
before D counts as D, and is tried again as any broken connection is, though its provider had accepted it.

One target. The adversary lets the first attempt last D; its failure starts the clock of `retry.budget`. A target that
may be tried again (`attempts`, or `before_fallback` while another is left, is above 1, and fewer than `attempts` tries
were made in all) may begin its last try when the budget B ends, not later: a provider that asks for a wait fills B. One
such try is enough, as B passes only once; it lasts D again. So D + B + D. Each further key of a pool may hold its own
attempt for D before it is refused: these are outside budget and attempts. Each of the `accepted_timeout` tries that
follow a time-out after acceptance, where no other target is left, is outside the budget; `attempts` bounds it.

Several targets. The clock keeps running from the first failure, so a later target has a second try only if the
attempts in between were short. E, the time since the first failure when a target of `keys` keys is done, is therefore

    E' = B + keys·D      with a second try: the attempts since the first failure fit into B, and B is waited out
    E' = E + keys·D      without

where the first target's first attempt is not part of E. As a second try uses up one of `attempts`, the largest E is
kept for each number of tries. A pin, a cooldown or a breaker may put any target first and any last, and the longest
order is what counts.

Not part of it: the resend on a fresh connection when a kept one turns out to be dead (SPEC 3.2), half a second by which
a budget may be noticed late, the second question of `speechless: nudge`, and a target that comes back from a cooldown
in the middle of the climb.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from arbiter.config import units
from arbiter.config.snapshot import Budgets, Provider

_Parts = tuple[tuple[str, float], ...]
_MOST_TRIES = 100  # no `retry.attempts` is larger, so more need not be told apart


@dataclass(frozen=True, slots=True)
class Wait:
    """The worst case. `seconds` is None where there is no limit; `reason` names the setting that decides."""

    seconds: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class _Way:
    """What the adversary did so far: seconds since the first failure, and of what all seconds consist."""

    since_s: float = 0.0
    attempts: tuple[tuple[int, int], ...] = ()  # (target, how many), as they happened
    budget: int | None = None  # the target whose retry budget was waited out

    def then(self, target: int, count: int, seconds: float) -> _Way:
        return replace(self, since_s=self.since_s + seconds, attempts=(*self.attempts, (target, count)))


@dataclass(frozen=True, slots=True)
class _Target:
    provider: Provider
    parts: _Parts  # what one attempt's time consists of, by setting
    is_accepted: bool  # whether it can time out after acceptance
    longest_s: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "longest_s", sum(seconds for _, seconds in self.parts))

    def may_repeat(self, *, is_last: bool) -> bool:
        """Whether its settings allow it a second try at all."""
        retry = self.provider.retry
        limit = retry.attempts if is_last else min(retry.attempts, retry.before_fallback)
        return limit > 1 and retry.base_s / 2 <= retry.budget_s

    def added_by_repeating(self, *, is_last: bool) -> float:
        """Seconds that its second try adds, where nothing was tried before it."""
        return self.provider.retry.budget_s + self.longest_s if self.may_repeat(is_last=is_last) else 0.0


def unary(providers: Sequence[Provider]) -> Wait:
    """For requests that are not streams, to these providers' targets."""
    return _wait(
        [(provider, _parts(provider.budgets, (("unary", provider.budgets.unary_s),))) for provider in providers]
    )


def stream(providers: Sequence[Provider]) -> Wait:
    """For streams, until the first event."""
    return _wait([(provider, _stream_parts(provider.budgets, accepted=True)) for provider in providers])


def unaccepted(providers: Sequence[Provider]) -> Wait:
    """For streams that no provider accepts: until the last one has failed to send headers."""
    return _wait(
        [(provider, _stream_parts(provider.budgets, accepted=False)) for provider in providers], is_accepted=False
    )


def _stream_parts(budgets: Budgets, *, accepted: bool) -> _Parts:
    waits: _Parts
    if budgets.first_event_s:
        waits = (("first_event", budgets.first_event_s),)
    else:
        waits = (("headers", budgets.headers_s),)
        if accepted:
            waits = (*waits, ("first_event", 0.0))
    parts = _parts(budgets, waits)
    reaching_s = budgets.queue_s + budgets.connect_s
    is_open = any(not seconds for _, seconds in waits)
    if budgets.total_s and (is_open or sum(seconds for _, seconds in parts) > budgets.total_s):
        # Nobody watches `total` before the connection stands; after that it has the last word.
        left_s = max(budgets.total_s - reaching_s, 0.0)
        return (*parts[:2], ("total", left_s)) if left_s else parts[:2]
    return parts


def _parts(budgets: Budgets, waits: _Parts) -> _Parts:
    return (("queue", budgets.queue_s), ("connect", budgets.connect_s), *waits)


def _wait(settings: list[tuple[Provider, _Parts]], *, is_accepted: bool = True) -> Wait:
    for provider, parts in settings:
        for name, seconds in parts:
            if not seconds:
                return Wait(None, f"{provider.name}.timeouts.{name} is off")
    # When `total` runs out, nobody asks whether headers had come.
    targets = [_Target(provider, parts, is_accepted or parts[-1][0] == "total") for provider, parts in settings]
    best: Wait | None = None
    for order in _orders(targets):
        found = _longest(order)
        if best is None or best.seconds is None or (found.seconds or 0.0) > best.seconds:
            best = found
    assert best is not None, "a plan has a rung"
    return best


def _orders(targets: list[_Target]) -> Iterator[list[_Target]]:
    """The listed order, and those with another target first or last: those with most to add there are worth a look."""

    def longest(at: int) -> float:
        return targets[at].longest_s

    def added_first(at: int) -> float:
        return targets[at].added_by_repeating(is_last=False)

    def added_last(at: int) -> float:
        accepted_s = targets[at].longest_s * targets[at].provider.retry.accepted_timeout
        return targets[at].added_by_repeating(is_last=True) + accepted_s

    yield targets
    places = range(len(targets))
    ends = {0, len(targets) - 1}
    for added in (longest, added_first, added_last):
        ends.update(sorted(places, key=added)[-2:])
    for first, last in product(ends, ends):
        if first != last:
            middle = [targets[at] for at in places if at not in (first, last)]
            yield [targets[first], *middle, targets[last]]


def _longest(order: list[_Target]) -> Wait:
    """The longest way through targets in this order. Ways are kept by the tries they took: few leave more to come."""
    ways = {0: _Way()}
    for at, target in enumerate(order):
        retry, keys = target.provider.retry, len(target.provider.accounts)
        is_last = at == len(order) - 1
        may_repeat = target.may_repeat(is_last=is_last)
        accepted = retry.accepted_timeout if is_last and target.is_accepted else 0
        after: dict[int, _Way] = {}
        for tries, way in ways.items():
            for count in range(1, keys + 1):
                # Tries after acceptance come before any key is given up, as long as attempts are left for them.
                extra = min(accepted, max(0, retry.attempts - 1 - tries))
                # The very first attempt is what starts the clock; its time is added in the end.
                timed = count if at else count - 1
                _keep(after, tries + count + extra, way.then(at, count + extra, (timed + extra) * target.longest_s))
                if may_repeat and tries + 1 < retry.attempts:
                    first = way.attempts[:1] if at else ((0, 1),)
                    first = tuple((where, 1) for where, _ in first)  # the others were over at once
                    extra = min(accepted, retry.attempts - 2 - tries)
                    again = _Way(retry.budget_s, first, at)
                    again = again.then(at, count + extra, (count + extra) * target.longest_s)
                    _keep(after, tries + 1 + count + extra, again)
        ways = after
    way = max(ways.values(), key=lambda one: one.since_s)
    seconds = order[0].longest_s + way.since_s
    counts = dict.fromkeys(range(len(order)), 0)
    for at, count in way.attempts:
        counts[at] += count
    return Wait(seconds, _largest(order, counts, way.budget))


def _keep(ways: dict[int, _Way], tries: int, way: _Way) -> None:
    tries = min(tries, _MOST_TRIES)
    known = ways.get(tries)
    if known is None or way.since_s > known.since_s:
        ways[tries] = way


def _largest(order: list[_Target], counts: dict[int, int], budget: int | None) -> str:
    """The setting that most of the time goes to."""
    shares: dict[str, tuple[float, str]] = {}
    attempts: dict[str, int] = {}
    for at, target in enumerate(order):
        for name, seconds in target.parts:
            setting = f"{target.provider.name}.timeouts.{name}"
            attempts[setting] = attempts.get(setting, 0) + counts[at]
            count = attempts[setting]
            times = f"{count} × " if count != 1 else ""
            written_s = getattr(target.provider.budgets, f"{name}_s")
            shares[setting] = (count * seconds, f"{setting} ({times}{units.duration(written_s)})")
    if budget is not None:
        retry = order[budget].provider.retry
        setting = f"{order[budget].provider.name}.retry.budget"
        shares[setting] = (retry.budget_s, f"{setting} ({units.duration(retry.budget_s)})")
    return max(shares.values(), key=lambda share: share[0])[1]
