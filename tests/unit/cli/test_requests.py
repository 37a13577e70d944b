"""`arbiter requests`: the console's view of the store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from arbiter.ledger.sqlite import SqliteStore
from arbiter.ledger.store import Position
from tests.fakes.rows import attempt_row, request_row

ROOT = Path(__file__).resolve().parents[3]


def arbiter(*words: object, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TZ": "UTC"}
    env.pop("ARBITER_CONFIG", None)
    command = [sys.executable, "-m", "arbiter", *map(str, words)]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=60)


@pytest.fixture
def db(tmp_path):
    path = tmp_path / "arbiter.db"
    store = SqliteStore(path)
    ok = request_row(1, client_trace_id="mine")
    failed = request_row(2, outcome="error", error_class="transport", status=502, first_byte_us=None)
    store.write([ok, attempt_row(ok), failed], Position("j", 1))
    store.write([request_row(number) for number in range(10, 610)], Position("j", 2))
    store.close()
    return path


def test_a_table_newest_first(db):
    done = arbiter("requests", "--db", db, "--limit", 3, "--errors")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split() == [
        "time",
        "trace",
        "client",
        "model",
        "provider",
        "status",
        "ms",
        "ttft",
        "in",
        "cached",
        "out",
        "outcome",
    ]
    assert len(lines) == 3
    assert lines[2].split() == [
        "2026-09-21", "14:13:22", f"{2:032x}", "ci", "swift", "openai", "502",
        "900.0", "-", "-", "-", "-", "error", "transport",
    ]  # fmt: skip


def test_json_brings_the_attempts(db):
    done = arbiter("requests", "--db", db, "--json", "--trace", "mine")
    (one,) = json.loads(done.stdout)
    assert one["id"] == "r00000001" and one["output_tokens"] == 64
    assert [attempt["id"] for attempt in one["attempt_rows"]] == ["r00000001-1"]


def test_the_limit_may_be_more_than_a_page(db):
    assert len(json.loads(arbiter("requests", "--db", db, "--json").stdout)) == 20
    ids = [one["id"] for one in json.loads(arbiter("requests", "--db", db, "--json", "--limit", 601).stdout)]
    assert len(ids) == len(set(ids)) == 601 and ids == sorted(ids, reverse=True)


def test_since_leaves_out_what_is_older(db):
    done = arbiter("requests", "--db", db, "--json", "--limit", 1000, "--since", "1790000600000")
    assert len(json.loads(done.stdout)) == 10


def test_the_configuration_names_the_store(db):
    config = db.parent / "arbiter.yaml"
    config.write_text(f"providers: {{ e: {{ type: echo }} }}\nstorage: {{ url: sqlite:///{db} }}\n")
    assert "swift" in arbiter("requests", "--config", config).stdout
    config.write_text("providers: { e: { type: echo } }\nstorage: { url: none }\n")
    done = arbiter("requests", cwd=db.parent)
    assert done.returncode == 1 and "storage.url" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--db", "nowhere.db"], 1, "there is no store at nowhere.db"),
        ([], 1, "--config FILE, or the SQLite file itself with --db PATH"),
        (["--db", "."], 1, "the store cannot be read"),
        (["--db", "nowhere.db", "--since", "soon"], 1, "--since"),
        (["--limit", "0"], 2, "--limit"),
        (["--limit", "many"], 2, "--limit"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(tmp_path, words, code, said):
    done = arbiter("requests", *words, cwd=tmp_path)
    assert done.returncode == code and said in done.stderr and "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_empty_store_says_so(tmp_path):
    SqliteStore(tmp_path / "a.db").close()
    assert arbiter("requests", "--db", tmp_path / "a.db").stdout == "no request yet\n"
    assert arbiter("requests", "--db", tmp_path / "a.db", "--errors").stdout == "no request fits\n"
    assert json.loads(arbiter("requests", "--db", tmp_path / "a.db", "--json").stdout) == []
