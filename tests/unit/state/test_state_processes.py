"""Several processes share one state, and some of them are killed."""

from __future__ import annotations

import contextlib
import mmap
import multiprocessing
import os
import random
import signal
import struct
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

from arbiter.state import records
from arbiter.state.base import Pin
from arbiter.state.lmdb_state import LmdbState
from arbiter.state.wakeups import Waker

# They are forked before anybody has LMDB open, as the gateway's own processes are.
FORK = multiprocessing.get_context("fork")
ACCOUNT = ("anthropic", "work")
PATIENCE_S = 20.0
KILLS = 30
SLOTS = 200
NUMBER = struct.Struct("=Q")


def open_state(path: Path) -> LmdbState:
    # A fixed wall clock: no test shall meet the end of a minute.
    return LmdbState(path / "state", "this-run", now_ms=lambda: 1_750_000_000_000)


@contextlib.contextmanager
def process(target: Callable[..., None], *args: object) -> Iterator[multiprocessing.process.BaseProcess]:
    child = FORK.Process(target=target, args=args)
    child.start()
    try:
        yield child
    finally:
        child.kill()
        child.join()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "nothing came"
        time.sleep(0.001)


# ----------------------------------------------------------------------------------------------- seeing each other


def say_when_asked(path: Path, line: Connection) -> None:
    state = open_state(path)
    while (question := line.recv()) is not None:
        line.send(getattr(state, question[0])(*question[1:-1], **question[-1]))


def test_a_cooldown_of_one_process_is_seen_by_the_next_question_of_another(tmp_path):
    ours, theirs = FORK.Pipe()
    with process(say_when_asked, tmp_path, theirs):
        state = open_state(tmp_path)

        def other(*question, **named):
            ours.send((*question, named))
            assert ours.poll(PATIENCE_S)
            return ours.recv()

        assert not state.standing().cooldowns
        other("cool", ACCOUNT, 30, is_told=True, is_quota=False)
        assert set(state.standing().cooldowns) == {ACCOUNT}
        assert other("standing") == state.standing()
        state.clear_cooldowns()
        assert not other("standing").cooldowns

        pin = Pin("fast", "anthropic", "claude", "work")
        other("set_pin", bytes(16), pin, 60)
        assert state.pin(bytes(16)) == pin
        state.share("worker-1", {"a/m": 2}, {})
        assert other("busy", "worker-2") == {"a/m": 2}
        state.close()


def admit_many(path: Path, start: Connection, result: Connection) -> None:
    state = open_state(path)
    start.recv_bytes()
    result.send(sum(state.admit("agent", 0, 1200) == 0 for _ in range(500)))


def test_four_processes_together_let_in_exactly_as_many_as_are_allowed(tmp_path):
    """Counting and judging are one step."""
    results, starts = [], []
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            (begin, go), (result, tell) = FORK.Pipe(duplex=False), FORK.Pipe(duplex=False)
            stack.enter_context(process(admit_many, tmp_path, begin, tell))
            starts.append(go)
            results.append(result)
        for go in starts:
            go.send_bytes(b"!")
        assert all(result.poll(PATIENCE_S) for result in results)
        assert sum(result.recv() for result in results) == 1200


def probe_once(path: Path, start: Connection, result: Connection) -> None:
    state = open_state(path)
    state.standing()
    start.recv_bytes()
    result.send(state.probe("anthropic"))


def test_of_four_processes_that_ask_at_once_one_may_probe(tmp_path):
    def break_open() -> None:
        # On a clock of the past, so that the breaker's time is up for everybody else.
        state = LmdbState(tmp_path / "state", "this-run", monotonic=lambda: time.monotonic() - 2)
        for _ in range(5):
            state.failed("anthropic")
        state.close()

    with process(break_open) as child:
        child.join(PATIENCE_S)
    results, starts = [], []
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            (begin, go), (result, tell) = FORK.Pipe(duplex=False), FORK.Pipe(duplex=False)
            stack.enter_context(process(probe_once, tmp_path, begin, tell))
            starts.append(go)
            results.append(result)
        for go in starts:
            go.send_bytes(b"!")
        assert all(result.poll(PATIENCE_S) for result in results)
        assert sorted(result.recv() for result in results) == [False, False, False, True]


# ------------------------------------------------------------------------------------------------------------- kill -9


