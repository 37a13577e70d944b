"""TLS to an upstream: always verified, by the system's trust or the configured CA (SPEC 3.1)."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import warnings
from pathlib import Path

import pytest

from arbiter.errors import ConfigFault, Cut, Unreachable
from arbiter.pieces import Pieces
from arbiter.upstream.tls import Contexts
from arbiter.upstream.transport import Transport
from tests.fakes.certificates import authority
from tests.fakes.loops import Run
from tests.fakes.origin import CLOSE, LAST_CHUNK, RESET, SILENCE, Origin, Peer, Request, answer, chunk, chunked_head
from tests.fakes.reader import Collected, answered, ask, counts, endpoint_of


def test_a_private_ca_is_trusted_where_it_is_configured(run: Run, tmp_path: Path) -> None:
    """And its connections are kept, streamed over, and drained like any other."""
    ca = authority(tmp_path)

    async def main() -> None:
        stream = [chunked_head() + chunk(b"one"), 0.01, chunk(b"two") + LAST_CHUNK]
        async with Origin(scripts=[answer(b"a"), stream, stream, answer(b"b")], tls=ca.server()) as origin:
            transport = Transport()
            endpoint = endpoint_of(origin, tls_ca=ca.file)
            assert await answered(transport, endpoint) == b"a"
            exchange = await ask(transport, endpoint)
            sink = Collected()
            exchange.stream(sink)
            assert await sink.end() is None
            assert sink.data == b"onetwo"
            (await ask(transport, endpoint)).finish()
            await origin.until(lambda: counts(transport) == (1, 1, 0, 0))
            assert await answered(transport, endpoint) == b"b"
            assert len(origin.peers) == 1
            await transport.close()

    run(main)


def test_a_body_in_pieces_arrives_whole_through_tls(run: Run, tmp_path: Path) -> None:
    ca = authority(tmp_path)

    async def main() -> None:
        whole = bytes(range(256)) * 8_000
        async with Origin(answer(b"a"), tls=ca.server()) as origin:
            transport = Transport()
            pieces = Pieces(whole[:20], memoryview(whole)[20:-1], whole[-1:])
            assert await answered(transport, endpoint_of(origin, tls_ca=ca.file), body=pieces) == b"a"
            assert origin.requests[0].body == whole
            await transport.close()

    run(main, debug=False)


@pytest.mark.parametrize("why", ["unknown CA", "another CA", "another name"])
def test_a_certificate_that_proves_nothing_is_refused(run: Run, tmp_path: Path, why: str) -> None:
    """Before a byte of the request, and with the reason in the message."""
    ca = authority(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    file = {"unknown CA": None, "another CA": authority(other, "someone else").file, "another name": ca.file}[why]
    names = ("example.org",) if why == "another name" else ()

    async def main() -> None:
        async with Origin(answer(b"a"), tls=ca.server(*names)) as origin:
            transport = Transport()
            with pytest.raises(Unreachable, match="cannot be trusted"):
                await ask(transport, endpoint_of(origin, tls_ca=file))
            assert origin.requests == []
            assert counts(transport)[0] == 0
            await transport.close()

    run(main)


def test_the_server_is_named_and_offered_http_1_1(run: Run, tmp_path: Path) -> None:
    """SNI for a named host, ALPN for a server that could also speak HTTP/2 (FEATURES A74)."""
    ca = authority(tmp_path)
    names: list[str | None] = []
    context = ca.server("localhost")
    context.set_alpn_protocols(["h2", "http/1.1"])
    context.sni_callback = lambda _socket, name, _context: names.append(name)
    chosen: list[str | None] = []

    async def main() -> None:
        async def script(peer: Peer, request: Request) -> None:
            chosen.append(peer.writer.get_extra_info("ssl_object").selected_alpn_protocol())
            await peer.send(answer(b"a"))

        async with Origin(script, tls=context) as origin:
            transport = Transport()
            assert await answered(transport, endpoint_of(origin, host="localhost", tls_ca=ca.file)) == b"a"
            assert (names, chosen) == (["localhost"], ["http/1.1"])
            await transport.close()

    run(main)


def test_a_client_certificate_is_shown_where_configured(run: Run, tmp_path: Path) -> None:
    """And a connection made without it is never used for an endpoint that has one."""
    ca = authority(tmp_path)
    cert, key = ca.client_files()

    async def main() -> None:
        async with Origin(answer(b"a"), tls=ca.server(client_ca=True)) as origin:
            transport = Transport()
            with_one = endpoint_of(origin, tls_ca=ca.file, tls_cert=cert, tls_key=key)
            assert await answered(transport, with_one) == b"a"
            with pytest.raises(Unreachable):
                await ask(transport, endpoint_of(origin, tls_ca=ca.file))
            assert len(transport._pool.origins) == 2
            await transport.close()

    run(main)


def test_files_that_cannot_be_used_are_the_operators_fault(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A wrong path looks like a wrong path, not like an upstream that is down; clients are not told which it is."""
    broken = tmp_path / "broken.pem"
    broken.write_text("not a certificate")

    async def main() -> None:
        async with Origin(answer(b"a"), tls=authority(tmp_path).server()) as origin:
            transport = Transport()
            for files in ({"tls_ca": "/nonexistent"}, {"tls_ca": str(broken)}, {"tls_cert": "/nonexistent"}) * 2:
                with pytest.raises(ConfigFault, match=r"the provider's tls\.(ca|cert) cannot be used: .") as fault:
                    await ask(transport, endpoint_of(origin, **files))
                assert "nonexistent" not in str(fault.value) and "broken.pem" not in str(fault.value)
            said = "\n".join(record.getMessage() for record in caplog.records)
            assert said.count("tls.ca /nonexistent cannot") == said.count("tls.cert /nonexistent cannot") == 1
            assert said.count(str(broken)) == 1
            assert counts(transport)[0] == 0
            await transport.close()

    run(main)


