"""One direct connection: `H1Core` between a socket and an exchange.

The request leaves in one write. The answer is pushed: socket callback, `feed`, `Exchange.push`; the only await is the
exchange's head. All connections of a worker read into one shared arena: a read is parsed, and its body bytes copied
out, before the callback returns, so an open stream owns no buffer. That much is in `LinkCore`, which is compiled.

A connection is *in use* (it has an exchange), *draining* (its exchange let go before the end), *idle*, or closed.
While in use it holds its origin's slot; idle and draining, the pool does.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import cast

from .._speedups import exchange, h1
from ..errors import ArbiterError, Cut, Unreachable
from .exchange import Exchange
from .pool import DRAIN_BYTES

HEAD, BODY, DONE = h1.HEAD, h1.BODY, h1.DONE

READ_BYTES = 64 << 10
"""The most that one read takes, and so the most that one `push` hands on."""


class Stale(Exception):
    """A kept connection turned out dead before a byte of the answer came: the request may go out once more."""


class H1(exchange.LinkCore, asyncio.BufferedProtocol):
    """One HTTP/1.1 connection: what befalls it beside the answers that come and go as they should."""

    __slots__ = ()

    # ------------------------------------------------------------------------------------- for the exchange

    def pause(self) -> None:
        transport = self.transport
        if self._reading and transport is not None and not transport.is_closing():
            self._reading = False
            transport.pause_reading()

    def resume(self) -> None:
        transport = self.transport
        if not self._reading and transport is not None and not transport.is_closing():
            self._reading = True
            transport.resume_reading()

    def release(self) -> None:
        self._exchange = None
        self._allowance = DRAIN_BYTES
        self._slot = False
        self._origin.drain(self)
        self.resume()

    def abort(self) -> None:
        self._exchange = None
        self._close()
        if self.give_slot():
            self._origin.free()

    # ------------------------------------------------------------------------------------- for the pool

    def dismiss(self) -> None:
        transport, self.transport = self.transport, None
        if transport is not None:
            transport.close()

    # ------------------------------------------------------------------------------------- the socket's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def eof_received(self) -> bool:
        self._lost(None, orderly=True)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost(exc)

    # ------------------------------------------------------------------------------------- inside

    def _unasked(self, nbytes: int) -> None:
        """Bytes that no exchange waits for: a drain's, or those of an idle connection, which then goes."""
        if self in self._origin.draining:
            self.feed(self._arena, nbytes)
            self._allowance -= nbytes
            if self.state == DONE and self.keep_alive and self.is_usable() and self._allowance >= 0:
                transport = self.transport
                if transport is not None and not transport.get_write_buffer_size():
                    self._origin.keep(self)
                    return
            if self.state == BODY and self._allowance > 0:
                return
        self._close()
        self._origin.lost(self)

    def _lost(self, exc: Exception | None, *, orderly: bool = False) -> None:
        transport, self.transport = self.transport, None
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            self._origin.lost(self)
        elif self.state == HEAD:
            if self.served > 1 and self.received == 0:
                exchange.fail(Stale())
            else:
                exchange.fail(Unreachable(f"the upstream closed the connection before it answered{_why(exc)}"))
        else:
            # Only an orderly end ends a body that has no other end.
            complete = orderly and (transport is None or _said_goodbye(transport)) and self.eof()
            if self.give_slot():
                self._origin.free()
            exchange.end(None if complete else Cut(f"the upstream's answer was cut short{_why(exc)}"))
        if transport is not None:
            transport.abort()

    def _break(self, exchange: Exchange, body: bytes, error: ArbiterError) -> None:
        self._exchange = None
        self._close()
        if exchange.head is not None:
            exchange.fail(error)  # `send` is waiting, and gives the slot back
            return
        exchange.part()
        if self.give_slot():
            self._origin.free()
        if body:
            exchange.push(body)
        exchange.end(error)

    def _close(self) -> None:
        transport, self.transport = self.transport, None
        if transport is not None:
            transport.abort()


def keepalive(transport: asyncio.BaseTransport, first_probe_s: float) -> None:
    """TCP keepalive: a first probe after `first_probe_s` of silence, then four a quarter of that apart (SPEC 3.3).

    It finds the dead servers that no time-out looks for, since a living one may be silent for minutes.
    """
    sock = transport.get_extra_info("socket")
    if sock is None or sock.family == socket.AF_UNIX:
        return
    first = max(1, round(first_probe_s))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, first)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, round(first / 4)))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _said_goodbye(transport: asyncio.Transport) -> bool:
    """Whether TLS was closed from within. A bare TCP end is anybody's to forge (RFC 9112 section 9.8)."""
    tls = transport.get_extra_info("ssl_object")
    if tls is None:
        return True
    try:
        return not tls.read(1)
    except ssl.SSLError:
        return False  # it still waits for more


def _why(exc: Exception | None) -> str:
    return f": {exc}" if exc is not None and str(exc) else ""
