"""State in LMDB, shared by every process of a host that opens the same directory.

Theory of operation. Five databases:

- `standing`: cooldowns, breakers, refused keys, pauses, missing endpoints, and a generation that every change of these
  raises in the same transaction. They are few, so a process keeps all of them decoded, and reads them again when the
  generation is another one. That is one look-up a request, and a change is seen by whoever asks next, in any process.
- `pins` and `artefacts`: by 16 bytes of a hash.
- `counters`: by the hash of a name.
- `measures`: two records of each worker, what it has under way and what it measured, and nobody writes another's; and
  one of each target and client, to which everybody adds: how dense its text is.

What must not outlive the gateway carries the boot id of its run, and is kept by the monotonic clock, which all
processes of a host share; the rest goes by the wall clock. What has expired is as good as absent when it is read, and
is removed by `sweep`.

Rules and clocks are those of `rules` and `measures`; here is only where things are kept. A write is one transaction,
and what it decides on is read inside it. Errors go to the caller, as lmdb.Error or OSError: `shared.py` is there to
take them. Use it from one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import lmdb

from arbiter import clock
from arbiter.state import densities, environment, measures, records, rules
from arbiter.state.base import AccountName, Breaker, Cooldown, Counts, Origin, Pause, Pin, Standing
from arbiter.state.records import encode
from arbiter.state.removal import remove, soonest

MAP_BYTES = 256 << 20
# A map that is full to the last page cannot even be deleted from: deletes need pages too. So nothing grows above this
# share of it, and long before that a sweep removes what would expire first.
BOUND = 0.85
CROWDED = 0.7
CHECK_EVERY_WRITES = 64
# Keys are hashes, so what goes is spread over all pages; only when most of a page goes LMDB merges it with another.
KEPT_WHEN_CROWDED = 1 / 4

TAKEN_OVER_AT_ONCE = 64

Transaction: TypeAlias = "lmdb.Transaction[bytes]"


class LmdbState:
    """One process's view of the shared state.

    Units: `map_bytes` bounds the file.
    Errors: lmdb.Error, OSError, here and in every method.
    """

    reason = ""

    def __init__(
        self,
        path: Path,
        boot: str,
        *,
        map_bytes: int = MAP_BYTES,
        monotonic: Callable[[], float] = clock.monotonic,
        now_ms: Callable[[], int] = clock.now_ms,
    ) -> None:
        self._boot = boot
        self._monotonic = monotonic
        self._now_ms = now_ms
        self._map_bytes = map_bytes
        self._last_standing = Standing()
        self._generation: bytes | None = b"none read yet"
        self._is_closed = False
        self._is_full = False
        self._writes_to_check = 0
        self._own_samples: dict[str, dict[str, measures.Measured]] = {}
        self._said: dict[str, tuple[float, dict[str, int]]] = {}
        self._busy: dict[str, tuple[float, Mapping[str, int]]] = {}
        self._medians: dict[str, tuple[float, float]] = {}
        self._medians_due = 0.0
        self._learned: Mapping[tuple[str, str], tuple[float, float]] = {}
        self._learned_due = 0.0
        self._env = environment.open_shared(path, map_bytes)
        try:
            self._standing = self._env.open_db(b"standing")
            self._pins = self._env.open_db(b"pins")
            self._artefacts = self._env.open_db(b"artefacts")
            self._counters = self._env.open_db(b"counters")
            self._measures = self._env.open_db(b"measures")
            self.file = _identity(path)
        except BaseException:
            self._env.close()
            raise

    # --- what every request needs to know -----------------------------------------------------------------------------

    @property
    def last_standing(self) -> Standing:
        """As this process last read it; costs nothing."""
        return self._last_standing

    def standing(self) -> Standing:
        with self._env.read() as txn:
            generation = txn.get(records.GENERATION, db=self._standing)
            if generation != self._generation:
                self._last_standing = self._read_standing(txn)
                self._generation = generation
        return self._last_standing

    def _read_standing(self, txn: Transaction) -> Standing:
        cooldowns: dict[AccountName, Cooldown] = {}
        breakers: dict[str, Breaker] = {}
        refused: set[AccountName] = set()
        pauses: dict[tuple[str, str], Pause] = {}
        lacking: dict[str, float] = {}
        boot = self._boot
        with txn.cursor(self._standing) as cursor:
            for key, raw in cursor:
                kind = key[:1]
                if kind == records.COOLDOWN:
                    if (cooldown := records.read_cooldown(raw)) and cooldown.boot == boot:
                        cooldowns[cooldown.account] = cooldown.cooldown
                elif kind == records.BREAKER:
                    if (breaker := records.read_breaker(raw)) and breaker.boot == boot:
                        breakers[breaker.provider] = breaker.breaker
                elif kind == records.REFUSED:
                    if (refusal := records.read_refused(raw)) and refusal.boot == boot:
                        refused.add(refusal.account)
                elif kind == records.LACK:
                    if (lack := records.read_lack(raw)) and lack.boot == boot:
                        lacking[lack.url] = lack.until
                elif kind == records.PAUSE and (pause := records.read_pause(raw)):
                    pauses[pause.scope, pause.name] = pause
        return Standing(cooldowns, breakers, frozenset(refused), pauses, lacking)

    def _put_standing(self, txn: Transaction, key: bytes, record: object) -> None:
        txn.put(key, encode(record), db=self._standing)
        self._raise_generation(txn)

    def _raise_generation(self, txn: Transaction) -> None:
        generation = int.from_bytes(txn.get(records.GENERATION, db=self._standing) or b"", "big")
        txn.put(records.GENERATION, (generation + 1).to_bytes(8, "big"), db=self._standing)

    def cool(self, account: AccountName, wait_s: float, *, is_told: bool, is_quota: bool) -> None:
        key = records.key(records.COOLDOWN, *account)
        with self._env.begin() as txn:
            old = records.read_cooldown(txn.get(key, db=self._standing))
            known = old.cooldown if old is not None and old.boot == self._boot else None
            cooldown = rules.cooled(known, self._monotonic(), wait_s, is_told, is_quota)
            if cooldown is not None:
                self._put_standing(txn, key, records.CooldownRecord(self._boot, account, cooldown))

    def failed(self, provider: str) -> None:
        with self._env.begin() as txn:
            breaker = rules.failed(self._breaker(txn, provider), self._monotonic())
            self._put_breaker(txn, provider, breaker)

    def served(self, provider: str) -> None:
        if provider in self._last_standing.breakers:
            with self._env.begin() as txn:
                if txn.delete(records.key(records.BREAKER, provider), db=self._standing):
                    self._raise_generation(txn)

    def probe(self, provider: str) -> bool:
        # Whoever may not learns it from a look; only who may has to write.
        may, lease = rules.probed(self.standing().breakers.get(provider), self._monotonic())
        if lease is None:
            return may
        with self._env.begin() as txn:
            may, lease = rules.probed(self._breaker(txn, provider), self._monotonic())
            self._put_breaker(txn, provider, lease)
            return may

    def release(self, provider: str) -> None:
        if rules.released(self.standing().breakers.get(provider)) is not None:
            with self._env.begin() as txn:
                self._put_breaker(txn, provider, rules.released(self._breaker(txn, provider)))

    def _breaker(self, txn: Transaction, provider: str) -> Breaker | None:
        record = records.read_breaker(txn.get(records.key(records.BREAKER, provider), db=self._standing))
        return record.breaker if record is not None and record.boot == self._boot else None

    def _put_breaker(self, txn: Transaction, provider: str, breaker: Breaker | None) -> None:
        if breaker is not None:
            record = records.BreakerRecord(self._boot, provider, breaker)
            self._put_standing(txn, records.key(records.BREAKER, provider), record)

    def refuse(self, account: AccountName) -> None:
        if account not in self.standing().refused:
            with self._env.begin() as txn:
                record = records.RefusedRecord(self._boot, account)
                self._put_standing(txn, records.key(records.REFUSED, *account), record)

    def lack(self, url: str, for_s: float) -> None:
        record = records.LackRecord(self._boot, url, self._monotonic() + for_s)
        with self._env.begin() as txn:
            self._put_standing(txn, records.key(records.LACK, url), record)

    # --- conversations ------------------------------------------------------------------------------------------------

    def pin(self, slot: bytes) -> Pin | None:
        with self._env.read() as txn:
            raw = txn.get(slot, db=self._pins)
        return records.read_pin(raw, self._now_ms())

    def glance(self, slot: bytes) -> tuple[Standing, Pin | None, int]:
        with self._env.read() as txn:
            generation = txn.get(records.GENERATION, None, self._standing)
            if generation != self._generation:
                self._last_standing = self._read_standing(txn)
                self._generation = generation
            raw = txn.get(slot, None, self._pins)
        if raw is None:
            return self._last_standing, None, 0
        pin, expires_ms = records.read_dated_pin(raw, self._now_ms())
        return self._last_standing, pin, expires_ms

    def set_pin(self, slot: bytes, pin: Pin, ttl_s: float) -> None:
        self._check_room()
        raw = records.encode_dated(self._now_ms() + round(ttl_s * 1000), pin)
        with self._env.begin() as txn:
            txn.put(slot, raw, db=self._pins)

    def refresh_pin(self, slot: bytes, ttl_s: float) -> None:
        with self._env.read() as txn:
            raw = txn.get(slot, db=self._pins)
        if not self._is_due(raw, ttl_s):
            return
        with self._env.begin() as txn:
            # Read again: another process may have moved it in the meantime, or forgotten it.
            now_ms = self._now_ms()
            pin = records.read_pin(txn.get(slot, db=self._pins), now_ms)
            if pin is not None:
                txn.put(slot, records.encode_dated(now_ms + round(ttl_s * 1000), pin), db=self._pins)

    def _is_due(self, raw: bytes | None, ttl_s: float) -> bool:
        expires_ms, now_ms = records.read_expiry(raw), self._now_ms()
        return expires_ms is not None and expires_ms > now_ms and rules.is_due(expires_ms, now_ms, ttl_s)

    def remember(self, marks: Iterable[bytes], origin: Origin, ttl_s: float) -> None:
        now_ms = self._now_ms()
        with self._env.read() as txn:
            due = [mark for mark in marks if self._is_news(txn.get(mark, db=self._artefacts), origin, ttl_s, now_ms)]
        if due:
            self._check_room()
            raw = records.encode_dated(now_ms + round(ttl_s * 1000), origin)
            with self._env.begin() as txn:
                for mark in due:
                    txn.put(mark, raw, db=self._artefacts)

    def claim(self, mark: bytes, origin: Origin, ttl_s: float) -> Origin | None:
        self._check_room()
        now_ms = self._now_ms()
        with self._env.begin() as txn:  # one at a time writes, of all processes
            known = records.read_origin(txn.get(mark, db=self._artefacts), now_ms)
            if known is None:
                txn.put(mark, records.encode_dated(now_ms + round(ttl_s * 1000), origin), db=self._artefacts)
        return known

    def _is_news(self, raw: bytes | None, origin: Origin, ttl_s: float, now_ms: int) -> bool:
        """A history comes again with each turn, and most of what is in it is known by then."""
        expires_ms = records.read_expiry(raw)
        if expires_ms is None or rules.is_due(expires_ms, now_ms, ttl_s):
            return True
        return records.read_origin(raw, now_ms) != origin

    def origins(self, marks: Sequence[bytes]) -> list[Origin | None]:
        now_ms = self._now_ms()
        with self._env.read() as txn:
            found = [txn.get(mark, db=self._artefacts) for mark in marks]
        return [records.read_origin(raw, now_ms) for raw in found]

    def forget(self, mark: bytes, origin: Origin | None = None) -> bool:
        if self.origins([mark]) == [None]:
            return False
        with self._env.begin() as txn:
            if origin is not None and records.read_origin(txn.get(mark, db=self._artefacts), self._now_ms()) != origin:
                return False
            return bool(txn.delete(mark, db=self._artefacts))

    # --- counters and measures ----------------------------------------------------------------------------------------

    def admit(self, name: str, per_minute: int, per_day: int) -> float:
        if not per_minute and not per_day:
            return 0.0
        key = records.key(b"", name)
        with self._env.begin() as txn:
            old = records.read_count(txn.get(key, db=self._counters))
            wait_s, count = rules.counted(old, self._now_ms(), per_minute, per_day)
            if count is not None:
                txn.put(key, encode(count), db=self._counters)
        return wait_s

    def share(self, worker: str, busy: Mapping[str, int], samples: Mapping[str, Sequence[tuple[float, float]]]) -> None:
        now = self._monotonic()
        said_at, said = self._said.get(worker, (now, {}))
        # An idle gateway says nothing, and writes nothing.
        is_news = said != busy or (bool(busy) and now - said_at >= measures.BUSY_AGAIN_S)
        if not is_news and not samples:
            return
        key = records.key(records.SAMPLES, worker)
        with self._env.begin() as txn:
            if is_news:
                record = records.BusyRecord(self._boot, now, dict(busy))
                txn.put(records.key(records.BUSY, worker), encode(record), db=self._measures)
            if samples:
                # At first this is what a predecessor of the same name left.
                own = self._own_samples.get(worker) or records.read_samples(txn.get(key, db=self._measures)) or {}
                own = measures.added(own, samples, self._now_ms())
                txn.put(key, encode(own), db=self._measures)
                self._own_samples[worker] = own
        if is_news:
            self._said[worker] = (now, dict(busy))

    def busy(self, besides: str) -> Mapping[str, int]:
        now = self._monotonic()
        due, total = self._busy.get(besides, (0.0, {}))
        if now >= due:
            own = records.key(records.BUSY, besides)
            others = (records.read_busy(raw) for key, raw in self._all(records.BUSY) if key != own)
            total = measures.total(
                other.busy
                for other in others
                if other is not None and other.boot == self._boot and now - other.at < measures.BUSY_S
            )
            self._busy[besides] = (now + measures.BUSY_READ_EVERY_S, total)
        return total

    def measures(self) -> Mapping[str, tuple[float, float]]:
        now = self._monotonic()
        if now >= self._medians_due:
            workers = (records.read_samples(raw) or {} for _, raw in self._all(records.SAMPLES))
            self._medians = measures.medians(workers, self._now_ms())
            self._medians_due = now + measures.MEDIANS_EVERY_S
        return self._medians

    def learn(self, sums: Mapping[tuple[str, str], tuple[float, float]]) -> None:
        now_ms = self._now_ms()
        with self._env.begin() as txn:
            room = densities.MOST - int(txn.stat(self._measures)["entries"])
            for (target, client), new in sums.items():
                key = records.key(records.LEARNED, target, client)
                old = records.read_learned(txn.get(key, db=self._measures))
                if old is None:
                    if room <= 0:
                        continue
                    room -= 1
                added = densities.added(old.sums if old is not None else (0.0, 0.0), new)
                txn.put(key, encode(records.LearnedRecord(target, client, now_ms, added)), db=self._measures)

    def learned(self) -> Mapping[tuple[str, str], tuple[float, float]]:
        now = self._monotonic()
        if now >= self._learned_due:
            self._learned_due = now + densities.READ_EVERY_S
            since_ms = self._now_ms() - densities.KEPT_MS
            found = (records.read_learned(raw) for _, raw in self._all(records.LEARNED))
            self._learned = {(one.target, one.client): one.sums for one in found if one and one.at_ms > since_ms}
        return self._learned

    def _all(self, kind: bytes) -> list[tuple[bytes, bytes]]:
        """Every record of a kind."""
        found = []
        with self._env.read() as txn, txn.cursor(self._measures) as cursor:
            if cursor.set_range(kind):
                for key, raw in cursor:
                    if key[:1] != kind:
                        break
                    found.append((key, raw))
        return found

    # --- how it is ----------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Nothing to do here; see `is_in_place` and `fullness`."""

    def is_in_place(self) -> bool:
        """Whether the file we have open is still the one at its path; False once somebody moved it aside."""
        return _identity(self._env.path) == self.file

    def fullness(self) -> float:
        """The share of the map that is in use."""
        used = self._env.used_bytes(self._standing, self._pins, self._artefacts, self._counters, self._measures)
        return used / self._map_bytes

    def _check_room(self) -> None:
        """Before anything that grows. Errors: lmdb.MapFullError."""
        self._writes_to_check -= 1
        if self._writes_to_check <= 0:
            self._writes_to_check = CHECK_EVERY_WRITES
            self._is_full = self.fullness() > BOUND
        if self._is_full:
            raise lmdb.MapFullError(f"it is full ({BOUND:.0%} of {self._map_bytes} bytes)")

    def try_write(self) -> None:
        """Find out whether it can be written, and has room. Errors: lmdb.Error."""
        self._writes_to_check = 0
        self._check_room()
        with self._env.begin() as txn:
            txn.put(records.TRIAL, encode(self._now_ms()), db=self._standing)

    def take_over(
        self, pins: Mapping[bytes, records.Dated[Pin]], artefacts: Mapping[bytes, records.Dated[Origin]]
    ) -> None:
        """Write what was kept elsewhere in the meantime, with the end of life that each has."""
        many: list[tuple[Any, bytes, records.Dated[Any]]] = []
        many += [(self._pins, slot, pin) for slot, pin in pins.items()]
        many += [(self._artefacts, mark, artefact) for mark, artefact in artefacts.items()]
        now_ms = self._now_ms()
        for start in range(0, len(many), TAKEN_OVER_AT_ONCE):
            self._check_room()
            with self._env.begin() as txn:
                for database, key, record in many[start : start + TAKEN_OVER_AT_ONCE]:
                    if record.expires_ms > now_ms:
                        txn.put(key, records.encode_dated(*record), db=database)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._env.close()

    # --- what the administration does ---------------------------------------------------------------------------------

    def clear_cooldowns(self, provider: str | None = None) -> int:
        def is_meant(key: bytes, raw: bytes) -> bool:
            if key[:1] == records.COOLDOWN:
                cooldown = records.read_cooldown(raw)
                return provider is None or (cooldown is not None and cooldown.account[0] == provider)
            if key[:1] == records.BREAKER:
                breaker = records.read_breaker(raw)
                return provider is None or (breaker is not None and breaker.provider == provider)
            return key[:1] == records.LACK and provider is None

        return self._clear_standing(is_meant)

    def clear_refused(self) -> int:
        return self._clear_standing(lambda key, raw: key[:1] == records.REFUSED)

    def _clear_standing(self, is_meant: Callable[[bytes, bytes], bool]) -> int:
        """One transaction: it is few, and half of it cleared would be seen."""
        with self._env.begin() as txn:
            with txn.cursor(self._standing) as cursor:
                keys = [key for key, raw in cursor if is_meant(key, raw)]
            for key in keys:
                txn.delete(key, db=self._standing)
            if keys:
                self._raise_generation(txn)
        return len(keys)

    def clear_pins(self, provider: str | None = None) -> int:
        if provider is None:
            with self._env.begin() as txn:
                number = int(txn.stat(self._pins)["entries"])
                txn.drop(self._pins, delete=False)
            return number

        def is_meant(key: bytes, raw: bytes) -> bool:
            pin = records.read_pin(raw, 0)
            return pin is not None and pin.provider == provider

        return remove(self._env, self._pins, is_meant)

    def pause(self, pause: Pause) -> None:
        with self._env.begin() as txn:
            self._put_standing(txn, records.key(records.PAUSE, pause.scope, pause.name), pause)

    def resume(self, scope: str, name: str) -> bool:
        with self._env.begin() as txn:
            was_paused = txn.delete(records.key(records.PAUSE, scope, name), db=self._standing)
            if was_paused:
                self._raise_generation(txn)
        return bool(was_paused)

    def counts(self) -> Counts:
        with self._env.read() as txn:
            return Counts(txn.stat(self._pins)["entries"], txn.stat(self._artefacts)["entries"])

    def is_crowded(self) -> bool:
        return self.fullness() > CROWDED

    def sweep(self) -> int:
        removed = self._clear_standing(self._is_over_standing)
        removed += remove(self._env, self._measures, self._is_over_measure)
        removed += remove(self._env, self._counters, self._is_over_count)
        for database in (self._pins, self._artefacts):
            removed += self._remove_until(database, self._now_ms())
        if self.is_crowded():
            for database in (self._pins, self._artefacts):
                removed += self._remove_until(database, soonest(self._env, database, 1 - KEPT_WHEN_CROWDED))
        return removed

    def _remove_until(self, database: Any, end_ms: int) -> int:
        def is_over(key: bytes, raw: bytes) -> bool:
            expires_ms = records.read_expiry(raw)
            return records.is_ours(raw) and (expires_ms is None or expires_ms <= end_ms)

        return remove(self._env, database, is_over)

    def _is_over_standing(self, key: bytes, raw: bytes) -> bool:
        now = self._monotonic()
        if not records.is_ours(raw):
            return False
        if key[:1] == records.COOLDOWN:
            cooldown = records.read_cooldown(raw)
            return cooldown is None or cooldown.boot != self._boot or cooldown.cooldown.until <= now
        if key[:1] == records.BREAKER:
            breaker = records.read_breaker(raw)
            return breaker is None or breaker.boot != self._boot or rules.is_forgotten(breaker.breaker, now)
        if key[:1] == records.REFUSED:
            refused = records.read_refused(raw)
            return refused is None or refused.boot != self._boot
        if key[:1] == records.LACK:
            lack = records.read_lack(raw)
            return lack is None or lack.boot != self._boot or lack.until <= now
        return False

    def _is_over_measure(self, key: bytes, raw: bytes) -> bool:
        if not records.is_ours(raw):
            return False
        if key[:1] == records.BUSY:
            busy = records.read_busy(raw)
            return busy is None or busy.boot != self._boot or busy.at <= self._monotonic() - measures.BUSY_S
        if key[:1] == records.LEARNED:
            learned = records.read_learned(raw)
            return learned is None or learned.at_ms <= self._now_ms() - densities.KEPT_MS
        return not measures.added(records.read_samples(raw) or {}, {}, self._now_ms())

    def _is_over_count(self, key: bytes, raw: bytes) -> bool:
        count = records.read_count(raw)
        return records.is_ours(raw) and (count is None or count.day < self._now_ms() // rules.DAY_MS)


def _identity(path: Path) -> tuple[int, int]:
    stat = (path / "data.mdb").stat()
    return stat.st_dev, stat.st_ino
