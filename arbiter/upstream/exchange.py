"""One request in flight or answered: the head once it came, then the body, pushed or read whole.

Theory of operation
-------------------
A connection (the *carrier*: h1.py or compat.py) drives an `Exchange` with `on_head`, `push`, `end` and `fail`; the
gateway reads it with `stream` or `read`, and lets it go with `finish` or `abort`. Nothing here is a coroutine but
`read`; nothing here sets a timer: `overdue` is asked by the transport's sweeper.

    waiting ──on_head──> answered ──stream/read──> pushed ──end──> over
                                                    └── finish (the rest is drained) or abort ──> over

Bytes that nobody can take yet (no reader so far, a paused one, one that works through compressed pieces) wait in
`_backlog`, and the carrier is told to pause once they are `_HOLD_BYTES`. A reader that never pauses an answer that is
not compressed is handed the very object the connection read.

An exchange holds its carrier, and with it the origin's slot, from the send to `over`; whoever got one from
`Transport.send` ends it in one of four ways: the body's end, an error at `on_end`, `finish` or `abort`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import msgspec

from ..clock import monotonic, monotonic_ns
from ..errors import ArbiterError, Cut, Garbled, InternalError, TimedOut
from ..log import Log
from ..pieces import Body
from .encodings import Decoder, decoder_for, unpacked

if TYPE_CHECKING:
    from ..config.snapshot import Budgets

_log = Log(__name__)

# Waiting bytes after which the connection stops reading: two reads, so that a burst is not one pause per read.
_HOLD_BYTES = 128 << 10


class Outgoing(msgspec.Struct, frozen=True):
    """A request to an upstream. `path` is the whole request target; host, lengths and connection are ours to add."""

    method: str
    path: str
    headers: list[tuple[str, str]]
    body: Body
    on_sent: Callable[[], None] | None = None
    """Called when the request is on its way; where it goes out again on another connection, once more."""


class Sink(Protocol):
    """Where a pushed body goes. Both are called from the socket's callback and must not raise."""

    def on_data(self, data: bytes) -> None:
        """Take the next body bytes, in order, never empty."""

    def on_end(self, error: ArbiterError | None) -> None:
        """The body is over: called once, last, and not after `finish` or `abort`. None: the message was complete."""


