"""The index behind `arbiter search`: words of captured content, of titles and notes, and names of tools (SPEC 8.5).

It is a table of its own, made when `search.index` is switched on and dropped when it is switched off, both in small
steps (`search_tender`): whatever stands in it can be made anew from what it is about. SQLite keeps it with FTS5,
PostgreSQL as tsvector; both find the same words, since both are given the same idea of a word: what stands between
white space and punctuation, whatever its case.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from arbiter.ledger.blocks_text import said
from arbiter.ledger.database import Database, Statement

VERSION = "1"
"""Of what is put into the index. Another one makes it anew."""

ENTRIES, TEXTS, STATE = "search_entries", "search_texts", "search_state"
BUILDING, READY, CLOSING = "building", "ready", "closing"

MAX_CHARS = 100_000
"""Of one entry; PostgreSQL refuses to index much more at once."""
MAX_WORDS = 16
MAX_QUERY_CHARS = 1000

_WORD = re.compile(r"[^\W_]+")
_PIECE = re.compile(r'"([^"]*)"|(\S+)')
_TOLD = frozenset(("message", "system", "answer"))


class Entry(NamedTuple):
    """One thing that can be found. `source` is the id of what it is about: a block, a request, a session, a note."""

    kind: str  # message | system | answer | tools | title | summary | note
    source: str
    text: str

    @property
    def number(self) -> int:
        """Its row number in the index, made of what it is about."""
        return number(self.kind, self.source)


def number(kind: str, source: str) -> int:
    # The kinds of blocks share a number: which of them one is does not change whose it is.
    space = "block" if kind in _TOLD else kind
    return int.from_bytes(hashlib.sha256(f"{space} {source}".encode()).digest()[:8], "big") >> 1


def of_block(kind: str, block: str, text: bytes) -> Entry | None:
    """The entry of a block; None for what nobody would search in."""
    if kind not in _TOLD:
        return None
    parts = []
    for label, words in said(kind, msgspec.json.decode(text)):
        parts.append(f"{label.removeprefix('call ')} {words}" if label.startswith("call ") else words)
    told = "\n".join(parts)[:MAX_CHARS]
    return Entry(kind, block, told) if told.strip() else None


# ---------------------------------------------------------------------------------------------- making and dropping


def state_of(database: Database) -> dict[str, str] | None:
    """How the index is: `index` (BUILDING, READY or CLOSING), `version`, how far it is built; None: there is none."""
    if STATE not in database.tables():
        return None
    return dict(database.rows(f"SELECT id, value FROM {STATE}"))


def is_open(state: Mapping[str, str] | None) -> bool:
    """Whether entries go in, and questions are answered."""
    return state is not None and state.get("index") in (BUILDING, READY) and state.get("version") == VERSION


def set_state(database: Database, **values: str) -> None:
    database.run_many(
        Statement(
            f"INSERT INTO {STATE} (id, value) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET value = excluded.value",
            list(values.items()),
        )
    )


def create(database: Database) -> None:
    """Make an empty index, to be built."""
    if database.dialect.name == "sqlite":
        # The text stands last: whoever looks only for what an entry is about does not read it.
        columns = "kind UNINDEXED, source UNINDEXED, text"
        tokens = "tokenize = 'unicode61 remove_diacritics 0'"
        database.run(f"CREATE VIRTUAL TABLE IF NOT EXISTS {ENTRIES} USING fts5({columns}, {tokens})")
    else:
        database.run(
            f"CREATE TABLE IF NOT EXISTS {ENTRIES}"
            " (number BIGINT PRIMARY KEY, kind TEXT NOT NULL, source TEXT NOT NULL, text TEXT NOT NULL, words tsvector)"
        )
        database.run(f"CREATE INDEX IF NOT EXISTS search_words ON {ENTRIES} USING gin (words)")
    for table, columns in ((TEXTS, "kind TEXT, source TEXT, text TEXT"), (STATE, "value TEXT")):
        database.run(f"CREATE TABLE IF NOT EXISTS {table} (id TEXT PRIMARY KEY, {columns})")
    set_state(database, index=BUILDING, version=VERSION, blocks="", attempts="")


def empty_some(database: Database, limit: int) -> int:
    """Remove so many entries. Returns how many that were; 0: it is empty."""
    key = _key(database)
    return database.run(f"DELETE FROM {ENTRIES} WHERE {key} IN (SELECT {key} FROM {ENTRIES} LIMIT ?)", (limit,))


def drop(database: Database) -> None:
    for table in (ENTRIES, TEXTS, STATE):
        database.run(f"DROP TABLE IF EXISTS {table}")


# ------------------------------------------------------------------------------------------------------- its entries


def statements(dialect: str, entries: Sequence[Entry]) -> list[Statement]:
    """What puts entries into the index, each in the place of the one about the same thing."""
    numbers = [(entry.number,) for entry in entries]
    rows = [(entry.number, entry.kind, entry.source, _clean(entry.text)) for entry in entries]
    if dialect == "sqlite":
        return [
            Statement(f"DELETE FROM {ENTRIES} WHERE rowid = ?", numbers),
            Statement(f"INSERT INTO {ENTRIES} (rowid, kind, source, text) VALUES (?, ?, ?, ?)", rows),
        ]
    sql = (
        f"INSERT INTO {ENTRIES} (number, kind, source, text, words) VALUES (?, ?, ?, ?, to_tsvector('simple', ?))"
        " ON CONFLICT (number) DO UPDATE SET kind = excluded.kind, text = excluded.text, words = excluded.words"
    )
    return [Statement(sql, [(*row, " ".join(_WORD.findall(row[3]))) for row in rows])]


def put(database: Database, entries: Sequence[Entry]) -> None:
    for statement in statements(database.dialect.name, entries):
        database.run_many(statement)


def remove(database: Database, kind: str, sources: Iterable[str]) -> None:
    rows = [(number(kind, source),) for source in sources]
    database.run_many(Statement(f"DELETE FROM {ENTRIES} WHERE {_key(database)} = ?", rows))


def _key(database: Database) -> str:
    return "rowid" if database.dialect.name == "sqlite" else "number"


def _clean(text: str) -> str:
    return text.replace("\0", " ")  # which PostgreSQL refuses


# ------------------------------------------------------------------------------------------------------- its questions


class Match(NamedTuple):
    """An entry that holds what was asked for; the best come first."""

    number: int
    kind: str
    source: str


def phrases(query: str) -> list[tuple[list[str], bool]]:
    """What a query asks for: each phrase as its words, and whether the last of them is only a beginning (`word*`).

    Any text is a query: what is between quotation marks is one phrase, punctuation parts words, and that is all.
    """
    found: list[tuple[list[str], bool]] = []
    left = MAX_WORDS
    for quoted, bare in _PIECE.findall(query[:MAX_QUERY_CHARS]):
        piece = quoted or bare
        words = _WORD.findall(piece)[:left]
        left -= len(words)
        if words:
            found.append((words, piece.endswith("*")))
    return found


def matches(database: Database, wanted: Sequence[tuple[list[str], bool]], limit: int) -> list[Match]:
    """The entries that hold every phrase."""
    if not wanted:
        return []
    if database.dialect.name == "sqlite":
        asked = " ".join(f'"{" ".join(words)}"{" *" if begins else ""}' for words, begins in wanted)
        sql = f"SELECT rowid, kind, source FROM {ENTRIES} WHERE {ENTRIES} MATCH ? ORDER BY rank LIMIT ?"
    else:
        asked = " & ".join(f"({' <-> '.join(words)}{':*' if begins else ''})" for words, begins in wanted)
        sql = (
            f"SELECT number, kind, source FROM {ENTRIES}, to_tsquery('simple', ?) asked WHERE words @@ asked"
            " ORDER BY ts_rank(words, asked) DESC, number LIMIT ?"
        )
    return [Match(*row) for row in database.rows(sql, (asked, limit))]


def texts(database: Database, numbers: Sequence[int]) -> dict[int, str]:
    """The texts of entries."""
    if not numbers:
        return {}
    key = _key(database)
    sql = f"SELECT {key}, text FROM {ENTRIES} WHERE {key} IN ({', '.join('?' * len(numbers))})"
    return dict(database.rows(sql, list(numbers)))
