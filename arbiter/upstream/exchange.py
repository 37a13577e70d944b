"""One request in flight or answered: the head once it came, then the body, pushed or read whole.

Theory of operation
-------------------
A connection (the *carrier*: h1.py or compat.py) drives an `Exchange` with `on_head`, `push`, `end` and `fail`; the
gateway reads it with `stream`, or with `here` or `read`, and lets it go with `finish` or `abort`. Nothing here is a
coroutine but `read`; nothing here sets a timer: `overdue` is asked by the transport's sweeper. What happens with every
request is in `ExchangeCore`, which is compiled.

    waiting ──on_head──> answered ──stream/read──> pushed ──end──> over
                                                    └── finish (the rest is drained) or abort ──> over

Bytes that nobody can take yet (no reader so far, a paused one, one that works through compressed pieces) wait in
`_backlog`, and the carrier is told to pause once they are `HOLD_BYTES`. A reader that never pauses an answer that is
not compressed is handed the very object the connection read.

An exchange holds its carrier, and with it the origin's slot, from the send to `over`; whoever got one from
`Transport.send` ends it in one of four ways: the body's end, an error at `on_end`, `finish` or `abort`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import msgspec

from .._speedups import exchange
from ..clock import monotonic, monotonic_ns
from ..errors import ArbiterError, Garbled, InternalError, TimedOut
from ..log import Log
from ..pieces import Body
from .encodings import decoder_for, unpacked

_log = Log(__name__)


class Outgoing(msgspec.Struct, frozen=True):
    """A request to an upstream. `path` is the whole request target; host, lengths and connection are ours to add.

    Nobody changes `headers` once they are here: what is written of them is kept for whoever hands over the same list.
    """

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
    def here(self, limit: int) -> bytes | None: ...
    async def read(self, limit: int) -> bytes: ...
    def stream(self, sink: Sink) -> None: ...
    def saw_event(self) -> None: ...
    def hold_less(self) -> None: ...
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


class Exchange(exchange.ExchangeCore):
    """One request in flight or answered."""

    __slots__ = ()

    # ------------------------------------------------------------------------------------- the gateway's side

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

    def hold_less(self) -> None:
        """Forget the headers: whoever wanted to know has asked."""
        self.headers.clear()  # the connection holds the same list

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

    # ------------------------------------------------------------------------------------- the connection's side

    def connected(self) -> None:
        """Only now does the request go out: a carrier that connects after `begin` says so."""
        now_ns = monotonic_ns()
        if self.connecting:
            self.connecting = False
            self.connect_us = (now_ns - self.sent_at_ns) // 1000
        self.sent_at_ns = now_ns
        if self.on_sent is not None:
            self.on_sent()

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
        self._drop()
        self._paused = False
        self._decoder = None
        self.end(error)

    # ------------------------------------------------------------------------------------- inside

    def _unlabelled(self, headers: list[tuple[str, str]], encoding: str) -> list[tuple[str, str]]:
        self._decoder = decoder_for(encoding)
        gone = ("content-encoding", "content-length") if self._decoder is not None else ("content-encoding",)
        return [pair for pair in headers if pair[0] not in gone]

    def _break_off(self, bug: Exception) -> None:
        """A reader that raises has a bug, and whoever waits for its end gets it all the same."""
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
                    self._drop()
                    self._decoder = None
                    carrier, self._carrier = self._carrier, None
                    if carrier is not None:
                        carrier.abort()
                    self._over = True
                    self._error = self._error or error
                    self._active.discard(self)
                    continue
                if data:
                    try:
                        self._sink.on_data(data)
                    except Exception as bug:
                        self._break_off(bug)
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
            if decoder is not None:
                piece: bytes = decoder.take()
                if piece:
                    return piece
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
        waiting = list(self._backlog or ())
        body = waiting[0] if len(waiting) == 1 else b"".join(waiting)
        if self._decoder is None:
            return body
        self._drop()
        return await unpacked(self._decoder, body, limit, _too_long(limit))

    def _unhold(self) -> None:
        if self._carrier is not None and not self._paused:
            self._carrier.resume()


def _too_long(limit: int) -> Garbled:
    return Garbled(f"the upstream's answer is longer than {limit} bytes")
