"""The worker's end of the ledger: opened before the send, completed in batches, never in anybody's way."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import lmdb
import msgspec
import pytest

from arbiter.clock import monotonic
from arbiter.ledger import journal, records, slots
from arbiter.ledger.journal import Journal, JournalFile, NullJournal
from arbiter.ledger.records import OpenRecord, Row
from arbiter.ledger.row import AttemptRow, RequestRow
from tests.fakes.rows import attempt_row, decoded, request_row

LIMIT = 8 << 20


def done(state_dir: Path) -> list[Row]:
    """Completed rows in LMDB, in order."""
    file = JournalFile(state_dir, LIMIT)
    try:
        with file.env.read() as txn, txn.cursor(file.done) as cursor:
            return [decoded(value) for _, value in cursor]
    finally:
        file.close()


def opened(state_dir: Path) -> dict[str, OpenRecord]:
    """Open records, in LMDB and in slots."""
    file = JournalFile(state_dir, LIMIT)
    try:
        with file.env.read() as txn, txn.cursor(file.open) as cursor:
            found = {bytes(key).decode(): records.decode_open(value) for key, value in cursor}
            for path in slots.files(file.place).values():
                for record in map(records.decode_open, slots.left(path).values()):
                    assert record.attempt is not None and record.attempt.id not in found
                    found[record.attempt.id] = record
            return found
    finally:
        file.close()


def run(tmp_path, story, limit=LIMIT):
    """`story(journal)` on a loop, with the journal closed behind it."""

    async def main():
        pen = Journal(tmp_path, "w1", limit, asyncio.get_running_loop())
        try:
            return await story(pen)
        finally:
            await pen.aclose()

    return asyncio.run(main())


def test_an_attempt_is_in_lmdb_when_open_returns(tmp_path):
    """Not later: the next thing that happens is the send."""

    async def story(pen):
        request = request_row(outcome="cancelled")
        pen.open(request, attempt_row(request))
        record = opened(tmp_path)["r00000001-1"]
        assert record.request.id == request.id
        assert record.attempt is not None and record.attempt.provider == "openai"
        assert done(tmp_path) == []

    run(tmp_path, story)


def test_a_completed_request_leaves_its_rows_and_nothing_open(tmp_path):
    async def story(pen):
        request = request_row()
        attempt = attempt_row(request)
        pen.open(request, attempt)
        pen.close(attempt)
        pen.settle(request)
        assert pen.depth == 2
        await asyncio.sleep(0)
        await pen.aclose()
        assert done(tmp_path) == [attempt, request]
        assert opened(tmp_path) == {}
        assert (pen.dropped, pen.healthy, pen.reason) == (0, True, "")

    run(tmp_path, story)


def test_rows_are_written_50_ms_after_the_first_without_anybody_asking(tmp_path):
    async def story(pen):
        served(pen, 1)
        assert done(tmp_path) == []
        async with asyncio.timeout(10):
            while not done(tmp_path):
                await asyncio.sleep(0.01)

    run(tmp_path, story)


def served(pen, number):
    """A request with one attempt, from its opening to its end."""
    request = request_row(number)
    attempt = attempt_row(request)
    pen.open(request, attempt)
    pen.close(attempt)
    pen.settle(request)


def test_the_hundredth_row_is_written_at_once(tmp_path):
    async def story(pen):
        for number in range(journal.BATCH_ROWS // 2 - 1):
            served(pen, number)
        assert done(tmp_path) == []
        served(pen, 99)
        assert len(done(tmp_path)) == journal.BATCH_ROWS

    run(tmp_path, story)


def test_a_request_that_was_refused_is_written_in_the_loops_next_turn(tmp_path):
    """Nothing in LMDB tells of it yet, so a killed process would leave no word of it. Others wait for their batch."""

    async def story(pen):
        served(pen, 1)
        await asyncio.sleep(0)
        assert done(tmp_path) == []
        for number in (2, 3):
            pen.settle(request_row(number, outcome="error", attempts=0))
        assert done(tmp_path) == []  # not before the answer is on its way
        await asyncio.sleep(0)
        assert len(done(tmp_path)) == 4
        served(pen, 4)
        await asyncio.sleep(0)
        assert len(done(tmp_path)) == 4

    run(tmp_path, story)


def test_an_idle_journal_has_no_timer(tmp_path):
    async def story(pen):
        loop = asyncio.get_running_loop()
        pen.settle(request_row())
        pen.flush()
        assert pen._timer is None
        assert not [handle for handle in loop._scheduled if not handle.cancelled()]

    run(tmp_path, story)


def test_between_two_tries_the_request_itself_is_on_record(tmp_path):
    """A worker killed while it waits for its next try must not leave an attempt without its request."""

    async def story(pen):
        request = request_row(outcome="cancelled", attempts=1)
        first, second = attempt_row(request, 1, outcome="error"), attempt_row(request, 2)
        pen.open(request, first)
        pen.close(first)
        pen.flush()
        assert set(opened(tmp_path)) == {request.id}
        assert opened(tmp_path)[request.id].attempt is None
        pen.open(request, second)
        pen.close(second)
        pen.settle(request)
        pen.flush()
        assert opened(tmp_path) == {}
        assert done(tmp_path) == [first, second, request]

    run(tmp_path, story)


def test_an_attempt_may_come_after_its_request(tmp_path):
    """It stays open for as long as it is on its way, whatever became of the request; then nothing is left of it."""

    async def story(pen):
        request = request_row(outcome="cancelled")
        attempt = attempt_row(request)
        pen.open(request, attempt)
        pen.settle(request)
        pen.flush()
        assert set(opened(tmp_path)) == {attempt.id} and done(tmp_path) == [request]
        pen.close(attempt)
        pen.flush()
        assert opened(tmp_path) == {} and done(tmp_path) == [request, attempt]

    run(tmp_path, story)


def test_numbers_go_on_after_the_journal_was_emptied_and_reopened(tmp_path):
    """The store remembers how far it read: a number used twice would be a row skipped."""

    async def one(pen):
        pen.settle(request_row())

    run(tmp_path, one)
    file = JournalFile(tmp_path, LIMIT)
    with file.env.begin() as txn:
        txn.drop(file.done, delete=False)
    identity = file.id
    file.close()
    run(tmp_path, one)
    file = JournalFile(tmp_path, LIMIT)
    with file.env.read() as txn, txn.cursor(file.done) as cursor:
        assert [int.from_bytes(key, "big") for key, _ in cursor] == [2]
    assert file.id == identity
    file.close()


def test_odd_values_from_outside_do_not_cost_the_row(tmp_path):
    """A lone surrogate or a number of 30 digits is somebody else's fault, and the row is still wanted."""

    async def story(pen):
        request = request_row(user_agent="a\ud800b")
        attempt = attempt_row(request, input_tokens=10**30, sample=b"\xff text")
        pen.open(request, attempt)
        pen.close(attempt)
        pen.settle(request)
        pen.flush()
        stored_attempt, stored_request = done(tmp_path)
        assert stored_attempt.input_tokens is None and stored_attempt.output_tokens == 64
        assert stored_attempt.sample == b"\xff text"
        assert stored_request.user_agent == "a?b"
        assert pen.dropped == 0

    run(tmp_path, story)


