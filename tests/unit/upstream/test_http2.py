"""Upstreams that speak only HTTP/2: the same exchange on httpcore's connection for it (SPEC 3.1 to 3.5)."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from h2.errors import ErrorCodes

from arbiter.config.snapshot import Budgets, Endpoint
from arbiter.errors import Cut, Garbled, TimedOut, Unreachable
from arbiter.pieces import Pieces
from arbiter.upstream import http2, pool
from arbiter.upstream.transport import Transport
from tests.fakes.certificates import authority
from tests.fakes.http2 import Http2Origin, Http2Peer, Http2Request, h2_context, reply
from tests.fakes.loops import Run
from tests.fakes.origin import CLOSE, RESET, SILENCE, Origin, answer
from tests.fakes.proxy import HttpProxy, Socks5
from tests.fakes.reader import Collected, answered, ask, counts, endpoint_of
from tests.unit.upstream.conftest import Moved

ROADS: list[Any] = [
    pytest.param(None, id="direct"),
    pytest.param(lambda: HttpProxy(), id="http-proxy"),
    pytest.param(lambda: HttpProxy(user=b"u", password=b"p"), id="http-proxy-with-password"),
    pytest.param(lambda: Socks5(), id="socks5"),
]
LAST = (1 << 31) - 1  # the last stream of a GOAWAY that only announces


def at(origin: Origin, **changes: Any) -> Endpoint:
    return endpoint_of(origin, http2=True, **changes)


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("road", ROADS)
def test_requests_go_out_in_http2_and_answers_come_back(
    run: Run, tmp_path: Path, road: Callable[[], Any] | None, secure: bool
) -> None:
    """Unary, streamed and compressed, one after the other on one connection; TLS agrees on h2 first."""
    ca = authority(tmp_path)

    async def asked(origin: Http2Origin, proxy: str | None) -> None:
        transport = Transport()
        endpoint = at(origin, proxy=proxy, tls_ca=ca.file if secure else None)
        exchange = await ask(transport, endpoint, path="/v1/a?b=c", headers=[("X-A", "1")], body=b"{}", stream=False)
        assert exchange.connect_us is not None and not exchange.reused and not exchange.eof_delimited
        assert (exchange.status, exchange.header("x-one")) == (201, "1")
        assert await exchange.read(9) == b"a"
        await origin.until(lambda: counts(transport) == (1, 1, 0, 0))
        exchange = await ask(transport, endpoint)
        assert exchange.reused and exchange.connect_us is None
        sink = Collected()
        exchange.stream(sink)
        assert await sink.end() is None
        assert sink.pieces == [b"b", b"c"]
        assert await answered(transport, endpoint, method="GET", body=b"") == b"packed"
        seen, last = origin.requests[0], origin.requests[2]
        assert (seen.method, seen.target, seen.body, seen.header("x-a")) == ("POST", "/v1/a?b=c", b"{}", "1")
        assert seen.header("host") == f"127.0.0.1:{origin.port}"
        assert (last.method, last.body, last.header("content-length")) == ("GET", b"", None)
        assert len(origin.peers) == 1
        await transport.close()

    async def main() -> None:
        packed = reply(gzip.compress(b"packed"), headers=[("content-encoding", "gzip")])
        scripts = [reply(b"a", status="201", headers=[("x-one", "1")]), reply(b"b", b"", b"c"), packed]
        async with Http2Origin(scripts=scripts, tls=h2_context(ca) if secure else None) as origin:
            if road is None:
                await asked(origin, None)
                return
            async with road() as proxy:
                await asked(origin, proxy.url)
                assert proxy.asked == [f"127.0.0.1:{origin.port}"]

    run(main)


def test_events_arrive_one_by_one(run: Run) -> None:
    """Each as it is sent: the next leaves the server only after the last was seen here."""

    async def main() -> None:
        seen = asyncio.Semaphore(0)

        async def script(peer: Http2Peer, request: Http2Request) -> None:
            await peer.head(request)
            for number in range(5):
                await peer.data(request, b"data: %d\n\n" % number)
                await seen.acquire()
            await peer.data(request, b"", end=True)

        async with Http2Origin(script) as origin:  # type: ignore[arg-type]
            transport = Transport()
            exchange = await ask(transport, at(origin))
            sink = Collected()
            exchange.stream(sink)
            for number in range(5):
                await origin.until(lambda count=number + 1: len(sink.pieces) == count)  # type: ignore[misc]
                seen.release()
            assert await sink.end() is None
            assert sink.pieces == [b"data: %d\n\n" % number for number in range(5)]
            await transport.close()

    run(main)


@pytest.mark.parametrize("way", ["abort", "cancel", "abort-while-paused"])
def test_who_leaves_stops_the_server_at_once(run: Run, tmp_path: Path, way: str) -> None:
    """The connection is closed, whatever it was doing, and nothing is left of it (SPEC 3.4)."""
    ca = authority(tmp_path)

    async def main() -> None:
        async def script(peer: Http2Peer, request: Http2Request) -> None:
            if way != "cancel":
                await peer.head(request)
                await peer.data(request, b"one")
            await peer.gone()

        async with Http2Origin(script, tls=h2_context(ca)) as origin:  # type: ignore[arg-type]
            transport = Transport()
            waiting = asyncio.ensure_future(ask(transport, at(origin, tls_ca=ca.file)))
            await origin.until(lambda: len(origin.requests) == 1)
            if way == "cancel":
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            else:
                exchange = await waiting
                if way == "abort-while-paused":
                    exchange.stream(Collected())
                    exchange.pause()
                exchange.abort()
            await origin.until(lambda: origin.hangups == 1)
            assert counts(transport)[0] == 0
            await transport.close()

    run(main)


def test_cancelling_at_any_moment_leaks_nothing(run: Run, tmp_path: Path) -> None:
    """While connecting, in the handshake, in the request, before and in the answer: no slot, task or socket is left."""
    ca = authority(tmp_path)

    async def main() -> None:
        async with Http2Origin(reply(b"x" * 100_000), tls=h2_context(ca)) as origin, HttpProxy() as proxy:
            transport = Transport()
            for endpoint in (at(origin, tls_ca=ca.file), at(origin, tls_ca=ca.file, proxy=proxy.url)):
                for turns in range(0, 60, 2):
                    asking = asyncio.ensure_future(answered(transport, endpoint, body=b"y" * 100_000))
                    for _ in range(turns):
                        await asyncio.sleep(0)
                    asking.cancel()
                    await asyncio.wait([asking])
                assert await answered(transport, endpoint) == b"x" * 100_000
            await origin.until(lambda: all(stats["in_use"] == 0 for stats in transport.stats()))
            await transport.close()

    run(main)


async def _begun(peer: Http2Peer, request: Http2Request) -> None:
    await peer.head(request)
    await peer.data(request, b"half")


def reset(code: ErrorCodes) -> Any:
    async def script(peer: Http2Peer, request: Http2Request) -> None:
        await peer.reset_stream(request, code)

    return script


def go_away(last: int, code: ErrorCodes = ErrorCodes.NO_ERROR) -> Any:
    async def script(peer: Http2Peer, request: Http2Request) -> None:
        await peer.go_away(last, code)

    return script


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([reset(ErrorCodes.INTERNAL_ERROR)], "INTERNAL_ERROR"),
        ([go_away(1, ErrorCodes.ENHANCE_YOUR_CALM), CLOSE], "ENHANCE_YOUR_CALM"),
        ([go_away(1), CLOSE], "cut short"),
        ([CLOSE], "cut short"),
        ([RESET], "cut short"),
    ],
    ids=["reset", "goaway-with-error", "polite-goaway", "close", "tcp-reset"],
)
def test_a_stream_that_breaks_off_is_cut(run: Run, steps: list[Any], words: str) -> None:
    """What came is delivered, then the error; the connection is gone."""

    async def main() -> None:
        half = asyncio.Event()
        async with Http2Origin([_begun, half, *steps]) as origin:
            transport = Transport()
            sink = Collected()
            (await ask(transport, at(origin))).stream(sink)
            await origin.until(lambda: sink.data == b"half")
            half.set()
            error = await sink.end()
            assert type(error) is Cut and words in str(error)
            assert sink.data == b"half"
            assert counts(transport)[0] == 0
            await transport.close()

    run(main)


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([go_away(0), SILENCE], "without taking the request"),
        ([go_away(0, ErrorCodes.ENHANCE_YOUR_CALM), CLOSE], "without taking the request"),
        ([go_away(1, ErrorCodes.INTERNAL_ERROR), SILENCE], "INTERNAL_ERROR"),
        ([go_away(LAST), 0.02, go_away(0), SILENCE], "without taking the request"),
        ([go_away(LAST), 0.02, CLOSE], "cannot be reached"),
        ([reset(ErrorCodes.REFUSED_STREAM)], "REFUSED_STREAM"),
        ([reset(ErrorCodes.INTERNAL_ERROR)], "INTERNAL_ERROR"),
        ([CLOSE], "cannot be reached: "),
        ([RESET], "cannot be reached: "),
    ],
    ids=["goaway", "goaway-close", "goaway-error", "goaway-twice", "goaway-eof", "refused", "reset", "close", "rst"],
)
def test_no_answer_is_unreachable(run: Run, steps: list[Any], words: str) -> None:
    """It is asked once: a new connection was no kept one that died in the meantime."""

    async def main() -> None:
        async with Http2Origin(steps) as origin:
            transport = Transport()
            with pytest.raises(Unreachable, match=words) as caught:
                await ask(transport, at(origin))
            assert type(caught.value) is Unreachable
            assert len(origin.requests) == 1
            assert counts(transport)[0] == 0
            await transport.close()

    run(main)


def test_a_server_that_is_going_away_finishes_its_answer(run: Run) -> None:
    """A polite GOAWAY in mid-stream ends the connection's use, not the stream, wherever reads cut its frame."""

    async def main() -> None:
        async def script(peer: Http2Peer, request: Http2Request) -> None:
            await peer.head(request)
            await peer.data(request, b"one")
            await peer.go_away(LAST)
            await peer.go_away(request.stream)
            await peer.data(request, b"two", end=True)
            await peer.gone()

        async with Http2Origin(script) as origin:  # type: ignore[arg-type]
            transport = Transport()
            for turn in range(2):
                assert await answered(transport, at(origin)) == b"onetwo"
                await origin.until(lambda count=turn + 1: origin.hangups == count)  # type: ignore[misc]
                assert counts(transport)[0] == 0
            assert len(origin.peers) == 2
            await transport.close()

    run(main)


