"""Running a test's coroutine on a loop that forgives nothing.

    def test_something(run):           # a fixture that is `run_on(asyncio)` and `run_on(uvloop)` in turn
        async def main() -> None: ...
        run(main)

After `main` the loop must be clean: no exception nobody retrieved, no callback that failed, no task left behind, no
socket more than before.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import uvloop

Main = Callable[[], Awaitable[None]]

# uvloop's clock counts whole milliseconds, so what it runs "after 0.2 s" may come that much before it is due.
TICK_S = 0.002


class Run(Protocol):
    def __call__(self, main: Main, *, debug: bool = True) -> None: ...


def open_sockets() -> int:
    """How many sockets this process has open."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
        except FileNotFoundError:
            pass  # the directory's own descriptor
    return count


def _note(context: dict[str, Any], faults: list[dict[str, Any]]) -> None:
    # A scripted server's half of a handshake that the test wants to fail.
    if context["message"] != "Error on transport creation for incoming connection":
        faults.append(context)


def run_on(name: str) -> Run:
    """A runner on the loop called `name`: "asyncio" or "uvloop"."""
    factory = uvloop.new_event_loop if name == "uvloop" else asyncio.new_event_loop

    def run(main: Main, *, debug: bool = True) -> None:
        faults: list[dict[str, Any]] = []

        async def guarded() -> None:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: _note(context, faults))
            await loop.getaddrinfo("127.0.0.1", 0)  # a loop opens sockets of its own at its first use of a thread
            before = open_sockets()
            await main()
            gc.collect()
            for _ in range(200):
                others = asyncio.all_tasks() - {asyncio.current_task()}
                if open_sockets() <= before and not others:
                    break
                await asyncio.sleep(0.005)
            assert not others, f"tasks left behind: {others}"
            assert open_sockets() <= before, f"sockets leaked: {before} -> {open_sockets()}"

        with asyncio.Runner(debug=debug, loop_factory=factory) as runner:
            runner.run(guarded())
        gc.collect()
        assert not faults, faults

    return run
