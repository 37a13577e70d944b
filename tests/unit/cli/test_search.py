"""`arbiter search`: words looked up in the store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from arbiter.config.load import parse
from arbiter.ledger.search_tender import Tender
from arbiter.ledger.sqlite import SqliteStore
from arbiter.ledger.store import Position
from tests.fakes.console import arbiter
from tests.fakes.contents import heard, keep
from tests.fakes.rows import request_row
from tests.fakes.wires import MESSAGES

SWITCHED_ON = parse("providers: { a: { type: echo } }\nsearch: { index: true }", "t", {})


@pytest.fixture
def db(tmp_path: Path) -> Path:
    path = tmp_path / "arbiter.db"
    store = SqliteStore(path)
    store.write([request_row(1, session="s1"), request_row(2)], Position("j", 1))
    tender = Tender(lambda: SWITCHED_ON)
    while tender.tend(store):
        pass
    for number, text in ((1, "the quokka bites \x1b[31m"), (2, "another quokka")):
        body = {"messages": [{"role": "user", "content": text}]}
        one = heard(f"r{number:08d}", body, answer=MESSAGES.answer("beware"))
        keep(tmp_path / "state", lambda: SqliteStore(path), one, snapshot=lambda: SWITCHED_ON)
    store.close()
    return path


def test_words_lead_to_the_requests_that_said_them(db):
    done = arbiter("search", "--db", db, "quokka", "bites")
    assert done.returncode == 0, done.stderr
    head, _, row = done.stdout.splitlines()
    assert head.split() == ["time", "(UTC)", "trace", "session", "what", "text"]
    assert row.endswith("message  the quokka bites ?[31m") and "000000000000  s1" in row
    assert len(arbiter("search", "--db", db, "quokka").stdout.splitlines()) == 4
    assert len(arbiter("search", "--db", db, "quokka", "--session", "s1").stdout.splitlines()) == 3
    more = arbiter("search", "--db", db, "quokka", "--limit", 1).stdout
    assert more.endswith("There are more: narrow the search, or ask for more with --limit.\n")


def test_programs_get_json(db):
    found = json.loads(arbiter("search", "--db", db, "beware", "--json").stdout)
    assert found["index"] == "ready" and found["is_all"]
    (hit,) = found["hits"]  # the answer is one block, whoever got it
    assert (hit["kind"], hit["request"], hit["text"]) == ("answer", "r00000002", "beware")


@pytest.mark.parametrize("words", [['"'], ["(("], ["AND"], ["'; DROP TABLE requests"], ["-", "*"], [b"\xff\xfe"]])
def test_no_words_are_wrong(db, words):
    done = arbiter("search", "--db", db, "--", *words)
    assert (done.returncode, done.stdout, done.stderr) == (0, "Nothing matches.\n", "")


def test_where_nothing_that_is_said_is_kept_it_says_so_and_how_it_would_be(db, tmp_path):
    """With the configuration at hand; a store alone does not say."""
    file = tmp_path / "arbiter.yaml"
    text = f"providers: {{ a: {{ type: echo }} }}\nsearch: {{ index: true }}\nstorage: {{ url: 'sqlite:///{db}'%s }}\n"
    hint = "Titles, notes and names of tools were searched alone: what is said is not kept; with `storage: { capture:"
    for capture, is_told in (("", True), (", capture: { content: true }", False)):
        file.write_text(text % capture)
        for words in ("quokka", "nothing-of-it"):
            done = arbiter("search", "--config", file, words)
            assert done.returncode == 0, done.stderr
            assert (hint in done.stdout) == is_told
    file.write_text((text % "").replace("index: true", "index: false"))
    SqliteStore(tmp_path / "empty.db").close()
    file.write_text(file.read_text().replace(str(db), str(tmp_path / "empty.db")))
    done = arbiter("search", "--config", file, "word")
    assert done.returncode == 1 and "search.index: true" in done.stderr and "capture: { content: true }" in done.stderr


def test_without_an_index_it_says_what_to_do(tmp_path):
    SqliteStore(tmp_path / "other.db").close()
    done = arbiter("search", "--db", tmp_path / "other.db", "word")
    assert done.returncode == 1 and "search.index: true" in done.stderr
