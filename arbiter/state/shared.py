"""The state that workers and control use: LMDB for as long as it works, this process's memory while it does not.

Theory of operation. Every question goes to one of the two. When LMDB fails (its map or the disk is full, the disk may
only be read, the file is damaged or gone, it never could be opened), this process goes on in a memory that begins
with the standing it last read; `reason` says why, and one line is logged. The question that met the failure is
answered from that memory: nobody who asks ever sees an error. From then on LMDB is left alone on the way of requests,
but for pins and artefacts, which can still be read where only writing failed.

`look`, once a second, tries again. When LMDB can be written, what the memory learned in the meantime is written over,
and the memory goes. `look` also notices that the supervisor moved a damaged file aside, and opens its successor.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import lmdb

from arbiter import clock
from arbiter.log import Log
from arbiter.state import environment
from arbiter.state.base import AccountName, Administered, Counts, Origin, Pause, Pin, Standing
from arbiter.state.lmdb_state import BOUND, CROWDED, MAP_BYTES, LmdbState
from arbiter.state.memory import Memory

_log = Log(__name__)

DIRECTORY = "state"
"""Below the state directory."""

TRY_EVERY_S = 1.0
# A disk that is all but full takes a little now and then: what fails soon after it worked is given more and more time.
_SOON_S = 10.0
_TRY_AT_LEAST_EVERY_S = 30.0
# The same trouble again within this time makes no other line.
_LOGGED_AGAIN_AFTER_S = 60.0
# A map this full would be so again with the next requests.
_ROOM_TO_RETURN = (CROWDED + BOUND) / 2

_BROKEN = (lmdb.Error, OSError)
# What was written before is whole, and can be read.
_ONLY_WRITING = (lmdb.MapFullError, lmdb.DiskError, lmdb.ReadonlyError)

_Answer = TypeVar("_Answer")


class Shared:
    """The state of one process among others. Use it from one thread; make it after the fork.

    `boot` names this run of the gateway, the same in all its processes. Nothing raises.
    """

    def __init__(
        self,
        state_dir: Path,
        boot: str,
        *,
        map_bytes: int = MAP_BYTES,
        monotonic: Callable[[], float] = clock.monotonic,
        now_ms: Callable[[], int] = clock.now_ms,
    ) -> None:
        self.reason = ""
        self.is_damaged = False  # what LMDB says of its file while `reason` is not empty
        self._monotonic = monotonic
        self._now_ms = now_ms
        self._boot = boot
        self._path = state_dir / DIRECTORY
        self._map_bytes = map_bytes
        self._lmdb: LmdbState | None = None
        self._left: LmdbState | None = None  # LMDB, where it can be read though not written
        self._memory = Memory(monotonic=monotonic, now_ms=now_ms)
        self._seed = Standing()  # what the memory began with,
        self._seed_file: object = None  # and which file that was read from
        self._try_at = 0.0
        self._wait_s = TRY_EVERY_S
        self._returned_at = -_SOON_S
        self._logged = ("", 0.0)
        self._is_logged = False
        self._in_use: Administered = self._memory
        try:
            self._in_use = self._lmdb = self._open()
        except _BROKEN as error:
            self._lose(error)

    def _open(self) -> LmdbState:
        return LmdbState(
            self._path, self._boot, map_bytes=self._map_bytes, monotonic=self._monotonic, now_ms=self._now_ms
        )

    # --- from one to the other, and back ------------------------------------------------------------------------------

    def _lose(self, error: Exception) -> Administered:
        """Go on in memory, which is returned."""
        known, self._left = self._lmdb, None
        if known is not None and isinstance(error, _ONLY_WRITING):
            self._left = known
        self._memory = Memory(monotonic=self._monotonic, now_ms=self._now_ms)
        self._seed, self._seed_file = (known.last_standing, known.file) if known is not None else (Standing(), None)
        self._memory.adopt(self._seed)
        self._in_use = self._memory
        now = self._monotonic()
        is_soon = now - self._returned_at < _SOON_S
        self._wait_s = min(2 * self._wait_s, _TRY_AT_LEAST_EVERY_S) if is_soon else TRY_EVERY_S
        self._try_at = now + self._wait_s
        self._blame(error)
        self._is_logged = self._logged[0] != self.reason or now - self._logged[1] >= _LOGGED_AGAIN_AFTER_S
        if self._is_logged:
            self._logged = (self.reason, now)
            _log.warn("the shared state cannot be used; this process goes on with its own", error=error)
        return self._memory

    def _blame(self, error: Exception) -> None:
        self.is_damaged = isinstance(error, environment.DAMAGE)
        self.reason = f"the workers do not share it: {error or type(error).__name__}"

    def look(self) -> None:
        if self._in_use is self._lmdb and not self._is_in_place():
            self._lose(FileNotFoundError("its file was moved aside or removed"))
            self._try_at = 0.0
        if self._in_use is self._memory:
            if self._monotonic() >= self._try_at:
                self._try_at = self._monotonic() + self._wait_s
                self._return()
            self._hear()
            self._memory.look()

    def _hear(self) -> None:
        """While LMDB can only be read: what an operator paused or resumed meanwhile; it may be a small write."""
        theirs = self._ask_left(lambda left: left.standing(), None) if self._left is not None else None
        if theirs is None:
            return
        ours, seed = self._memory.standing().pauses, self._seed.pauses
        pauses = {name: pause for name, pause in theirs.pauses.items() if name in ours or name not in seed}
        pauses |= {name: pause for name, pause in ours.items() if seed.get(name) != pause}
        if pauses != dict(ours):
            self._memory.adopt_pauses(pauses)
        self._seed = replace(self._seed, pauses=theirs.pauses)

    def _is_in_place(self) -> bool:
        try:
            return self._lmdb is not None and self._lmdb.is_in_place()
        except OSError:
            return False

    def _return(self) -> None:
        try:
            to = self._left if self._left is not None and self._is_in_place() else self._reopen()
            to.try_write()
            if to.fullness() > _ROOM_TO_RETURN:
                raise lmdb.MapFullError("it is nearly full")
            self._write_over(to)
        except _BROKEN as error:
            if isinstance(error, _ONLY_WRITING):
                self._left = self._lmdb
            self._blame(error)
            return
        self._in_use, self._left, self.reason, self.is_damaged = to, None, "", False
        self._memory = Memory(monotonic=self._monotonic, now_ms=self._now_ms)
        self._returned_at = self._monotonic()
        if self._is_logged:
            _log.info("the shared state is used again")

    def _reopen(self) -> LmdbState:
        if self._lmdb is not None:
            old, self._lmdb, self._left = self._lmdb, None, None
            with contextlib.suppress(*_BROKEN):  # it is broken, and may say so once more
                old.close()
        self._lmdb = self._open()
        if self._lmdb.file != self._seed_file:
            self._seed = Standing()  # to another file all that we know is news
        return self._lmdb

    def _write_over(self, to: LmdbState) -> None:
        """What the memory learned since it began, as far as it still counts."""
        now, learned, seed = self._monotonic(), self._memory.standing(), self._seed
        for account, rest in learned.cooldowns.items():
            if seed.cooldowns.get(account) != rest and rest.until > now:
                to.cool(account, rest.until - now, is_told=rest.is_told, is_quota=rest.is_quota)
        for url, until in learned.lacking.items():
            if seed.lacking.get(url) != until and until > now:
                to.lack(url, until - now)
        for account in learned.refused - seed.refused:
            to.refuse(account)
        for name, pause in learned.pauses.items():
            if seed.pauses.get(name) != pause:
                to.pause(pause)
        for name in seed.pauses.keys() - learned.pauses.keys():
            to.resume(*name)
        to.take_over(self._memory.pins, self._memory.artefacts)

    def _ask(self, question: Callable[[Administered], _Answer]) -> _Answer:
        try:
            return question(self._in_use)
        except _BROKEN as error:
            return question(self._lose(error))

    # --- what a request asks; the first ones are asked each time, and spelt out since closures cost -----------------

    def standing(self) -> Standing:
        try:
            return self._in_use.standing()
        except _BROKEN as error:
            return self._lose(error).standing()

    def pin(self, slot: bytes) -> Pin | None:
        try:
            found = self._in_use.pin(slot)
        except _BROKEN as error:
            found = self._lose(error).pin(slot)
        if found is None and self._left is not None:
            found = self._ask_left(lambda left: left.pin(slot), None)
        return found

    def glance(self, slot: bytes) -> tuple[Standing, Pin | None, int]:
        try:
            found = self._in_use.glance(slot)
        except _BROKEN as error:
            found = self._lose(error).glance(slot)
        if found[1] is None and self._left is not None:
            return found[0], self.pin(slot), 0
        return found

    def set_pin(self, slot: bytes, pin: Pin, ttl_s: float) -> None:
        try:
            self._in_use.set_pin(slot, pin, ttl_s)
        except _BROKEN as error:
            self._lose(error).set_pin(slot, pin, ttl_s)

    def refresh_pin(self, slot: bytes, ttl_s: float) -> None:
        try:
            self._in_use.refresh_pin(slot, ttl_s)
        except _BROKEN as error:
            self._lose(error)
        if self._left is not None and slot not in self._memory.pins and (pin := self.pin(slot)) is not None:
            self._memory.set_pin(slot, pin, ttl_s)

    def served(self, provider: str) -> None:
        try:
            self._in_use.served(provider)
        except _BROKEN as error:
            self._lose(error).served(provider)

    def cool(self, account: AccountName, wait_s: float, *, is_told: bool, is_quota: bool) -> None:
        self._ask(lambda state: state.cool(account, wait_s, is_told=is_told, is_quota=is_quota))

    def failed(self, provider: str) -> None:
        self._ask(lambda state: state.failed(provider))

    def probe(self, provider: str) -> bool:
        return self._ask(lambda state: state.probe(provider))

    def release(self, provider: str) -> None:
        self._ask(lambda state: state.release(provider))

    def refuse(self, account: AccountName) -> None:
        self._ask(lambda state: state.refuse(account))

    def lack(self, url: str, for_s: float) -> None:
        self._ask(lambda state: state.lack(url, for_s))

    def admit(self, name: str, per_minute: int, per_day: int) -> float:
        return self._ask(lambda state: state.admit(name, per_minute, per_day))

    def remember(self, marks: Iterable[bytes], origin: Origin, ttl_s: float) -> None:
        listed = list(marks)  # it may have to be gone through twice
        self._ask(lambda state: state.remember(listed, origin, ttl_s))

    def claim(self, mark: bytes, origin: Origin, ttl_s: float) -> Origin | None:
        (known,) = self.origins([mark])  # also where it is only known from before a failure
        return known or self._ask(lambda state: state.claim(mark, origin, ttl_s))

    def origins(self, marks: Sequence[bytes]) -> list[Origin | None]:
        found = self._ask(lambda state: state.origins(marks))
        if self._left is not None and None in found:
            nothing: list[Origin | None] = [None] * len(marks)
            kept = self._ask_left(lambda left: left.origins(marks), nothing)
            found = [own or other for own, other in zip(found, kept, strict=True)]
        return found

    def forget(self, mark: bytes, origin: Origin | None = None) -> bool:
        found = self._ask(lambda state: state.forget(mark, origin))
        return found or (self._left is not None and self._ask_left(lambda left: left.forget(mark, origin), False))

    def share(self, worker: str, busy: Mapping[str, int], samples: Mapping[str, Sequence[tuple[float, float]]]) -> None:
        self._ask(lambda state: state.share(worker, busy, samples))

    def busy(self, besides: str) -> Mapping[str, int]:
        return self._ask(lambda state: state.busy(besides))

    def measures(self) -> Mapping[str, tuple[float, float]]:
        return self._ask(lambda state: state.measures())

    def learn(self, sums: Mapping[tuple[str, str], tuple[float, float]]) -> None:
        self._ask(lambda state: state.learn(sums))

    def learned(self) -> Mapping[tuple[str, str], tuple[float, float]]:
        return self._ask(lambda state: state.learned())

    def _ask_left(self, question: Callable[[LmdbState], _Answer], nothing: _Answer) -> _Answer:
        try:
            return question(self._left) if self._left is not None else nothing
        except _BROKEN:
            self._left = None
            return nothing

    def close(self) -> None:
        if self._lmdb is not None:
            with contextlib.suppress(*_BROKEN):
                self._lmdb.close()

    # --- what the administration does ---------------------------------------------------------------------------------

    def clear_cooldowns(self, provider: str | None = None) -> int:
        return self._ask(lambda state: state.clear_cooldowns(provider))

    def clear_pins(self, provider: str | None = None) -> int:
        number = self._ask(lambda state: state.clear_pins(provider))
        # To remove may work where to add does not. Where it does not, nothing must come back from there.
        return number + self._ask_left(lambda left: left.clear_pins(provider), 0)

    def clear_refused(self) -> int:
        return self._ask(lambda state: state.clear_refused())

    def pause(self, pause: Pause) -> None:
        self._ask(lambda state: state.pause(pause))

    def resume(self, scope: str, name: str) -> bool:
        return self._ask(lambda state: state.resume(scope, name))

    def counts(self) -> Counts:
        return self._ask(lambda state: state.counts())

    def is_crowded(self) -> bool:
        if self._left is not None:
            return self._ask_left(lambda left: left.is_crowded(), False)
        return self._ask(lambda state: state.is_crowded())

    def sweep(self) -> int:
        """Also a map that is full is swept, though nothing else writes to it: that is how it gets room again."""
        left = self._left
        if left is None:
            return self._ask(lambda state: state.sweep())
        try:
            return left.sweep()
        except _BROKEN as error:
            self._blame(error)
            return 0
