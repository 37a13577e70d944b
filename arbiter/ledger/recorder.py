"""Moves rows from the journal into the store, exactly once.

Theory of operation. One thread repeats one step. It reads up to `BATCH_ROWS` rows that follow the position, and
writes them to the store together with the new position, in one SQL transaction; then it deletes them from the
journal, a few per transaction, because workers wait for LMDB's one write lock on their event loop. Killed between the
two, it finds at its next start a position in the store that is ahead of the journal, and deletes without writing.

The same thread looks for processes that died with attempts open. Those attempts, and their requests, are completed as
`interrupted`, in one LMDB transaction with the removal of their open records: from there they take everybody's way.

While the store is down nothing is lost and nothing is deleted: the journal grows, the state says so, and the step is
tried again after a pause that grows to `MAX_PAUSE_S`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import lmdb
import msgspec

from arbiter import clock
from arbiter.ledger import records
from arbiter.ledger.database import Statement
from arbiter.ledger.journal import JournalFile
from arbiter.ledger.records import OpenRecord, Row
from arbiter.ledger.row import AttemptRow, RequestRow
from arbiter.ledger.store import Position, Readable, Store, StoreDown
from arbiter.state import process

BATCH_ROWS = 500
DELETE_ROWS = 64
PAUSE_S = 0.1  # between two looks at an empty journal; a batch is never older than 250 ms
MAX_PAUSE_S = 2.0  # shorter than workers believe an old beat
REAP_EVERY_S = 1.0
BEAT_EVERY_S = 1.0
STOP_WITHIN_S = 5.0
INTERRUPTED = "the gateway's process ended before this did"

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
    rejected: int = 0  # journal records nobody could read since then
    last_batch_ms: int | None = None


class Batch(msgspec.Struct):
    """Rows on their way into the store, in the journal's order, and what changes there with them."""

    requests: list[RequestRow]
    attempts: list[AttemptRow]
    also: list[Statement] = []


class Stage(Protocol):
    """Something that is worked out once an attempt is over, and stored with its row."""

    def take(self, batch: Batch, store: Readable) -> None:
        """Fill in rows, and add to `also`. A batch may come again, when the store did not take it.

        Errors: StoreDown; nothing is lost then.
        """

    def stored(self, batch: Batch) -> None:
        """The batch that `take` had last is in the store for good."""

    def forget(self) -> None:
        """The store failed: what was taken and not stored did not happen."""


