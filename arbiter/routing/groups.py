"""Aliases: which target an alias stands for, and which come after it.

An alias becomes a `Way`, once per snapshot: a tree of targets and of other aliases. Where nothing that a request brings
can change the order, it is worked out then, and asking costs nothing; the others are put into order per request.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from arbiter.config import units
from arbiter.config.rates import Rate
from arbiter.config.snapshot import Alias, Member, Select, Snapshot
from arbiter.routing.plan import Amount, Asked, Rung

_NOTHING = Asked("")
_AS_BYTES = Struct("<d").pack
_UNKNOWN = math.inf


class Order(NamedTuple):
    """Targets, first to last, and in words how the first of them came to be it."""

    rungs: tuple[Rung, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Way:
    """What one name leads to."""

    label: str
    branches: tuple[Branch, ...]
    select: Select = "ordered"
    settled: Order | None = field(init=False)
    """The order, where no request can change it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "settled", None if self._is_open() else self._order(_NOTHING))

    def order(self, asked: Asked) -> Order:
        return self.settled or self._order(asked)

    def _is_open(self) -> bool:
        return (
            self.select in ("random", "weighted", "fastest_measured", "least_busy")
            or any(branch.leads_to.settled is None for branch in self.branches)
            # Which of them is the cheapest depends on how much is asked.
            or (self.select in _PRICES and any(_has_tiers(branch.leads_to) for branch in self.branches))
        )

    def _order(self, asked: Asked) -> Order:
        found = [(branch, branch.leads_to.order(asked)) for branch in self.branches]
        about = ""
        if len(found) > 1 and self.select != "ordered":
            rank, tell = _SELECTS[self.select]
            ranked = sorted(((rank(branch, order.rungs[0], asked), n) for n, (branch, order) in enumerate(found)))
            about = tell(ranked[0][0][0])
            found = [found[n] for _, n in ranked]
        # Of a target that is reached twice the first counts.
        rungs = {rung.name: rung for _, order in reversed(found) for rung in reversed(order.rungs)}
        return Order(tuple(reversed(rungs.values())), f"{self.label}{about} -> {found[0][1].why}")


@dataclass(frozen=True, slots=True)
class Target:
    """A way of one step: the target itself."""

    settled: Order

    def order(self, asked: Asked) -> Order:
        return self.settled


@dataclass(frozen=True, slots=True)
class Branch:
    """One member of an alias. `lot` is what a draw knows it by."""

    leads_to: Way | Target
    lot: bytes
    weight: float = 1.0


class Ways:
    """The ways of one snapshot's aliases and members."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._known: dict[str, Way] = {}

    def of_alias(self, alias: Alias) -> Way:
        way = self._known.get(alias.name)
        if way is None:
            branches = tuple(
                Branch(self.of_member(member), member.name.encode(), member.weight) for member in alias.members
            )
            way = Way(_label(alias), branches, alias.select)
            self._known[alias.name] = way
        return way

    def of_member(self, member: Member) -> Way | Target:
        if member.alias is not None:
            return self.of_alias(self._snapshot.aliases[member.alias])
        rung = rung_of(self._snapshot, member.provider or "", member.model)
        return Target(Order((rung,), rung.name))


def rung_of(snapshot: Snapshot, provider_name: str, model_id: str) -> Rung:
    """A declared model is asked for under the provider's name for it; any other under the name it came by."""
    provider = snapshot.providers[provider_name]
    model = provider.model(model_id)
    if model is None:
        return Rung(provider, model_id)
    known_as = model.id if model.id != model.upstream else None
    return Rung(provider, model.upstream, model.max_output, model.api, known_as)


def lot(seed: bytes, name: bytes, weight: float = 1.0) -> float:
    """What `name` draws under `seed`: the lowest wins, and it wins as often as its weight says.

    Rendezvous hashing: whoever has the same seed draws the same, and a name that joins or leaves moves no conversation
    but those it wins or had won.
    """
    if weight <= 0:
        return _UNKNOWN
    evenly = (xxh3_64_intdigest(seed + name) + 0.5) / 2.0**64
    return -math.log(evenly) / weight


