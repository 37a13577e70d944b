"""Sessions beside the rows that they are made of, in real stores: each request counts once, whatever comes twice."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from arbiter.ledger import titles
from arbiter.ledger.database import Statement
from arbiter.ledger.recorder import Batch
from arbiter.ledger.row import AttemptRow, RequestRow
from arbiter.ledger.session_rows import KINDS, SessionRow
from arbiter.ledger.sessions import Sessions, close_idle, end, find, key_of
from arbiter.ledger.store import Position
from tests.fakes.rows import BEGAN_MS, attempt_row, request_row
from tests.fakes.stores import Place

HOUR_MS = 3_600_000
IDLE_MS = 12 * HOUR_MS


class Books:
    """A store with the stage before it, as the recorder has them."""

    def __init__(self, place: Place, idle_ms: int = IDLE_MS, journal: str = "j") -> None:
        self.place, self.idle_ms, self.journal = place, idle_ms, journal
        self.store = place.open()
        self.sequence = 0
        self.restart()

    def restart(self) -> None:
        """Another control process."""
        self.store.close()
        self.store = self.place.open()
        self.stage = Sessions(lambda: self.idle_ms)

    def put(self, *requests: RequestRow, attempts: list[AttemptRow] | None = None, fails: bool = False) -> Batch:
        batch = self.take(*requests, attempts=attempts)
        if fails:
            self.stage.forget()
        else:
            self.write(batch)
        return batch

    def take(self, *requests: RequestRow, attempts: list[AttemptRow] | None = None) -> Batch:
        batch = Batch(list(requests), attempts or [], [])
        self.stage.take(batch, self.store)
        return batch

    def write(self, batch: Batch) -> None:
        self.sequence += 1
        self.store.write([*batch.requests, *batch.attempts], Position(self.journal, self.sequence), batch.also)
        self.stage.stored(batch)

    def get(self, session: str, client: str | None = "ci") -> SessionRow:
        key = key_of(client, session)
        return self.store.read(lambda db: find(db, [key]))[key]

    def all(self) -> list[str]:
        return [str(key) for (key,) in self.store.read(lambda db: db.rows("SELECT id FROM sessions ORDER BY id"))]

    def turns(self) -> list[int | None]:
        rows = self.store.read(lambda db: db.rows("SELECT turn_index FROM requests ORDER BY id"))
        return [turn for (turn,) in rows]


@pytest.fixture
def books(place: Place) -> Iterator[Books]:
    books = Books(place)
    yield books
    books.store.close()


def asked(number: int, session: str | None = "s", **fields: Any) -> RequestRow:
    return request_row(number, session=session, **fields)


# --- turns and counts -------------------------------------------------------------------------------------------------


def test_completed_calls_are_the_turns_of_their_session(books: Books) -> None:
    """SPEC 7.2: failed and auxiliary calls have none, and take none from those that follow."""
    books.put(asked(1), asked(2, outcome="error", status=502), asked(3, request_kind="title"))
    books.put(asked(4, request_kind="main"), asked(5, "t"), asked(6, endpoint="count_tokens"), asked(7, kind="probe"))
    books.put(asked(8, request_kind="compaction"), asked(9, request_kind="keepwarm"), asked(10, outcome="cancelled"))
    assert books.turns() == [1, None, None, 2, 1, None, None, None, None, None]
    row = books.get("s")
    assert (row.requests, row.turns, row.failed) == (8, 2, 2)
    assert (row.mains, row.titles, row.compactions, row.keepwarms, row.auxiliaries) == (1, 1, 1, 1, 0)
    assert (row.first_ms, row.last_ms) == (asked(1).received_ms, asked(10).finished_ms)


def test_a_batch_that_comes_again_counts_once(books: Books) -> None:
    """The store took nothing of the first try; and what it took once is known to it."""
    books.put(asked(1), fails=True)
    books.put(asked(1), asked(2), asked(1))
    books.put(asked(1), asked(2), asked(3))
    row = books.get("s")
    assert (row.requests, row.turns) == (3, 3) and books.turns() == [1, 2, 3]


@pytest.mark.parametrize("client", ["ci", None])
def test_turns_are_numbered_as_they_ended_whichever_worker_told_of_them_first(books: Books, client: str | None) -> None:
    """Of two workers that take turns in a session, one may write its rows down after the other's next ones."""
    one, two, three, four, five, six = (asked(number, client=client) for number in range(1, 7))
    books.put(asked(9, "t", client=client))
    books.put(two, one)
    assert books.turns() == [1, 2, 1]
    books.put(five, asked(9, "t", client=client))
    batch = books.put(six, three)
    assert books.turns() == [1, 2, 3, 4, 5, 1] and [row.turn_index for row in batch.requests] == [5, 3]
    books.put(four)
    assert books.turns() == [1, 2, 3, 4, 5, 6, 1] and books.get("s", client).turns == 6
    books.put(four)
    assert books.turns() == [1, 2, 3, 4, 5, 6, 1]


