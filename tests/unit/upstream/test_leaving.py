"""The client may leave at any await: the connection is usable or closed, and no slot is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from arbiter.config.snapshot import Budgets, Endpoint
from arbiter.errors import ArbiterError
from arbiter.upstream.exchange import Exchange
from arbiter.upstream.transport import Transport
from tests.fakes.certificates import authority
from tests.fakes.loops import Run
from tests.fakes.origin import CLOSE, SILENCE, Origin, answer, chunk, chunked, chunked_head
from tests.fakes.proxy import HttpProxy, Socks5
from tests.fakes.reader import Collected, answered, ask, counts, endpoint_of

# More turns of the loop than any of these takes to its end.
TURNS = 40

Prepared = tuple[Origin, Endpoint]
Prepare = Callable[[AsyncExitStack, Transport, Path], Awaitable[Prepared]]


async def fresh(stack: AsyncExitStack, transport: Transport, where: Path) -> Prepared:
    origin = await stack.enter_async_context(Origin(chunked(b"x")))
    return origin, endpoint_of(origin)


async def named(stack: AsyncExitStack, transport: Transport, where: Path) -> Prepared:
    """The name must be looked up first."""
    origin = await stack.enter_async_context(Origin(chunked(b"x")))
    return origin, endpoint_of(origin, host="localhost")


async def unix(stack: AsyncExitStack, transport: Transport, where: Path) -> Prepared:
    origin = await stack.enter_async_context(Origin(chunked(b"x"), uds=str(where / "s")))
    return origin, endpoint_of(origin)


async def secure(stack: AsyncExitStack, transport: Transport, where: Path) -> Prepared:
    ca = authority(where)
    origin = await stack.enter_async_context(Origin(chunked(b"x"), tls=ca.server()))
    return origin, endpoint_of(origin, tls_ca=ca.file)


async def kept(stack: AsyncExitStack, transport: Transport, where: Path) -> Prepared:
    origin, endpoint = await fresh(stack, transport, where)
    await answered(transport, endpoint)
    return origin, endpoint


async def dying(stack: AsyncExitStack, transport: Transport, where: Path) -> Prepared:
    """The kept connection swallows the request; it goes out once more."""
    origin = await stack.enter_async_context(Origin(scripts=[answer(b"x"), [CLOSE], answer(b"x")]))
    endpoint = endpoint_of(origin)
    await answered(transport, endpoint)
    return origin, endpoint


async def draining(stack: AsyncExitStack, transport: Transport, where: Path) -> Prepared:
    """There is one to hope for."""
    first = [chunked_head() + chunk(b"one"), 0.002, b"0\r\n\r\n"]
    origin = await stack.enter_async_context(Origin(scripts=[first, answer(b"x")]))
    endpoint = endpoint_of(origin)
    (await ask(transport, endpoint, max_connections=1)).finish()
    return origin, endpoint


async def proxied(stack: AsyncExitStack, transport: Transport, where: Path) -> Prepared:
    origin, endpoint = await secure(stack, transport, where)
    proxy = await stack.enter_async_context(HttpProxy())
    return origin, endpoint_of(origin, proxy=proxy.url, tls_ca=endpoint.tls_ca)


async def through_socks(stack: AsyncExitStack, transport: Transport, where: Path) -> Prepared:
    origin, _ = await fresh(stack, transport, where)
    proxy = await stack.enter_async_context(Socks5())
    return origin, endpoint_of(origin, proxy=proxy.url)


@pytest.mark.parametrize(
    "prepare",
    [fresh, named, unix, secure, kept, dying, draining, proxied, through_socks],
    ids=lambda each: each.__name__,
)
def test_a_caller_that_leaves_at_any_moment_leaks_nothing(run: Run, tmp_path: Path, prepare: Prepare) -> None:
    """Cancelled after 0, 1, 2 … turns of the loop: afterwards the only slot is free, and the next request works."""

    async def main() -> None:
        finished = 0
        for turns in range(TURNS):
            async with AsyncExitStack() as stack:
                transport = Transport()
                origin, endpoint = await prepare(stack, transport, tmp_path)
                task = asyncio.ensure_future(ask(transport, endpoint, max_connections=1))
                for _ in range(turns):
                    await asyncio.sleep(0)
                if not task.done():
                    task.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await task
                else:
                    finished += 1
                    task.result().abort()
                await origin.until(lambda: counts(transport)[0] == counts(transport)[1])  # noqa: B023
                again = ask(transport, endpoint, max_connections=1, budgets=Budgets(queue_s=20))
                assert await (await again).read(99) == b"x"
                assert counts(transport)[0] == 1
                await transport.close()

    run(main, debug=False)


def test_a_caller_that_leaves_while_reading_closes_the_connection(run: Run) -> None:
    """The rest of the answer is nobody's."""

    async def main() -> None:
        async with Origin([chunked_head() + chunk(b"one"), SILENCE]) as origin:
            transport = Transport()
            exchange = await ask(transport, endpoint_of(origin))
            task = asyncio.ensure_future(exchange.read(99))
            for _ in range(5):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert counts(transport)[0] == 0
            await origin.until(lambda: origin.hangups == 1)
            await transport.close()

    run(main)


