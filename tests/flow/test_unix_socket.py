"""A gateway that listens on a unix socket: there the kernel does not tell which peer is which."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.client import Caller, Ending, request, run
from tests.fakes.origin import CLOSE, SILENCE, Origin, answer
from tests.fakes.wires import JSON, WIRES, Wire, begun, sse

each_wire = pytest.mark.parametrize("wire", WIRES, ids=str)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("unix") / "arbiter.sock")


@each_wire
def test_streams_and_answers_come_through_a_unix_socket(make_front: Any, path: str, wire: Wire) -> None:
    """Whole streams end cleanly, whole answers arrive, and rows are written."""
    front = make_front(server={"socket": path})

    async def main() -> None:
        events = wire.events("hi", usage=False)
        async with Origin(scripts=[sse(*events), answer(wire.answer(), headers=[JSON])], port=front.upstream):
            async with await Caller.connect(path) as caller:
                streamed = await caller.exchange(request(wire.path, wire.ask(stream=True)))
                assert (streamed.ending, streamed.body) == (Ending.CLEAN, b"".join(events))
                whole = await caller.exchange(request(wire.path, wire.ask()))
                assert (whole.status, whole.body) == (200, wire.answer())
        assert await asyncio.to_thread(front.row, whole.trace_id)

    run(main)


@each_wire
def test_a_stream_that_dies_is_told_over_a_unix_socket_too(make_front: Any, path: str, wire: Wire) -> None:
    """The error event is all there is to tell the end from a clean one; the terminal event is missing."""
    front = make_front(server={"socket": path})

    async def main() -> None:
        opening = wire.opening("some")
        async with Origin([begun(*opening), CLOSE], port=front.upstream), await Caller.connect(path) as caller:
            found = await caller.exchange(request(wire.path, wire.ask(stream=True)))
        assert found.body.startswith(b"".join(opening))
        assert wire.told(found)
        assert wire.terminal not in found.body

    run(main)


@each_wire
def test_a_stream_that_dies_is_told_where_its_connection_was_to_be_cut_and_cannot_be(
    make_front: Any, path: str, wire: Wire
) -> None:
    """`abort` sends no event and cuts the connection. Here that would leave the clean end of a whole answer."""
    path += "-abort"
    front = make_front(server={"socket": path, "stream_failure": "abort"})

    async def main() -> None:
        opening = wire.opening("some")
        async with Origin([begun(*opening), CLOSE], port=front.upstream), await Caller.connect(path) as caller:
            found = await caller.exchange(request(wire.path, wire.ask(stream=True)))
        assert found.body.startswith(b"".join(opening))
        assert wire.told(found)
        assert wire.terminal not in found.body

    run(main)


@each_wire
def test_a_stream_over_a_unix_socket_is_bounded_by_its_bytes(make_front: Any, path: str, wire: Wire) -> None:
    """Nobody can tell how much the client has taken, so `limits.answer` is where it ends, and the client is told."""
    path += "-small"
    front = make_front(server={"socket": path}, limits={"answer": "512KiB"})

    async def main() -> None:
        opening = wire.opening(*["x" * 40_000] * 40)
        async with Origin([begun(*opening), SILENCE], port=front.upstream), await Caller.connect(path) as caller:
            found = await caller.exchange(request(wire.path, wire.ask(stream=True)))
        assert 512 << 10 < len(found.body) < 1 << 20 < len(b"".join(opening))
        assert "limits.answer" in wire.told(found)
        assert wire.terminal not in found.body

    run(main)


@each_wire
def test_a_client_that_leaves_a_unix_socket_stops_its_upstream(make_front: Any, path: str, wire: Wire) -> None:
    """Before the first byte and in mid-stream."""
    front = make_front(server={"socket": path})

    async def main() -> None:
        for script in ([SILENCE], [begun(*wire.opening("some")), SILENCE]):
            async with Origin(script, port=front.upstream) as origin:
                async with await Caller.connect(path) as caller:
                    await caller.send(request(wire.path, wire.ask(stream=True)))
                    await origin.until(lambda: len(origin.requests) == 1, "the request")
                    if len(script) > 1:
                        await caller.until_seen(b"some")
                    caller.leave()
                    await origin.until(lambda: origin.hangups == 1, "the hang-up")

    run(main)


def test_the_socket_belongs_to_its_user(make_front: Any, path: str) -> None:
    """Who may connect may ask: nobody else may (SPEC 14.3)."""
    make_front(server={"socket": path})
    assert Path(path).stat().st_mode & 0o077 == 0
