"""Clients that leave: the upstream is told at once, the row says so once, and nothing is left behind."""

from __future__ import annotations

import asyncio
import itertools
import statistics
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from tests.fakes.client import Caller, request, run
from tests.fakes.gateway import connections, until
from tests.fakes.origin import BOUND_S, LAST_CHUNK, Origin, Peer, Request, answer, chunk
from tests.fakes.wires import CHAT, JSON, MESSAGES, WIRES, Front, Wire, begun, sse_head

each_wire = pytest.mark.parametrize("wire", WIRES, ids=str)

_numbers = itertools.count()
ROUNDS = 7
CLOSED_WITHIN_S = 20.0
"""No budget ends anything so soon. What SPEC 3.4 says, 100 ms, is measured by `bench.leaving`."""


class Witness:
    """An upstream that says `words` and then waits; it knows when its client hung up."""

    def __init__(self, *words: bytes, every_s: float = 0.0) -> None:
        self.name = f"leaver-{next(_numbers)}-"
        self.words, self.every_s = words, every_s
        self.asked, self.left = asyncio.Event(), asyncio.Event()
        self.left_s = 0.0

    async def __call__(self, peer: Peer, request: Request) -> None:
        gone = asyncio.ensure_future(peer.gone())
        self.asked.set()
        for word in self.words:
            await peer.send(word)
        while self.every_s and not gone.done():
            await asyncio.wait([gone], timeout=self.every_s)
            if not gone.done():
                with suppress(ConnectionError):  # who hung up while this was sent
                    await peer.send(self.words[-1])
        await gone
        self.left_s = asyncio.get_running_loop().time()
        self.left.set()


async def leave_and_time(
    front: Front,
    wire: Wire,
    witness: Witness,
    how: str,
    *,
    stream: bool,
    wait_for: bytes = b"",
    rest_s: float = 0.0,
    **members: Any,
) -> float:
    """One request whose client leaves; returns how long the upstream went on, in seconds. Checks the row."""
    loop = asyncio.get_running_loop()
    async with await Caller.connect(front.port) as caller:
        headers = [("user-agent", witness.name)]
        await caller.send(request(wire.path, wire.ask(witness.name, stream=stream, **members), headers=headers))
        await asyncio.wait_for(witness.asked.wait(), BOUND_S)
        if wait_for:
            await caller.until_seen(wait_for)
        await asyncio.sleep(rest_s)
        left_s = loop.time()
        getattr(caller, how)()
        await asyncio.wait_for(witness.left.wait(), CLOSED_WITHIN_S)
    by_name = "SELECT * FROM requests WHERE user_agent = ?"
    (row,) = await asyncio.to_thread(until, lambda: front.select(by_name, witness.name), "the row")
    assert (row["outcome"], row["status"], row["error_class"]) == ("cancelled", 499, "client_disconnected")
    (attempt,) = front.attempts(row["id"])
    assert (attempt["outcome"], attempt["error_class"]) == ("cancelled", "client_disconnected")
    return witness.left_s - left_s


async def measured(front: Front, what: str, wire: Wire, how: str, make: Callable[[], Witness], **rest: Any) -> None:
    """Some clients leave side by side, each with a witness of its own."""
    witnesses = {witness.name.encode(): witness for witness in (make() for _ in range(ROUNDS))}

    async def script(peer: Peer, request: Request) -> None:
        await next(witness for name, witness in witnesses.items() if name in request.body)(peer, request)

    async with Origin(script, port=front.upstream):
        times = await asyncio.gather(*(leave_and_time(front, wire, one, how, **rest) for one in witnesses.values()))
    print(f"{wire}, {how}, {what}: median {statistics.median(times) * 1000:.1f} ms, worst {max(times) * 1000:.1f} ms")


@each_wire
@pytest.mark.parametrize("how", ["leave", "reset", "half_close"])
def test_a_client_that_leaves_before_the_first_byte_stops_the_upstream(front: Front, wire: Wire, how: str) -> None:
    """While the upstream is silent, before its head and after it (SPEC 3.4). A half-close counts as gone."""

    async def main() -> None:
        for stage, words in (("no head", ()), ("no event", (sse_head(),)), ("a ping", (begun(wire.keepalive),))):
            make = partial(Witness, *words)
            await measured(front, f"stream, {stage}", wire, how, make, stream=True, rest_s=0.02)

    run(main)


