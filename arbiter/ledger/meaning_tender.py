"""Keeps the tables of vectors as the configuration wants them, and has wait in them what is to get some.

NONE --wanted--> BUILDING --all that is stored waits or has vectors--> READY
BUILDING, READY --no longer wanted, or of another model, width or version--> CLOSING --empty--> NONE

As with the words (`search_tender`), whose thread does this too: new blocks come in with the transaction that stores
them, and leave with the one that removes them; titles and notes are compared with what there is. Nobody is asked for
vectors here; that is `control.embedding`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from arbiter import clock
from arbiter.config.snapshot import Snapshot
from arbiter.ledger import meaning, search
from arbiter.ledger.capture_file import New
from arbiter.ledger.database import Database
from arbiter.ledger.meaning import Waiting
from arbiter.ledger.search_tender import COMPARE_EVERY_S, NAMED
from arbiter.ledger.store import Store

STEP_BLOCKS, STEP_ROWS, STEP_TEXTS = 50, 200, 200


class MeaningTender:
    """One step at a time, in the thread that stores content."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot
        self._compare_at = 0.0
        self._is_gone = False  # there are no tables, and nobody wants any: nothing to look at

    def tend(self, store: Store) -> bool:
        """Do one step; whether there is more to do at once. Errors: StoreDown."""
        model = meaning.wanted(self._snapshot())
        if self._is_gone and model is None:
            return False
        state = store.read(meaning.state_of)
        self._is_gone = state is None
        if state is None:
            if model is not None:
                store.change(lambda database: meaning.create(database, model))
            return model is not None
        if not meaning.is_open(state, model):
            return store.change(_close)
        if state["index"] == search.BUILDING:
            return store.change(lambda database: _build(database, state["blocks"]))
        if clock.monotonic() >= self._compare_at:
            self._compare_at = clock.monotonic() + COMPARE_EVERY_S
            return store.change(_compare)
        return False

    def added(self, database: Database, blocks: Sequence[New]) -> None:
        """New blocks are being stored."""
        model = meaning.wanted(self._snapshot())
        if model is not None and meaning.is_open(meaning.state_of(database), model):
            now_ms = clock.now_ms()
            _put_blocks(database, [(one.id, one.kind, now_ms, one.text) for one in blocks])


def removed(database: Database, blocks: Sequence[str]) -> None:
    """Blocks are being removed from the store."""
    if blocks and meaning.state_of(database) is not None:
        meaning.remove(database, [meaning.id_of("message", block) for block in blocks])


def _put_blocks(database: Database, blocks: Sequence[tuple[str, str, int, bytes]]) -> None:
    """Have blocks wait that have no vectors: one that comes again is known."""
    found = [one for block, kind, at_ms, text in blocks for one in meaning.each(block, kind, at_ms, text)]
    if found:
        marks = ", ".join("?" * len(found))
        sql = f"SELECT id FROM {meaning.VECTORS} WHERE id IN ({marks})"
        known = {one for (one,) in database.rows(sql, [one.id for one in found])}
        meaning.put(database, [one for one in {one.id: one for one in found}.values() if one.id not in known])


def _build(database: Database, after: str) -> bool:
    """Have a few of the blocks wait that were stored before there were tables."""
    rows = database.rows(
        "SELECT id, kind, created_ms, text FROM blocks WHERE id > ? ORDER BY id LIMIT ?", (after, STEP_BLOCKS)
    )
    _put_blocks(database, [(block, kind, at_ms, bytes(text)) for block, kind, at_ms, text in rows])
    meaning.set_state(database, **({"blocks": rows[-1][0]} if rows else {"index": search.READY}))
    return True


def _close(database: Database) -> bool:
    meaning.set_state(database, index=search.CLOSING)
    if meaning.empty_some(database, STEP_ROWS):
        return True
    meaning.drop(database)
    return False


def _compare(database: Database) -> bool:
    """Follow some of the titles and notes that changed. Whether there are more."""
    tables = database.tables()
    now_ms = clock.now_ms()
    more = False
    for kind, table, text in NAMED:
        if text not in tables.get(table, ()):
            continue
        there: list[tuple[Any, ...]] = database.rows(
            f"SELECT n.id, n.{text} FROM {table} n"
            f" LEFT JOIN {meaning.VECTORS} v ON v.id = '{kind} ' || n.id"
            f" LEFT JOIN {meaning.WAITING} w ON w.id = '{kind} ' || n.id"
            f" WHERE n.{text} IS NOT NULL AND n.{text} <> ''"
            f" AND (v.id IS NULL OR v.text <> n.{text}) AND (w.id IS NULL OR w.text <> n.{text}) LIMIT ?",
            (STEP_TEXTS,),
        )
        gone = [
            source
            for kept in (meaning.WAITING, meaning.VECTORS)
            for (source,) in database.rows(
                f"SELECT k.source FROM {kept} k LEFT JOIN {table} n ON n.id = k.source"
                f" WHERE k.kind = ? AND (n.{text} IS NULL OR n.{text} = '') LIMIT ?",
                (kind, STEP_TEXTS),
            )
        ]
        # A text that changed is at once no longer found by what it was.
        changed = [Waiting(meaning.id_of(kind, source), kind, source, now_ms, told) for source, told in there]
        meaning.remove(database, [meaning.id_of(kind, source) for source in gone] + [one.id for one in changed])
        meaning.put(database, changed)
        more = more or len(there) == STEP_TEXTS or len(gone) >= STEP_TEXTS
    return more
