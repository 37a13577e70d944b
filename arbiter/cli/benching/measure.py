"""One run: a gateway and an upstream of our own on loopback, asked directly and through each other, and stopped.

Nothing of the operator's is touched: the configuration is a copy (copied.py), data and state lie in a folder that is
removed, the gateway's environment holds nothing but what a program needs to start.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from arbiter.app import linux
from arbiter.cli import CommandError
from arbiter.cli.benching import copied, processes, talk
from arbiter.cli.benching.client import Answer, Connection
from arbiter.config.snapshot import Snapshot

Process = subprocess.Popen[bytes]

CONNECTIONS, STREAMS = 8, 64
# Of the time that was given: asking in turns, as much as it takes, as many streams.
_IN_TURNS, _AT_ONCE, _STREAMING = 0.35, 0.3, 0.35
_WARMED_BY = 200
_STARTS_S, _STOPS_S = 30.0, 10.0
_FILES = 2 * STREAMS  # what the upstream and the client take is half of it
_QUIET_US, _LOOK_S, _LOOKS = 2_000.0, 0.1, 30

# What a program needs to start, and nothing that could be a key or a proxy.
_ENVIRONMENT = (
    "PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV",
    "LD_LIBRARY_PATH", "LD_PRELOAD", "ARBITER_PURE",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Latency:
    """Units: milliseconds. `added` is what the gateway adds to the direct one's percentile."""

    direct_p50: float
    direct_p99: float
    through_p50: float
    through_p99: float

    @property
    def added_p50(self) -> float:
        return self.through_p50 - self.direct_p50

    @property
    def added_p99(self) -> float:
        return self.through_p99 - self.direct_p99


@dataclass(frozen=True, slots=True)
class Load:
    """Units: `cpu_us` is CPU time of all the gateway's processes for each of `count`, its books included."""

    count: int
    per_s: float
    cpu_us: float
    lost: int


@dataclass(frozen=True, slots=True)
class Result:
    """Units: bytes of all the gateway's processes together, pages that they share counted for each."""

    unary: Latency
    first_event: Latency
    requests: Load
    events: Load
    at_rest_bytes: int
    at_most_bytes: int
    lost: int
    complaint: str | None
    load_before: float

    @property
    def stream_bytes(self) -> int:
        """How much more there is for each open stream."""
        return max(0, self.at_most_bytes - self.at_rest_bytes) // STREAMS


def measure(snapshot: Snapshot, seconds: float) -> Result:
    """Start everything, measure for about `seconds`, stop everything. Errors: CommandError."""
    load_before = os.getloadavg()[0]
    linux.allow_open_files()
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files < _FILES:
        raise CommandError(f"a bench takes {_FILES} open files at once, and may have {files} (`ulimit -n`)")
    is_messages = copied.is_messages(snapshot)
    paced = max(10, round(seconds * _STREAMING / talk.PACE_S))
    with tempfile.TemporaryDirectory(prefix="arbiter-bench-", ignore_cleanup_errors=True) as tmp:
        with (
            _upstream(paced) as (upstream, upstream_port),
            _gateway(snapshot, upstream_port, Path(tmp)) as (gateway, port),
        ):
            run = _Run(upstream_port, port, gateway.pid, is_messages=is_messages, seconds=seconds, paced=paced)
            parts = {"the bench's own upstream": upstream, "the gateway that was measured": gateway}
            return run.result(load_before, parts)


def stoppable(work: Coroutine[Any, Any, Result]) -> Result:
    """Its result; a signal is answered as it was to be, once the loop is over.

    A handler that raises would do so in whatever callback runs, and what a callback of uvloop's raises is only logged.
    """
    import uvloop

    told: list[int] = []
    answers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    heard = {number: answer for number, answer in answers.items() if callable(answer)}

    async def until_told() -> Result:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def hear(number: int, _: object) -> None:
            told.append(number)
            loop.call_soon_threadsafe(task.cancel)

        for number in heard:
            signal.signal(number, hear)
        return await work

    try:
        return uvloop.run(until_told())
    finally:
        for number, answer in heard.items():
            signal.signal(number, answer)
        if told:
            heard[signal.Signals(told[0])](told[0], None)


