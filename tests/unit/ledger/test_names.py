"""Who may give a session its title, in real stores."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from arbiter.ledger import names
from arbiter.ledger.recorder import Batch
from arbiter.ledger.session_rows import SessionRow
from arbiter.ledger.sessions import Sessions, find
from arbiter.ledger.sqlstore import SqlStore
from arbiter.ledger.store import Position
from arbiter.sessions.naming import Name
from tests.fakes.rows import request_row
from tests.fakes.stores import Place

KEY = "ci s"


@pytest.fixture
def store(place: Place) -> Iterator[SqlStore]:
    store = place.open()
    batch = Batch([request_row(1, session="s")], [], [])
    Sessions(lambda: 0).take(batch, store)
    store.write(batch.requests, Position("j", 1), batch.also)
    yield store
    store.close()


def row(store: SqlStore) -> SessionRow:
    return store.read(lambda db: find(db, [KEY]))[KEY]


def told(store: SqlStore) -> tuple[str | None, str | None, str | None, int | None]:
    found = row(store)
    return found.title, found.summary, found.title_by, found.titled_ms


def by_alias(store: SqlStore, title: str, summary: str | None, at_ms: int) -> bool:
    return store.change(lambda db: names.by_alias(db, KEY, Name(title, summary), at_ms))


def by_agent(store: SqlStore, title: str, at_ms: int) -> None:
    store.change(lambda db: db.run_many(names.by_agents([(KEY, title, at_ms)])))


def by_operator(store: SqlStore, title: str, at_ms: int) -> bool:
    return store.change(lambda db: names.by_operator(db, KEY, title, at_ms))


def clear(store: SqlStore, at_ms: int) -> bool:
    return store.change(lambda db: names.clear(db, KEY, at_ms))


def test_the_same_again_changes_nothing_and_not_its_moment(store: SqlStore) -> None:
    """SPEC 8.4."""
    assert by_alias(store, "A", "a", 1) and told(store) == ("A", "a", "alias", 1)
    assert not by_alias(store, "A", "a", 2) and not by_alias(store, "A", None, 3)
    assert told(store) == ("A", "a", "alias", 1)
    assert by_alias(store, "A", "b", 4) and by_alias(store, "B", "b", 5)
    by_agent(store, "B", 6)
    assert told(store) == ("B", "b", "agent", 5), "the agent says what it is called already"
    by_agent(store, "C", 7)
    by_agent(store, "C", 8)
    assert told(store) == ("C", "b", "agent", 7)
    assert by_operator(store, "D", 9) and not by_operator(store, "D", 10)
    assert told(store) == ("D", "b", "operator", 9)


def test_an_agents_title_is_the_aliass_no_more(store: SqlStore) -> None:
    by_agent(store, "Agent's", 1)
    assert by_alias(store, "Alias's", "about", 2)
    assert told(store) == ("Agent's", "about", "agent", 2)


def test_an_operators_title_is_nobody_elses(store: SqlStore) -> None:
    by_operator(store, "Mine", 1)
    by_agent(store, "Agent's", 2)
    by_alias(store, "Alias's", None, 3)
    assert told(store) == ("Mine", None, "operator", 1)


def test_what_was_cleared_stays_so_until_an_operator_says_otherwise(store: SqlStore) -> None:
    by_alias(store, "A", "a", 1)
    assert store.read(lambda db: names.wants(db, KEY))
    assert clear(store, 2) and not clear(store, 3)
    assert not store.read(lambda db: names.wants(db, KEY))
    by_agent(store, "Agent's", 4)
    assert not by_alias(store, "A", "a", 5)
    assert told(store) == (None, None, "operator", 2)
    by_operator(store, "Mine", 6)
    assert store.read(lambda db: names.wants(db, KEY)), "its summary may be found out"


def test_one_without_a_title_can_be_told_to_stay_without(store: SqlStore) -> None:
    assert clear(store, 1) and not by_alias(store, "A", "a", 2) and row(store).title is None


def test_nobody_wants_to_know_of_a_session_that_is_none(store: SqlStore) -> None:
    assert not store.read(lambda db: names.wants(db, "ci gone"))
    assert not store.change(lambda db: names.by_alias(db, "ci gone", Name("A"), 1))


def test_later_turns_leave_the_name_alone(store: SqlStore) -> None:
    by_alias(store, "A", "a", 1)
    batch = Batch([request_row(2, session="s")], [], [])
    Sessions(lambda: 0).take(batch, store)
    store.write(batch.requests, Position("j", 2), batch.also)
    assert told(store) == ("A", "a", "alias", 1) and row(store).turns == 2
