"""Vectors of what was said, for `arbiter search --meaning` (SPEC 8.5): their tables, and what is put into them.

What people and models said to each other gets vectors, piece by piece, and so do titles, summaries and notes. What
tools were called with and gave back, thinking and system prompts do not: they are most of the bytes, and not what
somebody remembers. Both stores keep the vectors of one thing as one value, float32 behind float32, all of length 1, so
that no extension of either is needed; `_speedups.vectors` compares them.

The tables are made when `search.embed` is switched on, and dropped when it is switched off (`meaning_tender`). What has
no vectors yet waits in one of them: `control.embedding` claims some of it, asks, and keeps what it got, if that is
still wanted by then. Whoever removes content removes what waits first and vectors then, so that none of them outlives
it, whoever of two transactions is faster.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import zstandard

from arbiter.config.aliases import targets
from arbiter.config.snapshot import Snapshot
from arbiter.ledger.blocks_text import said
from arbiter.ledger.database import Database, Statement
from arbiter.ledger.search import BUILDING, READY

VERSION = "1"
"""Of what gets vectors, and of its pieces. Another one makes all anew."""

VECTORS, WAITING, STATE = "search_vectors", "search_waiting", "search_meaning"
TELLING = ("message", "answer")
"""The kinds of blocks that people and models speak in."""
_SPEAKERS = frozenset(("user", "assistant"))

PIECE_CHARS, MAX_PIECES = 1500, 8
"""Of one text. Models that take least take 512 tokens, which is so much of a language with spaces."""
_SHORTEST = PIECE_CHARS // 2  # of a piece that ends between two words

CLAIM_S = 300.0
"""After which what somebody claimed is anybody's: far more than they may take."""

_plain = zstandard.ZstdDecompressor().decompress


class Waiting(NamedTuple):
    """One thing that is to get vectors. `text` is that of titles and notes; a block's stands in the block."""

    id: str
    kind: str  # message | answer | title | summary | note
    source: str
    at_ms: int
    text: str | None = None


def id_of(kind: str, source: str) -> str:
    # An answer comes back as a message, and is the same block.
    return f"{'block' if kind in TELLING else kind} {source}"


def pieces(text: str) -> list[str]:
    """`text` in pieces for a model, cut between words where there are any; of more than it may have, the first ones."""
    found: list[str] = []
    start = 0
    while start < len(text) and len(found) < MAX_PIECES:
        end = start + PIECE_CHARS
        if end < len(text):
            end = max((text.rfind(mark, start + _SHORTEST, end) + 1 for mark in ("\n", " ")), default=0) or end
        if piece := text[start:end].strip():
            found.append(piece)
        start = end
    return found


def told_in(kind: str, block: bytes) -> str:
    """What is said in a block, as it is stored. Empty where nobody says anything."""
    if kind not in TELLING:
        return ""
    return "\n".join(text for label, text in said(kind, msgspec.json.decode(_plain(block))) if label in _SPEAKERS)


def blocks_of(database: Database, found: Sequence[Waiting]) -> dict[str, bytes]:
    """The blocks of these as they are stored, by their ids."""
    sources = [one.source for one in found if one.text is None]
    if not sources:
        return {}
    rows = database.rows(f"SELECT id, text FROM blocks WHERE id IN ({', '.join('?' * len(sources))})", sources)
    return {block: bytes(stored) for block, stored in rows}


def text_of(one: Waiting, blocks: Mapping[str, bytes]) -> str:
    """What is said in it; empty where it is gone."""
    if one.text is not None:
        return one.text
    return told_in(one.kind, blocks[one.source]) if one.source in blocks else ""


def packed(numbers: Sequence[float]) -> bytes:
    """A vector of length 1 in the same direction, as it is kept. Errors: ValueError where it has no direction."""
    length = math.hypot(*numbers)
    if not length or not math.isfinite(length):
        raise ValueError("a vector without a direction")
    return array("f", [number / length for number in numbers]).tobytes()


# ---------------------------------------------------------------------------------------------- making and dropping


def wanted(snapshot: Snapshot) -> str | None:
    """Whose vectors are wanted: of which models of the alias, and how wide; None: nobody's.

    An alias that leads to the same model elsewhere changes nothing.
    """
    embed = snapshot.search.embed
    if embed is None:
        return None
    names = set()
    for member in targets(snapshot.aliases[embed.alias].members, snapshot.aliases):
        provider = snapshot.providers.get(member.provider or "")
        known = provider.model(member.model) if provider is not None else None
        names.add(known.upstream if known is not None else member.model)
    return " ".join([*sorted(names), *([f"({embed.dimensions})"] if embed.dimensions is not None else [])])


def state_of(database: Database) -> dict[str, str] | None:
    """How it is: `index` (BUILDING, READY or CLOSING), `version`, `model`, `width` ("" before the first vector), how
    far it is built (`blocks`); None: nothing is kept."""
    if STATE not in database.tables():
        return None
    return dict(database.rows(f"SELECT id, value FROM {STATE}"))


def is_open(state: Mapping[str, str] | None, model: str | None) -> bool:
    """Whether things get vectors of this model, and questions are answered."""
    return (
        state is not None
        and model is not None
        and state.get("index") in (BUILDING, READY)
        and (state.get("version"), state.get("model")) == (VERSION, model)
    )


def set_state(database: Database, **values: str) -> None:
    database.run_many(
        Statement(
            f"INSERT INTO {STATE} (id, value) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET value = excluded.value",
            list(values.items()),
        )
    )


