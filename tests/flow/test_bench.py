"""`arbiter bench` as an operator runs it: real processes that measure each other, and leave nothing behind."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.gateway import ARBITER, until

CONFIG = """\
server: {{ workers: 1 }}
auth: {{ mode: require }}
providers:
  theirs: {{ type: {type}, key: SECRET-KEY, endpoint: "http://127.0.0.1:{port}/v1", models: [m] }}
storage: {{ url: "sqlite:///{store}", capture: {{ content: true }} }}
state: "lmdb://{state}"
"""


@contextmanager
def provider() -> Iterator[socket.socket]:
    """Where the operator's provider is; whoever connects is noticed."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield listener


def nobody_came(listener: socket.socket) -> bool:
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return True
    return False


def bench(tmp_path: Path, listener: socket.socket, kind: str, *words: str, **more: Any) -> subprocess.Popen[str]:
    """`arbiter bench` on a configuration of its own, with folders that nothing may be left in."""
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "tmp").mkdir()
    file = home / "arbiter.yaml"
    port = listener.getsockname()[1]
    file.write_text(CONFIG.format(type=kind, port=port, store=home / "rows.db", state=home / "state"))
    env = {**os.environ, "TMPDIR": str(tmp_path / "tmp"), "ARBITER_DATA_DIR": str(home / "data")}
    command = [*ARBITER, "bench", "--config", str(file), *words]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


