"""The client's end of one exchange: nothing else talks to Granian's protocol object.

Three facts of Granian shape this module (docs/design.md has the measurements):

- `send_bytes` copies into an unbounded channel, so a stalled client would grow the worker; and so would one that takes
  all there is, while Granian's thread gets too little of a busy machine to write it. After each half
  `limits.stream_buffer` we look at what the client's socket still owes and at what has not reached it; above the whole
  of it the upstream is paused until it is below the half again. On a unix socket a stream is bounded by
  `limits.answer` instead.
- A response ends, cleanly, when its transport object is freed. `Out` alone owns it and drops it in `close()`.
- A stream that failed must not end cleanly. `fail_stream` shuts the socket down once the error event has left it.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from arbiter._speedups import sock
from arbiter.clock import monotonic
from arbiter.config.snapshot import Limits
from arbiter.errors import ArbiterError, ClientGone, Garbled
from arbiter.watch import Watch

Headers = list[tuple[str, str]]

_POLL_S = 0.008
_STALLED_S = 300.0  # a client that takes not one byte for this long is gone
_EVENT_LEAVES_S = 0.25
_CLOSING = ("connection", "close")  # Granian says so only once its port is closed, and some are answered before
_QUIET_S, _QUIET_LOOKS = 0.004, 3  # nothing moved for this long and this often: all that was sent is there


class Source(Protocol):
    """What feeds a stream and can be held back."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class Serving(Protocol):
    """What is to be known of the worker that answers."""

    @property
    def draining(self) -> bool: ...


class Addresses(Protocol):
    """Both ends of a client's connection, "ip:port" each. Granian spells them out each time that it is asked."""

    @property
    def client(self) -> str: ...

    @property
    def server(self) -> str: ...


class Ends(msgspec.Struct, frozen=True):
    """Both of them, spelled out."""

    client: str
    server: str