def test_at_its_bound_the_journal_drops_whole_requests_and_counts_them(tmp_path):
    """What was opened is still completed, what comes later is counted, and nobody is stopped."""
    limit = 64 << 10

    async def story(pen):
        early = request_row(1)
        pen.open(early, attempt_row(early))
        number = 10
        while not pen.full:
            pen.settle(request_row(number, message="x" * 500))
            number += 1
            assert number < 1000
        assert not pen.healthy and "bound" in pen.reason
        kept = pen.depth
        late = request_row(2)
        pen.open(late, attempt_row(late))
        pen.close(attempt_row(late))
        pen.settle(late)
        assert pen.dropped == 2
        pen.close(attempt_row(early))
        pen.settle(early)
        pen.flush()
        rows = {row.id for row in done(tmp_path)}
        assert early.id in rows and f"{early.id}-1" in rows
        assert late.id not in rows and f"{late.id}-1" not in rows
        assert opened(tmp_path) == {}
        assert len(rows) == kept + 2

        file = JournalFile(tmp_path, limit)  # the recorder comes by
        with file.env.begin() as txn:
            txn.drop(file.done, delete=False)
        file.close()
        async with asyncio.timeout(10):
            while pen.full:
                fresh = request_row(number)
                number += 1
                pen.open(fresh, attempt_row(fresh))
                pen.close(attempt_row(fresh))
                pen.settle(fresh)
                await asyncio.sleep(0.01)
        assert pen.healthy and pen.reason == ""
        last = request_row(number)
        pen.settle(last)
        pen.flush()
        assert last.id in {row.id for row in done(tmp_path)}

    run(tmp_path, story, limit)


def test_a_worker_without_requests_learns_that_there_is_room_again(tmp_path):
    """One that says it is not ready gets none: it must not have to wait for one to look."""
    limit = 64 << 10

    async def story(pen):
        number = 1
        while not pen.full:
            pen.settle(request_row(number, message="x" * 500))
            number += 1
            assert number < 1000
        pen.look()
        assert pen.full
        file = JournalFile(tmp_path, limit)
        with file.env.begin() as txn:
            txn.drop(file.done, delete=False)
        file.close()
        pen.look()
        assert pen.healthy and pen.reason == ""

    run(tmp_path, story, limit)


