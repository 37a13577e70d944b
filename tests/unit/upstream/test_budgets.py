"""How long each phase may take, and that a time-out names its phase and how long it waited (SPEC 3.3)."""

from __future__ import annotations

import asyncio
import socket

import pytest

from arbiter.clock import monotonic
from arbiter.config.snapshot import Budgets, Endpoint
from arbiter.errors import ErrorClass, TimedOut
from arbiter.upstream.transport import Transport
from tests.fakes.loops import TICK_S, Run
from tests.fakes.origin import LAST_CHUNK, SILENCE, Origin, Peer, Request, answer, chunk, chunked_head
from tests.fakes.reader import Collected, answered, ask, counts, endpoint_of
from tests.unit.upstream.conftest import Moved

OFF = {"headers_s": 0.0, "first_event_s": 0.0, "idle_s": 0.0, "unary_s": 0.0, "total_s": 0.0}


def only(**budgets: float) -> Budgets:
    return Budgets(**{**OFF, **budgets})


def check(error: BaseException | None, phase: str, limit_s: float) -> None:
    assert isinstance(error, TimedOut)
    assert (error.phase, error.code) == (phase, ErrorClass(f"timeout_{phase}"))
    assert limit_s - TICK_S <= error.waited_s < limit_s + 5


def test_connecting_has_its_budget(run: Run) -> None:
    """A listener whose queue is full answers no SYN."""

    async def main() -> None:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(0)
            address = listener.getsockname()
            fillers = [socket.socket() for _ in range(4)]
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(address)
            transport = Transport()
            with pytest.raises(TimedOut) as caught:
                await ask(transport, Endpoint("http", *address), budgets=only(connect_s=0.2))
            check(caught.value, "connect", 0.2)
            assert counts(transport)[0] == 0
            await transport.close()
            for filler in fillers:
                filler.close()

    run(main)


def test_a_handshake_that_never_ends_is_part_of_connecting(run: Run) -> None:
    """TCP answers, TLS does not."""

    async def main() -> None:
        async with Origin(SILENCE, greeting=[SILENCE]) as origin:
            transport = Transport()
            with pytest.raises(TimedOut) as caught:
                await ask(transport, endpoint_of(origin, scheme="https"), budgets=only(connect_s=0.2))
            check(caught.value, "connect", 0.2)
            await origin.until(lambda: origin.hangups == 1)
            await transport.close()

    run(main)


@pytest.mark.parametrize(
    ("budgets", "stream", "phase"),
    [
        (only(headers_s=0.2), True, "headers"),
        (only(first_event_s=0.2), True, "headers"),
        (only(headers_s=5, first_event_s=0.2), True, "headers"),
        (only(total_s=0.2), True, "total"),
        (only(unary_s=0.2), False, "unary"),
    ],
)
def test_waiting_for_the_head_has_its_budget(run: Run, budgets: Budgets, stream: bool, phase: str) -> None:
    """A stream waits for headers, a unary request for everything."""

    async def main() -> None:
        async with Origin(SILENCE) as origin:
            transport = Transport()
            with pytest.raises(TimedOut) as caught:
                await ask(transport, endpoint_of(origin), budgets=budgets, stream=stream)
            check(caught.value, phase, 0.2)
            assert counts(transport)[0] == 0
            await origin.until(lambda: origin.hangups == 1)
            await transport.close()

    run(main)


@pytest.mark.parametrize(
    ("budgets", "phase"),
    [(only(first_event_s=30), "first_event"), (only(idle_s=30), "idle"), (only(total_s=30), "total")],
)
def test_a_silent_stream_ends_in_the_phase_it_is_in(run: Run, moved: Moved, budgets: Budgets, phase: str) -> None:
    """After the head: no event yet, silence, or simply too long."""

    async def main() -> None:
        async with Origin([chunked_head() + chunk(b": hello\n\n"), SILENCE]) as origin:
            transport = Transport()
            exchange = await ask(transport, endpoint_of(origin), budgets=budgets)
            sink = Collected()
            exchange.stream(sink)
            await origin.until(lambda: sink.data == b": hello\n\n")
            moved.passes(30)
            check(await sink.end(), phase, 30)
            assert counts(transport)[0] == 0
            await origin.until(lambda: origin.hangups == 1)
            await transport.close()

    run(main)


def test_a_unary_answer_has_one_budget_for_head_and_body(run: Run, moved: Moved) -> None:
    """It counts on where the head came."""

    async def main() -> None:
        async with Origin([0.1, chunked_head() + chunk(b"x"), SILENCE]) as origin:
            transport = Transport()
            exchange = await ask(transport, endpoint_of(origin), budgets=only(unary_s=30), stream=False)
            sent_at = exchange.sent_at_ns / 1e9
            assert exchange.overdue(sent_at + 29.99) is None
            check(exchange.overdue(sent_at + 30.01), "unary", 30)
            reading = asyncio.ensure_future(exchange.read(99))
            moved.passes(30)
            with pytest.raises(TimedOut) as caught:
                await reading
            check(caught.value, "unary", 30)
            assert counts(transport)[0] == 0
            await transport.close()

    run(main)


