"""An exchange over a connection of its origin, both sides, without a socket: what is told to whom, and when."""

from __future__ import annotations

import itertools
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbiter._speedups.c import exchange as c_exchange
from arbiter._speedups.py import exchange as py_exchange
from arbiter.errors import ArbiterError, Cut, Garbled
from arbiter.pieces import Body, Pieces

WHOLE = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nx-one: 1\r\nx-one: 2\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
LAST = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nhi"
LABELLED = b"HTTP/1.1 200 OK\r\ncontent-encoding: x\r\ncontent-length: 2\r\n\r\nhi"
BROKEN = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabcXX"
SIDES = [pytest.param(py_exchange, id="py"), pytest.param(c_exchange, id="c")]


@pytest.fixture(params=SIDES)
def side(request: pytest.FixtureRequest) -> ModuleType:
    module: ModuleType = request.param
    return module


class Head:
    """The one future of an exchange."""

    def __init__(self) -> None:
        self.result: object = "waits"

    def done(self) -> bool:
        return self.result != "waits"

    def set_result(self, result: object) -> None:
        self.result = result

    def set_exception(self, error: BaseException) -> None:
        self.result = error


class Socket:
    """A transport that remembers what was written."""

    def __init__(self) -> None:
        self.written: list[object] = []
        self.closing = False
        self.unwritten = 0

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def writelines(self, pieces: tuple[bytes, ...]) -> None:
        self.written.append(pieces)

    def is_closing(self) -> bool:
        return self.closing

    def get_write_buffer_size(self) -> int:
        return self.unwritten


class Sink:
    def __init__(self, told: list[object]) -> None:
        self.told = told

    def on_data(self, data: bytes) -> None:
        self.told.append(data)
        if data == b"bug":
            raise ValueError("a reader's")


class Pool:
    watching = False

    def watch(self) -> None:
        self.watching = True


class Scene:
    """One connection in use, with everything above it written down in `told`."""

    def __init__(self, side: ModuleType) -> None:
        self.told = told = []  # type: list[object]

        class Exchange(side.ExchangeCore):  # type: ignore[misc]
            def _unlabelled(self, headers: list[tuple[str, str]], encoding: str) -> list[tuple[str, str]]:
                if encoding == "unknown":
                    raise Garbled("an encoding that nobody knows")
                return [("was", encoding)]

            def _break_off(self, bug: Exception) -> None:
                told.append(("bug", str(bug)))

            def _pour(self) -> None:
                told.append(("pour", b"".join(self._backlog or ()), self._over))
                self._drop()

        class Origin(side.OriginCore):  # type: ignore[misc]
            def free(self) -> None:
                told.append("free")

            def _let_in(self) -> None:
                told.append("let in")

            def _pass_or_close(self, connection: object) -> None:
                told.append("pass or close")

        class Link(side.LinkCore):  # type: ignore[misc]
            def abort(self) -> None:
                told.append("abort")

            def pause(self) -> None:
                told.append("pause")

            def resume(self) -> None:
                told.append("resume")

            def release(self) -> None:
                told.append("release")

            def dismiss(self) -> None:
                told.append("dismiss")

            def _lost(self, exc: Exception | None) -> None:
                told.append("lost")

            def _unasked(self, nbytes: int) -> None:
                told.append(("unasked", nbytes))

            def _break(self, exchange: Any, body: bytes, error: ArbiterError) -> None:
                told.append(("break", body, str(error)))

        self.arena = bytearray(1 << 10)
        self.origin = Origin(Pool(), {}, {})
        self.origin.limit(2, 2, 9.0)
        told.clear()
        self.link = Link(self.origin, memoryview(self.arena))
        self.socket = self.link.transport = Socket()
        self.active: set[Any] = set()
        self.exchange = Exchange(None, False, 0.5, self.active)
        self.head = Head()

    def begin(self, body: Body = b"body", *, bodyless: bool = False) -> None:
        self.exchange.begin(self.link, self.head, reused=True)
        self.link.start(self.exchange, b"head ", body, bodyless)

    def read(self, data: bytes) -> None:
        assert len(self.link.get_buffer(-1)) >= len(data)
        self.arena[: len(data)] = data
        self.link.buffer_updated(len(data))


