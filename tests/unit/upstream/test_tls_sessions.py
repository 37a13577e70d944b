"""A new connection resumes the TLS session of an earlier one, and never that of another identity or place."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import replace
from pathlib import Path

import pytest

from arbiter.config.snapshot import Budgets, Endpoint
from arbiter.errors import TimedOut, Unreachable
from arbiter.upstream import tls
from arbiter.upstream.transport import Transport
from tests.fakes.certificates import authority
from tests.fakes.loops import Run
from tests.fakes.origin import Origin, Peer, Request, answer
from tests.fakes.reader import answered, ask, endpoint_of

# One request a connection, so that every request is a handshake.
CLOSING = answer(b"a", headers=[("connection", "close")])


class Telling:
    """A script that notes of each request whether its connection resumed a session."""

    def __init__(self) -> None:
        self.resumed: list[bool] = []

    async def __call__(self, peer: Peer, request: Request) -> None:
        self.resumed.append(peer.writer.get_extra_info("ssl_object").session_reused)
        await peer.send(CLOSING)
        peer.close()


async def asked(transport: Transport, *endpoints: Endpoint) -> None:
    for endpoint in endpoints:
        assert await answered(transport, endpoint) == b"a"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def test_the_next_connection_resumes(run: Run, tmp_path: Path, version: ssl.TLSVersion) -> None:
    """In TLS 1.3 too, where the ticket arrives after the handshake; and again and again."""
    ca, told = authority(tmp_path), Telling()
    context = ca.server()
    context.maximum_version = version

    async def main() -> None:
        async with Origin(told, tls=context) as origin:
            transport = Transport()
            await asked(transport, *[endpoint_of(origin, tls_ca=ca.file)] * 4)
            assert told.resumed == [False, True, True, True]
            await transport.close()

    run(main)


def test_a_burst_resumes_what_one_connection_left(run: Run, tmp_path: Path) -> None:
    """All of it, at once; a burst with nothing to resume makes its handshakes and leaves one session."""
    ca, told = authority(tmp_path), Telling()

    async def main() -> None:
        async with Origin(told, tls=ca.server()) as origin:
            transport = Transport()
            endpoint = endpoint_of(origin, tls_ca=ca.file)
            for _ in range(2):
                await asyncio.gather(*[asked(transport, endpoint) for _ in range(8)])
            assert told.resumed == [False] * 8 + [True] * 8
            await transport.close()

    run(main)


def test_no_other_identity_resumes(run: Run, tmp_path: Path) -> None:
    """Each of CA file, client certificate and server name by itself, though the server would take any."""
    ca, told = authority(tmp_path), Telling()
    cert, key = ca.client_files()
    copy = tmp_path / "copy.pem"
    copy.write_bytes(Path(ca.file).read_bytes())
    context = ca.server(client_ca=True)
    context.verify_mode = ssl.CERT_OPTIONAL

    async def main() -> None:
        async with Origin(told, tls=context) as origin:
            transport = Transport()
            identities = [
                endpoint_of(origin, tls_ca=ca.file),
                endpoint_of(origin, tls_ca=ca.file, tls_cert=cert, tls_key=key),
                endpoint_of(origin, tls_ca=ca.file, host="localhost"),
                endpoint_of(origin, tls_ca=str(copy)),
            ]
            await asked(transport, *identities)
            assert told.resumed == [False] * 4
            await asked(transport, *reversed(identities))
            assert told.resumed == [False] * 4 + [True] * 4
            await transport.close()

    run(main)


def test_no_other_place_resumes(run: Run, tmp_path: Path) -> None:
    """Another port or socket of the same name, though one context and so one ticket key serves them all."""
    ca, told = authority(tmp_path), Telling()
    context = ca.server()

    async def main() -> None:
        path = str(tmp_path / "s")
        async with (
            Origin(told, tls=context) as one,
            Origin(told, tls=context) as two,
            Origin(told, tls=context, uds=path) as three,
        ):
            transport = Transport()
            places = [endpoint_of(origin, tls_ca=ca.file) for origin in (one, two, three)]
            await asked(transport, *places)
            assert told.resumed == [False] * 3
            await asked(transport, *places)
            assert told.resumed == [False] * 3 + [True] * 3
            await transport.close()

    run(main)


def test_a_session_lends_no_trust_to_another_ca(run: Run, tmp_path: Path) -> None:
    """Who does not trust the server is refused, though another identity had a session with it a moment ago."""
    ca, told = authority(tmp_path), Telling()

    async def main() -> None:
        async with Origin(told, tls=ca.server()) as origin:
            transport = Transport()
            await asked(transport, endpoint_of(origin, tls_ca=ca.file))
            with pytest.raises(Unreachable, match="cannot be trusted"):
                await ask(transport, endpoint_of(origin))
            await asked(transport, endpoint_of(origin, tls_ca=ca.file))
            assert told.resumed == [False, True]
            await transport.close()

    run(main)


def test_a_reload_verifies_anew(run: Run, tmp_path: Path) -> None:
    """The CA's file may say something else now."""
    ca, told = authority(tmp_path), Telling()

    async def main() -> None:
        async with Origin(told, tls=ca.server()) as origin:
            transport = Transport()
            endpoint = endpoint_of(origin, tls_ca=ca.file)
            await asked(transport, endpoint, endpoint)
            transport.renew([endpoint])
            await asked(transport, endpoint, endpoint)
            assert told.resumed == [False, True, False, True]
            await transport.close()

    run(main)


