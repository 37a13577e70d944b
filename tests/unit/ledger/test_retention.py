"""What is old goes, whole and in small steps; what is young, and what is still needed, stays."""

from __future__ import annotations

from arbiter import clock
from arbiter.config.load import demo_snapshot
from arbiter.control.main import aging
from arbiter.ledger import retention
from arbiter.ledger.estimates import Estimates
from arbiter.ledger.query import Filters
from arbiter.ledger.recorder import Batch
from arbiter.ledger.retention import Rule, Sweeper, of_content, of_rows
from arbiter.ledger.store import Counts, Position, StoreDown
from tests.fakes.gateway import until
from tests.fakes.rows import attempt_row, request_row

AT = Position("j", 1)
DAY_S = 86400.0


def aged(number, days):
    """A request that came so many days ago, with two attempts."""
    received_ms = clock.now_ms() - int(days * DAY_S * 1000)
    request = request_row(number, received_ms=received_ms, attempts=2)
    return [request, attempt_row(request, 1), attempt_row(request, 2)]


def left(store):
    return sorted(entry.request.id for entry in store.requests(Filters(limit=500)).entries)


def sweeper(place, rules):
    return Sweeper(place.open, lambda: rules)


def swept(place, rules):
    """What went, of the tables of which something did."""
    return {table: count for table, count in sweeper(place, rules).sweep().items() if count}


def test_old_requests_go_with_their_attempts(place, store):
    """To the row: those of seven days and more, whatever became of them."""
    store.write([row for number in range(20) for row in aged(number, number - 0.5)], AT)
    assert swept(place, of_rows(7 * DAY_S)) == {"requests": 12}
    assert left(store) == [f"r{number:08d}" for number in range(8)]
    orphans = "SELECT COUNT(*) FROM attempts WHERE request_id NOT IN (SELECT id FROM requests)"
    assert store.read(lambda db: db.rows(orphans)) == [(0,)]
    assert store.counts().attempts >= 16
    assert swept(place, of_rows(7 * DAY_S)) == {}


def test_an_attempt_that_came_after_its_request_had_gone_goes_too(place, store):
    store.write(aged(1, 10)[1:2], AT)
    young = aged(2, 1)
    store.write(young, Position("j", 2))
    assert swept(place, of_rows(7 * DAY_S)) == {"attempts": 1}
    assert left(store) == [young[0].id]


def test_a_session_that_nobody_used_goes_with_its_notes_and_what_operators_did_stays(place, store):
    """Whoever reads the audit still finds who did it."""
    young_ms = clock.now_ms()
    for name, last_ms in (("old", 5), ("young", young_ms)):
        place.sql(f"INSERT INTO sessions (id, session, last_ms) VALUES ('{name}', '{name}', {last_ms})")
        place.sql(f"INSERT INTO notes VALUES ('{name}', '{name}', 5, 'me', 'hm')")
        place.sql(f"INSERT INTO audit (id, at_ms, who, action, target) VALUES ('{name}', 5, 'me', 'note', '{name}')")
    assert swept(place, of_rows(DAY_S)) == {"sessions": 1}
    assert place.sql("SELECT id FROM sessions") == place.sql("SELECT id FROM notes") == [("young",)]
    assert len(place.sql("SELECT id FROM audit")) == 2


def test_a_parent_that_nobody_saw_goes_with_the_last_session_that_named_it(place, store):
    """One whose children are young stays, and so does what another client calls the same."""
    young_ms = clock.now_ms()
    for client, name, parent, last_ms in (
        ("'a'", "gone", "NULL", "NULL"),
        ("'a'", "old-child", "'gone'", 5),
        ("'a'", "wanted", "NULL", "NULL"),
        ("'a'", "young-child", "'wanted'", young_ms),
        ("NULL", "wanted", "NULL", "NULL"),
        ("NULL", "gone", "NULL", "NULL"),
        ("NULL", "another", "'gone'", young_ms),
    ):
        id = f"{client} {name}".replace("'", "")
        values = f"'{id}', '{name}', {client}, {parent}, {last_ms}"
        place.sql(f"INSERT INTO sessions (id, session, client, parent, last_ms) VALUES ({values})")
        place.sql(f"INSERT INTO notes VALUES ('{id}', '{id}', 5, 'me', 'hm')")
    assert sweeper(place, of_rows(DAY_S)).sweep()["sessions"] == 3
    kept = [("NULL another",), ("NULL gone",), ("a wanted",), ("a young-child",)]
    assert sorted(place.sql("SELECT id FROM sessions")) == sorted(place.sql("SELECT id FROM notes")) == kept
    assert sweeper(place, of_rows(DAY_S)).sweep()["sessions"] == 0


