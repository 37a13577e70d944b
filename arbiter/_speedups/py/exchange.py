"""One exchange over one connection of its origin: what of it happens with every request. No I/O but the transport's.

`ExchangeCore` is a request in flight, `LinkCore` the connection that carries it, `OriginCore` where connections wait
for the next one. What happens with few requests is a method of the classes above, in `arbiter.upstream`, which have the
theory: `Exchange` (`_unlabelled`, `_break_off`, `_pour`), `H1` (`_lost`, `_unasked`, `_break`, `abort`, `resume`) and
`Origin` (`free`, `_let_in`, `_pass_or_close`).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

from arbiter._speedups.py.h1 import BODY, DONE, FAILED, HEAD, H1Core
from arbiter.clock import monotonic, monotonic_ns
from arbiter.errors import ArbiterError, Cut, Garbled
from arbiter.pieces import Body, Pieces

HOLD_BYTES = 128 << 10
"""Waiting bytes after which the connection stops reading: two reads, so that a burst is not one pause per read."""

JOIN_BYTES = 32 << 10
"""Up to here one copy is cheaper than a second buffer in the write."""

LAST_STATUS = 599
"""RFC 9110 section 15: what is beyond is invalid. No client would know what to make of it."""

Waiting = OrderedDict[asyncio.Future[Any], None]


class ExchangeCore:
    """One request in flight or answered. `headers` are lower-case names with their values, as latin-1.

    Units: the `_us` are microseconds; `connect_us` is None on a reused connection.
    """

    __slots__ = (
        "_active",
        "_backlog",
        "_backlog_bytes",
        "_budgets",
        "_carrier",
        "_decoder",
        "_error",
        "_limit",
        "_over",
        "_paused",
        "_pouring",
        "_sink",
        "_streaming",
        "_told",
        "_waiter",
        "connect_us",
        "connecting",
        "eof_delimited",
        "had_event",
        "head",
        "headers",
        "headers_us",
        "interval",
        "last_activity",
        "length",
        "on_sent",
        "queue_us",
        "reused",
        "sent_at_ns",
        "started_at_ns",
        "status",
    )

    def __init__(self, budgets: Any, streaming: bool, interval: float, active: set[Any]) -> None:
        self.interval = interval
        self.status = 0
        self.headers: list[tuple[str, str]] = []
        self.reused = False
        self.eof_delimited = False
        self.queue_us: int | None = None
        self.connect_us: int | None = None
        self.headers_us: int | None = None
        self.length = -1
        self.head: asyncio.Future[None] | None = None
        self.started_at_ns = self.sent_at_ns = monotonic_ns()
        self.last_activity = 0.0
        self.had_event = False
        self.on_sent: Callable[[], None] | None = None  # for a carrier that sends later than it begins
        self.connecting = False
        self._budgets = budgets
        self._streaming = streaming
        self._active = active
        self._carrier: Any = None
        self._decoder: Any = None
        self._sink: Any = None
        self._waiter: asyncio.Future[None] | None = None
        self._limit = -1
        self._backlog: deque[bytes] | None = None  # made when something has to wait
        self._backlog_bytes = 0
        self._paused = False
        self._pouring = False
        self._over = False
        self._told = False
        self._error: ArbiterError | None = None

    # ------------------------------------------------------------------------------------- the gateway's side

    def header(self, name: str, default: str | None = None) -> str | None:
        """The first value of the header called `name` (lower case)."""
        for known, value in self.headers:
            if known == name:
                return value
        return default

    def here(self, limit: int) -> bytes | None:
        """The whole body where it came with the head, and may be had as it came; None where `read` is to be asked."""
        if not self._over or self._error is not None or self._decoder is not None or self._backlog_bytes > limit:
            return None
        self._told = True
        if self._backlog is None:
            return b""
        return self._backlog[0] if len(self._backlog) == 1 else b"".join(self._backlog)

    def stream(self, sink: Any) -> None:
        """Push the body into `sink`; what is already here comes before this returns."""
        self._sink = sink
        if self._backlog or self._over:
            self._pour()
        if self._carrier is not None and not self._paused:
            self._carrier.resume()

    def saw_event(self) -> None:
        """The reader saw a real event (no keepalive): the `first_event` budget is met."""
        self.had_event = True

    def finish(self) -> None:
        """The reader has all it needs: no further callbacks, the rest is drained in the background (SPEC 3.2)."""
        self._let_go()
        carrier, self._carrier = self._carrier, None
        if carrier is not None:
            carrier.release()

    def abort(self) -> None:
        """Close the connection now: no further callbacks. Safe at any time, also after the end."""
        self._let_go()
        carrier, self._carrier = self._carrier, None
        if carrier is not None:
            carrier.abort()

    # ------------------------------------------------------------------------------------- the connection's side

    def begin(self, carrier: Any, head: asyncio.Future[None], *, reused: bool) -> None:
        """The request goes out on `carrier`; `head` is resolved by the answer's head or by what came instead."""
        self._carrier = carrier
        self.head = head
        self.reused = reused
        self.sent_at_ns = monotonic_ns()
        self._active.add(self)

    def on_head(
        self, status: int, headers: list[tuple[str, str]], length: int, eof_delimited: bool, encoding: str = ""
    ) -> None:
        """The answer's head is here. A Content-Encoding is undone from now on, and its label taken off.

        Errors: Garbled for an encoding we do not know, and for a status beyond those of HTTP; the carrier fails the
        exchange with it.
        """
        if status > LAST_STATUS:
            raise Garbled(f"the upstream answered with the status {status}, which HTTP does not have")
        if encoding:
            headers = self._unlabelled(headers, encoding)
        self.status = status
        self.headers = headers
        self.length = length
        self.eof_delimited = eof_delimited
        now_ns = monotonic_ns()
        self.headers_us = (now_ns - self.sent_at_ns) // 1000
        self.last_activity = now_ns / 1e9
        head, self.head = self.head, None
        if head is not None and not head.done():
            head.set_result(None)

    def push(self, data: bytes) -> None:
        """The next body bytes, as the connection read them."""
        if self._sink is not None and not self._paused and self._decoder is None and not self._backlog:
            try:
                self._sink.on_data(data)
            except Exception as bug:
                self._break_off(bug)
            return
        if self._told:
            return
        if self._backlog is None:
            self._backlog = deque()
        self._backlog.append(data)
        self._backlog_bytes += len(data)
        if self._sink is not None:
            if not self._paused and not self._pouring:
                self._pour()
        elif self._limit >= 0:
            if self._backlog_bytes > self._limit:
                self._wake()
            return
        if self._backlog_bytes > HOLD_BYTES and self._carrier is not None:
            self._carrier.pause()

    def part(self) -> None:
        """The carrier lets go; its last bytes and `end` follow at once."""
        self._carrier = None
        self._active.discard(self)

    def end(self, error: ArbiterError | None) -> None:
        """The body is over and the carrier has let go. What still waits is given out first."""
        if self._over:
            return
        self._over = True
        self._error = error
        self._carrier = None
        self._active.discard(self)
        if self._sink is None:
            self._wake()
        elif not self._pouring:
            self._pour()

    def fail(self, error: BaseException) -> None:
        """There is no answer: `send` raises `error`. The carrier still holds its slot; `send` gives it back."""
        self._active.discard(self)
        head, self.head = self.head, None
        if head is not None and not head.done():
            head.set_exception(error)

    # ------------------------------------------------------------------------------------- inside

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _drop(self) -> None:
        """Nothing waits any more."""
        self._backlog = None
        self._backlog_bytes = 0

    def _let_go(self) -> None:
        self._told = True
        self._sink = None
        self._backlog = None
        self._backlog_bytes = 0
        self._active.discard(self)
        if not self._over:
            self._over = True
            self._error = Cut("the answer was given up")
            self._wake()

    # ------------------------------------------------------------------------------------- above

    def _unlabelled(self, headers: list[tuple[str, str]], encoding: str) -> list[tuple[str, str]]:
        """Undo `encoding` from now on; the headers without its label."""
        raise NotImplementedError

    def _break_off(self, bug: Exception) -> None:
        """The reader failed on what it was given."""
        raise NotImplementedError

    def _pour(self) -> None:
        """Give out what waits, then the end."""
        raise NotImplementedError


