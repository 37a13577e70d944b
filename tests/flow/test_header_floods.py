"""Headers without number, from an upstream or from the echo provider: the worker and its other streams live on."""

from __future__ import annotations

import asyncio

import pytest

from tests.fakes.client import Caller, Ending, ask, request, run
from tests.fakes.origin import Origin, Peer, Request, answer
from tests.fakes.wires import CHAT, JSON, WIRES, Front, Wire, begun

each_wire = pytest.mark.parametrize("wire", WIRES, ids=str)
# Granian's map of headers panics, and its process ends, at 24,577 names. They fit into the 256 KiB that we read.
NAMES = [f"quota{a:c}{b:c}{c:c}" for a in range(97, 123) for b in range(97, 123) for c in range(97, 123)]
NAMES += [f"quota-{name[5:]}" for name in NAMES]


@each_wire
@pytest.mark.parametrize("status", ["200 OK", "400 Bad Request", "429 Too Many Requests"])
def test_an_upstream_with_countless_headers_is_garbled_and_hurts_nobody_else(
    front: Front, wire: Wire, status: str
) -> None:
    """It is refused by their number; a stream of the same worker goes on to its end."""
    flood = b"".join(b"%s:\n" % name.encode() for name in NAMES[:25_000])
    assert len(flood) < 256 << 10

    async def main() -> None:
        gate = asyncio.Event()

        async def script(peer: Peer, seen: Request) -> None:
            if b'"flood"' in seen.body:
                await peer.send(b"HTTP/1.1 %s\r\ncontent-length: 2\r\n%s\r\n{}" % (status.encode(), flood))
                return
            events = wire.events("one", "two")
            await peer.send(begun(*events[:4]))
            await gate.wait()
            await peer.send(b"".join(b"%x\r\n%s\r\n" % (len(event), event) for event in events[4:]) + b"0\r\n\r\n")

        async with Origin(script, port=front.upstream), await Caller.connect(front.port) as caller:
            worker = front.worker
            await caller.send(request(wire.path, wire.ask(stream=True)))
            await caller.until_seen(b"one")
            found = await ask(front.port, wire.path, wire.ask("flood"))
            assert (found.status, found.ending) == (502, Ending.CLEAN)
            assert "header lines" in wire.complaint(found)
            gate.set()
            streamed = await caller.whole()
            assert (wire.text(streamed.body), streamed.ending) == ("onetwo", Ending.CLEAN)
            assert front.worker == worker

    run(main)


@each_wire
def test_of_the_headers_that_are_read_a_hundred_cross(front: Front, wire: Wire) -> None:
    """And the gateway's own beside them."""

    async def main() -> None:
        many = [(name, "1") for name in NAMES[:250]]
        async with Origin(
            answer(wire.answer(), headers=[*many, JSON, ("x-request-id", "of the vendor")]), port=front.upstream
        ):
            found = await ask(front.port, wire.path, wire.ask())
            assert (found.status, found.body) == (200, wire.answer())
            assert sum(name.startswith("quota") for name, _ in found.headers) == 98
            assert found.header("x-request-id") == "of the vendor"
            assert found.trace_id

    run(main)


def test_the_echo_providers_header_directive_is_bounded_too(front: Front) -> None:
    """A prompt is anybody's to write."""

    async def main() -> None:
        worker = front.worker
        text = "\n".join(f"/echo header {name}: 1" for name in NAMES[:25_000])
        found = await ask(front.port, CHAT.path, {**CHAT.ask(text), "model": "echo"})
        assert found.status < 500
        assert sum(name.startswith("quota") for name, _ in found.headers) <= 100
        assert front.worker == worker

    run(main)
