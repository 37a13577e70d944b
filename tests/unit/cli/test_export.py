"""`arbiter export`: the rows as they are, for other programs, however many there are."""

from __future__ import annotations

import csv
import io
import json
import os
import stat
import subprocess
import sys
import tracemalloc
from pathlib import Path

import msgspec
import pytest

from arbiter.cli import main
from arbiter.ledger import schema
from arbiter.ledger.questions import export
from arbiter.ledger.questions.export import Span
from arbiter.ledger.row import AttemptRow, RequestRow
from arbiter.ledger.store import Position
from tests.fakes.rows import BEGAN_MS, attempt_row, request_row

ROOT = Path(__file__).resolve().parents[3]

ODD = request_row(
    3, labels={"a": 'b"\n'}, repairs=["one", "two"], message='=1+1, "two"\nlines, ü', stream=False, client=None
)
REQUESTS = [request_row(1), request_row(2, stream=True), ODD]
ATTEMPTS = [attempt_row(request, cost_pd=2**60, finish_inferred=True) for request in REQUESTS]


def arbiter(*words: object) -> subprocess.CompletedProcess[bytes]:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "arbiter", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, timeout=60, check=False)


@pytest.fixture
def filled(place):
    store = place.open()
    store.write([*reversed(REQUESTS), *ATTEMPTS], Position("j", 1))
    store.close()
    return place


def stored(row):
    """A row's columns with their values."""
    return {column.name: getattr(row, column.name) for column in schema.columns(type(row))}


def test_json_lines_are_the_rows_oldest_first(filled):
    """Lists and maps are lists and maps, true is true, and what is not known is null."""
    done = arbiter("export", "--db", filled.url)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == [stored(row) for row in REQUESTS]
    done = arbiter("export", "--db", filled.url, "--table", "attempts", "--format", "jsonl")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [stored(row) for row in ATTEMPTS]


def test_csv_has_a_head_and_survives_commas_quotes_and_lines(filled):
    done = arbiter("export", "--db", filled.url, "--format", "csv")
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(io.StringIO(done.stdout.decode(), newline="")))
    assert [row["id"] for row in rows] == [row.id for row in REQUESTS]
    assert rows[2]["message"] == ODD.message and json.loads(rows[2]["labels"]) == ODD.labels
    assert [row["stream"] for row in rows] == ["1", "1", "0"]
    assert (rows[2]["client"], rows[0]["client"]) == ("", "ci")
    assert list(rows[0]) == [column.name for column in schema.columns(RequestRow)]


@pytest.mark.parametrize("table", ["requests", "attempts"])
def test_parquet_has_typed_columns(filled, tmp_path, table):
    """Numbers to the last digit, text as text, and null where nothing is known."""
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow: pip install pyarrow")
    path = tmp_path / "rows.parquet"
    done = arbiter("export", "--db", filled.url, "--table", table, "--format", "parquet", "--output", path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == b"" and done.stderr.decode() == f"3 rows of {table} are in {path}\n"
    found = parquet.read_table(path)
    json_columns = {
        column.name
        for column in schema.columns(RequestRow if table == "requests" else AttemptRow)
        if column.kind == "json"
    }
    expected = [stored(row) for row in (REQUESTS if table == "requests" else ATTEMPTS)]
    for row, wanted in zip(found.to_pylist(), expected, strict=True):
        assert row == {
            name: msgspec.json.encode(value).decode() if name in json_columns and value is not None else value
            for name, value in wanted.items()
        }
    assert str(found.schema.field("id").type) == "string"
    assert str(found.schema.field("stream" if table == "requests" else "finish_inferred").type) == "bool"
    assert str(found.schema.field("cost_pd").type) == "int64"


def test_parquet_without_its_library_says_how_to_get_it(filled, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    words = ["export", "--db", filled.url, "--format", "parquet", "--output", str(tmp_path / "a.parquet")]
    assert main(words) == 1
    assert f"{sys.executable} -m pip install pyarrow" in capsys.readouterr().err
    assert list(tmp_path.glob("*.parquet*")) == []
    monkeypatch.setattr("importlib.util.find_spec", lambda name, package=None: None)
    assert main(words) == 1  # as in the image, which cannot be added to
    told = capsys.readouterr().err
    assert "neither it nor pip is here; export csv or jsonl" in told and sys.executable not in told


def test_since_when(filled):
    """Rows of that very moment are among them, older ones are not."""
    since = REQUESTS[1].received_ms
    done = arbiter("export", "--db", filled.url, "--since", since)
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [REQUESTS[1].id, ODD.id]
    done = arbiter("export", "--db", filled.url, "--since", "5m", "--format", "csv")
    assert len(done.stdout.splitlines()) == 1


def test_pages_neither_skip_nor_repeat(place, monkeypatch):
    """Also where many rows are of one millisecond, and others arrive meanwhile: those belong to the next export."""
    monkeypatch.setattr(export, "PAGE_ROWS", 7)
    rows = [request_row(number, received_ms=BEGAN_MS + number // 10) for number in range(100)]
    store = place.open()
    store.write(rows, Position("j", 1))
    seen = []
    for page in export.pages(store, "requests", Span(BEGAN_MS + 2, BEGAN_MS + 8)):
        seen += [values[0] for values in page]
        store.write([request_row(1000 + len(seen), received_ms=BEGAN_MS + 9)], Position("j", 1))
    assert seen == [row.id for row in rows[20:90]]
    store.close()


@pytest.mark.parametrize("format_", ["jsonl", "csv", "parquet"])
def test_ten_times_the_rows_need_no_more_memory(place, tmp_path, monkeypatch, format_):
    """What is held is a page, or a group of a Parquet file."""
    if format_ == "parquet":
        pytest.importorskip("pyarrow", reason="needs pyarrow: pip install pyarrow")
    monkeypatch.setattr(export, "PAGE_ROWS", 100)
    monkeypatch.setattr("arbiter.cli.export.ROW_GROUP", 200)
    store = place.open()

    def peak() -> int:
        tracemalloc.start()
        out = str(tmp_path / "out")
        assert main(["export", "--db", place.url, "--format", format_, "--output", out]) == 0
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    store.write([request_row(number) for number in range(600)], Position("j", 1))
    peak()  # what is imported and compiled once
    few = peak()
    for start in range(600, 6000, 600):
        store.write([request_row(number) for number in range(start, start + 600)], Position("j", start))
    many = peak()
    store.close()
    assert many < few + 300_000, (few, many)


def test_a_file_is_whole_or_not_there(filled, tmp_path):
    """What stood there before stays until the new one is written; only its owner may read it."""
    path = tmp_path / "rows.csv"
    path.write_text("yesterday's")
    done = arbiter("export", "--db", tmp_path / "no.db", "--format", "csv", "--output", path)
    assert done.returncode == 1 and path.read_text() == "yesterday's"
    done = arbiter("export", "--db", filled.url, "--format", "csv", "--output", path)
    assert done.returncode == 0 and path.read_text().startswith("id,")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in tmp_path.iterdir() if "rows" in one.name] == ["rows.csv"]
    done = arbiter("export", "--db", filled.url, "--output", tmp_path / "no" / "such" / "folder")
    assert done.returncode == 1 and b"cannot be written" in done.stderr and b"Traceback" not in done.stderr


def test_an_empty_store_gives_an_empty_file(place, tmp_path):
    place.open().close()
    assert arbiter("export", "--db", place.url).stdout == b""
    assert len(arbiter("export", "--db", place.url, "--format", "csv").stdout.splitlines()) == 1
