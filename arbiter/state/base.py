"""What the workers of one gateway share besides their rows: pins, cooldowns, breakers, refused keys, counters, pauses.

One interface: `lmdb_state.py` is shared by every process of a host, `memory.py` is of one process, and `shared.py`,
which workers use, is the first for as long as it works and the second while it does not.
Everything is keyed by names of the configuration (provider, account label, client); no key, no prompt and no message
is ever stored. Durations go in and come out as seconds from now: which clock they are kept by is the
implementation's own business.

What outlives what (SPEC 5.8): pins, artefacts, day counters, measures, densities and pauses survive a restart of the
gateway; cooldowns, breakers, missing endpoints and refused keys survive a reload (refused keys do not) and a worker's
death, and end with the gateway. `standing` is everything small that a request needs to know; it is one object until
something in it changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import msgspec

AccountName = tuple[str, str]
"""(provider, account): the latter as `config.snapshot.Account.name` has it."""


class Pin(msgspec.Struct, array_like=True, frozen=True):
    """Who serves a conversation. `asked` is the model that was asked for, `model` the name sent to the provider.

    `moved`: it was served by another target before, so its history may hold what this target did not make.
    """

    asked: str
    provider: str
    model: str
    account: str  # the label, "" where the account has none
    moved: bool = False


class Origin(msgspec.Struct, array_like=True, frozen=True):
    """Who made an artefact that only its maker accepts (SPEC 4.7a)."""

    provider: str
    account: str
    model: str


@dataclass(frozen=True, slots=True)
class Cooldown:
    """An account that asked us to wait. `is_told`: the provider named the wait; else it is a guess of ours."""

    until: float  # on the monotonic clock of this host
    is_told: bool
    is_quota: bool = False


@dataclass(frozen=True, slots=True)
class Breaker:
    """A provider's consecutive transport failures. `open_until` is 0 while it is closed."""

    failures: int
    open_until: float = 0.0  # on the monotonic clock of this host
    openings: int = 0  # in a row; the wait grows with them
    probe_until: float = 0.0  # somebody has leave to try it until then
    failed_at: float = 0.0  # the latest failure; long ago, it says nothing any more


@dataclass(frozen=True, slots=True)
class Pause:
    """Somebody stopped traffic. `scope` is "all", "client" or "provider"; `name` of the latter two."""

    scope: Literal["all", "client", "provider"]
    name: str
    since_ms: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Standing:
    """Everything small that a request needs to know. Expired entries may still be in here: compare with the clock."""

    cooldowns: Mapping[AccountName, Cooldown] = field(default_factory=dict)
    breakers: Mapping[str, Breaker] = field(default_factory=dict)
    refused: frozenset[AccountName] = frozenset()
    pauses: Mapping[tuple[str, str], Pause] = field(default_factory=dict)  # by (scope, name)
    lacking: Mapping[str, float] = field(default_factory=dict)
    """Base URLs without an endpoint for Responses, and URLs of other endpoints that are missing; until when (monotonic
    clock of this host) that is believed."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How much there is, for the administration; expired entries not counted, as far as the sweep has come."""

    pins: int = 0
    artefacts: int = 0