def test_old_protocols_are_refused(run: Run, tmp_path: Path) -> None:
    """TLS 1.2 is the least."""
    ca = authority(tmp_path)
    context = ca.server()
    with warnings.catch_warnings(action="ignore"):
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")

    async def main() -> None:
        async with Origin(answer(b"a"), tls=context) as origin:
            transport = Transport()
            with pytest.raises(Unreachable):
                await ask(transport, endpoint_of(origin, tls_ca=ca.file))
            await transport.close()

    run(main)


def test_plain_http_on_a_tls_port_is_an_error_not_a_hang(run: Run, tmp_path: Path) -> None:
    """Both ways round."""
    ca = authority(tmp_path)

    async def main() -> None:
        transport = Transport()
        async with Origin([b"HTTP/1.1 400 Bad Request\r\n\r\n", CLOSE], greeting=b"HTTP/1.1 400 No\r\n\r\n") as origin:
            with pytest.raises(Unreachable):
                await ask(transport, endpoint_of(origin, scheme="https", tls_ca=ca.file))
        async with Origin(answer(b"a"), tls=ca.server()) as origin:
            with pytest.raises(Unreachable):
                await ask(transport, endpoint_of(origin, scheme="http"))
        await transport.close()

    run(main)


@pytest.mark.parametrize("ending", [CLOSE, RESET], ids=["close", "reset"])
def test_a_tls_connection_that_breaks_cuts_the_answer(run: Run, tmp_path: Path, ending: object) -> None:
    """A known length is not reached."""
    ca = authority(tmp_path)

    async def main() -> None:
        async with Origin([answer(b"half", length=9), 0.01, ending], tls=ca.server()) as origin:  # type: ignore[list-item]
            transport = Transport()
            exchange = await ask(transport, endpoint_of(origin, tls_ca=ca.file))
            with pytest.raises(Cut):
                await exchange.read(100)
            await transport.close()

    run(main)


@pytest.mark.parametrize("goodbye", [True, False], ids=["with-goodbye", "without"])
def test_a_tls_body_without_length_ends_with_a_goodbye(run: Run, tmp_path: Path, goodbye: bool) -> None:
    """A bare TCP end is anybody's to forge: then the body is cut (RFC 9112 section 9.8)."""
    ca = authority(tmp_path)

    async def main() -> None:
        async def script(peer: Peer, request: Request) -> None:
            await peer.send(b"HTTP/1.1 200 OK\r\n\r\nto the end")
            if goodbye:
                peer.close()
            else:
                peer.closed = True
                with socket.socket(fileno=os.dup(peer.writer.get_extra_info("socket").fileno())) as bare:
                    bare.shutdown(socket.SHUT_WR)
                await peer.gone()

        async with Origin(script, tls=ca.server()) as origin:
            transport = Transport()
            exchange = await ask(transport, endpoint_of(origin, tls_ca=ca.file))
            sink = Collected()
            exchange.stream(sink)
            error = await sink.end()
            assert sink.data == b"to the end"
            assert exchange.eof_delimited
            assert error is None if goodbye else isinstance(error, Cut)
            await transport.close()

    run(main)


def test_abort_closes_a_tls_connection_at_once(run: Run, tmp_path: Path) -> None:
    """No goodbye is waited for: the server must stop generating (SPEC 3.4)."""
    ca = authority(tmp_path)

    async def main() -> None:
        async with Origin([chunked_head() + chunk(b"one"), SILENCE], tls=ca.server()) as origin:
            transport = Transport()
            exchange = await ask(transport, endpoint_of(origin, tls_ca=ca.file))
            began = asyncio.get_running_loop().time()
            exchange.abort()
            await origin.until(lambda: origin.hangups == 1)
            assert asyncio.get_running_loop().time() - began < 5
            await transport.close()

    run(main)


def test_backpressure_reaches_through_tls(run: Run, tmp_path: Path) -> None:
    """A paused reader stops a server that has 30 MB to say."""
    ca = authority(tmp_path)

    async def main() -> None:
        body = b"x" * (30 << 20)
        async with Origin(answer(body), tls=ca.server()) as origin:
            transport = Transport()
            exchange = await ask(transport, endpoint_of(origin, tls_ca=ca.file))
            sink = Collected()
            exchange.stream(sink)
            exchange.pause()
            before = len(sink.data)
            await asyncio.sleep(0.2)
            assert len(sink.data) == before
            assert exchange._backlog_bytes <= 256 << 10
            exchange.resume()
            assert await sink.end() is None
            assert len(sink.data) == len(body)
            await transport.close()

    run(main, debug=False)


def test_contexts_are_built_once_per_identity(tmp_path: Path) -> None:
    """Building one reads the system's trust: tens of milliseconds."""
    contexts = Contexts()
    ca = authority(tmp_path)
    one = contexts.get(ca.file, None, None)
    assert contexts.get(ca.file, None, None) is one
    assert contexts.get(None, None, None) is not one
    assert one.verify_mode == ssl.CERT_REQUIRED
    assert one.check_hostname