def test_a_worker_without_requests_learns_that_lmdb_can_be_opened_again(tmp_path):
    async def story(pen):
        await pen.aclose()
        place = tmp_path / "journal"
        shutil.rmtree(place)
        place.write_text("in the way")
        late = Journal(tmp_path, "w2", LIMIT, asyncio.get_running_loop())
        assert not late.healthy
        place.unlink()
        async with asyncio.timeout(10):
            while not late.healthy:
                late.look()
                await asyncio.sleep(0.01)
        await late.aclose()

    run(tmp_path, story)


def test_while_lmdb_cannot_be_written_rows_wait_and_are_written_later(tmp_path, monkeypatch):
    """A full disk is nobody's turn lost: not an exception, not a wait, and nothing dropped."""

    async def story(pen):
        def broken():
            raise lmdb.DiskError("No space left on device")

        begin = pen._file.env.begin
        monkeypatch.setattr(pen._file.env, "begin", broken)
        requests = [request_row(number) for number in range(250)]
        for request in requests:
            pen.open(request, attempt_row(request))
            pen.close(attempt_row(request))
            pen.settle(request)
        assert not pen.healthy and "No space left" in pen.reason
        assert pen.dropped == 0
        monkeypatch.setattr(pen._file.env, "begin", begin)
        async with asyncio.timeout(10):
            while not pen.healthy:
                await asyncio.sleep(0.02)
        pen.flush()
        rows = [row.id for row in done(tmp_path)]
        assert len(rows) == len(set(rows)) == 500
        assert opened(tmp_path) == {}

    run(tmp_path, story)


def test_a_journal_that_lmdb_gave_up_is_opened_anew(tmp_path, monkeypatch):
    """After a failed write to its first pages LMDB answers nothing but a panic, for as long as it stays open."""

    async def story(pen):
        def panic():
            raise lmdb.PanicError("Update of meta page failed or environment had fatal error")

        given_up = pen._file
        monkeypatch.setattr(given_up.env, "begin", panic)
        served(pen, 1)
        pen.flush()
        assert not pen.healthy
        async with asyncio.timeout(10):
            while not pen.healthy:
                await asyncio.sleep(0.02)
        assert pen._file is not given_up
        assert len(done(tmp_path)) == 2

    run(tmp_path, story)


def test_a_journal_that_nobody_writes_to_is_tried_again_all_the_same(tmp_path, monkeypatch):
    """Where requests are refused while it is broken, they bring no rows that would show that it no longer is."""

    async def story(pen):
        def broken():
            raise lmdb.DiskError("No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(pen._file.env, "begin", broken)
            patch.setattr(pen, "_slots", None)  # where an attempt is opened it is noticed
            request = request_row(outcome="cancelled")
            pen.open(request, attempt_row(request))
            assert not pen.healthy
            await asyncio.sleep(0.15)
            pen.look()
            assert not pen.healthy
        async with asyncio.timeout(10):
            while not pen.healthy:
                await asyncio.sleep(0.02)
                pen.look()

    run(tmp_path, story)


def test_rows_that_wait_are_bounded(tmp_path, monkeypatch, caplog):
    """Half of the room is for requests that were sent: those who are refused meanwhile come in any number."""

    async def story(pen):
        def broken():
            raise lmdb.DiskError("No space left on device")

        monkeypatch.setattr(journal, "QUEUE_ROWS", 200)
        under_way = [request_row(number) for number in range(500, 510)]
        for request in under_way:
            pen.open(request, attempt_row(request))
        monkeypatch.setattr(pen._file.env, "begin", broken)
        for number in range(300):
            pen.settle(request_row(number))
        assert pen.dropped == 200
        for request in under_way:
            pen.close(attempt_row(request))
            pen.settle(request)
        assert pen.dropped == 200
        for request in map(request_row, range(600, 650)):
            pen.open(request, attempt_row(request))
            pen.close(attempt_row(request))
            pen.settle(request)
        assert pen.dropped == 220
        await pen.aclose()
        assert pen.dropped == 420
        said = [record.message for record in caplog.records]
        assert sum("not recorded, and counted" in line for line in said) == 1
        assert any("200 rows could not be written" in line for line in said)

    run(tmp_path, story)


def test_the_end_waits_for_room_as_long_as_it_may(tmp_path, monkeypatch):
    async def story(pen):
        begin, tries = pen._file.env.begin, []

        def broken():
            tries.append(1)
            if len(tries) < 4:
                raise lmdb.DiskError("No space left on device")
            return begin()

        monkeypatch.setattr(journal, "RETRY_S", (0.01, 0.01, 0.01))
        monkeypatch.setattr(pen._file.env, "begin", broken)
        pen.settle(request_row(1))
        await pen.aclose(monotonic() + 60)
        assert (pen.dropped, [row.id for row in done(tmp_path)]) == (0, ["r00000001"])

    run(tmp_path, story)


def test_a_state_directory_that_appears_later_is_enough(tmp_path):
    """A worker starts, serves and says so, also where nothing can be written yet."""
    place = tmp_path / "state"
    place.write_text("in the way")

    async def story(pen):
        request = request_row()
        pen.open(request, attempt_row(request))
        pen.close(attempt_row(request))
        pen.settle(request)
        assert not pen.healthy and pen.depth == 2
        place.unlink()
        async with asyncio.timeout(10):
            while not pen.healthy:
                await asyncio.sleep(0.02)
        assert {row.id for row in done(place)} == {"r00000001-1", "r00000001"}

    run(place, story)


def test_after_the_end_rows_are_counted_not_kept(tmp_path):
    async def story(pen):
        await pen.aclose()
        request = request_row()
        pen.open(request, attempt_row(request))
        pen.close(attempt_row(request))
        pen.settle(request)
        assert pen.dropped == 2
        await pen.aclose()

    run(tmp_path, story)


def test_a_worker_that_leaves_tidily_signs_off(tmp_path):
    async def story(pen):
        request = request_row()
        pen.open(request, attempt_row(request))
        pen.close(attempt_row(request))
        pen.settle(request)

    run(tmp_path, story)
    file = JournalFile(tmp_path, LIMIT)
    with file.env.read() as txn:
        assert txn.stat(file.workers)["entries"] == 0
    file.close()


def test_threads_that_open_and_write_at_once_do_not_wait_for_each_other_for_ever(tmp_path):
    """A recorder and a worker in one process: LMDB's lock and the interpreter's are never held crosswise.

    In a process of its own: two threads that do hold them crosswise stop everything in theirs.
    """
    script = """
        import sys, threading
        from pathlib import Path
        from arbiter.ledger.journal import JournalFile

        def use():
            for _ in range(100):
                file = JournalFile(Path(sys.argv[1]), 8 << 20)
                with file.env.begin() as txn:
                    file.append(txn, [b"row"])
                file.close()

        threads = [threading.Thread(target=use) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    """
    root = Path(__file__).resolve().parents[3]
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(root)}, check=True, timeout=60)
    file = JournalFile(tmp_path, LIMIT)
    assert file.depth() == 300
    file.close()


