"""Sessions with what they used: a list of them, and one with its turns, its notes and those it started."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from arbiter.ledger import query, sums
from arbiter.ledger.database import Database
from arbiter.ledger.query import APPROXIMATE, APPROXIMATE_COST, BadParameter, Entry
from arbiter.ledger.row import AttemptRow, RequestRow
from arbiter.ledger.session_rows import NoteRow, SessionRow
from arbiter.ledger.sessions import IDLE, key_of
from arbiter.ledger.tables import ATTEMPTS, NOTES, REQUESTS, SESSIONS

MAX_LIMIT = 500
DEFAULT_LIMIT = 50
DEFAULT_TURNS = 100
MIN_PREFIX = 8  # characters of a session's name that may stand for it
MOST_CHILDREN = 200
MOST_OWN = 20  # of the gateway's own requests about a session
PARAMETERS = ("since", "agent", "client", "label", "limit", "cursor")

State = Literal["open", "idle", "ended", "unseen"]


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """Which sessions; None asks for all. `before` is where the page before this one ended: (last_ms, id)."""

    since_ms: int | None = None  # alive since then
    agent: str | None = None
    client: str | None = None
    label: tuple[str, str] | None = None  # of any of its requests
    limit: int = DEFAULT_LIMIT
    before: tuple[int, str] | None = None


class Totals(msgspec.Struct, kw_only=True):
    """Added up over the attempts of a session; None where none of them reported it.

    `cost_pd` adds up what is known; of `unpriced` attempts nobody knows it. `hit_rate` is the part of the input that
    came from a cache, among the attempts that told. `estimated_…` are ours, for what was not reported; `approximate`
    attempts have such, or counts of a stream that was cut. `elapsed_ms` is how long those attempts took that ended
    well; `tokens_per_s` what they answered in that time, among those that reported it.
    """

    input_tokens: int | None = None  # without the next two
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    estimated_input_tokens: int | None = None
    estimated_output_tokens: int | None = None
    approximate: int = 0
    cost_approximate: int = 0  # of those, whose cost is by such counts
    hit_rate: float | None = None
    cost_pd: int | None = None
    unpriced: int = 0
    subscription: int = 0  # attempts that a subscription served, which cost nothing by themselves
    lost_tokens: int | None = None
    lost_pd: int | None = None
    elapsed_ms: int | None = None
    tokens_per_s: float | None = None

    @property
    def all_input(self) -> int | None:
        """What was sent, from a cache or not, with our estimates."""
        return _sum(self.input_tokens, self.cached_tokens, self.cache_write_tokens, self.estimated_input_tokens)

    @property
    def all_output(self) -> int | None:
        """What was answered, with our estimates."""
        return _sum(self.output_tokens, self.estimated_output_tokens)

    @property
    def is_approximate(self) -> bool:
        return self.approximate > 0


def _sum(*counts: int | None) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A session and what it used, without those it started."""

    session: SessionRow
    totals: Totals

    @property
    def state(self) -> State:
        row = self.session
        if row.first_ms is None:
            return "unseen"
        if row.ended_ms is None:
            return "open"
        return "idle" if row.ended_by == IDLE else "ended"


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Sessions, the latest alive first. `next` is the cursor of the page after this one; None on the last."""

    sessions: list[Summary]
    next: str | None


class Detail(msgspec.Struct, frozen=True, kw_only=True):
    """One session whole. `turns` are its latest requests, oldest first; there are more where `has_more`.

    `own` are the latest that the gateway itself asked about it, oldest first; they are none of its requests.
    """

    summary: Summary
    notes: list[NoteRow]
    turns: list[Entry]
    has_more: bool
    children: list[Summary]
    own: list[Entry]


def parse(params: Mapping[str, str], now_ms: int) -> Filters:
    """Filters from query parameters. Errors: BadParameter naming the parameter, also for one that does not exist."""
    query.only(params, PARAMETERS)
    return Filters(
        since_ms=query.since(params["since"], now_ms) if "since" in params else None,
        agent=query.text("agent", params),
        client=query.text("client", params),
        label=query.label(params["label"]) if "label" in params else None,
        limit=query.limited(params, DEFAULT_LIMIT, MAX_LIMIT),
        before=_read_cursor(params["cursor"]) if "cursor" in params else None,
    )


def listing(db: Database, filters: Filters) -> Page:
    """One page of the sessions that have a request of their own."""
    parts, values = ["s.last_ms IS NOT NULL"], list[Any]()
    if filters.since_ms is not None:
        parts.append("s.last_ms >= ?")
        values.append(filters.since_ms)
    for name in ("agent", "client"):
        if (value := getattr(filters, name)) is not None:
            parts.append(f"s.{name} = ?")
            values.append(value)
    if filters.label is not None:
        text = query.label_text(filters.label)
        parts.append(
            "EXISTS (SELECT 1 FROM requests r WHERE r.session = s.session"
            " AND COALESCE(r.client, '') = COALESCE(s.client, '') AND REPLACE(r.labels, ?, '') <> r.labels)"
        )
        values.append(text)
    if filters.before is not None:
        parts.append("(s.last_ms, s.id) < (?, ?)")
        values += filters.before
    sql = f"{SESSIONS.select} s WHERE {' AND '.join(parts)} ORDER BY s.last_ms DESC, s.id DESC LIMIT ?"
    found = [SESSIONS.load(SessionRow, one) for one in db.rows(sql, (*values, filters.limit + 1))]
    rows = found[: filters.limit]
    more = len(found) > filters.limit
    return Page(sessions=_summed(db, rows), next=_write_cursor(rows[-1]) if more else None)


def named(db: Database, name: str, client: str | None = None) -> list[SessionRow]:
    """The sessions that `name` may mean: an id, else a session's name, else what it begins with."""
    same, whose = ("", ()) if client is None else (" AND client = ?", (client,))
    # An unseen session was never alive, and NULL is the first on one database and the last on the other.
    rest = f"{same} ORDER BY COALESCE(last_ms, 0) DESC, id LIMIT 20"
    for where, values in (
        ("id = ?", (name,)),
        ("session = ?", (name,)),
        ("session BETWEEN ? AND ?", (name, name + "\U0010ffff") if len(name) >= MIN_PREFIX else None),
    ):
        if values is None:
            continue
        found = db.rows(f"{SESSIONS.select} WHERE {where}{rest}", (*values, *whose))
        rows = [SESSIONS.load(SessionRow, one) for one in found]
        main = _main([row.session for row in rows])
        if main is not None:
            return [row for row in rows if row.session == main]
        if rows:
            return rows
    return []


