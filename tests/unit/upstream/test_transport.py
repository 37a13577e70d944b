"""What goes out and what comes back over one direct connection."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from arbiter.config.snapshot import Budgets, Endpoint
from arbiter.errors import BadRequest, Cut, Garbled, Unreachable
from arbiter.pieces import Pieces
from arbiter.upstream.transport import Outgoing, Transport, request_head
from tests.fakes.loops import Run
from tests.fakes.origin import CLOSE, LAST_CHUNK, RESET, SILENCE, Origin, answer, chunk, chunked, chunked_head
from tests.fakes.reader import LIMITS, Collected, answered, ask, counts, endpoint_of


def test_a_request_leaves_as_it_was_given_and_the_answer_comes_back(run: Run) -> None:
    """Path, headers in order, and body are the caller's; host, length and encoding are ours."""

    async def main() -> None:
        async with Origin(answer(b"hello", headers=[("X-Request-Id", "r1"), ("x-two", "\xe9")])) as origin:
            transport = Transport()
            exchange = await ask(
                transport, endpoint_of(origin), path="/v1/chat?a=b", headers=[("x-a", "1"), ("X-B", "")], body=b"{}"
            )
            assert exchange.status == 200
            assert exchange.headers == [("content-length", "5"), ("x-request-id", "r1"), ("x-two", "\xe9")]
            assert exchange.header("x-request-id") == "r1"
            assert exchange.header("absent") is None
            assert await exchange.read(5) == b"hello"
            assert not exchange.reused and not exchange.eof_delimited
            assert exchange.connect_us is not None and exchange.headers_us is not None and exchange.queue_us is not None
            seen = origin.requests[0]
            assert (seen.method, seen.target, seen.body) == ("POST", "/v1/chat?a=b", b"{}")
            assert seen.headers == [
                ("host", f"127.0.0.1:{origin.port}"),
                ("x-a", "1"),
                ("X-B", ""),
                ("accept-encoding", "identity"),
                ("content-length", "2"),
            ]
            await transport.close()

    run(main)


def test_a_streamed_body_is_pushed_as_it_comes(run: Run) -> None:
    """One read, one piece; the end comes once, and last."""

    async def main() -> None:
        gate = asyncio.Event()

        async def script(peer, request) -> None:  # type: ignore[no-untyped-def]
            await peer.send(chunked_head() + chunk(b"one"))
            await gate.wait()
            await peer.send(chunk(b"two") + chunk(b"three"))
            await peer.send(LAST_CHUNK)

        async with Origin(script) as origin:
            transport = Transport()
            exchange = await ask(transport, endpoint_of(origin))
            sink = Collected()
            exchange.stream(sink)
            await origin.until(lambda: sink.pieces == [b"one"])
            gate.set()
            assert await sink.end() is None
            assert sink.pieces == [b"one", b"twothree"]
            await transport.close()

    run(main)


def test_bytes_that_came_with_the_head_are_pushed_before_stream_returns(run: Run) -> None:
    """A reader that attaches late misses nothing, and a whole answer ends at once."""

    async def main() -> None:
        async with Origin(chunked(b"all of it")) as origin:
            transport = Transport()
            exchange = await ask(transport, endpoint_of(origin))
            await origin.until(lambda: counts(transport)[1] == 1)
            sink = Collected()
            exchange.stream(sink)
            assert (sink.data, sink.ends) == (b"all of it", [None])
            await transport.close()

    run(main)


def test_large_bodies_arrive_whole_both_ways(run: Run) -> None:
    """20 MB up and 20 MB down, larger than any buffer between us."""

    async def main() -> None:
        big = bytes(range(256)) * 80_000
        async with Origin(answer(big)) as origin:
            transport = Transport()
            assert await answered(transport, endpoint_of(origin), body=big, stream=False) == big
            assert origin.requests[0].body == big
            await transport.close()

    run(main, debug=False)


def test_a_body_in_pieces_arrives_whole(run: Run) -> None:
    """As often as it is sent, and whatever a read of the server's cuts."""

    async def main() -> None:
        whole = bytes(range(256)) * 8_000
        pieces = Pieces(whole[:20], memoryview(whole)[20:-1], whole[-1:])
        async with Origin(answer(b"a")) as origin:
            transport = Transport()
            for _ in range(2):
                assert await answered(transport, endpoint_of(origin), body=pieces) == b"a"
            assert [request.body for request in origin.requests] == [whole, whole]
            await transport.close()

    run(main, debug=False)


