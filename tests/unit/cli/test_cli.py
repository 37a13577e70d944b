"""The command line: what it prints, where, and with which exit code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import arbiter.cli.serve
from arbiter import __version__
from arbiter.app.reload import FileWatch
from arbiter.cli import COMMANDS, main, parser
from arbiter.config.load import Flags, Source, parse
from arbiter.config.snapshot import Snapshot, key_digest


def test_an_invalid_file_is_one_line_on_standard_error_and_exit_code_1(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text("serve: {}\n")
    for command in (["check"], ["serve"]):
        assert main(command) == 1
        out, err = capsys.readouterr()
        lines = err.splitlines()
        assert out == "" and lines[0] == 'arbiter: arbiter.yaml:1: serve: unknown key; did you mean "server"?'
        # Whoever serves for the first time is told where the keys are; `check` is for those who know.
        assert lines[1:] == (["arbiter: docs/config.md explains every key"] if command == ["serve"] else [])
    assert main(["check", "--json"]) == 1
    problem = json.loads(capsys.readouterr().out)
    assert problem == {
        "ok": False,
        "error": {"file": "arbiter.yaml", "line": 1, "path": "serve", "message": 'unknown key; did you mean "server"?'},
    }


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nope"],
        ["check", "--nope"],
        ["check", "--conf", "x"],
        ["keys"],
        ["keys", "new"],
        ["serve", "--port", "0"],
        ["serve", "--port", "65536"],
        ["serve", "--workers", "-1"],
        ["serve", "--workers", "00000000199"],
        ["requests", "--limit", "00000000199999999999999999999999"],
        ["session", "s", "--limit", "00000000199999999999999999999999"],
        ["search", "x", "--limit", "9" * 5000],
        ["serve", "--bind", "example.com"],
        ["demo", "--config", "x"],
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--help"], *([name, "--help"] for name in COMMANDS), ["keys", "new", "--help"]])
def test_every_command_explains_itself(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    assert "usage: arbiter" in capsys.readouterr().out


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"arbiter {__version__}\n"


def test_a_key_for_the_configuration_is_shown_once_and_its_hash_goes_into_the_file(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["keys", "new", "ci-bot", "--print", "--agent", "codex"]) == 0
    out, err = capsys.readouterr()
    key = out.strip()
    assert re.fullmatch(r"arb-[A-Za-z0-9_-]{43}", key) and key not in err
    snippet = err.partition("In arbiter.yaml:\n\n")[2]
    (client,) = parse(config.read_text() + snippet, "t", {}).clients
    assert (client.name, client.agent, client.key_sha256) == ("ci-bot", "codex", key_digest(key))


def test_keys_are_never_alike(capsys: pytest.CaptureFixture[str]) -> None:
    found = []
    for _ in range(3):
        main(["keys", "new", "a", "--print", "--json"])
        made = json.loads(capsys.readouterr().out)
        assert made["client"] == {"name": "a", "key_hash": f"sha256:{key_digest(made['key'])}"}
        found.append(made["key"])
    assert len(set(found)) == 3


def test_a_name_that_no_file_would_accept_gets_no_key(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "new", "a b"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("arbiter: NAME: a name is")


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Snapshot, Source, object]]:
    """What `serve` and `demo` hand to the supervisor, in place of the supervisor."""
    calls: list[tuple[Snapshot, Source, object]] = []

    class Supervisor:
        @staticmethod
        def serve(snapshot: Snapshot, control: object, *, source: Source, watch: object) -> int:
            calls.append((snapshot, source, watch))
            return 7

    monkeypatch.setitem(sys.modules, "arbiter.app.supervisor", Supervisor)
    monkeypatch.setattr(arbiter.cli.serve, "set_up_log", lambda snapshot: None)
    return calls


def test_serve_hands_on_the_snapshot_and_where_it_came_from(
    config: Path, served: list[tuple[Snapshot, Source, object]]
) -> None:
    assert main(["serve", "--port", "9000", "--bind", "0.0.0.0", "--workers", "3"]) == 7
    ((snapshot, source, watch),) = served
    assert (snapshot.server.bind, snapshot.server.port, snapshot.server.workers) == ("0.0.0.0", 9000, 3)
    assert source.flags == Flags("0.0.0.0", 9000, None, 3) and source.load() == snapshot
    assert not source.demo and watch is None


def test_the_file_is_watched_where_that_is_wanted(config: Path, served: list[tuple[Snapshot, Source, object]]) -> None:
    assert main(["serve", "--reload"]) == 7
    assert isinstance(served[0][2], FileWatch)


def test_the_rows_of_a_demo_can_be_listed_as_soon_as_it_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also before control has opened the store: the banner names the command, and people are quick."""

    class Supervisor:
        @staticmethod
        def serve(snapshot: Snapshot, control: object, *, source: Source, watch: object) -> int:
            return main(["requests", "--db", str(snapshot.storage.path)])

    monkeypatch.setitem(sys.modules, "arbiter.app.supervisor", Supervisor)
    monkeypatch.setattr(arbiter.cli.serve, "set_up_log", lambda snapshot: None)
    for data in ("", str(tmp_path / "data")):
        monkeypatch.setenv("ARBITER_DATA_DIR", data)
        assert main(["demo"]) == 0
        assert capsys.readouterr().out == "No request yet.\n"
    (tmp_path / "taken").touch()
    monkeypatch.setenv("ARBITER_DATA_DIR", str(tmp_path / "taken"))
    assert main(["demo"]) == 1 and "there is no store at" in capsys.readouterr().err


def test_demo_needs_no_file_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, served: list[tuple[Snapshot, Source, object]]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ARBITER_DATA_DIR", raising=False)
    assert main(["demo", "--socket", "a.sock"]) == 7
    snapshot, source, _ = served[0]
    assert source.demo and snapshot.server.socket == "a.sock" and source.load() == snapshot
    assert snapshot.storage.path is not None and not snapshot.storage.path.parent.exists()
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("ARBITER_DATA_DIR", str(tmp_path))
    main(["demo"])
    assert served[1][0].storage.path == tmp_path / "arbiter.db"


def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "arbiter", *arguments]
    root = Path(__file__).parents[3]
    env = {**os.environ, "PYTHONPATH": str(root)}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=env, check=False, **options)


def test_a_reader_that_leaves_early_gets_no_traceback(config: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write) as stdout:
        command = [sys.executable, "-m", "arbiter", "check", "--schema"]
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
        done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, timeout=60, env=env, check=False)
    assert done.returncode == 1 and done.stderr == b""


def test_the_command_line_loads_neither_the_server_nor_the_event_loop(config: Path) -> None:
    """`arbiter check` answers at once: what only serving needs is imported by serving."""
    code = (
        "import sys; from arbiter.cli import main; assert main(['check']) == 0; "
        "print(sorted({name.split('.')[0] for name in sys.modules} & "
        "{'asyncio', 'granian', 'uvloop', 'httpcore', 'lmdb', 'starlette', 'sqlite3', 'ssl'}))"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=env, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_python_m_arbiter_is_arbiter() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"arbiter {__version__}\n")


def test_the_parser_can_be_built_twice() -> None:
    assert parser().prog == parser().prog == "arbiter"
