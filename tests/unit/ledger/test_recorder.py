"""From the journal into the store: every row, exactly once, whoever dies in between."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import lmdb
import msgspec
import pytest

from arbiter.ledger import reaper, recorder, records
from arbiter.ledger.journal import Journal, JournalFile
from arbiter.ledger.opening import open_store
from arbiter.ledger.query import Filters
from arbiter.ledger.recorder import Recorder
from arbiter.ledger.sqlstore import SqlStore
from arbiter.state import process
from tests.fakes.rows import attempt_row, request_row
from tests.fakes.stores import Place, SqlitePlace

LIMIT = 32 << 20
ROOT = Path(__file__).resolve().parents[3]

# A worker that says on its standard output what it has done: "o ID" once an attempt is open, "f ID" once its rows are
# in LMDB for good. It runs until it is killed, or for COUNT requests.
WRITER = """
    import asyncio, os, sys
    from pathlib import Path
    from arbiter.ledger.journal import Journal
    from tests.fakes.rows import attempt_row, request_row

    async def main(place, name, count):
        pen = Journal(Path(place), name, 32 << 20, asyncio.get_running_loop())
        done = []
        for number in range(count):
            request = request_row(number, id=f"{name}-{number:06d}")
            attempt = attempt_row(request)
            pen.open(request, attempt)
            os.write(1, f"o {attempt.id}\\n".encode())
            pen.close(attempt)
            pen.settle(request)
            done.append(attempt.id)
            if not pen._pending:
                os.write(1, "".join(f"f {one}\\n" for one in done).encode())
                done.clear()
            if number % 7 == 0:
                await asyncio.sleep(0)
        await pen.aclose()

    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


def python(script: str, *args: object, **kwargs: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, args)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        **kwargs,
    )


def make(tmp_path: Path, place: Place, **kwargs: float) -> Recorder:
    return Recorder(tmp_path / "state", LIMIT, lambda: place.open(**kwargs))


def drain(one: Recorder) -> int:
    moved = 0
    while count := one.step():
        moved += count
    return moved


def fill(tmp_path: Path, requests: int, start: int = 0) -> None:
    """A worker that served `requests` and left tidily."""

    async def main():
        pen = Journal(tmp_path / "state", "w", LIMIT, asyncio.get_running_loop())
        for number in range(start, start + requests):
            request = request_row(number)
            attempt = attempt_row(request)
            pen.open(request, attempt)
            pen.close(attempt)
            pen.settle(request)
        await pen.aclose()

    asyncio.run(main())


def stored(place: Place) -> tuple[dict[str, str], dict[str, str]]:
    """Outcomes of requests and attempts in the store, by id; a second row for one id fails."""
    requests = place.sql("SELECT id, outcome FROM requests")
    attempts = place.sql("SELECT id, outcome FROM attempts")
    assert len(requests) == len(dict(requests)) and len(attempts) == len(dict(attempts))
    return dict(requests), dict(attempts)


def test_rows_arrive_whole_and_leave_the_journal(tmp_path, place):
    fill(tmp_path, 700)
    one = make(tmp_path, place)
    assert drain(one) == 1400
    state = one.state()
    assert (state.depth, state.open, state.recorded, state.journal_bytes) == (0, 0, 1400, 0)
    one.close()
    store = place.open(readonly=True)
    request = request_row(5)
    entry = store.request(request.id)
    assert entry is not None
    assert entry.request == request
    assert entry.attempts == [attempt_row(request)]
    store.close()


def test_a_recorder_killed_before_it_emptied_the_journal_writes_nothing_twice(tmp_path, place):
    """The position travels in the rows' own transaction, so the next recorder knows what is already there."""
    fill(tmp_path, 300)
    killed = python(
        """
        import os, sys
        from pathlib import Path
        from arbiter.ledger.recorder import Recorder
        from arbiter.ledger.opening import open_store
        one = Recorder(Path(sys.argv[1]), 32 << 20, lambda: open_store(sys.argv[2]))
        delete, calls = one._delete, []
        def die(file, last):
            if last:
                os.kill(os.getpid(), 9)
        one._delete = die
        one.step()
        """,
        tmp_path / "state",
        place.url,
    )
    assert killed.wait(60) == -signal.SIGKILL
    assert len(stored(place)[0]) + len(stored(place)[1]) == recorder.BATCH_ROWS

    written: list[str] = []

    class Watched(SqlStore):
        def write(self, batch, position, also=()):
            written.extend(row.id for row in batch)
            super().write(batch, position, also)

    one = Recorder(tmp_path / "state", LIMIT, lambda: Watched(place.open().database, "watched", readonly=False))
    drain(one)
    one.close()
    assert len(written) == 600 - recorder.BATCH_ROWS
    requests, attempts = stored(place)
    assert len(requests) == len(attempts) == 300


