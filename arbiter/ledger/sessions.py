"""Sessions, kept beside the rows that they are made of (SPEC 7.2, 8.2, 8.3).

Theory of operation. A batch brings requests that are over. Each is added to its session's row in the transaction that
stores it, as a change of what stands there and never as a whole new row: what an operator writes into the same row
meanwhile is not lost. Nothing is remembered between two batches, so that a batch that comes again, or another control
process, finds what the store has. A request that the store has already changes nothing; one that was taken for
interrupted, and tells now how it ended, counts as that and not once more. Turns are numbered in the order in which they
ended, by what is there before the transaction, and numbered anew within it where another gateway's came in between, or
where later ones are stored already: each worker writes its rows down in its own time.

What a client asks without naming a session is one session for as long as it is not silent for `sessions.idle_timeout`:
it is named after the client and the second in which it began. Sessions that were told are closed by the same silence.
Closing is a note and no gate: a call that comes later opens them again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec

from arbiter.ledger import titles
from arbiter.ledger.audit import new_id
from arbiter.ledger.database import Database, Statement
from arbiter.ledger.recorder import Batch
from arbiter.ledger.row import RequestRow
from arbiter.ledger.session_rows import APART, KINDS, NO_TURNS, NoteRow, SessionRow
from arbiter.ledger.store import Store
from arbiter.ledger.tables import NOTES, SESSIONS

IDLE, OPERATOR = "idle", "operator"

_COUNTS = ("requests", "turns", "failed", *KINDS.values())
# What requests add to: the other columns are an operator's, or the closer's.
_ADDED = ("id", "session", "client", "agent", "parent", "is_told", "first_ms", "last_ms", *_COUNTS)
_added = attrgetter(*_ADDED)


class _Before(NamedTuple):
    """A session as it is stored."""

    parent: str | None
    turns: int
    ended_ms: int | None
    last_ms: int


def key_of(client: str | None, session: str) -> str:
    """`SessionRow.id`. Neither has a space in it."""
    return f"{client or ''} {session}"


def is_turn(row: RequestRow) -> bool:
    """Whether this is a turn of its session: a completed generation, and no auxiliary call."""
    if row.kind != "client" or row.outcome != "ok" or row.endpoint in APART:
        return False
    return row.request_kind not in NO_TURNS


def group_name(client: str, at_ms: int) -> str:
    """What a client's requests without a session are called together, from `at_ms` on."""
    return f"{client}:idle-{at_ms // 1000}"


class Sessions:
    """The stage of the recorder (`recorder.Stage`). `idle_ms` is `sessions.idle_timeout` as it is now; 0: off."""

    def __init__(self, idle_ms: Callable[[], int]) -> None:
        self._idle_ms = idle_ms

    def take(self, batch: Batch, store: Store) -> None:
        rows: dict[str, RequestRow] = {}
        for row in batch.requests:
            # One id may even come twice in one batch: what is stored in the end counts.
            if row.kind == "client" and (row.id not in rows or _is_truer(row, rows[row.id].outcome)):
                rows[row.id] = row
        if not rows:
            return
        known = store.read(lambda db: _stored(db, list(rows)))
        fresh = [row for row in rows.values() if row.id not in known]
        mended = [row for row in rows.values() if row.id in known and _is_truer(row, known[row.id].outcome)]
        groups = self._group([row for row in fresh if not titles.waits(row)], store)
        found = {row.id: row for row in mended if row.session is None}
        for row in found.values():
            row.session = known[row.id].session
        _follow(batch, groups | {key: row for key, row in found.items() if row.session is not None})
        told = sorted((row for row in (*fresh, *mended) if row.session is not None), key=_ended)
        if not told and not titles.concerns(fresh):
            return
        ids = {key_of(row.client, row.session) for row in told if row.session is not None}
        present = store.read(lambda db: _present(db, ids))
        changes: dict[str, SessionRow] = {}
        untold = {(row.client, row.session) for row in groups.values()}
        for row in told:
            is_told = (row.client, row.session) not in untold
            is_counted = row.id in known and known[row.id].session is not None
            _add(row, changes, present, is_told=is_told, is_counted=is_counted)
        batch.also.append(partial(_change, batch=batch, fresh=fresh, changes=changes, present=present))
        if turns := [row for row in told if row.turn_index is not None]:
            counts = {key_of(row.client, row.session): row.turn_index for row in turns if row.session is not None}
            batch.also.append(partial(_number, turns=turns, counts=counts, late=_late(turns, present)))

    def stored(self, batch: Batch) -> None:
        """Nothing is remembered."""

    def forget(self) -> None:
        """Nothing is remembered."""

    def _group(self, rows: Sequence[RequestRow], store: Store) -> dict[str, RequestRow]:
        """Give a session to those that name none; returns them by their ids.

        One that is begun is written down at once: another gateway on the store, to which the same client speaks, is to
        find it before it begins one of its own.
        """
        idle_ms = self._idle_ms()
        untold = [row for row in rows if row.session is None and row.client is not None and _generates(row)]
        if not untold or not idle_ms:
            return {}
        clients = {row.client for row in untold if row.client is not None}
        if _assign(untold, store.read(lambda db: _last_groups(db, clients)), idle_ms):
            store.change(partial(_begin, untold=untold, clients=clients, idle_ms=idle_ms))
        return {row.id: row for row in untold}