class Recorder:
    """The journal's only reader. `start` runs it in a thread; tests call `step` themselves.

    `stages` see each batch in turn, before it is stored.
    """

    def __init__(
        self, state_dir: Path, limit_bytes: int, open_store: Callable[[], Store], stages: Sequence[Stage] = ()
    ) -> None:
        self._stages = stages
        self._state_dir = state_dir
        self._limit_bytes = limit_bytes
        self._open_store = open_store
        self._file: JournalFile | None = None
        self._store: Store | None = None
        self._position = 0
        self._reap_at = 0.0
        self._beat_at = 0.0
        self._state = RecorderState(journal_limit_bytes=limit_bytes)
        self._failures = 0
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
                    state.open = int(txn.stat(file.open)["entries"])
                    state.workers = [
                        {"pid": identity.pid, "key": bytes(key).decode(), "alive": process.is_alive(identity)}
                        for key, identity in _workers(file, txn)
                    ]
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
        if clock.monotonic() >= self._reap_at:
            self._reap(file)
            self._reap_at = clock.monotonic() + REAP_EVERY_S
        store = self._store
        if store is None:
            store = self._open_store()
            try:
                self._position = store.position(file.id)
            except BaseException:
                store.close()
                raise
            self._store = store
            self._delete(file, self._position)
        rows, last, taken = self._read(file)
        if not taken:
            return 0
        batch = Batch([], [])
        for row in rows:
            if isinstance(row, AttemptRow):
                batch.attempts.append(row)
            else:
                batch.requests.append(row)
        for stage in self._stages:
            stage.take(batch, store)
        store.write([*batch.requests, *batch.attempts], Position(file.id, last), batch.also)
        self._position = last
        for stage in self._stages:
            stage.stored(batch)
        self._state.recorded += len(rows)
        self._state.last_batch_ms = clock.now_ms()
        self._delete(file, last)
        return taken

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
        if self._file is not None:
            try:
                self._file.beat(self._state.reason)
            except lmdb.Error as error:
                log.warning("the journal cannot be written: %s", error)

    def _try_step(self) -> float:
        try:
            moved = self.step()
        except (StoreDown, lmdb.Error, OSError) as error:
            if not self._failures:
                log.error("rows cannot be stored, they wait in the journal: %s", error)
            self._failures += 1
            reason = f"the store takes no rows: {error}"
            if reason != self._state.reason:
                self._state.healthy, self._state.reason = False, reason
                self._beat_at = 0.0
            for stage in self._stages:
                stage.forget()
            # A connection after an error is a question; a new one costs a millisecond.
            if self._store is not None:
                self._store.close()
                self._store = None
            return float(min(MAX_PAUSE_S, PAUSE_S * 2 ** min(self._failures, 8)))
        if self._failures:
            self._failures = 0
            self._state.healthy, self._state.reason = True, ""
            self._beat_at = 0.0
            log.warning("rows are being stored again")
        return 0.0 if moved >= BATCH_ROWS else PAUSE_S

    def _read(self, file: JournalFile) -> tuple[list[Row], int, int]:
        """Up to BATCH_ROWS records after the position: their rows, the last sequence number, how many they were."""
        rows: list[Row] = []
        last, taken = self._position, 0
        with file.env.read() as txn, txn.cursor(file.done) as cursor:
            found = cursor.set_range((self._position + 1).to_bytes(8, "big"))
            while found and taken < BATCH_ROWS:
                last = int.from_bytes(cursor.key(), "big")
                taken += 1
                try:
                    rows.append(records.decode_row(cursor.value()))
                except records.Unreadable as error:
                    self._state.rejected += 1
                    log.error("journal record %d is lost: %s", last, error)
                found = cursor.next()
        return rows, last, taken

    def _delete(self, file: JournalFile, last: int) -> None:
        """Remove everything up to `last`, DELETE_ROWS at a time."""
        more = True
        while more:
            txn = file.env.begin()
            try:
                with txn.cursor(file.done) as cursor:
                    left = DELETE_ROWS
                    more = cursor.first()
                    while more and left and int.from_bytes(cursor.key(), "big") <= last:
                        more = cursor.delete()
                        left -= 1
                    more = more and not left
                txn.commit()
            except BaseException:
                txn.abort()
                raise

    def _reap(self, file: JournalFile) -> None:
        """Complete the open records of dead processes as `interrupted`, and forget those processes."""
        with file.env.read() as txn:
            dead = [key for key, identity in _workers(file, txn) if not process.is_alive(identity)]
        # Looked at only now: what they wrote last, a moment before they died, is to be seen.
        with file.env.read() as txn:
            alive = {key.decode() for key, _ in _workers(file, txn) if key not in dead}
            left = self._left_open(file, txn, alive)
        requests: dict[str, RequestRow] = {}
        for _, record in left:
            known = requests.get(record.request.id)
            if known is None or record.request.attempts > known.attempts:
                requests[record.request.id] = record.request
            if record.attempt is not None:
                newest = requests[record.request.id]
                newest.attempts = max(newest.attempts, record.attempt.number)
        for start in range(0, len(left), DELETE_ROWS):
            self._interrupt(file, left[start : start + DELETE_ROWS], requests)
        if dead:
            txn = file.env.begin()
            try:
                for key in dead:
                    txn.delete(key, db=file.workers)
                txn.commit()
            except BaseException:
                txn.abort()
                raise

    def _left_open(
        self, file: JournalFile, txn: lmdb.Transaction[bytes], alive: set[str]
    ) -> list[tuple[bytes, OpenRecord]]:
        left: list[tuple[bytes, OpenRecord]] = []
        with txn.cursor(file.open) as cursor:
            for key, value in cursor:
                try:
                    record = records.decode_open(value)
                except records.Unreadable as error:
                    log.error("open record %s cannot be read: %s", bytes(key).decode("utf-8", "replace"), error)
                    continue
                if record.worker not in alive:
                    left.append((bytes(key), record))
        return left

    def _interrupt(
        self, file: JournalFile, left: list[tuple[bytes, OpenRecord]], requests: dict[str, RequestRow]
    ) -> None:
        encoded: list[bytes] = []
        attempts = 0
        txn = file.env.begin()
        try:
            for key, record in left:
                if not txn.delete(key, db=file.open):
                    continue
                if record.attempt is not None:
                    attempts += 1
                    encoded.append(records.encode_row(_interrupted(record.attempt)))
                request = requests.pop(record.request.id, None)
                if request is not None:
                    encoded.append(records.encode_row(_interrupted(request)))
            file.append(txn, encoded)
            txn.commit()
        except BaseException:
            txn.abort()
            raise
        self._state.interrupted += attempts
        if attempts:
            log.warning("%d attempts of a process that died are recorded as interrupted", attempts)


def _interrupted(row: AttemptRow | RequestRow) -> AttemptRow | RequestRow:
    """The row of something whose process died: what was known when it began, and that nobody knows the rest."""
    row.outcome = "interrupted"
    row.message = INTERRUPTED
    row.status = row.finished_ms = row.total_us = None
    return row


def _workers(file: JournalFile, txn: lmdb.Transaction[bytes]) -> list[tuple[bytes, process.Identity]]:
    found = []
    with txn.cursor(file.workers) as cursor:
        for key, value in cursor:
            try:
                found.append((bytes(key), msgspec.msgpack.decode(value, type=process.Identity)))
            except (msgspec.DecodeError, ValueError):
                found.append((bytes(key), process.Identity(0, -1, "")))
    return found