def test_a_row_seen_twice_changes_nothing(tmp_path, place):
    """Rows are idempotent by id, whatever brought the second one."""
    fill(tmp_path, 1)
    one = make(tmp_path, place)
    drain(one)
    file = JournalFile(tmp_path / "state", LIMIT)
    with file.env.begin() as txn:
        file.append(txn, [records.encode_row(request_row(0, outcome="interrupted"))])
    file.close()
    drain(one)
    one.close()
    assert stored(place)[0] == {"r00000000": "ok"}


def test_two_recorders_by_mistake_store_every_row_once(tmp_path, place):
    """Each has its own idea of how far the journal was stored; the ids settle it, and nothing is lost in between."""
    fill(tmp_path, 800)
    both = [make(tmp_path, place), make(tmp_path, place)]
    place.open().close()  # the tables are there before both look
    for one in both:
        one.start()
    fill(tmp_path, 400, start=800)
    until(lambda: all(one.state().depth == 0 for one in both))
    for one in both:
        assert one.state().rejected == 0
        one.stop()
    requests, attempts = stored(place)
    assert len(requests) == len(attempts) == 1200


def test_an_attempt_whose_worker_was_only_slow_tells_how_it_ended(tmp_path, place, monkeypatch):
    """Taken for dead, it writes on. What was stored is put right; nothing stands there twice or is left open."""

    async def story():
        pen = Journal(tmp_path / "state", "w1", LIMIT, asyncio.get_running_loop())
        request = request_row(1, outcome="cancelled")
        attempt = attempt_row(request, outcome="interrupted")
        pen.open(request, attempt)
        one = make(tmp_path, place)
        with monkeypatch.context() as patch:
            patch.setattr(reaper.process, "is_alive", lambda identity: False)
            drain(one)
        assert stored(place) == ({"r00000001": "interrupted"}, {"r00000001-1": "interrupted"})
        attempt.outcome = request.outcome = "ok"
        pen.close(attempt)
        pen.settle(request)
        await pen.aclose()
        one._reap_at = 0.0
        drain(one)
        state = one.state()
        assert (state.open, state.depth, state.rejected) == (0, 0, 0)
        one.close()

    asyncio.run(story())
    assert stored(place) == ({"r00000001": "ok"}, {"r00000001-1": "ok"})


def test_a_worker_that_was_taken_for_dead_says_that_it_is_not(tmp_path, place, monkeypatch, caplog):
    """What it opens from then on is not interrupted, and the log tells of it once."""

    async def story():
        pen = Journal(tmp_path / "state", "w1", LIMIT, asyncio.get_running_loop())
        one = make(tmp_path, place)
        for _ in range(3):
            with monkeypatch.context() as patch:
                patch.setattr(reaper.process, "is_alive", lambda identity: False)
                one._reap_at = 0.0
                drain(one)
            assert one.state().workers == []
            pen.look()
            assert [worker["alive"] for worker in one.state().workers] == [True]
        request = request_row(1)
        pen.open(request, attempt_row(request))
        one._reap_at = 0.0
        drain(one)
        assert (one.state().open, one.state().interrupted) == (1, 0)
        one.close()
        await pen.aclose()

    asyncio.run(story())
    assert caplog.text.count("taken for dead") == 1


def test_a_new_journal_starts_from_its_own_beginning(tmp_path, place):
    """After a damaged journal was moved aside its successor counts from 1 again, and nothing is taken for known."""
    fill(tmp_path, 10)
    one = make(tmp_path, place)
    drain(one)
    one.close()
    (tmp_path / "state" / "journal").rename(tmp_path / "aside")
    fill(tmp_path, 2, start=10)
    one = make(tmp_path, place)
    assert drain(one) == 4
    one.close()
    assert len(stored(place)[0]) == 12