@each_wire
@pytest.mark.parametrize("how", ["leave", "reset", "half_close"])
def test_a_client_that_leaves_in_mid_stream_stops_the_upstream(front: Front, wire: Wire, how: str) -> None:
    """While it talks, and while it is silent."""

    async def main() -> None:
        opening = wire.opening("some", "words")
        for stage, every_s in (("silent", 0.0), ("talking", 0.01)):
            make = partial(Witness, begun(*opening), chunk(opening[-1]), every_s=every_s)
            await measured(front, f"mid-stream, {stage}", wire, how, make, stream=True, wait_for=b"words")

    run(main)


@each_wire
@pytest.mark.parametrize("how", ["leave", "reset"])
def test_a_client_that_leaves_a_translated_stream_stops_the_upstream(front: Front, wire: Wire, how: str) -> None:
    """The upstream speaks the other format: while it talks, and while it is silent."""
    theirs = MESSAGES if wire is CHAT else CHAT

    async def main() -> None:
        opening = theirs.opening("some", "words")
        for stage, every_s in (("silent", 0.0), ("talking", 0.01)):
            make = partial(Witness, begun(*opening), chunk(opening[-1]), every_s=every_s)
            rest = {"stream": True, "wait_for": b"words", "model": theirs.model}
            await measured(front, f"translated, {stage}", wire, how, make, **rest)

    run(main)


@each_wire
@pytest.mark.parametrize("how", ["leave", "reset"])
def test_a_client_that_leaves_an_unary_call_stops_the_upstream(front: Front, wire: Wire, how: str) -> None:
    """Right after it asked, after a while, and when half of the answer is here."""

    async def main() -> None:
        half = answer(b'{"id":', length=1000, headers=[JSON])
        for stage, words, rest_s in (("at once", (), 0.0), ("after 400 ms", (), 0.4), ("half an answer", (half,), 0.4)):
            await measured(front, f"unary, {stage}", wire, how, partial(Witness, *words), stream=False, rest_s=rest_s)

    run(main)


@each_wire
def test_a_client_that_leaves_after_the_late_commit_stops_the_upstream(make_front: Any, wire: Wire) -> None:
    """Keepalives have gone out; the upstream is still silent."""
    front = make_front(server={"commit_after": "200ms", "keepalive": "200ms"})

    async def main() -> None:
        await measured(front, "committed, silent", wire, "leave", Witness, stream=True, wait_for=wire.keepalive)

    run(main)


@pytest.mark.parametrize("wire", [CHAT, MESSAGES], ids=str)  # Responses end with their finish
@pytest.mark.parametrize("rest", [True, False], ids=["usage follows", "nothing follows"])
def test_a_client_that_leaves_after_the_finish_reason_had_its_answer(front: Front, wire: Wire, rest: bool) -> None:
    """Old Codex does: that is `ok`, not 499, and the usage that follows is still read (SPEC 2.7)."""
    agent = f"finisher {wire} {rest}"

    async def main() -> None:
        events = wire.events("hi")
        until_finish = len(events) - (2 if wire is CHAT else 1)
        seen = asyncio.Event()

        async def script(peer: Peer, request: Request) -> None:
            gone = asyncio.ensure_future(peer.gone())
            await peer.send(begun(*events[:until_finish]))
            await asyncio.wait_for(seen.wait(), BOUND_S)
            await asyncio.sleep(0.1)
            if rest:
                await peer.send(b"".join(map(chunk, events[until_finish:])) + LAST_CHUNK)
            await gone

        async with Origin(script, port=front.upstream):
            async with await Caller.connect(front.port) as caller:
                await caller.send(request(wire.path, wire.ask(stream=True), headers=[("user-agent", agent)]))
                await caller.until_seen(events[until_finish - 1])
            seen.set()
            (row,) = await asyncio.to_thread(
                until, lambda: front.select("SELECT * FROM requests WHERE user_agent = ?", agent), "the row"
            )
        assert (row["outcome"], row["status"], row["error_class"]) == ("ok", 200, None)
        (attempt,) = front.attempts(row["id"])
        assert attempt["outcome"] == "ok"
        if rest or wire is not CHAT:
            assert (attempt["input_tokens"], attempt["output_tokens"]) == (7, 3)
        else:
            assert (attempt["input_tokens"], attempt["usage_source"]) == (None, "estimated")

    run(main)


