"""A worker that rests gives back what a burst has left; one that is busy keeps it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

from arbiter.app import linux
from arbiter.app.slack import REST_S, WORTH_BYTES, Slack

START = 50 << 20


class Memory:
    """What a process has, of which `in_use` cannot be given back."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.bytes = self.in_use = START
        self.given = 0
        self.fails = False
        self._loop = loop
        self._slack = Slack(loop, lambda: self.bytes, self._give_back)

    def _give_back(self) -> None:
        self.given += 1
        if self.fails:
            raise OSError("not here")
        self.bytes = self.in_use

    async def rests(self, seconds: int, in_flight: int = 0) -> None:
        for _ in range(seconds):
            self._slack.look(in_flight)
        await self._loop.run_in_executor(None, int)  # behind whatever is given back


def run(main: Callable[[Memory], Awaitable[None]]) -> None:
    async def made() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        await main(Memory(loop))

    asyncio.run(made())


def test_what_a_burst_has_left_is_given_back_once_nothing_was_asked_for_a_while() -> None:
    async def main(memory: Memory) -> None:
        memory.bytes = START + WORTH_BYTES
        await memory.rests(REST_S - 1)
        assert memory.given == 0
        await memory.rests(1)
        assert (memory.given, memory.bytes) == (1, START)

    run(main)


def test_a_worker_that_is_busy_keeps_what_it_has_and_so_does_one_that_has_hardly_grown() -> None:
    async def main(memory: Memory) -> None:
        memory.bytes = START + WORTH_BYTES
        for _ in range(5):
            await memory.rests(REST_S - 1)
            await memory.rests(1, in_flight=1)
        memory.bytes = START + WORTH_BYTES - 1
        await memory.rests(3 * REST_S)
        assert memory.given == 0

    run(main)


def test_what_others_hold_is_not_asked_for_again() -> None:
    """It would be as much work, every half minute, for nothing."""

    async def main(memory: Memory) -> None:
        memory.bytes = memory.in_use = START + 2 * WORTH_BYTES
        await memory.rests(5 * REST_S)
        assert memory.given == 1
        memory.bytes += WORTH_BYTES
        await memory.rests(REST_S)
        assert (memory.given, memory.bytes) == (2, memory.in_use)

    run(main)


def test_a_failure_to_give_back_is_no_failure_of_the_worker() -> None:
    async def main(memory: Memory) -> None:
        memory.fails, memory.bytes = True, START + WORTH_BYTES
        await memory.rests(REST_S)
        memory.fails = False
        await memory.rests(REST_S)
        assert (memory.given, memory.bytes) == (2, START)

    run(main)


def test_the_c_library_gives_back_and_the_kernel_says_how_much_there_is() -> None:
    linux.give_back()
    assert linux.resident_bytes() > 1 << 20
