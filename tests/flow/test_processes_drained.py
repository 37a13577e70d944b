"""Being told to stop: what is open may finish, what takes too long is ended properly, everything is written down."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.client import Answer, Caller, Ending, exchange, request, run
from tests.fakes.gateway import BOUND_S, STOPS_S, Gateway, is_dead, run_dir, until
from tests.fakes.load import PATH, Load, call, check_books, config, new_name
from tests.fakes.witness import Witness


@pytest.fixture
def witness() -> Iterator[Witness]:
    with Witness() as process:
        yield process


async def ended(gateway: Gateway, bound_s: float = STOPS_S) -> float:
    """Wait for the supervisor's end, and return how long it took."""
    assert gateway.process is not None
    began = time.monotonic()
    while gateway.process.poll() is None:
        assert time.monotonic() - began < bound_s, gateway.log[-4000:]
        await asyncio.sleep(0.01)
    return time.monotonic() - began


async def opened(gateway: Gateway, data: bytes, seen: bytes = b"") -> Caller:
    """A caller whose request is on its way; with `seen`, whose answer has come that far."""
    caller = await Caller.connect(gateway.port)
    await caller.send(data)
    if seen:
        await caller.until_seen(seen)
    return caller


async def until_upstream_saw(witness: Witness, count: int) -> None:
    async with asyncio.timeout(BOUND_S):
        while len(witness.seen()) < count:
            await asyncio.sleep(0.01)


async def until_nobody_listens(gateway: Gateway) -> None:
    """Each worker closes its port when it hears of the end, one sooner than the other."""
    async with asyncio.timeout(BOUND_S):
        while True:
            try:
                await exchange(gateway.port, request("/health/live", method="GET"))
            except (OSError, EOFError):
                return


def test_a_drain_lets_open_requests_finish_and_takes_no_new_ones(witness: Witness, tmp_path: Path) -> None:
    """Streams and whole answers reach their end, an idle connection holds nothing up, and nothing is left behind."""

    async def main() -> None:
        idle = await Caller.connect(gateway.port)
        assert (await idle.exchange(call(new_name(), stream=False))).status == 200
        streams = [await opened(gateway, call(new_name(), events=30, held=True), b'"0 "') for _ in range(4)]
        wholes = [await opened(gateway, call(new_name(), stream=False, held=True)) for _ in range(3)]
        await until_upstream_saw(witness, 8)
        os.kill(gateway.pid, signal.SIGTERM)
        await until_nobody_listens(gateway)
        witness.release()
        answers = await asyncio.gather(*(caller.whole() for caller in [*streams, *wholes]))
        assert [answer.ending for answer in answers] == [Ending.CLEAN] * 7
        assert all(b"[DONE]" in answer.body for answer in answers[:4])
        assert [answer.header("connection") for answer in answers[4:]] == ["close"] * 3
        # The connections are still open on our side; they do not keep the gateway.
        took_s = await ended(gateway)
        print(f"exit {took_s:.3f} s after the last answer")
        assert took_s < 30  # the drain is 60 s
        for caller in [idle, *streams, *wholes]:
            caller.leave()

    with Gateway(config(witness, server={"drain": "60s"}), tmp_path, workers=2) as gateway:
        folder = run_dir(gateway)
        assert folder.exists() and folder.stat().st_mode & 0o777 == 0o700
        run(main)
        assert gateway.process is not None and gateway.process.returncode == 0
        assert not folder.exists()
        assert [row["outcome"] for row in gateway.requests()] == ["ok"] * 8
        assert set(check_books(gateway, witness)) == {"ok"}


@pytest.mark.parametrize("workers", [1, 2])
def test_who_has_connected_before_the_port_closes_is_answered(tmp_path: Path, workers: int) -> None:
    """At the moment that the gateway is told to stop some have just connected, and others try to: those are refused,
    which any client understands, and none of the former sees its connection end without a word."""
    body = {"model": "echo", "messages": [{"role": "user", "content": "hello"}]}
    told: list[str] = []

    async def come_and_go() -> None:
        while True:
            try:
                caller = await Caller.connect(gateway.port)
            except ConnectionRefusedError:
                return
            try:
                await caller.send(request(PATH, body))
                told.append(str((await caller.whole()).status))
            except (OSError, EOFError) as error:
                told.append(repr(error))
            caller.leave()

    async def main() -> None:
        comers = [asyncio.ensure_future(come_and_go()) for _ in range(40)]
        async with asyncio.timeout(30):
            while len(told) < 300:
                await asyncio.sleep(0.01)
            os.kill(gateway.pid, signal.SIGTERM)
            await asyncio.gather(*comers)
        assert set(told) == {"200"}, f"{len(told) - told.count('200')} of {len(told)} were cut"

    with Gateway({"providers": {"echo": {"type": "echo", "models": ["echo"]}}}, tmp_path, workers=workers) as gateway:
        run(main)


