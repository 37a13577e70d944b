"""Moves rows from the journal into the store, exactly once.

Theory of operation. One thread repeats one step. It reads up to `BATCH_ROWS` rows that follow the position, and
writes them to the store together with the new position, in one SQL transaction; then it deletes them from the
journal, a few per transaction, because workers wait for LMDB's one write lock on their event loop. Killed between the
two, it finds at its next start a position in the store that is ahead of the journal, and deletes without writing.

Where the store is well and a batch is not, because a stage fails on it or the store refuses what is in it, the batch is
moved in halves of halves, until what is wrong has cost the one row that it is about: that stage's work, or the row.

The same thread looks for processes that died with attempts open (`reaper`).

While the store is down nothing is lost and nothing is deleted: the journal grows, the state says so, and the step is
tried again after a pause that grows to `MAX_PAUSE_S`.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

import lmdb
import msgspec

from arbiter import clock
from arbiter.ledger import records
from arbiter.ledger.database import Change
from arbiter.ledger.journal import JournalFile
from arbiter.ledger.reaper import reap, workers
from arbiter.ledger.row import AttemptRow, RequestRow
from arbiter.ledger.seldom import Lasting, Seldom
from arbiter.ledger.store import Position, Store, StoreBusy, StoreDown, StoreRefused
from arbiter.log import Log
from arbiter.metrics import Metrics
from arbiter.state import process

BATCH_ROWS = 500
DELETE_ROWS = 64
BETWEEN_DELETES_S = 0.0003
PAUSE_S = 0.1  # between two looks at an empty journal; a batch is never older than 250 ms
MAX_PAUSE_S = 2.0  # shorter than workers believe an old beat
LOCKED_S = 5.0  # for so long somebody else may write to the store before that is told: a slow disk takes its time
REAP_EVERY_S = 1.0
BEAT_EVERY_S = 1.0
LOOK_EVERY_S = 5.0  # at a store that nothing is written to
STOP_WITHIN_S = 5.0
# Of batches with something wrong in them, in one step: enough to find two bad rows among 500. A stage that fails on all
# of them is not worth more.
SPLITS = 20
REFUSALS_IN_A_ROW = 16  # of one kind of row: more than that are not bad rows, but a bad table

log = logging.getLogger("arbiter.ledger")


class RecorderState(msgspec.Struct, kw_only=True):
    """What the recorder tells of itself. A snapshot: take it with `Recorder.state()`."""

    healthy: bool = True
    reason: str = ""
    depth: int = 0  # rows in the journal, not yet in the store
    open: int = 0  # attempts under way, and requests between two of them
    journal_bytes: int = 0
    journal_limit_bytes: int = 0
    workers: list[dict[str, int | str | bool]] = []
    recorded: int = 0  # rows stored since this process began
    interrupted: int = 0  # attempts completed on behalf of dead workers since then
    rejected: int = 0  # records that nobody could read, or the store refused, since then
    spoilt: int = 0  # rows stored without what a stage should have added, since then
    last_batch_ms: int | None = None


class Batch(msgspec.Struct):
    """Rows on their way into the store, in the journal's order, and what changes there with them."""

    requests: list[RequestRow]
    attempts: list[AttemptRow]
    also: list[Change] = []
    adopted: list[RequestRow] = []  # rows that were given a session by `also`, as they are since then


class Stage(Protocol):
    """Something that is worked out once an attempt is over, and stored with its row."""

    def take(self, batch: Batch, store: Store) -> None:
        """Fill in rows, and add to `also`. A batch may come again, when the store did not take it, and what is in
        `also` may be done again, when its transaction did not hold.

        Errors: StoreDown; nothing is lost then. Whatever else is raised is a bug, and costs the row its work.
        """

    def stored(self, batch: Batch) -> None:
        """The batch that `take` had last is in the store for good."""

    def forget(self) -> None:
        """The store failed: what was taken and not stored did not happen."""


class _Found(msgspec.Struct):
    """What was read of the journal, from its position on."""

    last: int  # sequence number
    taken: int = 0
    requests: list[RequestRow] = []
    attempts: list[AttemptRow] = []
    unreadable: list[tuple[int, Exception]] = []