def seed_of(asked: Asked) -> bytes:
    """What every draw of this request is seeded with."""
    return asked.slot if asked.slot is not None else _AS_BYTES(asked.draw)


def _label(alias: Alias) -> str:
    return f"alias {alias.name} ({alias.select})" if alias.is_group else f"alias {alias.name}"


Rank = tuple[float, float]
"""The lowest comes first; equal ones stay as they were listed."""


def _by_lot(branch: Branch, rung: Rung, asked: Asked) -> Rank:
    return 0.0, lot(seed_of(asked), branch.lot)


def _by_weight(branch: Branch, rung: Rung, asked: Asked) -> Rank:
    return 0.0, lot(seed_of(asked), branch.lot, branch.weight)


def _by_input_price(branch: Branch, rung: Rung, asked: Asked) -> Rank:
    rate = _rate(rung, asked.amount)
    return (_UNKNOWN if rate is None or rate.input is None else rate.input), 0.0


def _by_output_price(branch: Branch, rung: Rung, asked: Asked) -> Rank:
    rate = _rate(rung, asked.amount)
    return (_UNKNOWN if rate is None or rate.output is None else rate.output), 0.0


def _rate(rung: Rung, amount: Amount | None = None) -> Rate | None:
    rate = rung.provider.rate(rung.model)
    if rate is None or not rate.tiers or amount is None:
        return rate
    tokens = amount.tokens(rung.name)
    return next((tier for above, tier in rate.tiers if tokens > above), rate)


def _by_latency(branch: Branch, rung: Rung, asked: Asked) -> Rank:
    card = rung.provider.cards.get(rung.model)
    return (_UNKNOWN if card is None or card.latency_ms_p50 is None else card.latency_ms_p50), 0.0


def _by_measure(branch: Branch, rung: Rung, asked: Asked) -> Rank:
    seen = asked.facts.speed(rung.name) if asked.facts is not None else None
    return (_UNKNOWN if seen is None else seen[0]), 0.0


def _by_load(branch: Branch, rung: Rung, asked: Asked) -> Rank:
    busy = asked.facts.busy(rung.name) if asked.facts is not None else 0
    return busy, lot(seed_of(asked), branch.lot)


def _has_tiers(way: Way | Target) -> bool:
    if isinstance(way, Way):
        return any(_has_tiers(branch.leads_to) for branch in way.branches)
    rate = _rate(way.settled.rungs[0])
    return rate is not None and bool(rate.tiers)


def _tell_price(pd: float) -> str:
    return ", no price known" if pd == _UNKNOWN else f", {units.price(int(pd))} USD per million tokens"


def _tell_latency(ms: float) -> str:
    return ", no latency known" if ms == _UNKNOWN else f", {ms:g} ms"


def _tell_measure(seconds: float) -> str:
    return ", nothing measured yet" if seconds == _UNKNOWN else f", first event after {seconds:.3f} s"


def _tell_load(busy: float) -> str:
    return f", {busy:.0f} under way"


def _tell_nothing(value: float) -> str:
    return ""


_SELECTS: dict[Select, tuple[Callable[[Branch, Rung, Asked], Rank], Callable[[float], str]]] = {
    "random": (_by_lot, _tell_nothing),
    "weighted": (_by_weight, _tell_nothing),
    "cheapest_input": (_by_input_price, _tell_price),
    "cheapest_output": (_by_output_price, _tell_price),
    "fastest": (_by_latency, _tell_latency),
    "fastest_measured": (_by_measure, _tell_measure),
    "least_busy": (_by_load, _tell_load),
}
_PRICES: Sequence[Select] = ("cheapest_input", "cheapest_output")