def _assign(untold: Sequence[RequestRow], last: dict[str, SessionRow | None], idle_ms: int) -> list[SessionRow]:
    """Give each of them its session, going on from the last of its client; returns those that are begun."""
    begun = []
    for row in untold:
        client = row.client
        assert client is not None
        group = last[client]
        if group is None or group.ended_by == OPERATOR or row.received_ms - (group.last_ms or 0) > idle_ms:
            name = group_name(client, row.received_ms)
            group = SessionRow(id=key_of(client, name), session=name, client=client, is_told=False)
            group.first_ms = row.received_ms
            last[client] = group
            begun.append(group)
        row.session = group.session
        group.last_ms = max(group.last_ms or 0, _over_ms(row))
    return begun


def _begin(db: Database, *, untold: Sequence[RequestRow], clients: Iterable[str], idle_ms: int) -> None:
    for client in sorted(clients):
        db.alone(f"sessions of {client}")
    db.run_many(SESSIONS.inserts(_assign(untold, _last_groups(db, clients), idle_ms)))


def close_idle(db: Database, before_ms: int) -> int:
    """Close what has been silent since `before_ms`, at its own last sign of life; returns how many there were."""
    sql = "UPDATE sessions SET ended_ms = last_ms, ended_by = ? WHERE ended_ms IS NULL AND last_ms < ?"
    return db.run(sql, (IDLE, before_ms))


def end(db: Database, key: str, at_ms: int) -> bool:
    """An operator ends a session; whether there was one to end."""
    sql = "UPDATE sessions SET ended_ms = ?, ended_by = ? WHERE id = ? AND (ended_ms IS NULL OR ended_by = ?)"
    return db.run(sql, (at_ms, OPERATOR, key, IDLE)) > 0


def add_note(db: Database, key: str, at_ms: int, who: str, text: str) -> NoteRow:
    """Attach an operator's note to the session `key`."""
    note = NoteRow(id=new_id(at_ms), session_id=key, at_ms=at_ms, who=who, text=text)
    db.run_many(NOTES.inserts([note]))
    return note


def find(db: Database, ids: Iterable[str]) -> dict[str, SessionRow]:
    """The sessions of these ids, as far as there are any."""
    wanted = sorted(ids)
    marks = ", ".join("?" * len(wanted))
    found = db.rows(f"{SESSIONS.select} WHERE id IN ({marks})", wanted) if wanted else []
    return {row.id: row for row in (SESSIONS.load(SessionRow, values) for values in found)}


class _Known(NamedTuple):
    """What the store has of a request."""

    outcome: str
    session: str | None


def _stored(db: Database, ids: Sequence[str]) -> dict[str, _Known]:
    marks = ", ".join("?" * len(ids))
    found = db.rows(f"SELECT id, outcome, session FROM requests WHERE id IN ({marks})", ids)
    return {str(id): _Known(*known) for id, *known in found}


def _is_truer(row: RequestRow, than: str) -> bool:
    """Whether this tells how something ended that was taken for interrupted (`tables.Table.mends`)."""
    return than == "interrupted" and row.outcome != "interrupted"