def test_kill_nine_inside_lmdb_loses_nothing_that_was_opened(tmp_path, place):
    """Every attempt a killed worker opened is in the store, once, with its request: finished, or interrupted."""
    opened, flushed = set(), set()
    for life in range(6):
        writer = python(WRITER, tmp_path / "state", f"w{life}", 1_000_000, stdout=subprocess.PIPE)
        assert writer.stdout is not None
        lines = [writer.stdout.readline() for _ in range(150 + 37 * life)]
        writer.kill()
        lines += writer.stdout.read().splitlines(keepends=True)
        writer.communicate()
        whole = [line.decode().split() for line in lines if line.endswith(b"\n")]
        opened |= {word for kind, word in whole if kind == "o"}
        flushed |= {word for kind, word in whole if kind == "f"}
    one = make(tmp_path, place)
    drain(one)
    state = one.state()
    one.close()
    requests, attempts = stored(place)
    assert (state.open, state.depth) == (0, 0)
    assert opened <= set(attempts)
    assert {attempts[word] for word in flushed} == {"ok"}
    assert set(attempts.values()) <= {"ok", "interrupted"}
    # An attempt may be open without its "o" having left the process; one of those per life.
    assert len(set(attempts) - opened) <= 6
    assert {word.rpartition("-")[0] for word in attempts} == set(requests)
    assert state.interrupted == sum(outcome == "interrupted" for outcome in attempts.values())


def test_a_worker_that_dies_holding_the_write_lock_stops_nobody(tmp_path, place):
    """LMDB's lock survives its holder, and the half-written transaction never was."""
    fill(tmp_path, 3)
    killed = python(
        """
        import os, sys
        from pathlib import Path
        from arbiter.ledger.journal import JournalFile
        file = JournalFile(Path(sys.argv[1]), 32 << 20)
        txn = file.env.begin()
        file.append(txn, [b"half a row"] * 50)
        os.kill(os.getpid(), 9)
        """,
        tmp_path / "state",
    )
    assert killed.wait(60) == -signal.SIGKILL
    fill(tmp_path, 3, start=3)
    one = make(tmp_path, place)
    assert drain(one) == 12
    assert one.state().rejected == 0
    one.close()


def test_two_writers_and_the_recorder_at_once_agree_on_every_row(tmp_path, place):
    one = make(tmp_path, place)
    one.start()
    writers = [python(WRITER, tmp_path / "state", name, 1200, stdout=subprocess.DEVNULL) for name in ("a", "b")]
    assert [writer.wait(120) for writer in writers] == [0, 0]
    one.stop()
    requests, attempts = stored(place)
    assert set(requests) == {f"{name}-{number:06d}" for name in "ab" for number in range(1200)}
    assert set(attempts) == {f"{request}-1" for request in requests}
    assert set(requests.values()) | set(attempts.values()) == {"ok"}


def test_a_locked_store_loses_nothing_and_says_so(tmp_path, place, monkeypatch):
    """Somebody's long transaction: rows wait in the journal, the state gives the reason, and all arrive later."""
    monkeypatch.setattr(recorder, "LOCKED_S", 0.1)
    fill(tmp_path, 5)
    one = make(tmp_path, place, busy_s=0.02)
    drain(one)
    with place.held():
        one.start()
        fill(tmp_path, 20, start=5)
        until(lambda: not one.state().healthy)
        assert "lock" in one.state().reason
        assert one.state().depth == 40
    until(lambda: one.state().depth == 0 and one.state().healthy)
    assert one.state().reason == ""
    one.stop()
    assert len(stored(place)[0]) == 25


def test_a_store_that_others_write_to_for_a_while_is_not_down(tmp_path, place, monkeypatch, caplog):
    """Whoever waits for a slow disk holds the lock so long: the rows wait, and nobody is told of it."""
    monkeypatch.setattr(recorder, "LOCKED_S", 60.0)
    fill(tmp_path, 5)
    one = make(tmp_path, place, busy_s=0.02)
    drain(one)
    fill(tmp_path, 20, start=5)
    with place.held():
        for _ in range(3):
            assert one._try_step() > recorder.PAUSE_S
        assert one.state().healthy and one.state().reason == ""
    while one._try_step() != recorder.PAUSE_S:
        pass
    one.stop()
    assert len(stored(place)[0]) == 25
    assert not [record for record in caplog.records if record.name == "arbiter.ledger"]