class OriginCore:
    """The connections that are idle or draining, and the bounds. `open` counts the slots given out."""

    __slots__ = ("_pool", "draining", "hopers", "idle", "idle_for_s", "max_connections", "max_idle", "open", "waiters")

    def __init__(self, pool: Any, waiters: Waiting, hopers: Waiting) -> None:
        self._pool = pool
        self.max_connections = 1
        self.max_idle = 0
        self.idle_for_s = 0.0
        self.open = 0
        self.idle: dict[Any, float] = {}
        self.draining: dict[Any, float] = {}
        self.waiters = waiters
        self.hopers = hopers

    def limit(self, max_connections: int, max_idle: int, idle_for_s: float) -> None:
        """The limits now in force; a reload may have moved them, and a raised cap lets waiters in."""
        self.max_idle = max_idle
        self.idle_for_s = idle_for_s
        if max_connections != self.max_connections:
            self.max_connections = max_connections
            self._let_in()

    def try_acquire(self) -> Any:
        """The newest idle connection if nobody is ahead of us: `acquire` without its coroutine."""
        return None if self.waiters else self._pop()

    def keep(self, connection: Any) -> None:
        """The connection is ready for another request."""
        if self.draining:
            self.draining.pop(connection, None)
        if self.waiters or self.hopers or len(self.idle) >= self.max_idle or self.open > self.max_connections:
            self._pass_or_close(connection)
            return
        self.idle[connection] = monotonic()
        if not self._pool.watching:
            self._pool.watch()

    def _pop(self) -> Any:
        while self.idle:
            connection, _ = self.idle.popitem()
            if connection.is_usable():
                return connection
            connection.dismiss()
            self.free()
        return None

    # ------------------------------------------------------------------------------------- above

    def free(self) -> None:
        """One connection is gone."""
        raise NotImplementedError

    def _let_in(self) -> None:
        """The cap was moved: waiters for whom there is room now get it."""
        raise NotImplementedError

    def _pass_or_close(self, connection: Any) -> None:
        """Somebody waits for `connection`, or there is no room for it."""
        raise NotImplementedError


