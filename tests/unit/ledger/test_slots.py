"""Open records in slots: none lost and none told twice, whenever the process dies."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from arbiter.ledger import journal, reaper, slots
from arbiter.ledger.journal import Journal, JournalFile
from arbiter.ledger.slots import FIRST_SLOTS, MOST_BYTES, SLOT_BYTES, Slots
from tests.fakes.rows import attempt_row, decoded, request_row

LIMIT = 8 << 20


def left(place: Path) -> list[bytes]:
    return list(slots.left(place / "open-w").values())


def test_a_record_is_in_the_file_once_it_is_put_and_until_it_is_freed(tmp_path):
    one = Slots(tmp_path, "w")
    first, second = one.put(b"first"), one.put(b"second")
    assert left(tmp_path) == [b"first", b"second"] and one.used == 2
    one.free([first])
    assert left(tmp_path) == [b"second"]
    assert one.put(b"third") == first
    assert slots.left(tmp_path / "open-w") == {3: b"third", 2: b"second"}
    one.free([second, first])
    one.close()
    assert slots.files(tmp_path) == {}


def test_no_number_comes_twice_in_one_process(tmp_path):
    """Whoever opens the file again goes on behind what is open in it, and leaves that alone."""
    one = Slots(tmp_path, "w")
    positions = [one.put(b"%d" % number) for number in range(5)]
    assert one.numbers(positions) == b"".join(number.to_bytes(8, "little") for number in range(1, 6))
    one.free(positions[:4])
    one.close()
    again = Slots(tmp_path, "w")
    assert again.used == 1 and again.put(b"new") not in (0, positions[4])
    assert slots.left(tmp_path / "open-w") == {5: b"4", 6: b"new"}
    again.close()


def test_a_file_grows_with_what_is_open(tmp_path):
    one = Slots(tmp_path, "w")
    wanted = [b"%d" % number * 9 for number in range(5 * FIRST_SLOTS)]
    positions = [one.put(record) for record in wanted]
    assert len(set(positions)) == len(wanted)
    assert sorted(left(tmp_path)) == sorted(wanted)
    blocks = os.stat(one.path)
    assert blocks.st_blocks * 512 >= blocks.st_size  # nothing of it has yet to be found room for
    one.free(positions)
    assert (one.used, left(tmp_path)) == (0, [])
    one.close()


def test_what_is_too_long_or_has_no_room_is_not_taken(tmp_path, monkeypatch):
    one = Slots(tmp_path, "w")
    assert one.put(b"x" * MOST_BYTES) > 0 and one.put(b"x" * (MOST_BYTES + 1)) == 0

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(slots.os, "posix_fallocate", full)
    assert all(one.put(b"y") for _ in range(FIRST_SLOTS - 1))
    assert one.put(b"z") == 0
    with pytest.raises(OSError, match="No space"):
        Slots(tmp_path, "other")
    one.close()


def test_half_a_record_is_none(tmp_path):
    """A process that is killed while it writes one has not sent anything yet."""
    one = Slots(tmp_path, "w")
    at = one.put(b"whole")
    one.free([at])
    one._map[at + 8 : at + 17] = (5).to_bytes(4, "little") + b"hal\0\0"
    assert left(tmp_path) == []
    one.close()


def test_what_no_file_ends_is_read_as_far_as_it_goes(tmp_path):
    (tmp_path / "open-w").write_bytes(bytes(SLOT_BYTES) + (7).to_bytes(8, "little") + b"\xff\xff\xff\x7fabc")
    assert slots.left(tmp_path / "open-w") == {7: b"abc"}
    assert slots.left(tmp_path / "open-none") == {}


# --- in a journal -----------------------------------------------------------------------------------------------------


def rows_of(state_dir: Path) -> list[tuple[str, str]]:
    file = JournalFile(state_dir, LIMIT)
    with file.env.read() as txn, txn.cursor(file.done) as cursor:
        found = [decoded(value) for _, value in cursor]
    file.close()
    return [(row.id, row.outcome) for row in found]


def reap_all(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> reaper.Reaped:
    """What the recorder does, once every worker here is dead."""
    file = JournalFile(state_dir, LIMIT)
    with monkeypatch.context() as patch:
        patch.setattr(reaper.process, "is_alive", lambda _: False)
        found = reaper.reap(file)
    assert file.under_way() == 0 and slots.files(file.place) == {}
    with file.env.read() as txn:
        assert txn.stat(file.workers)["entries"] == 0
        assert all(not bytes(key).startswith(journal.COMPLETED) for key, _ in txn.cursor(file.meta))
    file.close()
    return found


def story(state_dir: Path, tell) -> None:
    async def main() -> None:
        tell(Journal(state_dir, "w", LIMIT, asyncio.get_running_loop()))

    asyncio.run(main())


def test_a_worker_that_dies_before_it_frees_what_it_wrote_leaves_nothing_twice(tmp_path, monkeypatch):
    """The transaction says what it completed, so it does not matter that the slots do not."""

    def tell(pen: Journal) -> None:
        monkeypatch.setattr(pen._slots, "free", lambda positions: None)
        for number in (1, 2):
            request = request_row(number)
            attempt = attempt_row(request)
            pen.open(request, attempt)
            if number == 1:
                pen.close(attempt)
                pen.settle(request)
        pen.flush()

    story(tmp_path, tell)
    assert reap_all(tmp_path, monkeypatch) == (1, 0)
    first, second = request_row(1), request_row(2)
    assert rows_of(tmp_path) == [
        (f"{first.id}-1", "ok"),
        (first.id, "ok"),
        (f"{second.id}-1", "interrupted"),
        (second.id, "interrupted"),
    ]


@pytest.mark.parametrize("at_once", [1, 3, 64])
def test_a_recorder_that_dies_while_it_completes_leaves_nothing_twice(tmp_path, monkeypatch, at_once):
    """Each of its transactions says what it completed; the next recorder goes on behind that."""

    def tell(pen: Journal) -> None:
        for number in range(8):
            request = request_row(number)
            pen.open(request, attempt_row(request))

    story(tmp_path, tell)
    monkeypatch.setattr(reaper, "ROWS_AT_ONCE", at_once)
    interrupt, calls = reaper._interrupt, []

    def dies(*args):
        if len(calls) == 2:
            raise KeyboardInterrupt
        calls.append(args)
        return interrupt(*args)

    monkeypatch.setattr(reaper, "_interrupt", dies)
    if at_once < 64:
        with pytest.raises(KeyboardInterrupt):
            reap_all(tmp_path, monkeypatch)
    monkeypatch.setattr(reaper, "_interrupt", interrupt)
    reap_all(tmp_path, monkeypatch)
    rows = rows_of(tmp_path)
    assert len(rows) == len(set(rows)) == 16 and {outcome for _, outcome in rows} == {"interrupted"}


def test_a_record_that_has_no_place_in_a_slot_goes_into_lmdb(tmp_path, monkeypatch):
    """And from there, with its row, or once its worker is dead."""

    def tell(pen: Journal) -> None:
        for number in (1, 2, 3):
            request = request_row(number, message="x" * SLOT_BYTES if number > 1 else None)
            attempt = attempt_row(request)
            pen.open(request, attempt)
            assert pen._slots.used == 1
            if number == 2:
                pen.close(attempt)
                pen.settle(request)
                pen.flush()
        assert pen._file.under_way() == 2

    story(tmp_path, tell)
    assert reap_all(tmp_path, monkeypatch) == (2, 0)
    assert sorted(outcome for _, outcome in rows_of(tmp_path)) == ["interrupted"] * 4 + ["ok"] * 2


def test_a_worker_whose_file_was_taken_away_makes_another(tmp_path):
    """Somebody took it for dead: what it opens from then on is on record again."""

    def tell(pen: Journal) -> None:
        request = request_row(1)
        pen.open(request, attempt_row(request))
        slots.remove(pen._slots.path)
        pen.look()
        later = request_row(2)
        pen.open(later, attempt_row(later))
        assert pen._file.under_way() == 1
        for row in (request, later):
            pen.close(attempt_row(row))
            pen.settle(row)
        pen.flush()
        assert pen._file.under_way() == 0

    story(tmp_path, tell)


def test_a_file_that_a_burst_made_large_gives_way_to_a_small_one(tmp_path):
    """Once nothing is open in it: whoever looks at what is open reads all of it, for as long as the worker lives."""

    def tell(pen: Journal) -> None:
        def size() -> int:
            return pen._slots.path.stat().st_size

        small = size()
        requests = [request_row(number) for number in range(1, slots.FIRST_SLOTS + 10)]
        for request in requests:
            pen.open(request, attempt_row(request))
        pen.look()
        assert size() > small, "these are open"
        for request in requests:
            pen.close(attempt_row(request))
            pen.settle(request)
        pen.flush()
        pen.look()
        assert size() == small
        later = request_row(9999)
        pen.open(later, attempt_row(later))
        assert pen._file.under_way() == 1
        pen.close(attempt_row(later))
        pen.settle(later)
        pen.flush()
        assert pen._file.under_way() == 0

    story(tmp_path, tell)


def test_without_room_for_a_file_attempts_are_opened_in_lmdb(tmp_path, monkeypatch, caplog):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(slots, "Slots", full)

    def tell(pen: Journal) -> None:
        request = request_row(1)
        pen.open(request, attempt_row(request))
        assert pen.healthy and pen._slots is None and pen._file.under_way() == 1

    story(tmp_path, tell)
    assert "no room" in caplog.text


def test_that_there_is_no_room_is_said_when_it_begins_and_when_it_ends(tmp_path, monkeypatch, caplog):
    """A worker looks each second: a disk that is full over night is no thirty thousand lines."""

    def full(*_):
        raise OSError(28, "No space left on device")

    real = slots.Slots

    def tell(pen: Journal) -> None:
        for _ in range(3):
            pen.look()
        assert caplog.text.count("no room for a file of open records") == 1
        monkeypatch.setattr(slots, "Slots", real)
        for _ in range(3):
            pen.look()
        assert pen._slots is not None
        assert caplog.text.count("there is room for a file of open records again") == 1
        monkeypatch.setattr(slots, "Slots", full)
        slots.remove(pen._slots.path)
        pen.look()
        assert caplog.text.count("no room for a file of open records") == 2

    monkeypatch.setattr(slots, "Slots", full)
    story(tmp_path, tell)


def open_some(pen: Journal, *numbers: int) -> list[tuple]:
    opened = []
    for number in numbers:
        request = request_row(number)
        opened.append((request, attempt_row(request)))
        pen.open(*opened[-1])
    return opened


def complete(pen: Journal, opened: list[tuple]) -> None:
    for request, attempt in opened:
        pen.close(attempt)
        pen.settle(request)
    pen.flush()


def test_numbers_go_on_in_another_file_of_the_same_worker(tmp_path, monkeypatch):
    """What the last transaction completed in the old one says nothing of what is open in the new one."""

    def tell(pen: Journal) -> None:
        complete(pen, open_some(pen, 1, 2))
        slots.remove(pen._slots.path)
        pen.look()
        open_some(pen, 3)

    story(tmp_path, tell)
    assert reap_all(tmp_path, monkeypatch) == (1, 0)
    assert (request_row(3).id, "interrupted") in rows_of(tmp_path)


def test_numbers_go_on_when_a_worker_comes_back_to_its_journal(tmp_path, monkeypatch):
    async def main() -> None:
        loop = asyncio.get_running_loop()
        pen = Journal(tmp_path, "w", LIMIT, loop)
        waits = request_row(9)
        complete(pen, open_some(pen, 1))
        pen._live[waits.id] = waits  # so it cannot sign off
        await pen.aclose()
        open_some(Journal(tmp_path, "w", LIMIT, loop), 2)

    asyncio.run(main())
    assert reap_all(tmp_path, monkeypatch) == (1, 0)
    assert (request_row(2).id, "interrupted") in rows_of(tmp_path)


def test_a_file_that_cannot_be_removed_is_told_of_once(tmp_path, monkeypatch):
    def tell(pen: Journal) -> None:
        monkeypatch.setattr(pen._slots, "free", lambda positions: None)
        complete(pen, open_some(pen, 1))
        open_some(pen, 2)

    story(tmp_path, tell)
    with monkeypatch.context() as patch:
        patch.setattr(reaper.process, "is_alive", lambda _: False)
        patch.setattr(slots.Path, "unlink", lambda *_, **__: os.unlink("/proc/1/none/such"))
        file = JournalFile(tmp_path, LIMIT)
        assert [reaper.reap(file).attempts for _ in range(3)] == [1, 0, 0]
        file.close()
    reap_all(tmp_path, monkeypatch)
    rows = rows_of(tmp_path)
    assert len(rows) == len(set(rows)) == 4


def test_a_file_that_cannot_be_read_keeps_nobody_else_waiting(tmp_path, monkeypatch):
    """It is told of once it can be read."""
    for worker, number in (("w", 1), ("v", 2)):

        async def main(worker: str = worker, number: int = number) -> None:
            pen = Journal(tmp_path, worker, LIMIT, asyncio.get_running_loop())
            complete(pen, open_some(pen, 10 * number))
            open_some(pen, number)

        asyncio.run(main())
    file = JournalFile(tmp_path, LIMIT)
    read = slots.left

    def closed(path: Path) -> dict[int, bytes]:
        if path.name.endswith("-w"):
            raise PermissionError(13, "Permission denied")
        return read(path)

    with monkeypatch.context() as patch:
        patch.setattr(reaper.process, "is_alive", lambda _: False)
        patch.setattr(slots, "left", closed)
        assert [reaper.reap(file).attempts for _ in range(2)] == [1, 0]
        assert file.under_way() == 0 and len(slots.files(file.place)) == 1
    file.close()
    assert reap_all(tmp_path, monkeypatch) == (1, 0)
    rows = rows_of(tmp_path)
    assert len(rows) == len(set(rows)) == 8


def test_what_is_no_worker_s_file_is_left_alone(tmp_path, monkeypatch):
    """A directory, no key, a name that is no text: none of them keeps the dead from being completed."""
    story(tmp_path, lambda pen: open_some(pen, 1))
    place = tmp_path / "journal"
    (place / "open-directory").mkdir()
    for name in (b"open-", b"open-\xff\xfe", b"open-a copy"):
        (place / os.fsdecode(name)).write_bytes(b"somebody's")
    assert reap_all(tmp_path, monkeypatch) == (1, 0)
    assert len(list(place.glob("open-*"))) == 4


@pytest.mark.parametrize("at_once", [1, 2, 3, 64])
def test_a_recorder_that_dies_between_two_transactions_tells_of_no_request_twice(tmp_path, monkeypatch, at_once):
    """A request may have several open records: one of its own, and one for each attempt that runs."""

    def tell(pen: Journal) -> None:
        opened = open_some(pen, 1, 2, 3, 4)
        for _, attempt in opened:
            pen.close(attempt)
        pen.flush()
        for request, _ in opened:
            request.attempts = 3
            for number in (2, 3):
                pen.open(request, attempt_row(request, number))

    story(tmp_path, tell)
    monkeypatch.setattr(reaper, "ROWS_AT_ONCE", at_once)
    interrupt, done = reaper._interrupt, []

    def dies(*args):
        if done:
            raise KeyboardInterrupt
        done.append(interrupt(*args))
        return done[0]

    with monkeypatch.context() as patch:
        patch.setattr(reaper, "_interrupt", dies)
        if at_once < 64:
            with pytest.raises(KeyboardInterrupt):
                reap_all(tmp_path, patch)
    reap_all(tmp_path, monkeypatch)
    rows = rows_of(tmp_path)
    assert len(rows) == len(set(rows)) == 4 * (1 + 3)