def test_rows_reach_the_store_although_the_journal_cannot_be_written(tmp_path, place, monkeypatch):
    """Its disk is full, so nothing can be removed from it: the state says so, and nothing is stored twice."""
    fill(tmp_path, 600)
    one = make(tmp_path, place)
    assert one.step() == recorder.BATCH_ROWS

    def full():
        raise lmdb.DiskError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(one._file.env, "begin", full)
        while one._try_step() != recorder.PAUSE_S:
            pass
        state = one.state()
        assert not state.healthy and "No space left" in state.reason
        assert (state.recorded, state.depth) == (1200, 1200 - recorder.BATCH_ROWS)
    one._try_step()
    state = one.state()
    assert (state.healthy, state.recorded, state.depth) == (True, 1200, 0)
    one.close()
    assert len(stored(place)[0]) == 600


def test_a_journal_that_lmdb_gave_up_is_opened_anew(tmp_path, place, monkeypatch):
    """After a failed write to its first pages LMDB answers nothing but a panic, for as long as it stays open."""
    fill(tmp_path, 5)
    one = make(tmp_path, place)
    one._try_step()
    fill(tmp_path, 5, start=5)
    given_up = one._file

    def panic():
        raise lmdb.PanicError("Update of meta page failed or environment had fatal error")

    monkeypatch.setattr(given_up.env, "begin", panic)
    assert one._try_step() > recorder.PAUSE_S and not one.state().healthy
    assert one._try_step() == recorder.PAUSE_S and one._file is not given_up
    assert one.state().healthy and one.state().depth == 0
    one.close()
    assert len(stored(place)[0]) == 10


