"""Values that nobody means, on the command line: one line on standard error, and no traceback."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from arbiter.cli import main
from arbiter.cli.moments import local, since
from tests.fakes.stores import SqlitePlace
from tests.unit.control.test_sessions import ROOT, fill

BYTE = "\udcff"  # how Python hands over the byte 0xff of an argument


@pytest.fixture
def db(config: Path, tmp_path: Path) -> str:
    place = SqlitePlace(tmp_path / "a.db")
    fill(place)
    return str(place.path)


@pytest.mark.parametrize(
    "words",
    [
        ("sessions", "--agent", BYTE),
        ("sessions", "--client", BYTE),
        ("session", ROOT, "--client", BYTE),
        ("session", ROOT, "--client", "ci", "--note", BYTE),
        ("limits", "--provider", BYTE),
        ("reprice", "--since", "2026-01-01", "--provider", BYTE),
    ],
)
def test_a_byte_that_is_no_text_is_said_to_be_none(
    words: tuple[str, ...], db: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--db", db]) == 2
    assert capsys.readouterr().err.startswith("arbiter: no store holds what the command line says: ")


def test_a_bill_may_have_any_name(db: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its name goes into rows: what no column holds stands there as a question mark."""
    bill = tmp_path / f"bill{BYTE}.csv"
    bill.write_text("date,model,usd\n2026-09-21,gpt-5.2,3\n")
    assert main(["reconcile", str(bill), "--provider", "openai", "--apply", "--db", db]) == 0
    found = SqlitePlace(Path(db)).sql("SELECT target FROM audit WHERE action = 'reconcile'")
    assert found == [("bill?.csv",)]


@pytest.fixture
def far_east(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("since", ["0001-01-01", "9999-12-31T23:00:00Z"])
@pytest.mark.parametrize("command", ["cache", "cost", "limits", "sessions", "requests"])
def test_the_ends_of_the_calendar_are_times_too(
    command: str, since: str, db: str, far_east: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--since", since, "--db", db]) == 0
    assert capsys.readouterr().out


def test_a_moment_beyond_the_calendar_is_its_end(far_east: None) -> None:
    assert (local(-(10**17)).year, local(10**17).year, local(253_402_297_200_000).year) == (1, 9999, 9999)
    assert local(0).hour == 9 and since(0) == " since 1970-01-01 09:00 JST"
    assert since(-(10**17)).startswith(" since 0001-01-01 00:00 ")