def create(database: Database, model: str) -> None:
    """Make empty tables for the vectors of a model."""
    text, integer, blob = (database.dialect.types[kind] for kind in ("text", "integer", "blob"))
    thing = f"id {text} PRIMARY KEY, kind {text} NOT NULL, source {text} NOT NULL, at_ms {integer} NOT NULL"
    database.run(f"CREATE TABLE IF NOT EXISTS {VECTORS} ({thing}, text {text}, vectors {blob} NOT NULL)")
    database.run(
        f"CREATE TABLE IF NOT EXISTS {WAITING}"
        f" ({thing}, text {text}, claimed_by {text}, claimed_ms {integer} NOT NULL DEFAULT 0)"
    )
    for table in (VECTORS, WAITING):
        database.run(f"CREATE INDEX IF NOT EXISTS {table}_newest ON {table} (at_ms, id)")
    database.run(f"CREATE TABLE IF NOT EXISTS {STATE} (id {text} PRIMARY KEY, value {text})")
    set_state(database, index=BUILDING, version=VERSION, model=model, width="", blocks="")


def empty_some(database: Database, limit: int) -> int:
    """Remove so many rows. Returns how many that were; 0: it is empty."""
    return sum(
        database.run(f"DELETE FROM {table} WHERE id IN (SELECT id FROM {table} LIMIT ?)", (limit,))
        for table in (WAITING, VECTORS)
    )


def drop(database: Database) -> None:
    for table in (WAITING, VECTORS, STATE):
        database.run(f"DROP TABLE IF EXISTS {table}")


# --------------------------------------------------------------------------------------------- what waits, and what is


def put(database: Database, found: Iterable[Waiting]) -> None:
    """Have these wait for vectors. What waits already with another text waits with this one, claimed by nobody."""
    database.run_many(
        Statement(
            f"INSERT INTO {WAITING} (id, kind, source, at_ms, text) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (id) DO UPDATE SET text = excluded.text, claimed_by = NULL, claimed_ms = 0"
            f" WHERE COALESCE({WAITING}.text, '') <> COALESCE(excluded.text, '')",
            list(found),
        )
    )


def remove(database: Database, ids: Sequence[str]) -> None:
    """Forget these: what waits first, see above."""
    for table in (WAITING, VECTORS):
        database.run_many(Statement(f"DELETE FROM {table} WHERE id = ?", [(one,) for one in ids]))


def waits(database: Database) -> int:
    """How much waits for vectors."""
    return int(database.rows(f"SELECT COUNT(*) FROM {WAITING}")[0][0])


def claim(database: Database, who: str, now_ms: int, limit: int) -> list[Waiting]:
    """Some of what waits, the newest first, and for nobody else for CLAIM_S.

    The newest is what is looked for, and where there is more than can be asked about, the oldest dies first.
    """
    before_ms = now_ms - int(CLAIM_S * 1000)
    free = f"SELECT id FROM {WAITING} WHERE claimed_ms < ? ORDER BY at_ms DESC, id DESC LIMIT ?"
    database.run(
        # Once more outside: where another gateway claimed one meanwhile, it is theirs.
        f"UPDATE {WAITING} SET claimed_by = ?, claimed_ms = ? WHERE id IN ({free}) AND claimed_ms < ?",
        (who, now_ms, before_ms, limit, before_ms),
    )
    found = database.rows(
        f"SELECT id, kind, source, at_ms, text FROM {WAITING} WHERE claimed_by = ? ORDER BY at_ms DESC, id DESC", (who,)
    )
    return [Waiting(*row) for row in found]


def release(database: Database, who: str) -> None:
    """What was claimed and not kept waits for anybody."""
    if WAITING in database.tables():
        database.run(f"UPDATE {WAITING} SET claimed_by = NULL, claimed_ms = 0 WHERE claimed_by = ?", (who,))


def keep(database: Database, who: str, made: Sequence[tuple[Waiting, bytes]]) -> None:
    """Keep vectors of what is still claimed; nothing of what was removed meanwhile, or has another text by now.

    No vectors (b""): it is done with, and not found.
    """
    kept: list[Sequence[Any]] = []
    for one, vectors in made:
        if database.run(f"DELETE FROM {WAITING} WHERE id = ? AND claimed_by = ?", (one.id, who)):
            kept.append((*one, vectors))
    database.run_many(
        Statement(
            f"INSERT INTO {VECTORS} (id, kind, source, at_ms, text, vectors) VALUES (?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (id) DO UPDATE SET at_ms = excluded.at_ms, text = excluded.text, vectors = excluded.vectors",
            kept,
        )
    )


class Kept(NamedTuple):
    """The vectors of one thing."""

    at_ms: int
    id: str
    kind: str
    source: str
    vectors: bytes


def page(database: Database, before: tuple[int, str] | None, limit: int) -> list[Kept]:
    """So many of those that have vectors, the newest first, from where the last page ended (its `at_ms` and `id`)."""
    where, values = ("", ()) if before is None else ("WHERE (at_ms, id) < (?, ?)", before)
    sql = f"SELECT at_ms, id, kind, source, vectors FROM {VECTORS} {where} ORDER BY at_ms DESC, id DESC LIMIT ?"
    rows = database.rows(sql, (*values, limit))
    return [Kept(at_ms, one, kind, source, bytes(stored)) for at_ms, one, kind, source, stored in rows]


def each(block: str, kind: str, at_ms: int, stored: bytes) -> Iterator[Waiting]:
    """A block as what is to get vectors, where anybody says anything in it."""
    if told_in(kind, stored).strip():
        yield Waiting(id_of(kind, block), kind, block, at_ms)