def test_another_control_process_goes_on_where_the_store_is(books: Books) -> None:
    for number in range(1, 5):
        books.put(asked(number))
        books.restart()
    assert books.turns() == [1, 2, 3, 4]


def test_one_name_from_two_clients_is_two_sessions(books: Books) -> None:
    """SPEC 8.2: no client gets into another's session."""
    books.put(asked(1), asked(2, client="other"), asked(3, client=None))
    assert books.all() == [" s", "ci s", "other s"]
    assert books.turns() == [1, 1, 1]


# --- two gateways on one store ----------------------------------------------------------------------------------------


@pytest.fixture
def fleet(place: Place) -> Iterator[list[Books]]:
    fleet = [Books(place, journal=f"j{number}") for number in range(3)]
    yield fleet
    for one in fleet:
        one.store.close()


@pytest.mark.parametrize("begun", [False, True])
def test_two_gateways_give_no_turn_of_a_session_twice(fleet: list[Books], begun: bool) -> None:
    """Both looked before either wrote: whoever writes later counts on from what the other has written."""
    one, other, _ = fleet
    if begun:
        one.put(asked(1))
    early, late = one.take(asked(2), asked(3, "t"), asked(4)), other.take(asked(5, "t"), asked(6), asked(7))
    one.write(early)
    other.write(late)
    first = int(begun)
    assert one.turns() == [1] * begun + [first + 1, 1, first + 2, 2, first + 3, first + 4]
    assert [row.turn_index for row in late.requests] == [2, first + 3, first + 4], "its rows know it too"
    assert (one.get("s").turns, one.get("t").turns) == (first + 4, 2)


def test_what_is_numbered_twice_because_a_value_had_to_be_made_storable_counts_every_turn_once(
    fleet: list[Books],
) -> None:
    """The first try of the transaction did not hold, and had told the rows their numbers."""
    one, other, _ = fleet
    one.put(asked(1))
    batch = one.take(asked(2), asked(4))
    other.put(asked(3))
    batch.also.append(Statement("UPDATE requests SET message = ? WHERE id = ?", [("\ud800", "r00000002")]))
    one.write(batch)
    assert one.turns() == [1, 2, 3, 4] and one.get("s").turns == 4


def test_gateways_that_write_at_once_number_every_turn_once(fleet: list[Books]) -> None:
    """Each in a thread, many small batches, the sessions in any order: no number twice, none left out, no deadlock."""
    batches, names = 20, ["a", "b", "c"]

    def run(which: int) -> None:
        draw = random.Random(which)
        for batch in range(batches):
            first = 1 + (which * batches + batch) * 6
            chosen = [draw.choice(names) for _ in range(6)]
            fleet[which].put(*(asked(first + at, name) for at, name in enumerate(chosen)))

    with ThreadPoolExecutor(len(fleet)) as threads:
        for done in [threads.submit(run, which) for which in range(len(fleet))]:
            done.result()
    sql = "SELECT turn_index FROM requests WHERE session = ? ORDER BY turn_index"
    for name in names:
        turns = fleet[0].store.read(lambda db, name=name: db.rows(sql, (name,)))
        assert turns == [(turn,) for turn in range(1, fleet[0].get(name).turns + 1)]
    assert sum(fleet[0].get(name).turns for name in names) == len(fleet) * batches * 6


