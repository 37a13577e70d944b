"""Starting: what keeps the gateway from it says so in a line and ends with code 1; what need not keep it does not."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.client import Caller, Ending, exchange, run
from tests.fakes.gateway import ROOT, Gateway, free_port, is_dead, until
from tests.fakes.load import call, check_books, config, new_name
from tests.fakes.witness import Witness

ECHO = {"providers": {"echo": {"type": "echo", "models": ["m"]}}}


@pytest.fixture(scope="module")
def witness() -> Iterator[Witness]:
    with Witness() as process:
        yield process


@pytest.fixture
def own_witness() -> Iterator[Witness]:
    with Witness() as process:
        yield process


def complaint(said: str) -> str:
    """The one line that says what is wrong. Nothing else may be there: no traceback, no word of a library."""
    lines = said.splitlines()
    assert "Traceback" not in said and "backtrace" not in said, said
    assert lines and lines[0].startswith("arbiter: "), said
    assert all(line.startswith(("arbiter: ", "  ")) for line in lines), said
    return lines[0]


def ask_once(gateway: Gateway) -> int:
    """The status of one whole answer."""
    statuses: list[int] = []

    async def main() -> None:
        statuses.append((await exchange(gateway.port, call(new_name(), stream=False))).status)

    run(main)
    return statuses[0]


def test_a_wrong_configuration_is_named_by_file_line_and_key(tmp_path: Path) -> None:
    gateway = Gateway({**ECHO, "server": {"drian": "3s"}}, tmp_path)
    said = complaint(gateway.refuses())
    assert "arbiter.yaml:" in said and "server.drian" in said and "drain" in said


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    """By anybody, and by another gateway, whose workers share theirs with SO_REUSEPORT."""
    with Gateway(ECHO, tmp_path / "first") as first:
        second = Gateway({**ECHO, "server": {"port": first.port}}, tmp_path / "second")
        assert f"127.0.0.1:{first.port}: Address already in use" in complaint(second.refuses())
        assert first.get("/health/ready").status == 200
    with closing(socket.socket()) as other:
        other.bind(("127.0.0.1", first.port))
        other.listen()
        assert "in use" in complaint(second.refuses())


def test_an_address_of_another_machine_is_named(tmp_path: Path) -> None:
    gateway = Gateway({**ECHO, "server": {"bind": "192.0.2.1"}}, tmp_path)
    assert "192.0.2.1" in (said := complaint(gateway.refuses())) and "--bind" in said


def test_a_place_for_rows_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """Better now than with the first row."""
    gateway = Gateway(ECHO, tmp_path)
    gateway.data.write_text("a file where the directory should be")
    assert f"{gateway.data}" in (said := complaint(gateway.refuses())) and "cannot be written" in said
    gateway.config["storage"] = {"url": "none"}
    with gateway:  # nothing is recorded, so nothing needs the place
        assert ask_once(gateway) == 200


def test_a_data_directory_in_use_is_named_with_who_uses_it(tmp_path: Path) -> None:
    """Two gateways would take each other's rows for those of dead workers."""
    with Gateway(ECHO, tmp_path / "first") as first:
        shared = {"state": f"lmdb://{first.data / 'state'}", "storage": {"url": f"sqlite:///{first.database}"}}
        second = Gateway({**ECHO, **shared}, tmp_path / "second")
        said = complaint(second.refuses())
        assert f"{first.data / 'state'} is in use" in said and f"pid {first.pid} " in said
        assert "token" not in said
        assert ask_once(first) == 200
    with second:  # the first has left
        assert ask_once(second) == 200


def test_a_killed_gateway_leaves_no_lock(tmp_path: Path) -> None:
    """Also while its children are still on their way out."""
    with Gateway(ECHO, tmp_path) as gateway:
        children = gateway.children
        for pid in children:
            os.kill(pid, signal.SIGSTOP)  # none of them notices that the supervisor is gone
        gateway.kill()
        try:
            gateway.config["server"]["port"] = gateway.port = free_port()
            gateway.start()
            assert ask_once(gateway) == 200
        finally:
            for pid in children:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)


