"""What a store keeps, finds again, and refuses, whichever database it is in."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import os
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from arbiter import clock
from arbiter.ledger import schema, sqlite
from arbiter.ledger.database import Statement
from arbiter.ledger.opening import open_store
from arbiter.ledger.query import BadParameter, Filters, parse, read_cursor, since, write_cursor
from arbiter.ledger.row import AttemptRow, RequestRow
from arbiter.ledger.store import (
    Changer,
    Counts,
    Position,
    QueryTooSlow,
    Reader,
    StoreDown,
    StoreMissing,
    StoreMoved,
    StoreOld,
)
from tests.fakes.gateway import ROOT
from tests.fakes.rows import BEGAN_MS, attempt_row, request_row
from tests.fakes.stores import SqlitePlace

AT = Position("j", 1)


@pytest.fixture
def sqlite_place(tmp_path):
    return SqlitePlace(tmp_path / "data" / "arbiter.db")


@pytest.fixture
def sqlite_store(sqlite_place):
    one = sqlite_place.open()
    yield one
    one.close()


def ids(page):
    return [entry.request.id for entry in page.entries]


def test_every_field_comes_back_as_it_went_in(store):
    """Unknown stays None, lists and maps stay lists and maps, true stays true."""
    request = request_row(
        labels={"issue": "12", "ü": "ß\x00"}, repairs=["done"], message="naïve ✓ \\ ' %s ? \t\n", client=None
    )
    attempt = attempt_row(request, tool_names=["grep", "ls"], finish_inferred=True, cached_tokens=None)
    store.write([attempt, request], AT)
    entry = store.request(request.id)
    assert entry is not None
    assert (entry.request, entry.attempts) == (request, [attempt])
    assert store.request("nobody") is None


def test_what_no_column_holds_costs_a_character_and_not_the_row(place, store):
    """A NUL, half a character: PostgreSQL has no place for the first, and neither for the second."""
    odd = request_row(1, message="a\x00b", user_agent="half: \ud83d")
    also = Statement("UPDATE requests SET rationale = ? WHERE id = ?", [("c\x00d", odd.id)])
    store.write([odd, request_row(2)], AT, [also])
    entry = store.request(odd.id)
    assert entry is not None and store.request("r00000002") is not None
    assert entry.request.user_agent == "half: ?"
    assert (entry.request.message, entry.request.rationale) == ("ab", "cd")
    assert ids(store.requests(Filters(session="a\x00b"))) == []  # to ask for one is no fault either


@pytest.mark.parametrize("together", [True, False])
def test_what_was_taken_for_interrupted_is_put_right_and_nothing_else_is(store, together):
    """Whatever came with it, the other rows of the batch are stored once. Only the session may be told by neither."""
    begun = {"session": "found", "message": "the process ended", "status": None, "finished_ms": None, "total_us": None}
    guess = request_row(1, outcome="interrupted", **begun)
    tried = attempt_row(guess, outcome="interrupted", tool_names=["guess"], **begun)
    truth, other = request_row(1, outcome="error", status=502), request_row(2)
    ended = attempt_row(truth)
    known = [attempt_row(other), other]
    batches = [[tried, guess, *known, ended, truth]] if together else [[tried, guess, *known], [ended, truth]]
    batches += [[attempt_row(other, outcome="error"), request_row(2, outcome="interrupted"), request_row(3)]]
    batches += [[tried, guess, attempt_row(truth, outcome="cancelled"), request_row(1, outcome="ok")]]
    for at, batch in enumerate(batches, 1):
        store.write(batch, Position("j", at))
    entries = {entry.request.id: entry for entry in store.requests(Filters()).entries}
    assert len(entries) == 3
    mended, untouched = entries[truth.id], entries[other.id]
    assert mended.request == msgspec.structs.replace(truth, session="found")
    assert mended.attempts == [msgspec.structs.replace(ended, session="found")]
    assert (untouched.request, untouched.attempts) == (other, known[:1])


def test_what_changes_with_rows_is_done_with_them(store):
    """For each of its rows, in the rows' own transaction; what cannot be done takes the rows with it."""
    first, second = request_row(1), request_row(2)
    titles = [("one % two ?", first.id), ("three", second.id)]
    statement = Statement("UPDATE requests SET rationale = ? WHERE id = ? AND endpoint <> '?%'", titles)
    store.write([first, second], AT, [statement, Statement("UPDATE requests SET alias = ? WHERE id = ?", [])])
    assert [entry.request.rationale for entry in store.requests(Filters()).entries] == ["three", "one % two ?"]
    with pytest.raises(StoreDown):
        store.write([request_row(3)], Position("j", 2), [Statement("UPDATE no_table SET a = ?", [(1,)])])
    assert (store.counts().requests, store.position("j")) == (2, 1)


def test_a_change_is_whole_or_not_at_all(store):
    store.write([request_row(1)], AT)
    sql = "UPDATE requests SET client = ? WHERE id = ?"

    def half(db):
        assert db.run(sql, ("other", "r00000001")) == 1
        raise KeyError("the second half")

    with pytest.raises(KeyError):
        store.change(half)
    assert ids(store.requests(Filters(client="other"))) == []
    assert store.change(lambda db: (db.run(sql, ("other", "r00000001")), db.run(sql, ("other", "nobody")))) == (1, 0)
    assert ids(store.requests(Filters(client="other"))) == ["r00000001"]