def test_a_request_leaves_in_one_write(side: ModuleType) -> None:
    """A long body is not copied for that, nor one in pieces; a connection that is gone says so."""
    scene = Scene(side)
    scene.begin()
    long = b"x" * (side.JOIN_BYTES + 1)
    scene.begin(long)
    scene.begin(Pieces(b"one", b"two"))
    assert scene.socket.written == [b"head body", (b"head ", long), (b"head ", b"one", b"two")]
    assert scene.active == {scene.exchange} and scene.link.served == 3
    scene.link.transport = None
    scene.begin()
    assert scene.told == ["lost"]


def test_an_answer_that_came_with_its_head_is_here(side: ModuleType) -> None:
    """Nobody waits a second time, and its connection is idle already."""
    scene = Scene(side)
    scene.begin()
    scene.read(WHOLE)
    exchange = scene.exchange
    assert (scene.head.result, exchange.head, exchange.status, exchange.length) == (None, None, 200, 5)
    assert exchange.reused and exchange.headers_us >= 0 and exchange.last_activity > 0
    assert (exchange.header("x-one"), exchange.header("x-two"), exchange.header("x-two", "no")) == ("1", None, "no")
    assert exchange.here(4) is None and exchange.here(5) == b"hello"
    assert list(scene.origin.idle) == [scene.link] and scene.origin._pool.watching and not scene.active
    assert scene.origin.try_acquire() is scene.link and scene.origin.try_acquire() is None
    assert not scene.link.give_slot()
    scene.link.take_slot()
    assert scene.link.give_slot() and not scene.link.give_slot()


