"""Clients that do not read: their upstream waits, the worker does not grow, and nobody beside them notices."""

from __future__ import annotations

import asyncio
import hashlib
import json
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.fakes.client import WAIT_S, Caller, Ending, ask, request, run
from tests.fakes.gateway import connections, rss
from tests.fakes.origin import LAST_CHUNK, Origin, Peer, Request, answer, chunk
from tests.fakes.wires import CHAT, JSON, MESSAGES, WIRES, Front, Wire, sse, sse_head

each_wire = pytest.mark.parametrize("wire", WIRES, ids=str)

EVENT_BYTES = 32 << 10
STREAM_BYTES = 64 << 20
IN_KERNEL_BYTES = 24 << 20
"""What sockets on this host may hold between them: two connections, each with a send and a receive buffer."""


class Flood:
    """An upstream that sends 64 MB as fast as it is taken; others that ask it meanwhile get a short stream."""

    def __init__(self, wire: Wire) -> None:
        self.opening, self.ending = wire.opening("x"), wire.events("x")[len(wire.opening("x")) :]
        self.delta = wire.opening("x" * EVENT_BYTES)[-1]
        self.short = sse(*wire.events("short"))
        self.sent = 0
        self.digest = hashlib.sha256()
        self.done = asyncio.Event()

    async def __call__(self, peer: Peer, request: Request) -> None:
        if b"flood" not in request.body:
            await peer.send(self.short)
            return
        peer.writer.transport.set_write_buffer_limits(high=0)
        await peer.send(sse_head())
        for event in self.opening:
            await self._say(peer, event)
        while self.sent < STREAM_BYTES:
            await self._say(peer, self.delta)
        for event in self.ending:
            await self._say(peer, event)
        await peer.send(LAST_CHUNK)
        self.done.set()

    async def _say(self, peer: Peer, event: bytes) -> None:
        await peer.send(chunk(event))
        self.sent += len(event)
        self.digest.update(event)


async def until_still(front: Front, *floods: Flood) -> int:
    """Wait until the upstream has not been able to send for half a second, with the gateway awake: it serves others.
    Returns what was sent."""
    while True:
        before = [flood.sent for flood in floods]
        await asyncio.sleep(0.5)  # as long as the kernel takes to ask anew for room
        for _ in range(10):
            assert (await ask(front.port, CHAT.path, CHAT.ask() | {"model": "echo"})).status == 200
        if [flood.sent for flood in floods] == before:
            return sum(before)


@each_wire
def test_a_stalled_client_stops_its_upstream_and_costs_no_memory(front: Front, wire: Wire) -> None:
    """64 MB for a client that does not read: the worker holds next to nothing of it, and streams beside it run on."""

    async def main() -> None:
        flood = Flood(wire)
        worker = front.worker
        usage = {"stream_options": {"include_usage": True}} if wire.name == "chat" else {}
        async with Origin(flood, port=front.upstream):
            await ask(front.port, wire.path, wire.ask(stream=True))
            memory = rss(worker)
            async with await Caller.connect(front.port, receive_buffer=64 << 10) as stalled:
                await stalled.send(request(wire.path, wire.ask("flood", stream=True, **usage)))
                await stalled.head()
                sent = await until_still(front, flood)
                assert 0 < sent < IN_KERNEL_BYTES
                grown = rss(worker) - memory
                loop = asyncio.get_running_loop()
                began = loop.time()
                for _ in range(50):
                    beside = await ask(front.port, wire.path, wire.ask(stream=True))
                    assert beside.ending is Ending.CLEAN
                took_s = (loop.time() - began) / 50
                print(
                    f"{wire}: {sent >> 20} MB sent, {grown >> 10} KB more in the worker, {took_s * 1000:.1f} ms beside"
                )
                assert grown < 8 << 20
                assert flood.sent < IN_KERNEL_BYTES
                # It reads again: all of it is there, in order, and the end is a clean one.
                digest = hashlib.sha256()
                for piece in stalled.answer.pieces if stalled.answer else ():
                    digest.update(piece)
                while piece := await stalled.piece():
                    digest.update(piece)
                    stalled.answer.pieces.clear()  # type: ignore[union-attr]
                assert stalled.answer is not None and stalled.answer.ending is Ending.CLEAN
                assert digest.hexdigest() == flood.digest.hexdigest()
                assert flood.done.is_set()
                assert rss(worker) - memory < 8 << 20
        assert front.row(stalled.answer.trace_id)["outcome"] == "ok"

    run(main)


