"""The worker's end of the ledger: every attempt is opened here before it is sent, and completed here when it ends.

Theory of operation. Databases in one LMDB environment, shared by all workers and the recorder:

- `open`: id -> what is known of a request that has attempts behind it and none running (between two tries), and which
  process runs it. Attempts that run have their records in a file of their worker (`slots`), written before they are
  sent, so no attempt is ever unaccounted, whatever dies; what has no place there has its record here, under its id,
  written in a transaction of its own.
- `done`: a sequence number -> a completed row. Rows are collected for 50 ms or until there are 100, then written in
  one transaction that also says which open records are so completed. The number comes from a counter in the same
  transaction and never goes back, also when the recorder has emptied the database. A request that was refused before
  any attempt has no open record that could tell of it: its row is written with the loop's next turn.
- `workers`: process key -> its identity. Open records of a process that is gone become `interrupted` rows.
- `meta`: among others, for each process which of its slots' records its last transaction completed.

Nothing here waits for anything but LMDB's write lock, and nothing is raised. When LMDB cannot be written, rows wait
in memory up to `QUEUE_ROWS`, then they are counted in `dropped`. When the journal is at its bound, new requests go
unrecorded as a whole, and counted; those already opened are still completed (a completion replaces its open record,
so it takes no room), hence a request is in the books with all its attempts, or not at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import lmdb
import msgspec

from arbiter import clock
from arbiter.ledger import records, slots
from arbiter.ledger.row import AttemptRow, RequestRow
from arbiter.ledger.seldom import Lasting, Seldom
from arbiter.log import Log
from arbiter.state import environment, process

BATCH_ROWS = 100
BATCH_S = 0.050
QUEUE_ROWS = 10_000  # in memory; half of it is for what was sent upstream: who is refused asks again and again
RETRY_S = (0.05, 0.1, 0.25, 0.5, 1.0)
CHECK_EVERY_OPENS = 64
CHECK_EVERY_S = 0.05
# So far under the bound before new requests are recorded again: else each drained row would flip the state.
RELEASE = 0.95

SEQUENCE, JOURNAL_ID, RECORDER, COMPLETED = b"sequence", b"id", b"recorder", b"completed-"
# The recorder writes its state once a second; older than this, there is no recorder.
BEAT_LATE_MS = 5000

log = logging.getLogger("arbiter.ledger")


class Beat(msgspec.Struct, array_like=True, frozen=True):
    """What the recorder tells the workers of itself, through the journal."""

    at_ms: int
    reason: str  # why rows do not reach the store; empty when they do


class JournalFile:
    """The journal's environment and databases, as workers and the recorder open them.

    Units: `limit_bytes` bounds the pages really in use; the map is twice that, because LMDB runs out of map well
    before it is full of payload, and a delete needs room too.
    """

    def __init__(self, state_dir: Path, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.place = state_dir / "journal"
        self.env = environment.open_shared(self.place, max(2 * limit_bytes, 1 << 20))
        try:
            self.open = self.env.open_db(b"open")
            self.done = self.env.open_db(b"done")
            self.workers = self.env.open_db(b"workers")
            self.meta = self.env.open_db(b"meta")
            self.id = self._identify()
        except BaseException:
            self.env.close()
            raise

    def _identify(self) -> str:
        """The id this journal was born with: a store remembers its position per journal, not per path."""
        with self.writing() as txn:
            known = txn.get(JOURNAL_ID, db=self.meta)
            if known is None:
                known = os.urandom(8).hex().encode()
                txn.put(JOURNAL_ID, known, db=self.meta)
        return bytes(known).decode()

    @contextlib.contextmanager
    def writing(self) -> Iterator[lmdb.Transaction[bytes]]:
        """A write transaction: all that is done within, or nothing. For whoever is in no hurry."""
        txn = self.env.begin()
        try:
            yield txn
            txn.commit()
        except BaseException:
            txn.abort()
            raise

    def used_bytes(self) -> int:
        """What open and completed rows occupy now."""
        return self.env.used_bytes(self.open, self.done)

    def depth(self) -> int:
        """Completed rows the recorder has not stored yet."""
        with self.env.read() as txn:
            return int(txn.stat(self.done)["entries"])

    def under_way(self) -> int:
        """Attempts that run, and requests between two of them."""
        with self.env.read() as txn:
            found = int(txn.stat(self.open)["entries"])
        for path in slots.files(self.place).values():
            with contextlib.suppress(OSError):  # the reaper says so
                found += len(slots.left(path))
        return found

    def completed(self, txn: lmdb.Transaction[bytes], worker: str) -> set[int]:
        """Which of the records in a worker's slots are no longer open, whatever the slots say."""
        numbers = txn.get(COMPLETED + worker.encode(), db=self.meta) or b""
        return {int.from_bytes(numbers[at : at + 8], "little") for at in range(0, len(numbers), 8)}

    def beat(self, reason: str) -> None:
        """Tell whoever asks `recorder_reason` how the recorder is. Errors: lmdb.Error."""
        with self.writing() as txn:
            txn.put(RECORDER, msgspec.msgpack.encode(Beat(clock.now_ms(), reason)), db=self.meta)

    def recorder_reason(self) -> str:
        """Why rows do not reach the store, as the recorder last said; empty when they do."""
        with self.env.read() as txn:
            said = txn.get(RECORDER, db=self.meta)
        try:
            beat = msgspec.msgpack.decode(said, type=Beat) if said is not None else None
        except msgspec.DecodeError:
            beat = None
        if beat is None or clock.now_ms() - beat.at_ms > BEAT_LATE_MS:
            return f"nothing was heard of the recorder for over {BEAT_LATE_MS // 1000} s: rows wait in the journal"
        return beat.reason

    def append(self, txn: lmdb.Transaction[bytes], encoded: list[bytes]) -> None:
        """Put completed rows at the end of `done`, in order, within the caller's write transaction."""
        sequence = int.from_bytes(txn.get(SEQUENCE, db=self.meta) or b"", "big")
        last = sequence + len(encoded)
        keys = [number.to_bytes(8, "big") for number in range(sequence + 1, last + 1)]
        with txn.cursor(self.done) as cursor:
            cursor.putmulti(list(zip(keys, encoded, strict=True)), append=True)
        txn.put(SEQUENCE, last.to_bytes(8, "big"), db=self.meta)

    def close(self) -> None:
        self.env.close()


