"""Captured content on its way: from a worker's queue to LMDB, into the store, and out of it again."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import lmdb
import pytest
import zstandard

from arbiter import clock
from arbiter.config.load import parse
from arbiter.config.snapshot import Capture as Settings
from arbiter.config.snapshot import Snapshot
from arbiter.ledger import capture as worker_side
from arbiter.ledger import capture_file, capture_keeper
from arbiter.ledger.capture import Capture, Heard, Known
from arbiter.ledger.capture_file import Captured, CaptureFile, Full, New
from arbiter.ledger.capture_keeper import Keeper
from arbiter.ledger.questions.content import Piece, content
from arbiter.ledger.retention import Sweeper, of_content, of_rows
from arbiter.ledger.store import StoreDown
from arbiter.state import environment
from arbiter.wire import native
from tests.fakes.gateway import until
from tests.fakes.stores import Place
from tests.fakes.wires import MESSAGES

HOUR_MS = 3_600_000


def snapshot(tmp_path: Path, capture: str = "content: true", rows_ttl: str = "never") -> Snapshot:
    text = f"""
providers: {{ a: {{ type: echo }} }}
state: lmdb://{tmp_path}/state
storage: {{ url: "sqlite:///{tmp_path}/arbiter.db", capture: {{ {capture} }}, rows_ttl: {rows_ttl} }}
"""
    return parse(text, "arbiter.yaml", {})


@pytest.fixture
def make_keeper(tmp_path: Path, place: Place) -> Iterator[Any]:
    made: list[Keeper] = []

    def make(settings: str = "content: true", rows_ttl: str = "never") -> Keeper:
        config = snapshot(tmp_path, settings, rows_ttl)
        made.append(Keeper(tmp_path / "state", lambda: config, place.open))
        return made[-1]

    yield make
    for keeper in made:
        keeper.close()


def worker(tmp_path: Path, **settings: Any) -> Capture:
    return Capture(tmp_path / "state", Settings(**{"content": True, **settings}), frozenset(), 16 << 20)


def heard(number: int, *texts: str, answer: str = "yes") -> Heard:
    """Request `number` of a conversation that has said `texts`."""
    body = {"model": "m", "system": "be brief", "messages": [{"role": "user", "content": text} for text in texts]}
    raw = json.dumps(body).encode()
    members = native.open_body(raw).members
    pieces = [MESSAGES.answer(answer)]
    at_ms = clock.now_ms()
    return Heard(f"r{number}", at_ms, "anthropic-messages", members, pieces, False, {"a": "b"}, [], len(raw))


def rows(place: Place, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in place.sql(sql)]


def drain(keeper: Keeper) -> int:
    moved = 0
    while count := keeper.step():
        moved += count
    return moved


def test_ten_turns_store_each_message_once(tmp_path, make_keeper, place):
    capture = worker(tmp_path)
    said = []
    for turn in range(10):
        said.append(f"turn {turn} " * 50)
        capture.take(heard(turn, *said, answer=f"answer {turn}"))
    capture.close()
    assert capture.dropped == 0
    assert drain(make_keeper()) == 10
    assert rows(place, "SELECT kind, COUNT(*) FROM blocks GROUP BY 1 ORDER BY 1") == [
        ("answer", 10),
        ("message", 10),
        ("parameters", 1),
        ("system", 1),
    ]
    assert rows(place, "SELECT COUNT(*) FROM request_blocks WHERE direction = 'in'") == [(sum(range(3, 13)),)]
    text = rows(place, "SELECT text FROM blocks WHERE kind = 'system'")[0][0]
    assert zstandard.ZstdDecompressor().decompress(text) == b'"be brief"'


def test_a_block_travels_once_while_the_worker_remembers_it(tmp_path):
    """Of a conversation that goes on only what is new is written to LMDB."""
    capture = worker(tmp_path)
    capture.take(heard(1, "first"))
    capture.take(heard(2, "first", "second"))
    capture.close()
    file = CaptureFile(tmp_path / "state", 1 << 20)
    records, _ = file.first(10, 1 << 20)
    file.close()
    first, second = map(capture_file.decode, records)
    assert [new.kind for new in first.blocks] == ["system", "message", "parameters", "answer"]
    assert [new.kind for new in second.blocks] == ["message"]
    assert len(second.uses) == 5


def answers(place: Place) -> list[Piece]:
    (request_id,) = {row[0] for row in rows(place, "SELECT request_id FROM request_blocks")}
    with closing(place.open()) as store:
        found = store.read(lambda database: content(database, request_id))
    return [piece for piece in found.pieces if piece.use.direction == "out"]


def test_a_stream_of_which_the_rest_was_not_held_says_so(tmp_path, make_keeper, place):
    capture = worker(tmp_path)
    one = heard(1, "how long is it?")
    one.pieces, one.left_out, one.is_stream = MESSAGES.events("as far as ", "this")[:4], 1234, True
    capture.take(one)
    capture.close()
    drain(make_keeper())
    (answer,) = answers(place)
    assert answer.use.marks == {"left_out_bytes": 1234}
    assert answer.said() == [("assistant", "as far as this"), ("left out", "[1234 bytes more were not kept]")]


def test_a_whole_answer_that_was_not_held_is_told_of(tmp_path, make_keeper, place):
    """Half of a JSON text is none."""
    capture = worker(tmp_path)
    one = heard(1, "how long is it?")
    one.pieces, one.left_out = [], 20 << 20
    capture.take(one)
    capture.close()
    drain(make_keeper())
    (answer,) = answers(place)
    assert answer.use.marks == {"left_out_bytes": 20 << 20}
    assert answer.said()[0] == ("answer", "[withheld: too long]")


def test_what_was_written_long_ago_is_written_anew(monkeypatch):
    """Before the store could have swept it, or have been replaced."""
    now = 1000.0
    monkeypatch.setattr(worker_side.clock, "monotonic", lambda: now)
    known = Known(ttl_s=600.0)
    block = worker_side.Block("id", b"")
    known.add({b"key": block})
    now += 299
    assert known.get(b"key") is block
    now += 2
    assert known.get(b"key") is None


def test_a_record_that_comes_twice_changes_nothing(tmp_path, make_keeper, place):
    """Control may die between the store's transaction and LMDB's."""
    capture = worker(tmp_path, headers=True)
    capture.take(heard(1, "once"))
    capture.close()
    keeper = make_keeper()
    file = CaptureFile(tmp_path / "state", 1 << 20)
    (record,), _ = file.first(10, 1 << 20)
    assert drain(keeper) == 1
    counts = (
        "SELECT (SELECT COUNT(*) FROM blocks), (SELECT COUNT(*) FROM request_blocks), COUNT(*) FROM request_headers"
    )
    before = rows(place, counts)
    assert before == [(4, 4, 1)]
    file.put(capture_file.decode(record))
    file.close()
    assert drain(keeper) == 1
    assert rows(place, counts) == before


def test_a_transaction_holds_no_more_rows_than_others_wait_for(tmp_path, make_keeper, place, monkeypatch):
    """Each request of a long conversation refers to all of it, and the recorder writes to the same database."""
    put: list[int] = []

    class Watched(Keeper):
        def _put(self, captured: Any) -> None:
            put.append(sum(len(one.uses) + len(one.blocks) for one in captured))
            super()._put(captured)

    monkeypatch.setattr(capture_keeper, "BATCH_ROWS", 30)
    capture = worker(tmp_path)
    texts = [f"turn {turn}" for turn in range(9)]
    for number in range(1, 10):
        capture.take(heard(number, *texts[:number]))
    capture.close()
    keeper = make_keeper()
    keeper.__class__ = Watched
    assert drain(keeper) == 9
    assert len(put) > 2 and max(put) <= 30
    (expected,) = rows(place, "SELECT (SELECT COUNT(*) FROM blocks) + (SELECT COUNT(*) FROM request_blocks)")
    assert sum(put) == expected[0]


def test_what_nobody_can_read_does_not_hold_up_the_rest(tmp_path, make_keeper, place, caplog):
    file = CaptureFile(tmp_path / "state", 1 << 20)
    with file.env.begin() as txn:
        txn.put((1).to_bytes(8, "big"), b"\x09 of another version", db=file.queue)
        txn.put(capture_file.SEQUENCE, (1).to_bytes(8, "big"), db=file.meta)
    file.put(Captured("r1", 1, headers={"in": {"a": "b"}}))
    file.close()
    assert drain(make_keeper()) == 2
    assert rows(place, "SELECT request_id, headers FROM request_headers") == [("r1", '{"a":"b"}')]
    assert "captured content is lost" in caplog.text


def test_what_the_store_will_never_take_does_not_hold_up_the_rest(tmp_path, make_keeper, place, caplog):
    file = CaptureFile(tmp_path / "state", 1 << 20)
    for number, at_ms in ((1, 1), (2, 1 << 63), (3, 1)):
        file.put(Captured(f"r{number}", at_ms, headers={"in": {"a": "b"}}))
    file.close()
    assert drain(make_keeper()) == 3
    assert rows(place, "SELECT request_id FROM request_headers ORDER BY 1") == [("r1",), ("r3",)]
    assert "captured content of r2 is lost" in caplog.text


def test_at_its_bound_the_environment_takes_no_more_and_takes_more_once_drained(tmp_path, make_keeper, place):
    capture = worker(tmp_path, max=1 << 20)
    for number in range(60):
        capture.take(heard(number, random.Random(number).randbytes(30_000).hex()))
    capture.close()
    assert 0 < capture.dropped < 60
    keeper = make_keeper("content: true, max: 1MiB")
    assert drain(keeper) == 60 - capture.dropped
    again = worker(tmp_path, max=1 << 20)
    again.take(heard(99, "room again"))
    again.close()
    assert again.dropped == 0 and drain(keeper) == 1


def fill(file: CaptureFile, records: Iterable[Captured]) -> None:
    for record in records:
        file.put(record)


def test_what_was_dropped_is_not_taken_for_known(tmp_path, make_keeper, place):
    """A block that did not reach LMDB comes with the next request that holds it."""
    full = CaptureFile(tmp_path / "state", 1 << 20)
    blob = New("b", "message", None, 1, bytes(1000))
    with pytest.raises(Full):
        fill(full, (Captured(f"filler-{number}", 1, blocks=[blob]) for number in range(5000)))
    capture = worker(tmp_path, max=1 << 20)
    capture.take(heard(1, "does not fit " * 300))
    while not capture.dropped:
        pass
    keeper = make_keeper("content: true, max: 1MiB")
    drain(keeper)
    capture.take(heard(2, "does not fit " * 300))
    capture.close()
    full.close()
    drain(keeper)
    missing = "SELECT COUNT(*) FROM request_blocks u WHERE NOT EXISTS (SELECT 1 FROM blocks b WHERE b.id = u.block)"
    assert rows(place, missing) == [(0,)]
    assert rows(place, "SELECT COUNT(*) FROM request_blocks WHERE request_id = 'r2'") == [(4,)]


def test_a_full_queue_drops_and_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(worker_side, "QUEUE_REQUESTS", 0)
    capture = worker(tmp_path)
    capture.take(heard(1, "a"))
    assert capture.dropped == 1
    capture.close()


def test_an_environment_that_cannot_be_opened_costs_the_content_only(tmp_path, caplog):
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "capture").write_text("a file where a directory should be")
    capture = worker(tmp_path)
    capture.take(heard(1, "a"))
    capture.close()
    assert capture.dropped == 1 and "content cannot be written" in caplog.text


def test_a_disk_that_takes_no_more_costs_the_content_and_not_the_thread(tmp_path, monkeypatch, caplog):
    """Neither to write nor to close is possible then; what comes once there is room is kept."""
    monkeypatch.setattr(worker_side, "RETRY_S", 0.0)
    is_full = True
    put, close = CaptureFile.put, environment.Environment.close

    def may_put(file: CaptureFile, captured: Captured) -> None:
        if is_full:
            raise lmdb.DiskError("no space left")
        put(file, captured)

    def may_close(env: environment.Environment) -> None:
        close(env)
        if is_full:
            raise lmdb.DiskError("no space left")

    monkeypatch.setattr(CaptureFile, "put", may_put)
    monkeypatch.setattr(environment.Environment, "close", may_close)
    capture = worker(tmp_path)
    capture.take(heard(1, "a"))
    until(lambda: capture.dropped == 1)
    until(lambda: "content cannot be written" in caplog.text)
    is_full = False
    capture.take(heard(2, "b"))
    capture.close()
    assert capture.dropped == 1 and "content can be written again" in caplog.text
    file = CaptureFile(tmp_path / "state", 1 << 20)
    assert file.depth() == 1
    file.close()


@pytest.mark.parametrize("error", [RuntimeError("a bug"), lmdb.PanicError("no more"), StoreDown("away")])
def test_content_goes_on_being_stored_whatever_failed_once(tmp_path, make_keeper, place, monkeypatch, caplog, error):
    """After a panic LMDB takes nothing until it is opened anew."""
    monkeypatch.setattr(capture_keeper, "FAILED_S", 0.01)
    capture = worker(tmp_path)
    capture.take(heard(1, "a"))
    capture.close()
    first, failed = CaptureFile.first, []

    def may_fail(file: CaptureFile, records: int, size: int) -> Any:
        if len(failed) < 3 or file in failed:
            failed.append(file)
            raise error
        return first(file, records, size)

    monkeypatch.setattr(CaptureFile, "first", may_fail)
    keeper = make_keeper()
    keeper.start()
    until(lambda: place.is_made() and rows(place, "SELECT COUNT(*) FROM blocks") == [(4,)])
    keeper.stop()
    assert len(set(failed)) == 3
    told = [record for record in caplog.records if "have to wait" in record.message]
    assert len(told) == 1 and (told[0].levelname == "ERROR") == isinstance(error, RuntimeError)


def swept(place: Place, keeper: Keeper) -> int:
    """An hourly sweep of both steps, with a time to live of an hour."""
    Sweeper(place.open, lambda: of_content(3600.0)).sweep()
    return keeper.sweep()


def aged(place: Place, request_id: str, age_ms: int) -> None:
    change(
        place,
        f"UPDATE request_blocks SET at_ms = at_ms - {age_ms} WHERE request_id = '{request_id}'",
        f"UPDATE request_headers SET at_ms = at_ms - {age_ms} WHERE request_id = '{request_id}'",
        f"UPDATE blocks SET last_used_ms = last_used_ms - {age_ms}",
    )


def change(place: Place, *statements: str) -> None:
    store = place.open()
    for statement in statements:
        store.change(lambda database, statement=statement: database.run(statement))
    store.close()


def test_a_sweep_takes_old_references_and_then_what_nothing_refers_to(tmp_path, make_keeper, place):
    capture = worker(tmp_path, headers=True)
    capture.take(heard(1, "shared", "old"))
    capture.take(heard(2, "shared", "new"))
    capture.close()
    keeper = make_keeper("content: true, ttl: 1h")
    drain(keeper)
    assert swept(place, keeper) == 0
    aged(place, "r1", 2 * HOUR_MS)
    assert keeper.sweep() == 0  # it is still referred to
    assert swept(place, keeper) == 1  # the message that only the old request held
    assert {row[0] for row in rows(place, "SELECT DISTINCT request_id FROM request_blocks")} == {"r2"}
    assert rows(place, "SELECT request_id FROM request_headers") == [("r2",)]
    assert rows(place, "SELECT COUNT(*) FROM blocks") == [(5,)]


def test_a_block_that_was_used_lately_outlives_its_references(tmp_path, make_keeper, place):
    """A worker may be about to refer to it again without sending it."""
    capture = worker(tmp_path)
    capture.take(heard(1, "a"))
    capture.close()
    keeper = make_keeper("content: true, ttl: 1h")
    drain(keeper)
    change(place, "UPDATE request_blocks SET at_ms = 0")
    assert swept(place, keeper) == 0
    assert rows(place, "SELECT (SELECT COUNT(*) FROM request_blocks), COUNT(*) FROM blocks") == [(0, 4)]


def test_a_sweep_of_much_goes_in_small_steps(tmp_path, make_keeper, place, monkeypatch):
    """No transaction holds the database for long, however much there is to do."""
    monkeypatch.setattr(capture_keeper, "SWEEP_BLOCKS", 10)
    capture = worker(tmp_path)
    for number in range(30):
        capture.take(heard(number, f"message {number}", answer=f"answer {number}"))
    capture.close()
    keeper = make_keeper("content: true, ttl: 1h")
    drain(keeper)
    change(place, "UPDATE request_blocks SET at_ms = 0", "UPDATE blocks SET last_used_ms = 0")
    assert swept(place, keeper) == 62
    assert rows(place, "SELECT (SELECT COUNT(*) FROM request_blocks), COUNT(*) FROM blocks") == [(0, 0)]


def test_without_a_ttl_nothing_is_swept(tmp_path, make_keeper, place):
    capture = worker(tmp_path)
    capture.take(heard(1, "a"))
    capture.close()
    keeper = make_keeper("content: true, ttl: 0")
    drain(keeper)
    aged(place, "r1", 10_000 * HOUR_MS)
    assert keeper.sweep() == 0
    assert rows(place, "SELECT COUNT(*) FROM request_blocks") == [(4,)]


def test_content_kept_for_ever_goes_with_rows_that_are_not(tmp_path, make_keeper, place):
    """`storage.rows_ttl` means what was captured too, down to the blocks, and these where no worker counts on them."""
    capture = worker(tmp_path)
    capture.take(heard(1, "a"))
    capture.close()
    keeper = make_keeper("content: true, ttl: 0", rows_ttl="1h")
    drain(keeper)
    aged(place, "r1", HOUR_MS + HOUR_MS // 2)
    Sweeper(place.open, lambda: of_rows(3600.0)).sweep()
    assert rows(place, "SELECT COUNT(*) FROM request_blocks") == [(0,)]
    assert keeper.sweep() == 0  # a worker may still take it for written
    change(place, f"UPDATE blocks SET last_used_ms = last_used_ms - {HOUR_MS}")
    assert keeper.sweep() == 4
    assert rows(place, "SELECT COUNT(*) FROM blocks") == [(0,)]


def test_where_nothing_is_captured_nothing_is_made(tmp_path, make_keeper, place):
    keeper = make_keeper("content: false")
    assert keeper.step() == 0
    assert not (tmp_path / "state").exists() and not (tmp_path / "arbiter.db").exists()
