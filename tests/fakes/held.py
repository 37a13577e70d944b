"""Prompts that are not hashed before a test says so: the thread is busy, for as long as it likes.

In a process of its own a gateway is held by a plugin, until the test makes the file `gate`:

    Front(folder, plugins=[{"use": "tests.fakes.held:HeldHashing"}], gateway={"env": {GATE: str(gate)}})
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from arbiter.ledger.prefix import Prefixes
from arbiter.plugins import Plugin

GATE = "TEST_HASHING_GATE"


class HeldPrefixes(Prefixes):
    """A worker's, whose thread does nothing by itself. `held` is what it was given."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.held: list[tuple[Future[None], Callable[[], None]]] = []

    def submit(self, work: Callable[[], None]) -> Future[None]:
        future: Future[None] = Future()
        self.held.append((future, work))
        return future

    def go_on(self) -> None:
        """Do what was given until now, in order."""
        held, self.held = self.held, []
        for future, work in held:
            if future.set_running_or_notify_cancel():
                try:
                    work()
                except Exception as error:
                    future.set_exception(error)
                else:
                    future.set_result(None)


class HeldHashing(Plugin):
    """Holds the thread of the process that it is in until there is a file of the name in `GATE`."""

    async def startup(self, snapshot: object) -> None:
        gate, submit = Path(os.environ[GATE]), Prefixes.submit

        def held(self: Prefixes, work: Callable[[], None]) -> Future[None]:
            def wait() -> None:
                while not gate.exists():
                    time.sleep(0.01)
                work()

            return submit(self, wait)

        Prefixes.submit = held  # type: ignore[method-assign]
