"""The connections of each origin: a stack of idle ones, a hard cap, and a fair queue for a slot. O(1) in and out.

Theory of operation
-------------------
A *slot* is the right to have one connection to an origin; `Origin.open` counts the slots given out. Whoever holds a
slot gives it back exactly once, and always through one of three doors:

    acquire ──> a connection (with its slot)  or  None (a slot: open one yourself)
    keep(connection)      the exchange went well: next waiter, or the idle stack, which holds the slot from then on
    drain(connection)     as keep, once what is left unread has been read
    free()                the connection is closed: the slot goes to the next waiter, or nobody

Waiters are served first come, first served; nobody who comes later finds an idle connection before them, because a
connection becomes idle only while nobody waits. A waiter that is cancelled after it was served hands on what it got.

A request that finds only draining connections hopes for one of them for `HOPE_S` before it opens another: that is
shorter than a TLS handshake, and the drain is nearly always the few bytes after a terminal event.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Hashable
from typing import Protocol

from .._speedups import exchange
from ..clock import monotonic
from ..errors import TimedOut

HOPE_S = 0.05
DRAIN_S = 5.0
DRAIN_BYTES = 64 << 10
SWEEP_S = 1.0


class Poolable(Protocol):
    """What the pool asks of a connection."""

    def is_usable(self) -> bool:
        """Still open, as far as we know, and silent."""

    def dismiss(self) -> None:
        """Close it; the pool has taken its slot."""


class Origin(exchange.OriginCore):
    """All connections that reach one place in one way (scheme, host, port, socket, proxy, TLS identity, protocol)."""

    __slots__ = ()

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool, OrderedDict(), OrderedDict())

    async def acquire(self, queue_s: float) -> Poolable | None:
        """A connection, newest first, or None with the slot to open one. `queue_s` 0: wait without limit.

        Errors: TimedOut("queue"). Cancelled at any point, it leaves nothing behind.
        """
        if not self.waiters:
            connection: Poolable | None = self._pop()
            if connection is not None:
                return connection
            if self.open < self.max_connections:
                if len(self.hopers) < len(self.draining):
                    connection = await self._wait(self.hopers, HOPE_S)
                    if connection is not None:
                        return connection
                    if not self.waiters:
                        connection = self._pop()
                        if connection is not None:
                            return connection
                if not self.waiters and self.open < self.max_connections:
                    self.open += 1
                    return None
        began = monotonic()
        future = asyncio.get_running_loop().create_future()
        timer = asyncio.get_running_loop().call_later(queue_s, _give_up, future) if queue_s else None
        self.waiters[future] = None
        try:
            granted: Poolable | None = await future
        except TimeoutError:
            raise TimedOut("queue", monotonic() - began) from None
        except BaseException:
            if future.done() and not future.cancelled() and future.exception() is None:
                self._pass_on(future.result())
            raise
        finally:
            self.waiters.pop(future, None)
            if timer is not None:
                timer.cancel()
        return granted

    def drain(self, connection: Poolable) -> None:
        """The connection still has something to read; `keep` or `lost` follows, or the sweeper ends it."""
        self.draining[connection] = monotonic() + DRAIN_S
        self._pool.watch()

    def free(self) -> None:
        """One connection is gone: its slot goes to the first waiter, if there is one."""
        if self.open > self.max_connections or not self._grant(self.waiters, None):
            self.open -= 1

    def lost(self, connection: Poolable) -> None:
        """A connection that was idle or draining closed, or spoke out of turn."""
        if self.idle.pop(connection, None) is not None:
            self.free()
        elif self.draining.pop(connection, None) is not None:
            self._grant(self.hopers, None)
            self.free()

    def sweep(self, now: float) -> bool:
        """Close what was idle or draining for too long; True if there is more to watch."""
        while self.idle:
            connection, since = next(iter(self.idle.items()))  # the bottom of the stack
            if now - since < self.idle_for_s:
                break
            del self.idle[connection]
            connection.dismiss()
            self.free()
        for connection, until in list(self.draining.items()):
            if now >= until:
                self.lost(connection)
                connection.dismiss()
        return bool(self.idle or self.draining)

    def close(self) -> None:
        """Close what is idle or draining; exchanges end their own connections."""
        for connection in [*self.idle, *self.draining]:
            self.lost(connection)
            connection.dismiss()

    async def _wait(self, queue: OrderedDict[asyncio.Future[Poolable | None], None], limit_s: float) -> Poolable | None:
        future: asyncio.Future[Poolable | None] = asyncio.get_running_loop().create_future()
        timer = asyncio.get_running_loop().call_later(limit_s, _settle, future)
        queue[future] = None
        try:
            return await future
        except BaseException:
            if future.done() and not future.cancelled() and (connection := future.result()) is not None:
                self.keep(connection)
            raise
        finally:
            queue.pop(future, None)
            timer.cancel()

    def _let_in(self) -> None:
        while self.open < self.max_connections and self._grant(self.waiters, None):
            self.open += 1

    def _pass_or_close(self, connection: Poolable) -> None:
        if self._grant(self.waiters, connection) or self._grant(self.hopers, connection):
            return
        if len(self.idle) < self.max_idle and self.open <= self.max_connections:
            self.idle[connection] = monotonic()
            self._pool.watch()
        else:
            connection.dismiss()
            self.free()

    def _pass_on(self, granted: Poolable | None) -> None:
        if granted is None:
            self.free()
        else:
            self.keep(granted)

    @staticmethod
    def _grant(queue: OrderedDict[asyncio.Future[Poolable | None], None], what: Poolable | None) -> bool:
        while queue:
            future, _ = queue.popitem(last=False)
            if not future.done():
                future.set_result(what)
                return True
        return False


class Pool:
    """Every origin this worker talks to, and the sweeper that closes what nobody uses."""

    def __init__(self) -> None:
        self.origins: dict[Hashable, Origin] = {}
        self.watching = False
        self._timer: asyncio.TimerHandle | None = None

    def origin(self, key: Hashable) -> Origin:
        """The origin called `key`, new or known. It is the same one for as long as the pool lives."""
        origin = self.origins.get(key)
        if origin is None:
            origin = self.origins[key] = Origin(self)
        return origin

    def watch(self) -> None:
        """Something is idle or draining: see to it that the sweeper runs."""
        if not self.watching:
            self.watching = True
            self._timer = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)

    def close(self) -> None:
        """Close everything that no exchange holds, and keep nothing from now on."""
        self.watching = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for origin in self.origins.values():
            origin.max_idle = 0
            origin.close()

    def _sweep(self) -> None:
        self._timer = None
        self.watching = False
        now = monotonic()
        # Each of them must be looked at: no `any`.
        if sum([origin.sweep(now) for origin in self.origins.values()]):
            self.watch()


def _give_up(future: asyncio.Future[Poolable | None]) -> None:
    if not future.done():
        future.set_exception(TimeoutError())


def _settle(future: asyncio.Future[Poolable | None]) -> None:
    if not future.done():
        future.set_result(None)