def test_what_outlasts_the_drain_is_ended_properly(witness: Witness, tmp_path: Path) -> None:
    """Two seconds before the limit a stream gets its error event and no clean end; who still waits gets a 503."""

    async def main() -> None:
        flowing = [await opened(gateway, call(new_name(), events=2000, every_s=0.05), b'"0 "') for _ in range(3)]
        waiting = [
            await opened(gateway, call(new_name(), stream=True, wait_s=60)),
            await opened(gateway, call(new_name(), stream=False, wait_s=60)),
        ]
        await until_upstream_saw(witness, 5)
        uploading = await opened(gateway, request(PATH, b'{"model":', length=100))
        async with asyncio.timeout(BOUND_S):
            while gateway.in_flight() < 6:
                await asyncio.sleep(0.01)
        began = time.monotonic()
        os.kill(gateway.pid, signal.SIGTERM)
        answers: list[Answer] = await asyncio.gather(*(caller.whole() for caller in [*flowing, *waiting, uploading]))
        told_s = time.monotonic() - began
        await ended(gateway)
        took_s = time.monotonic() - began
        print(f"told after {told_s:.3f} s and gone after {took_s:.3f} s of a drain of 3 s")
        assert told_s > 0.9 and took_s < 30  # an hour of words would go on, and those who wait for a minute
        for answer in answers[:3]:
            assert answer.ending is Ending.CUT and b"[DONE]" not in answer.body
            assert "shutting down" in answer.events[-1][1]
        for answer in answers[3:]:
            assert answer.status == 503 and answer.header("retry-after") and "shutting down" in answer.body.decode()
        for caller in [*flowing, *waiting, uploading]:
            caller.leave()

    with Gateway(config(witness, server={"drain": "3s"}), tmp_path) as gateway:
        run(main)
        assert gateway.process is not None and gateway.process.returncode == 0
        rows = gateway.requests()
        assert [(row["outcome"], row["error_class"]) for row in rows] == [("error", "overloaded")] * 6
        assert sorted(row["status"] for row in rows) == [200, 200, 200, 503, 503, 503]
        assert set(check_books(gateway, witness)) == {"cancelled"}  # no provider failed
        said = {row["message"] for row in gateway.select("SELECT message FROM attempts")}
        assert said == {
            "the gateway is shutting down",
            "the client hung up, or the gateway stopped, before the answer began",
        }


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_signal_to_the_whole_group_drains_like_one_to_the_supervisor(
    witness: Witness, tmp_path: Path, number: signal.Signals
) -> None:
    """Ctrl-C in a terminal, or systemd's SIGTERM to a whole unit: no traceback, and control stays for the last rows."""

    async def main() -> None:
        async with Load(gateway.port, callers=4, events=20, every_s=0.03) as load:
            await load.more(4)
            streams = [await opened(gateway, call(new_name(), events=30, held=True), b'"0 "') for _ in range(3)]
            os.killpg(gateway.pid, number)
            await asyncio.to_thread(until, lambda: gateway.log.count('"draining"') == 2, "both workers' end")
            witness.release()
            answers = await asyncio.gather(*(caller.whole() for caller in streams))
            assert [answer.ending for answer in answers] == [Ending.CLEAN] * 3
            assert await ended(gateway) < 30
        # Refused, or answered whole: nobody who got in is sent away.
        assert all(outcome.answer is None or outcome.is_whole for outcome in load.outcomes)
        for caller in streams:
            caller.leave()

    with Gateway(config(witness, server={"drain": "60s"}), tmp_path, workers=2, preexec=os.setsid) as gateway:
        run(main)
        assert gateway.process is not None and gateway.process.returncode == 0
        assert gateway.stray_lines() == []
        assert set(check_books(gateway, witness)) == {"ok"}
        assert all(row["outcome"] == "ok" for row in gateway.requests())