def test_a_token_is_made_only_for_a_gateway_that_starts(tmp_path: Path) -> None:
    with Gateway(ECHO, tmp_path / "first") as first:
        open_to_all = {"admin": {}, "server": {"bind": "0.0.0.0", "port": first.port}}
        second = Gateway({**ECHO, **open_to_all}, tmp_path / "second")
        assert "in use" in complaint(said := second.refuses()) and "token" not in said


def test_a_socket_in_no_directory_is_refused(tmp_path: Path) -> None:
    """The directory decides who gets at the socket: nothing is made up."""
    gateway = Gateway({**ECHO, "server": {"socket": str(tmp_path / "no" / "x.sock")}}, tmp_path)
    assert f"there is no directory {tmp_path / 'no'}" in complaint(gateway.refuses())
    assert not (tmp_path / "no").exists()


def test_the_demo_says_how_to_read_its_rows(tmp_path: Path) -> None:
    """Word for word: the command that it prints lists what was asked."""
    port = free_port()
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    with (tmp_path / "log").open("wb") as out:
        command = [sys.executable, "-m", "arbiter", "demo", "--port", str(port)]
        demo = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=out, stderr=subprocess.STDOUT)
    try:
        said = until(lambda: "list it" in (text := (tmp_path / "log").read_text()) and text, "the demo's banner")
        (listing,) = re.findall(r"list it +(.+)", said)
        listed = subprocess.run(shlex.split(listing), cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
        assert (listed.returncode, listed.stdout) == (0, "No request yet.\n"), listed
        assert f"url=http://127.0.0.1:{port}" in said
    finally:
        demo.terminate()
        demo.wait(30)


def garbage(file: Path) -> None:
    file.write_bytes(os.urandom(64 << 10))


def truncated(file: Path) -> None:
    os.truncate(file, 3 * 4096)


def overwritten(file: Path) -> None:
    """Everything behind the two head pages is noise: only reading it tells, or kills the reader."""
    size = file.stat().st_size
    with file.open("r+b") as out:
        out.seek(2 * 4096)
        out.write(os.urandom(size - 2 * 4096))


@pytest.mark.parametrize("damage", [garbage, truncated, overwritten])
def test_a_damaged_journal_is_moved_aside_and_the_gateway_serves(
    own_witness: Witness, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    """A crash of the machine may cost the journal; it must not cost the gateway, nor the next rows."""
    with Gateway(config(own_witness), tmp_path) as gateway:
        assert ask_once(gateway) == 200
        gateway.until_settled(1)
        gateway.stop()
        journal = gateway.data / "state" / "journal"
        damage(journal / "data.mdb")
        gateway.start()
        assert ask_once(gateway) == 200
        gateway.until_settled(2)
        (aside,) = journal.parent.glob("journal.damaged-*")
        (line,) = [line for line in gateway.lines() if line["message"].startswith("the journal is damaged")]
        assert line["level"] == "warn" and line["moved_to"] == str(aside)
        assert check_books(gateway, own_witness) == {"ok": 2}


def test_what_was_under_way_when_the_journal_was_damaged_is_told_of(own_witness: Witness, tmp_path: Path) -> None:
    """The machine lost its power: what the journal held is lost, and not what it holds of each worker in a file."""

    async def main() -> None:
        caller = await Caller.connect(gateway.port)
        await caller.send(call(new_name(), events=2000, every_s=0.05))
        await caller.until_seen(b'"0 "')
        children = gateway.children
        os.kill(gateway.pid, signal.SIGSTOP)
        for child in children:  # all of them at once, as far as they can tell
            os.kill(child, signal.SIGKILL)
        gateway.kill()
        await asyncio.to_thread(until, lambda: all(map(is_dead, children)), "their end")
        caller.leave()

    with Gateway(config(own_witness), tmp_path) as gateway:
        run(main)
        overwritten(gateway.data / "state" / "journal" / "data.mdb")
        gateway.start()
        assert ask_once(gateway) == 200
        assert check_books(gateway, own_witness) == {"ok": 1, "interrupted": 1}


def test_a_store_that_is_no_database_keeps_rows_waiting_and_nobody_else(own_witness: Witness, tmp_path: Path) -> None:
    """Requests are served, whoever looks is told why rows wait, and they arrive once the file is out of the way."""
    gateway = Gateway(config(own_witness), tmp_path, expected_errors=["is no SQLite database"])
    gateway.data.mkdir()
    gateway.database.write_bytes(b"This is a letter to my aunt. " * 1000)
    with gateway:
        assert ask_once(gateway) == 200

        def warnings() -> str:
            return " ".join(gateway.get("/health/ready").json["warnings"])

        until(lambda: "is no SQLite database" in warnings(), "a warning")
        assert gateway.get("/health/ready").status == 200
        gateway.database.rename(gateway.database.with_suffix(".letter"))
        gateway.until_settled(1)
        until(lambda: not warnings(), "no warning")
        assert check_books(gateway, own_witness) == {"ok": 1}


# --- plugins ----------------------------------------------------------------------------------------------------------


def plugged(folder: Path, body: str, **spec: Any) -> dict[str, Any]:
    """A configuration with one plugin, `house:Rules`, whose class has this body; `here` is the folder."""
    text = f"import os\nimport pathlib\nimport signal\n\nhere = pathlib.Path({str(folder)!r})\n\n\nclass Rules:\n"
    (folder / "house.py").write_text(text + textwrap.indent(textwrap.dedent(body), "    "))
    return {**ECHO, "plugins": [{"use": "house:Rules", **spec}]}


def gateway_with(folder: Path, configuration: dict[str, Any], **options: Any) -> Gateway:
    path = f"{folder}{os.pathsep}{Path(__file__).parents[2]}"
    return Gateway(configuration, folder / "gateway", env={"PYTHONPATH": path}, **options)


MARKING = """
    async def startup(self, snapshot):
        (here / f"up-{os.getpid()}").touch()

    async def shutdown(self):
        (here / f"down-{os.getpid()}").touch()
"""


def test_a_plugin_starts_and_stops_once_in_each_worker(tmp_path: Path) -> None:
    """Its `shutdown` runs where its `startup` did; a killed process has none."""
    with gateway_with(tmp_path, plugged(tmp_path, MARKING), workers=2) as gateway:
        first = gateway.workers
        assert sorted(tmp_path.glob("up-*")) == sorted(tmp_path / f"up-{pid}" for pid in first)
        os.kill(first[0], signal.SIGKILL)
        last = until(lambda: len(now := gateway.workers) == 2 and first[0] not in now and now, "a new worker")
    assert {path.name for path in tmp_path.glob("up-*")} == {f"up-{pid}" for pid in {*first, *last}}
    assert {path.name for path in tmp_path.glob("down-*")} == {f"down-{pid}" for pid in last}


@pytest.mark.parametrize(
    ("use", "body", "why"),
    [
        ("no_such_house:Rules", MARKING, "No module named 'no_such_house'"),
        ("house:Laws", MARKING, "has no attribute 'Laws'"),
        ("house:Rules", "async def startup(self, snapshot):\n    raise RuntimeError('the roof leaks')", "roof leaks"),
    ],
)
def test_a_required_plugin_that_fails_keeps_the_gateway_from_serving(
    tmp_path: Path, use: str, body: str, why: str
) -> None:
    """One clear reason per worker, and the end: at the very first start, trying again would change nothing."""
    gateway = gateway_with(tmp_path, plugged(tmp_path, body, use=use), workers=2, expected_errors=[why, "Giving up"])
    gateway.refuses()
    gateway.check()
    assert gateway.stray_lines() == []
    assert 1 <= sum(line["level"] == "error" and why in str(line) for line in gateway.lines()) <= 2
    assert '"serving"' not in gateway.log


def test_an_optional_plugin_that_fails_is_left_out_with_a_warning(tmp_path: Path) -> None:
    body = "async def startup(self, snapshot):\n    raise RuntimeError('the roof leaks')"
    with gateway_with(tmp_path, plugged(tmp_path, body, required=False)) as gateway:
        assert ask_once(gateway) == 200
        (line,) = [line for line in gateway.lines() if "roof leaks" in str(line)]
        assert line["level"] == "warn"


def test_workers_that_die_before_they_serve_end_the_gateway_in_the_end(tmp_path: Path) -> None:
    """Nobody says why (it might be memory), so some tries are made; not for ever."""
    body = "async def startup(self, snapshot):\n    os.kill(os.getpid(), signal.SIGKILL)"
    gateway = gateway_with(tmp_path, plugged(tmp_path, body), expected_errors=["Giving up"])
    gateway.refuses()
    gateway.check()
    assert gateway.stray_lines() == []
    assert sum("a worker died" in line["message"] for line in gateway.lines()) == 5


def test_a_worker_that_cannot_come_back_does_not_take_the_others_with_it(tmp_path: Path) -> None:
    """While anybody serves, the supervisor tries on, and the worker is back once what kept it away is gone."""
    body = """
        async def startup(self, snapshot):
            if (here / "no").exists():
                raise RuntimeError("no")
    """
    configuration = plugged(tmp_path, body)
    with gateway_with(tmp_path, configuration, workers=2, expected_errors=["RuntimeError: no"]) as gateway:
        (tmp_path / "no").touch()
        gone = gateway.workers[0]
        os.kill(gone, signal.SIGKILL)
        until(lambda: gateway.log.count("RuntimeError: no") >= 3, "three tries")
        assert ask_once(gateway) == 200
        (tmp_path / "no").unlink()
        until(lambda: len(gateway.workers) == 2, "the worker's return")


# --- where it listens -------------------------------------------------------------------------------------------------


def test_host_and_port_come_from_the_environment_too(tmp_path: Path) -> None:
    """As container platforms say it."""
    gateway = Gateway(ECHO, tmp_path)
    del gateway.config["server"]["port"]
    gateway.env |= {"PORT": str(gateway.port), "HOST": "127.0.0.1"}
    with gateway:
        assert gateway.get("/health/live").status == 200


def test_a_unix_socket_serves_whole_answers_streams_and_failures(own_witness: Witness, tmp_path: Path) -> None:
    """Also where a killed gateway left its socket, and by more than one worker."""
    path = str(tmp_path / "gateway.sock")

    async def ask(data: bytes) -> Any:
        reader, writer = await asyncio.open_unix_connection(path)
        async with Caller(reader, writer) as caller:
            return await caller.exchange(data)

    async def main() -> None:
        whole = await ask(call(new_name(), stream=False))
        assert (whole.status, whole.ending) == (200, Ending.CLEAN)
        streams = await asyncio.gather(*(ask(call(new_name(), events=20, every_s=0.02)) for _ in range(8)))
        assert all(stream.ending is Ending.CLEAN and b"[DONE]" in stream.body for stream in streams)
        failed = await ask(call(new_name(), events=3, fail=True))
        # The kernel does not tell which peer of a unix socket is which: the error event comes, then a clean end.
        assert failed.ending is Ending.CLEAN and b"[DONE]" not in failed.body
        assert "error" in failed.events[-1][1]
        assert (await ask(call(new_name(), stream=False, status=500))).status == 500

    with Gateway(config(own_witness, server={"socket": path}), tmp_path, workers=2) as gateway:
        assert os.stat(path).st_mode & 0o077 == 0
        run(main)
        second = Gateway(config(own_witness, server={"socket": path}), tmp_path / "second")
        assert f"{path} is in use" in complaint(second.refuses())
        for _ in range(2):
            assert gateway.get("/admin/api/state").status == 401  # a token is configured
        gateway.kill()
        assert os.path.exists(path)
        gateway.start()
        run(main)
        gateway.stop()
        assert not os.path.exists(path)
        Path(path).write_text("not a socket")
        assert "not a socket" in complaint(gateway.refuses())
        Path(path).unlink()


def test_the_command_line_decides_how_many_workers_serve_and_where(tmp_path: Path) -> None:
    """`--workers 2` is two processes that both answer."""
    gateway = Gateway(ECHO, tmp_path, workers=1)
    port = gateway.port
    gateway.arguments = ["--workers", "2", "--port", str(port), "--bind", "127.0.0.1"]
    gateway.config["server"]["port"] = 1  # what the file says, the flag overrules
    with gateway:
        until(lambda: len(gateway.workers) == 2, "two workers")
        before = gateway.metric("arbiter_requests_total")
        for _ in range(12):
            assert ask_once(gateway) == 200
        until(lambda: gateway.metric("arbiter_requests_total") == before + 12, "the count of both workers")
