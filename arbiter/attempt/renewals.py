"""How a worker has access tokens renewed: one task for a provider at a time, whoever asks for it, and in measure.

Whoever still has a good token waits no longer than a moment for the next: a token endpoint that hangs is not to hold up
what could go out. And a token that was renewed because the last one was refused, and is refused as well, shows that the
token was not at fault: the endpoint is left alone for a while, and longer each time, until one is taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from arbiter.clock import monotonic
from arbiter.config.snapshot import Account
from arbiter.errors import KeyRefused

SPARE_S = 1.0
"""How long a request waits for a new token that could go out on the one at hand."""
DOUBT_S, DOUBT_AT_MOST_S = 1.0, 60.0

Sent = tuple[tuple[str, str], ...]
"""What tells one token from another: the headers that it is sent in."""

Renew = Callable[[], Coroutine[Any, Any, Account]]


class _Doubt(NamedTuple):
    sent: Sent  # of the token that came last in the place of one that was refused
    until: float
    wait_s: float


class Renewals:
    """Those of one worker. Use it on the loop."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[Account]] = {}
        self._began: dict[str, float] = {}
        self._doubts: dict[str, _Doubt] = {}

    @property
    def under_way(self) -> list[asyncio.Task[Account]]:
        return list(self._tasks.values())

    def joined(
        self, name: str, renew: Callable[[], Coroutine[Any, Any, Account]]
    ) -> tuple[asyncio.Task[Account], bool]:
        """The renewal that is under way for the provider `name`, or one that begins now; whether it did."""
        task = self._tasks.get(name)
        if task is not None:
            return task, False
        task = self._tasks[name] = asyncio.ensure_future(renew())
        self._began[name] = monotonic()
        task.add_done_callback(lambda done: self._over(name, done))
        return task, True

    def _over(self, name: str, done: asyncio.Task[Account]) -> None:
        self._tasks.pop(name, None)
        if not done.cancelled():
            done.exception()  # whoever asked may be gone

    async def soon(self, name: str, renew: Renew, spare: Account) -> Account:
        """The new token's account, where it comes within a moment of being asked for; else `spare`, which is good."""
        task, _ = self.joined(name, renew)
        done, _ = await asyncio.wait({task}, timeout=max(0.0, self._began[name] + SPARE_S - monotonic()))
        return task.result() if done else spare

    def check(self, name: str) -> None:
        """The newest token was refused, whichever worker renewed it.

        Errors: KeyRefused where this one renewed it for that already, none was taken since, and it is too soon again.
        """
        doubt = self._doubts.get(name)
        if doubt is not None and monotonic() < doubt.until:
            raise KeyRefused(
                f"the provider {name!r} refuses the gateway's login (401), also with a token that was renewed just now"
            )

    def replaced(self, name: str, account: Account) -> None:
        """`account` came in the place of one that was refused."""
        doubt = self._doubts.get(name)
        if doubt is None or doubt.sent != account.sent:
            wait_s = DOUBT_S if doubt is None else min(2 * doubt.wait_s, DOUBT_AT_MOST_S)
            self._doubts[name] = _Doubt(account.sent, monotonic() + wait_s, wait_s)

    def served(self, name: str) -> None:
        """The provider took what it was sent."""
        if self._doubts:
            self._doubts.pop(name, None)