def test_goaways_are_taken_out_wherever_the_network_cuts() -> None:
    """Any cut passes the same frames on; only a GOAWAY that leaves the stream in flight out gets through."""
    data = b"\0\0\x05\0\0\0\0\0\x03hello"
    settings = b"\0\0\0\x04\0\0\0\0\0"

    def goaway(last: int, code: int = 0, debug: bytes = b"") -> bytes:
        return (
            bytes([0, 0, 8 + len(debug), 7, 0, 0, 0, 0, 0]) + last.to_bytes(4, "big") + bytes([0, 0, 0, code]) + debug
        )

    kept = settings + goaway(LAST, debug=b"bye") + data + goaway(3) + data
    for tail, passed in (
        (goaway(1), settings + data + data + goaway(1)),
        (goaway(3, 11) + data, settings + data + data + goaway(3, 11)),
        (b"", settings + data + data),
    ):
        stream = kept + tail
        for size in range(1, len(stream) + 1):
            frames = http2._Frames(None, "here")  # type: ignore[arg-type]
            frames.stream_id = 3
            got = b""
            for at_ in range(0, len(stream), size):
                if got.endswith(tail[:17] or b"\xff"):
                    break  # httpcore reads no further
                got += frames._passed(stream[at_ : at_ + size])
            assert got == passed, size
            assert frames.is_going_away


