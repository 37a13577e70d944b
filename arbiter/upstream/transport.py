"""One door to the network: a request goes out, its answer's head comes back, its body is pushed.

`Transport.send` finds or opens a connection (pool.py), writes the request, and returns at the head. A sweeper looks
at the exchanges in flight twice a second, oftener where budgets are small, and ends those that used one up; no
request and no chunk has a timer of its own. Foreign exceptions are translated here and nowhere else.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict, cast

from ..clock import monotonic, monotonic_ns
from ..errors import ArbiterError, BadRequest, Cut, TimedOut, Unreachable, Untrusted
from .exchange import Answering, Exchange, Outgoing, Sink
from .h1 import H1, READ_BYTES, Stale, keepalive
from .pool import Origin, Pool
from .tls import Contexts, Handshake, Sessions

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..config.snapshot import Budgets, Endpoint
    from .compat import Compat

__all__ = ["Answering", "Exchange", "OriginStats", "Outgoing", "Sink", "Transport"]

_SWEEP_S = 0.5
_PLACES = 1024
_HEADS, _HEAD_BYTES = 256, 8 << 10
_SEEN = 64  # lists of headers that are kept so that their head is found at once; some come once only
_SHUTDOWN_S = 2.0  # how long a TLS connection we close may take over its goodbye
_FIRST_PROBE_S = 60.0  # TCP keepalive where the headers budget is off
_BODYLESS_METHODS = ("GET", "HEAD", "DELETE", "OPTIONS")


class OriginStats(TypedDict):
    """One origin's connections: `open` = idle + draining + in use (those being opened included)."""

    origin: str
    open: int
    idle: int
    draining: int
    in_use: int
    waiters: int


@dataclass(slots=True)
class _Place:
    """An endpoint with what every request to it needs."""

    endpoint: Endpoint
    origin: Origin
    host: str
    is_rare: bool  # reached by another way than a direct connection of HTTP/1.1
    paces: dict[bool, tuple[Budgets, float]] = field(default_factory=dict)  # how often to look at a stream, and others


