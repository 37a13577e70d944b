"""Keeps the search index as the configuration wants it: made, built, followed, dropped, one small step at a time.

NONE --wanted--> BUILDING --all that is stored is in it--> READY
BUILDING, READY --no longer wanted, or of another version--> CLOSING --empty--> NONE

New blocks enter the index with the transaction that stores them, names of tools with their attempt's row, and both
leave with what they are about. Building goes through what was stored before. Titles and notes are few, and change: what
the index holds of them is compared with what there is, every two seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import zstandard

from arbiter import clock
from arbiter.config.snapshot import Snapshot
from arbiter.ledger import search
from arbiter.ledger.capture_file import New
from arbiter.ledger.database import Database, Statement
from arbiter.ledger.recorder import Batch
from arbiter.ledger.search import Entry
from arbiter.ledger.store import Readable, Store

STEP_BLOCKS, STEP_ATTEMPTS, STEP_ENTRIES, STEP_TEXTS = 50, 1000, 200, 200
COMPARE_EVERY_S = 2.0

_plain = zstandard.ZstdDecompressor().decompress


class Named(NamedTuple):
    """Few and changing texts: where they stand."""

    kind: str
    table: str
    text: str  # its column


NAMED = (
    Named("title", "sessions", "title"),
    Named("summary", "sessions", "summary"),
    Named("note", "notes", "text"),
)


class Tender:
    """One step at a time, in the thread that stores content."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot
        self._compare_at = 0.0
        self._is_gone = False  # there is no index, and nobody wants one: nothing to look at

    def tend(self, store: Store) -> bool:
        """Do one step; whether there is more to do at once. Errors: StoreDown."""
        is_wanted = self._snapshot().search.index
        if self._is_gone and not is_wanted:
            return False
        state = store.read(search.state_of)
        self._is_gone = state is None
        if state is None:
            if is_wanted:
                store.change(search.create)
            return is_wanted
        if not is_wanted or not search.is_open(state):
            return store.change(_close)
        if state["index"] == search.BUILDING:
            return store.change(lambda database: _build(database, state))
        if clock.monotonic() >= self._compare_at:
            self._compare_at = clock.monotonic() + COMPARE_EVERY_S
            return store.change(_compare)
        return False

    def added(self, database: Database, blocks: Sequence[New]) -> None:
        """New blocks are being stored."""
        if self._snapshot().search.index and search.is_open(search.state_of(database)):
            made = (search.of_block(one.kind, one.id, _plain(one.text)) for one in blocks)
            search.put(database, [entry for entry in made if entry is not None])


def removed(database: Database, blocks: Sequence[str]) -> None:
    """Blocks are being removed from the store."""
    if search.state_of(database) is not None:
        search.remove(database, "message", blocks)


def parted(database: Database, requests: Sequence[str]) -> None:
    """Attempts of these requests were removed from the store: names of tools go with the last of a request."""
    if requests and search.state_of(database) is not None:
        sql = f"SELECT DISTINCT request_id FROM attempts WHERE request_id IN ({', '.join('?' * len(requests))})"
        left = {request for (request,) in database.rows(sql, requests)}
        search.remove(database, "tools", [request for request in requests if request not in left])


class ToolNames:
    """The stage of the recorder (`recorder.Stage`) that makes the names of called tools searchable."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot

    def take(self, batch: Batch, store: Readable) -> None:
        if not self._snapshot().search.index:
            return
        entries = [entry for row in batch.attempts if (entry := _of_tools(row.request_id, row.tool_names)) is not None]
        if entries and search.is_open(store.read(search.state_of)):
            dialect = store.read(lambda database: database.dialect.name)
            # Of two attempts of one request the later one's stands.
            batch.also += search.statements(dialect, list({entry.source: entry for entry in entries}.values()))

    def stored(self, batch: Batch) -> None:
        """Nothing was remembered."""

    def forget(self) -> None:
        """Nothing was remembered."""


def _of_tools(request_id: str, names: list[str] | None) -> Entry | None:
    return Entry("tools", request_id, " ".join(names)) if names else None


def _build(database: Database, state: dict[str, str]) -> bool:
    """Put a few of the things into the index that were stored before it was made."""
    rows = database.rows(
        "SELECT id, kind, text FROM blocks WHERE id > ? ORDER BY id LIMIT ?", (state["blocks"], STEP_BLOCKS)
    )
    made: list[Entry | None] = [search.of_block(kind, block, _plain(bytes(text))) for block, kind, text in rows]
    if rows:
        search.set_state(database, blocks=rows[-1][0])
    else:
        rows = database.rows(
            "SELECT id, request_id, tool_names FROM attempts WHERE id > ? ORDER BY id LIMIT ?",
            (state["attempts"], STEP_ATTEMPTS),
        )
        names = {request_id: msgspec.json.decode(told) for _, request_id, told in rows if told is not None}
        made = [_of_tools(*one) for one in names.items()]
        search.set_state(database, **({"attempts": rows[-1][0]} if rows else {"index": search.READY}))
    search.put(database, [entry for entry in made if entry is not None])
    return True


def _close(database: Database) -> bool:
    search.set_state(database, index=search.CLOSING)
    if search.empty_some(database, STEP_ENTRIES):
        return True
    search.drop(database)
    return False


def _compare(database: Database) -> bool:
    """Follow some of the titles and notes that changed. Whether there are more."""
    tables = database.tables()
    more = False
    for kind, table, text in NAMED:
        if text not in tables.get(table, ()):
            continue
        key = f"'{kind} ' || n.id"
        changed = database.rows(
            f"SELECT n.id, n.{text} FROM {table} n LEFT JOIN {search.TEXTS} t ON t.id = {key}"
            f" WHERE n.{text} IS NOT NULL AND n.{text} <> '' AND (t.id IS NULL OR t.text <> n.{text}) LIMIT ?",
            (STEP_TEXTS,),
        )
        gone = database.rows(
            f"SELECT t.source FROM {search.TEXTS} t LEFT JOIN {table} n ON n.id = t.source"
            f" WHERE t.kind = ? AND (n.{text} IS NULL OR n.{text} = '') LIMIT ?",
            (kind, STEP_TEXTS),
        )
        _follow(database, kind, changed, [source for (source,) in gone])
        more = more or len(changed) == STEP_TEXTS or len(gone) == STEP_TEXTS
    return more


def _follow(database: Database, kind: str, changed: Sequence[tuple[Any, ...]], gone: Sequence[str]) -> None:
    search.put(database, [Entry(kind, source, text[: search.MAX_CHARS]) for source, text in changed])
    database.run_many(
        Statement(
            f"INSERT INTO {search.TEXTS} (id, kind, source, text) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (id) DO UPDATE SET text = excluded.text",
            [(f"{kind} {source}", kind, source, text) for source, text in changed],
        )
    )
    search.remove(database, kind, gone)
    database.run_many(Statement(f"DELETE FROM {search.TEXTS} WHERE id = ?", [(f"{kind} {source}",) for source in gone]))