@pytest.mark.parametrize(
    "last",
    [[go_away(1), CLOSE], [go_away(1), SILENCE], [reset(ErrorCodes.REFUSED_STREAM)], [CLOSE]],
    ids=["goaway-close", "goaway", "refused", "close"],
)
def test_a_kept_connection_that_takes_no_more_is_replaced(run: Run, last: list[Any]) -> None:
    """The server says that it never began, or says nothing: the request goes out once more, on a new connection."""

    async def main() -> None:
        async with Http2Origin(scripts=[reply(b"a"), last, reply(b"b")]) as origin:
            transport = Transport()
            assert await answered(transport, at(origin)) == b"a"
            await origin.until(lambda: counts(transport)[1] == 1)
            exchange = await ask(transport, at(origin))
            assert await exchange.read(9) == b"b" and not exchange.reused
            assert len(origin.peers) == 2
            assert counts(transport)[0] == 1
            await transport.close()

    run(main)


def test_a_connection_that_closed_while_idle_is_not_used(run: Run) -> None:
    """Seen before the send; pings and settings that wait there are no reason to drop one."""

    async def main() -> None:
        async with Http2Origin(scripts=[reply(b"a"), reply(b"b"), reply(b"c")]) as origin:
            transport = Transport()
            assert await answered(transport, at(origin)) == b"a"
            first = origin.peers[0]
            assert isinstance(first, Http2Peer)
            first.state.ping(b"whatever")
            await first.flush()
            assert await answered(transport, at(origin)) == b"b"
            assert len(origin.peers) == 1
            (kept,) = next(iter(transport._pool.origins.values())).idle
            assert kept.is_usable()
            first.close()
            await origin.until(lambda: not kept.is_usable(), "that the hang-up is seen")
            exchange = await ask(transport, at(origin))
            assert await exchange.read(9) == b"c" and not exchange.reused
            assert len(origin.requests) == 3
            await transport.close()

    run(main)


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_a_server_without_http2_is_told_apart(run: Run, tmp_path: Path, secure: bool) -> None:
    """The message says what to do about it; a server that agrees on nothing counts as one without."""
    ca = authority(tmp_path)

    async def main() -> None:
        for protocols in ([], ["http/1.1"]):
            context = ca.server() if secure else None
            if context is not None and protocols:
                context.set_alpn_protocols(protocols)
            async with Origin([answer(b"what?", status="400 Bad Request"), SILENCE], tls=context) as origin:
                transport = Transport()
                with pytest.raises(Garbled, match=r'does not speak HTTP/2; set `http: "1.1"`'):
                    await ask(transport, at(origin, tls_ca=ca.file if secure else None))
                assert len(origin.requests) == (0 if secure else 1)  # nothing is said before TLS has agreed
                assert counts(transport)[0] == 0
                await transport.close()

    run(main)


