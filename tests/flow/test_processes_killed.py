"""Processes killed under load: what goes on, what comes back, and whether the books agree with the upstream."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.client import Caller, Ending, run
from tests.fakes.gateway import BOUND_S, Gateway, connections, fds, is_dead, run_dir, until
from tests.fakes.load import Load, call, check_books, config, new_name
from tests.fakes.witness import Witness


@pytest.fixture(scope="module")
def witness() -> Iterator[Witness]:
    with Witness() as process:
        yield process


@pytest.fixture
def own_witness() -> Iterator[Witness]:
    """For a gateway whose rows are compared with all that its upstream saw."""
    with Witness() as process:
        yield process


async def settled(condition: object, what: str, bound_s: float = BOUND_S) -> float:
    """Wait in the loop's time for `condition`, and return how long it took."""
    began = time.monotonic()
    while not condition():  # type: ignore[operator]
        assert time.monotonic() - began < bound_s, f"{what} did not come true within {bound_s} s"
        await asyncio.sleep(0.005)
    return time.monotonic() - began


def serving(gateway: Gateway, caller: Caller) -> int:
    """The worker at the other end of a caller's connection."""
    port = caller.writer.get_extra_info("sockname")[1]
    (pid,) = [pid for pid in gateway.workers if connections(pid, port)]
    return pid


def test_a_killed_worker_is_replaced_and_costs_only_its_own_streams(own_witness: Witness, tmp_path: Path) -> None:
    """The others' streams go on to their end, its clients see a broken connection, and no attempt is unaccounted."""
    witness = own_witness

    async def main() -> None:
        callers = [await Caller.connect(gateway.port) for _ in range(12)]
        for caller in callers:
            await caller.send(call(new_name(), events=120, held=True))
            await caller.until_seen(b'"0 "')
        homes = [serving(gateway, caller) for caller in callers]
        while len(set(homes)) < 2:  # the kernel spreads connections by their ports
            caller = await Caller.connect(gateway.port)
            await caller.send(call(new_name(), events=120, held=True))
            await caller.until_seen(b'"0 "')
            callers.append(caller)
            homes.append(serving(gateway, caller))
        victim = homes[0]
        async with Load(gateway.port) as load:
            await load.more(5)
            os.kill(victim, signal.SIGKILL)
            gone_s = await settled(lambda: is_dead(victim), "the worker's death")
            back_s = await settled(lambda: len(gateway.workers) == 2, "a new worker")
            assert victim not in gateway.workers
            await load.more(20)
            witness.release()
            answers = await asyncio.gather(*(caller.whole() for caller in callers))
        print(f"a worker was replaced {back_s:.3f} s after its death (seen after {gone_s:.3f} s)")
        for home, answer in zip(homes, answers, strict=True):
            if home == victim:
                assert answer.ending in (Ending.CUT, Ending.RESET) and b"[DONE]" not in answer.body
            else:
                assert answer.ending is Ending.CLEAN and b'"119 "' in answer.body and b"[DONE]" in answer.body
        for caller in callers:
            caller.leave()

    with Gateway(config(witness), tmp_path, workers=2) as gateway:
        run(main)
        outcomes = check_books(gateway, witness)
        assert outcomes["interrupted"] > 0 and outcomes["ok"] > 0 and not outcomes["error"]
        (line,) = [line for line in gateway.lines() if line["message"] == "a worker died and is replaced"]
        assert line["exit"] == "SIGKILL"
        assert gateway.get("/health/ready").status == 200


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT])
def test_a_worker_that_died_as_of_bad_pages_is_replaced_and_sound_files_stay(
    own_witness: Witness, tmp_path: Path, number: signal.Signals
) -> None:
    """They are looked through before its successor meets them; nothing is wrong with them, so no row is lost."""
    witness = own_witness

    async def main() -> None:
        async with Load(gateway.port) as load:
            await load.more(10)
            victim = gateway.workers[0]
            os.kill(victim, number)
            await settled(lambda: len(gateway.workers) == 2 and victim not in gateway.workers, "a new worker")
            await load.more(20)

    with Gateway(config(witness), tmp_path, workers=2) as gateway:
        run(main)
        check_books(gateway, witness)
        (line,) = [line for line in gateway.lines() if line["message"] == "a worker died and is replaced"]
        assert line["exit"] == number.name
        assert not list((gateway.data / "state").glob("*.damaged-*"))
        assert gateway.get("/health/ready").status == 200