class _Spoilt(Exception):
    """Something is wrong with these rows, or with what `blamed` made of them; nobody is where it is a row itself."""

    def __init__(self, blamed: tuple[Stage, ...], cause: Exception) -> None:
        super().__init__(str(cause))
        self.blamed = blamed
        self.cause = cause


class Recorder:
    """The journal's only reader. `start` runs it in a thread; tests call `step` themselves.

    `stages` see each batch in turn, before it is stored.
    """

    def __init__(
        self,
        state_dir: Path,
        limit_bytes: int,
        open_store: Callable[[], Store],
        stages: Sequence[Stage] = (),
        metrics: Metrics | None = None,
    ) -> None:
        self._stages = stages
        self._metrics = metrics or Metrics()
        self._state_dir = state_dir
        self._limit_bytes = limit_bytes
        self._open_store = open_store
        self._file: JournalFile | None = None
        self._store: Store | None = None
        self._position = 0
        self._deleted = 0  # as far as the journal was emptied
        self._untidy = ""  # why it cannot be
        self._reap_at = 0.0
        self._beat_at = 0.0
        self._look_at = 0.0
        self._state = RecorderState(journal_limit_bytes=limit_bytes)
        self._failures = 0
        self._failed_at = 0.0  # the first of them
        self._is_told = False  # that there are some
        self._splits = 0  # of batches, in this step
        self._refused = 0  # sequence number of the row that the store refused last
        self._refusals = {RequestRow: 0, AttemptRow: 0}  # given up since one was stored
        self._said: dict[str, Seldom] = {}
        self._unheard = Lasting(
            Log("arbiter.ledger"),
            "workers do not hear how the recorder is: the journal cannot be written",
            "workers hear how the recorder is again",
        )
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def state(self) -> RecorderState:
        """How it is going, from any thread."""
        state = msgspec.structs.replace(self._state)
        file = self._file
        if file is not None:
            try:
                with file.env.read() as txn:
                    state.depth = int(txn.stat(file.done)["entries"])
                    state.workers = [
                        {"pid": identity.pid, "key": bytes(key).decode(), "alive": process.is_alive(identity)}
                        for key, identity in workers(file, txn)
                    ]
                state.open = file.under_way()
                state.journal_bytes = file.used_bytes()
            except lmdb.Error as error:
                state.healthy, state.reason = False, f"the journal cannot be read: {error}"
        return state

    def start(self) -> None:
        """Begin, in a thread of its own."""
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Drain what is there once more, as far as the store allows within STOP_WITHIN_S, and close everything."""
        self._stopping = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(STOP_WITHIN_S + 2)
            if self._thread.is_alive():
                return  # stuck in the store; the process is about to end, and the journal has everything
        self.close()

    def close(self) -> None:
        """Let go of store and journal."""
        if self._store is not None:
            self._store.close()
            self._store = None
        if self._file is not None:
            self._file.close()
            self._file = None

    def step(self) -> int:
        """Complete what dead workers left, then move one batch. Returns how many rows were moved.

        Errors: StoreDown, lmdb.Error, OSError; nothing is lost then, and the next step tries again.
        """
        file = self._file
        if file is None:
            file = self._file = JournalFile(self._state_dir, self._limit_bytes)
        self._tidy(file)
        store = self._store
        if store is None:
            store = self._open_store()
            try:
                self._position = store.position(file.id)
            except BaseException:
                store.close()
                raise
            self._store = store
            self._tidy(file)
            self._look_at = 0.0
        self._splits = SPLITS
        moved = self._move(file, store, BATCH_ROWS, ())
        # With no row to store nobody would notice that none could be.
        if moved or clock.monotonic() >= self._look_at:
            if not moved:
                store.look()
            self._look_at = clock.monotonic() + LOOK_EVERY_S
        return moved

    # ------------------------------------------------------------------ inside

    def _run(self) -> None:
        stop_at: float | None = None
        while True:
            if self._stopping and stop_at is None:
                stop_at = clock.monotonic() + STOP_WITHIN_S
                self._reap_at = 0.0
            pause_s = self._attempt()
            if stop_at is not None and ((pause_s and not self._failures) or clock.monotonic() >= stop_at):
                return
            if pause_s:
                self._wake.wait(pause_s if stop_at is None else min(pause_s, 0.1))
                if stop_at is None:
                    self._wake.clear()

    def _attempt(self) -> float:
        """One step, its failure kept in the state. Returns how long to wait before the next one."""
        pause_s = self._try_step()
        if clock.monotonic() >= self._beat_at:
            self._beat()
        return pause_s

    def _beat(self) -> None:
        """Tell the workers how it is going; they answer for us at /health/ready."""
        self._beat_at = clock.monotonic() + BEAT_EVERY_S
        self._metrics.flush()
        if self._file is not None:
            try:
                self._file.beat(self._state.reason)
            except lmdb.Error as error:
                self._unheard.met(error)
            else:
                self._unheard.over()

    def _try_step(self) -> float:
        try:
            moved = self.step()
        except StoreDown as error:
            bearable_s = LOCKED_S if isinstance(error, StoreBusy) else 0.0
            return self._wait(f"the store takes no rows: {error}", None, bearable_s)
        except (lmdb.Error, OSError) as error:
            if isinstance(error, lmdb.PanicError) and self._file is not None:
                # LMDB takes no more until it is opened anew.
                with contextlib.suppress(lmdb.Error):
                    self._file.close()
                self._file = None
            return self._wait(f"the journal cannot be used: {error}", None)
        except Exception as error:  # the thread's own exit guard: rows are better tried again than left alone
            return self._wait(f"the recorder failed: {error!r}", error)
        self._failures = 0
        if self._is_told:
            self._is_told = False
            log.warning("rows are being stored again")
        if self._state.reason != self._untidy:
            self._state.healthy, self._state.reason = not self._untidy, self._untidy
            self._beat_at = 0.0
        return 0.0 if moved >= BATCH_ROWS else PAUSE_S

    def _wait(self, reason: str, bug: Exception | None, bearable_s: float = 0.0) -> float:
        """After a step that failed; for so long that is nothing to tell. Returns how long to wait for the next."""
        now_s = clock.monotonic()
        if not self._failures:
            self._failed_at = now_s
        self._failures += 1
        is_bearable = now_s - self._failed_at < bearable_s
        if not is_bearable and not self._is_told:
            self._is_told = True
            log.error("rows are not stored, they wait in the journal: %s", reason, exc_info=bug)
        if not is_bearable and reason != self._state.reason:
            self._state.healthy, self._state.reason = False, reason
            self._beat_at = 0.0
        self._forget()
        # A connection after an error is a question; a new one costs a millisecond.
        if self._store is not None:
            self._store.close()
            self._store = None
        return float(min(MAX_PAUSE_S, PAUSE_S * 2 ** min(self._failures, 8)))

    def _move(self, file: JournalFile, store: Store, limit: int, without: tuple[Stage, ...]) -> int:
        """Up to `limit` records from the journal into the store; returns how many. Nothing is asked of `without`.

        Where something is wrong with them, rather than with the store, they are moved in halves, so that it costs the
        one record that it is about. Errors: StoreDown, lmdb.Error.
        """
        found = self._read(file, limit)
        taken = found.taken
        if not taken:
            return 0
        stages = [stage for stage in self._stages if stage not in without]
        try:
            self._write(store, found, Position(file.id, found.last), stages)
        except _Spoilt as error:
            cause, blamed = error.cause, error.blamed
        else:
            self._has_moved(found)
            self._tidy(file)
            return taken
        self._forget()
        if taken > 1 and (self._splits or not blamed):
            self._splits = max(0, self._splits - 1)
            half = taken // 2
            return self._move(file, store, half, without) + self._move(file, store, taken - half, without)
        if blamed:
            self._say_spoilt(blamed, cause, taken)
            return self._move(file, store, taken, (*without, *blamed))
        self._reject(store, Position(file.id, found.last), found, cause)
        self._tidy(file)
        return taken

    def _write(self, store: Store, found: _Found, position: Position, stages: Sequence[Stage]) -> None:
        batch = Batch(found.requests, found.attempts)
        adds: list[Stage] = []
        for stage in stages:
            known = len(batch.also)
            try:
                stage.take(batch, store)
            except StoreDown as error:
                if isinstance(error, StoreRefused):
                    raise _Spoilt((stage,), error) from error
                raise
            except Exception as error:  # a bug in it must not keep every later row from the store
                raise _Spoilt((stage,), error) from error
            if len(batch.also) > known:
                adds.append(stage)
        try:
            store.write([*batch.requests, *batch.attempts], position, batch.also)
        except StoreRefused as error:
            raise _Spoilt(tuple(adds), error) from error
        self._position = position.sequence
        for stage in stages:
            try:
                stage.stored(batch)
            except Exception as error:  # the rows are stored; what it remembers of them is not worth them
                self._say_spoilt([stage], error, len(batch.requests) + len(batch.attempts))
        batch.also.clear()  # of these some know the batch: its rows would wait for the collector of cycles

    def _has_moved(self, found: _Found) -> None:
        for row in (*found.requests[:1], *found.attempts[:1]):
            self._refusals[type(row)] = 0
        self._state.recorded += len(found.requests) + len(found.attempts)
        self._state.rejected += len(found.unreadable)
        for sequence, error in found.unreadable:
            log.error("journal record %d is lost: %s", sequence, error)
        self._state.last_batch_ms = clock.now_ms()

    def _reject(self, store: Store, position: Position, found: _Found, error: Exception) -> None:
        """Give up one row that the store refuses, so that those behind it get their turn.

        Errors: StoreDown the first time, because a connection made anew may know better; and where so many are refused
        one after the other that it cannot be the rows.
        """
        kind = RequestRow if found.requests else AttemptRow
        if self._refused != found.last or self._refusals[kind] >= REFUSALS_IN_A_ROW:
            self._refused = found.last
            raise StoreDown(str(error)) from error
        store.write([], position)
        self._position = found.last
        self._refusals[kind] += 1
        self._state.rejected += 1
        log.error("journal record %d is lost, the store refuses it: %s", found.last, error)

    def _say_spoilt(self, stages: Iterable[Stage], error: Exception, rows: int) -> None:
        """Rows went without what these stages work out. Said once a minute for each."""
        for stage in stages:
            name = type(stage).__name__
            self._state.spoilt += rows
            self._metrics.count("arbiter_ledger_stage_failures_total", (name,), rows)
            if name not in self._said:
                self._said[name] = Seldom(
                    Log("arbiter.ledger"), f"rows are stored without what {name} would have added"
                )
            self._said[name].error(error)

    def _forget(self) -> None:
        """What the stages took and the store did not did not happen."""
        for stage in self._stages:
            try:
                stage.forget()
            except Exception as error:  # as everywhere: its bug, and not the ledger's end
                self._say_spoilt([stage], error, 0)

    def _read(self, file: JournalFile, limit: int) -> _Found:
        """Up to `limit` records after the position."""
        found = _Found(self._position)
        with file.env.read() as txn, txn.cursor(file.done) as cursor:
            if not cursor.set_range((self._position + 1).to_bytes(8, "big")):
                return found
            keys, values = zip(*itertools.islice(cursor, limit), strict=True)
        found.last, found.taken = int.from_bytes(keys[-1], "big"), len(keys)
        found.requests, found.attempts, unreadable = records.decode_rows(values)
        found.unreadable = [(int.from_bytes(keys[at], "big"), error) for at, error in unreadable]
        return found

    def _tidy(self, file: JournalFile) -> None:
        """Complete what dead workers left, and remove from the journal what is in the store.

        Where the journal cannot be written (its disk is full), what is in it finds its way into the store all the same.
        """
        try:
            if clock.monotonic() >= self._reap_at:
                found = reap(file)
                self._state.interrupted += found.attempts
                self._state.rejected += found.lost
                self._reap_at = clock.monotonic() + REAP_EVERY_S
            if self._deleted < self._position:
                self._delete(file, self._position)
                self._deleted = self._position
            self._untidy = ""
        except lmdb.PanicError:
            raise
        except lmdb.Error as error:
            if not self._untidy:
                log.error("the journal cannot be written: %s", error)
            self._untidy = f"the journal cannot be written: {error}"

    def _delete(self, file: JournalFile, last: int) -> None:
        """Remove everything up to `last`, DELETE_ROWS at a time."""
        more, key = True, last.to_bytes(8, "big")
        while more:
            with file.writing() as txn, txn.cursor(file.done) as cursor:
                left = DELETE_ROWS
                more = cursor.first()
                while more and left and cursor.key() <= key:
                    more = cursor.delete()
                    left -= 1
                more = more and not left
            if more:
                # LMDB's lock goes to whoever is awake: without a pause that is always us.
                time.sleep(BETWEEN_DELETES_S)
