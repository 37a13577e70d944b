"""What is worked out before rows are stored may fail, and a row may be refused: it costs what it is about, no more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from arbiter import metrics
from arbiter.ledger import recorder
from arbiter.ledger.database import Statement
from arbiter.ledger.journal import JournalFile
from arbiter.ledger.recorder import Batch, Recorder, Stage
from arbiter.ledger.records import Row, encode_row
from arbiter.ledger.row import RequestRow
from arbiter.ledger.sqlstore import SqlStore
from arbiter.ledger.store import Position, Readable, StoreDown, StoreRefused
from tests.fakes.rows import attempt_row, request_row
from tests.fakes.stores import Place

LIMIT = 32 << 20


class Turns:
    """A stage as they are: it numbers requests, from what it remembers of those that are stored."""

    def __init__(self, fails: Callable[[RequestRow], Exception | None] = lambda row: None) -> None:
        self.known = 0
        self.takes = 0
        self._fails = fails
        self._taken: int | None = None

    def take(self, batch: Batch, store: Readable) -> None:
        self.takes += 1
        self._taken = self.known
        for row in batch.requests:
            error = self._fails(row)
            if error is not None:
                raise error
            self._taken += 1
            row.turn_index = self._taken
            row.agent = (row.agent or "") + "t"  # a row that is seen twice shows it

    def stored(self, batch: Batch) -> None:
        assert self._taken is not None
        self.known, self._taken = self._taken, None

    def forget(self) -> None:
        self._taken = None


class Marks:
    """Another one, behind it, with a statement of its own; `fails` says which rows it makes a bad one for."""

    def __init__(self, fails: Callable[[RequestRow], bool] = lambda row: False) -> None:
        self._fails = fails

    def take(self, batch: Batch, store: Readable) -> None:
        if batch.requests:
            column = "no_such_column" if any(map(self._fails, batch.requests)) else "warning"
            sql = f"UPDATE requests SET {column} = ? WHERE id = ?"
            batch.also.append(Statement(sql, [("marked", row.id) for row in batch.requests]))

    def stored(self, batch: Batch) -> None: ...

    def forget(self) -> None: ...


def is_number(*numbers: int) -> Callable[[RequestRow], bool]:
    ids = {f"r{number:08d}" for number in numbers}
    return lambda row: row.id in ids


def fill(folder: Path, requests: int) -> None:
    file = JournalFile(folder / "state", LIMIT)
    for number in range(requests):
        request = request_row(number)
        with file.writing() as txn:
            file.append(txn, [encode_row(attempt_row(request)), encode_row(request)])
    file.close()


def make(folder: Path, place: Place, stages: Sequence[Stage] = ()) -> Recorder:
    return Recorder(folder / "state", LIMIT, place.open, stages)


def drain(one: Recorder) -> None:
    while one.step():
        pass


def stored(place: Place, columns: str, attempts: int | None = None) -> list[tuple[object, ...]]:
    """What the requests say; there are as many `attempts`, each request's own if nothing else is said."""
    rows = [tuple(row) for row in place.sql(f"SELECT {columns} FROM requests ORDER BY id")]
    assert place.sql("SELECT COUNT(*) FROM attempts")[0][0] == (len(rows) if attempts is None else attempts)
    return rows


def test_a_stage_that_fails_on_one_row_costs_that_row_its_work_and_nothing_else(tmp_path, place, caplog):
    """It is found among a thousand records by halves; the other stages see it, and no row is worked on twice."""
    fill(tmp_path, 500)
    bad = is_number(321)
    turns = Turns(lambda row: ZeroDivisionError("one bad row") if bad(row) else None)
    one = make(tmp_path, place, [turns, Marks()])
    drain(one)
    assert (one.state().recorded, one.state().spoilt, one.state().rejected) == (1000, 1, 0)
    one.close()
    rows = stored(place, "turn_index, agent, warning")
    assert rows[321] == (None, None, "marked")
    assert rows[:321] == [(number + 1, "t", "marked") for number in range(321)]
    assert rows[322:] == [(number, "t", "marked") for number in range(322, 500)]
    assert turns.takes < 25
    assert "one bad row" in caplog.text and "Turns" in caplog.text and "Traceback" in caplog.text


