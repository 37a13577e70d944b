"""What every reading command prints fits the terminal that it is read on, and is whole on a pipe."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from arbiter.ledger.sqlite import SqliteStore
from arbiter.ledger.store import Position
from tests.fakes.console import on_terminal
from tests.fakes.rows import attempt_row, request_row
from tests.fakes.stores import SqlitePlace
from tests.unit.cli.conftest import Arbiter
from tests.unit.control.test_sessions import ROOT, fill

NAME = "a-name-as-long-as-people-give-them-to-their-clients-and-models"
COMMANDS = [
    ("requests",),
    ("sessions",),
    ("session", ROOT, "--client", "ci"),
    ("cache", "--since", "2026-01-01", "--by", "model"),
    ("cost", "--since", "2026-01-01", "--by", "client"),
    ("limits", "--since", "2026-01-01"),
]


@pytest.fixture
def db(tmp_path: Path) -> Path:
    place = SqlitePlace(tmp_path / "a.db")
    fill(place)
    store = SqliteStore(place.path)
    long = request_row(9, client=NAME, model_asked=NAME, session=NAME, provider=NAME, error_class=NAME, outcome="error")
    refused = {"status": 429, "error_class": "rate_limited_transient", "outcome": "error", "retry_after_ms": 30_000}
    asked = attempt_row(long, provider=NAME, model_asked=NAME, usage_source="partial", cost_pd=123_456_789, **refused)
    store.write([long, asked], Position("k", 1))
    store.close()
    return place.path


def tables(text: str) -> Iterator[str]:
    """The lines of its tables, with their heads."""
    for _, block in itertools.groupby(text.splitlines(), lambda line: bool(line.strip())):
        lines = list(block)
        start = next((at for at, line in enumerate(lines) if line.strip() and set(line) <= {"-", " ", "…"}), None)
        if start is not None:
            yield from lines[start - 1 :]


@pytest.mark.parametrize("columns", [40, 80, 120])
@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_no_row_is_wider_than_the_terminal(
    words: tuple[str, ...], columns: int, db: Path, arbiter: Arbiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    done = arbiter(*words, "--db", db)
    rows = list(tables(done.out))
    assert done.code == 0 and len(rows) > 2
    assert [row for row in rows if len(row) > columns and not row.startswith(("~", "*", "One of"))] == []


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_a_pipe_gets_every_cell_whole(words: tuple[str, ...], db: Path, arbiter: Arbiter) -> None:
    out = arbiter(*words, "--db", db).out
    assert "…" not in out and "too narrow" not in out
    if words[0] not in ("session", "sessions"):
        assert NAME in out


def test_a_terminal_says_itself_how_wide_it_is(db: Path) -> None:
    shown = on_terminal(72, "requests", "--db", db)
    assert max(map(len, tables(shown))) == 72 and "too narrow for" in shown
    assert NAME in on_terminal(400, "requests", "--db", db)