def test_a_get_without_body_announces_none(run: Run) -> None:
    """And a POST without one announces zero bytes."""

    async def main() -> None:
        async with Origin(answer()) as origin:
            transport = Transport()
            await answered(transport, endpoint_of(origin), method="GET", body=b"")
            await answered(transport, endpoint_of(origin), method="POST", body=b"")
            assert origin.requests[0].header("content-length") is None
            assert origin.requests[1].header("content-length") == "0"
            await transport.close()

    run(main)


def test_a_head_request_waits_for_no_body(run: Run) -> None:
    """Its content-length describes what a GET would bring; the connection is kept."""

    async def main() -> None:
        async with Origin(answer(length=5)) as origin:
            transport = Transport()
            assert await answered(transport, endpoint_of(origin), method="HEAD", body=b"") == b""
            assert counts(transport) == (1, 1, 0, 0)
            await transport.close()

    run(main)


def test_interim_answers_are_skipped(run: Run) -> None:
    """100 and 103 are not the answer, wherever the cut between them and it falls."""

    async def main() -> None:
        steps = [b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 E", b"arly\r\nlink: x\r\n\r\n" + answer(b"ok")]
        async with Origin(steps) as origin:
            transport = Transport()
            exchange = await ask(transport, endpoint_of(origin))
            assert (exchange.status, await exchange.read(9)) == (200, b"ok")
            await transport.close()

    run(main)


def test_a_unix_socket_is_as_good_as_a_port(run: Run, tmp_path: Path) -> None:
    """Local model servers listen on one."""

    async def main() -> None:
        async with Origin(answer(b"local"), uds=str(tmp_path / "s")) as origin:
            transport = Transport()
            endpoint = endpoint_of(origin, host="localhost", port=80)
            assert await answered(transport, endpoint) == b"local"
            assert await answered(transport, endpoint) == b"local"
            assert origin.requests[0].header("host") == "localhost"
            assert len(origin.peers) == 1
            await transport.close()

    run(main)


ENDPOINT = Endpoint("http", "api.example.com", 80)


@pytest.mark.parametrize(
    ("endpoint", "host"),
    [
        (ENDPOINT, "api.example.com"),
        (Endpoint("https", "api.example.com", 443), "api.example.com"),
        (Endpoint("https", "api.example.com", 80), "api.example.com:80"),
        (Endpoint("http", "::1", 8080), "[::1]:8080"),
        (Endpoint("http", "10.0.0.1", 9, host_header="signed.example.com"), "signed.example.com"),
    ],
)
def test_the_host_header_names_the_endpoint_or_what_was_configured(endpoint: Endpoint, host: str) -> None:
    """A signature often covers it (FEATURES A76)."""

    async def main() -> None:
        assert Transport()._place(endpoint).host == host

    asyncio.run(main())
    assert f"\r\nhost: {host}\r\n".encode() in request_head(host, Outgoing("GET", "/", [], b""))


@pytest.mark.parametrize(
    "out",
    [
        Outgoing("POST", "/", [("a", "b\r\nx: y")], b""),
        Outgoing("POST", "/", [("a\n", "b")], b""),
        Outgoing("POST", "/", [("a", "b\rc")], b""),
        Outgoing("POST", "/", [("a", "b\0")], b""),
        Outgoing("POST", "/ HTTP/1.1\r\nx: y", [], b""),
        Outgoing("POST", "/a b", [], b""),
        Outgoing("GET /x", "/", [], b""),
    ],
)
def test_nothing_breaks_out_of_its_line(out: Outgoing) -> None:
    """A forwarded value cannot add a header or a request."""
    with pytest.raises(BadRequest):
        request_head("example.com", out)


def test_an_accept_encoding_of_the_callers_own_is_left_alone() -> None:
    """Identity is the default, not a law."""
    head = request_head("example.com", Outgoing("GET", "/", [("accept-encoding", "gzip")], b""))
    assert head.count(b"accept-encoding") == 1


def test_an_upstream_that_is_not_there_is_unreachable(run: Run) -> None:
    """Refused, unresolvable, or no such socket: one class, and no slot is lost."""

    async def main() -> None:
        transport = Transport()
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            port = sock.getsockname()[1]
            for endpoint in (
                Endpoint("http", "127.0.0.1", port),
                Endpoint("http", "does-not-exist.invalid", 80),
                Endpoint("http", "localhost", 80, uds="/nonexistent/socket"),
            ):
                with pytest.raises(Unreachable):
                    await ask(transport, endpoint)
        assert counts(transport)[0] == 0
        await transport.close()

    run(main)


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("closed before a byte", [CLOSE]),
        ("reset before a byte", [RESET]),
        ("closed inside the head", [b"HTTP/1.1 200 OK\r\nconte", CLOSE]),
    ],
)
def test_no_answer_on_a_new_connection_is_unreachable(run: Run, name: str, steps: list[object]) -> None:
    """It is not sent again behind the ladder's back: that is for kept connections only."""

    async def main() -> None:
        async with Origin(steps) as origin:  # type: ignore[arg-type]
            transport = Transport()
            with pytest.raises(Unreachable):
                await ask(transport, endpoint_of(origin))
            assert len(origin.requests) == 1
            assert counts(transport)[0] == 0
            await transport.close()

    run(main)


