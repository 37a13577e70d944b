"""What a benchmark does as a command, however it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench import tools

SCRIPT = """
import contextlib, pathlib, sys, time
from bench import tools

@contextlib.contextmanager
def started():
    pathlib.Path(sys.argv[1]).touch()
    try:
        yield
    finally:
        pathlib.Path(sys.argv[1]).unlink()

def main():
    with started():
        {body}

tools.command(main)
"""


def hear() -> None:
    """As in a terminal, though these tests run in the background or under `nohup`, where these are ignored."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def run(tmp_path: Path, body: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(body=body), str(tmp_path / "started")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=hear,
    )  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_what_was_started_is_stopped(tmp_path: Path, number: signal.Signals) -> None:
    """By Ctrl-C, by who ends it and by a terminal that is closed; and nobody reads a traceback for it."""
    child = run(tmp_path, "time.sleep(60)")
    while not (tmp_path / "started").exists():
        time.sleep(0.01)
    child.send_signal(number)
    out, err = child.communicate(timeout=60)
    assert (child.returncode, out, err) == (128 + number, "", "")
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise RuntimeError('nginx is not here')", "nginx is not here\n"),
        ("import no_such_module", "no_such_module is not here (.venv/bin/pip install -r requirements-dev.lock)\n"),
    ],
)
def test_what_is_wrong_is_told_in_a_line(tmp_path: Path, body: str, said: str) -> None:
    child = run(tmp_path, body)
    assert child.communicate(timeout=60) == ("", said)
    assert child.returncode == 1


@contextmanager
def ended() -> Iterator[None]:
    with subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"]) as child, tools.needed(child):
        child.wait()
        yield


def test_nobody_is_asked_whose_gateway_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that goes on for minutes, though there is nobody to ask, is ended."""
    client = tmp_path / "client"
    client.write_text("#!/bin/sh\nexec sleep 600\n")
    client.chmod(0o700)
    monkeypatch.setattr(tools, "loadgen", lambda: client)
    with ended(), pytest.raises(RuntimeError, match="ended in the middle, with exit code 3"):
        tools.load("http://127.0.0.1:1/", "u1024")
    tools.see_all_run()


def test_a_process_that_was_replaced_is_not_measured_in_the_place_of_the_first() -> None:
    """A worker that died is started anew by its supervisor, which runs on; whose CPU time it was nobody could say."""
    with subprocess.Popen(["sleep", "600"]) as worker:
        with tools.all_needed([worker.pid]):
            tools.see_all_run()
            worker.kill()
            worker.wait()
            with pytest.raises(RuntimeError, match=f"process {worker.pid}, which was measured, ended in the middle"):
                tools.see_all_run()
        tools.see_all_run()


def test_a_client_that_is_never_over_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = tmp_path / "client"
    client.write_text("#!/bin/sh\nexec sleep 600\n")
    client.chmod(0o700)
    monkeypatch.setattr(tools, "loadgen", lambda: client)
    with pytest.raises(RuntimeError, match="not over after"):
        tools.load("http://127.0.0.1:1/", "u1024", timeout_s=0.1)


WORDS = [
    ("path", "--rounds", "0"),
    ("path", "--peers", "arbitre"),
    ("path", "--peers", "crossings"),
    ("path", "--only", "nothing"),
    ("scaling", "--rounds", "0"),
    ("compare", "--rounds", "0"),
    ("profile", "--requests", "0"),
    ("profile", "--tree", "/nowhere"),
]


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_what_cannot_be_meant_is_told(words: tuple[str, ...]) -> None:
    name, *rest = words
    done = subprocess.run(
        [sys.executable, "-m", f"bench.{name}", *rest], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2 and f"python -m bench.{name}: error:" in done.stderr, done.stderr