def test_a_second_signal_ends_everything_at_once(witness: Witness, tmp_path: Path) -> None:
    """Whoever cannot wait says so twice; what was open is written down as interrupted."""

    async def main() -> None:
        caller = await opened(gateway, call(new_name(), events=2000, every_s=0.05), b'"0 "')
        os.kill(gateway.pid, signal.SIGINT)
        os.kill(gateway.pid, signal.SIGINT)  # a wrapper that passes a console's signal on: still one
        await caller.until_seen(b'"25 "')
        while gateway.process is not None and gateway.process.poll() is None:  # that it is another takes a second
            os.kill(gateway.pid, signal.SIGINT)
            await asyncio.sleep(0.05)
        assert (await caller.whole()).ending in (Ending.CUT, Ending.RESET)
        caller.leave()

    with Gateway(config(witness, server={"drain": "60s"}), tmp_path) as gateway:
        run(main)
        assert [line["message"] for line in gateway.lines() if "killed" in line["message"]] == [
            "worker-1 was told twice to stop and is killed"
        ]
        gateway.start()
        assert check_books(gateway, witness) == {"interrupted": 1}


def test_half_a_request_holds_a_drain_up_no_longer_than_its_limit(witness: Witness, tmp_path: Path) -> None:
    """Granian waits for it without limit; we leave, with everything written down and exit code 0."""

    async def main() -> None:
        caller = await opened(gateway, b"GET /health HTTP/1.1\r\nhost: gate")
        assert (await exchange(gateway.port, call(new_name(), stream=False))).status == 200
        os.kill(gateway.pid, signal.SIGTERM)
        assert await ended(gateway) < 30  # Granian's own wait has no end
        caller.leave()

    with Gateway(config(witness, server={"drain": "2s"}), tmp_path) as gateway:
        run(main)
        assert gateway.process is not None and gateway.process.returncode == 0
        assert "killed" not in gateway.log
        assert len(gateway.requests()) == 1


def test_hanging_up_ends_nobody_and_a_worker_alone_can_be_drained(witness: Witness, tmp_path: Path) -> None:
    """SIGHUP is survived by all: it is a reload. SIGTERM to one worker drains it, and another takes its place."""

    async def main() -> None:
        old = gateway.worker
        os.killpg(gateway.pid, signal.SIGHUP)
        async with asyncio.timeout(BOUND_S):
            while "the configuration was reloaded" not in gateway.log:
                await asyncio.sleep(0.01)
        assert gateway.worker == old
        caller = await opened(gateway, call(new_name(), events=30, held=True), b'"0 "')
        os.kill(old, signal.SIGTERM)
        await asyncio.to_thread(until, lambda: '"draining"' in gateway.log, "draining")
        witness.release()
        answer = await caller.whole()
        assert answer.ending is Ending.CLEAN and b"[DONE]" in answer.body
        async with asyncio.timeout(BOUND_S):
            while gateway.workers in ([], [old]):
                await asyncio.sleep(0.01)
        gateway.until_ready()
        assert (await exchange(gateway.port, call(new_name(), stream=False))).status == 200
        caller.leave()

    with Gateway(config(witness), tmp_path, preexec=os.setsid) as gateway:
        run(main)
        assert [line["level"] for line in gateway.lines() if line["message"].startswith("a worker")] == ["warn"]
        assert set(check_books(gateway, witness)) == {"ok"}


@pytest.mark.parametrize("children", [1, 3])
def test_a_gateway_told_to_stop_while_it_starts_stops(witness: Witness, tmp_path: Path, children: int) -> None:
    """A signal that comes between a fork and the child's own handlers is not lost."""
    gateway = Gateway(config(witness), tmp_path, workers=2)
    gateway.launch()
    assert gateway.process is not None
    until(lambda: len(gateway.children) >= children, "children")
    known = gateway.children
    gateway.process.send_signal(signal.SIGTERM)
    assert gateway.process.wait(STOPS_S) == 0
    gateway.check()
    assert all(is_dead(pid) for pid in known)