class Answering(Protocol):
    """What the gateway needs of an answer, wherever it came from."""

    status: int
    headers: list[tuple[str, str]]
    reused: bool
    eof_delimited: bool
    queue_us: int | None
    connect_us: int | None
    headers_us: int | None

    def header(self, name: str, default: str | None = None) -> str | None: ...
    async def read(self, limit: int) -> bytes: ...
    def stream(self, sink: Sink) -> None: ...
    def saw_event(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def finish(self) -> None: ...
    def abort(self) -> None: ...


class Carrier(Protocol):
    """What an exchange needs of the connection that carries it. All are idempotent."""

    def pause(self) -> None:
        """Stop reading the socket."""

    def resume(self) -> None:
        """Read on."""

    def release(self) -> None:
        """The exchange wants no more: drain what is left and keep the connection if it ends in time."""

    def abort(self) -> None:
        """Close the socket now and give the slot back."""


class Exchange:
    """One request in flight or answered. `headers` are lower-case names with their values, as latin-1.

    Units: the `_us` are microseconds; `connect_us` is None on a reused connection.
    """

    __slots__ = (
        "_active",
        "_backlog",
        "_backlog_bytes",
        "_budgets",
        "_by_name",
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

    def __init__(self, budgets: Budgets, streaming: bool, interval: float, active: set[Exchange]) -> None:
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
        self._by_name: dict[str, str] | None = None
        self._streaming = streaming
        self._active = active
        self._carrier: Carrier | None = None
        self._decoder: Decoder | None = None
        self._sink: Sink | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._limit = -1
        self._backlog: deque[bytes] = deque()
        self._backlog_bytes = 0
        self._paused = False
        self._pouring = False
        self._over = False
        self._told = False
        self._error: ArbiterError | None = None

    # ------------------------------------------------------------------------------------- the gateway's side

    def header(self, name: str, default: str | None = None) -> str | None:
        """The first value of the header called `name` (lower case)."""
        by_name = self._by_name
        if by_name is None:
            by_name = self._by_name = dict(self.headers[::-1])
        return by_name.get(name, default)

    async def read(self, limit: int) -> bytes:
        """Return the whole body, of at most `limit` bytes.

        Errors: Garbled over the limit, Cut for a truncated one, TimedOut.
        """
        self._limit = limit
        try:
            if self.length > limit and not self._over and self._decoder is None:
                raise _too_long(limit)
            if not self._over:
                self._unhold()
                while not self._over and self._backlog_bytes <= limit:
                    self._waiter = asyncio.get_running_loop().create_future()
                    await self._waiter
            if self._error is not None:
                raise self._error
            if self._backlog_bytes > limit:
                raise _too_long(limit)
            return await self._whole(limit)
        except BaseException:
            self.abort()
            raise
        finally:
            self._waiter = None
            self._told = True

    def stream(self, sink: Sink) -> None:
        """Push the body into `sink`; what is already here comes before this returns."""
        self._sink = sink
        if self._backlog or self._over:
            self._pour()
        self._unhold()

    def saw_event(self) -> None:
        """The reader saw a real event (no keepalive): the `first_event` budget is met."""
        self.had_event = True

    def pause(self) -> None:
        """Push nothing more until `resume`; the socket is not read, so the upstream slows down."""
        self._paused = True
        if self._carrier is not None:
            self._carrier.pause()

    def resume(self) -> None:
        """Push on."""
        if not self._paused:
            return
        self._paused = False
        # Nobody listened: the silence was ours, not the upstream's.
        self.last_activity = monotonic()
        if self._backlog or self._over or self._decoder is not None:
            self._pour()
        self._unhold()

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

    def begin(self, carrier: Carrier, head: asyncio.Future[None], *, reused: bool) -> None:
        """The request goes out on `carrier`; `head` is resolved by the answer's head or by what came instead."""
        self._carrier = carrier
        self.head = head
        self.reused = reused
        self.sent_at_ns = monotonic_ns()
        self._active.add(self)

    def connected(self) -> None:
        """Only now does the request go out: a carrier that connects after `begin` says so."""
        now_ns = monotonic_ns()
        if self.connecting:
            self.connecting = False
            self.connect_us = (now_ns - self.sent_at_ns) // 1000
        self.sent_at_ns = now_ns
        if self.on_sent is not None:
            self.on_sent()

    def on_head(
        self, status: int, headers: list[tuple[str, str]], length: int, eof_delimited: bool, encoding: str = ""
    ) -> None:
        """The answer's head is here. A Content-Encoding is undone from now on, and its label taken off.

        Errors: Garbled for an encoding we do not know; the carrier fails the exchange with it.
        """
        if encoding:
            self._decoder = decoder_for(encoding)
            gone = ("content-encoding", "content-length") if self._decoder is not None else ("content-encoding",)
            headers = [pair for pair in headers if pair[0] not in gone]
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
            self._hand(self._sink, data)
            return
        if self._told:
            return
        self._backlog.append(data)
        self._backlog_bytes += len(data)
        if self._sink is not None:
            if not self._paused and not self._pouring:
                self._pour()
        elif self._limit >= 0:
            if self._backlog_bytes > self._limit:
                self._wake()
            return
        if self._backlog_bytes > _HOLD_BYTES and self._carrier is not None:
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
        if self._sink is not None:
            if not self._pouring:
                self._pour()
        else:
            self._wake()

    def fail(self, error: BaseException) -> None:
        """There is no answer: `send` raises `error`. The carrier still holds its slot; `send` gives it back."""
        self._active.discard(self)
        head, self.head = self.head, None
        if head is not None and not head.done():
            head.set_exception(error)

    # ------------------------------------------------------------------------------------- budgets

    def overdue(self, now: float) -> TimedOut | None:
        """The budget that is used up at `now`, if one is (SPEC 3.3); of two, the one that says more.

        `total` is about streams: a unary request has its one budget.
        """
        late = self._overdue_in_phase(now)
        total_s, since_start = self._budgets.total_s, now - self.started_at_ns / 1e9
        if late is None and self._streaming and total_s and since_start >= total_s:
            return TimedOut("total", since_start)
        return late

    def _overdue_in_phase(self, now: float) -> TimedOut | None:
        budgets = self._budgets
        sent_at = self.sent_at_ns / 1e9
        if self.connecting:
            limit = budgets.connect_s
            return TimedOut("connect", now - sent_at) if limit and now - sent_at >= limit else None
        if not self._streaming:
            if budgets.unary_s and now - sent_at >= budgets.unary_s:
                return TimedOut("unary", now - sent_at)
            return None
        if self.headers_us is None:
            # With a first-event budget both waits share its one clock.
            limit = budgets.first_event_s or budgets.headers_s
            return TimedOut("headers", now - sent_at) if limit and now - sent_at >= limit else None
        if self._paused:
            return None
        if not self.had_event and budgets.first_event_s and now - sent_at >= budgets.first_event_s:
            return TimedOut("first_event", now - sent_at)
        if budgets.idle_s and now - self.last_activity >= budgets.idle_s:
            return TimedOut("idle", now - self.last_activity)
        return None

    def give_up(self, error: ArbiterError) -> None:
        """Close the connection and end with `error`, ahead of anything that still waits."""
        if self.headers_us is None:
            self.fail(error)
            return
        carrier, self._carrier = self._carrier, None
        if carrier is not None:
            carrier.abort()
        self._backlog.clear()
        self._backlog_bytes = 0
        self._paused = False
        self._decoder = None
        self.end(error)

    # ------------------------------------------------------------------------------------- inside

    def _hand(self, sink: Sink, data: bytes) -> None:
        """Give `data` to the reader. One that raises has a bug, and whoever waits for its end gets it all the same."""
        try:
            sink.on_data(data)
        except Exception as bug:
            _log.error("the reader of an answer failed", error=bug)
            error = InternalError("the gateway failed on this answer")
            self._error = error  # also where the message itself is over already
            self.give_up(error)

    def _pour(self) -> None:
        """Give out what waits, then the end. `on_data` may pause, resume, finish or abort from within."""
        self._pouring = True
        try:
            while not self._paused and self._sink is not None:
                try:
                    data = self._next()
                except ArbiterError as error:
                    self._backlog.clear()
                    self._backlog_bytes = 0
                    self._decoder = None
                    carrier, self._carrier = self._carrier, None
                    if carrier is not None:
                        carrier.abort()
                    self._over = True
                    self._error = self._error or error
                    self._active.discard(self)
                    continue
                if data:
                    self._hand(self._sink, data)
                    continue
                if self._over and not self._told:
                    self._told = True
                    sink, self._sink = self._sink, None
                    sink.on_end(self._error)
                return
        finally:
            self._pouring = False

    def _next(self) -> bytes:
        """The next bytes for the sink, b"" if there are none now. Errors: Garbled, Cut from the decoder."""
        decoder = self._decoder
        while True:
            if decoder is not None and (data := decoder.take()):
                return data
            if not self._backlog:
                if decoder is not None and self._over and self._error is None:
                    self._decoder = None
                    decoder.finish()
                return b""
            data = self._backlog.popleft()
            self._backlog_bytes -= len(data)
            if decoder is None:
                return data
            decoder.feed(data)

    async def _whole(self, limit: int) -> bytes:
        body = self._backlog[0] if len(self._backlog) == 1 else b"".join(self._backlog)
        if self._decoder is None:
            return body
        self._backlog.clear()
        return await unpacked(self._decoder, body, limit, _too_long(limit))

    def _unhold(self) -> None:
        if self._carrier is not None and not self._paused:
            self._carrier.resume()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _let_go(self) -> None:
        self._told = True
        self._sink = None
        self._backlog.clear()
        self._backlog_bytes = 0
        self._active.discard(self)
        if not self._over:
            self._over = True
            self._error = Cut("the answer was given up")
            self._wake()


def _too_long(limit: int) -> Garbled:
    return Garbled(f"the upstream's answer is longer than {limit} bytes")