@pytest.mark.parametrize(
    "garbage",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\na: b\r\n folded\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na: " + b"x" * (300 << 10),
        b"HTTP/1.1 200 OK\r\ncontent-encoding: snappy\r\ncontent-length: 1\r\n\r\nx",
    ],
)
def test_an_answer_that_is_not_http_is_garbled(run: Run, garbage: bytes) -> None:
    """The connection is closed, the slot free."""

    async def main() -> None:
        async with Origin([garbage, SILENCE]) as origin:
            transport = Transport()
            with pytest.raises(Garbled):
                await ask(transport, endpoint_of(origin))
            assert counts(transport)[0] == 0
            await origin.until(lambda: origin.hangups == 1)
            await transport.close()

    run(main)


@pytest.mark.parametrize(
    ("steps", "error"),
    [
        ([answer(b"half", length=9), CLOSE], Cut),
        ([answer(b"half", length=9), RESET], Cut),
        ([chunked_head() + chunk(b"half"), CLOSE], Cut),
        ([chunked_head() + chunk(b"half"), RESET], Cut),
        ([chunked_head() + chunk(b"half") + b"0\r\n", CLOSE], Cut),
        ([chunked_head() + chunk(b"half") + b"zz\r\n", SILENCE], Garbled),
        ([chunked_head() + b"4\r\nhalfway\r\n", SILENCE], Garbled),
    ],
)
@pytest.mark.parametrize("whole", [True, False], ids=["read", "stream"])
def test_a_body_that_breaks_off_never_looks_whole(run: Run, steps: list[object], error: type, whole: bool) -> None:
    """What came before the break is given out; then the error."""

    async def main() -> None:
        async with Origin(steps) as origin:  # type: ignore[arg-type]
            transport = Transport()
            exchange = await ask(transport, endpoint_of(origin))
            if whole:
                with pytest.raises(error):
                    await exchange.read(100)
            else:
                sink = Collected()
                exchange.stream(sink)
                assert type(await sink.end()) is error
                assert b"half".startswith(sink.data)
            assert counts(transport)[0] == 0
            await transport.close()

    run(main)


def test_a_body_that_only_the_end_delimits_says_so(run: Run) -> None:
    """A cut of it cannot be seen; who needs to know can ask."""

    async def main() -> None:
        async with Origin([b"HTTP/1.1 200 OK\r\n\r\nuntil the ", b"end", CLOSE]) as origin:
            transport = Transport()
            exchange = await ask(transport, endpoint_of(origin))
            assert await exchange.read(100) == b"until the end"
            assert exchange.eof_delimited
            assert counts(transport)[0] == 0
            await transport.close()

    run(main)


def test_a_reset_is_not_the_end_of_a_body(run: Run) -> None:
    """Of the bodies without length, those whose connection broke are known to be cut."""

    async def main() -> None:
        async with Origin([b"HTTP/1.1 200 OK\r\n\r\nuntil the ", 0.05, RESET]) as origin:
            transport = Transport()
            exchange = await ask(transport, endpoint_of(origin))
            with pytest.raises(Cut):
                await exchange.read(100)
            await transport.close()

    run(main)


@pytest.mark.parametrize("script", [answer(b"x" * 11), chunked(b"x" * 11), [chunked_head(), chunk(b"x" * 11), SILENCE]])
def test_an_answer_over_its_limit_is_refused(run: Run, script: object) -> None:
    """By its announced length at once, else as soon as it is over; the rest is not read."""

    async def main() -> None:
        async with Origin(script) as origin:  # type: ignore[arg-type]
            transport = Transport()
            exchange = await ask(transport, endpoint_of(origin))
            with pytest.raises(Garbled):
                await exchange.read(10)
            exchange = await ask(transport, endpoint_of(origin))
            if not isinstance(script, list):
                assert await exchange.read(11) == b"x" * 11
            exchange.abort()
            await transport.close()

    run(main)