def test_without_storage_everything_is_taken_and_nothing_kept():
    async def story():
        pen = NullJournal()
        request = request_row()
        pen.open(request, attempt_row(request))
        pen.close(attempt_row(request))
        pen.settle(request)
        await pen.aclose()
        assert (pen.depth, pen.dropped, pen.healthy, pen.full, pen.reason) == (0, 0, True, False, "")

    asyncio.run(story())


@pytest.mark.parametrize(
    "data", [b"", b"\x01", b"\x09\x01\x90", b"\x01\x07\x90", b"\x01\x01\xc1", b"\x01\x01\x91\xa1x"]
)
def test_bytes_that_are_no_record_are_told_apart(data):
    """A record of another version or half a record is one row lost and named, never a recorder that stops."""
    with pytest.raises(records.Unreadable):
        decoded(data)


@pytest.mark.parametrize("kind", [RequestRow, AttemptRow])
def test_a_journal_of_an_older_or_newer_gateway_is_read(kind):
    """Fields are only appended. An old record ends earlier, and the new fields take their defaults; of a newer one the
    fields that nobody knows here are left out."""
    request = request_row(labels={"a": "b"}, follows_compaction=True)
    row = request if kind is RequestRow else attempt_row(request, rate_limits={"a": "b"}, cache_marks=["3:5m"])
    full = records.encode_row(row)
    values = msgspec.msgpack.decode(full[2:])
    fields = msgspec.structs.fields(kind)
    needed = max(index for index, field in enumerate(fields) if field.required) + 1
    assert len(values) == len(fields) > needed
    for length in range(needed, len(fields)):
        older = decoded(full[:2] + msgspec.msgpack.encode(values[:length]))
        assert older == kind(**dict(zip(kind.__struct_fields__[:length], values, strict=False)))
    newer = full[:2] + msgspec.msgpack.encode([*values, "unheard of", {"a": 1}, None])
    assert decoded(newer) == row
    opened = records.encode_open("w", request, attempt_row(request))
    head, worker, *rows = opened[:2], *msgspec.msgpack.decode(opened[2:])
    older = head + msgspec.msgpack.encode([worker, *(one[:-3] for one in rows)])
    newer = head + msgspec.msgpack.encode([worker, *([*one, "unheard of"] for one in rows), 7])
    assert records.opener(older) == records.opener(newer) == "w"
    assert records.decode_open(newer) == records.decode_open(opened)
    assert records.decode_open(older).request.id == request.id
