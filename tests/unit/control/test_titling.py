"""What waits to be asked about, and what becomes of the answers. In tests/flow/test_titles.py a gateway does it all."""

from __future__ import annotations

import contextlib
import http.server
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from arbiter import clock, own
from arbiter.config.load import parse
from arbiter.config.rates import DAY_MS
from arbiter.config.snapshot import Server
from arbiter.control import door as door_module
from arbiter.control import titling
from arbiter.control.door import MAX_ANSWER_BYTES, Answered, Door, NoAnswer
from arbiter.control.titling import QUEUE, WAITING, Titling, is_due
from arbiter.ledger.recorder import Batch
from arbiter.ledger.row import RequestRow
from arbiter.ledger.sessions import Sessions, find
from arbiter.ledger.store import Changer, Position, StoreDown
from arbiter.own import Own
from tests.fakes.rows import request_row
from tests.fakes.stores import Place

TEXT = """
providers: { up: { type: echo, models: [m] } }
aliases: { fast: { pin: up/m } }
sessions: { titles: { alias: fast, per_day: 3 } }
"""


class FakeDoor:
    """Answers a question as the test says; `asked` are the sessions that questions were about."""

    def __init__(self) -> None:
        self.asked: list[str | None] = []
        self.bodies: list[dict[str, Any]] = []
        self.marks: list[str] = []
        self.answer: Callable[[], Answered] = lambda: said("A title\nA summary")

    def post(self, path: str, body: bytes, what: Own, *, timeout_s: float, headers: dict[str, str]) -> Answered:
        assert (path, what.kind, what.request_kind) == ("/v1/messages", "summary", "title") and 0 < timeout_s <= 60
        self.asked.append(what.about)
        self.bodies.append(msgspec.json.decode(body))
        self.marks.append(headers["x-trace-id"])
        return self.answer()


def said(text: str, status: int = 200) -> Answered:
    return Answered(status, msgspec.json.encode({"role": "assistant", "content": [{"type": "text", "text": text}]}))


class Desk:
    """A store, the recorder's stages, and the thread's work done by hand."""

    def __init__(self, place: Place, text: str = TEXT) -> None:
        self.place = place
        self.store, self.changer, self.door = place.open(), Changer(place.open), FakeDoor()
        self.text, self.sequence = text, 0
        self.restart()

    def restart(self) -> None:
        self.snapshot = parse(self.text, "test.yaml", {})
        self.titling = Titling(lambda: self.snapshot, self.store, self.changer, self.door)
        self.sessions = Sessions(lambda: 0)

    def put(self, *rows: RequestRow) -> None:
        batch = Batch(list(rows), [], [])
        for stage in (self.sessions, self.titling):
            stage.take(batch, self.store)
        self.sequence += 1
        self.store.write(batch.requests, Position("j", self.sequence), batch.also)
        for stage in (self.sessions, self.titling):
            stage.stored(batch)

    def title(self, session: str) -> str | None:
        key = f"ci {session}"
        return self.store.read(lambda db: find(db, [key]))[key].title

    def close(self) -> None:
        self.store.close()
        self.changer.close()


