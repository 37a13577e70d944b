"""What was said of the same meaning: vectors near that of a question, and where what they stand for was said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from arbiter._speedups import vectors
from arbiter.ledger import meaning, query
from arbiter.ledger.database import Database
from arbiter.ledger.meaning import Kept, Waiting
from arbiter.ledger.query import BadParameter
from arbiter.ledger.questions.search import DEFAULT_LIMIT, MAX_LIMIT, Filters, Hit, snippet, told
from arbiter.ledger.search import Match, phrases
from arbiter.ledger.store import Readable

PARAMETERS = ("meaning", "since", "session", "limit")
PAGE = 500  # vectors of one question to the store: 3 MB of those of 1536 numbers
COMPARED = 100_000
"""Of what has vectors, the newest so many are looked at."""
_AT_ONCE = 400
DIGITS = 4  # of a score
TELLING_CHARS = 4  # of a word that is worth being shown in its place, where it stands in a text that is near


class Near(NamedTuple):
    """One thing near the question: which of its pieces is nearest, and how near, at most 1."""

    score: float
    at_ms: int
    id: str
    kind: str
    source: str
    piece: int


class Found(msgspec.Struct, frozen=True):
    """The nearest first, each with its score. `state` as of the index of words; `waiting`: what has no vectors yet."""

    hits: list[tuple[float, Hit]]
    state: str
    waiting: int
    is_all: bool


class OtherWidth(Exception):
    """The vectors that are kept cannot be compared with that of the question."""


def parse(params: Mapping[str, str], now_ms: int) -> Filters:
    """Filters from query parameters. Errors: BadParameter, also for a parameter that does not exist."""
    if "q" in params:
        raise BadParameter("q", "there is `meaning` already: ask for words or for what they mean")
    query.only(params, PARAMETERS)
    limit = query.limited(params, DEFAULT_LIMIT, MAX_LIMIT)
    if not params["meaning"].strip():
        raise BadParameter("meaning", "what to look for, in words")
    since_ms = query.since(params["since"], now_ms) if "since" in params else None
    return Filters(q=params["meaning"], since_ms=since_ms, session=params.get("session") or None, limit=limit)


def find(store: Readable, asked: bytes, state: Mapping[str, str], filters: Filters) -> Found:
    """What is nearest to the vector of a question, of what fits the filters.

    Errors: StoreDown, OtherWidth. The store is asked page by page, so that others have their turn.
    """
    if state["width"] and int(state["width"]) != len(asked) // 4:
        raise OtherWidth(f"it has {len(asked) // 4} numbers, and those that are kept have {state['width']}")
    near, is_whole = _compared(store, asked)
    hits: list[tuple[float, Hit]] = []
    left = False
    words = [word for phrase, _ in phrases(filters.q) for word in phrase if len(word) >= TELLING_CHARS]
    for start in range(0, len(near), _AT_ONCE):
        some = near[start : start + _AT_ONCE]
        room = filters.limit - len(hits)
        fitting = store.read(lambda database, some=some: _fitting(database, some, filters))  # type: ignore[misc]
        kept = [one for one, _ in fitting[:room]]
        things, blocks = store.read(lambda database, kept=kept: _stored(database, kept))  # type: ignore[misc]
        for thing, (one, hit) in zip(things, fitting, strict=False):
            text = snippet(_piece(meaning.text_of(thing, blocks), one.piece), words)
            hits.append((round(one.score, DIGITS), msgspec.structs.replace(hit, text=text)))
        left = len(fitting) > room
        if left:
            break
    return Found(hits, state["index"], store.read(meaning.waits), is_whole and not left)


def _compared(store: Readable, asked: bytes) -> tuple[list[Near], bool]:
    """All that points the same way, the nearest first; whether all was looked at."""
    near: list[Near] = []
    before: tuple[int, str] | None = None
    for _ in range(COMPARED // PAGE):
        page = store.read(lambda database, before=before: meaning.page(database, before, PAGE))  # type: ignore[misc]
        near += [one for kept in page if (one := _nearest(asked, kept)) is not None]
        if len(page) < PAGE:
            return sorted(near, reverse=True), True
        before = page[-1].at_ms, page[-1].id
    return sorted(near, reverse=True), False


def _nearest(asked: bytes, kept: Kept) -> Near | None:
    if not kept.vectors or len(kept.vectors) % len(asked):
        return None  # it was refused, or is of a model that is just being replaced
    piece, score = vectors.nearest(asked, kept.vectors)
    return Near(score, kept.at_ms, kept.id, kept.kind, kept.source, piece) if score > 0 else None


def _fitting(database: Database, near: Sequence[Near], filters: Filters) -> list[tuple[Near, Hit]]:
    """Those that are still about something, and fit the filters, in their order."""
    matches = [Match(number, one.kind, one.source) for number, one in enumerate(near)]
    return [(near[match.number], hit) for match, hit in told(database, matches, filters)]


def _stored(database: Database, found: Sequence[Near]) -> tuple[list[Waiting], dict[str, bytes]]:
    """What these stand for, and the blocks of it."""
    texts: dict[str, str] = {}
    if found:
        these = f"text IS NOT NULL AND id IN ({', '.join('?' * len(found))})"
        sql = f"SELECT id, text FROM {meaning.VECTORS} WHERE {these}"
        texts = dict(database.rows(sql, [one.id for one in found]))
    things = [Waiting(one.id, one.kind, one.source, one.at_ms, texts.get(one.id)) for one in found]
    return things, meaning.blocks_of(database, things)


def _piece(text: str, number: int) -> str:
    pieces = meaning.pieces(text)
    return pieces[min(number, len(pieces) - 1)] if pieces else ""


def as_json(found: Found) -> dict[str, Any]:
    """What was found, as the admin API and `arbiter search --json` show it."""
    hits = [{**msgspec.structs.asdict(hit), "score": score} for score, hit in found.hits]
    return {"hits": hits, "index": found.state, "waiting": found.waiting, "is_all": found.is_all}
