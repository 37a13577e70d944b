"""Control's end of content capture: from LMDB into the store, and out of it once its time is over.

Theory of operation. One thread. Every quarter of a second it moves what the workers have written, a bounded batch per
transaction, and deletes it from LMDB once the store has it: a record that comes twice changes nothing, since all in it
has an id of its own. Once an hour, when nothing waits, it sweeps the blocks that nothing refers to any more (references
go first, by `retention`) and that were not used for `storage.capture.ttl`, or for `storage.rows_ttl` where that is
shorter. A worker writes a block anew well before that, so what it refers to is there.

The same thread tends the search index (`search_tender`) and what is to get vectors (`meaning_tender`). A transaction
is short, because the recorder writes to the same database, and rows come first.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import lmdb

from arbiter import clock
from arbiter.config.snapshot import Snapshot
from arbiter.ledger import capture_file, meaning_tender, search_tender
from arbiter.ledger.blocks import BlockRow, HeadersRow, UseRow
from arbiter.ledger.capture import KNOWN_S
from arbiter.ledger.capture_file import Captured, CaptureFile
from arbiter.ledger.database import Database, Statement, Unstorable
from arbiter.ledger.meaning_tender import MeaningTender
from arbiter.ledger.search_tender import Tender
from arbiter.ledger.store import Store, StoreDown, StoreRefused
from arbiter.ledger.tables import BLOCKS, HEADERS, USES

BATCH_RECORDS, BATCH_BYTES = 64, 4 << 20
BATCH_ROWS = 10_000  # per transaction: of a long conversation each request refers to thousands of blocks
SWEEP_BLOCKS = 100  # per transaction
PAUSE_S = 0.25
BETWEEN_S = 0.02  # two transactions in a row: others write too
FAILED_S = 2.0
TEND_EVERY_S = 1.0
FIRST_SWEEP_S, SWEEP_EVERY_S = 60.0, 3600.0
STOP_S = 5.0

log = logging.getLogger("arbiter.capture")


class Keeper:
    """The capture environment's only reader. `start` runs it in a thread; tests call `step` and `sweep` themselves."""

    def __init__(self, state_dir: Path, snapshot: Callable[[], Snapshot], open_store: Callable[[], Store]) -> None:
        self._state_dir = state_dir
        self._snapshot = snapshot
        self._open_store = open_store
        self._file: CaptureFile | None = None
        self._store: Store | None = None
        self._tenders = (Tender(snapshot), MeaningTender(snapshot))
        self._tend_at = 0.0
        self._sweep_at = clock.monotonic() + FIRST_SWEEP_S
        self._has_failed = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, in a thread of its own."""
        self._thread = threading.Thread(target=self._run, name="capture", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Store what waits, as far as that is done within STOP_S, and let go of everything."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(STOP_S)
            if self._thread.is_alive():
                return  # stuck in the store; what waits is in LMDB
        self.close()

    def close(self) -> None:
        for held in (self._file, self._store):
            if held is not None:
                held.close()
        self._file = self._store = None

    def step(self) -> int:
        """Store one batch. Returns how many records that were. Errors: StoreDown, lmdb.Error, OSError."""
        file = self._opened()
        if file is None:
            return 0
        records, last = file.first(BATCH_RECORDS, BATCH_BYTES)
        if not records:
            return 0
        captured = []
        for record in records:
            try:
                captured.append(capture_file.decode(record))
            except capture_file.Unreadable as error:
                log.error("captured content is lost: %s", error)
        for place, portion in enumerate(_portions(captured)):
            if place:
                self._stop.wait(BETWEEN_S)
            self._put_all(portion)
        file.forget(last)
        return len(records)

    def _put_all(self, captured: Sequence[Captured]) -> None:
        try:
            self._put(captured)
        except (StoreRefused, Unstorable):
            # One that no store will ever take must not keep the rest waiting for ever.
            for one in captured:
                try:
                    self._put([one])
                except (StoreRefused, Unstorable) as error:
                    log.error("captured content of %s is lost: %s", one.request_id, error)

    def _put(self, captured: Sequence[Captured]) -> None:
        statements = _statements(captured, clock.now_ms())
        blocks = [new for one in captured for new in one.blocks]

        def put(database: Database) -> None:
            for statement in statements:
                database.run_many(statement)
            for tender in self._tenders:
                tender.added(database, blocks)

        self._store_of_ours().change(put)

    def sweep(self) -> int:
        """Remove the blocks whose time is over. Returns how many that were. Errors: StoreDown."""
        storage = self._snapshot().storage
        limits_s = [storage.capture.ttl_s] if storage.capture.ttl_s else []
        if storage.rows_ttl_s is not None:
            # Workers know of the other limit only.
            limits_s.append(max(storage.rows_ttl_s, 2 * KNOWN_S))
        if not limits_s:
            return 0
        before_ms = clock.now_ms() - int(min(limits_s) * 1000)
        swept = 0
        while found := self._store_of_ours().change(lambda database: _sweep_blocks(database, before_ms)):
            swept += found
            self._stop.wait(BETWEEN_S)
        return swept

    # ------------------------------------------------------------------ inside

    def _run(self) -> None:
        while True:
            is_last = self._stop.is_set()
            try:
                moved = self.step()
                if not moved and not is_last:
                    moved = self._tend()
                if self._has_failed:
                    self._has_failed = False
                    log.warning("captured content and its index are being kept again")
                pause_s = BETWEEN_S if moved else PAUSE_S
            except Exception as error:  # without this thread content would pile up, and nobody would notice
                moved, pause_s = 0, FAILED_S
                self._failed(error)
            if is_last and not moved:
                return
            self._stop.wait(pause_s)

    def _tend(self) -> int:
        """What has time. Returns whether there is more of it at once."""
        if clock.monotonic() >= self._sweep_at:
            self._sweep_at = clock.monotonic() + SWEEP_EVERY_S
            self.sweep()
        if clock.monotonic() < self._tend_at:
            return 0
        store = self._store_of_ours()
        more = sum(tender.tend(store) for tender in self._tenders)
        self._tend_at = 0.0 if more else clock.monotonic() + TEND_EVERY_S
        return more

    def _failed(self, error: Exception) -> None:
        if not self._has_failed:
            is_bug = not isinstance(error, (StoreDown, lmdb.Error, OSError))
            level = logging.ERROR if is_bug else logging.WARNING
            log.log(level, "captured content and its index have to wait: %s", error, exc_info=error if is_bug else None)
        self._has_failed = True
        self.close()  # after a panic LMDB takes no more until it is opened anew; nor may the store

    def _opened(self) -> CaptureFile | None:
        """The environment, once there is one: where nothing is captured none is made."""
        if self._file is None and (self._state_dir / capture_file.DIRECTORY).exists():
            self._file = CaptureFile(self._state_dir, self._snapshot().storage.capture.max)
        return self._file

    def _store_of_ours(self) -> Store:
        if self._store is None:
            self._store = self._open_store()
        return self._store


def _portions(captured: Sequence[Captured]) -> Iterator[list[Captured]]:
    """Cut a batch into what one transaction each stores; a record is not cut."""
    portion: list[Captured] = []
    rows = 0
    for one in captured:
        size = len(one.uses) + len(one.blocks)
        if portion and rows + size > BATCH_ROWS:
            yield portion
            portion, rows = [], 0
        portion.append(one)
        rows += size
    if portion:
        yield portion


def _statements(captured: Sequence[Captured], now_ms: int) -> list[Statement]:
    blocks: dict[str, BlockRow] = {}
    uses: list[UseRow] = []
    headers: list[HeadersRow] = []
    for one in captured:
        for new in one.blocks:
            blocks[new.id] = BlockRow(
                id=new.id,
                kind=new.kind,
                media=new.media,
                size=new.size,
                text=new.text,
                created_ms=now_ms,
                last_used_ms=now_ms,
            )
        for use in one.uses:
            uses.append(
                UseRow(
                    id=f"{one.request_id}-{use.direction}-{use.position}",
                    request_id=one.request_id,
                    direction=use.direction,
                    position=use.position,
                    kind=use.kind,
                    block=use.block,
                    marks=use.marks,
                    at_ms=one.at_ms,
                )
            )
        for direction, fields in one.headers.items():
            row_id = f"{one.request_id}-{direction}"
            headers.append(
                HeadersRow(id=row_id, request_id=one.request_id, direction=direction, headers=fields, at_ms=one.at_ms)
            )
    used = [(now_ms, block) for block in dict.fromkeys(use.block for use in uses)]
    return [
        BLOCKS.inserts(list(blocks.values())),
        USES.inserts(uses),
        HEADERS.inserts(headers),
        Statement("UPDATE blocks SET last_used_ms = ? WHERE id = ?", used),
    ]


def _sweep_blocks(database: Database, before_ms: int) -> int:
    """Remove some of the blocks that nothing refers to."""
    found = database.rows(
        "SELECT id FROM blocks WHERE last_used_ms < ?"
        " AND NOT EXISTS (SELECT 1 FROM request_blocks u WHERE u.block = blocks.id) LIMIT ?",
        (before_ms, SWEEP_BLOCKS),
    )
    database.run_many(Statement("DELETE FROM blocks WHERE id = ?", found))
    for tender in (search_tender, meaning_tender):
        tender.removed(database, [block for (block,) in found])
    return len(found)