def test_a_store_that_could_not_take_a_row_is_noticed_while_there_is_none(tmp_path, monkeypatch):
    """And it stays so until it could: to be opened and read is not enough."""
    place = SqlitePlace(tmp_path / "a.db")
    monkeypatch.setattr(recorder, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(recorder, "LOCKED_S", 0.0)
    one = make(tmp_path, place, busy_s=0.02)
    assert one._try_step() == recorder.PAUSE_S and one.state().healthy
    with place.held():
        for _ in range(3):
            assert one._try_step() > recorder.PAUSE_S
            assert not one.state().healthy and "lock" in one.state().reason
    assert one._try_step() == recorder.PAUSE_S and one.state().healthy
    one.close()


@pytest.mark.parametrize("gone", ["removed", "replaced"])
def test_rows_go_where_they_are_found_also_when_the_file_was_taken_away(tmp_path, gone):
    """A file that has no name any more takes rows as well as any, and nobody ever reads them."""
    place = SqlitePlace(tmp_path / "a.db")
    one = make(tmp_path, place)
    fill(tmp_path, 1)
    drain(one)
    for name in ("", "-wal", "-shm"):
        Path(f"{place.path}{name}").unlink()
    if gone == "replaced":
        place.open().close()
    fill(tmp_path, 2, start=1)
    assert one._try_step() > recorder.PAUSE_S
    assert gone in one.state().reason and "while it was open" in one.state().reason
    one._try_step()
    assert one.state().healthy and one.state().depth == 0
    one.close()
    assert list(stored(place)[0]) == ["r00000001", "r00000002"]


def test_workers_hear_how_the_recorder_is(tmp_path, place, monkeypatch):
    """They answer /health/ready, and they are not the ones who see the store."""

    async def ask() -> str:
        pen = Journal(tmp_path / "state", "asks", LIMIT, asyncio.get_running_loop())
        try:
            return pen.store_reason
        finally:
            await pen.aclose()

    assert "recorder" in asyncio.run(ask())
    one = make(tmp_path, place, busy_s=0.02)
    one.start()
    until(lambda: asyncio.run(ask()) == "")
    with place.held():
        fill(tmp_path, 1)
        until(lambda: "lock" in asyncio.run(ask()))
    until(lambda: asyncio.run(ask()) == "")
    one.stop()
    monkeypatch.setattr("arbiter.ledger.journal.BEAT_LATE_MS", -1)  # as if it had stopped long ago
    assert "recorder" in asyncio.run(ask())


def test_stopping_drains_what_is_there(tmp_path, place):
    one = make(tmp_path, place)
    one.start()
    until(lambda: place.is_made())
    fill(tmp_path, 1200)
    one.stop()
    assert len(stored(place)[0]) == 1200


@pytest.mark.parametrize("url", ["sqlite:////", "postgresql://arbiter@127.0.0.1:1/nobody-listens"])
def test_stopping_with_the_store_down_ends_all_the_same(tmp_path, monkeypatch, url):
    monkeypatch.setattr(recorder, "STOP_WITHIN_S", 0.2)
    fill(tmp_path, 3)
    one = Recorder(tmp_path / "state", LIMIT, lambda: open_store(url))
    one.start()
    until(lambda: not one.state().healthy)
    one.stop()
    file = JournalFile(tmp_path / "state", LIMIT)
    assert file.depth() == 6
    file.close()


def test_what_a_dead_worker_left_open_is_interrupted_exactly_once(tmp_path, place):
    """Attempts that ran, and requests that waited between two tries; the living worker's own are left alone."""
    killed = python(
        """
        import asyncio, os, sys
        from pathlib import Path
        from arbiter.ledger.journal import Journal
        from tests.fakes.rows import attempt_row, request_row

        async def main():
            pen = Journal(Path(sys.argv[1]), "w1", 32 << 20, asyncio.get_running_loop())
            streaming = request_row(1, outcome="cancelled", attempts=1)
            pen.open(streaming, attempt_row(streaming, outcome="interrupted"))
            waiting = request_row(2, outcome="cancelled", attempts=1)
            failed = attempt_row(waiting, outcome="error", error_class="overloaded")
            pen.open(waiting, failed)
            pen.close(failed)
            second = request_row(3, outcome="cancelled", attempts=1)
            failed = attempt_row(second, 1, outcome="error")
            pen.open(second, failed)
            pen.close(failed)
            pen.flush()
            second.attempts = 2
            pen.open(second, attempt_row(second, 2, outcome="interrupted"))
            os.kill(os.getpid(), 9)

        asyncio.run(main())
        """,
        tmp_path / "state",
    )
    assert killed.wait(60) == -signal.SIGKILL

    async def living():
        pen = Journal(tmp_path / "state", "w1", LIMIT, asyncio.get_running_loop())
        request = request_row(9, outcome="cancelled")
        pen.open(request, attempt_row(request))
        one = make(tmp_path, place)
        drain(one)
        assert one.state().open == 1
        assert [worker["alive"] for worker in one.state().workers] == [True]
        one._reap_at = 0.0
        assert drain(one) == 0
        one.close()
        attempt = attempt_row(request)
        pen.close(attempt)
        pen.settle(request_row(9))
        await pen.aclose()

    asyncio.run(living())
    one = make(tmp_path, place)
    drain(one)
    one.close()
    requests, attempts = stored(place)
    assert requests == {
        "r00000001": "interrupted",
        "r00000002": "interrupted",
        "r00000003": "interrupted",
        "r00000009": "ok",
    }
    assert attempts == {
        "r00000001-1": "interrupted",
        "r00000002-1": "error",
        "r00000003-1": "error",
        "r00000003-2": "interrupted",
        "r00000009-1": "ok",
    }
    store = place.open(readonly=True)
    entry = store.request("r00000003")
    assert entry is not None and entry.request.attempts == 2
    assert entry.request.message == reaper.INTERRUPTED and entry.request.finished_ms is None
    assert entry.attempts[1].finished_ms is None and entry.attempts[1].started_ms == entry.request.received_ms
    assert store.requests(Filters(errors=True)).entries[0].request.id == "r00000003"
    store.close()


@pytest.mark.parametrize("leaves", ["killed", "tidily"])
def test_an_open_attempt_of_a_settled_request_is_its_workers_for_as_long_as_that_lives(tmp_path, place, leaves):
    """Then it is interrupted, and its request stays what it was."""

    async def story():
        pen = Journal(tmp_path / "state", "w1", LIMIT, asyncio.get_running_loop())
        request = request_row(1)
        pen.open(request, attempt_row(request, outcome="interrupted"))
        pen.settle(request)
        pen.flush()
        one = make(tmp_path, place)
        for _ in range(2):
            drain(one)
            one._reap_at = 0.0
            assert one.state().open == 1 and stored(place) == ({request.id: "ok"}, {})
        if leaves == "tidily":
            await pen.aclose()
        else:
            pen._closed = True
            identity = msgspec.msgpack.encode(process.Identity(2**22 + 1, 1, process.boot_id()))
            with pen._file.writing() as txn:
                txn.put(pen._key.encode(), identity, db=pen._file.workers)
        for _ in range(2):
            drain(one)
            one._reap_at = 0.0
        assert one.state().open == 0 and one.state().interrupted == 1
        one.close()
        await pen.aclose()

    asyncio.run(story())
    assert stored(place) == ({"r00000001": "ok"}, {"r00000001-1": "interrupted"})


def test_an_interrupted_request_counts_all_its_tries(tmp_path, place):
    """Killed after the second failed one, with both rows in the journal and the third not yet begun."""
    killed = python(
        """
        import asyncio, os, sys
        from pathlib import Path
        from arbiter.ledger.journal import Journal
        from tests.fakes.rows import attempt_row, request_row

        async def main():
            pen = Journal(Path(sys.argv[1]), "w1", 32 << 20, asyncio.get_running_loop())
            request = request_row(1, outcome="cancelled", attempts=0)
            for number in (1, 2):
                request.attempts = number
                failed = attempt_row(request, number, outcome="error")
                pen.open(request, failed)
                pen.close(failed)
                pen.flush()
            os.kill(os.getpid(), 9)

        asyncio.run(main())
        """,
        tmp_path / "state",
    )
    assert killed.wait(60) == -signal.SIGKILL
    one = make(tmp_path, place)
    drain(one)
    one.close()
    assert stored(place) == ({"r00000001": "interrupted"}, {"r00000001-1": "error", "r00000001-2": "error"})
    store = place.open(readonly=True)
    entry = store.request("r00000001")
    assert entry is not None and entry.request.attempts == 2
    store.close()


def test_what_a_worker_wrote_in_its_last_moment_is_seen_by_who_finds_it_dead(tmp_path, place, monkeypatch):
    """Between the look at the journal and the look at the process it opens its second attempt, and dies."""
    request = request_row(1, outcome="cancelled", attempts=1)
    file = JournalFile(tmp_path / "state", LIMIT)

    def put(key, record, database):
        txn = file.env.begin()
        txn.put(key.encode(), record, db=database)
        txn.commit()

    put("w", msgspec.msgpack.encode(process.Identity(1, -1, process.boot_id())), file.workers)
    put(request.id, records.encode_open("w", request, None), file.open)

    def dies(identity):
        request.attempts = 2
        second = attempt_row(request, 2, outcome="interrupted")
        put(second.id, records.encode_open("w", request, second), file.open)
        return False

    monkeypatch.setattr(reaper.process, "is_alive", dies)
    one = make(tmp_path, place)
    drain(one)
    one.close()
    file.close()
    store = place.open(readonly=True)
    entry = store.request(request.id)
    assert entry is not None and entry.request.attempts == 2 and len(entry.attempts) == 1
    store.close()


def test_a_record_nobody_can_read_is_one_row_lost_and_named(tmp_path, place, caplog):
    fill(tmp_path, 1)
    file = JournalFile(tmp_path / "state", LIMIT)
    with file.env.begin() as txn:
        file.append(txn, [b"\x09\x01\x90"])
        txn.put(b"x", b"\x09\x03\x90", db=file.open)
    file.close()
    fill(tmp_path, 1, start=1)
    one = make(tmp_path, place)
    drain(one)
    state = one.state()
    assert (state.rejected, state.open) == (2, 0)
    one.close()
    assert "version 9" in caplog.text
    assert len(stored(place)[0]) == 2


def until(holds, within_s: float = 30.0) -> None:
    """Wait for something another thread or process will do."""
    end = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > end:
            pytest.fail("this did not happen in time")
        time.sleep(0.01)