class NullJournal:
    """The journal of `storage.url: none`: takes everything, keeps nothing, is always well."""

    depth = 0
    dropped = 0
    healthy = True
    full = False
    reason = ""
    store_reason = ""

    def open(self, request: RequestRow, attempt: AttemptRow) -> None:
        """Nothing is kept."""

    def close(self, attempt: AttemptRow) -> None:
        """Nothing is kept."""

    def settle(self, request: RequestRow) -> None:
        """Nothing is kept."""

    def look(self) -> None:
        """Nothing can be wrong."""

    async def aclose(self, until_s: float = 0.0) -> None:
        """Nothing is open."""


class Journal:
    """One worker's pen. Create it in the process and on the loop that use it.

    `dropped` counts rows this worker could not keep; `full` says that new requests go unrecorded because the journal
    is at its bound; `healthy` and `reason` say whether, and why not, everything is being written down.
    """

    def __init__(self, state_dir: Path, worker: str, limit_bytes: int, loop: asyncio.AbstractEventLoop) -> None:
        self.worker = worker
        self.dropped = 0
        self.full = False
        self._fault = ""
        self._state_dir = state_dir
        self._limit_bytes = limit_bytes
        self._loop = loop
        self._identity = process.current()
        self._key = f"{self._identity.key}-{worker}"  # the name too: tests run two workers in one process
        self._file: JournalFile | None = None
        self._slots: slots.Slots | None = None
        self._last = 0  # number in the slots that were left
        self._at: dict[str, int] = {}  # attempt -> position of its open record
        self._unplaced: set[str] = set()  # attempts whose open records are in LMDB
        self._pending: list[records.Row] = []
        self._timer: asyncio.Handle | None = None
        self._is_urgent = False  # the timer is for the loop's next turn
        self._is_dropping = False  # so many rows wait that it was said
        self._failures = 0
        self._retry_at = 0.0
        self._opens = 0
        self._checked_at = 0.0
        self._live: dict[str, RequestRow] = {}  # requests with something in LMDB, until they are settled there
        self._parked: set[str] = set()  # those of them with a record under their own id
        self._refused: set[str] = set()  # requests that came while full: not recorded, counted
        self._closed = False
        self._taken_for_dead = Seldom(
            Log("arbiter.ledger"), "this worker was taken for dead, and what it had open for interrupted; it goes on"
        )
        self._slotless = Lasting(
            Log("arbiter.ledger"),
            "there is no room for a file of open records, they go into LMDB",
            "there is room for a file of open records again",
        )
        self._attach()

    @property
    def healthy(self) -> bool:
        """Whether every row handed over is safe in LMDB or on its way there."""
        return not (self._fault or self.full)

    @property
    def reason(self) -> str:
        """Why not; empty when healthy."""
        if self.full:
            return f"the journal is at its bound of {self._limit_bytes} bytes: new requests are not recorded"
        return self._fault

    @property
    def depth(self) -> int:
        """Rows waiting for the recorder: this worker's own in memory, and everybody's in LMDB."""
        waiting = len(self._pending)
        if self._file is not None:
            with contextlib.suppress(lmdb.Error):
                waiting += self._file.depth()
        return waiting

    @property
    def store_reason(self) -> str:
        """Why rows do not reach the store at the moment, for `/health/ready`; empty when they do. Costs one read."""
        if self._file is None:
            return self._fault
        try:
            return self._file.recorder_reason()
        except lmdb.Error as error:
            return f"the journal cannot be read: {error}"

    def open(self, request: RequestRow, attempt: AttemptRow) -> None:
        """Write down that `attempt` is about to be sent. Never raises.

        Once this returns, the attempt is in the books even if this process is killed; unless `healthy` is false, where
        it found no place in a slot.
        """
        request_id = request.id
        if self._refused and request_id in self._refused:
            return
        if self.full and request_id not in self._live and not self._has_room():
            self._refused.add(request_id)
            return
        self._live[request_id] = request
        record = records.encode_open(self._key, request, attempt)
        at = self._slots.put(record) if self._slots is not None else 0
        if at:
            self._at[attempt.id] = at
        else:
            self._open_in_lmdb(attempt.id, record)
        self._opens += 1
        if self._opens >= CHECK_EVERY_OPENS:
            self._check_room()

    def close(self, attempt: AttemptRow) -> None:
        """Hand over a finished attempt. Never waits, never raises."""
        if self._timer is not None and not self._refused and len(self._pending) < BATCH_ROWS - 1:
            self._pending.append(attempt)  # as nearly always: others wait already
            return
        if self._refused and attempt.request_id in self._refused:
            self.dropped += 1
            return
        self._put(attempt)

    def settle(self, request: RequestRow) -> None:
        """Hand over a finished request, after its attempts. Never waits, never raises."""
        was_open = request.id in self._live
        if was_open and self._timer is not None and not self._refused and len(self._pending) < BATCH_ROWS - 1:
            self._pending.append(request)
            return
        if self.full and not was_open and not self._has_room():
            self._refused.add(request.id)
        if self._refused and request.id in self._refused:
            self._refused.discard(request.id)
            self.dropped += 1
            return
        if not self._put(request, was_sent=was_open):
            self._live.pop(request.id, None)
        elif not was_open and self._timer is not None and not self._is_urgent and not self._failures:
            self._timer.cancel()
            self._timer, self._is_urgent = self._loop.call_soon(self.flush), True

    def look(self) -> None:
        """See whether what was wrong still is. Never raises.

        Called once a second: a worker that says it is not ready gets no requests, and would not learn it from them.
        """
        if self._closed:
            return
        if self._fault and clock.monotonic() >= self._retry_at:
            self._try_again()
        if self.full:
            self._check_room()
        if self._file is not None and not self._fault:
            self._stay_known(self._file)
            if self._slots is not None and self._slots.used:
                self._file.env.dirty = True  # they are flushed along with it
            elif self._slots is not None and self._slots.is_grown:
                self._leave_slots(self._file)
                self._take_slots(self._file)

    def flush(self) -> None:
        """Write what waits in memory to LMDB now, if LMDB lets us. Never raises."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._is_urgent = False
        if not self._pending:
            return
        file = self._file or self._attach()
        if file is not None:
            batch = self._pending[: 10 * BATCH_ROWS]
            try:
                self._write(file, batch)
            except lmdb.MapFullError as error:
                self._set_full(True)
                self._broken(error)
            except (lmdb.Error, OSError) as error:
                self._broken(error)
            else:
                del self._pending[: len(batch)]
                self._mended()
                self._check_room()
        if self._pending and not self._closed:
            self._timer = self._loop.call_later(RETRY_S[min(self._failures, len(RETRY_S) - 1)], self.flush)

    async def aclose(self, until_s: float = 0.0) -> None:
        """Write what is left and let go of LMDB; where that cannot be written, try until `until_s` of the monotonic
        clock. Rows that come later are counted as dropped."""
        self._closed = True
        before = -1
        while self._pending and (len(self._pending) != before or clock.monotonic() < until_s):
            if len(self._pending) == before:
                await asyncio.sleep(RETRY_S[-2])
            before = len(self._pending)
            self.flush()
        if self._pending:
            log.error("%d rows could not be written before the end, and are lost", len(self._pending))
            self.dropped += len(self._pending)
            self._pending.clear()
        if self._file is not None:
            if not self._live:
                self._sign_off(self._file)
            self._leave_slots(self._file)
            self._file.close()
            self._file = None

    # ------------------------------------------------------------------ inside

    def _put(self, row: records.Row, *, was_sent: bool = True) -> bool:
        pending = self._pending
        waiting = len(pending) + 1
        if self._closed:
            self.dropped += 1
            return False
        if waiting > (QUEUE_ROWS if was_sent else QUEUE_ROWS // 2):
            if not self._is_dropping:
                self._is_dropping = True
                what = "what comes now" if was_sent else "what is not sent upstream"
                log.error("%d rows wait in memory: %s is not recorded, and counted", waiting - 1, what)
            self.dropped += 1
            return False
        pending.append(row)
        if waiting == BATCH_ROWS:  # not >=: while LMDB is broken, the timer alone tries again
            self.flush()
        elif self._timer is None:
            self._timer = self._loop.call_later(BATCH_S, self.flush)
        return True

    def _open_in_lmdb(self, attempt_id: str, record: bytes) -> None:
        file = self._file
        if file is None or self._failures:
            if clock.monotonic() < self._retry_at:
                return  # known to be broken: the completed row will wait in memory
            if file is None:
                file = self._attach()
                if file is None:
                    return
        try:
            with file.writing() as txn:
                txn.put(attempt_id.encode(), record, db=file.open)
            self._unplaced.add(attempt_id)
        except lmdb.MapFullError:
            self._set_full(True)
        except (lmdb.Error, OSError) as error:
            self._broken(error)

    def _write(self, file: JournalFile, batch: list[records.Row]) -> None:
        """One transaction: the rows into `done`, their open records away. All of it, or an exception and nothing."""
        encoded = records.encode_rows(batch)
        positions: list[int] = []
        settled: list[str] = []
        tried: dict[str, None] = {}  # requests with an attempt in this batch, in order
        parked, unplaced, places = self._parked, self._unplaced, self._at
        txn = file.env.begin()
        try:
            for row in batch:
                if type(row) is AttemptRow:
                    tried[row.request_id] = None
                    at = places.get(row.id)
                    if at is not None:
                        positions.append(at)
                    elif row.id in unplaced:
                        txn.delete(row.id.encode(), db=file.open)
                else:
                    settled.append(row.id)
                    if row.id in parked:
                        txn.delete(row.id.encode(), db=file.open)
            if positions and self._slots is not None:
                txn.put(COMPLETED + self._key.encode(), self._slots.numbers(positions), db=file.meta)
            for request_id in settled:
                tried.pop(request_id, None)
            newly_parked = []
            for request_id in tried:
                request = self._live.get(request_id)
                if request is not None:
                    # Also over an older one: that counts fewer attempts.
                    txn.put(request_id.encode(), records.encode_open(self._key, request, None), db=file.open)
                    newly_parked.append(request_id)
            file.append(txn, encoded)
            txn.commit()
        except BaseException:
            txn.abort()
            raise
        if self._slots is not None:
            self._slots.free(positions)
        for row in batch:
            places.pop(row.id, None)
            unplaced.discard(row.id)
        parked.update(newly_parked)
        for request_id in settled:
            self._live.pop(request_id, None)
        parked.difference_update(settled)

    def _attach(self) -> JournalFile | None:
        """Open LMDB and sign on; None, and unhealthy, when that fails. Tried again with the next flush."""
        file = None
        try:
            file = JournalFile(self._state_dir, self._limit_bytes)
            self._sign_on(file)
        except (lmdb.Error, OSError) as error:
            if file is not None:
                file.close()
            self._broken(error)
            return None
        self._file = file
        self._take_slots(file)
        self._mended()
        self._check_room()
        return file

    def _take_slots(self, file: JournalFile) -> None:
        """Have a file of our own for what is open. Behind `_sign_on`: a file of nobody known is one that was left."""
        if self._slots is not None and not self._slots.is_there():
            self._leave_slots(file)
        try:
            if self._slots is None:
                # Else what the last transaction completed would stand for what is opened now.
                with file.env.read() as txn:
                    above = max(self._last, *file.completed(txn, self._key), 0)
                self._slots = slots.Slots(file.place, self._key, above)
        except (lmdb.Error, OSError) as error:
            self._slotless.met(error)
        else:
            self._slotless.over()
            file.env.beside.add(self._slots.descriptor)

    def _leave_slots(self, file: JournalFile) -> None:
        if self._slots is not None:
            file.env.beside.discard(self._slots.descriptor)
            self._last = self._slots.last
            self._slots.close()
        self._slots = None
        self._at.clear()

    def _sign_off(self, file: JournalFile) -> None:
        try:
            with file.writing() as txn:
                txn.delete(self._key.encode(), db=file.workers)
                if not self._at:
                    txn.delete(COMPLETED + self._key.encode(), db=file.meta)
        except (lmdb.Error, OSError) as error:
            log.warning("the journal could not be left tidily: %s", error)

    def _broken(self, error: Exception) -> None:
        if not self._failures:
            log.error("the journal cannot be written, rows wait in memory: %s", error)
        self._failures += 1
        self._retry_at = clock.monotonic() + RETRY_S[min(self._failures, len(RETRY_S) - 1)]
        self._fault = f"the journal cannot be written: {error}"
        if isinstance(error, lmdb.PanicError) and self._file is not None:
            # A write to its first pages failed, and LMDB takes no more until it is opened anew.
            with contextlib.suppress(lmdb.Error):
                self._file.close()
            self._file = None

    def _mended(self) -> None:
        if self._failures:
            self._failures = 0
            self._fault, self._is_dropping = "", False
            log.warning("the journal can be written again; %d rows were not recorded by this worker", self.dropped)

    def _try_again(self) -> None:
        """After a failure: with what waits, else with a word about ourselves, since nobody may be asking."""
        if self._pending:
            self.flush()
        elif self._file is None:
            self._attach()
        else:
            try:
                self._sign_on(self._file)
            except (lmdb.Error, OSError) as error:
                self._broken(error)
            else:
                self._mended()

    def _sign_on(self, file: JournalFile) -> None:
        with file.writing() as txn:
            txn.put(self._key.encode(), msgspec.msgpack.encode(self._identity), db=file.workers)

    def _stay_known(self, file: JournalFile) -> None:
        """Sign on again where somebody took us for dead: what is open from then on is ours, and not interrupted."""
        try:
            with file.env.read() as txn:
                is_known = txn.get(self._key.encode(), db=file.workers) is not None
            if not is_known:
                self._sign_on(file)
                self._taken_for_dead.warn()
            self._take_slots(file)
        except (lmdb.Error, OSError) as error:
            self._broken(error)

    def _has_room(self) -> bool:
        """While full: whether it no longer is. Looks at most every CHECK_EVERY_S."""
        if clock.monotonic() - self._checked_at >= CHECK_EVERY_S:
            self._check_room()
        return not self.full

    def _check_room(self) -> None:
        self._opens = 0
        self._checked_at = clock.monotonic()
        if self._file is None:
            return
        try:
            used = self._file.used_bytes()
        except lmdb.Error as error:
            self._broken(error)
            return
        if self._slots is not None:
            used += self._slots.used * slots.SLOT_BYTES  # their rows will need it
        self._set_full(used >= self._limit_bytes * (RELEASE if self.full else 1))

    def _set_full(self, full: bool) -> None:
        if full == self.full:
            return
        self.full = full
        if full:
            log.error(self.reason)
        else:
            log.warning("the journal has room again; %d rows were not recorded by this worker", self.dropped)


AnyJournal = Journal | NullJournal
