"""Upstreams behind an HTTP proxy or SOCKS5: the same exchange by another road (SPEC 3.1)."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import pytest

from arbiter.config.snapshot import Budgets
from arbiter.errors import ConfigFault, Cut, Garbled, TimedOut, Unreachable
from arbiter.upstream import pool
from arbiter.upstream.transport import Transport
from tests.fakes.certificates import authority
from tests.fakes.loops import Run
from tests.fakes.origin import CLOSE, LAST_CHUNK, SILENCE, Origin, Peer, Request, answer, chunk, chunked, chunked_head
from tests.fakes.proxy import HttpProxy, Socks5
from tests.fakes.reader import Collected, answered, ask, counts, endpoint_of
from tests.unit.upstream.conftest import Moved

PROXIES = [
    pytest.param(lambda: HttpProxy(), id="http"),
    pytest.param(lambda: HttpProxy(user=b"u", password=b"p"), id="http-with-password"),
    pytest.param(lambda: Socks5(), id="socks5"),
    pytest.param(lambda: Socks5(user=b"u", password=b"p"), id="socks5-with-password"),
]


@pytest.mark.parametrize("make", PROXIES)
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_requests_go_through_the_proxy_and_answers_come_back(run: Run, tmp_path: Path, make, secure: bool) -> None:  # type: ignore[no-untyped-def]
    """Unary and streamed, on one connection, compressed too; the origin sees what a direct request would show it."""
    ca = authority(tmp_path)

    async def main() -> None:
        import gzip

        packed = answer(gzip.compress(b"packed"), headers=[("Content-Encoding", "gzip")])
        scripts = [answer(b"a", headers=[("X-One", "1")]), chunked(b"b", b"c"), packed]
        async with Origin(scripts=scripts, tls=ca.server() if secure else None) as origin, make() as proxy:
            transport = Transport()
            endpoint = endpoint_of(origin, proxy=proxy.url, tls_ca=ca.file if secure else None)
            exchange = await ask(transport, endpoint, path="/v1/a?b=c", headers=[("x-a", "1")], body=b"{}")
            assert exchange.connect_us is not None and not exchange.reused
            assert (exchange.status, exchange.header("x-one")) == (200, "1")
            assert await exchange.read(9) == b"a"
            await origin.until(lambda: counts(transport) == (1, 1, 0, 0))
            exchange = await ask(transport, endpoint)
            assert exchange.reused and exchange.connect_us is None
            sink = Collected()
            exchange.stream(sink)
            assert await sink.end() is None
            assert sink.data == b"bc"
            assert await answered(transport, endpoint) == b"packed"
            seen = origin.requests[0]
            assert (seen.method, seen.target, seen.body, seen.header("x-a")) == ("POST", "/v1/a?b=c", b"{}", "1")
            assert seen.header("host") == f"127.0.0.1:{origin.port}"
            assert proxy.asked == [f"127.0.0.1:{origin.port}"]
            assert proxy.connections == 1
            if proxy.heads and "u:p@" in proxy.url:
                assert b"Basic " + base64.b64encode(b"u:p") in proxy.heads[0]
            await transport.close()

    run(main)


@pytest.mark.parametrize("status", ["600", "999"])
def test_a_status_that_http_does_not_have_is_no_answer(run: Run, status: str) -> None:
    """Directly and by the other road; and nothing is asked on that connection again."""

    async def main() -> None:
        async with Origin(answer(b"x", status=f"{status} Oh")) as origin, HttpProxy() as proxy:
            transport = Transport()
            for endpoint in (endpoint_of(origin), endpoint_of(origin, proxy=proxy.url)):
                with pytest.raises(Garbled, match=f"the status {status}"):
                    await ask(transport, endpoint)
            await origin.until(lambda: origin.hangups == 2)
            assert all(one["open"] == 0 for one in transport.stats())
            await transport.close()

    run(main)


def test_the_origin_does_not_see_what_is_for_the_proxy(run: Run, tmp_path: Path) -> None:
    """The proxy's password stays with the proxy, where a tunnel makes that possible."""
    ca = authority(tmp_path)

    async def main() -> None:
        async with Origin(answer(b"a"), tls=ca.server()) as origin, HttpProxy(user=b"u", password=b"p") as proxy:
            transport = Transport()
            await answered(transport, endpoint_of(origin, proxy=proxy.url, tls_ca=ca.file))
            assert origin.requests[0].header("proxy-authorization") is None
            await transport.close()

    run(main)


@pytest.mark.parametrize("make", [lambda: HttpProxy(refuse=b"HTTP/1.1 407 No\r\n\r\n"), lambda: Socks5(refuse=b"no")])
def test_a_proxy_that_refuses_makes_the_upstream_unreachable(run: Run, tmp_path: Path, make) -> None:  # type: ignore[no-untyped-def]
    """And says so."""
    ca = authority(tmp_path)

    async def main() -> None:
        async with Origin(answer(b"a"), tls=ca.server()) as origin, make() as proxy:
            transport = Transport()
            with pytest.raises(Unreachable, match="proxy refused"):
                await ask(transport, endpoint_of(origin, proxy=proxy.url, tls_ca=ca.file))
            assert counts(transport)[0] == 0
            await transport.close()

    run(main)


