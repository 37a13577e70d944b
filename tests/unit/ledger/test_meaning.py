"""What gets vectors, how their tables come and go, and what is near; tests/flow/test_meaning.py has a gateway do it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from arbiter import clock
from arbiter.config.load import parse
from arbiter.config.snapshot import Snapshot
from arbiter.ledger import meaning, meaning_tender
from arbiter.ledger.capture_keeper import Keeper
from arbiter.ledger.meaning import MAX_PIECES, PIECE_CHARS, Waiting, packed, pieces
from arbiter.ledger.meaning_tender import MeaningTender
from arbiter.ledger.questions import meaning as questions
from arbiter.ledger.questions.meaning import Found, OtherWidth, find
from arbiter.ledger.questions.search import Filters
from arbiter.ledger.session_rows import SessionRow
from arbiter.ledger.sqlstore import SqlStore
from arbiter.ledger.store import Position
from arbiter.ledger.tables import SESSIONS
from tests.fakes.contents import heard, keep
from tests.fakes.embedder import vector
from tests.fakes.rows import request_row
from tests.fakes.stores import Place
from tests.fakes.wires import MESSAGES

BASE = "providers: { a: { type: echo, models: [m, n] } }\naliases: { v: { pin: a/m }, w: { pin: a/n } }\n"


class Switch:
    """A configuration whose `search.embed` a test turns."""

    def __init__(self, alias: str | None = "v", more: str = "") -> None:
        self.alias, self.more = alias, more

    def __call__(self) -> Snapshot:
        on = f"search: {{ embed: {{ alias: {self.alias} {self.more} }} }}" if self.alias is not None else ""
        return parse(BASE + on, "t", {})


@pytest.fixture
def switch() -> Switch:
    return Switch()


def tend(store: SqlStore, switch: Switch) -> None:
    tender = MeaningTender(switch)
    for _ in range(1000):
        if not tender.tend(store):
            return
    raise AssertionError("it never came to rest")


def say(folder: Path, place: Place, switch: Switch, request_id: str, *texts: str, answer: str = "fine") -> None:
    body = {"messages": [{"role": "user", "content": text} for text in texts]}
    keep(folder, place.open, heard(request_id, body, answer=MESSAGES.answer(answer)), snapshot=switch)


def waiting(store: SqlStore) -> list[str]:
    """The texts that wait for vectors."""

    def look(database: Any) -> list[str]:
        columns = "id, kind, source, at_ms, text"
        found = [Waiting(*row) for row in database.rows(f"SELECT {columns} FROM {meaning.WAITING}")]
        blocks = meaning.blocks_of(database, found)
        return sorted(meaning.text_of(one, blocks) for one in found)

    return store.read(look)


def embed(store: SqlStore, who: str = "me", limit: int = 1000) -> int:
    """Vectors for what waits, as control would get them."""
    claimed = store.change(lambda db: meaning.claim(db, who, clock.now_ms(), limit))
    blocks = store.read(lambda db: meaning.blocks_of(db, claimed))
    made = [(one, b"".join(packed(vector(piece)) for piece in pieces(meaning.text_of(one, blocks)))) for one in claimed]

    def put(database: Any) -> None:
        meaning.keep(database, who, made)
        meaning.set_state(database, width=str(len(vector(""))))

    store.change(put)
    return len(claimed)


def ask(store: SqlStore, q: str, **filters: Any) -> Found:
    state = store.read(meaning.state_of)
    assert state is not None
    return find(store, packed(vector(q)), state, Filters(q=q, **filters))


def hits(store: SqlStore, q: str, **filters: Any) -> list[tuple[str, str | None]]:
    return [(hit.kind, hit.request or hit.session) for _, hit in ask(store, q, **filters).hits]


def count(store: SqlStore, table: str) -> int:
    return int(store.read(lambda db: db.rows(f"SELECT COUNT(*) FROM {table}"))[0][0])


# ------------------------------------------------------------------------------------------------------------- pieces


def test_a_text_is_cut_between_words_and_bounded() -> None:
    words = "word " * 1000
    found = pieces(words)
    assert len(found) == 4 and all(len(piece) <= PIECE_CHARS for piece in found)
    assert all(set(piece.split()) == {"word"} for piece in found)
    assert "".join(found).replace(" ", "") == words.replace(" ", "")
    assert len(pieces("x" * 100_000)) == MAX_PIECES and len(pieces("x" * 100_000)[0]) == PIECE_CHARS
    assert pieces("short") == ["short"] and pieces("  \n ") == [] == pieces("")


def test_a_line_with_no_words_to_cut_between_is_cut_anywhere() -> None:
    """Not at a space so far back that pieces would be scraps."""
    (first, *_) = pieces("a " + "漢" * 4000)
    assert len(first) == PIECE_CHARS


def test_a_vector_is_kept_with_length_one() -> None:
    assert packed([3.0, 4.0]) == packed([6e9, 8e9]) != packed([4.0, 3.0])
    for wrong in ([0.0, 0.0], [float("nan"), 1.0], [float("inf"), 1.0], []):
        with pytest.raises(ValueError, match="direction"):
            packed(wrong)


# ----------------------------------------------------------------------------------------------------- what gets some


def test_what_people_and_models_say_waits_and_what_tools_do_does_not(
    tmp_path: Path, place: Place, store: SqlStore, switch: Switch
) -> None:
    tend(store, switch)
    body = {
        "system": "You are an agent",
        "tools": [{"name": "bash", "description": "runs", "input_schema": {}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "why is the cat slow?"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "text", "text": "let me look"},
                    {"type": "tool_use", "id": "t", "name": "bash", "input": {"command": "ls"}},
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "cat.txt"}]},
        ],
    }
    keep(tmp_path, place.open, heard("r1", body, answer=MESSAGES.answer("it eats")), snapshot=switch)
    assert waiting(store) == ["it eats", "let me look", "why is the cat slow?"]


def test_what_comes_again_waits_once_and_has_its_vectors_for_good(
    tmp_path: Path, place: Place, store: SqlStore, switch: Switch
) -> None:
    tend(store, switch)
    for request in ("r1", "r2"):
        say(tmp_path, place, switch, request, "the same words")
    assert waiting(store) == ["fine", "the same words"]
    assert embed(store) == 2
    say(tmp_path / "other", place, switch, "r3", "the same words")
    assert waiting(store) == []


def test_vectors_switched_on_later_are_made_of_what_there_is(
    tmp_path: Path, place: Place, store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In small steps, and what is new meanwhile is not forgotten."""
    monkeypatch.setattr(meaning_tender, "STEP_BLOCKS", 7)
    switch = Switch(None)
    tend(store, switch)
    for number in range(12):
        say(tmp_path, place, switch, f"r{number}", f"words of {number}", answer=f"said of {number}")
    assert store.read(meaning.state_of) is None
    switch.alias = "v"
    tender = MeaningTender(switch)
    assert tender.tend(store) and tender.tend(store)
    say(tmp_path, place, switch, "r99", "in between", answer="said in between")
    assert (store.read(meaning.state_of) or {})["index"] == "building"
    tend(store, switch)
    assert (store.read(meaning.state_of) or {})["index"] == "ready"
    assert len(waiting(store)) == 26