def test_a_server_that_hangs_up_on_http2_is_asked_about(run: Run) -> None:
    """It may have crashed, and it may know no HTTP/2: the message says both."""

    async def main() -> None:
        async with Origin(greeting=[CLOSE]) as origin:
            transport = Transport()
            with pytest.raises(Unreachable, match="without a word of HTTP/2"):
                await ask(transport, at(origin))
            assert counts(transport)[0] == 0
            await transport.close()

    run(main)


def test_a_server_that_asks_for_http_1_1_is_told_apart(run: Run) -> None:
    """RFC 9113, section 7: it may say so for one request."""

    async def main() -> None:
        async with Http2Origin(reset(ErrorCodes.HTTP_1_1_REQUIRED)) as origin:
            transport = Transport()
            with pytest.raises(Garbled, match="does not speak HTTP/2"):
                await ask(transport, at(origin))
            await transport.close()

    run(main)


def test_connections_of_both_versions_are_kept_apart(run: Run, tmp_path: Path) -> None:
    """One host that speaks both: neither gets the other's connection, nor its TLS offer."""
    ca = authority(tmp_path)
    chosen: list[str | None] = []
    context = ca.server()
    context.set_alpn_protocols(["h2", "http/1.1"])

    async def main() -> None:
        async def script(peer: Http2Peer, request: Http2Request) -> None:
            chosen.append(peer.writer.get_extra_info("ssl_object").selected_alpn_protocol())
            await reply(b"a")(peer, request)

        async with Http2Origin(script, tls=context) as origin:  # type: ignore[arg-type]
            transport = Transport()
            two = at(origin, tls_ca=ca.file)
            one = endpoint_of(origin, tls_ca=ca.file)
            assert await answered(transport, two) == b"a"
            with pytest.raises(Garbled):  # this one speaks HTTP/2 whatever was agreed
                await ask(transport, one)
            assert await answered(transport, two) == b"a"
            assert chosen == ["h2", "h2"]
            agreed = [peer.writer.get_extra_info("ssl_object").selected_alpn_protocol() for peer in origin.peers]
            assert agreed == ["h2", "http/1.1"]
            assert one != two and len(transport._pool.origins) == 2
            await transport.close()

    run(main)


@pytest.mark.parametrize("fault", ["trust", "client-certificate"])
def test_a_tls_fault_is_refused(run: Run, tmp_path: Path, fault: str) -> None:
    """Verification holds for HTTP/2 as well, and a server that wants a certificate is not waited for."""
    ca = authority(tmp_path)
    other = authority(tmp_path / "other", "another authority")
    (tmp_path / "other").mkdir()

    async def main() -> None:
        context = h2_context(ca, client_ca=fault == "client-certificate")
        async with Http2Origin(reply(b"a"), tls=context) as origin:
            transport = Transport()
            with pytest.raises(Unreachable, match="cannot be trusted" if fault == "trust" else None):
                await ask(transport, at(origin, tls_ca=other.file if fault == "trust" else ca.file))
            assert origin.requests == []
            assert counts(transport)[0] == 0
            await transport.close()

    run(main)