def _present(db: Database, ids: Iterable[str]) -> dict[str, _Before]:
    """What is to be known of the sessions of these ids, as far as there are any."""
    wanted = sorted(ids)
    if not wanted:
        return {}
    sql = f"SELECT id, parent, turns, ended_ms, last_ms FROM sessions WHERE id IN ({', '.join('?' * len(wanted))})"
    return {
        key: _Before(parent, turns or 0, ended_ms, last_ms or 0)
        for key, parent, turns, ended_ms, last_ms in db.rows(sql, wanted)
    }


def _last_groups(db: Database, clients: Iterable[str]) -> dict[str, SessionRow | None]:
    return {client: _last_group(db, client) for client in clients}


def _last_group(db: Database, client: str) -> SessionRow | None:
    sql = f"{SESSIONS.select} WHERE client = ? AND is_told = 0 ORDER BY last_ms DESC LIMIT 1"
    found = db.rows(sql, (client,))
    return SESSIONS.load(SessionRow, found[0]) if found else None


def _generates(row: RequestRow) -> bool:
    """Whether it was let in and asked for an answer: a refused stranger begins no session."""
    return row.endpoint not in APART and row.model_asked is not None


def _over_ms(row: RequestRow) -> int:
    return row.finished_ms or row.received_ms


def _ended(row: RequestRow) -> tuple[int, str]:
    return _over_ms(row), row.id


def _late(turns: Sequence[RequestRow], present: Mapping[str, _Before]) -> set[str]:
    """The sessions of which something is stored that ended later than one of their `turns`."""
    late = set()
    for row in turns:
        assert row.session is not None
        key = key_of(row.client, row.session)
        if key in present and present[key].last_ms > _over_ms(row):
            late.add(key)
    return late


def _follow(batch: Batch, groups: dict[str, RequestRow]) -> None:
    """The attempts of grouped requests are of the same session, also those that were stored before."""
    here: defaultdict[str, set[str]] = defaultdict(set)  # ids: one attempt may come twice in a batch
    for attempt in batch.attempts:
        if attempt.request_id in groups:
            here[attempt.request_id].add(attempt.id)
            attempt.session = groups[attempt.request_id].session
    behind = [(row.session, row.id) for row in groups.values() if len(here[row.id]) < row.attempts]
    if behind:
        batch.also.append(Statement("UPDATE attempts SET session = ? WHERE request_id = ?", behind))


def _add(
    row: RequestRow, changes: dict[str, SessionRow], present: Mapping[str, _Before], *, is_told: bool, is_counted: bool
) -> None:
    """One request more for its session, or the end of one that `is_counted` as interrupted.

    What `changes` holds are differences to what is stored.
    """
    assert row.session is not None
    key = key_of(row.client, row.session)
    before = present.get(key)
    change = changes.get(key)
    if change is None:
        change = changes[key] = SessionRow(id=key, session=row.session, client=row.client, is_told=is_told)
    if change.agent is None:
        change.agent = row.agent
    is_orphan = change.parent is None and (before is None or before.parent is None)
    if is_orphan and row.parent_session != row.session:
        change.parent = row.parent_session
    change.first_ms = min(change.first_ms or row.received_ms, row.received_ms)
    change.last_ms = max(change.last_ms or 0, _over_ms(row))
    change.requests += not is_counted
    change.failed += (row.outcome != "ok") - is_counted
    if row.request_kind in KINDS and not is_counted:
        column = KINDS[row.request_kind]
        setattr(change, column, getattr(change, column) + 1)
    row.turn_index = None
    if is_turn(row):
        change.turns += 1
        row.turn_index = (before.turns if before is not None else 0) + change.turns
    if before is not None and before.ended_ms is not None and row.received_ms > before.ended_ms:
        change.ended_ms = before.ended_ms


def _change(
    db: Database,
    *,
    batch: Batch,
    fresh: Sequence[RequestRow],
    changes: Mapping[str, SessionRow],
    present: Mapping[str, _Before],
) -> None:
    """Titles find their conversations, and sessions are changed by what is theirs."""
    batch.adopted = titles.adopt(db, fresh)
    changes = {key: msgspec.structs.replace(change) for key, change in changes.items()}
    ids = {key_of(row.client, row.session) for row in batch.adopted if row.session is not None}
    present = {**_present(db, ids - present.keys()), **present}
    for row in batch.adopted:
        _add(row, changes, present, is_told=True, is_counted=False)
    for statement in _statements(changes, present):
        db.run_many(statement)


