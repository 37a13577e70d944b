"""Stores from before there were sessions: what their rows tell is counted once, and turns go on from there."""

from __future__ import annotations

import random
from typing import Any

import pytest

from arbiter.ledger import schema
from arbiter.ledger.recorder import Batch
from arbiter.ledger.row import RequestRow
from arbiter.ledger.session_rows import KINDS, SessionRow
from arbiter.ledger.sessions import Sessions
from arbiter.ledger.sqlstore import SqlStore
from arbiter.ledger.store import Position
from arbiter.ledger.tables import SESSIONS
from tests.fakes.rows import request_row
from tests.fakes.stores import Place, SqlitePlace

FIRST = """
id trace_id client_trace_id kind endpoint format_in stream:n received_ms:n finished_ms:n total_us:n overhead_us:n
first_byte_us:n client agent session parent_session request_kind labels model_asked alias rationale config_epoch
provider model attempts:n outcome error_class status:n message fidelity repairs bytes_in:n bytes_out:n user_agent
"""
"""The columns of `requests` in the first release's store, version 1 of the schema; numbers are marked."""


def old_store(place: Place, rows: list[RequestRow]) -> None:
    """A store as the first release made it, with its two tables, that holds these requests."""
    if isinstance(place, SqlitePlace):
        place.path.parent.mkdir(parents=True, exist_ok=True)
    types = schema.POSTGRESQL if place.kind == "postgresql" else schema.SQLITE
    columns = [
        (name, types["integer" if mark else "text"]) for name, _, mark in (one.partition(":") for one in FIRST.split())
    ]
    body = ", ".join(f"{name} {type}{' PRIMARY KEY' if name == 'id' else ''}" for name, type in columns)
    place.sql(f"CREATE TABLE requests ({body})")
    place.sql("CREATE TABLE attempts (id TEXT PRIMARY KEY, request_id TEXT, number BIGINT)")
    place.sql("CREATE TABLE journal_positions (journal TEXT PRIMARY KEY, position BIGINT NOT NULL)")
    place.sql("CREATE TABLE schema_version (version BIGINT NOT NULL)")
    place.sql("INSERT INTO schema_version (version) VALUES (1)")
    names = [name for name, _ in columns]
    for row in rows:
        values = ", ".join(map(_literal, (getattr(row, name) for name in names)))
        place.sql(f"INSERT INTO requests ({', '.join(names)}) VALUES ({values})")


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    return str(int(value)) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"


def put(store: SqlStore, sequence: int, *rows: RequestRow) -> None:
    batch = Batch(list(rows), [], [])
    Sessions(lambda: 0).take(batch, store)
    store.write(batch.requests, Position("j", sequence), batch.also)


def of(store: SqlStore) -> tuple[list[SessionRow], list[tuple[str, int | None]]]:
    """All sessions, and which turn each request was."""
    found = store.read(lambda db: db.rows(f"{SESSIONS.select} ORDER BY id"))
    turns = store.read(lambda db: db.rows("SELECT id, turn_index FROM requests ORDER BY id"))
    return [SESSIONS.load(SessionRow, one) for one in found], [(str(key), turn) for key, turn in turns]


def a_past(seed: int) -> list[RequestRow]:
    """Requests of every sort: several clients with one name, sub-agents, failures, calls that are no turns."""
    draw = random.Random(seed)
    rows = []
    for number in range(1, 61):
        session = draw.choice(["s", "it's", "t", None])
        child = session is not None and draw.random() < 0.2
        fields = {
            "session": f"{session}:a" if child else session,
            "parent_session": session if child else draw.choice([None, session]),
            "client": draw.choice(["ci", "other", None]),
            "agent": "claude-code",
            "outcome": draw.choice(["ok", "ok", "ok", "error", "cancelled", "interrupted"]),
            "request_kind": draw.choice([None, None, "main", *KINDS]),
            "endpoint": draw.choice(["chat", "chat", "messages", "count_tokens"]),
        }
        fields |= {"kind": "probe"} if number % 17 == 0 else {}
        fields |= {"finished_ms": None} if number % 13 == 0 else {}
        rows.append(request_row(number, **fields))
    return rows


@pytest.mark.parametrize("seed", range(3))
def test_a_store_without_sessions_gets_those_that_its_rows_tell_of(place: Place, seed: int) -> None:
    """The very ones that would be there if the rows came in today, one by one, with the same turns."""
    past = a_past(seed)
    old_store(place, past)
    store = place.open()
    seeded = of(store)
    store.close()
    place.sql("DROP TABLE sessions")
    place.sql("DELETE FROM requests")
    place.sql("DELETE FROM journal_positions")
    store = place.open()
    for sequence, row in enumerate(sorted(past, key=lambda row: (row.finished_ms or row.received_ms, row.id)), 1):
        put(store, sequence, row)
    assert of(store) == seeded and len(seeded[0]) > 9
    assert sum(turn is not None for _, turn in seeded[1]) > 5
    store.close()


def test_the_next_turn_of_an_old_session_goes_on_from_there(place: Place) -> None:
    old_store(place, [request_row(number, session="s") for number in range(1, 4)])
    store = place.open()
    put(store, 1, request_row(4, session="s"))
    (row,), turns = of(store)
    assert [turn for _, turn in turns] == [1, 2, 3, 4] and (row.turns, row.requests) == (4, 4)
    store.close()
    store = place.open()
    assert of(store) == ([row], turns), "a store is seeded once"
    store.close()


def test_a_new_store_is_seeded_with_nothing(place: Place) -> None:
    store = place.open()
    assert of(store) == ([], [])
    store.close()
