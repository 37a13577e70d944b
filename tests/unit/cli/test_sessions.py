"""`arbiter sessions` and `arbiter session S`: what they print of a real store, and what they change in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from arbiter.cli import main
from arbiter.cli.moments import zone
from arbiter.ledger.recorder import Batch
from arbiter.ledger.sessions import Sessions
from arbiter.ledger.store import Position
from tests.fakes.rows import attempt_row, request_row
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
        "requests",
        "in",
        "hit",
        "out",
        "cost",
        "lost",
        "last",
        "alive",
        f"({zone()})",
        "state",
    ]
    assert first.split()[:8] == [ROOT, "claude-code", "ci", "2", "3", "6.6k", "36%", "192"]
    assert "≥$" in first and first.endswith("open")


def test_without_sessions_or_without_keys_it_says_where_they_come_from(
    tmp_path: Path, db: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What names a session, and what names a client; where a filter finds nothing neither would help."""
    place = SqlitePlace(tmp_path / "b.db")
    place.open().close()
    other = str(place.path)
    told = run(capsys, "sessions", "--db", other)
    assert told.startswith("No session yet.\n") and "X-Arbiter-Session-Id" in told
    assert run(capsys, "sessions", "--db", other, "--agent", "codex") == "No session matches.\n"
    store = place.open()
    batch = Batch([request_row(1, session=ROOT, client=None)], [], [])
    Sessions(lambda: 3_600_000).take(batch, store)
    store.write(batch.requests, Position("j", 1), batch.also)
    store.close()
    assert "`arbiter keys new NAME`" in run(capsys, "sessions", "--db", other)
    assert "`arbiter keys new NAME`" not in run(capsys, "sessions", "--db", db)