def test_waiters_that_leave_let_the_others_through(run: Run) -> None:
    """Whether they were still waiting or had just been served."""

    async def main() -> None:
        for turns in range(12):
            held = [chunked_head() + chunk(b"x"), SILENCE]
            async with Origin(scripts=[held, chunked(b"x")]) as origin:
                transport = Transport()
                endpoint = endpoint_of(origin)
                holder = await ask(transport, endpoint, max_connections=1)
                tasks = [asyncio.ensure_future(answered(transport, endpoint, max_connections=1)) for _ in range(6)]
                await origin.until(lambda: counts(transport)[3] == 6)  # noqa: B023
                holder.abort()
                for _ in range(turns):
                    await asyncio.sleep(0)
                for task in tasks[::2]:
                    task.cancel()
                done = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 30)
                assert done[1::2] == [b"x"] * 3
                assert counts(transport)[0] == counts(transport)[1] <= 1
                await transport.close()

    run(main, debug=False)


def test_a_hundred_clients_that_come_and_go(run: Run) -> None:
    """Slots are neither lost nor made, whatever the order of answers, failures, hang-ups and departures."""
    import random

    async def main() -> None:
        dice = random.Random(7)
        scripts = [chunked(b"x"), [chunked_head() + chunk(b"x"), 0.001, CLOSE], [0.001, CLOSE], answer(b"x")] * 200
        dice.shuffle(scripts)
        async with Origin(scripts=scripts) as origin:
            transport = Transport()
            endpoint = endpoint_of(origin)

            async def client() -> None:
                for _ in range(6):
                    try:
                        exchange: Exchange = await ask(transport, endpoint, max_connections=5, idle_connections=2)
                    except ArbiterError:
                        continue
                    way = dice.random()
                    if way < 0.2:
                        exchange.abort()
                    elif way < 0.4:
                        exchange.finish()
                    elif way < 0.7:
                        try:
                            await exchange.read(9)
                        except ArbiterError:
                            pass
                    else:
                        sink = Collected()
                        exchange.stream(sink)
                        await sink.end()

            tasks = [asyncio.ensure_future(client()) for _ in range(100)]
            for _ in range(40):
                await asyncio.sleep(0.003)
                dice.choice(tasks).cancel()
                assert counts(transport)[0] <= 5
            await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
            await origin.until(lambda: counts(transport)[0] == counts(transport)[1] <= 2)
            assert transport._active == set()
            origin.answer_with(answer(b"x"))
            assert await answered(transport, endpoint, max_connections=5) == b"x"
            await transport.close()

    run(main, debug=False)