class Out:
    """One answer to one client.

    States: nothing sent -> `started` (a stream's head is out) or `done` (a whole answer is out). `gone` once the
    client hung up. Calls after the end do nothing.
    """

    __slots__ = (
        "_addresses", "_alarms", "_checked", "_fd", "_keepalive", "_keepalive_s", "_limits", "_on_gone", "_poll",
        "_proto", "_rest", "_serving", "_source", "_stalled_since", "_stop", "_taken", "_ticket", "_transport",
        "_watcher",
        "bytes_out", "done", "gone", "last_sent_s", "started", "status",
    )  # fmt: skip

    def __init__(
        self,
        proto: Any,
        serving: Serving,
        addresses: Addresses | None,
        watch: Watch,
        keepalive_s: float,
        limits: Limits,
        ticket: Any = None,
    ) -> None:
        self._proto = proto
        self._ticket = ticket  # Granian's own; where nothing is answered, it says so to the client
        self._serving = serving
        self._transport: Any = None
        self._watcher: Any = None
        self._on_gone: Callable[[], None] | None = None
        self._source: Source | None = None
        self._stop: Callable[[ArbiterError], None]  # set with the source
        self._poll: asyncio.TimerHandle | None = None
        self._stalled_since = 0.0
        self._taken = 0  # bytes the stalled client's socket had acknowledged when last looked at
        self._checked = 0
        self._rest: int | None = None  # what of `bytes_out` was not in the socket when least was missing
        self._fd = -1
        self._addresses = addresses  # None on a unix socket
        self._alarms = watch
        self._limits = limits
        self._keepalive_s = keepalive_s
        self._keepalive: Keepalive | None = None
        self.started = False
        self.done = False
        self.gone = False
        self.status = 0
        self.bytes_out = 0
        self.last_sent_s = 0.0

    @property
    def peer(self) -> str:
        """The client's address, "ip:port"; empty on a unix socket."""
        return self._addresses.client if self._addresses is not None else ""

    def watch(self, on_gone: Callable[[], None]) -> None:
        """Call `on_gone` once when the client hangs up (a half-close counts). Arming it twice does nothing."""
        if self._watcher is None and not self.done:
            self._on_gone = on_gone
            self._watcher = self._proto.client_disconnect()
            self._watcher.add_done_callback(self._hung_up)

    def _hung_up(self, _: object) -> None:
        if self._watcher is None or self.done:
            return
        self.gone = True
        if self._on_gone is not None:
            self._on_gone()

    def reply(self, status: int, headers: Headers, body: bytes) -> None:
        """Send a whole answer."""
        if self.started or self.done:
            return
        self.status, self.done = status, True
        if self._serving.draining:
            headers = [*headers, _CLOSING]
        self.bytes_out = len(body)
        if body:
            self._proto.response_bytes(status, headers, body)
            if len(body) > self._limits.stream_buffer:
                self._bound_stall()
        else:
            self._proto.response_empty(status, headers)

    def start(self, status: int, headers: Headers, keepalive: bytes) -> None:
        """Send the head of a stream. While nothing else is sent, `keepalive` is, every `server.keepalive`, unless it is
        empty: some formats have none."""
        if self.started or self.done:
            return
        self.status, self.started = status, True
        if self._serving.draining:
            headers = [*headers, _CLOSING]
        self._transport = self._proto.response_stream(status, headers)
        self.last_sent_s = monotonic()
        if self._keepalive_s > 0 and keepalive:
            self._keepalive = Keepalive(self, self._alarms, self._keepalive_s, keepalive)

    def hold_less(self) -> None:
        """A stream has begun: let go of Granian's request, and with it of the buffer that it came in."""
        if self._addresses is not None:
            self._addresses = Ends(self._addresses.client, self._addresses.server)
        self._ticket = None

    def draw_from(self, source: Source, stop: Callable[[ArbiterError], None]) -> None:
        """Name the source that a slow client holds back, and how to end the stream if the client takes nothing more."""
        self._source, self._stop = source, stop

    def send(self, data: bytes) -> None:
        """Send a piece of a started stream."""
        if self._transport is None or self.gone:
            return
        size = len(data)
        self._transport.send_bytes(data)
        self.bytes_out += size
        self.last_sent_s = monotonic()
        self._checked += size
        if self._checked >= self._limits.stream_buffer // 2:
            self._checked = 0
            self._hold_back_if_slow()

    def end(self) -> None:
        """End the stream cleanly."""
        self.done = True
        self._let_go()

    async def fail_stream(self, event: bytes, *, abrupt: bool) -> None:
        """Send the error event of a started stream and end it; with `abrupt` without the final chunk.

        On a unix socket the kernel does not tell which peer is which, so the end is a clean one there.
        """
        if self._transport is None:
            return
        fd = self._socket() if abrupt and not self.gone else -1
        written = sock.acked(fd) + max(0, sock.queued(fd))
        if event:
            self.send(event)
        if fd >= 0:
            await self._until_left(fd, written + len(event))
            if sock.peer_matches(fd, self.peer):
                sock.shutdown(fd)
                await asyncio.sleep(0)
        self.end()

    async def _until_left(self, fd: int, expected: int) -> None:
        """Wait until the client has `expected` bytes of this connection, and no more seem to follow.

        Granian's thread writes when it gets to it, what was sent before the event too; nobody tells how much that is.
        """
        limit = monotonic() + _EVENT_LEAVES_S
        seen, looks = -1, 0
        while looks < _QUIET_LOOKS and monotonic() < limit and not self.gone:
            await asyncio.sleep(_QUIET_S)
            count = sock.acked(fd)
            if count < 0:
                return
            looks = looks + 1 if count == seen and count >= expected and sock.queued(fd) <= 0 else 0
            seen = count

    def broke_off(self, error: BaseException) -> None:
        """Nobody answers any more; Granian logs why."""
        ticket, self._ticket = self._ticket, None
        if ticket is not None:
            ticket.err(error)

    def close(self) -> None:
        """Let go of the connection, whatever happened. Without this the client would wait for ever."""
        self.done = True
        self._let_go()
        self._proto = None
        ticket, self._ticket = self._ticket, None
        if ticket is not None:
            ticket.done()

    def _let_go(self) -> None:
        if self._poll is not None:
            self._poll.cancel()
            self._poll = None
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.cancel()
        if self._keepalive is not None:
            self._keepalive.off()
            self._keepalive = None
        self._on_gone = None
        if self._source is not None:
            # Both lead back to us: a stream that kept them would be there, request and all, until the collector comes.
            self._source = None
            del self._stop
        self._transport = None

    def _socket(self) -> int:
        if self._fd < 0 and self._addresses is not None:
            port = int(self._addresses.server.rpartition(":")[2] or 0)
            self._fd = sock.find(self.peer, port)
        return self._fd

    def _bound_stall(self) -> None:
        """A large answer has left our hands; have the kernel give the connection up if the client takes none of it."""
        fd = self._socket()
        if fd < 0:
            return
        try:
            with socket.socket(fileno=os.dup(fd)) as client:
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(_STALLED_S * 1000))
        except OSError:
            return  # it is gone already

    def _hold_back_if_slow(self) -> None:
        if self._poll is not None or self._source is None:
            return
        if self._addresses is None:
            # A unix socket's peers have no names to tell them apart by, so nobody can say how much this one has taken.
            if self.bytes_out > self._limits.answer:
                self._stop(Garbled("the stream is over `limits.answer`, which bounds streams on a unix socket"))
            return
        fd = self._socket()
        if fd >= 0 and sock.peer_matches(fd, self.peer) and self._owed(fd) > self._limits.stream_buffer:
            self._source.pause()
            self._stalled_since = monotonic()
            self._taken = sock.acked(fd)
            self._poll = asyncio.get_running_loop().call_later(_POLL_S, self._look_again)

    def _owed(self, fd: int) -> int:
        """Bytes that the client has not taken yet: in its socket's queue, or still on their way there.

        Nobody says how much Granian holds. But what was written to the socket so far is known, and differs from what we
        sent by a constant (the answers before this one, the heads), by the framing of what was written, if there is
        any, and by what is held. The least difference seen is taken for the first two; as framing only grows, that is
        never too little, and what is held never overrated.
        """
        acked = sock.acked(fd)  # before the queue: what is taken in between is missing from both, never in both
        queued = sock.queued(fd)
        if queued < 0:
            return 0  # there is no such socket any more
        missing = self.bytes_out - acked - queued
        if self._rest is None or missing < self._rest:
            self._rest = missing
        return queued + missing - self._rest

    def _look_again(self) -> None:
        self._poll = None
        source, fd = self._source, self._fd
        if source is None or self.gone:
            return
        count, now = sock.acked(fd), monotonic()
        if count != self._taken:
            self._taken, self._stalled_since = count, now
        if self._owed(fd) < self._limits.stream_buffer // 2:
            source.resume()
        elif now - self._stalled_since > _STALLED_S:
            # As good as gone, with more on its way to it than it will ever take.
            self.gone = True
            if sock.peer_matches(fd, self.peer):
                sock.shutdown(fd)
            self._stop(ClientGone(f"the client took nothing for {_STALLED_S:g} s"))
        else:
            self._poll = asyncio.get_running_loop().call_later(_POLL_S, self._look_again)


class Keepalive:
    """Keepalives of one started stream: no silence towards the client lasts longer than `every_s` and a tick."""

    __slots__ = ("_alarm", "_out", "_step_s", "_text", "_watch")

    def __init__(self, out: Out, watch: Watch, every_s: float, text: bytes) -> None:
        self._out, self._watch, self._text = out, watch, text
        self._step_s = every_s / 3
        self._alarm = watch.after(self._step_s, self._ring)

    def _ring(self) -> None:
        out = self._out
        if out.done or out.gone:
            return
        if monotonic() - out.last_sent_s >= 2 * self._step_s:
            out.send(self._text)
        self._alarm = self._watch.after(self._step_s, self._ring)

    def off(self) -> None:
        """Stop. Safe to call at any time."""
        self._alarm.off()