class _Run:
    """The three parts of a run, and what went wrong in any of them."""

    def __init__(
        self, upstream_port: int, port: int, pid: int, *, is_messages: bool, seconds: float, paced: int
    ) -> None:
        self.connect_direct = partial(Connection, upstream_port, is_messages=is_messages)
        self.connect = partial(Connection, port, is_messages=is_messages)
        self.pid, self.seconds, self.paced = pid, seconds, paced
        self.lost = 0
        self.complaint: str | None = None

    def result(self, load_before: float, parts: Mapping[str, Process]) -> Result:
        """Errors: CommandError, also where one of `parts` ends meanwhile."""
        return stoppable(_beside(parts, self._result(load_before)))

    async def _result(self, load_before: float) -> Result:
        with self.connect() as first:
            for at in range(_WARMED_BY):
                self._note(await first.ask(streams=at % 2 > 0))
        if self.lost == _WARMED_BY:
            raise CommandError(f"the gateway answered nothing as it should: {self.complaint}")
        await self._settle()
        unary, first_event = await self._in_turns()
        requests = await self._at_once()
        at_rest = processes.rss_bytes(processes.tree(self.pid))
        events, at_most = await self._streaming()
        return Result(
            unary, first_event, requests, events, at_rest, at_most, self.lost, self.complaint, load_before,
        )  # fmt: skip

    def _note(self, answer: Answer) -> bool:
        """Whether it was good; else it is counted, and the first of its kind kept."""
        if answer.fault is None:
            return True
        self.lost += 1
        self.complaint = self.complaint or answer.fault
        return False

    async def _in_turns(self) -> tuple[Latency, Latency]:
        """One request at a time, now directly and now through the gateway: what disturbs the one disturbs the other."""
        totals: tuple[list[float], list[float]] = ([], [])
        firsts: tuple[list[float], list[float]] = ([], [])
        end_s = time.monotonic() + self.seconds * _IN_TURNS
        with self.connect_direct() as direct, self.connect() as through:
            while time.monotonic() < end_s or len(totals[1]) < 10:
                for way, connection in enumerate((direct, through)):
                    unary, stream = await connection.ask(), await connection.ask(streams=True)
                    if self._note(unary):
                        totals[way].append(unary.total_s)
                    if self._note(stream):
                        firsts[way].append(stream.first_s)
                if self.lost > 100:
                    raise CommandError(f"too much went wrong: {self.complaint}")
        return _latency(*totals), _latency(*firsts)

    async def _at_once(self) -> Load:
        """As many requests as a few connections get answered."""
        good = 0
        end_s = time.monotonic() + self.seconds * _AT_ONCE

        async def one() -> None:
            nonlocal good
            with self.connect() as connection:
                while time.monotonic() < end_s:
                    if self._note(await connection.ask()):
                        good += 1

        lost, began_s, used_us = self.lost, time.monotonic(), self._cpu_us()
        async with asyncio.TaskGroup() as group:
            for _ in range(CONNECTIONS):
                group.create_task(one())
        elapsed_s = time.monotonic() - began_s
        await self._settle()
        return Load(good, good / elapsed_s, (self._cpu_us() - used_us) / max(good, 1), self.lost - lost)

    async def _streaming(self) -> tuple[Load, int]:
        """Streams side by side, an event of each every PACE_S, as a model's tokens come; and memory at most."""
        most = processes.rss_bytes(processes.tree(self.pid))
        events = 0

        async def one(after_s: float) -> None:
            nonlocal events
            await asyncio.sleep(after_s)
            with self.connect() as connection:
                answer = await connection.ask(streams=True, paced_events=self.paced)
                events += answer.events
                self._note(answer)

        async def watch() -> None:
            nonlocal most
            while True:
                await asyncio.sleep(0.2)
                most = max(most, processes.rss_bytes(processes.tree(self.pid)))

        lost, began_s, used_us = self.lost, time.monotonic(), self._cpu_us()
        watching = asyncio.create_task(watch())
        try:
            async with asyncio.TaskGroup() as group:
                for at in range(STREAMS):
                    group.create_task(one(at * talk.PACE_S / STREAMS))
        finally:
            watching.cancel()
        elapsed_s = time.monotonic() - began_s
        await self._settle()
        cpu_us = (self._cpu_us() - used_us) / max(events, 1)
        return Load(events, events / elapsed_s, cpu_us, self.lost - lost), most

    def _cpu_us(self) -> float:
        return processes.cpu_us(processes.tree(self.pid))

    async def _settle(self) -> None:
        """Wait until the gateway rests: its books are written after the answers, and are what these cost, too."""
        last_us = -_QUIET_US
        for _ in range(_LOOKS):
            now_us = self._cpu_us()
            if now_us - last_us < _QUIET_US and last_us >= 0:
                return
            last_us = now_us
            await asyncio.sleep(_LOOK_S)