@pytest.mark.parametrize("http2", [False, True], ids=["http1", "http2"])
@pytest.mark.parametrize("said", [CLOSE, b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x05\x00"])
def test_a_proxy_that_is_no_socks_proxy_makes_the_upstream_unreachable(run: Run, said: object, http2: bool) -> None:
    """At once, whichever of its replies is none."""

    async def main() -> None:
        async with Origin(greeting=[said, CLOSE]) as origin:  # type: ignore[list-item]
            transport = Transport()
            endpoint = endpoint_of(origin, http2=http2, proxy=f"socks5://127.0.0.1:{origin.port}")
            with pytest.raises(Unreachable, match=r"does not speak SOCKS5|cannot be reached"):
                await ask(transport, endpoint)
            assert counts(transport)[0] == 0
            await transport.close()

    run(main)


def test_a_tls_alert_after_the_handshake_is_no_wait(run: Run, tmp_path: Path) -> None:
    """TLS 1.3 refuses a missing client certificate only then."""
    ca = authority(tmp_path)

    async def main() -> None:
        async with Origin(answer(b"a"), tls=ca.server(client_ca=True)) as origin, HttpProxy() as proxy:
            transport = Transport()
            with pytest.raises(Unreachable):
                await ask(transport, endpoint_of(origin, proxy=proxy.url, tls_ca=ca.file))
            assert counts(transport)[0] == 0
            await transport.close()

    run(main)


def test_a_proxy_that_is_not_there_makes_the_upstream_unreachable(run: Run) -> None:
    """Refused, not configured wrong."""

    async def main() -> None:
        async with Origin(answer(b"a")) as origin:
            transport = Transport()
            with pytest.raises(Unreachable):
                await ask(transport, endpoint_of(origin, proxy="http://127.0.0.1:1"))
            assert counts(transport)[0] == 0
            await transport.close()

    run(main)


@pytest.mark.parametrize("url", ["ftp://127.0.0.1:21", "http://127.0.0.1:notaport", "127.0.0.1:3128"])
def test_a_proxy_nobody_can_speak_to_is_the_operators_fault(run: Run, url: str) -> None:
    """It is tried once, and looks like what it is."""

    async def main() -> None:
        async with Origin(answer(b"a")) as origin:
            transport = Transport()
            with pytest.raises(ConfigFault):
                await ask(transport, endpoint_of(origin, proxy=url))
            assert counts(transport)[0] == 0
            await transport.close()

    run(main)


def test_a_tls_fault_behind_a_proxy_is_refused(run: Run, tmp_path: Path) -> None:
    """A proxy in the middle is exactly what verification is for."""

    async def main() -> None:
        async with Origin(answer(b"a"), tls=authority(tmp_path).server()) as origin, HttpProxy() as proxy:
            transport = Transport()
            with pytest.raises(Unreachable):
                await ask(transport, endpoint_of(origin, proxy=proxy.url))
            assert origin.requests == []
            await transport.close()

    run(main)


def test_budgets_hold_behind_a_proxy(run: Run, tmp_path: Path) -> None:
    """Until the request goes out it is `connect`, then `headers`, then `idle`."""
    ca = authority(tmp_path)

    async def main() -> None:
        off = {"headers_s": 0.0, "unary_s": 0.0}
        async with Origin(SILENCE, greeting=[SILENCE]) as silent, HttpProxy() as proxy:
            transport = Transport()
            dead = endpoint_of(silent, scheme="https", proxy=proxy.url, tls_ca=ca.file)
            with pytest.raises(TimedOut) as caught:
                await ask(transport, dead, budgets=Budgets(**off, connect_s=0.2))
            assert caught.value.phase == "connect"
            await silent.until(lambda: silent.hangups == 1)
            await transport.close()
        async with (
            Origin(scripts=[SILENCE, [chunked_head(), SILENCE]], tls=ca.server()) as origin,
            HttpProxy() as proxy,
        ):
            transport = Transport()
            endpoint = endpoint_of(origin, proxy=proxy.url, tls_ca=ca.file)
            with pytest.raises(TimedOut) as caught:
                await ask(transport, endpoint, budgets=Budgets(headers_s=0.2))
            assert caught.value.phase == "headers"
            exchange = await ask(transport, endpoint, budgets=Budgets(**off, idle_s=0.2))
            sink = Collected()
            exchange.stream(sink)
            error = await sink.end()
            assert isinstance(error, TimedOut) and error.phase == "idle"
            await origin.until(lambda: origin.hangups == 2)
            assert counts(transport)[0] == 0
            await transport.close()

    run(main)


@pytest.mark.parametrize(
    ("steps", "error"),
    [
        ([answer(b"half", length=9), CLOSE], Cut),
        ([chunked_head() + chunk(b"half"), CLOSE], Cut),
        ([chunked_head() + chunk(b"half") + b"zz\r\n", SILENCE], Garbled),
    ],
)
def test_broken_bodies_are_told_apart(run: Run, steps: list[object], error: type) -> None:
    """As on a direct connection."""

    async def main() -> None:
        async with Origin(steps) as origin, HttpProxy() as proxy:  # type: ignore[arg-type]
            transport = Transport()
            exchange = await ask(transport, endpoint_of(origin, proxy=proxy.url))
            sink = Collected()
            exchange.stream(sink)
            assert type(await sink.end()) is error
            assert sink.data == b"half"
            assert counts(transport)[0] == 0
            await transport.close()

    run(main)


@pytest.mark.parametrize("steps", [[CLOSE], [b"SSH-2.0\r\n\r\n", SILENCE]])
def test_no_answer_behind_a_proxy(run: Run, steps: list[object]) -> None:
    """Nothing is unreachable, nonsense is garbled; both are sent once."""

    async def main() -> None:
        async with Origin(steps) as origin, HttpProxy() as proxy:  # type: ignore[arg-type]
            transport = Transport()
            with pytest.raises(Unreachable if steps == [CLOSE] else Garbled):
                await ask(transport, endpoint_of(origin, proxy=proxy.url))
            assert len(origin.requests) == 1
            assert counts(transport)[0] == 0
            await transport.close()

    run(main)


def test_a_kept_connection_that_died_is_replaced(run: Run) -> None:
    """Seen before the send where it can be, resent where it cannot."""

    async def main() -> None:
        async with Origin(scripts=[answer(b"a"), [CLOSE], answer(b"b")]) as origin, HttpProxy() as proxy:
            transport = Transport()
            endpoint = endpoint_of(origin, proxy=proxy.url)
            assert await answered(transport, endpoint) == b"a"
            exchange = await ask(transport, endpoint)
            assert await exchange.read(9) == b"b" and not exchange.reused
            assert counts(transport)[0] == 1
            await transport.close()

    run(main)


def test_abort_and_cancel_close_the_tunnel(run: Run) -> None:
    """The server behind it must stop generating too."""

    async def main() -> None:
        scripts = [[chunked_head() + chunk(b"one"), SILENCE], SILENCE]
        async with Origin(scripts=scripts) as origin, HttpProxy() as proxy:  # type: ignore[arg-type]
            transport = Transport()
            endpoint = endpoint_of(origin, proxy=proxy.url)
            exchange = await ask(transport, endpoint)
            exchange.abort()
            await origin.until(lambda: origin.hangups == 1)
            waiting = asyncio.ensure_future(ask(transport, endpoint))
            await origin.until(lambda: len(origin.requests) == 2)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await origin.until(lambda: origin.hangups == 2)
            assert counts(transport)[0] == 0
            await transport.close()

    run(main)


def test_draining_works_behind_a_proxy(run: Run, moved: Moved) -> None:
    """Little is read and kept, much is closed, and so is what never ends."""

    async def main() -> None:
        finished = asyncio.Event()
        little = [chunked_head() + chunk(b"one"), finished, chunk(b"two") + LAST_CHUNK]
        much = [chunked_head() + chunk(b"one"), finished, chunk(b"x" * (90 << 10)), SILENCE]
        never = [chunked_head() + chunk(b"one"), SILENCE]
        async with Origin(scripts=[little, much, never]) as origin, HttpProxy() as proxy:  # type: ignore[arg-type]
            transport = Transport()
            endpoint = endpoint_of(origin, proxy=proxy.url)
            (await ask(transport, endpoint)).finish()
            assert counts(transport) == (1, 0, 1, 0)
            finished.set()
            await origin.until(lambda: counts(transport) == (1, 1, 0, 0))
            finished.clear()
            (await ask(transport, endpoint)).finish()
            finished.set()
            await origin.until(lambda: counts(transport)[0] == 0)
            (await ask(transport, endpoint)).finish()
            moved.passes(pool.DRAIN_S)
            await origin.until(lambda: counts(transport)[0] == 0)
            await transport.close()

    run(main)


def test_backpressure_reaches_through_a_proxy(run: Run) -> None:
    """Nobody reads: nobody sends."""

    async def main() -> None:
        sent = 0

        async def script(peer: Peer, request: Request) -> None:
            nonlocal sent
            await peer.send(chunked_head())
            for _ in range(300):
                await peer.send(chunk(b"x" * 100_000))
                sent += 1
            await peer.send(LAST_CHUNK)

        async with Origin(script) as origin, HttpProxy() as proxy:
            transport = Transport()
            exchange = await ask(transport, endpoint_of(origin, proxy=proxy.url))
            sink = Collected()
            exchange.stream(sink)
            exchange.pause()
            stable = -1
            while stable != sent:
                stable = sent
                await asyncio.sleep(0.1)
            assert sent < 300
            exchange.resume()
            assert await sink.end() is None
            assert len(sink.data) == 30_000_000
            await transport.close()

    run(main, debug=False)
