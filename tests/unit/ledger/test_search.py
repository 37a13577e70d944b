"""The search index: what is in it, how it comes and goes, and that every text is a query."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from arbiter import clock
from arbiter.config.load import parse
from arbiter.config.snapshot import Snapshot
from arbiter.ledger import search, search_tender
from arbiter.ledger.capture_keeper import Keeper
from arbiter.ledger.questions.search import Filters, Found, find, snippet
from arbiter.ledger.recorder import Batch
from arbiter.ledger.retention import Sweeper, of_rows
from arbiter.ledger.search import phrases
from arbiter.ledger.search_tender import Tender, ToolNames
from arbiter.ledger.session_rows import SessionRow
from arbiter.ledger.sqlstore import SqlStore
from arbiter.ledger.store import Position
from arbiter.ledger.tables import SESSIONS
from tests.fakes.contents import heard, keep
from tests.fakes.rows import attempt_row, request_row
from tests.fakes.stores import Place
from tests.fakes.wires import MESSAGES


class Switch:
    """A configuration whose `search.index` a test turns."""

    def __init__(self, *, on: bool) -> None:
        self.is_on = on

    def __call__(self) -> Snapshot:
        return parse(f"providers: {{ a: {{ type: echo }} }}\nsearch: {{ index: {str(self.is_on).lower()} }}", "t", {})


def ask(store: SqlStore, q: str, **filters: Any) -> Found:
    return store.read(lambda database: find(database, Filters(q=q, **filters)))


def sources(store: SqlStore, q: str, **filters: Any) -> list[tuple[str, str | None]]:
    found = ask(store, q, **filters)
    assert found.state in ("building", "ready")
    return sorted((hit.kind, hit.request or hit.session) for hit in found.hits)


def tend(store: SqlStore, switch: Switch) -> Tender:
    tender = Tender(switch)
    for _ in range(1000):
        if not tender.tend(store):
            return tender
    raise AssertionError("it never came to rest")


def say(folder: Path, place: Place, switch: Switch, request_id: str, *texts: str, answer: str = "fine") -> None:
    """A request of which content is stored while the switch is as it is."""
    body = {"messages": [{"role": "user", "content": text} for text in texts]}
    keep(folder, place.open, heard(request_id, body, answer=MESSAGES.answer(answer)), snapshot=switch)


def test_words_are_found_whatever_their_case_and_punctuation(tmp_path, place, store):
    switch = Switch(on=True)
    store.write([request_row(1), request_row(2)], Position("j", 1))
    tend(store, switch)
    say(tmp_path, place, switch, "r00000001", "The Zephyr-Module fails: see src/engine/zephyr_main.py")
    say(tmp_path, place, switch, "r00000002", "something else", answer="It is the quokka's fault")
    assert sources(store, "zephyr") == sources(store, "ZEPHYR main") == [("message", "r00000001")]
    assert sources(store, "quokka") == [("answer", "r00000002")]
    assert sources(store, "engine/zephyr_main.py") == [("message", "r00000001")]
    assert sources(store, '"module fails see"') == [("message", "r00000001")]
    assert sources(store, '"fails module"') == [] and sources(store, "zephyr quokka") == []
    assert sources(store, "zeph*") == [("message", "r00000001")] and sources(store, "zeph") == []


@pytest.mark.parametrize(
    "hostile",
    [
        "", " ", '"', '""', "'", "*", "**", "a*b*", "-", "NOT", "AND OR NOT", "(", ")", "a AND", "NEAR(a b)", "col:x",
        "^a", '"unclosed', "a & | ! b", "<->", "a:*", "\\", "%", "_", "?", "; DROP TABLE requests", "\0", "a\0b",
        "é ü ß 漢字 🦘", "x" * 100_000, "a " * 5000, '"' * 999, "{a b}: c", "text : x", "rank", "+a -b", "$1 ?", "''''",
    ],
)  # fmt: skip
def test_any_text_is_a_query_and_none_is_an_error(store, hostile):
    tend(store, Switch(on=True))
    assert ask(store, hostile).hits == []


def test_what_a_query_asks_for():
    wanted = [(["Foo", "bar"], False), (["two", "words"], False), (["begin"], True)]
    assert phrases('Foo_bar "two words" begin*') == wanted
    assert phrases("!!! -- \0") == []
    assert sum(len(words) for words, _ in phrases("w " * 100)) == search.MAX_WORDS


def test_an_index_switched_on_later_is_built_of_what_there_is(tmp_path, place, store, monkeypatch):
    """In small steps, which another process may go on with; and questions are answered meanwhile."""
    monkeypatch.setattr(search_tender, "STEP_BLOCKS", 7)
    monkeypatch.setattr(search_tender, "STEP_ATTEMPTS", 3)
    switch = Switch(on=False)
    for number in range(20):
        request = request_row(number)
        attempts = [attempt_row(request, tool_names=["read_file", f"tool{number}"])]
        store.write([request, *attempts], Position("j", number + 1))
        say(tmp_path, place, switch, request.id, f"word{number}", answer=f"said{number}")
    assert tend(store, switch) and ask(store, "word3").state == "off"
    switch.is_on = True
    tender = Tender(switch)
    assert tender.tend(store) and tender.tend(store)
    assert ask(store, "word3").state == "building"
    tend(store, switch)
    assert ask(store, "word3").state == "ready"
    for number in (0, 7, 19):
        assert sources(store, f"word{number}") == [("message", f"r{number:08d}")]
        assert sources(store, f"said{number}") == [("answer", f"r{number:08d}")]
        assert sources(store, f"tool{number}") == [("tools", f"r{number:08d}")]
    assert len(ask(store, "read_file", limit=100).hits) == 20


def test_an_index_switched_off_is_dropped_in_small_steps(tmp_path, place, store, monkeypatch):
    monkeypatch.setattr(search_tender, "STEP_ENTRIES", 5)
    switch = Switch(on=True)
    tend(store, switch)
    store.write([request_row(1)], Position("j", 1))
    say(tmp_path, place, switch, "r00000001", *(f"word{number}" for number in range(12)))
    assert sources(store, "word11") == [("message", "r00000001")]
    switch.is_on = False
    tender = Tender(switch)
    steps = 1
    while tender.tend(store):
        assert ask(store, "word11").state == "off"
        steps += 1
    assert steps == 4
    tables = store.read(lambda database: database.tables())
    assert not [name for name in tables if name.startswith("search")]
    assert "blocks" in tables and store.read(lambda db: db.rows("SELECT COUNT(*) FROM blocks"))[0][0] == 14


def test_an_index_of_another_version_is_made_anew(tmp_path, place, store, monkeypatch):
    switch = Switch(on=True)
    store.write([request_row(1)], Position("j", 1))
    tend(store, switch)
    say(tmp_path, place, switch, "r00000001", "wombat")
    monkeypatch.setattr(search, "VERSION", "next")
    assert ask(store, "wombat").state == "off"
    tend(store, switch)
    tend(store, switch)
    assert ask(store, "wombat").state == "ready" and sources(store, "wombat") == [("message", "r00000001")]


def test_swept_blocks_take_their_entries_along(tmp_path, place, store):
    switch = Switch(on=True)
    store.write([request_row(1)], Position("j", 1))
    tend(store, switch)
    say(tmp_path, place, switch, "r00000001", "wombat")
    assert sources(store, "wombat")
    for sql in ("DELETE FROM request_blocks", "UPDATE blocks SET last_used_ms = 0"):
        store.change(lambda database, sql=sql: database.run(sql))
    keeper = Keeper(tmp_path, switch, place.open)
    assert keeper.sweep() == 3
    keeper.close()
    assert sources(store, "wombat") == []
    assert store.read(lambda db: db.rows(f"SELECT COUNT(*) FROM {search.ENTRIES}"))[0][0] == 0


def test_swept_requests_take_the_names_of_their_tools_along(place, store):
    """Also an attempt that came after its request had gone; while one is left of a request, so are the names."""
    switch = Switch(on=True)
    tend(store, switch)
    young_ms = clock.now_ms()
    for number, (moment, started) in enumerate([(5, 5), (young_ms, young_ms), (young_ms, 5)], 1):
        request = request_row(number, received_ms=moment)
        attempts = [attempt_row(request, 1, started_ms=started, tool_names=[f"tool{number}"])]
        attempts += [attempt_row(request, 2, started_ms=young_ms)] if number == 3 else []
        late = Batch([], attempts, [])
        ToolNames(switch).take(late, store)
        store.write([request, *attempts], Position("j", number), late.also)
    late = Batch([], [attempt_row(request_row(9), started_ms=5, tool_names=["late"])], [])
    ToolNames(switch).take(late, store)
    store.write(late.attempts, Position("j", 9), late.also)
    swept = Sweeper(place.open, lambda: of_rows(60)).sweep()
    assert {table: count for table, count in swept.items() if count} == {"requests": 1, "attempts": 2}
    left = store.read(lambda db: db.rows(f"SELECT source FROM {search.ENTRIES} ORDER BY source"))
    assert left == [("r00000002",), ("r00000003",)]
    assert sources(store, "tool2") == [("tools", "r00000002")]


def test_a_block_that_many_requests_hold_leads_to_the_newest(tmp_path, place, store):
    switch = Switch(on=True)
    store.write([request_row(number, session=f"s{number % 2}") for number in range(1, 6)], Position("j", 1))
    tend(store, switch)
    for number in range(1, 6):
        say(tmp_path, place, switch, f"r{number:08d}", "kangaroo", answer=f"answer {number}")
    (hit,) = ask(store, "kangaroo").hits
    assert (hit.request, hit.session, hit.trace, hit.client) == ("r00000005", "s1", f"{5:032x}", "ci")
    newest_ms = hit.at_ms
    (hit,) = ask(store, "kangaroo", session="s0").hits
    assert hit.request == "r00000004"
    assert ask(store, "kangaroo", session="nobody").hits == []
    assert ask(store, "kangaroo", since_ms=newest_ms).hits and not ask(store, "kangaroo", since_ms=newest_ms + 1).hits


def test_more_than_was_asked_for_is_said_to_be_there(tmp_path, place, store):
    switch = Switch(on=True)
    store.write([request_row(number) for number in range(5)], Position("j", 1))
    tend(store, switch)
    for number in range(5):
        say(tmp_path, place, switch, f"r{number:08d}", f"kangaroo {number}")
    assert len(ask(store, "kangaroo", limit=3).hits) == 3 and not ask(store, "kangaroo", limit=3).is_all
    assert len(ask(store, "kangaroo", limit=5).hits) == 5 and ask(store, "kangaroo", limit=5).is_all


def test_titles_are_followed_as_they_change(store):
    """A new one is found, a changed one by its new words alone, a cleared one no more."""
    switch = Switch(on=True)
    tend(store, switch)

    def titled(title: str | None) -> None:
        row = SessionRow(id="ci s1", session="s1", client="ci", title=title, last_ms=5)
        store.change(lambda database: database.run_many(SESSIONS.upserts([row])))
        tend(store, switch)

    titled("Platypus migration")
    (hit,) = ask(store, "platypus").hits
    assert (hit.kind, hit.session, hit.client, hit.text) == ("title", "s1", "ci", "Platypus migration")
    titled("Echidna migration")
    assert ask(store, "platypus").hits == [] and len(ask(store, "echidna").hits) == 1
    titled(None)
    assert ask(store, "echidna").hits == [] and ask(store, "migration").hits == []


def test_notes_are_found_and_followed(store):
    session = SessionRow(id="ci s1", session="s1", client="ci", last_ms=5)

    def note(database):
        columns = "id TEXT PRIMARY KEY, session_id TEXT NOT NULL, at_ms BIGINT NOT NULL, who TEXT NOT NULL, text TEXT"
        database.run(f"CREATE TABLE IF NOT EXISTS notes ({columns})")
        database.run(
            "INSERT INTO notes (id, session_id, at_ms, who, text) VALUES ('n1', 'ci s1', 7, 'ada', 'A thylacine!')"
        )
        database.run_many(SESSIONS.upserts([session]))

    switch = Switch(on=True)
    tend(store, switch)
    store.change(note)
    tend(store, switch)
    (hit,) = ask(store, "thylacine").hits
    assert (hit.kind, hit.session, hit.client, hit.at_ms, hit.text) == ("note", "s1", "ci", 7, "A thylacine!")
    assert len(ask(store, "thylacine", session="s1").hits) == 1 and ask(store, "thylacine", session="s2").hits == []
    store.change(lambda database: database.run("DELETE FROM notes"))
    tend(store, switch)
    assert ask(store, "thylacine").hits == []


def test_names_of_tools_are_found_from_the_row_on(store):
    switch = Switch(on=True)
    tend(store, switch)
    request = request_row(1)
    batch = Batch([request], [attempt_row(request, tool_names=["mcp__github__create_issue"])])
    stage = ToolNames(switch)
    stage.take(batch, store)
    store.write([*batch.requests, *batch.attempts], Position("j", 1), batch.also)
    stage.stored(batch)
    assert sources(store, "create_issue") == [("tools", request.id)]
    switch.is_on = False
    again = Batch([request], [attempt_row(request, tool_names=["x"])])
    stage.take(again, store)
    assert again.also == []


def test_texts_that_a_database_minds_are_indexed_too(tmp_path, place, store):
    """NUL, which PostgreSQL refuses, and more words than one vector of its holds."""
    switch = Switch(on=True)
    store.write([request_row(1), request_row(2)], Position("j", 1))
    tend(store, switch)
    many = " ".join(f"w{number:x}" for number in range(150_000))
    say(tmp_path, place, switch, "r00000001", "before\0numbat after")
    say(tmp_path, place, switch, "r00000002", f"bilby {many} beyond", "x" * 5000)
    assert sources(store, "numbat") == [("message", "r00000001")]
    assert sources(store, "bilby") == [("message", "r00000002")] and sources(store, "beyond") == []


def test_a_snippet_shows_the_words_in_their_place():
    assert snippet("short", ["short"]) == "short"
    text = "a " * 500 + "the needle\nhere " + "b " * 500
    cut = snippet(text, ["NEEDLE"])
    assert cut.startswith("…") and cut.endswith("…") and "the needle here" in cut and "\n" not in cut
    assert snippet(text, ["absent"]).startswith("a a")