def test_a_stage_that_fails_on_every_row_is_soon_left_alone(tmp_path, place, caplog):
    """All rows are stored without its work, in few batches; it is asked again with the next ones, and said once."""
    fill(tmp_path, 500)
    is_broken = True
    turns = Turns(lambda row: RuntimeError("a bug") if is_broken else None)
    one = make(tmp_path, place, [turns, Marks()])
    drain(one)
    assert turns.takes < 100
    is_broken = False
    file = JournalFile(tmp_path / "state", LIMIT)
    with file.writing() as txn:
        file.append(txn, [encode_row(request_row(900)), encode_row(attempt_row(request_row(900)))])
    file.close()
    drain(one)
    assert one.state().spoilt > 500
    one.close()
    rows = stored(place, "turn_index, warning")
    assert rows == [(None, "marked")] * 500 + [(1, "marked")]
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1


@pytest.mark.parametrize("fails", [is_number(7), lambda row: True], ids=["one row", "all rows"])
def test_a_statement_that_the_store_refuses_costs_its_stage_and_no_row(tmp_path, place, fails):
    """Wrong SQL is refused today and tomorrow: what waits for it would wait for ever."""
    fill(tmp_path, 100)
    one = make(tmp_path, place, [Turns(), Marks(fails)])
    drain(one)
    assert (one.state().rejected, one.state().depth) == (0, 0)
    one.close()
    rows = stored(place, "turn_index, warning")
    assert [turn for turn, _ in rows] == list(range(1, 101))
    marks = Counter(mark for _, mark in rows)
    assert marks == ({"marked": 99, None: 1} if fails(request_row(7)) and not fails(request_row(8)) else {None: 100})


def test_a_question_that_the_store_refuses_is_a_bug_of_the_stage_that_asked(tmp_path, place):
    class Asks(Turns):
        def take(self, batch: Batch, store: Readable) -> None:
            store.read(lambda database: database.rows("SELECT no_such_column FROM requests"))

    fill(tmp_path, 10)
    one = make(tmp_path, place, [Asks(), Marks()])
    drain(one)
    one.close()
    assert stored(place, "turn_index, warning") == [(None, "marked")] * 10


def test_a_stage_that_finds_the_store_down_loses_nothing(tmp_path, place):
    """It is asked again with the same rows, once the store is back, and remembers nothing of the first time."""
    fill(tmp_path, 10)
    is_down = True
    turns = Turns()

    class Looks(Marks):
        def take(self, batch: Batch, store: Readable) -> None:
            if is_down:
                raise StoreDown("somebody pulled the plug")

    one = make(tmp_path, place, [turns, Looks()])
    with pytest.raises(StoreDown):
        one.step()
    one._forget()
    assert (one.state().depth, one.state().spoilt, turns.known) == (20, 0, 0)
    is_down = False
    drain(one)
    one.close()
    assert stored(place, "turn_index, agent") == [(number + 1, "t") for number in range(10)]


def test_a_stage_that_cannot_remember_or_forget_stops_nobody(tmp_path, place):
    class Forgetful(Turns):
        def stored(self, batch: Batch) -> None:
            raise KeyError("lost")

        forget = stored

    fill(tmp_path, 10)
    one = make(tmp_path, place, [Forgetful(), Turns(lambda row: ValueError("bad") if is_number(3)(row) else None)])
    drain(one)
    one.close()
    assert len(stored(place, "id")) == 10


def picky(place: Place, refuses: Callable[[str], bool]) -> Callable[[], SqlStore]:
    """Opens stores that refuse some rows, as PostgreSQL does a text with a NUL in it."""

    def open_store() -> SqlStore:
        store = place.open()
        write = store.write

        def picks(batch: Sequence[Row], position: Position, also: Sequence[Statement] = ()) -> None:
            if any(type(row) is RequestRow and refuses(row.id) for row in batch):
                raise StoreRefused("invalid byte sequence")
            write(batch, position, also)

        store.write = picks  # type: ignore[method-assign]
        return store

    return open_store


