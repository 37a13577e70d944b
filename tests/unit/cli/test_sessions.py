"""`arbiter sessions` and `arbiter session S`: what they print of a real store, and what they change in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from arbiter.cli import main
from tests.fakes.stores import SqlitePlace
from tests.unit.control.test_sessions import CHILD, ROOT, fill


@pytest.fixture
def db(tmp_path: Path) -> str:
    place = SqlitePlace(tmp_path / "a.db")
    fill(place)
    return str(place.path)


def run(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(list(arguments)) == code
    said = capsys.readouterr()
    return said.err if code else said.out


def rows(capsys: pytest.CaptureFixture[str], db: str, *more: str) -> Any:
    return json.loads(run(capsys, "sessions", "--json", "--db", db, *more))


def test_sessions_are_a_table_without_the_columns_that_say_nothing(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    head, _, first, *_ = run(capsys, "sessions", "--db", db).splitlines()
    assert head.split() == [
        "session",
        "agent",
        "client",
        "turns",
        "reqs",
        "in",
        "hit",
        "out",
        "cost",
        "lost",
        "last",
        "alive",
        "state",
    ]
    assert first.split()[:8] == [ROOT, "claude-code", "ci", "2", "3", "6.6k", "36%", "192"]
    assert "≥$" in first and first.endswith("open")
    assert max(map(len, run(capsys, "sessions", "--db", db).splitlines())) <= 118


def test_sessions_are_filtered(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert [one["client"] for one in rows(capsys, db, "--label", "issue=123")] == ["other"]
    assert [one["session"] for one in rows(capsys, db, "--agent", "claude-code")] == [ROOT]
    assert len(rows(capsys, db, "--client", "ci", "--limit", "2")) == 2
    assert run(capsys, "sessions", "--db", db, "--since", "1s") == "no session matches\n"
    assert "--label: " in run(capsys, "sessions", "--db", db, "--label", "x", code=2)


def test_a_session_is_told_turn_by_turn_with_those_it_started_further_in(
    db: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = run(capsys, "session", ROOT, "--client", "ci", "--db", db).splitlines()
    assert lines[0] == f"{ROOT}: open"
    turns = [line.split() for line in lines if "200 ok" in line]
    assert [turn[0] for turn in turns] == ["1", "2", "1"] and "miss" in turns[1]
    assert f"    {CHILD}: open" in lines and f"      parent      {ROOT}" in lines
    assert next(line for line in lines if "502" in line).split()[0] == "-", "a failed call is no turn"
    assert "  lost to it  9,000 tokens, $0.000000000077" in lines


def test_a_session_is_known_by_its_id_its_name_or_how_it_begins(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "several sessions are meant" in run(capsys, "session", ROOT, "--db", db, code=1)
    for name in (f"ci {ROOT}", ROOT[:9]):
        found = json.loads(run(capsys, "session", name, "--client", "ci", "--json", "--db", db))
        assert found["id"] == f"ci {ROOT}" and [one["session"] for one in found["children"]] == [CHILD]
    assert "at least 8 characters" in run(capsys, "session", "0199", "--db", db, code=1)
    assert "there is no session" in run(capsys, "session", "nobody-knows-it", "--db", db, code=1)


def test_an_operator_ends_and_notes_from_the_command_line(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = run(capsys, "session", ROOT, "--client", "other", "--end", "--note", "why:\nbecause", "--db", db)
    assert said == f"{ROOT}: noted, ended\n"
    assert "ended already" in run(capsys, "session", ROOT, "--client", "other", "--end", "--db", db)
    told = run(capsys, "session", ROOT, "--client", "other", "--db", db)
    assert told.startswith(f"{ROOT}: ended by an operator") and "cli: why:\n       because" in told
    assert "--note: " in run(capsys, "session", ROOT, "--client", "other", "--note", " ", "--db", db, code=2)
    audit = SqlitePlace(Path(db)).sql("SELECT who, action, target FROM audit ORDER BY action")
    assert audit == [("cli", "end", f"other {ROOT}"), ("cli", "note", f"other {ROOT}")]


def test_requests_are_found_by_their_label(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(run(capsys, "requests", "--json", "--label", "issue=12", "--db", db))
    assert [one["labels"]["issue"] for one in found] == ["12"]