def test_a_state_that_is_damaged_while_it_is_used_is_moved_aside(own_witness: Witness, tmp_path: Path) -> None:
    """Whoever dies of it is the sign; the others go on with what they know, and all of them begin another one."""
    witness = own_witness

    async def main() -> None:
        async with Load(gateway.port) as load:
            await load.more(10)
            victim = gateway.workers[0]
            with (gateway.data / "state" / "state" / "data.mdb").open("r+b") as out:
                out.write(os.urandom(64 << 10))
            os.kill(victim, signal.SIGBUS)  # as the kernel does it to a reader, sooner or later
            await settled(lambda: list((gateway.data / "state").glob("state.damaged-*")), "the move")
            await settled(lambda: len(gateway.workers) == 2 and victim not in gateway.workers, "a new worker")
            await load.more(20)

    with Gateway(config(witness), tmp_path, workers=2) as gateway:
        run(main)
        check_books(gateway, witness)
        until(lambda: gateway.get("/health/ready").status == 200, "every worker's return to a shared state")


def test_a_damage_that_kills_nobody_is_set_aside_too(own_witness: Witness, tmp_path: Path) -> None:
    """LMDB only says so: the workers tell the supervisor, and share a state again, without a restart."""
    witness = own_witness

    async def main() -> None:
        async with Load(gateway.port) as load:
            await load.more(10)
            file = gateway.data / "state" / "state" / "data.mdb"
            with file.open("r+b") as out:
                out.write(b"\0" * file.stat().st_size)
            await settled(lambda: list((gateway.data / "state").glob("state.damaged-*")), "the move")
            await load.more(20)

    with Gateway(config(witness), tmp_path, workers=2) as gateway:
        run(main)
        check_books(gateway, witness)
        until(lambda: gateway.get("/health/ready").status == 200, "every worker's return to a shared state")


def test_a_killed_control_process_costs_nothing_but_time(own_witness: Witness, tmp_path: Path) -> None:
    """Requests are served all the while, rows wait in the journal, and all of them arrive."""
    witness = own_witness

    async def main() -> None:
        async with Load(gateway.port) as load:
            await load.more(10)
            control = gateway.control
            assert control is not None
            os.kill(control, signal.SIGSTOP)  # first silent, so that rows pile up
            await load.more(20)
            await settled(lambda: gateway.metric("arbiter_journal_depth") >= 40, "rows in the journal")
            os.kill(control, signal.SIGKILL)
            back_s = await settled(lambda: gateway.control not in (None, control), "a new control process")
            print(f"control was back {back_s:.3f} s after its death")
            await load.more(20)
        assert all(outcome.is_whole for outcome in load.outcomes)

    with Gateway(config(witness), tmp_path, workers=2) as gateway:
        run(main)
        assert set(check_books(gateway, witness)) == {"ok"}
        until(lambda: gateway.metric("arbiter_journal_depth") == 0, "an empty journal")
        said = gateway.get("/health/ready")
        assert (said.status, said.json["warnings"]) == (200, [])


def test_ready_says_that_rows_wait_while_control_is_silent(witness: Witness, tmp_path: Path) -> None:
    """No request suffers, so the gateway stays ready; whoever looks is told (SPEC 7.6)."""
    with Gateway(config(witness), tmp_path) as gateway:
        control = until(lambda: gateway.control, "the control process")
        os.kill(control, signal.SIGSTOP)
        try:
            said = until(lambda: (now := gateway.get("/health/ready").json)["warnings"] and now, "a warning")
            assert said["status"] == "ok" and "recorder" in said["warnings"][0]
        finally:
            os.kill(control, signal.SIGCONT)
        until(lambda: not gateway.get("/health/ready").json["warnings"], "no warning")