class LinkCore(H1Core):
    """One HTTP/1.1 connection, used by one exchange after the other; it reads into `arena`, which others share."""

    __slots__ = ("_allowance", "_arena", "_exchange", "_origin", "_reading", "_slot", "served", "transport")

    def __init__(self, origin: OriginCore, arena: memoryview) -> None:
        super().__init__()
        self.transport: asyncio.Transport | None = None
        self.served = 0
        self._origin: Any = origin
        self._arena = arena
        self._exchange: Any = None
        self._allowance = 0
        self._reading = True
        self._slot = True

    def start(self, exchange: ExchangeCore, head: bytes, body: Body, bodyless: bool) -> None:
        """Send a request; its answer goes to `exchange`."""
        self.begin(bodyless)
        self.served += 1
        self._exchange = exchange
        transport = self.transport
        if transport is None:
            self._lost(None)
        elif isinstance(body, Pieces):
            transport.writelines((head, *body.pieces))
        elif len(body) <= JOIN_BYTES:
            transport.write(head + body)
        else:
            transport.writelines((head, body))

    def give_slot(self) -> bool:
        """Hand the slot to the caller; True if there was one to hand."""
        had, self._slot = self._slot, False
        return had

    def take_slot(self) -> None:
        """The pool gave this connection out again."""
        self._slot = True

    def is_usable(self) -> bool:
        """Still open, as far as we know, and silent."""
        return self.transport is not None and not self.transport.is_closing()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._arena

    def buffer_updated(self, nbytes: int) -> None:
        exchange = self._exchange
        if exchange is None:
            self._unasked(nbytes)
            return
        was = self.state
        body = self.feed(self._arena, nbytes)
        if was != self.state:
            self._turn(exchange, was, body)
        elif was == BODY:
            exchange.last_activity = monotonic()
            if body:
                exchange.push(body)

    def _turn(self, exchange: ExchangeCore, was: int, body: bytes) -> None:
        """A read that brought the head, the end, or a fault: tell the exchange, in this order."""
        if was == HEAD and self.answered:
            try:
                exchange.on_head(self.status, self.headers, self.length, self.eof_delimited, self.encoding)
            except ArbiterError as error:
                self._break(exchange, b"", error)
                return
        if self.state == FAILED:
            self._break(exchange, body, Garbled(f"the upstream's answer is not proper HTTP: {self.fault}"))
        elif self.state == DONE:
            # Kept before the last bytes are given out: what the reader does with them cannot concern us any more.
            self._exchange = None
            exchange.part()
            self._keep_or_close()
            if body:
                exchange.push(body)
            exchange.end(None)
        elif body:
            exchange.push(body)

    def _keep_or_close(self) -> None:
        """The answer is complete and the exchange is gone: keep the connection if it may carry another."""
        transport = self.transport
        # A request that is still being written was answered too early for the next one to follow it.
        if transport is None or not self.keep_alive or transport.is_closing() or transport.get_write_buffer_size():
            self.abort()
            return
        if not self._reading:
            self.resume()
        self._slot = False
        self._origin.keep(self)

    # ------------------------------------------------------------------------------------- above

    def abort(self) -> None:
        """Close the socket now and give the slot back."""
        raise NotImplementedError

    def resume(self) -> None:
        """Read on."""
        raise NotImplementedError

    def _lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        raise NotImplementedError

    def _unasked(self, nbytes: int) -> None:
        """Bytes that no exchange waits for."""
        raise NotImplementedError

    def _break(self, exchange: Any, body: bytes, error: ArbiterError) -> None:
        """The answer is none, behind `body`."""
        raise NotImplementedError