def names(db: Database, name: str) -> list[str]:
    """The names of sessions, whosever, that `name` may mean: itself, else those that begin with it."""
    if db.rows("SELECT 1 FROM sessions WHERE session = ? LIMIT 1", (name,)):
        return [name]
    if len(name) < MIN_PREFIX:
        return []
    sql = "SELECT DISTINCT session FROM sessions WHERE session BETWEEN ? AND ? ORDER BY session LIMIT 20"
    found = [row[0] for row in db.rows(sql, (name, name + "\U0010ffff"))]
    main = _main(found)
    return found if main is None else [main]


def _main(names: Sequence[str]) -> str | None:
    """The one that all the others are sub-agents of: their names begin as its own does."""
    shortest = min(names, key=len, default=None)
    if shortest is None or any(one != shortest and not one.startswith(f"{shortest}:") for one in names):
        return None
    return shortest


def detail(db: Database, key: str, turns: int = DEFAULT_TURNS) -> Detail | None:
    """One session by its id; None where there is none."""
    found = db.rows(f"{SESSIONS.select} WHERE id = ?", (key,))
    if not found:
        return None
    row = SESSIONS.load(SessionRow, found[0])
    (summary,) = _summed(db, [row])
    same, whose = ("client IS NULL", ()) if row.client is None else ("client = ?", (row.client,))
    entries = _entries(db, f"session = ? AND {same}", (row.session, *whose), turns + 1)
    notes = db.rows(f"{NOTES.select} WHERE session_id = ? ORDER BY at_ms, id", (key,))
    sql = f"{SESSIONS.select} WHERE parent = ? AND {same} ORDER BY first_ms, id LIMIT ?"
    children = db.rows(sql, (row.session, *whose, MOST_CHILDREN))
    return Detail(
        summary=summary,
        notes=[NOTES.load(NoteRow, one) for one in notes],
        turns=entries[:turns][::-1],
        has_more=len(entries) > turns,
        children=_summed(db, [SESSIONS.load(SessionRow, one) for one in children]),
        own=_entries(db, "about = ?", (key,), MOST_OWN)[::-1],
    )


def summary_json(summary: Summary) -> dict[str, Any]:
    """A session as the admin API and `arbiter sessions --json` show it: its columns, its state, and its totals."""
    totals = msgspec.structs.asdict(summary.totals)
    totals |= {name.replace("_pd", "_usd"): _usd(totals[name]) for name in ("cost_pd", "lost_pd")}
    totals["is_approximate"] = summary.totals.is_approximate
    return msgspec.structs.asdict(summary.session) | {"state": summary.state} | totals


def page_json(page: Page) -> dict[str, Any]:
    return {"sessions": [summary_json(one) for one in page.sessions], "next": page.next}


def detail_json(found: Detail) -> dict[str, Any]:
    """One session as the admin API and `arbiter session --json` show it."""
    return summary_json(found.summary) | {
        "notes": [msgspec.structs.asdict(note) for note in found.notes],
        "requests_shown": [query.as_json(entry, attempts=True) for entry in found.turns],
        "has_more": found.has_more,
        "children": [summary_json(one) for one in found.children],
        "own_requests": [query.as_json(entry, attempts=True) for entry in found.own],
    }


