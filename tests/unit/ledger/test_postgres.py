"""What is different about a store that is a server: it stops, stands still, is shared, and wants a password."""

from __future__ import annotations

import psycopg
import pytest

from arbiter.ledger import postgres as module
from arbiter.ledger import schema
from arbiter.ledger.opening import open_store
from arbiter.ledger.postgres import PostgresStore, marked
from arbiter.ledger.query import Filters
from arbiter.ledger.store import Counts, Position, Reader, StoreDown
from tests.fakes.postgres import PASSWORD, PASSWORD_IN_URL, Postgres
from tests.fakes.rows import attempt_row, request_row
from tests.fakes.stores import PostgresPlace

AT = Position("j", 1)

pytestmark = pytest.mark.needs("postgresql")


@pytest.fixture
def place(postgres):
    one = PostgresPlace(postgres)
    yield one
    one.close()


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT 1", "SELECT 1"),
        ("a = ? AND b IN (?, ?)", "a = $1 AND b IN ($2, $3)"),
        ("a = '?' AND b = ? AND c LIKE '50%'", "a = '?' AND b = $1 AND c LIKE '50%'"),
        ("a = 'it''s ?' AND \"b?\" = ?", "a = 'it''s ?' AND \"b?\" = $1"),
        ("a % 2 = ? -- why?\n AND b = ?", "a % 2 = $1 -- why?\n AND b = $2"),
        ("/* what? */ ?", "/* what? */ $1"),
    ],
)
def test_a_mark_is_one_where_it_stands_for_a_value(sql, expected):
    """Not in a text, a name or a comment; a percent sign is only that."""
    assert marked(sql).decode() == expected


def test_the_password_is_in_no_message(place):
    """Neither as the URL spells it nor as it is, whether the server, the database or the question is wrong."""
    store = place.open()
    said = [store.name]
    wrong = place.url.replace(PASSWORD_IN_URL, "wr%40ng-password")
    port = f":{place.server.port}/"
    for url in (
        wrong,
        place.url + "-unknown",
        place.url.replace(port, ":1/"),
        place.url.replace("127.0.0.1", "no-such-host.invalid"),
        place.url + "?sslmode=require",
        place.url + "?options=-cnonsense",
    ):
        with pytest.raises(StoreDown) as caught:
            open_store(url)
        said.append(str(caught.value))
    with pytest.raises(StoreDown) as caught:
        store.read(lambda db: db.rows("SELECT nonsense"))
    said.append(str(caught.value))
    for text in said:
        assert "postgresql://arbiter:***@" in text and "\n" not in text
        for secret in (PASSWORD, PASSWORD_IN_URL, "wr%40ng-password", "wr@ng-password"):
            assert secret not in text
    assert "password authentication failed" in said[1] and "nonsense" in said[-1]
    store.close()


def test_a_password_may_come_from_the_environment(place, monkeypatch):
    """As any program of PostgreSQL's own reads it."""
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    store = open_store(place.url.replace(f":{PASSWORD_IN_URL}", ""))
    assert store.counts() == Counts(0, 0)
    store.close()