# --- lineage ----------------------------------------------------------------------------------------------------------


def test_a_parent_is_written_once_and_an_unseen_one_gets_an_empty_row(books: Books) -> None:
    """SPEC 8.3."""
    books.put(asked(1, "child"))
    assert books.get("child").parent is None
    books.put(asked(2, "child", parent_session="p"))
    books.put(asked(3, "child", parent_session="q"), asked(4, "child", parent_session="child"))
    assert books.get("child").parent == "p"
    empty = books.get("p")
    assert (empty.requests, empty.turns, empty.first_ms, empty.last_ms, empty.ended_ms) == (0, 0, None, None, None)
    assert books.all() == ["ci child", "ci p"], "a parent that was not taken needs no row"
    books.put(asked(5, "p", agent="opencode"))
    seen = books.get("p")
    assert (seen.requests, seen.first_ms, seen.agent) == (1, asked(5).received_ms, "opencode")


def test_a_session_is_not_its_own_parent(books: Books) -> None:
    books.put(asked(1, "s", parent_session="s"))
    assert books.get("s").parent is None and books.all() == ["ci s"]


# --- what names no session --------------------------------------------------------------------------------------------


def test_what_names_no_session_is_one_until_its_client_falls_silent(books: Books) -> None:
    """SPEC 8.2: the old one is closed at its own last sign of life, and the next call opens another."""
    first = request_row(1)
    books.put(first, attempts=[attempt_row(first)])
    books.put(request_row(2), request_row(3, client="other"))
    name = f"ci:idle-{first.received_ms // 1000}"
    row = books.get(name)
    assert (row.requests, row.is_told, row.ended_ms) == (2, False, None)
    late = request_row(4, received_ms=first.received_ms + 2 * IDLE_MS, finished_ms=first.received_ms + 2 * IDLE_MS + 5)
    assert books.store.change(lambda db: close_idle(db, late.received_ms - IDLE_MS)) == 2
    assert (books.get(name).ended_ms, books.get(name).ended_by) == (request_row(2).finished_ms, "idle")
    books.put(late)
    assert late.session == f"ci:idle-{late.received_ms // 1000}" and late.turn_index == 1
    assert books.get(name).ended_ms == request_row(2).finished_ms


def test_the_attempts_of_a_grouped_request_belong_to_its_session_wherever_they_are(books: Books) -> None:
    row = request_row(1, attempts=2)
    books.put(attempts=[attempt_row(row, 1, outcome="error")])
    books.put(row, attempts=[attempt_row(row, 2)])
    found = books.store.read(lambda db: db.rows("SELECT session FROM attempts"))
    assert found == [(row.session,)] * 2


def test_an_attempt_that_comes_twice_is_one_of_its_request(books: Books) -> None:
    """A worker that was taken for dead tells its end again: the other attempt is still the one stored before."""
    row = request_row(1, attempts=2)
    books.put(attempts=[attempt_row(row, 1, outcome="error")])
    books.put(row, attempts=[attempt_row(row, 2, outcome="interrupted"), attempt_row(row, 2)])
    assert books.store.read(lambda db: db.rows("SELECT session FROM attempts")) == [(row.session,)] * 2


def test_strangers_refused_calls_and_token_counts_begin_no_session(books: Books) -> None:
    books.put(request_row(1, client=None), request_row(2, endpoint="count_tokens"), request_row(3, model_asked=None))
    assert books.all() == []


def test_rows_that_waited_for_the_store_are_grouped_by_when_they_came(books: Books) -> None:
    """Rows may wait in the journal for a day; what closed the session meanwhile did not know of them."""
    books.put(request_row(1))
    books.store.change(lambda db: close_idle(db, BEGAN_MS * 2))
    books.put(request_row(2))
    (key,) = books.all()
    assert books.get(key.split()[1]).ended_ms is None


def test_without_an_idle_time_out_nothing_is_grouped(books: Books) -> None:
    books.idle_ms = 0
    books.put(request_row(1))
    assert books.all() == []