# A response that is written anew is kept, since its last event repeats it.
@pytest.mark.parametrize("wire", [CHAT, MESSAGES], ids=str)
def test_a_stalled_client_of_a_translated_stream_costs_no_memory_either(front: Front, wire: Wire) -> None:
    """What is written anew is not gathered anywhere on the way to a client that does not read."""
    theirs = MESSAGES if wire is CHAT else CHAT

    async def main() -> None:
        flood = Flood(theirs)
        worker = front.worker
        async with Origin(flood, port=front.upstream):
            await ask(front.port, wire.path, wire.ask(stream=True, model=theirs.model))
            memory = rss(worker)
            async with await Caller.connect(front.port, receive_buffer=64 << 10) as stalled:
                await stalled.send(request(wire.path, wire.ask("flood", stream=True, model=theirs.model)))
                await stalled.head()
                sent = await until_still(front, flood)
                assert 0 < sent < IN_KERNEL_BYTES
                assert rss(worker) - memory < 8 << 20
                size = 0
                while piece := await stalled.piece():
                    size += len(piece)
                    stalled.answer.pieces.clear()  # type: ignore[union-attr]
                assert stalled.answer is not None and stalled.answer.ending is Ending.CLEAN
                assert size > STREAM_BYTES * 0.9
                assert rss(worker) - memory < 8 << 20

    run(main)


def test_a_client_of_an_older_http_is_never_taken_for_slow(make_front: Any) -> None:
    """HTTP/1.0 has no chunks: what their framing would take is not owed by anybody, however many events there are."""
    front = make_front(limits={"stream_buffer": "8KiB"})

    async def main() -> None:
        events = CHAT.events(*(str(n) for n in range(3000)), usage=False)

        async def script(peer: Peer, _: Request) -> None:
            await peer.send(sse_head())
            for event in events:
                await peer.send(chunk(event))
                await asyncio.sleep(0)
            await peer.send(LAST_CHUNK)

        async with Origin(script, port=front.upstream):
            reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
            asked = request(CHAT.path, CHAT.ask(stream=True)).replace(b"HTTP/1.1", b"HTTP/1.0", 1)
            writer.write(asked)
            body = b""
            while CHAT.terminal not in body[-100:]:
                piece = await asyncio.wait_for(reader.read(1 << 16), WAIT_S)
                assert piece, body[-200:]
                body += piece
            writer.close()
        assert body.count(b"data: ") == len(events)

    run(main)


@each_wire
def test_a_stalled_client_that_leaves_stops_its_upstream(front: Front, wire: Wire) -> None:
    """Paused or not, a hang-up is seen."""

    async def main() -> None:
        flood = Flood(wire)
        async with Origin(flood, port=front.upstream) as origin:
            async with await Caller.connect(front.port, receive_buffer=64 << 10) as stalled:
                await stalled.send(request(wire.path, wire.ask("flood", stream=True)))
                head = await stalled.head()
                await until_still(front, flood)
                stalled.reset()
                await origin.until(lambda: connections(front.worker, front.upstream) == 0, "the close")
            row = await asyncio.to_thread(front.row, head.trace_id)
        assert (row["outcome"], row["status"]) == ("cancelled", 499)

    run(main)


def test_an_idle_budget_does_not_run_while_the_client_is_slow(make_front: Any) -> None:
    """The silence is ours then, not the upstream's; in each format."""
    front = make_front(provider={"timeouts": {"idle": "2s"}})

    async def main() -> None:
        floods = {wire.path: Flood(wire) for wire in WIRES}

        async def script(peer: Peer, request: Request) -> None:
            await floods[request.target](peer, request)

        async with Origin(script, port=front.upstream), AsyncExitStack() as stack:
            callers = []
            for wire in WIRES:
                stalled = await stack.enter_async_context(await Caller.connect(front.port, receive_buffer=64 << 10))
                await stalled.send(request(wire.path, wire.ask("flood", stream=True)))
                await stalled.head()
                callers.append(stalled)
            await until_still(front, *floods.values())
            await asyncio.sleep(3)  # longer than the budget
            for stalled in callers:
                while await stalled.piece():
                    stalled.answer.pieces.clear()  # type: ignore[union-attr]
                assert stalled.answer is not None and stalled.answer.ending is Ending.CLEAN

    run(main)


@each_wire
def test_a_large_unary_answer_for_a_slow_client_does_not_hold_up_others(front: Front, wire: Wire) -> None:
    """It is in the server's hands whole; the loop goes on."""

    async def main() -> None:
        large = wire.answer("y" * (16 << 20))

        async def script(peer: Peer, request: Request) -> None:
            await peer.send(answer(large if b"large" in request.body else wire.answer(), headers=[JSON]))

        async with Origin(script, port=front.upstream):
            async with await Caller.connect(front.port, receive_buffer=64 << 10) as slow:
                await slow.send(request(wire.path, wire.ask("large")))
                await slow.head()
                for _ in range(20):
                    assert (await ask(front.port, wire.path, wire.ask())).status == 200
                found = await slow.whole()
        assert found.ending is Ending.CLEAN
        assert json.loads(found.body) == json.loads(large)

    run(main)