def hear() -> None:
    """As in a terminal, though these tests run in the background or under `nohup`, where these are ignored."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def left_behind(tmp_path: Path) -> list[str]:
    """Files that were made, and processes that still use them."""
    made = [str(path) for path in (tmp_path / "home").iterdir() if path.name != "arbiter.yaml"]
    made += [str(path) for path in (tmp_path / "tmp").iterdir()]
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(tmp_path / "tmp") in process.read_text():
                made.append(str(process))
        except OSError:
            continue
    return made


@pytest.mark.parametrize(("kind", "form"), [("openai", "chat"), ("anthropic", "messages")])
def test_a_bench_measures_and_touches_nothing(tmp_path: Path, kind: str, form: str) -> None:
    """Every figure is there, every answer was right; the provider, the store, the state and the key were left alone."""
    with provider() as listener:
        child = bench(tmp_path, listener, kind, "--seconds", "2", "--json")
        out, err = child.communicate(timeout=90)
        assert (child.returncode, err) == (0, "")
        assert nobody_came(listener)
    told = json.loads(out)
    assert "SECRET" not in out
    assert told["format"] == form and told["workers"] == 1 and told["lost"] == 0 and told["complaint"] is None
    for part in ("unary", "first_event"):
        for way in ("direct_ms", "through_ms"):
            assert 0 < told[part][way]["p50"] <= told[part][way]["p99"]
    assert told["requests"]["count"] > 8 and told["requests"]["cpu_us"] > 0
    # 64 streams of 35 events with text, and what begins and ends them
    assert told["events"]["count"] == 64 * (35 + (4 if form == "chat" else 5)) and told["events"]["cpu_us"] > 0
    assert told["memory"]["at_most_bytes"] >= told["memory"]["at_rest_bytes"] > 20e6
    assert left_behind(tmp_path) == []


def test_a_bench_that_is_stopped_stops_what_it_started(tmp_path: Path) -> None:
    """SIGTERM in the middle: the gateway and the upstream end, and the folder goes."""
    with provider() as listener:
        child = bench(tmp_path, listener, "openai", "--seconds", "60")
        until(lambda: list((tmp_path / "tmp").glob("arbiter-bench-*/data/*.db")), "a gateway that keeps rows", 30)
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=30)
    assert child.returncode == 128 + signal.SIGTERM
    until(lambda: left_behind(tmp_path) == [], "that nothing is left")


def test_a_bench_that_is_killed_leaves_no_process(tmp_path: Path) -> None:
    """SIGKILL cannot be answered; the kernel ends the gateway, and the upstream ends with its standard input."""
    with provider() as listener:
        child = bench(tmp_path, listener, "openai", "--seconds", "60")
        until(lambda: list((tmp_path / "tmp").glob("arbiter-bench-*/data/*.db")), "a gateway that keeps rows", 30)
        children = (Path("/proc") / str(child.pid) / "task" / str(child.pid) / "children").read_text().split()
        child.kill()
        child.communicate(timeout=30)
    assert len(children) == 2
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children), "that both are gone", 30)


def test_what_cannot_be_measured_is_told_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "arbiter.yaml").write_text("serve: {}\n")
    for words, code, said in (
        (["--config", "arbiter.yaml"], 1, 'arbiter.yaml:1: serve: unknown key; did you mean "server"?'),
        (["--config", "nowhere.yaml"], 1, "nowhere.yaml"),
        (["--seconds", "1"], 2, "--seconds"),
    ):
        done = subprocess.run([*ARBITER, "bench", *words], cwd=tmp_path, capture_output=True, text=True, timeout=30)
        assert done.returncode == code and said in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_ctrl_c_ends_a_bench_without_a_word_of_its_parts(tmp_path: Path) -> None:
    """A terminal sends it to everybody at once: the upstream leaves it to who started it, and nobody dies loudly."""
    with provider() as listener:
        child = bench(tmp_path, listener, "openai", "--seconds", "60", start_new_session=True, preexec_fn=hear)
        until(lambda: list((tmp_path / "tmp").glob("arbiter-bench-*/data/*.db")), "a gateway that keeps rows", 30)
        os.killpg(child.pid, signal.SIGINT)
        _, err = child.communicate(timeout=30)
    assert (child.returncode, "Traceback" in err, "Fatal" in err) == (130, False, False), err
    until(lambda: left_behind(tmp_path) == [], "that nothing is left")


def test_a_bench_whose_terminal_is_closed_leaves_nothing(tmp_path: Path) -> None:
    with provider() as listener:
        child = bench(tmp_path, listener, "openai", "--seconds", "60", start_new_session=True, preexec_fn=hear)
        until(lambda: list((tmp_path / "tmp").glob("arbiter-bench-*/data/*.db")), "a gateway that keeps rows", 30)
        os.killpg(child.pid, signal.SIGHUP)
        child.communicate(timeout=30)
    assert child.returncode == 128 + signal.SIGHUP
    until(lambda: left_behind(tmp_path) == [], "that nothing is left")


def has_rows(tmp_path: Path) -> bool:
    for file in (tmp_path / "tmp").glob("arbiter-bench-*/data/arbiter.db"):
        with suppress(sqlite3.Error), closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as books:
            return bool(books.execute("SELECT count(*) FROM requests").fetchone()[0])
    return False


@pytest.mark.parametrize(
    ("part", "what"), [("serve", "the gateway"), ("benching.upstream", "the bench's own upstream")]
)
def test_a_part_that_dies_is_no_fault_of_the_gateway(tmp_path: Path, part: str, what: str) -> None:
    """Somebody ends it, or memory does: there are no figures then, and nothing to report."""
    with provider() as listener:
        child = bench(tmp_path, listener, "openai", "--seconds", "60")
        until(lambda: has_rows(tmp_path), "rows of what was asked", 30)
        children = (Path("/proc") / str(child.pid) / "task" / str(child.pid) / "children").read_text().split()
        (victim,) = [int(pid) for pid in children if part in Path(f"/proc/{pid}/cmdline").read_text()]
        os.kill(victim, signal.SIGKILL)
        out, err = child.communicate(timeout=90)
    assert (child.returncode, out) == (1, "")
    assert what in err and "ended in the middle, with exit code -9" in err


def test_too_few_open_files_are_no_fault_of_the_gateway(tmp_path: Path) -> None:
    """The client's own lack of them would look like lost answers."""
    few = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (64, 64))
    with provider() as listener:
        child = bench(tmp_path, listener, "openai", "--seconds", "2", preexec_fn=few)
        out, err = child.communicate(timeout=60)
    assert (child.returncode, out) == (1, "")
    assert "may have 64 (`ulimit -n`)" in err