class Transport:
    """The upstream connections of one worker. Create it on the loop; `send` is the only way out."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pool = Pool()
        self._contexts = Contexts()
        self._sessions = Sessions()
        self._places: dict[int, _Place] = {}
        self._arena = memoryview(bytearray(READ_BYTES))
        self._active: set[Exchange] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._sweeper: asyncio.TimerHandle | None = None
        self._sweep_at = 0.0

    async def send(
        self,
        endpoint: Endpoint,
        out: Outgoing,
        budgets: Budgets,
        *,
        stream: bool,
        max_connections: int,
        idle_connections: int,
        idle_for_s: float,
    ) -> Exchange:
        """Send `out` and return at the answer's head. The caller ends the exchange: to its end, `finish` or `abort`.

        Errors: Unreachable, TimedOut("queue" | "connect" | "headers" | "unary" | "total"), Garbled, ConfigFault for
        TLS files that cannot be used, BadRequest for a header that cannot be sent.
        Cancelled at any await, it closes what it opened and gives back its slot.
        """
        place = self._places.get(id(endpoint))
        if place is None or place.endpoint is not endpoint:
            place = self._place(endpoint)
        head = request_head(place.host, out)
        origin, rare = place.origin, place.is_rare
        origin.limit(max_connections, idle_connections, idle_for_s)
        pace = place.paces.get(stream)
        if pace is None or pace[0] is not budgets:
            pace = place.paces[stream] = budgets, _interval(budgets, stream, rare)
        exchange = Exchange(budgets, stream, pace[1], self._active)
        if rare:
            exchange.on_sent = out.on_sent
        connection: Any = origin.try_acquire()
        if connection is None:
            connection = await origin.acquire(budgets.queue_s)
            exchange.queue_us = (monotonic_ns() - exchange.started_at_ns) // 1000
        else:
            exchange.queue_us = 0
        reused = connection is not None
        handshake: Handshake | None = None
        while True:
            if connection is None:
                if rare:
                    connection = self._compat(origin, endpoint, budgets)
                else:
                    began_ns = monotonic_ns()
                    connection, handshake = await self._open(origin, endpoint, budgets)
                    exchange.connect_us = (monotonic_ns() - began_ns) // 1000
            else:
                connection.take_slot()
            waiting = self._loop.create_future()
            exchange.begin(connection, waiting, reused=reused)
            if self._sweeper is None or exchange.interval < _SWEEP_S:
                self._watch(exchange.interval)
            try:
                connection.start(exchange, head, out.body, out.method == "HEAD")
                if out.on_sent is not None and not rare:
                    out.on_sent()
                await waiting
                if handshake is not None:
                    self._sessions.keep(handshake)
                return exchange
            except Stale:
                # It died while nobody used it, before a byte of this answer: once more, on a new one (SPEC 3.2).
                connection.give_slot()
                connection, reused = None, False
            except BaseException as error:
                if handshake is not None and isinstance(error, Unreachable):
                    self._sessions.forget(handshake.place)
                # Not the connection: it may have answered, and be another's by now.
                exchange.abort()
                raise

    def stats(self) -> list[OriginStats]:
        """The connections of every origin that has any, as they are now."""
        return [
            OriginStats(
                origin=_display(key),
                open=origin.open,
                idle=len(origin.idle),
                draining=len(origin.draining),
                in_use=origin.open - len(origin.idle) - len(origin.draining),
                waiters=len(origin.waiters) + len(origin.hopers),
            )
            for key, origin in self._pool.origins.items()
            if origin.open or origin.waiters
        ]

    def renew(self, endpoints: Iterable[Endpoint]) -> None:
        """The configuration was read again, and names these: idle connections to others close, TLS files are read anew.

        Exchanges under way go on, wherever they go.
        """
        self._places.clear()
        self._contexts, self._sessions = Contexts(), Sessions()
        kept = {_key(endpoint) for endpoint in endpoints}
        for key, origin in self._pool.origins.items():
            if key not in kept:
                origin.max_idle = 0  # whoever sends there again sets it again
                origin.close()

    async def close(self) -> None:
        """Close every connection; exchanges in flight end with Cut."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for exchange in list(self._active):
            exchange.give_up(Cut("the gateway is closing"))
        self._pool.close()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await asyncio.sleep(0)  # the sockets close in the loop's next turn

    # ------------------------------------------------------------------------------------- inside

    def _place(self, endpoint: Endpoint) -> _Place:
        """What we know of `endpoint`, looked up by its value. Kept under its identity, for the next request."""
        if len(self._places) >= _PLACES:
            self._places.clear()  # a reload brings new endpoint objects; those of the old one are of no use
        is_rare = endpoint.proxy is not None or endpoint.http2
        origin = self._pool.origin(_key(endpoint))
        place = self._places[id(endpoint)] = _Place(endpoint, origin, endpoint.authority, is_rare)
        return place

    def _compat(self, origin: Origin, endpoint: Endpoint, budgets: Budgets) -> Compat:
        """A connection through a proxy or with HTTP/2 in the slot we hold; it connects once the request is there."""
        # httpcore and what it brings cost memory that most workers never need.
        from .compat import Compat

        kind = Compat
        if endpoint.http2:
            from .http2 import Http2 as kind

        try:
            return kind(
                origin,
                (endpoint.scheme, endpoint.host, endpoint.port),
                endpoint.proxy,
                self._context(endpoint),
                budgets.headers_s or _FIRST_PROBE_S,
                self._tasks,
            )
        except BaseException:
            origin.free()
            raise

    async def _open(self, origin: Origin, endpoint: Endpoint, budgets: Budgets) -> tuple[H1, Handshake | None]:
        """A new connection in the slot we hold, and its TLS; without one the slot is given back."""
        connection = H1(origin, self._arena)
        try:
            return connection, await self._connect(connection, endpoint, budgets)
        except BaseException:
            connection.abort()
            raise

    async def _connect(self, connection: H1, endpoint: Endpoint, budgets: Budgets) -> Handshake | None:
        context = self._context(endpoint)
        began = monotonic()
        timer = asyncio.timeout(budgets.connect_s or None)
        try:
            async with timer:
                if context is None:
                    handshake = await self._dial(connection, endpoint, None)
                else:
                    handshake = await self._dial_tls(connection, endpoint, context)
        except TimeoutError as error:
            if timer.expired():
                # Perhaps of the session that was offered: who cannot cope with one may also say nothing.
                self._sessions.forget(_key(endpoint))
                raise TimedOut("connect", monotonic() - began) from None
            raise _unreachable(endpoint, error) from None
        except (OSError, ssl.SSLError, UnicodeError) as error:
            raise _unreachable(endpoint, error) from None
        if connection.transport is None:
            raise Unreachable(f"{_place(endpoint)} closed the connection at once")
        keepalive(connection.transport, budgets.headers_s or _FIRST_PROBE_S)
        return handshake

    async def _dial_tls(self, connection: H1, endpoint: Endpoint, context: ssl.SSLContext) -> Handshake | None:
        place = _key(endpoint)
        handshake = self._sessions.handshake(place, context)
        try:
            return await self._dial(connection, endpoint, handshake)
        except (ssl.SSLError, ConnectionResetError) as error:
            if handshake.offered is None or isinstance(error, ssl.SSLCertVerificationError):
                raise
            # A server passes over a session that it does not know. Some end the handshake instead: without one, then.
            self._sessions.forget(place)
            return await self._dial(connection, endpoint, Handshake(place, context))

    async def _dial(self, connection: H1, endpoint: Endpoint, handshake: Handshake | None) -> Handshake | None:
        secure = cast("ssl.SSLContext | None", handshake)
        name = endpoint.host if handshake is not None else None
        shutdown_s = _SHUTDOWN_S if handshake is not None else None
        if endpoint.uds is not None:
            await self._loop.create_unix_connection(
                lambda: connection,
                endpoint.uds,
                ssl=secure,
                server_hostname=name,
                ssl_shutdown_timeout=shutdown_s,
            )
        else:
            await self._loop.create_connection(
                lambda: connection,
                endpoint.host,
                endpoint.port,
                ssl=secure,
                server_hostname=name,
                ssl_shutdown_timeout=shutdown_s,
            )
        return handshake

    def _context(self, endpoint: Endpoint) -> ssl.SSLContext | None:
        if endpoint.scheme != "https":
            return None
        return self._contexts.get(endpoint.tls_ca, endpoint.tls_cert, endpoint.tls_key, endpoint.http2)

    def _watch(self, interval: float) -> None:
        """See to it that the sweeper looks again within `interval`."""
        due = monotonic() + interval
        if self._sweeper is None or due < self._sweep_at:
            if self._sweeper is not None:
                self._sweeper.cancel()
            self._sweep_at = due
            self._sweeper = self._loop.call_later(interval, self._sweep)

    def _sweep(self) -> None:
        self._sweeper = None
        now = monotonic()
        interval = _SWEEP_S
        for exchange in list(self._active):
            late = exchange.overdue(now)
            if late is not None:
                exchange.give_up(late)
            else:
                interval = min(interval, exchange.interval)
        if self._active:
            self._sweep_at = now + interval
            self._sweeper = self._loop.call_later(interval, self._sweep)