def test_budgets_hold(run: Run, tmp_path: Path, moved: Moved) -> None:
    """Until the request goes out it is `connect`, then `headers`, `first_event`, `idle`; or `unary` for all of it."""
    ca = authority(tmp_path)
    off = {"headers_s": 0.0, "unary_s": 0.0}

    async def main() -> None:
        async with Origin(SILENCE, greeting=[SILENCE]) as dead:
            transport = Transport()
            with pytest.raises(TimedOut) as caught:
                await ask(transport, at(dead, scheme="https"), budgets=Budgets(**off, connect_s=0.2))
            assert caught.value.phase == "connect"
            await dead.until(lambda: dead.hangups == 1)
            await transport.close()
        async with Http2Origin(scripts=[SILENCE, SILENCE, [_begun, SILENCE]], tls=h2_context(ca)) as origin:
            transport = Transport()
            endpoint = at(origin, tls_ca=ca.file)
            for phase, stream in (("headers", True), ("unary", False)):
                with pytest.raises(TimedOut) as caught:
                    await ask(transport, endpoint, budgets=Budgets(headers_s=0.2, unary_s=0.2), stream=stream)
                assert caught.value.phase == phase
            for phase in ("idle", "first_event", "total"):
                exchange = await ask(transport, endpoint, budgets=Budgets(**off, **{f"{phase}_s": 30}))
                sink = Collected()
                exchange.stream(sink)
                await origin.until(lambda: sink.data == b"half")  # noqa: B023
                moved.passes(30)
                error = await sink.end()
                assert isinstance(error, TimedOut) and error.phase == phase
                moved.passes(-30)
            await origin.until(lambda: origin.hangups == 5)
            assert counts(transport)[0] == 0
            await transport.close()

    run(main)


def test_a_slow_reader_slows_the_server(run: Run) -> None:
    """Nobody reads: the window is not widened, and little is held here (SPEC 3.5)."""

    async def main() -> None:
        sent = 0

        async def script(peer: Http2Peer, request: Http2Request) -> None:
            nonlocal sent
            await peer.head(request)
            for _ in range(300):
                await peer.data(request, b"x" * 100_000)
                sent += 1
            await peer.data(request, b"", end=True)

        async with Http2Origin(script) as origin:  # type: ignore[arg-type]
            transport = Transport()
            exchange = await ask(transport, at(origin))
            sink = Collected()
            exchange.stream(sink)
            exchange.pause()
            stable = -1
            while stable != sent:
                stable = sent
                await asyncio.sleep(0.1)
            assert sent < 300
            assert len(sink.data) + exchange._backlog_bytes <= 256 << 10
            exchange.resume()
            assert await sink.end() is None
            assert len(sink.data) == 30_000_000
            await transport.close()

    run(main, debug=False)


def test_large_bodies_go_out_as_the_server_takes_them(run: Run) -> None:
    """Beyond the window it waits for more, and every byte arrives in order."""

    async def main() -> None:
        body = bytes(range(256)) * 8192  # 2 MiB
        async with Http2Origin(reply(b"a")) as origin:
            transport = Transport()
            for sent in (body, Pieces(body[:20], memoryview(body)[20:])):
                assert await answered(transport, at(origin), body=sent) == b"a"
                assert origin.requests[-1].body == body
            await transport.close()

    run(main, debug=False)


@pytest.mark.parametrize("then", ["nothing", "reset", "close"])
def test_an_answer_before_the_request_was_taken_is_not_lost(run: Run, then: str) -> None:
    """A 413 for a body that nobody will read: the client learns of it, and the connection is not used again."""

    async def main() -> None:
        async def script(peer: Http2Peer, request: Http2Request) -> None:
            await peer.head(request, "413", ("content-length", "5"))
            await peer.data(request, b"large", end=True)
            if then == "reset":
                await peer.reset_stream(request, ErrorCodes.NO_ERROR)
            await peer.gone()

        async with Http2Origin(script, eager=True) as origin:  # type: ignore[arg-type]
            transport = Transport()
            exchange = await ask(transport, at(origin), body=b"x" * (1 << 20))
            assert exchange.status == 413
            assert await exchange.read(9) == b"large"
            await origin.until(lambda: counts(transport)[0] == 0)
            await transport.close()

    run(main)