def slot(writer: int, number: int) -> bytes:
    return struct.pack("=QQ", writer, number % SLOTS)


def write_for_ever(path: Path, writer: int, progress: mmap.mmap) -> None:
    """Everything that takes the write lock, over and over; `progress` says up to where it is committed."""
    parent, number = os.getppid(), 0
    state = open_state(path)
    while os.getppid() == parent:
        number += 1
        state.set_pin(slot(writer, number), Pin("fast", "anthropic", str(number), ""), 3600)
        state.admit("agent", 0, 1 << 40)
        state.cool(("anthropic", str(writer)), 3600 + number, is_told=True, is_quota=False)
        if number % 50 == 0:
            state.failed(str(writer))
            state.clear_cooldowns(str(writer))
            state.sweep()
        NUMBER.pack_into(progress, 0, number)


def test_kill_9_of_a_writer_at_any_point_loses_nothing_and_stops_nobody(tmp_path):
    """Two go on all the time, others are killed beside them: in a transaction, at its commit, holding the lock."""
    random.seed(4)
    lines = [mmap.mmap(-1, 8) for _ in range(2 + KILLS)]

    def committed(writer: int) -> int:
        return int(NUMBER.unpack_from(lines[writer])[0])

    with contextlib.ExitStack() as stack:
        staying = [stack.enter_context(process(write_for_ever, tmp_path, at, lines[at])) for at in range(2)]
        for victim in range(2, 2 + KILLS):
            with process(write_for_ever, tmp_path, victim, lines[victim]) as child:
                until(lambda at=victim: committed(at) > 0)
                time.sleep(random.uniform(0, 0.01))
                os.kill(child.pid, signal.SIGKILL)
                child.join()
                before = [committed(0), committed(1)]
                until(lambda then=before: committed(0) > then[0] and committed(1) > then[1])
        assert all(child.is_alive() for child in staying)

    state = open_state(tmp_path)
    total = 0
    for writer in range(2 + KILLS):
        number = committed(writer)
        total += number
        for at in range(max(1, number - SLOTS + 2), number + 1):
            pin = state.pin(slot(writer, at))
            assert pin is not None and int(pin.model) >= at
        assert state.standing().cooldowns["anthropic", str(writer)].until > time.monotonic()
    with state._env.read() as txn:
        ((_, count),) = list(txn.cursor(state._counters))
    # What was counted and not yet told when the end came is at most one each.
    assert total <= records.read_count(count).in_day <= total + 2 + KILLS
    state.sweep()
    state.close()


def test_a_reader_that_was_killed_while_reading_stops_nobody(tmp_path):
    """Its place in the table of readers is taken back, so that pages can be reused."""

    def read_for_ever(line: Connection) -> None:
        state = open_state(tmp_path)
        txn = state._env.read()
        line.send(True)
        time.sleep(600)
        txn.abort()

    ours, theirs = FORK.Pipe(duplex=False)
    with process(read_for_ever, theirs):
        assert ours.poll(PATIENCE_S)
    state = open_state(tmp_path)
    state._env.lmdb.reader_check()
    for number in range(2000):
        state.set_pin(slot(0, number), Pin("a", "b", "c", ""), 60)
    assert state._env.lmdb.info()["last_pgno"] < 200
    state.close()


def test_whoever_waits_for_the_write_lock_can_be_woken_and_waits_on(tmp_path):
    """A killed process may have taken a wake-up with it that was meant for those who still live."""

    def write_when_let(start: Connection, done: Connection) -> None:
        state = open_state(tmp_path)
        start.recv()
        state.refuse(ACCOUNT)
        done.send(True)

    (begin, go), (done, tell) = FORK.Pipe(duplex=False), FORK.Pipe(duplex=False)
    with process(write_when_let, begin, tell):
        state = open_state(tmp_path)
        waker = Waker(tmp_path / "state")
        assert waker.wake() == 0
        with state._env.begin():
            go.send(True)
            until(lambda: waker.wake() == 1)
            assert not done.poll()
            until(lambda: waker.wake() == 1)
        assert done.poll(PATIENCE_S)
        assert waker.wake() == 0
        assert state.standing().refused == {ACCOUNT}
        state.close()


def test_where_nothing_is_mapped_nobody_is_woken(tmp_path):
    assert Waker(tmp_path).wake() == 0