class State(Protocol):
    """What a worker asks of it on the way of a request. Nothing here waits for the network, and nothing raises."""

    @property
    def reason(self) -> str:
        """Why the workers do not share their state at the moment; empty when they do (or never were to)."""

    def standing(self) -> Standing:
        """Cooldowns, breakers, refused keys, pauses and missing endpoints, as every worker sees them. Costs one
        look-up."""

    def pin(self, slot: bytes) -> Pin | None:
        """The live pin of a conversation."""

    def glance(self, slot: bytes) -> tuple[Standing, Pin | None, int]:
        """`standing` and `pin` in one look-up, for the way of a request, and when the pin's life ends (Unix
        milliseconds; 0 where there is none)."""

    def set_pin(self, slot: bytes, pin: Pin, ttl_s: float) -> None:
        """Write a pin, new or moved, or extend the one that is there."""

    def refresh_pin(self, slot: bytes, ttl_s: float) -> None:
        """The conversation goes on: its pin lives for another `ttl_s`. Cheap while little of it has passed."""

    def cool(self, account: AccountName, wait_s: float, *, is_told: bool, is_quota: bool) -> None:
        """The account rests for `wait_s` from now; a cooldown is extended, never shortened. A told wait outranks a
        guess: a guess never replaces one."""

    def failed(self, provider: str) -> None:
        """A transport failure of `provider`; enough of them in a row open its breaker."""

    def served(self, provider: str) -> None:
        """`provider` answered: its breaker closes. Costs nothing where there is none."""

    def probe(self, provider: str) -> bool:
        """Whether this request may try a provider whose breaker was open and whose time is up. One at a time may."""

    def release(self, provider: str) -> None:
        """A request that tried `provider` ended without saying anything of it: a probe, if it was one, is free again.
        Costs nothing where there is none."""

    def refuse(self, account: AccountName) -> None:
        """The provider refused this account's key; it is not used again until the configuration is reloaded."""

    def lack(self, url: str, for_s: float) -> None:
        """What is at this base URL has no endpoint for Responses, or at another URL no endpoint at all; nobody asks
        for it for so long (SPEC 6.1)."""

    def admit(self, name: str, per_minute: int, per_day: int) -> float:
        """Count one request against the limits of `name` (0: no limit), and return 0; or count nothing and return the
        seconds until one is allowed again."""

    def remember(self, marks: Iterable[bytes], origin: Origin, ttl_s: float) -> None:
        """Remember who made these artefacts, each known by 16 bytes of its hash."""

    def claim(self, mark: bytes, origin: Origin, ttl_s: float) -> Origin | None:
        """Remember `origin` for a mark of which nobody is known, and return None; else who is known. Of several who
        claim one at the same time, one gets it and all others hear of that one."""

    def origins(self, marks: Sequence[bytes]) -> list[Origin | None]:
        """Who made each of these, None where nobody remembers."""

    def forget(self, mark: bytes, origin: Origin | None = None) -> bool:
        """Forget one artefact, with `origin` only while it is that one's. Whether it was remembered: of several who
        ask, one hears so."""

    def share(self, worker: str, busy: Mapping[str, int], samples: Mapping[str, Sequence[tuple[float, float]]]) -> None:
        """Tell the others how many requests of each target this worker has under way, and what it newly measured: per
        target "provider/model", (seconds to the first event, tokens per second) of finished streams."""

    def busy(self, besides: str) -> Mapping[str, int]:
        """Requests under way per target, in all workers but `besides`, as they last said (not older than 5 s)."""

    def measures(self) -> Mapping[str, tuple[float, float]]:
        """Per target the medians of what all workers measured lately: (seconds to the first event, tokens/s)."""

    def learn(self, sums: Mapping[tuple[str, str], tuple[float, float]]) -> None:
        """Add what a worker newly learned of densities: by (target, client), (bytes of text, tokens)."""

    def learned(self) -> Mapping[tuple[str, str], tuple[float, float]]:
        """What all workers learned of densities lately; it may be some seconds old."""

    def look(self) -> None:
        """Called each second, never on the way of a request: what is broken is tried again, what is due is tidied."""

    def close(self) -> None: ...


class Administered(State, Protocol):
    """What the administration may do besides. Each returns how many entries it touched."""

    def clear_cooldowns(self, provider: str | None = None) -> int:
        """Forget cooldowns and breakers, of one provider or of all; then missing endpoints, too."""

    def clear_pins(self, provider: str | None = None) -> int:
        """Forget pins: all, or those to one provider."""

    def clear_refused(self) -> int:
        """Use refused keys again (the configuration was reloaded)."""

    def pause(self, pause: Pause) -> None: ...

    def resume(self, scope: str, name: str) -> bool:
        """Whether there was such a pause."""

    def counts(self) -> Counts: ...

    def is_crowded(self) -> bool:
        """Whether a sweep is due before its hour, because room runs short. Cheap; ask it every few seconds."""

    def sweep(self) -> int:
        """Remove what has expired; bounded transactions, so that nobody waits long. Called hourly, and when crowded:
        then what would expire first goes too."""
