"""Memory that a burst of requests has left behind, and that goes back to the kernel once nobody has asked for a while.

The C library keeps what is freed, as we have told it to (`linux.tune_allocator`): the next long request takes it again
at once. So a worker stays as large as its busiest moment made it, for as long as it lives. Where it has had nothing to
do for half a minute, and is much larger than it was, it gives the free pages back, beside the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from arbiter.app import linux

REST_S = 30
"""For so long nothing is under way. Looks are a second apart."""
WORTH_BYTES = 32 << 20
"""By so much it has grown since memory was last given back: less would be taken again by the next few requests."""


class Slack:
    """One worker's. `look` is called each second."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        resident: Callable[[], int] = linux.resident_bytes,
        give_back: Callable[[], None] = linux.give_back,
    ) -> None:
        self._loop = loop
        self._resident = resident
        self._give_back = give_back
        self._quiet_s = 0
        self._least = resident()
        self._giving: asyncio.Future[None] | None = None

    def look(self, in_flight: int) -> None:
        """See whether there is something to give back, after a while without anything in flight."""
        self._quiet_s = 0 if in_flight else self._quiet_s + 1
        if self._quiet_s < REST_S or self._giving is not None:
            return
        self._quiet_s = 0
        if self._resident() - self._least >= WORTH_BYTES:
            # A request that comes just now waits for it, once: some 6 ms for 80 MB.
            self._giving = self._loop.run_in_executor(None, self._give_back)
            self._giving.add_done_callback(self._gave)

    def _gave(self, giving: asyncio.Future[None]) -> None:
        """What is still there is in use, or in the hands of others: it is not asked for again."""
        self._giving = None
        if not giving.cancelled() and giving.exception() is None:
            self._least = self._resident()