# --- any moment -------------------------------------------------------------------------------------------------------


async def slow_stream(peer: Peer, request: Request, wire: Wire) -> None:
    """An answer with a pause in front of everything that somebody may wait for."""
    events = wire.events("one", "two", "three")
    await asyncio.sleep(0.004)
    await peer.send(sse_head())
    await asyncio.sleep(0.004)
    await peer.send(chunk(wire.keepalive))
    for event in events:
        await asyncio.sleep(0.003)
        half = len(event) // 2
        await peer.send(chunk(event[:half]))
        await peer.send(chunk(event[half:]))
    await peer.send(LAST_CHUNK)


async def slow_answer(peer: Peer, request: Request, wire: Wire) -> None:
    whole = answer(wire.answer("x" * 300), headers=[JSON])
    for at in range(0, len(whole), 200):
        await asyncio.sleep(0.15)  # in its first 250 ms nobody looks whether the client of a unary call is there
        await peer.send(whole[at : at + 200])


@each_wire
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "unary"])
def test_a_client_may_leave_at_any_moment(make_front: Any, wire: Wire, stream: bool) -> None:
    """Whatever the gateway was waiting for: exactly one row per request, no connection leaks, nothing stays open."""
    # few connections: whatever leaks is missed soon
    front = make_front(provider={"connections": {"max": 60}}, server={"commit_after": "20ms", "keepalive": "15ms"})
    batch, step_s = (5, 0.0005) if stream else (50, 0.005)
    name = f"{wire} {stream}"
    worker = front.worker

    async def main() -> None:
        async def script(peer: Peer, request: Request) -> None:
            await (slow_stream if stream else slow_answer)(peer, request, wire)

        async with Origin(script, port=front.upstream) as origin:

            async def one(number: int) -> None:
                how = ("leave", "reset", "half_close")[number % 3]
                headers = [("user-agent", f"sweep {name} {number}")]
                async with await Caller.connect(front.port) as caller:
                    await caller.send(request(wire.path, wire.ask(stream=stream), headers=headers))
                    if number % 4:
                        await asyncio.sleep(number * step_s)  # up to half as long again as the whole answer takes
                    else:
                        with suppress(asyncio.IncompleteReadError, ConnectionError):
                            await caller.reader.readexactly(number % 60 * 10 + 1)
                    getattr(caller, how)()

            count = 150
            for start in range(0, count, batch):
                await asyncio.gather(*(one(number) for number in range(start, start + batch)))
            await asyncio.to_thread(until, lambda: front.in_flight() == 0, "an end of every request")
            swept = "SELECT * FROM requests WHERE user_agent LIKE ?"
            rows = await asyncio.to_thread(
                until,
                lambda: len(found := front.select(swept, f"sweep {name} %")) >= len(origin.requests) and found,
                "the rows",
            )
            agents = [row["user_agent"] for row in rows]
            assert len(set(agents)) == len(agents)  # one row per request
            outcomes = {row["outcome"] for row in rows}
            assert outcomes <= {"ok", "cancelled"}, [row for row in rows if row["outcome"] not in ("ok", "cancelled")]
            assert "cancelled" in outcomes
            # An attempt that was opened is closed, and there are as many as the upstream saw, or more by those that
            # were given up before a byte of theirs arrived there.
            attempts = front.select(
                "SELECT a.* FROM attempts a JOIN requests r ON r.id = a.request_id WHERE r.user_agent LIKE ?",
                f"sweep {name} %",
            )
            assert {attempt["outcome"] for attempt in attempts} <= {"ok", "cancelled"}
            assert len(attempts) >= len(origin.requests)
            assert len(attempts) == sum(row["attempts"] for row in rows)

            # Nothing leaked: whatever is still connected is idle, and serves whoever comes next.
            def is_even() -> bool:
                alive = sum(not (peer.hung_up or peer.closed) for peer in origin.peers)
                return connections(worker, front.upstream) == alive == front.metric("arbiter_upstream_connections")

            await origin.until(is_even, "closed connections")
            data = request(wire.path, wire.ask(stream=stream))

            async def whole() -> int:
                async with await Caller.connect(front.port) as caller:
                    return (await caller.exchange(data)).status

            assert await asyncio.gather(*(whole() for _ in range(60))) == [200] * 60
        assert front.in_flight() == 0

    run(main)