def test_vectors_switched_off_are_dropped_in_small_steps(
    tmp_path: Path, place: Place, store: SqlStore, switch: Switch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meaning_tender, "STEP_ROWS", 4)
    tend(store, switch)
    say(tmp_path, place, switch, "r1", *(f"words of {number}" for number in range(10)))
    embed(store, limit=5)
    switch.alias = None
    tender = MeaningTender(switch)
    steps = 1
    while tender.tend(store):
        steps += 1
    assert steps == 3
    assert not [name for name in store.read(lambda db: db.tables()) if name.startswith("search")]


@pytest.mark.parametrize("what", ["alias", "dimensions", "version"])
def test_another_model_width_or_version_makes_them_anew(
    tmp_path: Path, place: Place, store: SqlStore, switch: Switch, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    tend(store, switch)
    say(tmp_path, place, switch, "r1", "words")
    embed(store)
    assert waiting(store) == [] and count(store, meaning.VECTORS) == 2
    if what == "alias":
        switch.alias = "w"
    elif what == "dimensions":
        switch.more = ", dimensions: 64"
    else:
        monkeypatch.setattr(meaning, "VERSION", "next")
    tend(store, switch)  # away with them
    tend(store, switch)
    assert waiting(store) == ["fine", "words"] and count(store, meaning.VECTORS) == 0


def test_the_same_model_elsewhere_changes_nothing() -> None:
    """Vectors are a model's; who serves it, and under which of our names, is not their matter."""

    def wanted(providers: str, aliases: str) -> str | None:
        text = f"providers: {{ {providers} }}\naliases: {{ {aliases} }}\nsearch: {{ embed: {{ alias: v }} }}"
        return meaning.wanted(parse(text, "t", {}))

    one = wanted("a: { type: echo, models: [m] }", "v: { pin: a/m }")
    both = "a: { type: echo, models: [m] }, b: { type: echo, models: [{ id: mine, upstream: m }] }"
    assert one == wanted(both, "v: { group: [b/mine, a/m] }") == wanted(both, "x: { pin: b/mine }, v: { pin: x }")
    assert one != wanted("a: { type: echo, models: [n] }", "v: { pin: a/n }")
    assert meaning.wanted(Switch(None)()) is None


def test_titles_and_notes_are_followed_as_they_change(store: SqlStore, switch: Switch) -> None:
    """A changed one is at once no longer found by what it was, a cleared one not at all."""
    tend(store, switch)

    def titled(title: str | None) -> None:
        row = SessionRow(id="ci s1", session="s1", client="ci", title=title, last_ms=5)
        store.change(lambda database: database.run_many(SESSIONS.upserts([row])))
        tend(store, switch)

    titled("A cat that sleeps")
    embed(store)
    assert hits(store, "kitten") == [("title", "s1")]
    titled("A dog that barks")
    assert hits(store, "kitten") == [] and waiting(store) == ["A dog that barks"]
    titled("A horse that runs")
    assert waiting(store) == ["A horse that runs"]
    embed(store)
    assert hits(store, "horse") == [("title", "s1")]
    titled(None)
    assert hits(store, "horse") == [] and waiting(store) == []
    titled("A cow that eats")
    store.change(lambda database: database.run("DELETE FROM sessions"))  # as retention does
    tend(store, switch)
    assert waiting(store) == []


# ------------------------------------------------------------------------------------------------- claimed and kept


def test_the_newest_is_claimed_first_and_by_one_gateway(
    tmp_path: Path, place: Place, store: SqlStore, switch: Switch
) -> None:
    tend(store, switch)
    some = [Waiting(f"note n{at}", "note", f"n{at}", at, f"text {at}") for at in range(6)]
    store.change(lambda db: meaning.put(db, some))
    with_another = place.open()
    try:
        mine = store.change(lambda db: meaning.claim(db, "me", 1_000_000, 2))
        theirs = with_another.change(lambda db: meaning.claim(db, "they", 1_000_000, 2))
        assert [one.source for one in mine] == ["n5", "n4"] and [one.source for one in theirs] == ["n3", "n2"]
        store.change(lambda db: meaning.release(db, "me"))
        assert len(with_another.change(lambda db: meaning.claim(db, "they", 1_000_000, 9))) == 6
        later_ms = 1_000_000 + int(meaning.CLAIM_S * 1000) + 1
        assert len(store.change(lambda db: meaning.claim(db, "me", later_ms, 9))) == 6, "theirs ran out"
        with_another.change(lambda db: meaning.keep(db, "they", [(some[0], packed([1.0]))]))
        assert count(store, meaning.VECTORS) == 0
    finally:
        with_another.close()


def test_what_changed_or_went_while_it_was_asked_about_is_not_kept(store: SqlStore, switch: Switch) -> None:
    tend(store, switch)
    some = [Waiting(f"note n{at}", "note", f"n{at}", at, f"text {at}") for at in range(3)]
    store.change(lambda db: meaning.put(db, some))
    claimed = store.change(lambda db: meaning.claim(db, "me", 1_000_000, 9))
    store.change(lambda db: meaning.remove(db, ["note n0"]))
    store.change(lambda db: meaning.put(db, [some[1]._replace(text="another"), some[2]]))
    store.change(lambda db: meaning.keep(db, "me", [(one, packed([1.0, 2.0])) for one in claimed]))
    assert store.read(lambda db: db.rows(f"SELECT id FROM {meaning.VECTORS}")) == [("note n2",)]
    assert store.read(lambda db: db.rows(f"SELECT id, text FROM {meaning.WAITING}")) == [("note n1", "another")]


def test_swept_blocks_take_their_vectors_along(tmp_path: Path, place: Place, store: SqlStore, switch: Switch) -> None:
    """Those that have some, and those that only wait."""
    tend(store, switch)
    say(tmp_path, place, switch, "r1", "one", "two", "three")
    embed(store, limit=2)
    assert count(store, meaning.VECTORS) == 2 and count(store, meaning.WAITING) == 2
    for sql in ("DELETE FROM request_blocks", "UPDATE blocks SET last_used_ms = 0"):
        store.change(lambda database, sql=sql: database.run(sql))
    keeper = Keeper(tmp_path, switch, place.open)
    assert keeper.sweep() == 5
    keeper.close()
    assert count(store, meaning.VECTORS) == 0 == count(store, meaning.WAITING)


# -------------------------------------------------------------------------------------------------------- what is near


@pytest.fixture
def said(tmp_path: Path, place: Place, store: SqlStore, switch: Switch) -> SqlStore:
    store.write([request_row(number, session=f"s{number % 2}") for number in range(1, 5)], Position("j", 1))
    tend(store, switch)
    for number, text in enumerate(
        ["the car is quick", "my cat sleeps all day", "rust borrow checker", "quick kitten"], 1
    ):
        say(tmp_path, place, switch, f"r{number:08d}", text)
    embed(store)
    return store


def test_what_means_the_same_is_found_the_nearest_first(said: SqlStore) -> None:
    found = ask(said, "speedy automobile")
    assert [(round(score, 2), hit.request) for score, hit in found.hits] == [(0.71, "r00000001"), (0.5, "r00000004")]
    (_, hit) = found.hits[0]
    assert (hit.text, hit.session, hit.trace, hit.client) == ("the car is quick", "s1", f"{1:032x}", "ci")
    assert (found.state, found.waiting, found.is_all) == ("ready", 0, True)
    assert hits(said, "zebra stripes") == []


def test_a_session_and_a_time_narrow_it_as_they_do_words(said: SqlStore) -> None:
    assert hits(said, "feline", session="s0") == [("message", "r00000004"), ("message", "r00000002")]
    assert hits(said, "feline", session="s1") == [] == hits(said, "feline", session="nobody")
    assert hits(said, "feline", since_ms=request_row(3).received_ms) == [("message", "r00000004")]
    assert len(ask(said, "feline", limit=1).hits) == 1 and not ask(said, "feline", limit=1).is_all


def test_the_piece_that_is_near_is_shown(tmp_path: Path, place: Place, store: SqlStore, switch: Switch) -> None:
    store.write([request_row(1)], Position("j", 1))
    tend(store, switch)
    say(tmp_path, place, switch, "r00000001", "lorem ipsum " * 300 + "the kitten purrs " * 20 + "dolor " * 100)
    embed(store)
    ((_, hit),) = ask(store, "a cat purrs").hits
    assert "kitten purrs" in hit.text and "lorem" in hit.text, "in its place"


def test_it_is_asked_page_by_page_and_no_further_than_its_bound(
    said: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "PAGE", 2)
    assert hits(said, "feline") == [("message", "r00000004"), ("message", "r00000002")]
    assert ask(said, "feline").is_all
    monkeypatch.setattr(questions, "COMPARED", 2)
    assert not ask(said, "feline").is_all


def test_what_was_refused_or_is_of_another_width_is_not_found(said: SqlStore) -> None:
    said.change(lambda db: db.run(f"UPDATE {meaning.VECTORS} SET vectors = ?", (b"",)))
    assert hits(said, "feline") == []
    said.change(lambda db: db.run(f"UPDATE {meaning.VECTORS} SET vectors = ?", (packed([1.0, 1.0, 1.0]),)))
    assert hits(said, "feline") == []
    said.change(lambda db: meaning.set_state(db, width="3"))
    with pytest.raises(OtherWidth, match="it has 1024 numbers, and those that are kept have 3"):
        ask(said, "feline")
