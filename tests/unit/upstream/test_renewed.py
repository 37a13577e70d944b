"""What becomes of connections when the configuration was read again."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import pytest

from arbiter.errors import Unreachable
from arbiter.upstream.transport import Transport
from tests.fakes.certificates import authority
from tests.fakes.loops import Run
from tests.fakes.origin import Origin, Peer, Request, answer
from tests.fakes.reader import answered, ask, counts, endpoint_of


def test_connections_to_a_place_that_is_still_named_stay(run: Run) -> None:
    """It is known by what it is: a reload brings another object for the same place."""

    async def main() -> None:
        async with Origin(answer(b"a")) as origin:
            transport = Transport()
            endpoint = endpoint_of(origin)
            await answered(transport, endpoint)
            again = dataclasses.replace(endpoint)
            transport.renew([again])
            assert counts(transport) == (1, 1, 0, 0)
            exchange = await ask(transport, again)
            assert exchange.reused and await exchange.read(9) == b"a"
            await transport.close()

    run(main)


def test_idle_connections_to_a_place_that_is_gone_close_and_busy_ones_finish(run: Run) -> None:
    async def main() -> None:
        gate = asyncio.Event()

        async def script(peer: Peer, request: Request) -> None:
            if request.target == "/slow":
                await gate.wait()
            await peer.send(answer(b"x"))

        async with Origin(script) as origin:
            transport = Transport()
            endpoint = endpoint_of(origin)
            slow = asyncio.ensure_future(answered(transport, endpoint, path="/slow"))
            await origin.until(lambda: len(origin.requests) == 1)
            await answered(transport, endpoint, path="/quick")
            assert counts(transport) == (2, 1, 0, 0)
            transport.renew([])
            assert counts(transport) == (1, 0, 0, 0)
            gate.set()
            assert await slow == b"x"
            assert counts(transport) == (0, 0, 0, 0), "nor is it kept for anybody"
            # Whoever still goes there, on a plan made before, is served as ever.
            assert await answered(transport, endpoint, path="/quick") == b"x"
            assert counts(transport) == (1, 1, 0, 0)
            await transport.close()

    run(main)


def test_certificates_are_read_anew(run: Run, tmp_path: Path) -> None:
    """A file that was replaced under its name counts from the reload on."""
    ca, other = authority(tmp_path), tmp_path / "other"
    other.mkdir()
    good = Path(ca.file).read_bytes()

    async def main() -> None:
        async with Origin(answer(b"a"), tls=ca.server()) as origin:
            transport = Transport()
            Path(ca.file).write_bytes(Path(authority(other, "someone else").file).read_bytes())
            endpoint = endpoint_of(origin, tls_ca=ca.file)
            with pytest.raises(Unreachable):
                await answered(transport, endpoint)
            Path(ca.file).write_bytes(good)
            transport.renew([endpoint])
            assert await answered(transport, endpoint) == b"a"
            await transport.close()

    run(main)