async def _beside(parts: Mapping[str, Process], work: Coroutine[Any, Any, Result]) -> Result:
    """What `work` finds, given up as soon as one of `parts` ends: whatever goes wrong then goes wrong for that.

    Left alone, each request would wait for what nobody answers any more.
    """
    task = asyncio.create_task(work)
    try:
        while not task.done():
            await asyncio.wait((task,), timeout=_LOOK_S)
            _see(parts)
        if task.exception() is not None:
            await asyncio.sleep(_LOOK_S)  # connections end a moment before their process
            _see(parts)
        return await task
    finally:
        task.cancel()


def _see(parts: Mapping[str, Process]) -> None:
    for what, child in parts.items():
        if child.poll() is not None:
            raise CommandError(f"{what} ended in the middle, with exit code {child.returncode}")


def _latency(direct: list[float], through: list[float]) -> Latency:
    def both(times: list[float]) -> tuple[float, float]:
        return statistics.median(times) * 1000, sorted(times)[min(len(times) - 1, len(times) * 99 // 100)] * 1000

    if not direct or not through:
        raise CommandError("nothing was answered as it should be")
    return Latency(*both(direct), *both(through))


# ------------------------------------------------------------------------------------------------- processes


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}


@contextlib.contextmanager
def _upstream(paced: int) -> Iterator[tuple[Process, int]]:
    """The upstream and its port. It ends with its standard input."""
    command = [sys.executable, "-m", "arbiter.cli.benching.upstream", str(paced)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_environment()) as child:
        assert child.stdin is not None and child.stdout is not None
        try:
            said = child.stdout.readline()
            if not said:
                raise CommandError("the bench's own upstream did not start")
            yield child, int(said)
        finally:
            child.stdin.close()


@contextlib.contextmanager
def _gateway(snapshot: Snapshot, upstream_port: int, folder: Path) -> Iterator[tuple[Process, int]]:
    """`arbiter serve` on the copied configuration, and its port."""
    data, log, file = folder / "data", folder / "log", folder / "arbiter.yaml"
    data.mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    config = copied.configuration(snapshot, port=port, upstream_port=upstream_port, data=data)
    file.write_text(yaml.safe_dump(config, sort_keys=False), "utf-8")
    env: Mapping[str, str] = _environment() | {"ARBITER_DATA_DIR": str(data)}
    command = [sys.executable, "-m", "arbiter", "serve", "--config", str(file)]
    parent = os.getpid()
    with log.open("wb") as out:
        child = subprocess.Popen(
            command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            preexec_fn=lambda: linux.die_with_parent(parent, signal.SIGTERM),
        )  # fmt: skip
    try:
        _until_ready(child, port, log)
        yield child, port
    finally:
        child.terminate()
        try:
            child.wait(_STOPS_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _until_ready(child: subprocess.Popen[bytes], port: int, log: Path) -> None:
    give_up = time.monotonic() + _STARTS_S
    while time.monotonic() < give_up and child.poll() is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
        try:
            connection.request("GET", "/health/ready")
            if connection.getresponse().status == 200:
                return
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()
        time.sleep(0.05)
    said = log.read_text("utf-8", "replace").strip().splitlines()[-3:]
    raise CommandError("\n".join([f"the gateway did not start within {_STARTS_S:.0f} s; its last words:", *said]))
