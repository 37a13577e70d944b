"""A gateway whose upstreams speak only HTTP/2: clients notice nothing of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fakes.client import Caller, Ending, ask, request, run
from tests.fakes.http2 import Http2Origin, Http2Peer, Http2Request, reply
from tests.fakes.origin import Origin, answer
from tests.fakes.wires import EVENT_STREAM, JSON, WIRES, Front, Wire

MakeFront = Callable[..., Front]

each_wire = pytest.mark.parametrize("wire", WIRES, ids=str)


@each_wire
def test_answers_and_streams_come_through_byte_for_byte(make_front: MakeFront, wire: Wire) -> None:
    """And the rows are those of any other upstream."""
    front = make_front(provider={"http": "2"})
    events = wire.events("one", "two", usage=False)

    async def main() -> None:
        scripts = [reply(wire.answer("hi"), headers=[JSON]), reply(*events, headers=[EVENT_STREAM])]
        async with Http2Origin(scripts=scripts, port=front.upstream) as origin:
            found = await ask(front.port, wire.path, wire.ask())
            assert (found.status, found.body) == (200, wire.answer("hi"))
            row = front.row(found.trace_id)
            (attempt,) = row["attempts"]
            assert (row["outcome"], attempt["input_tokens"], attempt["output_tokens"]) == ("ok", 7, 3)
            found = await ask(front.port, wire.path, wire.ask(stream=True))
            assert (found.status, found.ending, found.body) == (200, Ending.CLEAN, b"".join(events))
            assert front.row(found.trace_id)["outcome"] == "ok"
            assert [seen.target for seen in origin.requests] == [wire.upstream_path] * 2

    run(main)


@each_wire
def test_events_are_passed_on_as_they_come_and_a_hang_up_reaches_the_server(make_front: MakeFront, wire: Wire) -> None:
    """The server goes on only once the client has what it sent; then the client leaves."""
    front = make_front(provider={"http": "2"})
    opening = wire.opening("one")

    async def main() -> None:
        async def script(peer: Http2Peer, request: Http2Request) -> None:
            await peer.head(request, "200", EVENT_STREAM)
            for event in opening:
                await peer.data(request, event)
            await peer.gone()

        async with Http2Origin(script, port=front.upstream) as origin:  # type: ignore[arg-type]
            async with await Caller.connect(front.port) as caller:
                await caller.send(request(wire.path, wire.ask(stream=True)))
                assert (await caller.until_seen(opening[-1])) == b"".join(opening)
                assert caller.answer is not None
                trace_id = caller.answer.trace_id
            await origin.until(lambda: origin.hangups == 1)
            assert front.row(trace_id)["outcome"] == "cancelled"

    run(main)


@each_wire
def test_a_server_without_http2_is_an_error_that_says_what_to_do(make_front: MakeFront, wire: Wire) -> None:
    """The operator reads it in the row and in the answer."""
    front = make_front(provider={"http": "2"})

    async def main() -> None:
        async with Origin([answer(b"?", status="400 Bad Request"), 1.0], port=front.upstream):
            found = await ask(front.port, wire.path, wire.ask())
            assert found.status == 502
            assert "does not speak HTTP/2" in wire.complaint(found)
            assert front.row(found.trace_id)["error_class"] == "upstream_protocol"

    run(main)
