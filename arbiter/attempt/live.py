"""An upstream that answered, and its stream on the way to the client.

Theory of operation. The socket's callback pushes bytes into `StreamRelay.on_data`; no coroutine runs per chunk. The
ladder waits in `first()` until the model has begun: up to then the attempt may fail without the client noticing. (What
a stream opens with says nothing yet, and an upstream that is overloaded may say so right behind it.) `flow()` then
hands over what was held, lets every further push go straight to the client, and waits for the end. How the stream
ended is its `course.Ending` to say, of whichever lane it is.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol

import msgspec

from arbiter.accounting.facts import Facts
from arbiter.attempt.books import Attempt
from arbiter.attempt.lane import Lane
from arbiter.attempt.measured import Measured
from arbiter.clock import monotonic_ns
from arbiter.config.snapshot import Account
from arbiter.errors import ArbiterError, ClientGone, Cut, Garbled, InternalError
from arbiter.log import Log
from arbiter.routing.plan import Rung
from arbiter.upstream.exchange import Answering
from arbiter.watch import Alarm, Watch
from arbiter.wire.course import COMPLETE, OPEN

_log = Log(__name__)

LONG_S = 2.0
"""A stream that goes on for longer is worth some work to hold less for it; most are over by then, or not much later."""

_AFTERGLOW_S = 2.0  # how long the usage that follows the finish reason is waited for once the client left
_OPENING_EVENTS = 16  # what opens a stream is less; what says more is not held for it
_HELD_BYTES = 64 << 10  # comments before the first event beyond this are dropped, not kept for the client


class Taker(Protocol):
    """Where a stream goes."""

    def send(self, data: bytes) -> None: ...

    def draw_from(self, source: Answering, stop: Callable[[ArbiterError], None]) -> None: ...


class MarkReader(Protocol):
    """What finds the marks of what binds a conversation, in the events that pass (`wire.bound`)."""

    def feed(self, piece: bytes) -> list[bytes]: ...


class Unframing(Protocol):
    """What makes server-sent events of another kind of stream. It never raises, and keeps what it would have raised."""

    @property
    def fault(self) -> Garbled | None: ...

    def feed(self, data: bytes) -> bytes: ...


class StreamRelay:
    """One upstream stream: a sink for its bytes, and the waits that the spine needs."""

    __slots__ = ("_afterglow", "_ended", "_error", "_exchange", "_first", "_frames", "_held", "_is_held", "_lane",
                 "_nudge_bytes", "_out", "_watch", "course", "first_event_ns", "last_event_ns", "marks",
                 "on_marks", "signatures")  # fmt: skip

    def __init__(
        self, lane: Lane, exchange: Answering, watch: Watch, *, nudge_bytes: int = 0, frames: Unframing | None = None
    ) -> None:
        self.course = lane.course()
        self._frames = frames
        self.signatures: MarkReader | None = None  # reads along, where somebody wants to know
        self.marks: list[bytes] = []  # what it found
        self.on_marks: Callable[[list[bytes]], None] | None = None  # hears of each, at once
        self._is_held = True
        self._nudge_bytes = nudge_bytes
        self.first_event_ns = 0
        self.last_event_ns = 0
        self._lane = lane
        self._exchange = exchange
        self._watch = watch
        self._out: Taker | None = None
        self._held: list[bytes] = []
        self._error: ArbiterError | None = None
        self._first: asyncio.Future[None] | None = None
        self._ended: asyncio.Future[None] | None = None
        self._afterglow: Alarm | None = None

    # --- pushed by the socket -----------------------------------------------------------------------------------------
    # Nobody above these two could tell the waiting client: what is raised within them ends the stream here.

    def on_data(self, data: bytes) -> None:
        try:
            self._take(data)
        except Exception as bug:
            self._break_off(bug)

    def on_end(self, error: ArbiterError | None) -> None:
        try:
            self._finish(error)
        except Exception as bug:
            self._break_off(bug)

    def _take(self, data: bytes) -> None:
        if self._error is not None:
            return
        stream, frames = self.course, self._frames
        piece = stream.feed(data if frames is None else frames.feed(data))
        self.last_event_ns = now = monotonic_ns()
        if not self.first_event_ns and stream.has_event:
            self.first_event_ns = now
            self._exchange.saw_event()
        if piece:
            self._pass(piece)
        if self._is_held and self.first_event_ns and self._has_output():
            self._is_held = False
            self._wake()
        if stream.ending is not OPEN:
            if stream.ending is COMPLETE:
                self._exchange.finish()
            else:
                self._exchange.abort()
            self._stop(self._verdict(None))
        elif frames is not None and frames.fault is not None:
            raise frames.fault

    def _finish(self, error: ArbiterError | None) -> None:
        if self._is_over:
            return
        piece = self.course.end(error)
        if piece:
            self._pass(piece)
        self._stop(self._verdict(error))

    def _has_output(self) -> bool:
        """Whether there is something to show: the model has begun, or spoken where thoughts alone are not enough."""
        course = self.course
        if self._nudge_bytes:
            return course.has_spoken or sum(map(len, self._held)) > self._nudge_bytes
        if course.has_begun:
            return True
        return course.events > _OPENING_EVENTS or sum(map(len, self._held)) > course.opening_bytes

    def _wake(self) -> None:
        if self._first is not None and not self._first.done():
            self._first.set_result(None)

    def _pass(self, piece: bytes) -> None:
        if self.signatures is not None:
            found = self.signatures.feed(piece)
            if found:
                self.marks += found
                if self.on_marks is not None:
                    self.on_marks(found)
        if self._out is not None:
            self._out.send(piece)
        elif self.first_event_ns or sum(map(len, self._held)) < _HELD_BYTES:
            self._held.append(piece)

    def _verdict(self, error: ArbiterError | None) -> ArbiterError | None:
        """What kept the stream from being complete; `error` is what the connection has to say."""
        if self.course.ending is COMPLETE:
            return None
        cut = Cut("the upstream's stream ended before its answer was complete")
        return self.course.fault() or error or cut

    def _stop(self, error: ArbiterError | None) -> None:
        self._error = error
        for waiter in (self._first, self._ended):
            if waiter is not None and not waiter.done():
                waiter.set_result(None)

    def _break_off(self, bug: Exception) -> None:
        """End the stream after a failure inside the gateway, which none of the waits would otherwise hear of."""
        if self._error is not None:
            return
        if isinstance(bug, ArbiterError):
            error = bug
        else:
            error = InternalError("the gateway failed while it read the upstream's stream; its log says why")
            _log.error("a stream failed inside the gateway", error=bug)
        with contextlib.suppress(Exception):
            self._exchange.abort()
        self._stop(error)

    @property
    def _is_over(self) -> bool:
        return self._error is not None or self.course.ending is not OPEN

    # --- asked by the spine -------------------------------------------------------------------------------------------

    async def first(self) -> None:
        """Wait until the model has begun; with `nudge_bytes`, until it has spoken, or thought for so many bytes.

        Errors: whatever kept the stream from producing one; nothing has reached the client then.
        """
        if self._is_held and not self._is_over:
            self._first = asyncio.get_running_loop().create_future()
            await self._first
            self._first = None
        if self._error is not None and self._failed_before_output():
            raise self._error

    def _failed_before_output(self) -> bool:
        # An event that the end of the stream cut in half is none, whatever it begins with.
        if self._out is not None:
            return False
        return self._is_held or not self.first_event_ns or self.course.is_bare

    async def flow(self, out: Taker, on_long: Callable[[], object]) -> ArbiterError | None:
        """Let the stream run into `out`; return once it ended, with what kept it from being complete. `on_long` is
        called where it goes on for longer than `LONG_S`."""
        self._out = out
        self._lane.let_go()
        out.draw_from(self._exchange, self.stop)
        if self._held:
            held = b"".join(self._held)
            self._held = []
            out.send(held)
            del held  # Responses open with 40 KB of an agent's instructions and tools
        if not self._is_over:
            self._ended = asyncio.get_running_loop().create_future()
            long = self._watch.after(LONG_S, on_long)
            try:
                await self._ended
            finally:
                long.off()
        if self._afterglow is not None:
            self._afterglow.off()
        return self._error

    @property
    def is_whole(self) -> bool:
        """Whether the answer is here to its end."""
        return self.course.ending is COMPLETE

    @property
    def last_words(self) -> bytes:
        """The error event with which the upstream itself ended the stream; still to be sent."""
        return self._lane.last_words(self.course)

    def failed(self, error: ArbiterError) -> bytes:
        """How the client is told that the stream failed with `error`, as what it has seen of it demands."""
        try:
            return self._lane.failed(self.course, error)
        except Exception as bug:
            _log.error("a stream that failed could not be ended in its own words", error=bug)
            return b""

    def client_left(self) -> None:
        """The client hung up. Before the finish reason that stops the upstream at once; after it the answer was whole,
        and only what is still due of its usage is read."""
        if self._is_over:
            return
        if not self.course.has_finished:
            self._exchange.abort()
            self._stop(ClientGone("the client hung up in mid-stream"))
        else:
            self._afterglow = self._watch.after(_AFTERGLOW_S, self._enough)

    def _enough(self) -> None:
        if not self._is_over:
            self._exchange.abort()
            try:
                self.course.end(None)
            except Exception as bug:
                self._break_off(bug)
            else:
                self._stop(None)

    def stop(self, error: ArbiterError) -> None:
        """End the stream from our side (the gateway is shutting down)."""
        if not self._is_over:
            self._exchange.abort()
            self._stop(error)

    def facts(self) -> Facts:
        """What the stream said about itself, as far as it came."""
        return self._lane.facts(self.course, self.first_event_ns, self.last_event_ns)


class Live(msgspec.Struct, eq=False):
    """An answer in hand: a whole one (`body`), or a stream whose first event has come.

    `kind` is the media type of what the client gets, None where that is what the upstream's own header says.
    `on_close` hears how it ended, once.
    """

    rung: Rung
    account: Account
    attempt: Attempt
    exchange: Answering
    fidelity: str
    _measured: Measured | None
    _sent_ns: int
    on_close: Callable[[Live, ArbiterError | None], None] | None = None
    body: bytes = b""
    kind: str | None = None
    facts: Facts | None = None
    stream: StreamRelay | None = None

    @property
    def status(self) -> int:
        return self.exchange.status

    def give_up(self, error: ArbiterError) -> None:
        """The answer goes no further, because of `error`. Where it is over already, this does nothing."""
        self.exchange.abort()
        self.close(error)

    def close(self, error: ArbiterError | None) -> None:
        """The answer is through, or broke off with `error`: complete the attempt's row."""
        measured, self._measured = self._measured, None
        if measured is not None:
            measured.ended(self.rung.name)
        if self.stream is not None:
            self.facts = self.stream.facts()
        self.attempt.close(self.facts, error)
        if measured is None:
            return
        if error is None and self.facts is not None and self.stream is not None:
            measured.saw(self.rung.name, self._sent_ns, self.facts)
        if self.on_close is not None:
            self.on_close(self, error)