def test_what_is_never_to_go_stays(place, store):
    """No rule, no look at the store: also one that is down is none of our business then."""
    store.write(aged(1, 3000), AT)
    assert sweeper(place, []).sweep() == {}
    assert len(left(store)) == 1
    assert aging(demo_snapshot()) == of_content(3 * DAY_S)  # rows stay for ever

    def down():
        raise StoreDown("not asked")

    assert Sweeper(down, list).sweep() == {}


def test_more_than_is_marked_at_once_goes_in_several_rounds(place, store, monkeypatch):
    """Each transaction has so many rows and no more, and between two of them others have their turn."""
    monkeypatch.setattr(retention, "MARKED", 30)
    monkeypatch.setattr(retention, "AT_ONCE", 7)
    store.write([row for number in range(100) for row in aged(number, 10)], AT)
    deleted = []
    plain = retention._delete

    def watched(database, rule, ids, before_ms):
        deleted.append(len(ids))
        return plain(database, rule, ids, before_ms)

    monkeypatch.setattr(retention, "_delete", watched)
    assert sweeper(place, of_rows(DAY_S)).sweep()["requests"] == 100
    assert left(store) == [] and max(deleted) == 7 and sum(deleted) == 100


def test_the_recorder_has_its_turn_while_much_is_deleted(place, store, monkeypatch):
    """Batches are stored in the middle of a sweep, for somebody who would not wait for its end."""
    monkeypatch.setattr(retention, "AT_ONCE", 50)
    store.write([row for number in range(600) for row in aged(number, 10)], AT)
    one = sweeper(place, of_rows(DAY_S))
    impatient = place.open(busy_s=1)
    batches = 0

    def others_turn(pause_s):
        nonlocal batches
        assert pause_s > 0
        batches += 1
        impatient.write([request_row(100_000 + batches, received_ms=clock.now_ms())], Position("k", batches))
        return False

    monkeypatch.setattr(one._stopping, "wait", others_turn)
    assert one.sweep()["requests"] == 600
    assert batches >= 600 / 50
    assert len(left(store)) == batches
    impatient.close()
    impatient.close()


def test_what_was_used_again_since_it_was_marked_stays(place, store):
    """A session that somebody takes up between the marking and the deleting, with all that belongs to it."""
    place.sql("CREATE TABLE parts (session TEXT)")
    rule = Rule(table="sessions", moment="last_ms", ttl_s=DAY_S, parts={"parts": "session"})
    for name in ("old", "taken-up"):
        place.sql(f"INSERT INTO sessions (id, session, first_ms, last_ms) VALUES ('{name}', '{name}', 5, 5)")
        place.sql(f"INSERT INTO parts VALUES ('{name}')")
    marked = store.read(lambda db: retention._mark(db, rule, 100))
    assert sorted(marked) == ["old", "taken-up"]
    place.sql("UPDATE sessions SET last_ms = 500 WHERE id = 'taken-up'")
    assert store.change(lambda db: retention._delete(db, rule, marked, 100)) == 1
    assert place.sql("SELECT id FROM sessions") == place.sql("SELECT session FROM parts") == [("taken-up",)]


def test_a_sweep_is_stopped_between_two_transactions(place, store, monkeypatch):
    """Nobody waits for it at the end, and the next one goes on."""
    monkeypatch.setattr(retention, "AT_ONCE", 1)
    monkeypatch.setattr(retention, "FIRST_SWEEP_S", 0.0)
    store.write([row for number in range(400) for row in aged(number, 10)], AT)
    one = sweeper(place, of_rows(DAY_S))
    one.start()
    until(lambda: len(left(store)) < 400)
    one.stop()
    some = len(left(store))
    assert 0 < some < 400
    monkeypatch.setattr(retention, "AT_ONCE", 200)
    assert sweeper(place, of_rows(DAY_S)).sweep()["requests"] == some


def test_a_store_that_is_down_is_tried_again_in_an_hour(monkeypatch, caplog):
    monkeypatch.setattr(retention, "FIRST_SWEEP_S", 0.0)
    monkeypatch.setattr(retention, "SWEEP_EVERY_S", 0.01)
    tries = []

    def down():
        tries.append(1)
        raise StoreDown("away")

    one = Sweeper(down, lambda: of_rows(DAY_S))
    one.start()
    until(lambda: len(tries) > 2)
    one.stop()
    assert "could not be deleted" in caplog.text and "away" in caplog.text