def test_abort_closes_the_socket_at_once_and_nothing_follows(run: Run) -> None:
    """The server must see that nobody wants the answer any more (SPEC 3.4)."""

    async def main() -> None:
        async with Origin([chunked_head() + chunk(b"one"), SILENCE]) as origin:
            transport = Transport()
            exchange = await ask(transport, endpoint_of(origin))
            sink = Collected()
            exchange.stream(sink)
            await origin.until(lambda: bool(sink.pieces))
            began = asyncio.get_running_loop().time()
            exchange.abort()
            exchange.abort()
            assert counts(transport)[0] == 0
            await origin.until(lambda: origin.hangups == 1)
            assert asyncio.get_running_loop().time() - began < 5
            assert sink.ends == []
            await transport.close()
            exchange.abort()
            exchange.pause()
            exchange.resume()
            exchange.finish()
            assert sink.ends == []

    run(main)


def test_a_sink_may_abort_from_within_its_callback(run: Run) -> None:
    """That is where a stream finds out that its client has gone."""

    async def main() -> None:
        async with Origin([chunked_head() + chunk(b"one"), chunk(b"two") + LAST_CHUNK]) as origin:
            transport = Transport()
            exchange = await ask(transport, endpoint_of(origin))

            class Fickle(Collected):
                def on_data(self, data: bytes) -> None:
                    super().on_data(data)
                    exchange.abort()

            sink = Fickle()
            exchange.stream(sink)
            await origin.until(lambda: counts(transport)[0] <= 1 and bool(sink.pieces))
            await asyncio.sleep(0.02)
            assert len(sink.pieces) == 1
            assert sink.ends == []
            await transport.close()

    run(main)


def test_closing_the_transport_ends_what_is_in_flight(run: Run) -> None:
    """Streams, heads that are awaited, idle connections."""

    async def main() -> None:
        async with Origin(scripts=[answer(b"idle"), [chunked_head() + chunk(b"one"), SILENCE], SILENCE]) as origin:
            transport = Transport()
            endpoint = endpoint_of(origin)
            await answered(transport, endpoint)
            exchange = await ask(transport, endpoint)
            sink = Collected()
            exchange.stream(sink)
            waiting = asyncio.ensure_future(ask(transport, endpoint))
            await origin.until(lambda: len(origin.requests) == 3)
            await transport.close()
            assert isinstance(await sink.end(), Cut)
            with pytest.raises(Cut):
                await waiting
            assert counts(transport)[0] == 0

    run(main)


def test_tcp_is_set_to_find_dead_servers_and_to_hold_nothing_back(run: Run) -> None:
    """First probe after the headers budget, four more a quarter of it apart; no Nagle (SPEC 3.3)."""

    async def main() -> None:
        async with Origin([chunked_head(), SILENCE]) as origin:
            transport = Transport()
            exchange = await ask(transport, endpoint_of(origin), budgets=Budgets(headers_s=40))
            sock = exchange._carrier.transport.get_extra_info("socket")  # type: ignore[union-attr]
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 40
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) == 10
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT) == 4
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
            exchange.abort()
            await transport.close()

    run(main)


def test_a_head_is_never_that_of_another_list_of_headers() -> None:
    """Heads are found by who made the list: one that is gone may have had the same place in memory."""
    for number in range(1000):
        headers = [("authorization", f"Bearer {number}")]
        head = request_head("example.com", Outgoing("POST", "/", headers, b"{}"))
        assert f"\r\nauthorization: Bearer {number}\r\n".encode() in head
        assert request_head("example.com", Outgoing("POST", "/", headers, b"{}")) == head
        del headers


def test_whoever_asks_hears_when_the_request_is_on_its_way(run: Run) -> None:
    """Not before there is a connection, and once for each sending: what has time until the answer begins there."""

    async def main() -> None:
        heard: list[int] = []
        async with Origin(answer(b"hello")) as origin:
            transport = Transport()

            def on_sent() -> None:
                heard.append(counts(transport)[0])

            for times in (1, 2):
                out = Outgoing("POST", "/", [], b"{}", on_sent)
                exchange = await transport.send(endpoint_of(origin), out, Budgets(), stream=False, **LIMITS)
                await exchange.read(5)
                assert heard == [1] * times and exchange.reused == (times == 2)
        await transport.close()
        transport = Transport()
        with pytest.raises(Unreachable):
            await transport.send(endpoint_of(origin), out, Budgets(), stream=False, **LIMITS)
        assert len(heard) == 2
        await transport.close()

    run(main)