def test_sessions_are_filtered(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert [one["client"] for one in rows(capsys, db, "--label", "issue=123")] == ["other"]
    assert [one["session"] for one in rows(capsys, db, "--agent", "claude-code")] == [ROOT]
    assert len(rows(capsys, db, "--client", "ci", "--limit", "2")) == 2
    assert run(capsys, "sessions", "--db", db, "--limit", "2").endswith("There are more: --limit N shows N of them.\n")
    assert "more" not in run(capsys, "sessions", "--db", db, "--limit", "4")
    assert run(capsys, "sessions", "--db", db, "--since", "1s").startswith("No session since ")
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
    assert "  answering   2.67 s, 71.9 tokens a second" in lines


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


def test_an_operator_names_a_session_and_takes_its_name_away(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """SPEC 8.4: what nobody sees in a title is left out; what changes nothing is no action."""
    mine = ("session", ROOT, "--client", "other", "--db", db)
    assert run(capsys, *mine, "--title", "  My\n\x1bown\u200b ", "--end") == f"{ROOT}: title changed, ended\n"
    assert "its title already" in run(capsys, *mine, "--title", "My own")
    assert run(capsys, *mine).startswith("My own: ended by an operator")
    assert any(line.split()[1:3] == ["My", "own"] for line in run(capsys, "sessions", "--db", db).splitlines())
    assert run(capsys, *mine, "--clear-title") == f"{ROOT}: title cleared\n"
    assert "none already" in run(capsys, *mine, "--clear-title")
    assert run(capsys, *mine).startswith(f"{ROOT}: ended")
    for wrong in (("--title", "\u200b"), ("--title", "x" * 81), ("--title", "x", "--clear-title")):
        assert "--title" in run(capsys, *mine, *wrong, code=2)
    audit = SqlitePlace(Path(db)).sql("SELECT action FROM audit ORDER BY at_ms, id")
    assert [action for (action,) in audit if action != "end"] == ["title", "clear_title"]


def test_what_the_gateway_asked_by_itself_is_told_with_the_session_and_listed_apart(
    db: str, capsys: pytest.CaptureFixture[str]
) -> None:
    own = {"kind": "summary", "request_kind": "title", "client": "(gateway)", "session": None, "about": f"ci {ROOT}"}
    store = SqlitePlace(Path(db)).open()
    fine, failed = (
        request_row(21, cost_pd=2 * 10**8, **own),
        request_row(22, outcome="error", error_class="timeout", **own),
    )
    store.write([fine, failed], Position("j", 2))
    store.close()
    told = run(capsys, "session", ROOT, "--client", "ci", "--db", db)
    assert f"  title asked 2 times, $0.0002, the latest in vain (timeout, trace {failed.trace_id[:12]})" in told
    found = json.loads(run(capsys, "session", ROOT, "--client", "ci", "--json", "--db", db))
    assert [one["id"] for one in found["own_requests"]] == [fine.id, failed.id]
    assert not {fine.id, failed.id} & {one["id"] for one in found["requests_shown"]}
    for more, count in (((), 0), (("--kind", "summary"), 2), (("--kind", "all"), 2), (("--kind", "client"), 0)):
        listed = [one["id"] for one in json.loads(run(capsys, "requests", "--json", "--db", db, *more))]
        assert len({fine.id, failed.id} & set(listed)) == count
    assert [
        one["id"] for one in json.loads(run(capsys, "requests", "--json", "--db", db, "--trace", fine.trace_id))
    ] == [fine.id]


def test_requests_are_found_by_their_label(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(run(capsys, "requests", "--json", "--label", "issue=12", "--db", db))
    assert [one["labels"]["issue"] for one in found] == ["12"]


@pytest.fixture
def alike(tmp_path: Path) -> str:
    """Three sessions of which two begin alike, one with a sub-agent; what each used was estimated, or cut."""
    store = SqlitePlace(tmp_path / "alike.db").open()
    names = ("0199c2a4-77aa", "0199c2a4-77aa:a1", "0199c2a4-88bb", "0200aaaa-77aa")
    guess = {"usage_source": "estimated", "estimated_input_tokens": 1500, "estimated_output_tokens": 9}
    nothing = {"input_tokens": None, "cached_tokens": None, "output_tokens": None}
    batch = Batch([request_row(number, session=name) for number, name in enumerate(names)], [], [])
    batch.attempts += [attempt_row(row, cost_pd=7, cost_source="catalog") for row in batch.requests[:2]]
    batch.attempts.append(attempt_row(batch.requests[2], cost_pd=7, cost_source="catalog", **nothing, **guess))
    batch.attempts.append(attempt_row(batch.requests[3], cost_pd=7, cost_source="provider", usage_source="partial"))
    for row in batch.requests:
        row.cost_pd = 7
    Sessions(lambda: 0).take(batch, store)
    store.write([*batch.requests, *batch.attempts], Position("j", 1), batch.also)
    store.close()
    return str(tmp_path / "alike.db")


def test_what_a_subscription_served_has_no_price_and_is_not_unpriced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = SqlitePlace(tmp_path / "a.db").open()
    request = request_row(1, session="on-a-plan")
    batch = Batch([request], [attempt_row(request, cost_source="subscription", equivalent_pd=7)], [])
    Sessions(lambda: 0).take(batch, store)
    store.write([*batch.requests, *batch.attempts], Position("j", 1), batch.also)
    store.close()
    db = str(tmp_path / "a.db")
    (told,) = rows(capsys, db)
    assert (told["cost_pd"], told["unpriced"], told["subscription"]) == (None, 0, 1)
    for command in (("sessions",), ("session", "on-a-plan"), ("requests",)):
        out = run(capsys, *command, "--db", db)
        assert " subscription" in out and "unpriced" not in out


@pytest.mark.parametrize("command", ["requests", "cache", "cost", "search x"])
def test_a_session_is_meant_by_how_it_begins_wherever_one_is_asked_for(
    command: str, alike: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its sub-agents, whose names begin with its own, are not; and several are named, not guessed at."""
    name, *words = command.split()
    said = run(capsys, name, *words, "--session", "0199c2a4-", "--db", alike, code=1)
    assert said == (
        "arbiter: several sessions begin with '0199c2a4-': 0199c2a4-77aa, 0199c2a4-77aa:a1, 0199c2a4-88bb; "
        "give more of it\n"
    )
    if name == "requests":
        found = {
            asked: [
                one["session"] for one in json.loads(run(capsys, name, "--session", asked, "--json", "--db", alike))
            ]
            for asked in ("0199c2a4-7", "0199c2a4-77aa", "0199c2a4-77aa:", "0200", "0200aaaa", "nobody-knows")
        }
        assert found == {
            "0199c2a4-7": ["0199c2a4-77aa"],
            "0199c2a4-77aa": ["0199c2a4-77aa"],
            "0199c2a4-77aa:": ["0199c2a4-77aa:a1"],
            "0200": [],
            "0200aaaa": ["0200aaaa-77aa"],
            "nobody-knows": [],
        }


def test_what_is_approximate_is_marked_in_lists_and_in_sums(alike: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A cost that a provider named is exact, whatever was counted."""
    guessed = run(capsys, "session", "0199c2a4-88bb", "--db", alike).splitlines()
    assert "  tokens      ~1,500 in, ~9 out" in guessed and "  cost        ~$0.000000000007" in guessed
    assert next(line for line in guessed if "200 ok" in line).split()[-4:-1] == ["~1500", "~9", "~$0.000000000007"]
    assert guessed[-1] == "  ~ estimated, or counted only until the stream was cut"
    theirs = run(capsys, "session", "0200aaaa", "--db", alike).splitlines()
    assert "  tokens      ~2,000 in (800 cached), ~64 out" in theirs and "  cost        $0.000000000007" in theirs
    exact = run(capsys, "session", "0199c2a4-77aa", "--db", alike)
    assert "~" not in exact
    listed = run(capsys, "sessions", "--db", alike)
    assert "~1.5k" in listed and listed.endswith("~ estimated, or counted only until the stream was cut\n")
    told = {one["session"]: one for one in rows(capsys, alike)}
    assert [one["is_approximate"] for one in told.values()] == [True, True, False, False]
    assert (told["0199c2a4-88bb"]["input_tokens"], told["0199c2a4-88bb"]["estimated_input_tokens"]) == (None, 1500)
    assert (told["0200aaaa-77aa"]["approximate"], told["0200aaaa-77aa"]["cost_approximate"]) == (1, 0)


@pytest.mark.parametrize(
    "words",
    [("sessions",), ("session", ROOT, "--client", "ci"), ("requests",), ("cache",), ("cost",), ("limits",)],
    ids=lambda words: words[0],
)
def test_json_is_one_line_or_one_for_each_item(
    words: tuple[str, ...], db: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = run(capsys, *words, "--json", "--db", db)
    value = json.loads(out)
    assert len(out.splitlines()) == (len(value) if isinstance(value, list) else 1)