def test_a_bug_costs_one_sweep_and_not_the_next(place, store, monkeypatch, caplog):
    monkeypatch.setattr(retention, "FIRST_SWEEP_S", 0.0)
    monkeypatch.setattr(retention, "SWEEP_EVERY_S", 0.01)
    store.write(aged(1, 10), AT)
    asked = []

    def rules():
        asked.append(1)
        if len(asked) < 3:
            raise RuntimeError("a bug")
        return of_rows(DAY_S)

    one = Sweeper(place.open, rules)
    one.start()
    until(lambda: not left(store))
    one.stop()
    assert [record.fields["chore"] for record in caplog.records if record.levelname == "ERROR"] == ["sweeper"]


def test_the_rows_of_the_last_hours_are_counted_right_after_a_sweep(place, store):
    """The estimate follows what went at the old end."""
    store.write([row for number in range(100) for row in aged(number, 10 if number < 60 else 0)], AT)
    sweeper(place, of_rows(DAY_S)).sweep()
    assert store.counts() == Counts(40, 80)


def test_a_set_of_tools_goes_after_the_last_attempts_with_it(place, store, monkeypatch):
    """As a recorder and its workers live through it: what is in use stays, and what comes back is there again."""
    now_ms = clock.now_ms()
    stage = Estimates()

    def offered(number, days, name, schemas=None):
        """An attempt with a set of tools, stored so many days ago."""
        at_ms = now_ms - int(days * DAY_S * 1000)
        with monkeypatch.context() as patch:
            patch.setattr(clock, "now_ms", lambda: at_ms)
            patch.setattr(clock, "monotonic", lambda: at_ms / 1000)
            request = request_row(number, received_ms=at_ms)
            batch = Batch([request], [attempt_row(request, started_ms=at_ms, tools_hash=name, tools_sample=schemas)])
            stage.take(batch, store)
            store.write([*batch.requests, *batch.attempts], Position("j", number), batch.also)
            stage.stored(batch)

    offered(1, 20, "gone", b"[{}]")
    offered(2, 20, "lasting", b"[{}]")
    offered(3, 10, "lasting")
    offered(4, 7.01, "just-gone", b"[{}]")
    offered(5, 1, "young", b"[{}]")
    assert swept(place, of_rows(11 * DAY_S)) == {"requests": 2, "tool_sets": 1}
    assert place.sql("SELECT id FROM tool_sets ORDER BY id") == [("just-gone",), ("lasting",), ("young",)]
    assert swept(place, of_rows(7 * DAY_S)) == {"requests": 2, "tool_sets": 1}
    assert place.sql("SELECT id FROM tool_sets ORDER BY id") == [("just-gone",), ("young",)], "later than its attempts"
    offered(6, 0, "gone", b"[{}]")
    assert swept(place, of_rows(7 * DAY_S)) == {}
    left_over = "SELECT DISTINCT tools_hash FROM attempts WHERE tools_hash NOT IN (SELECT id FROM tool_sets)"
    assert place.sql(left_over) == []


def test_a_set_of_tools_that_came_into_use_since_it_was_marked_stays(place, store):
    """As does one of which an earlier release did not say when it was in use."""
    columns = "id, seen_ms, tools, bytes, tokens, names, used_ms"
    for name, used in (("old", "5"), ("taken-up", "5"), ("unsaid", "NULL")):
        place.sql(f"INSERT INTO tool_sets ({columns}) VALUES ('{name}', 5, 1, 2, 3, '{{}}', {used})")
    (rule,) = (rule for rule in of_rows(DAY_S) if rule.table == "tool_sets")
    marked = store.read(lambda db: retention._mark(db, rule, 100))
    assert sorted(marked) == ["old", "taken-up"]
    place.sql("UPDATE tool_sets SET used_ms = 500 WHERE id = 'taken-up'")
    assert store.change(lambda db: retention._delete(db, rule, marked, 100)) == 1
    assert place.sql("SELECT id FROM tool_sets ORDER BY id") == [("taken-up",), ("unsaid",)]


def test_content_of_a_request_that_has_no_row_goes_too(place, store):
    """It came while the journal was full, or after its row had gone: nothing else would ever take it away."""
    now_ms = clock.now_ms()
    for name, at_ms in (("old", 5), ("young", now_ms)):
        place.sql(
            "INSERT INTO request_blocks (id, request_id, direction, position, kind, block, at_ms)"
            f" VALUES ('{name}', '{name}', 'in', 0, 'message', 'b', {at_ms})"
        )
        place.sql(
            "INSERT INTO request_headers (id, request_id, direction, headers, at_ms)"
            f" VALUES ('{name}', '{name}', 'in', '{{}}', {at_ms})"
        )
    assert swept(place, of_rows(DAY_S)) == {"request_blocks": 1, "request_headers": 1}
    assert place.sql("SELECT id FROM request_blocks") == place.sql("SELECT id FROM request_headers") == [("young",)]