# --- titles -----------------------------------------------------------------------------------------------------------


def title(number: int, **fields: Any) -> RequestRow:
    return request_row(number, request_kind="title", opener="0f" * 16, **fields)


def begins(number: int, session: str | None = "s", **fields: Any) -> RequestRow:
    return asked(number, session, **{"opener": "0f" * 16, **fields})


@pytest.mark.parametrize("is_before", [True, False])
@pytest.mark.parametrize("is_apart", [True, False])
def test_a_title_nests_under_the_conversation_that_begins_with_its_text(
    books: Books, is_before: bool, is_apart: bool
) -> None:
    """SPEC 8.3; whichever of the two is over first, and in one batch or in two."""
    one, other = title(1), begins(2)
    attempts = {row.id: [attempt_row(row, session=row.session)] for row in (one, other)}
    rows = [one, other] if is_before else [other, one]
    for batch in [[row] for row in rows] if is_apart else [rows]:
        books.put(*batch, attempts=[attempt for row in batch for attempt in attempts[row.id]])
    row = books.get("s")
    assert (row.requests, row.turns, row.titles) == (2, 1, 1) and books.all() == ["ci s"]
    found = books.store.read(lambda db: db.rows("SELECT session FROM requests UNION ALL SELECT session FROM attempts"))
    assert found == [("s",)] * 4


def test_a_title_nests_under_a_conversation_without_a_name_too(books: Books) -> None:
    books.put(title(1), begins(2, None))
    (key,) = books.all()
    row = books.get(key.split()[1])
    assert (row.requests, row.titles, row.is_told) == (2, 1, False)


@pytest.mark.parametrize(
    "fields",
    [
        {"client": "other"},
        {"opener": "1e" * 16},
        {"received_ms": BEGAN_MS + 2 * HOUR_MS},
        {"request_kind": "title"},
    ],
    ids=["another client", "another text", "another hour", "another title"],
)
def test_a_title_that_names_nothing_known_waits_without_a_session(books: Books, fields: dict[str, Any]) -> None:
    one = title(1)
    books.put(one)
    books.put(begins(2, **fields))
    found = books.store.read(lambda db: db.rows("SELECT session FROM requests WHERE id = ?", (one.id,)))
    assert found == [(None,)]
    assert books.store.read(lambda db: db.rows("SELECT SUM(requests) FROM sessions"))[0][0] == 1


def test_a_title_that_waited_is_counted_once(books: Books) -> None:
    books.put(title(1))
    books.put(begins(2), fails=True)
    books.put(begins(2), title(1))
    books.put(begins(2), begins(3), title(1))
    assert (books.get("s").requests, books.get("s").titles) == (3, 1)