def test_keepalives_move_idle_and_never_the_first_event(run: Run, moved: Moved) -> None:
    """Comments show that the server lives, not that the model speaks."""

    async def main() -> None:
        ping = asyncio.Event()

        async def pings(peer: Peer, request: Request) -> None:
            await peer.send(chunked_head())
            while True:
                await ping.wait()
                ping.clear()
                await peer.send(chunk(b": ping\n\n"))

        async with Origin(pings) as origin:
            transport = Transport()
            exchange = await ask(transport, endpoint_of(origin), budgets=only(idle_s=30, first_event_s=60))
            sink = Collected()
            exchange.stream(sink)
            sent_at, heard_at = exchange.sent_at_ns / 1e9, 0.0
            for count in range(1, 4):
                ping.set()
                await origin.until(lambda: sink.data.count(b"ping") == count)  # noqa: B023
                assert exchange.last_activity > heard_at
                heard_at = exchange.last_activity
                assert exchange.overdue(heard_at + 29.99) is None
                check(exchange.overdue(heard_at + 30.01), "idle", 30)
                check(exchange.overdue(sent_at + 60.01), "first_event", 60)
            moved.passes(60)
            check(await sink.end(), "first_event", 60)
            await transport.close()

    run(main)


def test_an_event_meets_the_first_event_budget(run: Run, moved: Moved) -> None:
    """After it, only idle and total count."""

    async def main() -> None:
        go_on = asyncio.Event()

        async def script(peer: Peer, request: Request) -> None:
            await peer.send(chunked_head() + chunk(b"data: x\n\n"))
            await go_on.wait()
            await peer.send(LAST_CHUNK)

        async with Origin(script) as origin:
            transport = Transport()
            exchange = await ask(transport, endpoint_of(origin), budgets=only(first_event_s=30))
            check(exchange.overdue(monotonic() + 30), "first_event", 30)
            exchange.saw_event()
            sink = Collected()
            exchange.stream(sink)
            moved.passes(3600)
            swept_at = transport._sweep_at
            await origin.until(lambda: transport._sweep_at > swept_at + 3600)
            go_on.set()
            assert await sink.end() is None
            await transport.close()

    run(main)


def test_a_pause_of_ours_is_no_silence_of_theirs(run: Run, moved: Moved) -> None:
    """While the client is slow, nobody reads: idle starts anew when we do."""

    async def main() -> None:
        go_on = asyncio.Event()

        async def script(peer: Peer, request: Request) -> None:
            await peer.send(chunked_head() + chunk(b"one"))
            await go_on.wait()
            await peer.send(chunk(b"two") + LAST_CHUNK)

        async with Origin(script) as origin:
            transport = Transport()
            exchange = await ask(transport, endpoint_of(origin), budgets=only(idle_s=30))
            sink = Collected()
            exchange.stream(sink)
            exchange.pause()
            swept_at = transport._sweep_at
            moved.passes(3600)
            await origin.until(lambda: transport._sweep_at > swept_at + 3600)
            moved.passes(-3600)
            resumed_at = monotonic()
            exchange.resume()
            assert exchange.overdue(resumed_at + 29.99) is None
            check(exchange.overdue(monotonic() + 30), "idle", 30)
            go_on.set()
            assert await sink.end() is None
            assert sink.data == b"onetwo"
            await transport.close()

    run(main)


def test_total_ends_a_paused_stream_at_once(run: Run, moved: Moved) -> None:
    """What waits for a client that does not read is dropped with it."""

    async def main() -> None:
        async with Origin([chunked_head() + chunk(b"one"), 0.01, chunk(b"two"), SILENCE]) as origin:
            transport = Transport()
            exchange = await ask(transport, endpoint_of(origin), budgets=only(total_s=30))
            sink = Collected()
            exchange.stream(sink)
            exchange.pause()
            moved.passes(30)
            check(await sink.end(), "total", 30)
            assert counts(transport)[0] == 0
            await transport.close()

    run(main)


def test_budgets_that_are_off_never_fire(run: Run) -> None:
    """Zero is no limit, not no time."""

    async def main() -> None:
        async with Origin([0.1, chunked_head(), 0.1, chunk(b"x"), 0.1, LAST_CHUNK]) as origin:
            transport = Transport()
            assert await answered(transport, endpoint_of(origin), budgets=only(queue_s=0, connect_s=0)) == b"x"
            await transport.close()

    run(main)


def test_a_small_budget_is_kept_beside_large_ones(run: Run) -> None:
    """The sweeper looks as often as the smallest budget in flight needs, and no oftener after it."""

    async def main() -> None:
        async with Origin([chunked_head(), SILENCE]) as origin:
            transport = Transport()
            endpoint = endpoint_of(origin)
            slow = await ask(transport, endpoint, budgets=only(headers_s=60))
            fast = await ask(transport, endpoint, budgets=only(idle_s=0.1))
            sink = Collected()
            fast.stream(sink)
            assert transport._sweep_at - asyncio.get_running_loop().time() < 0.11
            check(await sink.end(), "idle", 0.1)
            assert transport._sweep_at - asyncio.get_running_loop().time() < 0.51
            slow.abort()
            await transport.close()

    run(main)


def test_no_sweeper_runs_when_nothing_is_in_flight(run: Run, moved: Moved) -> None:
    """An idle worker sleeps."""

    async def main() -> None:
        async with Origin(answer(b"x")) as origin:
            transport = Transport()
            await answered(transport, endpoint_of(origin), budgets=only(headers_s=30), idle_connections=0)
            await origin.until(lambda: transport._sweeper is None)
            await transport.close()

    run(main)