def test_nobody_outlives_a_killed_supervisor_and_the_next_one_settles_what_was_open(
    own_witness: Witness, tmp_path: Path
) -> None:
    """The port is free at once; the rows of what was open are written by the next start, once."""
    witness = own_witness

    async def main() -> None:
        async with Load(gateway.port) as load:
            callers = [await Caller.connect(gateway.port) for _ in range(4)]
            for caller in callers:
                await caller.send(call(new_name(), events=1000, every_s=0.05))
                await caller.until_seen(b'"0 "')
            await load.more(10)
            children = [*gateway.workers, gateway.control]
            began = time.monotonic()
            gateway.kill()
            free_s = await settled(lambda: is_free(gateway.port), "a free port")
            print(f"the port was free {free_s:.3f} s after the supervisor's death")
            await settled(lambda: all(is_dead(pid) for pid in children if pid), "the children's death")
            print(f"the last child was gone after {time.monotonic() - began:.3f} s")
            with pytest.raises(ConnectionRefusedError):
                await Caller.connect(gateway.port)
            answers = await asyncio.gather(*(caller.whole() for caller in callers))
            assert all(answer.ending in (Ending.CUT, Ending.RESET) for answer in answers)
            gateway.start()
            await load.more(10)
        for caller in callers:
            caller.leave()

    with Gateway(config(witness), tmp_path, workers=2) as gateway:
        run(main)
        outcomes = check_books(gateway, witness)
        assert outcomes["interrupted"] >= 4 and not outcomes["error"]
        gateway.stop()
        gateway.start()  # a second restart finds nothing more to settle
        assert check_books(gateway, witness) == outcomes


def is_free(port: int) -> bool:
    """Nobody answers there, and somebody else could listen."""
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", port)) == 0:
            return False
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def test_a_gateway_killed_whole_is_settled_at_the_next_start(own_witness: Witness, tmp_path: Path) -> None:
    """All processes at once, as an out-of-memory killer or a `docker kill` does it: no attempt is unaccounted."""
    witness = own_witness

    folders = []

    async def main() -> None:
        async with Load(gateway.port, callers=8) as load:
            for _ in range(2):
                folders.append(run_dir(gateway))
                await load.more(20)
                for pid in [gateway.pid, *gateway.children]:
                    os.kill(pid, signal.SIGKILL)
                gateway.kill()
                gateway.start()
            await load.more(20)

    with Gateway(config(witness), tmp_path, workers=2) as gateway:
        run(main)
        outcomes = check_books(gateway, witness)
        assert outcomes["interrupted"] > 0 and outcomes["ok"] > 40
        # Nor does a gateway that is killed again and again fill the place for temporary files.
        assert not any(folder.exists() for folder in folders)
        assert run_dir(gateway).exists()


def test_workers_killed_every_second_do_not_end_the_server(own_witness: Witness, tmp_path: Path) -> None:
    """Ten deaths in ten seconds: each is replaced. (Granian's own rule ends a server at the second.)"""
    witness = own_witness

    async def main() -> None:
        async with Load(gateway.port) as load:
            for number in range(10):
                await settled(lambda: len(gateway.workers) == 2, "two workers")
                os.kill(gateway.workers[number % 2], signal.SIGKILL)
                await asyncio.sleep(0.9)  # the truth under test is about this pace
                assert gateway.process is not None and gateway.process.poll() is None
            await settled(lambda: len(gateway.workers) == 2, "two workers")
            await load.more(20)

    with Gateway(config(witness), tmp_path, workers=2) as gateway:
        supervisor = gateway.pid
        descriptors = fds(supervisor)
        run(main)
        assert gateway.pid == supervisor and fds(supervisor) == descriptors
        check_books(gateway, witness)
        assert sum(line["message"] == "a worker died and is replaced" for line in gateway.lines()) == 10
        assert len(gateway.children) == 3  # and no zombies: those are not listed
        assert zombies(gateway.pid) == []
        threads = os.listdir(f"/proc/{supervisor}/task")
        assert len(threads) == 1, "a supervisor with threads copies their locks when it forks"


def zombies(parent: int) -> list[str]:
    listed = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [pid for pid in listed if is_dead(int(pid))]