def raw(frame: str) -> Any:
    async def script(peer: Http2Peer, request: Http2Request) -> None:
        await peer.send(bytes.fromhex(frame))

    return script


def head(*fields: tuple[str, str]) -> Any:
    async def script(peer: Http2Peer, request: Http2Request) -> None:
        peer.state.send_headers(request.stream, list(fields))
        await peer.flush()

    return script


@pytest.mark.parametrize(
    "step",
    [
        raw("ffffff 00 00 00000001"),
        raw("000001 00 01 00000001 61"),  # DATA before any head
        head((":status", "abc")),
        head((":status", "2")),
        head((":status", "200"), ("x-a", "b\r\nset-cookie: c")),
        head((":status", "200"), ("x a", "b")),
        head((":status", "200"), ("content-length", "many")),
        head((":status", "200"), *((f"x-{number}", "y" * 1000) for number in range(80))),
    ],
    ids=["huge-frame", "data-first", "no-number", "short", "split-value", "split-name", "length", "too-many"],
)
def test_nonsense_is_garbled(run: Run, step: Any) -> None:
    """No field that could break out of its line goes on, and no mistake of theirs is the caller's."""

    async def main() -> None:
        async with Http2Origin([step, SILENCE]) as origin:
            transport = Transport()
            with pytest.raises(Garbled, match="not proper HTTP/2"):
                await ask(transport, at(origin))
            assert counts(transport)[0] == 0
            await transport.close()

    run(main)


def test_nonsense_in_a_body_is_garbled(run: Run) -> None:
    """As on any other connection."""

    async def main() -> None:
        half = asyncio.Event()
        async with Http2Origin([_begun, half, raw("ffffff 00 00 00000001"), SILENCE]) as origin:
            transport = Transport()
            sink = Collected()
            (await ask(transport, at(origin))).stream(sink)
            await origin.until(lambda: sink.data == b"half")
            half.set()
            assert type(await sink.end()) is Garbled
            assert sink.data == b"half"
            assert counts(transport)[0] == 0
            await transport.close()

    run(main)


def test_what_is_left_unread_is_drained(run: Run, moved: Moved) -> None:
    """Little is read and the connection kept; much, or what never ends, closes it (SPEC 3.2)."""

    async def main() -> None:
        finished = asyncio.Event()

        async def little(peer: Http2Peer, request: Http2Request) -> None:
            await peer.data(request, b"two", end=True)

        async def much(peer: Http2Peer, request: Http2Request) -> None:
            await peer.data(request, b"x" * (90 << 10))

        scripts: list[Any] = [[_begun, finished, little], [_begun, finished, much, SILENCE], [_begun, SILENCE]]
        async with Http2Origin(scripts=scripts) as origin:
            transport = Transport()
            (await ask(transport, at(origin))).finish()
            assert counts(transport) == (1, 0, 1, 0)
            finished.set()
            await origin.until(lambda: counts(transport) == (1, 1, 0, 0))
            finished.clear()
            (await ask(transport, at(origin))).finish()
            finished.set()
            await origin.until(lambda: counts(transport)[0] == 0)
            (await ask(transport, at(origin))).finish()
            moved.passes(pool.DRAIN_S)
            await origin.until(lambda: counts(transport)[0] == 0)
            await transport.close()

    run(main)


def test_connections_count_against_the_providers_cap(run: Run) -> None:
    """One exchange each: the third waits, and goes out on the connection that comes free."""

    async def main() -> None:
        let = asyncio.Event()

        async def script(peer: Http2Peer, request: Http2Request) -> None:
            await let.wait()
            await reply(b"a")(peer, request)

        async with Http2Origin(script) as origin:  # type: ignore[arg-type]
            transport = Transport()
            asking = [asyncio.ensure_future(answered(transport, at(origin), max_connections=2)) for _ in range(3)]
            await origin.until(lambda: counts(transport) == (2, 0, 0, 1) and len(origin.requests) == 2)
            let.set()
            assert await asyncio.gather(*asking) == [b"a"] * 3
            assert len(origin.peers) == 2
            await transport.close()

    run(main)
