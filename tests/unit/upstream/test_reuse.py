"""Which connection carries a request, and which connections are kept (SPEC 3.2)."""

from __future__ import annotations

import asyncio

import pytest

from arbiter.config.snapshot import Budgets
from arbiter.errors import TimedOut, Unreachable
from arbiter.upstream import pool
from arbiter.upstream.transport import Transport
from tests.fakes.loops import TICK_S, Run
from tests.fakes.origin import (
    CLOSE,
    LAST_CHUNK,
    RESET,
    SILENCE,
    Origin,
    Peer,
    Request,
    answer,
    chunk,
    chunked,
    chunked_head,
)
from tests.fakes.reader import Collected, answered, ask, counts, endpoint_of
from tests.unit.upstream.conftest import Moved


def test_one_connection_carries_request_after_request(run: Run) -> None:
    """Length, chunked, empty: each leaves the connection ready."""

    async def main() -> None:
        async with Origin(scripts=[answer(b"a"), chunked(b"b"), answer(), answer(b"d")]) as origin:
            transport = Transport()
            endpoint = endpoint_of(origin)
            assert [await answered(transport, endpoint) for _ in range(4)] == [b"a", b"b", b"", b"d"]
            assert len(origin.peers) == 1
            exchange = await ask(transport, endpoint)
            assert exchange.reused and exchange.connect_us is None
            assert await exchange.read(9) == b"d"
            await transport.close()

    run(main)


def test_the_newest_connection_is_used_first(run: Run) -> None:
    """So that those too many fall idle and go."""

    async def main() -> None:
        gates = [asyncio.Event() for _ in range(3)]

        async def script(peer: Peer, request: Request) -> None:
            await gates[peer.number].wait()
            await peer.send(answer(b"x"))

        async with Origin(script) as origin:
            transport = Transport()
            endpoint = endpoint_of(origin)
            asks = [asyncio.ensure_future(answered(transport, endpoint)) for _ in range(3)]
            await origin.until(lambda: len(origin.requests) == 3)
            for idle, number in enumerate((2, 0, 1), 1):
                gates[number].set()
                await origin.until(lambda: counts(transport)[1] == idle)  # noqa: B023
            await asyncio.gather(*asks)
            for _ in range(3):
                await answered(transport, endpoint)
            assert [request.connection for request in origin.requests[3:]] == [1, 1, 1]
            await transport.close()

    run(main)


def test_at_most_so_many_connections_stay_idle(run: Run) -> None:
    """The others close once they have answered."""

    async def main() -> None:
        gate = asyncio.Event()

        async def script(peer: Peer, request: Request) -> None:
            await gate.wait()
            await peer.send(answer(b"x"))

        async with Origin(script) as origin:
            transport = Transport()
            asks = [
                asyncio.ensure_future(answered(transport, endpoint_of(origin), idle_connections=2)) for _ in range(5)
            ]
            await origin.until(lambda: len(origin.requests) == 5)
            gate.set()
            await asyncio.gather(*asks)
            assert counts(transport) == (2, 2, 0, 0)
            await origin.until(lambda: origin.hangups == 3)
            await transport.close()

    run(main)


def test_idle_connections_close_after_their_time(run: Run, moved: Moved) -> None:
    """And an origin nobody uses is not in the counts."""

    async def main() -> None:
        async with Origin(answer(b"x")) as origin:
            transport = Transport()
            await answered(transport, endpoint_of(origin), idle_for_s=60)
            assert counts(transport) == (1, 1, 0, 0)
            moved.passes(60)
            await origin.until(lambda: origin.hangups == 1)
            await origin.until(lambda: transport.stats() == [])
            await transport.close()

    run(main)


