"""How what waits gets its vectors, and what goes wrong. In tests/flow/test_meaning.py a gateway does it all."""

from __future__ import annotations

import base64
import json
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from arbiter import clock
from arbiter.config.load import parse
from arbiter.config.rates import DAY_MS
from arbiter.control import embedding
from arbiter.control.door import Answered, NoAnswer
from arbiter.control.embedding import LONGEST_WAIT_S, MAX_PIECES, WAIT_S, Embedding, NoVectors
from arbiter.ledger import meaning
from arbiter.ledger.meaning import PIECE_CHARS, Waiting
from arbiter.ledger.meaning_tender import MeaningTender
from arbiter.ledger.store import Changer, Position, StoreDown
from arbiter.own import Own
from tests.fakes.embedder import embedded, vector
from tests.fakes.rows import request_row
from tests.fakes.stores import Place

TEXT = """
providers: { up: { type: echo, models: [m, n] } }
aliases: { near: { pin: up/m }, far: { pin: up/n } }
search: { embed: { alias: near, per_day: 9 } }
"""
POISON = "poison"


class FakeDoor:
    """Answers for vectors as the test says; `asked` are the questions."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.marks: list[str] = []
        self.answer: Callable[[dict[str, Any]], Answered] = lambda asked: Answered(200, embedded(asked).body)

    def post(
        self, path: str, body: bytes, what: Own, *, timeout_s: float, headers: dict[str, str], limit_bytes: int
    ) -> Answered:
        assert (path, what) == ("/v1/embeddings", Own("embedding")) and 0 < timeout_s <= 60 and limit_bytes > 1 << 20
        self.asked.append(json.loads(body))
        self.marks.append(headers["x-trace-id"])
        return self.answer(self.asked[-1])

    @property
    def texts(self) -> list[list[str]]:
        return [asked["input"] for asked in self.asked]


class Desk:
    """A store with things that wait, and the thread's work done by hand."""

    def __init__(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store, self.changer, self.door = place.open(), Changer(place.open), FakeDoor()
        self.now_s = 1000.0
        monkeypatch.setattr(clock, "monotonic", lambda: self.now_s)
        self.configure(TEXT)
        self.restart()
        self.tend()

    def configure(self, text: str) -> None:
        self.snapshot = parse(text, "test.yaml", {})

    def restart(self) -> None:
        self.embedding = Embedding(lambda: self.snapshot, self.store, self.changer, self.door)

    def tend(self) -> None:
        tender = MeaningTender(lambda: self.snapshot)
        for _ in range(20):
            if not tender.tend(self.store):
                return

    def put(self, *texts: str) -> None:
        """Notes with these texts wait, the first of them the newest."""
        start = len(self.rows(meaning.VECTORS)) + len(self.rows(meaning.WAITING))
        found = [
            Waiting(f"note n{start + at}", "note", f"n{start + at}", 10_000 - start - at, text)
            for at, text in enumerate(texts)
        ]
        self.store.change(lambda db: meaning.put(db, found))

    def look(self, later_s: float = 0.0) -> None:
        self.now_s += later_s
        self.embedding.look()

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        columns = "text, vectors" if table == meaning.VECTORS else "text, claimed_by"
        return self.store.read(lambda db: db.rows(f"SELECT {columns} FROM {table} ORDER BY at_ms DESC"))

    @property
    def kept(self) -> dict[str, int]:
        """How many numbers of vectors each text has."""
        return {text: len(bytes(vectors)) // 4 for text, vectors in self.rows(meaning.VECTORS)}

    @property
    def error(self) -> str | None:
        error = self.embedding.describe()["error"]
        return error if error is None else str(error)

    def close(self) -> None:
        self.store.close()
        self.changer.close()


@pytest.fixture
def desk(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    desk = Desk(place, monkeypatch)
    yield desk
    desk.close()


def told(log: pytest.LogCaptureFixture, words: str) -> int:
    return log.text.count(words)


def test_what_waits_gets_vectors_the_newest_first_many_at_once(desk: Desk) -> None:
    desk.put(*(f"text {number}" for number in range(MAX_PIECES + 5)))
    desk.look()
    assert [len(texts) for texts in desk.door.texts] == [MAX_PIECES, 5]
    assert desk.door.texts[0][:2] == ["text 0", "text 1"] and desk.door.asked[0]["model"] == "near"
    assert len(desk.kept) == MAX_PIECES + 5 and desk.rows(meaning.WAITING) == []
    assert desk.embedding.describe() == {"alias": "near", "per_day": 9, "kept": 37, "refused": 0, "error": None}
    desk.look()
    assert len(desk.door.asked) == 2, "nothing waits, nobody is asked"


def test_a_long_text_gets_a_vector_for_each_piece_and_never_parts_of_them(desk: Desk) -> None:
    """What does not fit into a request waits for the next one, whole."""
    long = "many words " * 1000  # eight pieces
    desk.put(*(f"{number} {long}" for number in range(5)))
    desk.look()
    assert [len(texts) for texts in desk.door.texts] == [32, 8]
    assert all(len(text) <= PIECE_CHARS for texts in desk.door.texts for text in texts)
    assert set(desk.kept.values()) == {8 * len(vector(""))}


def test_vectors_belong_to_their_texts_in_whatever_order_they_come(desk: Desk) -> None:
    def backwards(asked: dict[str, Any]) -> Answered:
        told = json.loads(embedded(asked).body)
        told["data"].reverse()
        return Answered(200, json.dumps(told).encode())

    desk.door.answer = backwards
    desk.put("a cat", "a dog")
    desk.look()
    found = {text: bytes(vectors) for text, vectors in desk.rows(meaning.VECTORS)}
    assert found == {text: meaning.packed(vector(text)) for text in ("a cat", "a dog")}


def test_base64_is_understood_too(desk: Desk) -> None:
    """Some servers answer with it whatever was asked for."""
    packed = base64.b64encode(struct.pack("<2f", 3.0, 4.0)).decode()
    desk.door.answer = lambda asked: Answered(200, json.dumps({"data": [{"embedding": packed}]}).encode())
    assert desk.embedding.asked("words") == meaning.packed([0.6, 0.8])


def test_a_width_that_is_wanted_is_asked_for(desk: Desk) -> None:
    desk.configure(TEXT.replace("per_day: 9", "dimensions: 64"))
    desk.tend()
    desk.tend()
    desk.put("words")
    desk.look()
    assert desk.door.asked[0]["dimensions"] == 64 and desk.kept == {"words": 64}


def test_secrets_are_masked_on_their_way_out(desk: Desk) -> None:
    secret = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
    desk.put(f"my key is {secret}")
    desk.look()
    desk.embedding.asked(f"where is {secret}")
    assert secret not in str(desk.door.asked) and len(desk.door.asked) == 2


def test_a_day_has_so_many_questions_and_a_search_is_always_answered(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By their rows, of all gateways on the store, and by what has no row yet; those of yesterday do not count."""
    today = clock.now_ms() // DAY_MS * DAY_MS
    monkeypatch.setattr(clock, "now_ms", lambda: today + DAY_MS // 2)  # no test shall meet a day's end

    def row(number: int, mark: str | None, at_ms: int) -> None:
        one = request_row(number, kind="embedding", client="(gateway)", client_trace_id=mark, received_ms=at_ms)
        desk.store.write([one], Position("j", number))

    for number in range(1, 8):
        row(number, f"embed-other{number}", today + number)
    row(8, None, today - 1)
    desk.put("one")
    desk.look()  # the 8th
    row(9, desk.door.marks[0], today + 8)
    desk.put("two")
    desk.look()  # the 9th
    desk.put("three")
    desk.look()
    assert len(desk.door.asked) == 2 and desk.error is not None and "today's 9 questions" in desk.error
    assert len(desk.embedding.asked("words")) == 4 * len(vector(""))
    desk.restart()
    row(10, desk.door.marks[1], today + 9)
    desk.look(WAIT_S)
    assert len(desk.door.asked) == 3 and "three" not in desk.kept


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answered(500, b"oops"), "status 500"),
        (Answered(404, b"{}"), "status 404"),
        (Answered(200, b"<html>"), "holds no vectors"),
        (Answered(200, b'{"data": []}'), "0 for 2 texts"),
        (Answered(200, b'{"data": [{"embedding": [1], "index": 0}, {"embedding": [1], "index": 0}]}'), "places"),
        (Answered(200, b'{"data": [{"embedding": [1], "index": -1}, {"embedding": [1], "index": 0}]}'), "places"),
        (Answered(200, b'{"data": [{"embedding": [1], "index": 0}, {"embedding": [1], "index": 2}]}'), "places"),
        (Answered(200, b'{"data": [{"embedding": [1], "index": 1}, {"embedding": [1]}]}'), "places"),
        (Answered(200, b'{"data": [{"embedding": [1, 2]}, {"embedding": [1]}]}'), "several widths"),
        (Answered(200, b'{"data": [{"embedding": [0, 0]}, {"embedding": [1, 0]}]}'), "direction"),
        (Answered(200, b'{"data": [{"embedding": "AAAAwH8="}, {"embedding": "!"}]}'), "holds no vectors"),
        (Answered(200, b'{"data": [{"embedding": "AAAA"}, {"embedding": "AAAA"}]}'), "holds no vectors"),
        (Answered(200, b'{"data": [{"embedding": []}, {"embedding": []}]}'), "direction"),
    ],
)
def test_an_answer_that_is_none_is_told_once_and_asked_for_later_and_later(
    desk: Desk, caplog: pytest.LogCaptureFixture, answer: Answered, words: str
) -> None:
    """What was claimed waits for anybody meanwhile; once it goes well again everything is there, and that is told."""
    well = desk.door.answer
    desk.door.answer = lambda asked: answer
    desk.put("one", "two")
    desk.look()
    assert desk.error is not None and words in desk.error
    assert desk.rows(meaning.WAITING) == [("one", None), ("two", None)] and desk.kept == {}
    desk.look(WAIT_S - 1)
    assert len(desk.door.asked) == 1
    desk.look(1)
    desk.look(2 * WAIT_S - 1)
    assert len(desk.door.asked) == 2
    for _ in range(3):
        desk.look(LONGEST_WAIT_S)
    assert len(desk.door.asked) == 5
    assert told(caplog, "gets no vectors") == 1
    desk.door.answer = well
    desk.look(LONGEST_WAIT_S)
    assert len(desk.kept) == 2 and desk.error is None and told(caplog, "gets vectors again") == 1


def test_a_reload_is_a_reason_to_ask_at_once(desk: Desk) -> None:
    well = desk.door.answer
    desk.door.answer = lambda asked: Answered(500, b"oops")
    desk.put("one")
    for _ in range(5):
        desk.look(LONGEST_WAIT_S)
    desk.look()
    assert len(desk.door.asked) == 5
    desk.door.answer = well
    desk.configure(TEXT)
    desk.look()
    assert list(desk.kept) == ["one"]


def test_a_worker_that_cannot_be_reached_is_not_counted_as_asked(desk: Desk) -> None:
    def unreachable(asked: dict[str, Any]) -> Answered:
        raise NoAnswer("no worker answered: refused", was_sent=False)

    well, desk.door.answer = desk.door.answer, unreachable
    desk.put("one")
    for _ in range(20):
        desk.look(LONGEST_WAIT_S)
    assert len(desk.door.asked) == 20 and desk.error == "no worker answered: refused"
    desk.door.answer = well
    desk.look(LONGEST_WAIT_S)
    assert list(desk.kept) == ["one"]


def test_a_text_that_the_model_refuses_does_not_keep_the_rest_waiting(desk: Desk) -> None:
    def picky(asked: dict[str, Any]) -> Answered:
        if any(POISON in text for text in asked["input"]):
            return Answered(400, b'{"error": {"message": "too long"}}')
        return Answered(200, embedded(asked).body)

    desk.door.answer = picky
    desk.put("one", POISON, "two")
    desk.look()
    width = len(vector(""))
    assert desk.kept == {"one": width, POISON: 0, "two": width} and desk.rows(meaning.WAITING) == []
    assert (desk.embedding.describe()["refused"], desk.error) == (1, None)


def test_an_alias_that_refuses_everything_costs_no_text_its_vectors(desk: Desk) -> None:
    """A model that is no embedding model answers with a 400, too: what it says is not of the texts."""
    well = desk.door.answer
    desk.door.answer = lambda asked: Answered(400, b"{}")
    desk.put("one", "two")
    desk.look()
    assert len(desk.door.asked) == 2 and desk.kept == {} and len(desk.rows(meaning.WAITING)) == 2
    desk.door.answer = well
    desk.look(WAIT_S)
    assert len(desk.kept) == 2 and desk.embedding.describe()["refused"] == 0


def test_another_width_under_the_same_name_makes_all_anew(desk: Desk) -> None:
    desk.put("one")
    desk.look()
    desk.door.answer = lambda asked: Answered(200, embedded({**asked, "dimensions": 32}).body)
    desk.put("two")
    desk.look()
    assert desk.error is not None and "have 32 numbers and had 1024" in desk.error
    desk.tend()
    assert "search_vectors" not in desk.store.read(lambda db: db.tables())
    desk.tend()
    desk.put("one", "two")
    desk.look(WAIT_S)
    assert desk.kept == {"one": 32, "two": 32}


def test_what_is_switched_off_while_it_is_asked_for_is_not_kept(desk: Desk) -> None:
    """The tables may be gone by then, or those of another model."""
    for text in (TEXT.partition("search")[0], TEXT.replace("alias: near", "alias: far")):

        def late(asked: dict[str, Any], text: str = text) -> Answered:
            desk.configure(text)
            desk.tend()
            desk.tend()
            return Answered(200, embedded(asked).body)

        desk.door.answer = late
        desk.put("one")
        desk.look(LONGEST_WAIT_S)
        assert desk.error is None
        state = desk.store.read(meaning.state_of)
        assert state is None or (state["width"], desk.kept) == ("", {})
        desk.configure(TEXT)
        desk.tend()
        desk.tend()


def test_a_store_that_is_down_costs_vectors_and_nothing_else(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.put("one")

    def down(question: object) -> object:
        raise StoreDown("it is away")

    with monkeypatch.context() as patch:
        patch.setattr(desk.store, "read", down)
        desk.look()
    assert desk.door.asked == [] and desk.error == "it is away"
    desk.look(WAIT_S)
    assert list(desk.kept) == ["one"] and desk.error is None


def test_without_an_alias_nobody_is_asked(desk: Desk) -> None:
    desk.put("one")
    desk.configure(TEXT.partition("search")[0])
    desk.look()
    assert desk.door.asked == [] and desk.embedding.describe()["alias"] is None
    with pytest.raises(NoVectors, match="off"):
        desk.embedding.asked("words")


def test_the_thread_asks_and_ends(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "LOOK_EVERY_S", 0.01)
    desk.restart()
    done = threading.Event()

    def answer(asked: dict[str, Any]) -> Answered:
        done.set()
        return Answered(200, embedded(asked).body)

    desk.door.answer = answer
    desk.put("one")
    desk.embedding.start()
    assert done.wait(30)
    desk.embedding.stop()
    assert len(desk.door.asked) == 1