@pytest.fixture
def today(monkeypatch: pytest.MonkeyPatch) -> int:
    """The first moment of a day, in the middle of which all happens: no test shall meet its end."""
    today = clock.now_ms() // DAY_MS * DAY_MS
    monkeypatch.setattr(clock, "now_ms", lambda: today + DAY_MS // 2)
    return today


@pytest.fixture
def desk(place: Place) -> Iterator[Desk]:
    desk = Desk(place)
    yield desk
    desk.close()


def turn(number: int, session: str = "s", **fields: Any) -> RequestRow:
    return request_row(number, session=session, **{"words": ["hello"], **fields})


def question(number: int, mark: str | None, at_ms: int) -> RequestRow:
    """The row of a question, as a worker writes it."""
    return request_row(number, kind="summary", client="(gateway)", client_trace_id=mark, received_ms=at_ms)


def test_a_session_is_asked_about_after_its_1st_and_each_10th_turn(desk: Desk) -> None:
    """SPEC 8.4; however its turns come together."""
    assert [turn for turn in range(1, 32) if is_due(turn)] == [1, 10, 20, 30] and not is_due(None)
    desk.put(turn(1))
    desk.titling.look()
    desk.put(*(turn(number) for number in range(2, 10)))
    desk.titling.look()
    assert desk.door.asked == ["ci s"] and desk.title("s") == "A title"
    desk.put(*(turn(number) for number in range(10, 14)))
    desk.titling.look()
    assert desk.door.asked == ["ci s", "ci s"]


def test_what_is_no_turn_or_has_no_words_is_not_asked_about(desk: Desk) -> None:
    desk.put(turn(1, outcome="error"), turn(2, "t", words=None), turn(3, "u", request_kind="title"))
    desk.titling.look()
    assert desk.door.asked == []


def test_one_question_waits_for_each_session_and_no_more_than_there_is_room_for(desk: Desk) -> None:
    """The latest words of a session count; sessions that find no room are counted, and keep nobody."""
    desk.put(*(turn(number, f"s{number}") for number in range(1, QUEUE + 6)))
    desk.put(*(turn(1000 + number, "s1", words=["later"]) for number in range(9)))
    told = desk.titling.describe()
    assert (told["waiting"], told["dropped"]) == (QUEUE, 5)
    desk.snapshot = parse(TEXT.replace("per_day: 3", "per_day: 1000"), "test.yaml", {})
    desk.titling.look()
    assert desk.door.asked == [f"ci s{number}" for number in range(1, QUEUE + 1)]
    assert "later" in str(desk.door.bodies[0]) and "later" not in str(desk.door.bodies[1])


def test_a_day_has_so_many_questions_by_their_rows_and_by_what_has_no_row_yet(today: int, desk: Desk) -> None:
    """SPEC 8.4: of all gateways on the store and over restarts; those of yesterday do not count."""
    desk.put(question(100, "title-other", today + 1), question(101, None, today - 1))
    for number in (1, 2):  # 2 and 3 of the day; the row of the second question is not stored yet
        desk.put(turn(number, f"s{number}"))
        desk.titling.look()
    desk.put(question(102, desk.door.marks[0], today + 2))
    desk.put(turn(3, "s3"))
    desk.titling.look()
    assert desk.door.asked == ["ci s1", "ci s2"]
    assert "today's 3 questions" in desk.titling.describe()["error"]
    desk.put(question(103, desk.door.marks[1], today + 3))
    desk.restart()
    desk.put(turn(4, "s4"))
    desk.titling.look()
    assert desk.door.asked == ["ci s1", "ci s2"]


def test_a_worker_that_could_not_be_reached_was_not_asked(desk: Desk) -> None:
    def unreachable() -> Answered:
        raise NoAnswer("no worker answered: refused", was_sent=False)

    desk.door.answer = unreachable
    desk.put(*(turn(number, f"s{number}") for number in range(1, 10)))
    desk.titling.look()
    assert len(desk.door.asked) == 9 and "refused" in desk.titling.describe()["error"]


def test_a_worker_that_did_not_answer_was_asked(desk: Desk) -> None:
    def silent() -> Answered:
        raise NoAnswer("no worker answered: timed out", was_sent=True)

    desk.door.answer = silent
    desk.put(*(turn(number, f"s{number}") for number in range(1, 10)))
    desk.titling.look()
    assert len(desk.door.asked) == 3


def test_a_store_that_is_down_costs_titles_and_nothing_else(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.put(turn(1), turn(2, "t"))

    def down(question: object) -> object:
        raise StoreDown("it is away")

    with monkeypatch.context() as patch:
        patch.setattr(desk.store, "read", down)
        desk.titling.look()
    assert desk.door.asked == [] and "it is away" in desk.titling.describe()["error"]
    desk.put(turn(3, "u"))
    desk.titling.look()
    assert desk.title("u") == "A title" and desk.titling.describe()["error"] is None


def test_a_fault_in_one_session_keeps_no_other_from_its_title(desk: Desk) -> None:
    """What nobody foresaw is told as this session's, and the pass goes on with the next."""
    faults = [RuntimeError("unforeseen"), None, RuntimeError("again")]

    def answer() -> Answered:
        if (bug := faults.pop(0)) is not None:
            raise bug
        return said("A title")

    desk.door.answer = answer
    desk.put(turn(1, "s1"), turn(2, "s2"), turn(3, "s3"))
    desk.titling.look()
    assert desk.door.asked == ["ci s1", "ci s2", "ci s3"]
    assert [desk.title(session) for session in ("s1", "s2", "s3")] == [None, "A title", None]
    told = desk.titling.describe()
    assert (told["waiting"], told["error"]) == (0, "the work failed: RuntimeError: again")


def test_without_the_alias_nothing_is_remembered(desk: Desk) -> None:
    """Rows with words may still come from the journal when it was switched off."""
    desk.snapshot = parse(TEXT.partition("sessions")[0], "test.yaml", {})
    desk.put(turn(1), turn(2, "t", request_kind="title", words=None, titled="Its own"))
    desk.titling.look()
    assert desk.door.asked == [] and desk.title("t") is None and desk.titling.describe()["alias"] is None


def test_one_that_was_switched_off_meanwhile_is_not_asked(desk: Desk) -> None:
    desk.put(turn(1))
    desk.snapshot = parse(TEXT.partition("sessions")[0], "test.yaml", {})
    desk.titling.look()
    assert desk.door.asked == []


def test_secrets_are_masked_on_their_way_out_and_in(desk: Desk) -> None:
    secret = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
    desk.door.answer = lambda: said(f"A title with {secret} in it")
    desk.put(turn(1, words=[f"my key is {secret}"]))
    desk.put(turn(2, "t", request_kind="title", words=None, titled=f"Its {secret} own"))
    desk.titling.look()
    assert secret not in str(desk.door.bodies) and desk.title("s") == "A title with *** in it"
    assert desk.title("t") == "Its *** own"


def test_an_agents_title_waits_for_its_conversation_and_not_for_ever(desk: Desk) -> None:
    """SPEC 8.3: it came before the session that it names; what never finds one is forgotten."""
    more = {"request_kind": "title", "words": None}
    desk.put(turn(1, session=None, opener="0f" * 16, titled="Early", **more))
    desk.put(turn(2, opener="0f" * 16, words=None))
    assert desk.title("s") == "Early"
    late = [turn(10 + n, session=None, opener=f"{n:032x}", titled=f"T{n}", **more) for n in range(WAITING + 1)]
    desk.put(*late[:200])
    desk.put(*late[200:])
    desk.put(turn(5, "first", opener=f"{0:032x}", words=None), turn(6, "last", opener=f"{WAITING:032x}", words=None))
    assert (desk.title("first"), desk.title("last")) == (None, f"T{WAITING}")


# --- the door ---------------------------------------------------------------------------------------------------------


@contextmanager
def answering(answer: bytes, hold: threading.Event | None = None) -> Iterator[int]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            if hold is not None:
                hold.wait(30)
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """The test's output is not the place for it."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def door(port: int, run_dir: Path) -> Door:
    return Door(Server(bind="0.0.0.0", port=port), run_dir)


def test_a_door_answers_or_says_why_not(tmp_path: Path) -> None:
    own.make_key(tmp_path)
    what = Own("summary", "title", "ci s")
    with answering(b"HTTP/1.1 503 No\r\ncontent-length: 2\r\n\r\nno") as port:
        assert door(port, tmp_path).post("/", b"{}", what, timeout_s=10) == Answered(503, b"no")
    with pytest.raises(NoAnswer) as failed:
        door(port, tmp_path).post("/", b"{}", what, timeout_s=10)
    assert not failed.value.was_sent
    for bad in (b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (MAX_ANSWER_BYTES + 1)):
        with answering(bad) as port, pytest.raises(NoAnswer) as failed:
            door(port, tmp_path).post("/", b"{}", what, timeout_s=10)
        assert failed.value.was_sent


@pytest.fixture
def hardly_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of whatever time a door was given, it has a moment left once it is connected: to get there may take any time."""
    connect = door_module._Connection.connect

    def connected(self: door_module._Connection) -> None:
        connect(self)
        self._deadline._at = clock.monotonic() + 0.2

    monkeypatch.setattr(door_module._Connection, "connect", connected)


def test_a_door_waits_no_longer_than_it_was_told(tmp_path: Path, hardly_patient: None) -> None:
    hold = threading.Event()
    with answering(b"", hold) as port:
        with pytest.raises(NoAnswer, match="timed out") as failed:
            door(port, tmp_path).post("/", b"{}", Own("summary"), timeout_s=60)
        hold.set()
    assert failed.value.was_sent and titling.ANSWER_S <= 60


@pytest.mark.parametrize("place", ["port", "socket"])
def test_a_door_is_no_longer_open_for_somebody_who_drips(tmp_path: Path, hardly_patient: None, place: str) -> None:
    """The time is that of the whole exchange: each byte comes well within it, and all of them would take for ever."""
    own.make_key(tmp_path)
    path = tmp_path / "door"
    listening = socket.socket(socket.AF_INET if place == "port" else socket.AF_UNIX)
    listening.bind(("127.0.0.1", 0) if place == "port" else str(path))
    listening.listen()
    is_left = threading.Event()

    def drip() -> None:
        with listening.accept()[0] as line, contextlib.suppress(OSError):
            line.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
            for _ in range(1000):
                line.sendall(b"x")
                if is_left.wait(0.02):
                    return

    thread = threading.Thread(target=drip, daemon=True)
    thread.start()
    where = Server(port=listening.getsockname()[1]) if place == "port" else Server(socket=str(path))
    try:
        with pytest.raises(NoAnswer, match="timed out") as failed:
            Door(where, tmp_path).post("/", b"{}", Own("summary"), timeout_s=60)
    finally:
        is_left.set()
        thread.join(5)
        listening.close()
    assert failed.value.was_sent