def test_numbers_come_back_as_numbers(store):
    """A sum is a whole number, a mean is none, a comparison is 1 or 0: the same questions have the same answers."""
    big = 2**62
    store.write([request_row(number, cost_pd=big, stream=number > 1) for number in range(3)], AT)
    sql = (
        "SELECT SUM(cost_pd / 4), AVG(status), COUNT(*), MAX(id), SUM(stream), MAX(CASE WHEN status = ? THEN ? END),"
        " 2 > 1, SUM(attempts) + ? FROM requests WHERE received_ms >= ? GROUP BY client"
    )
    (found,) = store.read(lambda db: db.rows(sql, (200, 7, 1, BEGAN_MS)))
    assert found == (big // 4 * 3, 200.0, 3, "r00000002", 1, 7, 1, 4)
    assert [type(value) for value in found] == [int, float, int, str, int, int, int, int]


def test_a_cost_is_kept_to_the_picodollar(store):
    """Also one that a float could not hold; what is not known stays unknown beside it."""
    request = request_row(1, cost_pd=2**53 + 1)
    attempt = attempt_row(request, cost_pd=2**53 + 1, cost_source="model_config", pricing_available=True)
    unpriced = request_row(2)
    store.write([attempt, request, unpriced], AT)
    assert [(entry.request, entry.attempts) for entry in store.requests(Filters()).entries] == [
        (unpriced, []),
        (request, [attempt]),
    ]


def test_a_number_too_large_for_the_column_is_unknown_and_the_batch_is_stored(store):
    first, second = request_row(1, bytes_in=2**64 - 1), request_row(2)
    store.write([first, attempt_row(first, total_tokens=2**63), second], AT)
    entry = store.request(first.id)
    assert entry is not None and entry.attempts[0].total_tokens is None
    assert store.counts() == Counts(2, 1)


@pytest.mark.parametrize(
    ("odd", "kept"),
    [
        ({"message": "\ud800 alone"}, {"message": "? alone"}),
        ({"bytes_in": 2**64 - 1}, {"bytes_in": 0}),
        ({"bytes_in": 2**70}, {"bytes_in": 0}),
        ({"labels": {"a\0": "\0"}}, {"labels": {"a\0": "\0"}}),
        ({"message": r"\u0000, \\u0000 and \" in words"}, {}),
        ({"message": "naïve 🦉 \x01\x7f\u2028\t\n", "labels": {"ü": "'"}, "cost_pd": 2**63 - 1}, {}),
    ],
)
def test_a_row_with_something_odd_is_stored_among_many(store, odd, kept):
    """What no store can hold goes, the row stays; and it costs those around it nothing."""
    rows = [request_row(number, session="s" if number % 2 else None) for number in range(20)]
    rows[7] = msgspec.structs.replace(rows[7], **odd)
    store.write([*rows, *map(attempt_row, rows)], AT)
    store.write(rows, Position("j", 2))  # known by now, all of them
    rows[7] = msgspec.structs.replace(rows[7], **kept)
    found = store.requests(Filters()).entries
    assert [(entry.request, entry.attempts) for entry in found] == [(row, [attempt_row(row)]) for row in rows[::-1]]


def test_position_and_rows_are_one_transaction(store):
    store.write([request_row(1)], Position("a", 5))
    store.write([], Position("b", 1))
    assert [store.position(name) for name in ("a", "b", "c")] == [5, 1, 0]
    with pytest.raises(StoreDown):
        store.write([request_row(2), msgspec.structs.replace(request_row(3), trace_id=None)], Position("a", 9))
    assert store.position("a") == 5
    assert store.counts() == Counts(1, 0)


def test_newest_first_in_pages_that_neither_skip_nor_repeat(store):
    """Requests of one millisecond are told apart by their id, and rows that arrive meanwhile shift nothing."""
    rows = [request_row(number, received_ms=BEGAN_MS + number // 4) for number in range(50)]
    store.write(rows, AT)
    seen, cursor = [], None
    while True:
        page = store.requests(Filters(limit=7, before=read_cursor(cursor) if cursor else None))
        seen += ids(page)
        store.write([request_row(1000 + len(seen))], AT)
        cursor = page.next
        if cursor is None:
            break
    assert seen == [row.id for row in reversed(rows)]


def test_filters(store):
    ok = request_row(1)
    failed = request_row(2, outcome="error", status=502, client="other", client_trace_id="theirs", provider=None)
    cancelled = request_row(3, outcome="cancelled", status=499, session="s-1", affinity_key="0f" * 16)
    store.write([ok, failed, cancelled, attempt_row(ok), attempt_row(failed, provider="spare", outcome="error")], AT)
    every = [cancelled.id, failed.id, ok.id]
    cases = {
        Filters(): every,
        Filters(trace=ok.trace_id): [ok.id],
        Filters(trace="theirs"): [failed.id],
        Filters(trace="their"): [],
        Filters(provider="spare"): [failed.id],
        Filters(client="other"): [failed.id],
        Filters(status=499): [cancelled.id],
        Filters(errors=True): [failed.id],
        Filters(since_ms=failed.received_ms): [cancelled.id, failed.id],
        Filters(client="ci", status=200, since_ms=0): [ok.id],
        Filters(session="s-1"): [cancelled.id],
        Filters(session="s-"): [],
        Filters(affinity_key="0f" * 16): [cancelled.id],
        Filters(limit=1): [cancelled.id],
    }
    for filters, expected in cases.items():
        assert ids(store.requests(filters)) == expected, filters


def test_the_beginning_of_a_trace_stands_for_it(store):
    """From 8 characters on; all it may mean are listed, but one that is meant exactly is meant alone."""
    one = request_row(1, trace_id="0123456789abcdef" * 2)
    other = request_row(2, trace_id="0123456789fedcba" * 2)
    theirs = request_row(3, client_trace_id="session-1")
    longer = request_row(4, client_trace_id="session-10")
    wild = request_row(5, client_trace_id="sess%on_1é\U0010ffff")
    store.write([one, other, theirs, longer, wild], AT)
    for asked, found in {
        "01234567": [other, one],
        "0123456": [],
        "0123456789a": [one],
        one.trace_id: [one],
        "session-": [longer, theirs],
        "session-1": [theirs],
        "session-10": [longer],
        "sess%on_": [wild],
        "sess%on_1é": [wild],
        "%%%%%%%%": [],
        "________": [],
    }.items():
        assert ids(store.requests(Filters(trace=asked))) == [row.id for row in found], asked
    page = store.requests(Filters(trace="01234567", limit=1))
    assert ids(store.requests(Filters(trace="01234567", before=read_cursor(page.next)))) == [one.id]


def test_a_request_is_found_by_any_id_that_names_it(store):
    """What a row, a header or another row calls it: its own id, and the id of any of its attempts."""
    rows = [request_row(number, id=f"019a3d1c6f52{number}") for number in range(3)]
    store.write([*rows, *(attempt_row(row, number) for row in rows for number in (1, 2))], AT)
    for asked, found in {
        rows[0].id: rows[:1],
        f"{rows[1].id}-1": rows[1:2],
        f"{rows[2].id}-2": rows[2:],
        f"{rows[2].id}-3": [],
        "019a3d1c": rows[::-1],
        "019a3d1": [],
    }.items():
        assert ids(store.requests(Filters(trace=asked))) == [row.id for row in found], asked
    assert ids(store.requests(Filters(trace=f"{rows[1].id}-1", client="nobody"))) == []


def scan(db):
    """A query that never ends by itself."""
    return db.rows("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) FROM n")


def test_a_question_that_takes_too_long_is_ended_and_the_next_one_answered(place, store):
    """Not a store that is down: the connection stays, and a reader keeps it."""
    store.write([request_row(1)], AT)
    opened = []

    def open_store():
        opened.append(place.open(readonly=True, query_s=20))
        return opened[-1]

    reader = Reader(open_store)
    assert ids(reader.requests(Filters())) == ["r00000001"]
    opened[0].database._query_s = 0.5  # a server that says nothing for twice as long is down
    with pytest.raises(QueryTooSlow, match=r"more than 0\.5 s: narrow the filters"):
        reader.read(scan)
    opened[0].database._query_s = 20
    assert ids(reader.requests(Filters())) == ["r00000001"]
    reader.close()
    assert len(opened) == 1


def test_a_question_waits_its_turn_only_so_long(place, store):
    """However busy the machine is: what holds the store up may go on for longer than anybody here waits for it."""
    one = place.open(readonly=True, query_s=20)
    free, held = threading.Event(), threading.Event()

    def hold():
        with one.database.asking():
            held.set()
            free.wait(60)

    with ThreadPoolExecutor(1) as other:
        holding = other.submit(hold)
        try:
            assert held.wait(60)
            one.database._query_s = 0.05  # of whoever asks next; who holds it has its own time
            with pytest.raises(QueryTooSlow, match=r"for 0\.05 s: ask again"):
                one.requests(Filters())
        finally:
            one.database._query_s = 20
            free.set()
        holding.result(60)
    assert one.requests(Filters()).entries == []
    one.close()


def test_rows_are_told_without_counting_them(place, store):
    """About as many as there are, also when the oldest are gone; what was known already is not told twice."""
    assert store.counts() == Counts(0, 0)
    store.write([request_row(number) for number in range(50)], AT)
    store.write([request_row(number) for number in range(60)], AT)
    place.sql(f"DELETE FROM requests WHERE received_ms < {BEGAN_MS + 10_000}")
    assert store.counts() == Counts(50, 0)


LOOKS = "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute('SELECT COUNT(*) FROM requests').fetchall())"


def rows_that_others_see(path):
    """A process that looks into the file and leaves: the last to leave would take the log away."""
    return subprocess.run(
        [sys.executable, "-c", LOOKS, path], check=True, capture_output=True, text=True
    ).stdout.strip()


def test_who_makes_the_file_takes_no_lock_from_who_opens_it(tmp_path, monkeypatch):
    """To close a descriptor gives up the locks of the whole process: the rows would go where nobody finds them."""
    path = tmp_path / "arbiter.db"
    close = os.close

    def slow_close(descriptor):
        if os.readlink(f"/proc/self/fd/{descriptor}") == str(path):
            time.sleep(0.2)
        close(descriptor)

    monkeypatch.setattr(os, "close", slow_close)
    stores = []
    threads = [threading.Thread(target=lambda: stores.append(sqlite.SqliteStore(path))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(stores) == 4
    try:
        for number in range(1, 4):
            stores[0].write([request_row(number)], AT)
            assert rows_that_others_see(path) == f"[({number},)]"
    finally:
        for store in stores:
            store.close()


def take_away(log, how):
    """`log` is the path of a file that is open."""
    if how == "removed":
        log.unlink()
    else:
        log.rename(log.with_name("moved"))
    if how == "replaced":
        log.touch()


def is_sound(path):
    with contextlib.closing(sqlite3.connect(path)) as db:
        return db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.parametrize("how", ["removed", "moved", "replaced"])
@pytest.mark.parametrize("first", ["writer", "changer", "reader", "newcomer", "leaver"])
def test_a_log_that_was_taken_away_is_saved_whoever_notices_first(sqlite_place, how, first):
    """What was in it is moved into the file, and everybody here begins anew with another: no row is lost, and nobody
    who changes or reads the store hears of it. The recorder does, and writes again what it could not."""
    path = sqlite_place.path
    log = path.with_name(f"{path.name}-wal")
    writer, changer = sqlite_place.open(), Changer(sqlite_place.open)
    reader = Reader(lambda: open_store(sqlite_place.url, readonly=True))
    insert = "INSERT INTO journal_positions (journal, position) VALUES (?, 1)"
    writer.write([request_row(1)], AT)
    changer.change(lambda db: db.run(insert, ("a",)))
    assert reader.counts().requests == 1
    take_away(log, how)
    if first == "changer":
        changer.change(lambda db: db.run(insert, ("b",)))
    elif first == "reader":
        assert reader.counts().requests == 1
    elif first == "newcomer":
        with contextlib.closing(sqlite_place.open()) as store:
            assert store.request(request_row(1).id) is not None
    elif first == "leaver":
        writer.close()
    with pytest.raises(StoreMoved, match="while it was open"):
        writer.write([request_row(2)], Position("j", 2))
    writer.close()
    writer = sqlite_place.open()
    writer.write([request_row(2)], Position("j", 2))
    changer.change(lambda db: db.run(insert, ("c",)))
    assert reader.counts().requests == 2 and reader.request(request_row(2).id) is not None
    for one in (reader, changer, writer):
        one.close()
    assert not log.exists() and is_sound(path) and sqlite._connections[sqlite._identity(path)] == []
    found = sqlite_place.sql("SELECT journal FROM journal_positions ORDER BY journal")
    assert found == [(name,) for name in ("a", *("b" if first == "changer" else ""), "c", "j")]


def test_a_log_that_somebody_still_reads_is_saved_afterwards(sqlite_place):
    """Another program's snapshot of what is in it; until that ends, rows wait in the journal."""
    store = sqlite_place.open()
    store.write([request_row(1)], AT)
    log = sqlite_place.path.with_name(f"{sqlite_place.path.name}-wal")
    with contextlib.closing(sqlite3.connect(sqlite_place.path, isolation_level=None)) as other:
        other.execute("BEGIN")
        assert other.execute("SELECT COUNT(*) FROM requests").fetchall() == [(1,)]
        take_away(log, "moved")
        with pytest.raises(StoreMoved):
            store.write([request_row(2)], AT)
        store.close()
        for _ in range(2):
            with pytest.raises(StoreMoved, match="cannot be moved into"):
                sqlite_place.open()
        assert other.execute("SELECT COUNT(*) FROM requests").fetchall() == [(1,)]
        other.execute("ROLLBACK")
    store = sqlite_place.open()
    store.write([request_row(2)], AT)
    assert store.counts().requests == 2
    store.close()
    assert is_sound(sqlite_place.path)


@pytest.mark.parametrize("how", ["taken away", "put back"])
def test_a_log_in_whose_place_is_another_is_left_to_people(sqlite_place, tmp_path, how):
    """Its pages would be taken for those of the lost one: nothing is opened until it is gone."""
    path = sqlite_place.path
    other = SqlitePlace(tmp_path / "other.db")
    with contextlib.closing(other.open()) as store:
        store.write([request_row(7)], AT)
        whose = other.path.with_name("other.db-wal").read_bytes()
    store = sqlite_place.open()
    store.write([request_row(1)], AT)
    reader = Reader(lambda: open_store(sqlite_place.url, readonly=True))
    assert reader.counts().requests == 1
    log = path.with_name(f"{path.name}-wal")
    held = log.with_name("moved")
    take_away(log, "moved")
    before = held.read_bytes()
    log.write_bytes(whose)
    with pytest.raises(StoreMoved, match="was replaced by another file"):
        store.write([request_row(2)], AT)
    store.close()
    with pytest.raises(StoreMoved):
        reader.counts()
    with pytest.raises(StoreMoved, match="another stands in its place"):
        sqlite_place.open()
    assert (held.read_bytes(), log.read_bytes()) == (before, whose)
    log.unlink()
    if how == "put back":
        held.rename(log)
    store = sqlite_place.open()
    store.write([request_row(2)], AT)
    assert reader.counts().requests == 2
    reader.close()
    store.close()
    assert is_sound(path) and not log.exists() and sqlite._connections[sqlite._identity(path)] == []


def test_a_log_that_another_gateway_began_anew_is_gone_on_with(sqlite_place):
    """It was the first to notice: whoever is second opens the file again, and takes nothing for lost."""
    script = """if True:
        import sys
        from arbiter.ledger.opening import open_store
        from arbiter.ledger.store import Position, StoreMoved
        from tests.fakes.rows import request_row
        store = open_store(sys.argv[1])
        for number in map(int, sys.stdin):
            try:
                store.write([request_row(number)], Position("k", number))
            except StoreMoved:
                store.close()
                store = open_store(sys.argv[1])
                store.write([request_row(number)], Position("k", number))
            print(number, flush=True)
        store.close()
    """
    log = sqlite_place.path.with_name(f"{sqlite_place.path.name}-wal")
    store = sqlite_place.open()
    store.write([request_row(1)], AT)
    command = [sys.executable, "-c", script, sqlite_place.url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as other:

        def there(number):
            other.stdin.write(f"{number}\n")
            other.stdin.flush()
            assert int(other.stdout.readline()) == number

        there(2)
        take_away(log, "moved")
        there(3)
        with pytest.raises(StoreMoved, match="was replaced by another file"):
            store.write([request_row(4)], Position("j", 4))
        store.close()
        store = sqlite_place.open()
        store.write([request_row(4)], Position("j", 4))
        there(5)
        assert store.counts().requests == 5
        store.close()
        other.stdin.close()
        assert other.wait(20) == 0
    assert sqlite_place.sql("SELECT COUNT(*) FROM requests") == [(5,)] and is_sound(sqlite_place.path)


def test_a_new_sqlite_file_may_be_opened_by_several_at_once(tmp_path):
    """SQLite fails at once, and does not wait, where somebody writes while another connection turns to the log."""
    path = tmp_path / "arbiter.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as first:
        first.execute("BEGIN IMMEDIATE")
        let_go = threading.Timer(0.3, lambda: first.execute("COMMIT"))
        let_go.start()
        try:
            opened = sqlite.Sqlite(path, readonly=False, busy_s=10, query_s=10)
        finally:
            let_go.join()
        assert opened.rows("PRAGMA journal_mode") == [("wal",)]
        opened.close()


def test_sqlite_tells_rows_by_the_first_and_the_last_number(sqlite_store):
    """So many steps for any number of rows."""
    sqlite_store.write([request_row(number) for number in range(1000)], AT)
    steps = []
    with sqlite_store.database.transaction():
        sqlite_store.database._db.set_progress_handler(lambda: steps.append(1) and 0, 1)
        assert sqlite_store.database.about("requests") == 1000
    assert 0 < len(steps) < 100


def test_a_second_store_of_this_process_does_not_give_up_the_locks_of_the_first(sqlite_place, sqlite_store):
    """Else the next process that leaves the database takes its log away, and what is written then is seen by nobody."""
    sqlite_store.write([request_row(1)], AT)
    sqlite_place.open().close()
    other = "import sys; from arbiter.ledger.opening import open_store; open_store(sys.argv[1]).close()"
    subprocess.run([sys.executable, "-c", other, sqlite_place.url], check=True, timeout=60)
    sqlite_store.write([request_row(2)], AT)
    reader = sqlite_place.open(readonly=True)
    assert ids(reader.requests(Filters())) == ["r00000002", "r00000001"]
    reader.close()


def test_listing_and_look_ups_use_an_index(sqlite_place, sqlite_store):
    """A page of the newest and a look-up by trace cost the same with a million rows."""
    sqlite_store.write([request_row(1)], AT)
    for sql, index in (
        ("SELECT * FROM requests ORDER BY received_ms DESC, id DESC LIMIT 50", "requests_newest"),
        (
            "SELECT * FROM requests WHERE (received_ms, id) < (5, 'x') ORDER BY received_ms DESC, id DESC",
            "requests_newest",
        ),
        ("SELECT * FROM requests WHERE trace_id = 'x' OR client_trace_id = 'x' OR id = 'x'", "requests_trace"),
        (
            "SELECT * FROM requests WHERE (trace_id BETWEEN 'x' AND 'y' OR client_trace_id BETWEEN 'x' AND 'y'"
            " OR id BETWEEN 'x' AND 'y') ORDER BY received_ms DESC, id DESC LIMIT 50",
            "requests_client_trace",
        ),
        ("SELECT * FROM attempts WHERE request_id IN ('x') ORDER BY request_id, number, id", "attempts_request"),
        ("UPDATE sessions SET ended_ms = last_ms WHERE ended_ms IS NULL AND last_ms < 5", "sessions_open"),
    ):
        steps = " ".join(row[3] for row in sqlite_place.sql("EXPLAIN QUERY PLAN " + sql))
        assert index in steps and "SCAN requests" not in steps.replace("SCAN requests USING INDEX", ""), steps


def test_only_the_owner_can_read_the_files(tmp_path):
    old = os.umask(0)
    try:
        one = SqlitePlace(tmp_path / "data" / "arbiter.db").open()
        one.write([request_row()], AT)
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "data").iterdir()}
        one.close()
    finally:
        os.umask(old)
    assert modes == {"arbiter.db": 0o600, "arbiter.db-wal": 0o600, "arbiter.db-shm": 0o600}
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700


def test_reading_makes_nothing_and_writes_nothing(place):
    with pytest.raises(StoreMissing):
        place.open(readonly=True)
    with pytest.raises(StoreMissing):
        place.open(readonly=True)
    place.open().close()
    reader = place.open(readonly=True)
    with pytest.raises(StoreDown):
        reader.write([request_row()], AT)
    with pytest.raises(StoreDown):
        reader.change(lambda db: db.run("DELETE FROM requests"))
    assert reader.counts() == Counts(0, 0)
    reader.close()


def test_an_empty_file_is_no_store_to_read(tmp_path):
    with pytest.raises(StoreMissing):
        SqlitePlace(tmp_path / "no.db").open(readonly=True)
    assert not (tmp_path / "no.db").exists()
    (tmp_path / "empty.db").touch()
    with pytest.raises(StoreMissing):
        SqlitePlace(tmp_path / "empty.db").open(readonly=True)


def test_reading_goes_on_while_somebody_writes(place, store):
    store.write([request_row(1)], AT)
    reader, writer = place.open(readonly=True, busy_s=0), place.open()
    with writer.database.transaction():
        writer.database.run("DELETE FROM requests")
        assert reader.counts() == Counts(1, 0)
    assert reader.counts() == Counts(0, 0)
    writer.close()
    reader.close()


def test_a_table_that_somebody_else_has_is_waited_for_only_so_long(place, store):
    """Then the store is down, as far as we are concerned, and the next try may go better."""
    one = place.open(busy_s=0.2)
    with place.held(), pytest.raises(StoreDown, match="lock"):
        one.write([request_row(1)], AT)
    one.write([request_row(1)], AT)
    assert one.counts() == Counts(1, 0)
    one.close()


def test_a_database_of_an_earlier_version_gets_the_columns_and_indexes_it_lacks(place):
    """A field appended to a row is a column at the next start; old rows read with its default.

    An index that no question needs any more goes; one that somebody else made stays.
    """
    place.open().close()
    place.sql("ALTER TABLE requests DROP COLUMN user_agent")
    place.sql("ALTER TABLE attempts DROP COLUMN reused_connection")
    place.sql("DROP INDEX attempts_newest")
    place.sql("CREATE INDEX attempts_session ON attempts (session)")
    place.sql("CREATE INDEX somebodys_own ON attempts (session)")
    place.sql(
        "INSERT INTO attempts (id, request_id, trace_id, number, provider, endpoint, format_out, started_ms)"
        " VALUES ('a', 'r', 't', 1, 'p', 'e', 'f', 0)"
    )
    place.sql("INSERT INTO requests (id, trace_id, endpoint, format_in, received_ms) VALUES ('r', 't', 'chat', 'f', 0)")
    store = place.open()
    entry = store.request("r")
    assert entry is not None
    assert entry.request.user_agent is None
    assert entry.attempts[0].reused_connection is False and entry.attempts[0].usage_source == "missing"
    store.write([request_row(1, user_agent="new")], AT)
    indexes = store.read(lambda db: db.indexes())
    assert {"attempts_newest", "somebodys_own"} <= indexes and "attempts_session" not in indexes
    store.close()


def test_what_a_subscription_served_before_cost_nothing_then_either(place):
    """Version 2: it had no cost. A request that also used what nobody knows the price of goes on without one."""
    store = place.open()
    plan, mixed, cut, paid = (request_row(number, attempts=2) for number in range(1, 5))
    rows = [
        attempt_row(plan, 1, cost_source="subscription", equivalent_pd=7),
        attempt_row(plan, 2, usage_source="missing"),
        attempt_row(mixed, 1, cost_source="subscription"),
        attempt_row(mixed, 2, cost_source="unpriced"),
        attempt_row(cut, 1, usage_source="missing"),
        attempt_row(paid, 1, cost_source="catalog", cost_pd=5),
    ]
    paid.cost_pd = 5
    store.write([plan, mixed, cut, paid, *rows], AT)
    store.close()
    place.sql("UPDATE schema_version SET version = 1")
    sql = "SELECT cost_source, cost_pd, equivalent_pd FROM attempts WHERE cost_source IS NOT NULL ORDER BY id"
    for _ in range(2):
        store = place.open()
        assert sorted(store.read(lambda db: db.rows(sql)), key=str) == [
            ("catalog", 5, None), ("subscription", 0, 7), ("subscription", 0, None), ("unpriced", None, None)
        ]  # fmt: skip
        costs = dict(store.read(lambda db: db.rows("SELECT id, cost_pd FROM requests")))
        assert costs == {plan.id: 0, mixed.id: None, cut.id: None, paid.id: 5}
        store.close()


def test_sets_of_tools_of_an_earlier_version_count_as_used_until_its_last_attempt(place):
    """Version 3: nothing said when they were in use. So none of them goes before an attempt that may have it."""
    columns = "id, seen_ms, tools, bytes, tokens, names"
    for attempts, used_ms in ((0, 5), (3, 4000)):
        store = place.open()
        store.write(
            [attempt_row(request_row(n), id=f"a{n}", started_ms=1000 * (n + 1)) for n in range(1, attempts + 1)], AT
        )
        store.close()
        place.sql("ALTER TABLE tool_sets DROP COLUMN used_ms")
        place.sql("UPDATE schema_version SET version = 2")
        place.sql("DELETE FROM tool_sets")
        place.sql(f"INSERT INTO tool_sets ({columns}) VALUES ('old', 5, 1, 2, 3, '{{}}')")
        place.open().close()
        assert place.sql("SELECT used_ms FROM tool_sets") == [(used_ms,)]


def test_who_only_reads_a_store_of_an_earlier_version_is_told_which_it_is(place):
    """It is left as it is; whoever writes brings it up to date, and then it is read."""
    place.open().close()
    place.sql("ALTER TABLE requests DROP COLUMN user_agent")
    place.sql("DROP TABLE tool_sets")
    told = rf"is of an earlier version \(schema {schema.VERSION}\): it has no requests.user_agent, tool_sets$"
    for _ in range(2):
        with pytest.raises(StoreOld, match=told):
            place.open(readonly=True)
    place.open().close()
    place.open(readonly=True).close()
    place.sql("DELETE FROM schema_version")
    with pytest.raises(StoreOld, match=rf"\(schema 0, this one has schema {schema.VERSION}\)$"):
        place.open(readonly=True)


def test_a_store_of_a_newer_version_is_read_by_nobody_else(place):
    place.open().close()
    place.sql("UPDATE schema_version SET version = 99")
    for readonly in (True, False):
        with pytest.raises(StoreDown, match="schema version 99, of a newer Arbiter"):
            place.open(readonly=readonly)


def test_a_reader_waits_for_the_store_to_be_brought_up_to_date(place):
    """Control may ask before its recorder has been there."""
    place.open().close()
    place.sql("DROP TABLE tool_sets")
    reader = Reader(lambda: place.open(readonly=True))
    with pytest.raises(StoreOld):
        reader.counts()
    place.open().close()
    assert reader.counts() == Counts(0, 0)
    reader.close()


def test_rows_from_before_requests_had_a_cost_are_unpriced(place):
    """They are kept whole, and nobody guesses what they cost; rows that come after them have theirs."""
    store = place.open()
    old = request_row(1)
    old_attempt = attempt_row(old)
    store.write([old, old_attempt], AT)
    store.close()
    place.sql("ALTER TABLE requests DROP COLUMN cost_pd")
    place.sql("ALTER TABLE attempts DROP COLUMN cost_source")
    store = place.open()
    new = request_row(2, cost_pd=7)
    new_attempt = attempt_row(new, cost_pd=7, cost_source="model_config", pricing_available=True)
    store.write([new, new_attempt], Position("j", 2))
    entries = store.requests(Filters()).entries
    assert [(entry.request, entry.attempts) for entry in entries] == [(new, [new_attempt]), (old, [old_attempt])]
    assert [entry.is_unpriced for entry in entries] == [False, True]
    assert old_attempt.cost_source is None
    store.close()


def test_a_database_of_a_newer_arbiter_is_left_alone(place):
    place.open().close()
    place.sql("UPDATE schema_version SET version = 99")
    with pytest.raises(StoreDown, match="99"):
        place.open()


def test_a_second_start_changes_nothing_and_waits_for_nobody(place):
    """Not even for one who is in the middle of writing: there is nothing to migrate."""
    store = place.open()
    before = store.read(lambda db: (db.tables(), db.indexes()))
    with store.database.transaction():
        store.database.run("DELETE FROM requests")
        place.open(busy_s=0).close()
    assert store.read(lambda db: (db.tables(), db.indexes())) == before
    store.close()


def test_many_that_start_at_once_migrate_once(place):
    """Each finds its store ready; none stumbles over a table that another one has just made."""
    with ThreadPoolExecutor(6) as pool:
        opened = list(pool.map(lambda _: place.open(), range(6)))
    for number, store in enumerate(opened):
        store.write([request_row(number)], Position(f"j{number}", 1))
    assert opened[0].counts() == Counts(6, 0)
    assert opened[0].read(lambda db: db.rows("SELECT version FROM schema_version")) == [(schema.VERSION,)]
    for store in opened:
        store.close()


def test_a_file_that_is_no_database_is_named(tmp_path):
    (tmp_path / "a.db").write_bytes(b"a picture of a cat" * 100)
    with pytest.raises(StoreDown, match=r"a\.db"):
        SqlitePlace(tmp_path / "a.db").open()


@pytest.mark.parametrize("row", [RequestRow, AttemptRow])
def test_each_field_of_a_row_is_one_column(row):
    """But for what the recorder alone is told, which is nobody's column."""
    told = {"sample", "sample_of_bytes", "tools_sample", "words", "titled"}
    fields = [field.name for field in msgspec.structs.fields(row)]
    assert [column.name for column in schema.columns(row)] == [name for name in fields if name not in told]


def test_moments_are_durations_unix_times_or_dates():
    now = 1_790_000_000_000
    assert since("90s", now) == now - 90_000
    assert since("2w", now) == now - 14 * 86_400_000
    assert since("1790000000000", now) == now
    assert since("2026-11-30T02:00:00Z", now) == 1_796_004_000_000
    assert since("2026-11-30 02:00:00", now) == 1_796_004_000_000
    assert since("2026-11-30T03:00:00 01:00", now) == 1_796_004_000_000
    assert since("2026-11-30 02:00:00", now, zone=datetime.timezone(datetime.timedelta(hours=-2))) == 1_796_011_200_000
    assert since("2026-11-30T02:00:00Z", now, zone=None) == 1_796_004_000_000
    assert since("999999999w", now) == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("limit", "0"),
        ("limit", "501"),
        ("limit", "ten"),
        ("limit", "٣"),
        ("limit", ""),
        ("status", "42"),
        ("errors", "maybe"),
        ("since", "yesterday"),
        ("since", "-5m"),
        ("since", "1790000000000000000000"),
        ("cursor", "!!"),
        ("cursor", "eA"),
        ("trace", ""),
        ("client", "x" * 257),
        ("colour", "blue"),
    ],
)
def test_a_malformed_parameter_is_named(name, value):
    with pytest.raises(BadParameter) as caught:
        parse({name: value}, 0)
    assert caught.value.name == name


def test_a_cursor_survives_its_journey():
    row = request_row(7, id="a:b/ü")
    assert read_cursor(write_cursor(row)) == (row.received_ms, row.id)
    assert parse({"cursor": write_cursor(row), "errors": "1", "limit": "500"}, 0) == Filters(
        kind="client", before=(row.received_ms, row.id), errors=True, limit=500
    )


def test_a_question_sees_the_rows_of_one_moment(place):
    """However many it has, and whatever comes between them: a report adds up. The next one sees what came."""
    writer, reader = place.open(), place.open(readonly=True)
    writer.write([request_row(1)], Position("j", 1))

    def question(database):
        counted = "SELECT COUNT(*), MAX(id) FROM requests"
        first = database.rows(counted)
        writer.write([request_row(2), attempt_row(request_row(2))], Position("j", 2))
        writer.change(lambda other: other.run("DELETE FROM requests WHERE id = ?", (request_row(1).id,)))
        return first, database.rows(counted), database.rows("SELECT COUNT(*) FROM attempts")

    first, second, attempts = reader.read(question)
    assert first == second == [(1, request_row(1).id)] and attempts == [(0,)]
    assert reader.counts().attempts == 1 and reader.request(request_row(1).id) is None
    # Also where its own connection is the one that writes.
    assert writer.read(lambda database: database.rows("SELECT COUNT(*) FROM requests")) == [(1,)]
    writer.write([request_row(3)], Position("j", 3))
    writer.close()
    reader.close()


def test_many_quick_questions_take_no_longer_together_than_one_may(place, monkeypatch):
    """What they see is kept for them as it is, at a price: also while nothing is being asked."""
    place.open().close()
    one = place.open(readonly=True, query_s=50 if place.kind == "sqlite" else 25)  # a server has twice the time in all
    now = 100.0
    monkeypatch.setattr(clock, "monotonic", lambda: now)

    def question(database):
        nonlocal now
        for seconds in range(60):
            now = 100.0 + seconds
            database.rows("SELECT COUNT(*) FROM requests")
            asked.append(seconds)

    asked: list[int] = []
    with pytest.raises(QueryTooSlow, match=r"more than \d+ s"):
        one.read(question)
    assert asked == list(range(51))
    assert one.counts() == Counts(0, 0)  # the next has its own time
    one.close()


def test_a_question_that_is_over_holds_up_nothing(tmp_path):
    """However it ended, the log behind it can be moved into the file."""
    path = tmp_path / "arbiter.db"
    writer, reader = open_store(f"sqlite:///{path}"), open_store(f"sqlite:///{path}", readonly=True)

    def checkpoint() -> tuple[int, int, int]:
        with contextlib.closing(sqlite3.connect(path, timeout=0)) as db:
            return db.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()

    numbers = itertools.count(1)

    def write() -> None:
        writer.write([request_row(number := next(numbers))], Position("j", number))

    def during(database):
        database.rows("SELECT COUNT(*) FROM requests")
        write()
        assert checkpoint()[0] == 1  # busy: there is a snapshot
        return "done"

    def failing(database):
        during(database)
        database.rows("SELECT nonsense")

    write()
    assert reader.read(during) == "done"
    assert checkpoint()[0] == 0
    write()
    with pytest.raises(StoreDown):
        reader.read(failing)
    assert checkpoint()[0] == 0
    writer.close()
    reader.close()


def test_a_log_that_grew_behind_a_long_question_is_short_again(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite, "LOG_PAGES", 20)
    monkeypatch.setattr(sqlite, "LOG_BYTES", 100 << 10)
    path, log = tmp_path / "arbiter.db", tmp_path / "arbiter.db-wal"
    writer, reader = open_store(f"sqlite:///{path}"), open_store(f"sqlite:///{path}", readonly=True)

    def write(number: int) -> None:
        writer.write([request_row(number, message="m" * 4000)], Position("j", number))

    def question(database):
        database.rows("SELECT COUNT(*) FROM requests")
        for number in range(2, 40):
            write(number)
        return log.stat().st_size

    write(1)
    assert reader.read(question) > 400 << 10
    write(40)  # moves all of it into the file
    write(41)  # begins the log anew
    assert log.stat().st_size <= 100 << 10
    writer.close()
    reader.close()
