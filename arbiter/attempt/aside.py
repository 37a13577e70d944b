"""A thread for what would hold up everybody else: long requests that are read and written anew before they are sent.

The interpreter has one lock. So while the thread computes, the loop waits for its turn as long as the interpreter lets
a thread go on (`app.worker` sets that), or as long as one call takes that keeps the lock: what is done here is done in
many short ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class Aside:
    """One worker's thread. One, because it is there to keep the loop free: two would take the lock from it in turns."""

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None

    async def run(self, work: Callable[[], T]) -> T:
        """Return what `work` returns, which is done in the thread; raise what it raises.

        Cancelled, the caller goes on at once. What was begun is done to its end, for nobody.
        """
        if self._threads is None:
            self._threads = ThreadPoolExecutor(1, thread_name_prefix="aside")
        return await asyncio.wrap_future(self._threads.submit(work))

    def close(self) -> None:
        """Let go of the thread, once it has done what it was asked."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None