def test_an_answer_without_a_body_is_here_and_empty(side: ModuleType) -> None:
    scene = Scene(side)
    scene.begin(bodyless=True)
    scene.read(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n")
    assert scene.exchange.here(100) == b""


@pytest.mark.parametrize("answer", [WHOLE[:-1], CHUNKED[:-1]])
def test_what_is_not_here_to_its_end_has_to_be_read(side: ModuleType, answer: bytes) -> None:
    scene = Scene(side)
    scene.begin()
    scene.read(answer)
    assert scene.exchange.here(100) is None and scene.active == {scene.exchange}


def test_what_was_encoded_has_to_be_read(side: ModuleType) -> None:
    """It is unpacked there. An encoding that nobody knows breaks the answer before its head is told."""
    scene = Scene(side)
    scene.begin()
    scene.exchange._decoder = object()
    scene.read(LABELLED)
    assert scene.exchange.headers == [("was", "x")] and scene.exchange.here(100) is None
    other = Scene(side)
    other.begin()
    other.read(LABELLED.replace(b"encoding: x", b"encoding: unknown"))
    assert other.told == [("break", b"", "an encoding that nobody knows")] and not other.head.done()


def test_a_stream_is_pushed_as_it_was_read(side: ModuleType) -> None:
    """What came before the reader did waits for it; a reader that fails is told of."""
    scene = Scene(side)
    scene.begin()
    sink = Sink(scene.told)
    scene.read(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n")
    scene.exchange.stream(sink)
    scene.read(b"2\r\nde\r\n")
    scene.read(b"3\r\nbug\r\n")
    scene.exchange._paused = True
    scene.read(b"1\r\nf\r\n")
    scene.exchange._paused = False
    scene.read(b"0\r\n\r\n")
    assert scene.told == [
        ("pour", b"abc", False), "resume", b"de", b"bug", ("bug", "a reader's"), ("pour", b"f", True),
    ]  # fmt: skip


def test_more_than_may_wait_stops_the_connection(side: ModuleType) -> None:
    """Until somebody says how much it takes."""
    scene = Scene(side)
    scene.begin()
    scene.read(b"HTTP/1.1 200 OK\r\n\r\n")
    for _ in range(side.HOLD_BYTES // 1000 + 1):
        assert not scene.told
        scene.read(b"x" * 1000)
    assert scene.told == ["pause"] and scene.exchange._backlog_bytes > side.HOLD_BYTES
    exchange, waiter = scene.exchange, Head()
    exchange._limit, exchange._waiter = exchange._backlog_bytes + 10, waiter
    scene.read(b"x" * 10)
    assert not waiter.done()
    scene.read(b"x")
    assert waiter.result is None and scene.told == ["pause"]


@pytest.mark.parametrize(("close", "told"), [("finish", "release"), ("abort", "abort")])
def test_whoever_lets_go_hears_no_more(side: ModuleType, close: str, told: str) -> None:
    scene = Scene(side)
    scene.begin()
    scene.read(WHOLE[:-3])
    scene.exchange.stream(Sink(scene.told))
    scene.told.clear()
    getattr(scene.exchange, close)()
    getattr(scene.exchange, close)()
    assert scene.told == [told] and not scene.active and type(scene.exchange._error) is Cut
    scene.exchange.push(b"lo")
    scene.exchange.end(None)
    assert scene.told == [told] and scene.exchange._backlog_bytes == 0


def test_a_failure_is_told_to_whoever_waits_for_the_head(side: ModuleType) -> None:
    """Once: one that comes late finds nobody."""
    scene = Scene(side)
    scene.begin()
    scene.exchange.fail(error := Cut("gone"))
    scene.exchange.fail(Cut("again"))
    assert scene.head.result is error and not scene.active
    scene.exchange.on_head(200, [], -1, False)
    assert scene.head.result is error


@pytest.mark.parametrize("why", ["close", "closing", "unwritten", "gone"])
def test_a_connection_that_cannot_go_on_is_closed_before_its_answer_is_given_out(side: ModuleType, why: str) -> None:
    scene = Scene(side)
    scene.begin()
    scene.socket.closing, scene.socket.unwritten = why == "closing", int(why == "unwritten")
    if why == "gone":
        scene.link.transport = None
    scene.read(LAST if why == "close" else WHOLE)
    assert scene.told == ["abort"] and not scene.origin.idle
    assert scene.exchange.here(9) in (b"hi", b"hello")


def test_what_is_no_answer_is_broken_off(side: ModuleType) -> None:
    """What came before the fault first, whatever the cut."""
    scene = Scene(side)
    scene.begin()
    scene.read(BROKEN)
    (found,) = scene.told
    assert found == ("break", b"abc", "the upstream's answer is not proper HTTP: a chunk does not end where it said")
    assert scene.head.result is None


def test_bytes_that_nobody_asked_for_are_told_of(side: ModuleType) -> None:
    scene = Scene(side)
    scene.read(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
    assert scene.told == [("unasked", 32)]


def test_an_origin_keeps_what_it_has_room_for(side: ModuleType) -> None:
    """Whoever waits comes first, and a drained connection is drained no more."""
    scene = Scene(side)
    origin, link = scene.origin, scene.link
    origin.draining[link] = 1.0
    origin.keep(link)
    assert not origin.draining and origin.try_acquire() is link
    for name, value in (("waiters", {1: 1}), ("hopers", {1: 1}), ("max_idle", 0), ("open", 3)):
        before = getattr(origin, name)
        setattr(origin, name, value)
        origin.keep(link)
        assert scene.told.pop() == "pass or close" and not origin.idle
        setattr(origin, name, before)
    origin.keep(link)
    origin.waiters = {1: 1}
    assert origin.try_acquire() is None
    origin.waiters = {}
    scene.socket.closing = True
    assert origin.try_acquire() is None and scene.told == ["dismiss", "free"]


def test_a_moved_bound_lets_waiters_in(side: ModuleType) -> None:
    origin = Scene(side).origin
    origin.limit(2, 1, 3.0)
    assert (origin.max_connections, origin.max_idle, origin.idle_for_s) == (2, 1, 3.0)
    scene = Scene(side)
    scene.origin.limit(5, 1, 3.0)
    assert scene.told == ["let in"]


@given(st.sampled_from([WHOLE, CHUNKED, LAST, BROKEN, WHOLE + b"more"]), st.lists(st.integers(1, 200), max_size=4))
def test_any_cut_is_told_alike_on_both_sides(answer: bytes, places: list[int]) -> None:
    edges = [0, *sorted({place % len(answer) for place in places}), len(answer)]
    found = []
    for side in (py_exchange, c_exchange):
        scene = Scene(side)
        scene.begin()
        scene.exchange.stream(Sink(scene.told))
        for a, b in itertools.pairwise(edges):
            if b > a:
                scene.read(answer[a:b])
        exchange = scene.exchange
        found.append((scene.told, exchange.status, exchange.headers, exchange._over, len(scene.origin.idle)))
    assert found[0] == found[1]