def _usd(pd: int | None) -> float | None:
    return None if pd is None else pd / 10**12


def _summed(db: Database, rows: Sequence[SessionRow]) -> list[Summary]:
    totals = _totals(db, sorted({row.session for row in rows})) if rows else {}
    return [Summary(session=row, totals=totals.get(row.id, Totals())) for row in rows]


_PLAN = "COALESCE(a.cost_source, '') = 'subscription'"
_KNOWN = "a.cached_tokens IS NOT NULL AND a.input_tokens IS NOT NULL"
_PACED = "a.outcome = 'ok' AND a.output_tokens IS NOT NULL AND a.total_us > 0"
_SUMS = (
    "a.input_tokens",
    "a.cached_tokens",
    "a.cache_write_tokens",
    "a.output_tokens",
    "CASE WHEN a.input_tokens IS NULL THEN a.estimated_input_tokens END",
    "CASE WHEN a.output_tokens IS NULL THEN a.estimated_output_tokens END",
    f"CASE WHEN {APPROXIMATE} THEN 1 ELSE 0 END",
    f"CASE WHEN {APPROXIMATE_COST} THEN 1 ELSE 0 END",
    f"CASE WHEN {_KNOWN} THEN a.cached_tokens END",
    f"CASE WHEN {_KNOWN} THEN a.input_tokens + a.cached_tokens + COALESCE(a.cache_write_tokens, 0) END",
    "a.cost_pd",
    f"CASE WHEN a.cost_pd IS NULL AND a.usage_source <> 'missing' AND NOT ({_PLAN}) THEN 1 ELSE 0 END",
    f"CASE WHEN {_PLAN} THEN 1 ELSE 0 END",
    "a.cache_lost_tokens",
    "a.cache_lost_pd",
    "CASE WHEN a.outcome = 'ok' THEN a.total_us END",
    f"CASE WHEN {_PACED} THEN a.output_tokens END",
    f"CASE WHEN {_PACED} THEN a.total_us END",
)


def _totals(db: Database, names: Sequence[str]) -> dict[str, Totals]:
    def sql(sum_of: Callable[[str], str]) -> str:
        return (
            f"SELECT r.client, r.session, {', '.join(map(sum_of, _SUMS))}"
            " FROM requests r JOIN attempts a ON a.request_id = r.id"
            f" WHERE r.session IN ({', '.join('?' * len(names))}) GROUP BY r.client, r.session"
        )

    found = {}
    for client, session, *tokens, elapsed_us, told, told_us in sums.rows(db, sql, names):
        *tokens, hit, sent, cost, unpriced, subscription, lost, lost_pd = tokens
        fresh, cached, written, out, about_in, about_out, approximate, cost_approximate = tokens
        found[key_of(client, session)] = Totals(
            input_tokens=fresh,
            cached_tokens=cached,
            cache_write_tokens=written,
            output_tokens=out,
            estimated_input_tokens=about_in,
            estimated_output_tokens=about_out,
            approximate=approximate or 0,
            cost_approximate=cost_approximate or 0,
            hit_rate=hit / sent if sent else None,
            cost_pd=cost,
            unpriced=unpriced or 0,
            subscription=subscription or 0,
            lost_tokens=lost,
            lost_pd=lost_pd,
            elapsed_ms=None if elapsed_us is None else elapsed_us // 1000,
            tokens_per_s=round(told * 1_000_000 / told_us, 3) if told_us else None,
        )
    return found


def _entries(db: Database, where: str, values: Sequence[Any], limit: int) -> list[Entry]:
    sql = f"{REQUESTS.select} WHERE {where} ORDER BY received_ms DESC, id DESC LIMIT ?"
    requests = [REQUESTS.load(RequestRow, one) for one in db.rows(sql, (*values, limit))]
    attempts: dict[str, list[AttemptRow]] = {}
    if requests:
        marks = ", ".join("?" * len(requests))
        sql = f"{ATTEMPTS.select} WHERE request_id IN ({marks}) ORDER BY request_id, number, id"
        for one in db.rows(sql, [request.id for request in requests]):
            attempt = ATTEMPTS.load(AttemptRow, one)
            attempts.setdefault(attempt.request_id, []).append(attempt)
    return [Entry(request, attempts.get(request.id, [])) for request in requests]


def _write_cursor(row: SessionRow) -> str:
    return base64.urlsafe_b64encode(f"{row.last_ms}:{row.id}".encode()).decode().rstrip("=")


def _read_cursor(text: str) -> tuple[int, str]:
    try:
        plain = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True).decode()
        last, colon, key = plain.partition(":")
        if not (colon and key and last.isascii() and last.isdigit() and len(last) < 17):
            raise ValueError
    except (ValueError, binascii.Error):
        raise BadParameter("cursor", "this is no cursor that a page ended with") from None
    return int(last), key