def test_certificates_are_looked_at_every_hour(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted from the handshake that looked: resuming does not put it off."""
    ca, told = authority(tmp_path), Telling()
    now = [1000.0]
    monkeypatch.setattr(tls, "monotonic", lambda: now[0])

    async def main() -> None:
        async with Origin(told, tls=ca.server()) as origin:
            transport = Transport()
            endpoint = endpoint_of(origin, tls_ca=ca.file)
            for later_s in (0, 3000, 500, 200, 3000):
                now[0] += later_s
                await asked(transport, endpoint)
            assert told.resumed == [False, True, True, False, True]
            await transport.close()

    run(main)


def test_a_server_without_tickets_is_served(run: Run, tmp_path: Path) -> None:
    """With a full handshake each time."""
    ca, told = authority(tmp_path), Telling()
    context = ca.server()
    context.num_tickets = 0

    async def main() -> None:
        async with Origin(told, tls=context) as origin:
            transport = Transport()
            await asked(transport, *[endpoint_of(origin, tls_ca=ca.file)] * 3)
            assert told.resumed == [False] * 3
            assert not transport._sessions._kept
            await transport.close()

    run(main)


def test_a_server_that_forgot_its_keys_is_served(run: Run, tmp_path: Path) -> None:
    """It passes over the session, and what it gives then is resumed."""
    ca, told = authority(tmp_path), Telling()

    async def main() -> None:
        transport = Transport()
        port = 0
        for _ in range(2):
            async with Origin(told, tls=ca.server(), port=port) as origin:
                port = origin.port
                await asked(transport, *[endpoint_of(origin, tls_ca=ca.file)] * 2)
        assert told.resumed == [False, True, False, True]
        await transport.close()

    run(main)


def test_a_server_that_ends_the_handshake_gets_one_without_a_session(run: Run, tmp_path: Path) -> None:
    """No request is lost to a session. A handshake that offered none is not repeated."""
    ca, told = authority(tmp_path), Telling()
    alerts = [False, True, False, False, True]
    hellos: list[object] = []
    context = ca.server("localhost")

    def on_hello(_socket: object, name: object, _context: object) -> int | None:
        hellos.append(name)
        return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR if alerts[len(hellos) - 1] else None  # type: ignore[attr-defined]

    context.sni_callback = on_hello  # type: ignore[assignment]

    async def main() -> None:
        async with Origin(told, tls=context) as origin:
            transport = Transport()
            endpoint = endpoint_of(origin, host="localhost", tls_ca=ca.file)
            await asked(transport, endpoint, endpoint, endpoint)
            assert (len(hellos), told.resumed) == (4, [False, False, True])
            transport.renew([endpoint])
            with pytest.raises(Unreachable):
                await ask(transport, endpoint)
            assert len(hellos) == 5
            await transport.close()

    run(main)


def test_a_resumed_connection_that_gives_no_answer_is_not_resumed_again(run: Run, tmp_path: Path) -> None:
    """Whatever the server had against it."""
    ca, told = authority(tmp_path), Telling()

    async def hang_up(peer: Peer, request: Request) -> None:
        told.resumed.append(peer.writer.get_extra_info("ssl_object").session_reused)
        peer.close()

    async def main() -> None:
        async with Origin(scripts=[told, hang_up, told], tls=ca.server()) as origin:
            transport = Transport()
            endpoint = endpoint_of(origin, tls_ca=ca.file)
            await asked(transport, endpoint)
            with pytest.raises(Unreachable):
                await ask(transport, endpoint)
            await asked(transport, endpoint)
            assert told.resumed == [False, True, False]
            await transport.close()

    run(main)


def test_a_session_whose_handshake_never_ends_is_not_offered_again(run: Run, tmp_path: Path) -> None:
    """What passes over such a hello, on the way or at its end, else meets every connection of an hour."""
    ca, told = authority(tmp_path), Telling()
    swallowed = [False, True, False]
    pipes: list[asyncio.StreamWriter] = []

    async def main() -> None:
        async with Origin(told, tls=ca.server()) as origin:

            async def hand_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                pipes.append(writer)
                if swallowed[len(pipes) - 1]:
                    return
                from_origin, to_origin = await asyncio.open_connection(origin.host, origin.port)
                await asyncio.gather(pump(reader, to_origin), pump(from_origin, writer))

            async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                while data := await reader.read(65536):
                    writer.write(data)
                writer.close()

            between = await asyncio.start_server(hand_on, "127.0.0.1", 0)
            transport = Transport()
            endpoint = replace(endpoint_of(origin, tls_ca=ca.file), port=between.sockets[0].getsockname()[1])
            await asked(transport, endpoint)
            with pytest.raises(TimedOut):
                await ask(transport, endpoint, budgets=Budgets(connect_s=0.2))
            await asked(transport, endpoint)
            assert told.resumed == [False, False]
            await transport.close()
            for pipe in pipes:
                pipe.close()
            between.close()

    run(main)