@pytest.mark.parametrize(
    "steps",
    [
        [b"HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\nx"],
        [answer(b"x", headers=[("connection", "Close")])],
        [b"HTTP/1.1 200 OK\r\n\r\nx", CLOSE],
        [b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"],
        [answer(b"x") + b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"],
    ],
    ids=["http/1.0", "connection-close", "eof", "both-framings", "more-than-asked"],
)
def test_some_connections_are_never_kept(run: Run, steps: list[object]) -> None:
    """SPEC 3.2, FEATURES A84, A85."""

    async def main() -> None:
        async with Origin(steps) as origin:  # type: ignore[arg-type]
            transport = Transport()
            assert await answered(transport, endpoint_of(origin)) == b"x"
            assert counts(transport)[0] == 0
            assert await answered(transport, endpoint_of(origin)) == b"x"
            assert len(origin.peers) == 2
            await transport.close()

    run(main)


def test_an_answer_that_came_before_the_request_was_sent_ends_the_connection(run: Run) -> None:
    """Half a request is still on its way; another may not follow it."""

    async def early(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.send(answer(b"too large", status="413 Payload Too Large"))
        await peer.gone()

    async def main() -> None:
        async def on_connect(peer: Peer, _: Request) -> None:
            await early(peer)

        async with Origin(b"", greeting=on_connect) as origin:
            transport = Transport()
            exchange = await ask(transport, endpoint_of(origin), body=b"x" * (30 << 20))
            assert (exchange.status, await exchange.read(99)) == (413, b"too large")
            assert counts(transport)[0] == 0
            await transport.close()

    run(main, debug=False)


@pytest.mark.parametrize(
    "ending", [CLOSE, RESET, b"HTTP/1.1 408 Request Timeout\r\n\r\n"], ids=["close", "reset", "speak"]
)
def test_an_idle_connection_that_closes_or_speaks_is_dropped(run: Run, ending: object) -> None:
    """At once, not when it is wanted."""

    async def main() -> None:
        gate = asyncio.Event()

        async def script(peer: Peer, request: Request) -> None:
            await peer.send(answer(b"x"))
            await gate.wait()
            await origin._play(peer, request, [ending])  # type: ignore[list-item]

        async with Origin(script) as origin:
            transport = Transport()
            assert await answered(transport, endpoint_of(origin)) == b"x"
            assert counts(transport) == (1, 1, 0, 0)
            gate.set()
            await origin.until(lambda: counts(transport)[0] == 0)
            await transport.close()

    run(main)


@pytest.mark.parametrize("ending", [CLOSE, RESET], ids=["close", "reset"])
def test_a_request_that_a_kept_connection_swallowed_goes_out_once_more(run: Run, ending: object) -> None:
    """The server closed in the very moment we wrote: outside the ladder, on a new connection (SPEC 4.1a)."""

    async def main() -> None:
        async with Origin(scripts=[answer(b"a"), [ending], answer(b"b")]) as origin:  # type: ignore[list-item]
            transport = Transport()
            endpoint = endpoint_of(origin)
            assert await answered(transport, endpoint) == b"a"
            exchange = await ask(transport, endpoint, body=b"again")
            assert await exchange.read(9) == b"b"
            assert not exchange.reused and exchange.connect_us is not None
            assert [request.body for request in origin.requests] == [b"{}", b"again", b"again"]
            assert [request.connection for request in origin.requests] == [0, 0, 1]
            assert counts(transport) == (1, 1, 0, 0)
            await transport.close()

    run(main)


def test_it_goes_out_once_more_and_no_oftener(run: Run) -> None:
    """A second loss is the upstream's failure."""

    async def main() -> None:
        async with Origin(scripts=[answer(b"a"), [CLOSE]]) as origin:
            transport = Transport()
            endpoint = endpoint_of(origin)
            await answered(transport, endpoint)
            with pytest.raises(Unreachable):
                await ask(transport, endpoint)
            assert len(origin.requests) == 3
            assert counts(transport)[0] == 0
            await transport.close()

    run(main)


@pytest.mark.parametrize("byte", [b"H", b"HTTP/1.1 200 OK\r\n"])
def test_after_a_byte_of_the_answer_it_does_not_go_out_again(run: Run, byte: bytes) -> None:
    """The upstream had begun to answer: sending once more would pay twice."""

    async def main() -> None:
        async with Origin(scripts=[answer(b"a"), [byte, CLOSE]]) as origin:
            transport = Transport()
            endpoint = endpoint_of(origin)
            await answered(transport, endpoint)
            with pytest.raises(Unreachable):
                await ask(transport, endpoint)
            assert len(origin.requests) == 2
            await transport.close()

    run(main)


def test_the_resend_needs_no_second_slot(run: Run) -> None:
    """At the cap it would wait for the very slot it holds."""

    async def main() -> None:
        async with Origin(scripts=[answer(b"a"), [CLOSE], answer(b"b")]) as origin:
            transport = Transport()
            endpoint = endpoint_of(origin)
            await answered(transport, endpoint, max_connections=1)
            budgets = Budgets(queue_s=5)
            assert await answered(transport, endpoint, max_connections=1, budgets=budgets) == b"b"
            await transport.close()

    run(main)


# ------------------------------------------------------------------------------------------------ draining


def test_what_finish_left_unread_is_drained_and_the_connection_kept(run: Run) -> None:
    """The bytes after a terminal event are few; they are not worth a TLS handshake."""

    async def main() -> None:
        gate = asyncio.Event()

        async def script(peer: Peer, request: Request) -> None:
            await peer.send(chunked_head() + chunk(b"data: [DONE]\n\n"))
            await gate.wait()
            await peer.send(chunk(b": bye\n\n") + LAST_CHUNK)

        async with Origin(script) as origin:
            transport = Transport()
            endpoint = endpoint_of(origin)
            exchange = await ask(transport, endpoint)
            sink = Collected()
            exchange.stream(sink)
            await origin.until(lambda: bool(sink.pieces))
            exchange.finish()
            assert counts(transport) == (1, 0, 1, 0)
            gate.set()
            await origin.until(lambda: counts(transport) == (1, 1, 0, 0))
            assert (sink.data, sink.ends) == (b"data: [DONE]\n\n", [])
            again = await ask(transport, endpoint)
            assert again.reused
            again.abort()
            await transport.close()

    run(main)


def test_finish_from_within_the_last_piece_keeps_the_connection(run: Run) -> None:
    """Terminal event and end of the message mostly come in one read."""

    async def main() -> None:
        async with Origin(chunked(b"data: [DONE]\n\n")) as origin:
            transport = Transport()
            for _ in range(3):
                exchange = await ask(transport, endpoint_of(origin))

                class Done(Collected):
                    def on_data(self, data: bytes) -> None:
                        super().on_data(data)
                        exchange.finish()  # noqa: B023

                sink = Done()
                exchange.stream(sink)
                await origin.until(lambda: bool(sink.pieces))  # noqa: B023
                await origin.until(lambda: counts(transport) == (1, 1, 0, 0))
                assert sink.ends == []
            assert len(origin.peers) == 1
            await transport.close()

    run(main)


def test_a_paused_exchange_drains_too(run: Run) -> None:
    """Backpressure ends with the reader."""

    async def main() -> None:
        go_on = asyncio.Event()
        async with Origin([chunked_head() + chunk(b"one"), go_on, chunk(b"two") + LAST_CHUNK]) as origin:
            transport = Transport()
            exchange = await ask(transport, endpoint_of(origin))
            exchange.stream(Collected())
            exchange.pause()
            exchange.finish()
            go_on.set()
            await origin.until(lambda: counts(transport) == (1, 1, 0, 0))
            await transport.close()

    run(main)


def test_too_much_left_unread_closes_the_connection(run: Run) -> None:
    """64 KiB are read for nothing, not more."""

    async def main() -> None:
        go_on = asyncio.Event()
        async with Origin([chunked_head() + chunk(b"one"), go_on, chunk(b"x" * (80 << 10)), SILENCE]) as origin:
            transport = Transport()
            exchange = await ask(transport, endpoint_of(origin))
            exchange.finish()
            go_on.set()
            await origin.until(lambda: counts(transport)[0] == 0)
            await transport.close()

    run(main)


def test_a_drain_that_takes_too_long_closes_the_connection(run: Run, moved: Moved) -> None:
    """An upstream may never end a stream that we have all of."""

    async def main() -> None:
        async with Origin([chunked_head() + chunk(b"one"), SILENCE]) as origin:
            transport = Transport()
            exchange = await ask(transport, endpoint_of(origin))
            exchange.finish()
            assert counts(transport) == (1, 0, 1, 0)
            moved.passes(pool.DRAIN_S)
            await origin.until(lambda: counts(transport)[0] == 0)
            await origin.until(lambda: origin.hangups == 1)
            await transport.close()

    run(main)


@pytest.mark.parametrize("rest", [[CLOSE], [b"zz\r\n", SILENCE], [RESET]], ids=["close", "garbage", "reset"])
def test_a_drain_that_breaks_frees_its_slot(run: Run, rest: list[object]) -> None:
    """Nobody hears of it."""

    async def main() -> None:
        go_on = asyncio.Event()
        async with Origin([chunked_head() + chunk(b"one"), go_on, *rest]) as origin:  # type: ignore[list-item]
            transport = Transport()
            exchange = await ask(transport, endpoint_of(origin))
            exchange.finish()
            go_on.set()
            await origin.until(lambda: counts(transport)[0] == 0)
            await transport.close()

    run(main)


def test_a_request_waits_a_moment_for_a_draining_connection(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is nearly always free within a round trip."""
    monkeypatch.setattr(pool, "HOPE_S", 60.0)

    async def main() -> None:
        gate = asyncio.Event()

        async def first(peer: Peer, request: Request) -> None:
            await peer.send(chunked_head() + chunk(b"one"))
            await gate.wait()
            await peer.send(LAST_CHUNK)

        async with Origin(scripts=[first, answer(b"two")]) as origin:
            transport = Transport()
            endpoint = endpoint_of(origin)
            (await ask(transport, endpoint)).finish()
            second = asyncio.ensure_future(ask(transport, endpoint))
            await origin.until(lambda: counts(transport)[3] == 1)
            gate.set()
            exchange = await second
            assert exchange.reused and await exchange.read(9) == b"two"
            assert len(origin.peers) == 1
            await transport.close()

    run(main)


def test_a_request_does_not_wait_long_for_a_draining_connection(run: Run) -> None:
    """50 ms, then it opens its own."""

    async def main() -> None:
        async with Origin(scripts=[[chunked_head() + chunk(b"one"), SILENCE], answer(b"two")]) as origin:
            transport = Transport()
            endpoint = endpoint_of(origin)
            (await ask(transport, endpoint)).finish()
            exchange = await ask(transport, endpoint)
            assert not exchange.reused and await exchange.read(9) == b"two"
            assert exchange.queue_us is not None and exchange.queue_us >= 45_000
            await transport.close()

    run(main)


def test_a_drain_that_ends_badly_sends_the_hopeful_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing left to hope for."""
    monkeypatch.setattr(pool, "HOPE_S", 60.0)

    async def main() -> None:
        end = asyncio.Event()
        async with Origin(scripts=[[chunked_head() + chunk(b"one"), end, CLOSE], answer(b"two")]) as origin:
            transport = Transport()
            endpoint = endpoint_of(origin)
            (await ask(transport, endpoint)).finish()
            second = asyncio.ensure_future(answered(transport, endpoint))
            await origin.until(lambda: counts(transport)[3] == 1)
            end.set()
            async with asyncio.timeout(30):
                assert await second == b"two"
            await transport.close()

    run(main)


# ------------------------------------------------------------------------------------------------ the cap


def test_the_cap_holds(run: Run) -> None:
    """Never more connections than allowed, and nobody is forgotten."""

    async def main() -> None:
        async def script(peer: Peer, request: Request) -> None:
            await asyncio.sleep(0.002)
            await peer.send(answer(request.body))

        async with Origin(script) as origin:
            transport = Transport()
            asks = [answered(transport, endpoint_of(origin), max_connections=3, body=b"%d" % n) for n in range(30)]
            assert await asyncio.gather(*asks) == [b"%d" % n for n in range(30)]
            assert len(origin.peers) == 3
            assert counts(transport) == (3, 3, 0, 0)
            await transport.close()

    run(main)


def test_the_queue_is_fair(run: Run) -> None:
    """First come, first served."""

    async def main() -> None:
        async with Origin(answer(b"x")) as origin:
            transport = Transport()
            asks = [answered(transport, endpoint_of(origin), max_connections=1, body=b"%d" % n) for n in range(20)]
            await asyncio.gather(*asks)
            assert [int(request.body) for request in origin.requests] == list(range(20))
            assert len(origin.peers) == 1
            await transport.close()

    run(main)


def test_a_raised_cap_lets_the_waiting_in(run: Run) -> None:
    """A reload changes it while requests wait."""

    async def main() -> None:
        async with Origin(scripts=[SILENCE, answer(b"b")]) as origin:
            transport = Transport()
            endpoint = endpoint_of(origin)
            first = asyncio.ensure_future(ask(transport, endpoint, max_connections=1))
            await origin.until(lambda: len(origin.requests) == 1)
            second = asyncio.ensure_future(answered(transport, endpoint, max_connections=1))
            await origin.until(lambda: counts(transport)[3] == 1)
            assert await answered(transport, endpoint, max_connections=3) == b"b"
            assert await second == b"b"
            first.cancel()
            await asyncio.wait([first])
            await transport.close()

    run(main)


def test_waiting_for_a_slot_has_its_budget(run: Run) -> None:
    """And leaves the queue as it was."""

    async def main() -> None:
        async with Origin(SILENCE) as origin:
            transport = Transport()
            endpoint = endpoint_of(origin)
            holder = asyncio.ensure_future(ask(transport, endpoint, max_connections=1))
            await origin.until(lambda: len(origin.requests) == 1)
            with pytest.raises(TimedOut) as caught:
                await ask(transport, endpoint, max_connections=1, budgets=Budgets(queue_s=0.05))
            assert caught.value.phase == "queue" and caught.value.waited_s >= 0.05 - TICK_S
            assert counts(transport) == (1, 0, 0, 0)
            holder.cancel()
            with pytest.raises(asyncio.CancelledError):
                await holder
            assert counts(transport)[0] == 0
            await transport.close()

    run(main)


def test_a_failed_exchange_gives_its_slot_to_the_next_in_line(run: Run) -> None:
    """Not only a kept connection moves the queue."""

    async def main() -> None:
        async with Origin(scripts=[[0.02, CLOSE], answer(b"x")]) as origin:
            transport = Transport()
            endpoint = endpoint_of(origin)
            first = asyncio.ensure_future(ask(transport, endpoint, max_connections=1))
            await origin.until(lambda: len(origin.requests) == 1)
            assert await answered(transport, endpoint, max_connections=1) == b"x"
            with pytest.raises(Unreachable):
                await first
            await transport.close()

    run(main)


def test_ten_thousand_requests_on_one_connection_leave_nothing_behind(run: Run) -> None:
    """No object grows with the number of requests."""
    import gc
    import tracemalloc

    async def main() -> None:
        async with Origin(answer(b"x" * 100)) as origin:
            transport = Transport()
            endpoint = endpoint_of(origin)

            async def many(count: int) -> None:
                for _ in range(count):
                    await answered(transport, endpoint, stream=False)
                origin.requests.clear()

            await many(1000)
            gc.collect()
            before = len(gc.get_objects())
            tracemalloc.start()
            await many(9000)
            gc.collect()
            held = sum(
                trace.size
                for trace in tracemalloc.take_snapshot().traces
                if any("arbiter/upstream" in frame.filename for frame in trace.traceback)
            )
            tracemalloc.stop()
            assert len(gc.get_objects()) - before < 200
            assert held < 20_000
            assert len(origin.peers) == 1
            await transport.close()

    run(main, debug=False)
