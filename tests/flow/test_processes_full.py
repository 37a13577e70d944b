"""The journal's own disk is full: what is asked is served all the same, or refused in so many words.

Where a file system of one's own can be mounted it is a real full disk; everywhere, a limit that the kernel keeps for a
process that runs: no file of it may grow.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fakes.client import Caller, ask, request, run
from tests.fakes.disks import SmallDisk, can_mount, limit_files
from tests.fakes.gateway import Gateway, until
from tests.fakes.notary import Notary, errand
from tests.fakes.wires import CHAT, MESSAGES, WIRES, Wire, config

FAULTS = ["the journal", "rows wait in memory", "rows could not be written", "the state", "shared state", "refuse"]


LOG_BYTES = 300_000  # the log is a file that may not grow, too


@dataclass
class Scene:
    """A gateway whose journal is on a disk that can be full."""

    gateway: Gateway
    notary: Notary
    fill: Callable[[], None]
    relieve: Callable[[], None]

    def until_not_ready(self) -> str:
        """Ask for what nobody has, until the gateway says that it cannot write it down; returns what it says."""

        async def main() -> None:
            async with asyncio.timeout(60):
                while self.gateway.get("/health/ready").status == 200:
                    await ask_for_nobody(self.gateway, 100)

        run(main)
        return str(self.gateway.get("/health/ready").json["reasons"])

    @contextmanager
    def silence(self) -> Iterator[None]:
        """The control process stands still, so that rows stay in the journal, which has to grow."""
        control = until(lambda: self.gateway.control, "control")
        os.kill(control, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(control, signal.SIGCONT)

    def until_ready(self) -> None:
        until(lambda: self.gateway.get("/health/ready").status == 200, "ready again", 30)


@pytest.fixture(params=["disk", "limit"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Scene]]:
    """Makes a gateway whose journal is on a disk that has little room, or whose files may not grow, or that has a bound
    of its own (`storage.journal_max`)."""
    with ExitStack() as stack:

        def make(**storage: str) -> Scene:
            notary = stack.enter_context(Notary())
            url = f"sqlite:///{tmp_path / 'store' / 'arbiter.db'}"
            if request.param == "bound":
                storage["journal_max"] = "1MiB"
            # Few lines: the log is a file that may not grow, too.
            sections = {"storage": {"url": url, **storage}, "telemetry": {"log": {"level": "error"}}}
            gateway = Gateway(config(notary.port, **sections), tmp_path, expected_errors=FAULTS)
            gateway.database = tmp_path / "store" / "arbiter.db"
            if request.param == "disk":
                if not can_mount():
                    pytest.skip("no file system can be mounted here")
                disk = stack.enter_context(SmallDisk(gateway.data / "state", "1m"))
                stack.enter_context(gateway)
                return Scene(gateway, notary, disk.fill, lambda: disk.resize("64m"))
            stack.enter_context(gateway)
            if request.param == "bound":
                return Scene(gateway, notary, lambda: None, lambda: os.kill(gateway.control or 0, signal.SIGCONT))
            workers = gateway.workers

            def fill() -> None:
                size = (gateway.data / "state" / "journal" / "data.mdb").stat().st_size
                limit_files(workers, size + LOG_BYTES)

            return Scene(gateway, notary, fill, lambda: limit_files(workers, None))

        yield make


async def ask_for_nobody(gateway: Gateway, count: int) -> None:
    """So many requests that end at once: each leaves one row."""
    wide = [("user-agent", "x" * 256)]
    body = request(CHAT.path, {"model": "no-such-model-" + "x" * 240, "messages": []}, headers=wide)
    async with await Caller.connect(gateway.port) as caller:
        for _ in range(count):
            assert (await caller.exchange(body)).status in (404, 503)


UPSTREAMS = (CHAT, MESSAGES)  # what the notary speaks
ALL_WELL = [200] * (len(WIRES) * len(UPSTREAMS) * 2)


def ask_all(scene: Scene, name: str) -> list[int]:
    """One request in each format, whole and as a stream, on each lane; their statuses."""
    found = []

    async def main() -> None:
        for wire in WIRES:
            for upstream in UPSTREAMS:
                for stream in (False, True):
                    play = errand(f"{name}-{len(found)}", events=2)
                    body = {**wire.ask(play, stream=stream), "model": upstream.model}
                    headers = [("x-trace-id", f"{name}-{len(found)}")]
                    answer = await ask(scene.gateway.port, wire.path, body, headers=headers)
                    if answer.status == 200 and stream:
                        assert wire.terminal in answer.body
                    found.append(answer.status)

    run(main)
    return found


def test_a_full_disk_costs_nobody_an_answer(scene: Callable[..., Scene]) -> None:
    """Served as ever, on all lanes; not ready, and saying why; what waits in memory is written once there is room."""
    here = scene()
    assert ask_all(here, "before") == ALL_WELL
    with here.silence():
        here.fill()
        told = here.until_not_ready()
        assert "journal cannot be written" in told
        assert ask_all(here, "meanwhile") == ALL_WELL
        assert here.gateway.metric("arbiter_ledger_dropped_total") == 0
        assert len(here.gateway.workers) == 1
        here.relieve()
        here.until_ready()
    assert ask_all(here, "after") == ALL_WELL
    seen = {sight.name for sight in here.notary.seen()}
    assert len(seen) == 3 * len(ALL_WELL)
    here.gateway.until_settled(3 * len(ALL_WELL))
    until(lambda: seen <= {row["client_trace_id"] for row in here.gateway.requests()}, "a row for each")


@pytest.mark.parametrize("scene", ["disk"], indirect=True)  # the store and the log are to grow
def test_rows_reach_the_store_although_the_journal_cannot_be_emptied(scene: Callable[..., Scene]) -> None:
    """The recorder needs no room to read. What it could not remove is not stored again, then or later."""
    here = scene()
    with here.silence():
        run(lambda: ask_for_nobody(here.gateway, 150))
        until(lambda: here.gateway.metric("arbiter_journal_depth") == 150, "rows in the journal")
        here.fill()
        here.until_not_ready()
    here.gateway.until_settled(150)
    here.relieve()
    here.until_ready()
    assert ask_all(here, "after") == ALL_WELL
    until(lambda: here.gateway.metric("arbiter_journal_depth") == 0, "an empty journal")
    names = [row["trace_id"] for row in here.gateway.requests()]
    assert len(names) == len(set(names)) >= 158


@pytest.mark.parametrize("scene", ["disk"], indirect=True)  # the store and the log are to grow
def test_what_no_memory_holds_is_counted(scene: Callable[..., Scene]) -> None:
    """Five thousand rows of what was sent to nobody wait; the next ones are dropped, counted and said, and no client
    hears of it. There is room for what is sent."""
    here = scene()
    with here.silence():
        here.fill()
        here.until_not_ready()
        asked = 0

        async def flood() -> None:
            nonlocal asked
            while here.gateway.metric("arbiter_ledger_dropped_total") == 0:
                await ask_for_nobody(here.gateway, 500)
                asked += 500

        run(flood)
        assert asked > 4_500
        assert ask_all(here, "meanwhile") == ALL_WELL
        dropped = here.gateway.metric("arbiter_ledger_dropped_total")
        assert 0 < dropped < asked
        assert any("not recorded, and counted" in line["message"] for line in here.gateway.lines())
        here.relieve()
        here.until_ready()
    assert ask_all(here, "after") == ALL_WELL
    until(lambda: here.gateway.metric("arbiter_journal_depth") == 0, "an empty journal", 60)
    kept = {row["client_trace_id"] for row in here.gateway.requests()}
    assert {f"meanwhile-{number}" for number in range(len(ALL_WELL))} <= kept


def test_who_is_told_to_stop_while_the_disk_is_full_waits_for_room(scene: Callable[..., Scene]) -> None:
    """As long as a drain may take: then what waited in memory is in the books, and nothing was interrupted."""
    here = scene()
    process = here.gateway.process
    assert process is not None
    with here.silence():
        here.fill()
        here.until_not_ready()
        assert ask_all(here, "meanwhile") == ALL_WELL
    process.terminate()
    until(lambda: not here.gateway.workers, "a closed port")
    assert process.poll() is None
    here.relieve()
    assert process.wait(30) == 0
    here.gateway.start()
    found = {row["client_trace_id"]: row["outcome"] for row in here.gateway.requests()}
    assert [found.get(f"meanwhile-{number}") for number in range(len(ALL_WELL))] == ["ok"] * len(ALL_WELL)


@pytest.mark.parametrize("scene", ["disk", "limit", "bound"], indirect=True)
@pytest.mark.parametrize("wire", WIRES, ids=str)
def test_who_would_rather_refuse_is_told_so_in_its_own_format(scene: Callable[..., Scene], wire: Wire) -> None:
    """A clear 503 with retry-after, for streams too, before anything is sent; and served again when there is room."""
    here = scene(on_full="refuse")
    assert ask_all(here, "before") == ALL_WELL
    with here.silence():
        here.fill()
        here.until_not_ready()

        async def main() -> None:
            for stream in (False, True):
                answer = await ask(here.gateway.port, wire.path, wire.ask(errand("refused"), stream=stream))
                assert answer.status == (529 if wire is MESSAGES else 503), answer
                assert "`storage.on_full` is `refuse`" in wire.complaint(answer)
                assert int(answer.header("retry-after") or 0) > 0

        run(main)
        assert "refused" not in {sight.name for sight in here.notary.seen()}
        here.relieve()
        here.until_ready()  # by itself: nobody asks
    assert ask_all(here, "after") == ALL_WELL


def test_a_gateway_starts_on_a_full_disk_and_finds_its_room_later(tmp_path: Path) -> None:
    """It serves at once, says that nothing can be written, and writes when it can, without a restart."""
    if not can_mount():
        pytest.skip("no file system can be mounted here")
    with Notary() as notary, SmallDisk(tmp_path / "data" / "state", "64k") as disk:
        url = f"sqlite:///{tmp_path / 'store' / 'arbiter.db'}"
        gateway = Gateway(config(notary.port, storage={"url": url}), tmp_path, expected_errors=[*FAULTS, "rows"])
        gateway.database = tmp_path / "store" / "arbiter.db"
        disk.fill()
        gateway.launch()
        here = Scene(gateway, notary, disk.fill, lambda: disk.resize("64m"))
        try:
            until(lambda: gateway.workers, "a worker", 30)
            assert ask_all(here, "full") == ALL_WELL
            ready = gateway.get("/health/ready")
            assert ready.status == 503 and "journal" in str(ready.json["reasons"])
            worker = gateway.worker
            here.relieve()
            here.until_ready()
            assert ask_all(here, "after") == ALL_WELL
            assert gateway.worker == worker
            gateway.until_settled(16)
        finally:
            gateway.stop(check=False)
        gateway.check()