def test_not_more_titles_are_adopted_at_once_than_a_batch_has_room_for(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody may ask for titles all day, and hold one conversation."""
    monkeypatch.setattr(titles, "MOST_WAITING", 3)
    books.put(*(title(number) for number in range(1, 8)))
    books.put(begins(9))
    sql = "SELECT id FROM requests WHERE session = 's' AND request_kind = 'title' ORDER BY id"
    found = books.store.read(lambda db: db.rows(sql))
    assert found == [(title(number).id,) for number in (5, 6, 7)]
    assert books.get("s").titles == 3


# --- two gateways at once ---------------------------------------------------------------------------------------------

ROUNDS = 12


@pytest.fixture
def pair(place: Place) -> Iterator[tuple[Books, Books]]:
    both = Books(place), Books(place, journal="k")
    yield both
    for one in both:
        one.store.close()


def at_once(pair: tuple[Books, Books], *requests: RequestRow) -> None:
    """Each gateway has one of the two: both look before either writes, and then both write."""
    together = threading.Barrier(2, timeout=30)

    def record(books: Books, request: RequestRow) -> None:
        together.wait()
        batch = books.take(request, attempts=[attempt_row(request, session=request.session)])
        together.wait()
        books.write(batch)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(record, pair, requests))


def test_a_title_that_two_conversations_could_have_is_of_one_of_them(pair: tuple[Books, Books]) -> None:
    """Each finds it waiting; whose it is in the end counts it, and is called by it."""
    here = pair[0]
    for number in range(ROUNDS):
        opener = f"{number:032x}"
        here.put(request_row(3 * number + 1, request_kind="title", opener=opener))
        at_once(
            pair,
            begins(3 * number + 2, f"a{number}", opener=opener),
            begins(3 * number + 3, f"b{number}", opener=opener),
        )
        ((owner,),) = here.store.read(
            lambda db, opener=opener: db.rows(
                "SELECT session FROM requests WHERE opener = ? AND request_kind = 'title'", (opener,)
            )
        )
        counted = {name: here.get(name).titles for name in (f"a{number}", f"b{number}")}
        assert counted == {name: int(name == owner) for name in counted}


def test_a_title_and_its_conversation_find_each_other_also_when_they_come_at_once(pair: tuple[Books, Books]) -> None:
    """Neither sees the other when it looks."""
    here = pair[0]
    for number in range(ROUNDS):
        opener = f"{number:032x}"
        apart = request_row(2 * number + 1, request_kind="title", opener=opener)
        at_once(pair, apart, begins(2 * number + 2, f"s{number}", opener=opener))
        assert (here.get(f"s{number}").titles, here.get(f"s{number}").requests) == (1, 2)
        for table, column in (("requests", "id"), ("attempts", "request_id")):
            sql = f"SELECT session FROM {table} WHERE {column} = ?"
            found = here.store.read(lambda db, sql=sql, title=apart.id: db.rows(sql, (title,)))
            assert found == [(f"s{number}",)]


def test_what_a_client_asks_of_two_gateways_without_a_name_is_one_session(pair: tuple[Books, Books]) -> None:
    """Though they came in different seconds, and so would have begun sessions of different names."""
    here = pair[0]
    for number in range(ROUNDS):
        client = f"c{number}"
        at_once(pair, request_row(2 * number + 1, client=client), request_row(2 * number + 90, client=client))
        sql = "SELECT session FROM requests WHERE client = ? UNION SELECT session FROM attempts WHERE client = ?"
        ((name,),) = here.store.read(lambda db, sql=sql, client=client: db.rows(sql, (client, client)))
        row = here.get(name, client)
        assert (row.requests, row.turns, row.is_told) == (2, 2, False)
    assert len(here.all()) == ROUNDS


# --- ends -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ended_by", ["idle", "operator"])
def test_a_later_call_opens_a_told_session_again(books: Books, ended_by: str) -> None:
    books.put(asked(1))
    at_ms = asked(1).finished_ms or 0
    if ended_by == "operator":
        assert books.store.change(lambda db: end(db, "ci s", at_ms))
        assert not books.store.change(lambda db: end(db, "ci s", at_ms + 1)), "it is ended already"
    else:
        books.store.change(lambda db: close_idle(db, at_ms + 1))
    assert (books.get("s").ended_ms, books.get("s").ended_by) == (at_ms, ended_by)
    books.put(asked(2, received_ms=at_ms - 1, finished_ms=at_ms + 5000))
    assert books.get("s").ended_by == ended_by, "it was under way when the session was ended"
    books.put(asked(3, received_ms=at_ms + 6000))
    row = books.get("s")
    assert (row.ended_ms, row.ended_by, row.turns) == (None, None, 3)


def test_a_group_that_an_operator_ended_is_not_gone_on_with(books: Books) -> None:
    books.put(request_row(1))
    (key,) = books.all()
    books.store.change(lambda db: end(db, key, request_row(2).received_ms))
    books.put(request_row(3))
    assert len(books.all()) == 2


def test_what_is_used_is_not_closed(books: Books) -> None:
    books.put(asked(1), asked(5, "t"))
    assert books.store.change(lambda db: close_idle(db, asked(3).received_ms)) == 1
    assert books.get("s").ended_ms is not None and books.get("t").ended_ms is None


def test_every_kind_of_request_is_counted_in_a_column_of_its_own() -> None:
    from arbiter.sessions import signals

    assert tuple(KINDS) == signals.KINDS
    assert set(KINDS.values()) <= set(SessionRow.__struct_fields__)
