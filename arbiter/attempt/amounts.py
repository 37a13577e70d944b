"""How many tokens a prompt is, before anybody counted it: estimated, and corrected by what providers report.

Each answer that states its input teaches the density of text (`accounting.densities`) for its target and client. What
this worker learned it uses at once; once a second it tells the others, through the state, and hears what they say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from msgspec import Raw

from arbiter.accounting.densities import Pair, Sums, density, is_believable
from arbiter.accounting.sizes import Size, size_of
from arbiter.clock import monotonic
from arbiter.model import Usage
from arbiter.state import densities
from arbiter.state.base import State

# Of one pair: a conversation says the same again with each turn, and to look through it is work.
_LEARNS_EVERY_S, _LEARNS_SELDOM_S = 1.0, 10.0
_ENOUGH_BYTES = 256 << 10
_LEAST_SHARE = 0.5  # of what is estimated by a density of its own; no prompt of agents was seen to be so far from it
_MOST_BYTES = 2 << 20  # of a prompt to learn from
_LEAST_BYTES = 256  # below, what a provider adds of its own outweighs the text
_MOST_PAIRS = 256  # new ones between two exchanges
_ELSEWHERE = frozenset(("previous_response_id", "conversation"))  # then more is counted than was sent


class Amounts:
    """What one worker knows of densities."""

    def __init__(self, state: State, now: Callable[[], float] = monotonic) -> None:
        self._state = state
        self._now = now
        self._learned: dict[Pair, Sums] = {}
        self._news: dict[Pair, Sums] = {}
        self._due: dict[Pair, float] = {}
        self._told: Mapping[Pair, Sums] = {}  # what was heard last

    def of(self, members: Mapping[str, Raw], client: str) -> Amount:
        """The amount of a prompt; nothing is looked at yet."""
        return Amount(self, members, client)

    def density(self, target: str, client: str) -> float:
        return density(self._learned, target, client)

    def is_sure(self, target: str) -> bool:
        """Whether enough was heard of `target`, whoever asked, for its density to be its own."""
        return self._learned.get((target, ""), (0.0, 0.0))[0] >= _ENOUGH_BYTES

    def heard(self, target: str, amount: Amount, usage: Usage | None) -> None:
        """`target` answered, and stated its `usage`."""
        if usage is not None and usage.input is not None:
            self.counted(target, amount, usage.input + (usage.cache_read or 0) + (usage.cache_write or 0))

    def counted(self, target: str, amount: Amount, tokens: int) -> None:
        """`target` says that the prompt is so many tokens."""
        if not (self._learns(target, amount) if amount.teaches is None else amount.teaches):
            return
        size, pair = amount.size, (target, amount.client)
        if size.text < _LEAST_BYTES or not is_believable(size.text, tokens - size.attached):
            return
        new = float(size.text), float(tokens - size.attached)
        for key in {pair, (target, "")}:
            self._learned[key] = densities.added(self._learned.get(key, (0.0, 0.0)), new)
            self._news[key] = densities.added(self._news.get(key, (0.0, 0.0)), new)

    def let_go(self, target: str, amount: Amount) -> None:
        """`target` takes long to answer: hold the prompt no longer. If it is to teach something, it is looked through
        now."""
        amount.teaches = self._learns(target, amount)
        if amount.teaches:
            amount.look()
        amount.members = {}

    def _learns(self, target: str, amount: Amount) -> bool:
        """Whether something is to be learned from this one. Then nothing is of the next ones of its pair."""
        pair, now = (target, amount.client), self._now()
        if now < self._due.get(pair, 0.0) or not _ELSEWHERE.isdisjoint(amount.members):
            return False
        if sum(len(memoryview(raw)) for raw in amount.members.values()) > _MOST_BYTES:
            return False
        if pair not in self._due and len(self._due) >= _MOST_PAIRS:
            return False
        is_known = self._learned.get(pair, (0.0, 0.0))[0] >= _ENOUGH_BYTES
        # Also where nothing is learned: who counts something else does so each time.
        self._due[pair] = now + (_LEARNS_SELDOM_S if is_known else _LEARNS_EVERY_S)
        return True

    def exchange(self) -> None:
        """Tell the others, and hear what they say. Called once a second; an idle worker writes nothing."""
        if self._news:
            news, self._news = self._news, {}
            self._state.learn(news)
        now = self._now()
        self._due = {pair: due for pair, due in self._due.items() if due > now}
        told = self._state.learned()
        if told is not self._told and told:
            self._told, self._learned = told, dict(told)


class Amount(msgspec.Struct, eq=False):
    """How large one prompt is. It is looked through when somebody first wants to know, and once."""

    _amounts: Amounts
    members: Mapping[str, Raw]
    client: str
    _size: Size | None = None
    teaches: bool | None = None  # decided before its answer is over

    @property
    def size(self) -> Size:
        return self.look()

    def look(self) -> Size:
        """Its size. It is looked through where nobody has done so."""
        if self._size is None:
            self._size = size_of(self.members)
        return self._size

    def tokens(self, target: str) -> int:
        """About how many tokens it is for `target`, "provider/model"."""
        return round(self.size.text * self._amounts.density(target, self.client)) + self.size.attached

    def surely_exceeds(self, target: str, tokens: int) -> bool:
        """Whether it is longer than so many tokens of `target`'s, also where the estimate is far too high.

        False where too little was heard of the target. What is no text counts as nothing: that is not learned.
        """
        if not self._amounts.is_sure(target):
            return False
        most = tokens / (self._amounts.density(target, self.client) * _LEAST_SHARE)
        # Most prompts are too short, whatever they hold, and need not be looked through.
        return sum(len(memoryview(raw)) for raw in self.members.values()) > most and self.size.text > most
