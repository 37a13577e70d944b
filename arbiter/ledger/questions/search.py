"""What was said where: words looked up in captured content, titles, summaries, notes and tool names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from arbiter.ledger import query, search
from arbiter.ledger.database import Database
from arbiter.ledger.query import BadParameter
from arbiter.ledger.search import Match

MAX_LIMIT = 100
DEFAULT_LIMIT = 20
PARAMETERS = ("q", "since", "session", "limit")

SCANNED = 2000
"""Entries that are looked at for those of a session or a time."""
SNIPPET_CHARS = 160
_AT_ONCE = 400  # values of one question


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked for; None asks for all."""

    q: str
    since_ms: int | None = None
    session: str | None = None
    limit: int = DEFAULT_LIMIT


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was found. Of what many requests hold, `request` and the rest is the newest of them."""

    kind: str  # message | system | answer | tools | title | summary | note
    text: str  # around the first word that was asked for
    request: str | None = None
    trace: str | None = None
    session: str | None = None
    client: str | None = None
    model: str | None = None
    at_ms: int | None = None


class Found(msgspec.Struct, frozen=True):
    """The best hits first. `state`: off, building (what was stored before may be missing yet) or ready."""

    hits: list[Hit]
    state: str
    is_all: bool  # there are no more


def parse(params: Mapping[str, str], now_ms: int) -> Filters:
    """Filters from query parameters. Errors: BadParameter, also for a parameter that does not exist."""
    query.only(params, PARAMETERS)
    limit = query.limited(params, DEFAULT_LIMIT, MAX_LIMIT)
    if "q" not in params:
        raise BadParameter("q", "the words to look for")
    since_ms = query.since(params["since"], now_ms) if "since" in params else None
    return Filters(q=params["q"], since_ms=since_ms, session=params.get("session") or None, limit=limit)


def find(database: Database, filters: Filters) -> Found:
    """Where all of the words stand. Whatever `q` is, it is no error."""
    state = search.state_of(database)
    if state is None or not search.is_open(state):
        return Found([], "off", True)
    wanted = search.phrases(filters.q)
    found = search.matches(database, wanted, SCANNED + 1)
    kept: list[tuple[Match, Hit]] = []
    for start in range(0, min(len(found), SCANNED), _AT_ONCE):
        kept += told(database, found[start : start + _AT_ONCE], filters)
        if len(kept) > filters.limit:
            break
    is_all = len(kept) <= filters.limit and len(found) <= SCANNED
    kept = kept[: filters.limit]
    texts = search.texts(database, [match.number for match, _ in kept])
    words = [word for phrase, _ in wanted for word in phrase]
    hits = [msgspec.structs.replace(hit, text=snippet(texts.get(match.number, ""), words)) for match, hit in kept]
    return Found(hits, state["index"], is_all)


def snippet(text: str, words: Sequence[str]) -> str:
    """A line of `text` around the first of the words that stands in it."""
    lower = text.lower()
    places = [at for word in words if (at := lower.find(word.lower())) >= 0]
    start = max(0, min(places, default=0) - SNIPPET_CHARS // 4)
    cut = " ".join(text[start : start + SNIPPET_CHARS].split())
    return f"{'…' if start else ''}{cut}{'…' if start + SNIPPET_CHARS < len(text) else ''}"


def told(database: Database, matches: Sequence[Match], filters: Filters) -> list[tuple[Match, Hit]]:
    """The matches that are still about something, and fit the filters, in their order."""
    of_block = _requests_of_blocks(database, [match.source for match in matches if match.kind in _BLOCKS], filters)
    of_tools = [match.source for match in matches if match.kind == "tools"]
    requests = _requests(database, [*of_block.values(), *of_tools], filters)
    sessions = _sessions(database, [match.source for match in matches if match.kind in _NAMES], filters)
    notes = _notes(database, [match.source for match in matches if match.kind == "note"], filters)
    fitting = []
    for match in matches:
        if match.kind in _NAMES:
            hit = sessions.get(match.source)
        elif match.kind == "note":
            hit = notes.get(match.source)
        else:
            hit = requests.get(of_block.get(match.source, "") if match.kind in _BLOCKS else match.source)
        if hit is not None:
            fitting.append((match, msgspec.structs.replace(hit, kind=match.kind)))
    return fitting


_BLOCKS = frozenset(("message", "system", "answer"))
_NAMES = frozenset(("title", "summary"))


def _requests_of_blocks(database: Database, blocks: Sequence[str], filters: Filters) -> dict[str, str]:
    """The newest request that holds each block."""
    if not blocks:
        return {}
    more, values = _narrowed("r", "received_ms", filters)
    sql = (
        "SELECT u.block, MAX(r.id) FROM request_blocks u JOIN requests r ON r.id = u.request_id"
        f" WHERE u.block IN ({_marks(blocks)}){more} GROUP BY u.block"
    )
    return dict(database.rows(sql, [*blocks, *values]))


def _requests(database: Database, ids: Sequence[str], filters: Filters) -> dict[str, Hit]:
    if not ids:
        return {}
    more, values = _narrowed("r", "received_ms", filters)
    sql = (
        "SELECT r.id, r.trace_id, r.session, r.client, r.model_asked, r.received_ms FROM requests r"
        f" WHERE r.id IN ({_marks(ids)}){more}"
    )
    return {
        row[0]: Hit(
            kind="", text="", request=row[0], trace=row[1], session=row[2], client=row[3], model=row[4], at_ms=row[5]
        )
        for row in database.rows(sql, [*ids, *values])
    }


def _sessions(database: Database, ids: Sequence[str], filters: Filters) -> dict[str, Hit]:
    if not ids:
        return {}
    more, values = _narrowed("s", "last_ms", filters)
    sql = f"SELECT s.id, s.session, s.client, s.last_ms FROM sessions s WHERE s.id IN ({_marks(ids)}){more}"
    found = database.rows(sql, [*ids, *values])
    return {row[0]: Hit(kind="", text="", session=row[1], client=row[2], at_ms=row[3]) for row in found}


def _notes(database: Database, ids: Sequence[str], filters: Filters) -> dict[str, Hit]:
    if not ids:
        return {}
    sql = (
        "SELECT n.id, s.session, s.client, n.at_ms FROM notes n JOIN sessions s ON s.id = n.session_id"
        f" WHERE n.id IN ({_marks(ids)})"
    )
    values = list(ids)
    if filters.session is not None:
        sql += " AND s.session = ?"
        values.append(filters.session)
    found = [row for row in database.rows(sql, values) if filters.since_ms is None or row[3] >= filters.since_ms]
    return {row[0]: Hit(kind="", text="", session=row[1], client=row[2], at_ms=row[3]) for row in found}


def _narrowed(table: str, moment: str, filters: Filters) -> tuple[str, list[Any]]:
    more, values = "", list[Any]()
    if filters.session is not None:
        more += f" AND {table}.session = ?"
        values.append(filters.session)
    if filters.since_ms is not None:
        more += f" AND {table}.{moment} >= ?"
        values.append(filters.since_ms)
    return more, values


def _marks(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))


def as_json(found: Found) -> dict[str, Any]:
    """What was found, as the admin API and `arbiter search --json` show it."""
    hits = [msgspec.structs.asdict(hit) for hit in found.hits]
    return {"hits": hits, "index": found.state, "is_all": found.is_all}
