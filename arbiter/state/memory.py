"""State of one process: for tests, for `storage.url: none`, and for as long as the shared one cannot be used.

It is bounded: of pins and artefacts the latest `KEPT` each are kept. Use it from one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from arbiter import clock
from arbiter.state import densities, measures, rules
from arbiter.state.base import AccountName, Breaker, Cooldown, Counts, Origin, Pause, Pin, Standing
from arbiter.state.records import Dated

KEPT = 20_000
_SWEEP_EVERY_S = 3600.0

_Value = TypeVar("_Value")


class Memory:
    """State in dictionaries. `reason` is free for whoever uses this in place of something better."""

    reason = ""

    def __init__(
        self, *, monotonic: Callable[[], float] = clock.monotonic, now_ms: Callable[[], int] = clock.now_ms
    ) -> None:
        self.pins: dict[bytes, Dated[Pin]] = {}
        self.artefacts: dict[bytes, Dated[Origin]] = {}
        self._monotonic = monotonic
        self._now_ms = now_ms
        self._cooldowns: dict[AccountName, Cooldown] = {}
        self._breakers: dict[str, Breaker] = {}
        self._refused: set[AccountName] = set()
        self._pauses: dict[tuple[str, str], Pause] = {}
        self._lacking: dict[str, float] = {}
        self._standing: Standing | None = None
        self._counts: dict[str, rules.Count] = {}
        self._busy: dict[str, tuple[float, dict[str, int]]] = {}
        self._samples: dict[str, dict[str, measures.Measured]] = {}
        self._medians: dict[str, tuple[float, float]] = {}
        self._medians_due = 0.0
        self._learned: dict[tuple[str, str], tuple[int, tuple[float, float]]] = {}  # when, and the sums
        self._sweep_due = monotonic() + _SWEEP_EVERY_S

    def adopt(self, standing: Standing) -> None:
        """Begin with what somebody else knew."""
        self._cooldowns = dict(standing.cooldowns)
        self._breakers = dict(standing.breakers)
        self._refused = set(standing.refused)
        self._pauses = dict(standing.pauses)
        self._lacking = dict(standing.lacking)
        self._standing = standing

    def adopt_pauses(self, pauses: Mapping[tuple[str, str], Pause]) -> None:
        """These are the pauses now."""
        self._pauses = dict(pauses)
        self._standing = None

    # --- what a request asks ------------------------------------------------------------------------------------------

    def standing(self) -> Standing:
        if self._standing is None:
            self._standing = Standing(
                dict(self._cooldowns),
                dict(self._breakers),
                frozenset(self._refused),
                dict(self._pauses),
                dict(self._lacking),
            )
        return self._standing

    def pin(self, slot: bytes) -> Pin | None:
        record = self.pins.get(slot)
        return record.value if record is not None and record.expires_ms > self._now_ms() else None

    def glance(self, slot: bytes) -> tuple[Standing, Pin | None, int]:
        pin = self.pin(slot)
        return self.standing(), pin, self.pins[slot].expires_ms if pin is not None else 0

    def set_pin(self, slot: bytes, pin: Pin, ttl_s: float) -> None:
        _keep(self.pins, slot, Dated(self._now_ms() + round(ttl_s * 1000), pin))

    def refresh_pin(self, slot: bytes, ttl_s: float) -> None:
        pin = self.pin(slot)
        if pin is not None and rules.is_due(self.pins[slot].expires_ms, self._now_ms(), ttl_s):
            self.set_pin(slot, pin, ttl_s)

    def cool(self, account: AccountName, wait_s: float, *, is_told: bool, is_quota: bool) -> None:
        cooldown = rules.cooled(self._cooldowns.get(account), self._monotonic(), wait_s, is_told, is_quota)
        if cooldown is not None:
            self._cooldowns[account] = cooldown
            self._standing = None

    def failed(self, provider: str) -> None:
        self._set_breaker(provider, rules.failed(self._breakers.get(provider), self._monotonic()))

    def served(self, provider: str) -> None:
        if self._breakers.pop(provider, None) is not None:
            self._standing = None

    def probe(self, provider: str) -> bool:
        may, breaker = rules.probed(self._breakers.get(provider), self._monotonic())
        self._set_breaker(provider, breaker)
        return may

    def release(self, provider: str) -> None:
        self._set_breaker(provider, rules.released(self._breakers.get(provider)))

    def _set_breaker(self, provider: str, breaker: Breaker | None) -> None:
        if breaker is not None:
            self._breakers[provider] = breaker
            self._standing = None

    def refuse(self, account: AccountName) -> None:
        if account not in self._refused:
            self._refused.add(account)
            self._standing = None

    def lack(self, url: str, for_s: float) -> None:
        self._lacking[url] = self._monotonic() + for_s
        self._standing = None

    def admit(self, name: str, per_minute: int, per_day: int) -> float:
        if not per_minute and not per_day:
            return 0.0
        wait_s, count = rules.counted(self._counts.get(name), self._now_ms(), per_minute, per_day)
        if count is not None:
            self._counts[name] = count
        return wait_s

    def remember(self, marks: Iterable[bytes], origin: Origin, ttl_s: float) -> None:
        record = Dated(self._now_ms() + round(ttl_s * 1000), origin)
        for mark in marks:
            _keep(self.artefacts, mark, record)

    def origins(self, marks: Sequence[bytes]) -> list[Origin | None]:
        now_ms = self._now_ms()
        records = map(self.artefacts.get, marks)
        return [record.value if record is not None and record.expires_ms > now_ms else None for record in records]

    def claim(self, mark: bytes, origin: Origin, ttl_s: float) -> Origin | None:
        (known,) = self.origins([mark])
        if known is None:
            self.remember([mark], origin, ttl_s)
        return known

    def forget(self, mark: bytes, origin: Origin | None = None) -> bool:
        record = self.artefacts.get(mark)
        if record is None or (origin is not None and record.value != origin):
            return False
        del self.artefacts[mark]
        return record.expires_ms > self._now_ms()

    def share(self, worker: str, busy: Mapping[str, int], samples: Mapping[str, Sequence[tuple[float, float]]]) -> None:
        self._busy[worker] = (self._monotonic(), dict(busy))
        if samples:
            self._samples[worker] = measures.added(self._samples.get(worker, {}), samples, self._now_ms())

    def busy(self, besides: str) -> Mapping[str, int]:
        since = self._monotonic() - measures.BUSY_S
        return measures.total(busy for worker, (at, busy) in self._busy.items() if worker != besides and at > since)

    def measures(self) -> Mapping[str, tuple[float, float]]:
        now = self._monotonic()
        if now >= self._medians_due:
            self._medians_due = now + measures.MEDIANS_EVERY_S
            self._medians = measures.medians(self._samples.values(), self._now_ms())
        return self._medians

    def learn(self, sums: Mapping[tuple[str, str], tuple[float, float]]) -> None:
        for pair, new in sums.items():
            if pair in self._learned or len(self._learned) < densities.MOST:
                _, old = self._learned.get(pair, (0, (0.0, 0.0)))
                self._learned[pair] = self._now_ms(), densities.added(old, new)

    def learned(self) -> Mapping[tuple[str, str], tuple[float, float]]:
        since_ms = self._now_ms() - densities.KEPT_MS
        return {pair: sums for pair, (at_ms, sums) in self._learned.items() if at_ms > since_ms}

    def look(self) -> None:
        if self._monotonic() >= self._sweep_due:
            self._sweep_due = self._monotonic() + _SWEEP_EVERY_S
            self.sweep()

    def close(self) -> None:
        """Nothing is open."""

    # --- what the administration does ---------------------------------------------------------------------------------

    def clear_cooldowns(self, provider: str | None = None) -> int:
        accounts = [account for account in self._cooldowns if provider in (None, account[0])]
        names = [name for name in self._breakers if provider in (None, name)]
        for account in accounts:
            del self._cooldowns[account]
        for name in names:
            del self._breakers[name]
        lacking = len(self._lacking) if provider is None else 0
        if lacking:
            self._lacking.clear()
        self._standing = None
        return len(accounts) + len(names) + lacking

    def clear_pins(self, provider: str | None = None) -> int:
        slots = [slot for slot, record in self.pins.items() if provider in (None, record.value.provider)]
        for slot in slots:
            del self.pins[slot]
        return len(slots)

    def clear_refused(self) -> int:
        number = len(self._refused)
        self._refused.clear()
        self._standing = None
        return number

    def pause(self, pause: Pause) -> None:
        self._pauses[pause.scope, pause.name] = pause
        self._standing = None

    def resume(self, scope: str, name: str) -> bool:
        self._standing = None
        return self._pauses.pop((scope, name), None) is not None

    def counts(self) -> Counts:
        return Counts(len(self.pins), len(self.artefacts))

    def is_crowded(self) -> bool:
        return False  # it bounds itself

    def sweep(self) -> int:
        now, now_ms = self._monotonic(), self._now_ms()
        before = self._size()
        self.pins = {slot: record for slot, record in self.pins.items() if record.expires_ms > now_ms}
        self.artefacts = {mark: record for mark, record in self.artefacts.items() if record.expires_ms > now_ms}
        self._counts = {name: count for name, count in self._counts.items() if count.day >= now_ms // rules.DAY_MS}
        self._busy = {worker: said for worker, said in self._busy.items() if said[0] > now - measures.BUSY_S}
        samples = {worker: measures.added(samples, {}, now_ms) for worker, samples in self._samples.items()}
        self._samples = {worker: live for worker, live in samples.items() if live}
        since_ms = now_ms - densities.KEPT_MS
        self._learned = {pair: learned for pair, learned in self._learned.items() if learned[0] > since_ms}
        self._cooldowns = {account: rest for account, rest in self._cooldowns.items() if rest.until > now}
        self._breakers = {name: it for name, it in self._breakers.items() if not rules.is_forgotten(it, now)}
        self._lacking = {url: until for url, until in self._lacking.items() if until > now}
        self._standing = None
        return before - self._size()

    def _size(self) -> int:
        size = len(self.pins) + len(self.artefacts) + len(self._counts) + len(self._busy) + len(self._samples)
        size += len(self._cooldowns) + len(self._breakers) + len(self._lacking)
        return size + len(self._learned)


def _keep(records: dict[bytes, Dated[_Value]], key: bytes, record: Dated[_Value]) -> None:
    """Put it last, and let the first go where there are too many."""
    records.pop(key, None)
    records[key] = record
    if len(records) > KEPT:
        del records[next(iter(records))]