_heads: dict[tuple[object, ...], bytes] = {}  # all but the length; requests of one client to one place share theirs
_seen: dict[tuple[int, str, str, str], tuple[Sequence[tuple[str, str]], bytes]] = {}  # the same, by who made them


def request_head(host: str, out: Outgoing) -> bytes:
    """The request's head as it goes on the wire, with `host` as its Host.

    Errors: BadRequest if a name, a value or the path would break out of its line.
    """
    headers = out.headers
    same = id(headers), host, out.method, out.path
    seen = _seen.get(same)
    # Of a list that is gone another may have the place.
    if seen is not None and seen[0] is headers:
        head = seen[1]
    else:
        head = _known_head(host, out)
        if len(_seen) >= _SEEN:
            _seen.clear()
        if len(head) <= _HEAD_BYTES:
            _seen[same] = headers, head
    if out.body or out.method not in _BODYLESS_METHODS:
        return b"%bcontent-length: %d\r\n\r\n" % (head, len(out.body))
    return head + b"\r\n"


def _known_head(host: str, out: Outgoing) -> bytes:
    key = (host, out.method, out.path, *out.headers)
    head = _heads.get(key)
    if head is None:
        head = _checked_head(host, out)
        if len(_heads) >= _HEADS:
            _heads.clear()
        if len(head) <= _HEAD_BYTES:
            _heads[key] = head
    return head


def _checked_head(host: str, out: Outgoing) -> bytes:
    first = f"{out.method} {out.path} HTTP/1.1\r\nhost: {host}\r\n"
    fields = "".join([f"{name}: {value}\r\n" for name, value in out.headers])
    # A gateway would only unpack it again, and a compressor upstream may sit on a stream's events.
    identity = "" if "accept-encoding: " in fields else "accept-encoding: identity\r\n"
    head = f"{first}{fields}{identity}"
    breaks = 2 + len(out.headers) + bool(identity)
    if head.count("\r") != breaks or head.count("\n") != breaks or "\0" in head or first.count(" ") != 3:
        raise BadRequest("a header or the path holds characters that HTTP cannot carry")
    try:
        return head.encode("latin-1")
    except UnicodeEncodeError:
        return head.encode()


def _interval(budgets: Budgets, stream: bool, connects: bool) -> float:
    """How often to look at an exchange with these budgets, in seconds: a quarter of the smallest, at most 0.5."""
    smallest = budgets.total_s or 60.0
    if not stream:
        if budgets.unary_s:
            smallest = min(smallest, budgets.unary_s)
    else:
        for limit in (budgets.headers_s, budgets.first_event_s, budgets.idle_s):
            if limit and limit < smallest:
                smallest = limit
    if connects and budgets.connect_s:
        smallest = min(smallest, budgets.connect_s)
    return min(_SWEEP_S, smallest / 4)


def _key(endpoint: Endpoint) -> tuple[object, ...]:
    return (
        endpoint.scheme,
        endpoint.host,
        endpoint.port,
        endpoint.uds,
        endpoint.proxy,
        endpoint.tls_ca,
        endpoint.tls_cert,
        endpoint.tls_key,
        endpoint.http2,
    )


def _display(key: object) -> str:
    scheme, host, port, uds = cast("tuple[str, str, int, str | None]", cast("tuple[object, ...]", key)[:4])
    return f"{scheme}+unix://{uds}" if uds is not None else f"{scheme}://{host}:{port}"


def _place(endpoint: Endpoint) -> str:
    return endpoint.uds or f"{endpoint.host}:{endpoint.port}"


def _unreachable(endpoint: Endpoint, error: Exception) -> ArbiterError:
    if isinstance(error, ssl.SSLCertVerificationError):
        return Untrusted(f"the certificate of {_place(endpoint)} cannot be trusted: {error.verify_message}")
    return Unreachable(f"{_place(endpoint)} cannot be reached: {error}")