def _statements(changes: Mapping[str, SessionRow], present: Mapping[str, _Before]) -> list[Statement]:
    """Parents that nobody has seen, the changes themselves, and what is open again."""
    unseen = {}
    ordered = sorted(changes.values(), key=lambda change: change.id)  # two gateways are not to wait for each other
    for change in ordered:
        if change.parent is not None:
            key = key_of(change.client, change.parent)
            if key not in changes and key not in present:
                unseen[key] = SessionRow(id=key, session=change.parent, client=change.client)
    again = [(change.id, change.ended_ms) for change in ordered if change.ended_ms is not None]
    statements = [SESSIONS.inserts([unseen[key] for key in sorted(unseen)])] if unseen else []
    statements.append(Statement(_ADD, [_added(change) for change in ordered]))
    if again:
        # Whoever ended it once more since we looked has the last word.
        sql = "UPDATE sessions SET ended_ms = NULL, ended_by = NULL WHERE id = ? AND ended_ms = ?"
        statements.append(Statement(sql, again))
    return statements


def _number(
    db: Database, *, turns: Sequence[RequestRow], counts: Mapping[str, int | None], late: Collection[str]
) -> None:
    """Number `turns` by what their sessions count now, which nobody else can change before we are done.

    They mostly are: only another gateway, on the same store, may have added turns since `take` looked, after which
    there were `counts`; the rows themselves have other numbers since, where this is done again. Where one has, and of
    the sessions in `late`, later turns may be stored already; they move up.
    """
    by_session: defaultdict[str, list[RequestRow]] = defaultdict(list)
    for row in turns:
        assert row.session is not None
        by_session[key_of(row.client, row.session)].append(row)
    marks = ", ".join("?" * len(by_session))
    moved = []
    for key, count in db.rows(f"SELECT id, turns FROM sessions WHERE id IN ({marks})", list(by_session)):
        if key in late or counts[key] != count:
            moved += _in_order(db, by_session[key], count)
    db.run_many(Statement("UPDATE requests SET turn_index = ? WHERE id = ?", moved))


def _in_order(db: Database, rows: Sequence[RequestRow], count: int) -> list[tuple[int, str]]:
    """The turns of a session whose numbers are others now that `rows` are among them; `count` is how many it has had.

    What ended before all of them keeps its number, and need not be stored any more.
    """
    sql = (
        "SELECT id, turn_index FROM requests WHERE session = ? AND COALESCE(client, '') = ? AND turn_index IS NOT NULL"
        " AND COALESCE(finished_ms, received_ms) >= ? ORDER BY COALESCE(finished_ms, received_ms), id"
    )
    found = db.rows(sql, (rows[0].session, rows[0].client or "", min(map(_over_ms, rows))))
    ours = {row.id: row for row in rows}
    moved = []
    for number, (id, known) in enumerate(found, count - len(found) + 1):
        if id in ours:
            ours[id].turn_index = number
        if known != number:
            moved.append((number, id))
    return moved


def _sql() -> str:
    earliest = "CASE WHEN sessions.first_ms < excluded.first_ms THEN sessions.first_ms ELSE excluded.first_ms END"
    latest = "CASE WHEN sessions.last_ms > excluded.last_ms THEN sessions.last_ms ELSE excluded.last_ms END"
    sets: dict[str, Any] = {
        "agent": "COALESCE(sessions.agent, excluded.agent)",
        "parent": "COALESCE(sessions.parent, excluded.parent)",
        "first_ms": earliest,
        "last_ms": latest,
        **{name: f"COALESCE(sessions.{name}, 0) + excluded.{name}" for name in _COUNTS},
    }
    marks = ", ".join("?" * len(_ADDED))
    changed = ", ".join(f"{name} = {value}" for name, value in sets.items())
    return f"INSERT INTO sessions ({', '.join(_ADDED)}) VALUES ({marks}) ON CONFLICT (id) DO UPDATE SET {changed}"


_ADD: Final = _sql()