def test_a_database_that_cannot_hold_every_character_is_refused(postgres):
    postgres.run("postgres", "CREATE DATABASE narrow ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    with pytest.raises(StoreDown, match="encoding is LATIN1"):
        open_store(postgres.url("narrow"))
    postgres.run("postgres", "DROP DATABASE narrow")


def test_rows_go_into_the_schema_that_the_connection_names(place):
    """Several gateways may share a database and nothing in it."""
    place.sql("CREATE SCHEMA one")
    place.sql('CREATE SCHEMA "Two"')
    stores = [open_store(f"{place.url}?options=-csearch_path%3D{name}") for name in ("one", "%22Two%22", "public")]
    for number, store in enumerate(stores):
        store.write([request_row(n) for n in range(number + 1)], AT)
    assert [store.counts().requests for store in stores] == [1, 2, 3]
    for store in stores:
        store.close()


def test_a_server_that_was_started_again_is_found_again():
    """What it was told is there; a connection found dead is made anew, and no question fails for it."""
    with Postgres() as server:
        place = PostgresPlace(server)
        store = place.open()
        reader = Reader(lambda: place.open(readonly=True))
        store.write([request_row(1), attempt_row(request_row(1))], AT)
        assert reader.counts() == Counts(1, 1)
        server.crash()
        with pytest.raises(StoreDown):
            store.write([request_row(2)], Position("j", 2))
        with pytest.raises(StoreDown):
            place.open()
        server.start()
        assert reader.counts() == Counts(1, 1)
        store.write([request_row(2)], Position("j", 2))
        assert (store.position("j"), store.counts()) == (2, Counts(2, 1))
        store.close()
        reader.close()


def test_a_transaction_that_lost_its_server_is_not_gone_on_with():
    """Half of it before, half of it after: neither is there."""
    with Postgres() as server:
        store = PostgresPlace(server).open()

        def work(db):
            db.run("INSERT INTO journal_positions (journal, position) VALUES (?, ?)", ("a", 1))
            server.crash()
            server.start()
            db.run("INSERT INTO journal_positions (journal, position) VALUES (?, ?)", ("b", 1))

        with pytest.raises(StoreDown):
            store.change(work)
        assert [store.position(name) for name in "ab"] == [0, 0]
        store.close()


def test_a_server_that_stands_still_is_not_waited_for_for_ever(monkeypatch):
    """Its kernel goes on saying that all is well; we cut the line, say why, and are served when it goes on."""
    with Postgres() as server:
        place = PostgresPlace(server)
        store, reader = place.open(), place.open(readonly=True)
        store.write([request_row(1)], AT)
        with monkeypatch.context() as patch:  # what is to be served may take its time
            patch.setattr(module, "ANSWER_S", 0.5)
            patch.setattr(module, "CONNECT_S", 2)  # libpq's least
            patch.setattr(reader.database, "_query_s", 0.2)
            server.freeze()
            with pytest.raises(StoreDown, match=r"no answer for 0\.5 s"):
                store.write([request_row(2)], Position("j", 2))
            with pytest.raises(StoreDown, match=r"no answer for 0\.4 s"):
                reader.requests(Filters())
            with pytest.raises(StoreDown, match="timeout"):
                place.open()
            server.thaw()
        store.write([request_row(3)], Position("j", 3))
        assert {entry.request.id for entry in reader.requests(Filters()).entries} >= {"r00000001", "r00000003"}
        assert (store.position("j"), reader.counts().attempts) == (3, 0)
        store.close()
        reader.close()


def test_what_was_in_time_is_not_cut_afterwards(place):
    """The number of a closed connection is soon that of another one."""
    store = place.open()
    cut = module._Cut()
    cut.forget()
    cut.make(store.database)
    assert not cut.was_made and store.counts() == Counts(0, 0)
    store.close()


def test_closed_is_closed(place):
    store = place.open()
    store.close()
    with pytest.raises(StoreDown):
        store.counts()
    store.close()


def test_a_large_table_is_told_by_the_servers_own_estimate(place, monkeypatch):
    """Within a tenth or so, without reading it."""
    monkeypatch.setattr(module, "COUNTED_ROWS", 100)
    store = place.open()
    store.write([request_row(number) for number in range(1000)], AT)
    place.sql("ANALYZE requests")
    assert 900 <= store.counts().requests <= 1100
    plan = store.read(
        lambda db: db.rows("EXPLAIN (ANALYZE, COSTS OFF) SELECT COUNT(*) FROM (SELECT 1 FROM requests LIMIT 100) few")
    )
    assert "rows=100 " in "\n".join(line for (line,) in plan)
    store.close()


def test_a_readers_connection_cannot_write_at_all(place):
    """Also where the statement comes by another way than a change."""
    place.open().close()
    reader = PostgresStore(place.url, readonly=True)
    for sql in ("DELETE FROM requests RETURNING id", "CREATE TABLE x (a BIGINT)", "SELECT nextval('s')"):
        with pytest.raises(StoreDown):
            reader.read(lambda db, sql=sql: db.rows(sql))
    reader.close()
    with psycopg.connect(place.url) as other:
        tables = other.execute("SELECT COUNT(*) FROM pg_tables WHERE schemaname = 'public'").fetchone()
        assert tables == (len(schema.TABLES) + 2,)  # and how far each journal is stored, and the schema's version


def test_a_text_with_a_nul_is_stored_without_it_among_many(place):
    """PostgreSQL has no such texts."""
    store = place.open()
    rows = [request_row(number, message="a\0b" if number == 7 else None) for number in range(20)]
    store.write(rows, AT)
    found = store.read(lambda db: db.rows("SELECT id, message FROM requests WHERE message IS NOT NULL"))
    assert found == [("r00000007", "ab")]
    assert store.counts().requests == 20
    store.close()