def test_a_row_that_the_store_refuses_is_given_up_after_a_second_try(tmp_path, place, caplog):
    """On a connection made anew, which might have known better; then it is named, counted, and out of the way."""
    fill(tmp_path, 40)
    opened = picky(place, lambda key: key in ("r00000011", "r00000012"))
    one = Recorder(tmp_path / "state", LIMIT, opened, [Turns()])
    failures = 0
    for _ in range(30):
        failures += one._try_step() != recorder.PAUSE_S
    assert failures == 2 and one.state().healthy
    assert (one.state().rejected, one.state().depth, one.state().recorded) == (2, 0, 78)
    one.close()
    assert "invalid byte sequence" in caplog.text
    assert len(stored(place, "id", attempts=40)) == 38


def test_a_store_that_refuses_everything_is_waited_for(tmp_path, place):
    """So many bad rows in a row there are not: it is the store, and what was written down is not thrown away for it."""
    fill(tmp_path, 200)
    does_refuse = True
    one = Recorder(tmp_path / "state", LIMIT, picky(place, lambda key: does_refuse))
    for _ in range(200):
        one._try_step()
        if one.state().rejected == recorder.REFUSALS_IN_A_ROW:
            break
    for _ in range(5):
        one._try_step()
    state = one.state()
    assert not state.healthy and "invalid byte sequence" in state.reason
    assert state.rejected == recorder.REFUSALS_IN_A_ROW and state.depth > 300
    does_refuse = False
    while one._try_step() != recorder.PAUSE_S:
        pass
    assert one.state().healthy and one.state().depth == 0
    one.close()


def test_what_went_wrong_is_counted_where_metrics_are_read(tmp_path, place):
    """In a file beside the workers': whoever answers /metrics adds it up."""
    fill(tmp_path, 10)
    numbers = metrics.Metrics(tmp_path / "metrics-control.bin")
    one = Recorder(
        tmp_path / "state",
        LIMIT,
        place.open,
        [Turns(lambda row: ValueError("bad") if is_number(3)(row) else None)],
        numbers,
    )
    one._attempt()
    one.close()
    text = metrics.render([tmp_path / "metrics-control.bin"], "0")
    assert 'arbiter_ledger_stage_failures_total{stage="Turns"} 1' in text


@pytest.mark.parametrize("error", [TypeError("a bug of ours"), MemoryError()])
def test_a_bug_in_the_recorder_itself_is_an_hour_of_waiting_and_not_its_end(tmp_path, place, error):
    """Nothing is lost by trying again; a thread that ended would leave the rows where nobody sees them."""
    fill(tmp_path, 3)
    is_broken = True

    def fails(key: str) -> bool:
        if is_broken:
            raise error
        return False

    one = Recorder(tmp_path / "state", LIMIT, picky(place, fails))
    assert one._attempt() > 0
    assert not one.state().healthy and one.state().depth == 6
    is_broken = False
    one._attempt()
    assert one.state().healthy and one.state().depth == 0
    one.close()


def test_a_refusal_is_told_from_a_store_that_is_down(place):
    """A wrong statement and a row without what it must have are refused; a lock and a closed connection wait."""
    store = place.open(busy_s=0.05)
    for sql in ("INSERT INTO nobody (id) VALUES ('x')", "INSERT INTO requests (id) VALUES ('no trace id')"):
        with pytest.raises(StoreRefused):
            store.change(lambda database, sql=sql: database.run(sql))
    other = place.open()
    with other.database.transaction():
        other.database.run("INSERT INTO journal_positions (journal, position) VALUES ('j', 1)")
        with pytest.raises(StoreDown) as locked:
            store.write([request_row()], Position("j", 1))
    store.close()
    with pytest.raises(StoreDown) as closed:
        store.write([request_row()], Position("j", 1))
    other.close()
    assert not isinstance(locked.value, StoreRefused) and not isinstance(closed.value, StoreRefused)
