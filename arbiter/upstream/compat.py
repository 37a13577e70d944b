"""The roads less travelled: upstreams behind an HTTP proxy or SOCKS5, on httpcore's own connections. (And, in
http2.py, those that speak HTTP/2.)

One httpcore connection per slot; never its pool, whose every start and end looks at all connections. A task pumps the
answer into the same `Exchange` that the direct connection feeds, so pool, budgets, backpressure and endings are the
same; what differs is the price, some 150 µs a request, and a task per answer.

httpcore's exceptions are translated here, in `_translate`, and nowhere else. Budgets are the transport's sweeper's:
httpcore is given no time-outs. Its trace tells when the request itself goes out, behind TCP, CONNECT and TLS: until
then the exchange is `connecting`.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterable
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import httpcore
from httpcore._async.socks_proxy import AsyncSocks5Connection
from socksio import SOCKSError

from ..clock import monotonic
from ..errors import ArbiterError, BadRequest, ConfigFault, Cut, Garbled, Unreachable
from ..pieces import Body
from .exchange import Exchange
from .h1 import Stale
from .pool import DRAIN_BYTES, Origin

_PORTS = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}
# That a proxy sends another reply than the one that is due is an assertion in httpcore.
NO_SOCKS = (SOCKSError, AssertionError)
# OSError: TLS alerts that come after the handshake (a client certificate refused) are not httpcore's to wrap.
_FAULTS = (
    ArbiterError,
    httpcore.ProtocolError,
    httpcore.NetworkError,
    httpcore.ProxyError,
    httpcore.ConnectionNotAvailable,
    OSError,
)


class Compat:
    """One connection of httpcore's, used by one exchange after the other."""

    def __init__(
        self,
        origin: Origin,
        target: tuple[str, str, int],
        proxy: str | None,
        context: ssl.SSLContext | None,
        first_probe_s: float,
        tasks: set[asyncio.Task[None]],
    ) -> None:
        scheme, host, port = target
        self._origin = origin
        self._target = target
        self._backend = Backend(first_probe_s)
        self._tasks = tasks
        self._via = " through the proxy" if proxy is not None else ""
        self._http = self._connection(httpcore.Origin(scheme.encode(), host.encode(), port), proxy, context)
        self._exchange: Exchange | None = None
        self._pump: asyncio.Task[None] | None = None
        self._readable = asyncio.Event()
        self._readable.set()
        self._allowance = 0
        self._slot = True
        self.served = 0

    # ------------------------------------------------------------------------------------- for the transport

    def start(self, exchange: Exchange, head: bytes, body: Body, bodyless: bool) -> None:
        """Send the request whose head, as it would go on the wire, is `head`; its answer goes to `exchange`."""
        line, *fields = head[:-4].split(b"\r\n")
        method, path, _ = line.split(b" ")
        scheme, host, port = self._target
        exchange.connecting = self.served == 0
        self.served += 1

        async def trace(name: str, info: dict[str, Any]) -> None:
            if name.endswith("send_request_headers.started") and info["request"].method != b"CONNECT":
                exchange.connected()

        request = httpcore.Request(
            method,
            httpcore.URL(scheme=scheme.encode(), host=host.encode(), port=port, target=path),
            headers=[(name, value) for name, _, value in (field.partition(b": ") for field in fields)],
            content=self._content(bytes(body)),
            extensions={"trace": trace},
        )
        self._exchange = exchange
        self._backend.received = 0
        self._pump = self._spawn(self._run(exchange, request, bodyless))

    def give_slot(self) -> bool:
        """Hand the slot to the caller; True if there was one to hand."""
        had, self._slot = self._slot, False
        return had

    def take_slot(self) -> None:
        """The pool gave this connection out again."""
        self._slot = True

    # ------------------------------------------------------------------------------------- for the exchange

    def pause(self) -> None:
        self._readable.clear()

    def resume(self) -> None:
        self._readable.set()

    def release(self) -> None:
        self._exchange = None
        self._allowance = DRAIN_BYTES
        self._slot = False
        self._origin.drain(self)
        self.resume()

    def abort(self) -> None:
        self._exchange = None
        self._stop()
        if self.give_slot():
            self._origin.free()

    # ------------------------------------------------------------------------------------- for the pool

    def is_usable(self) -> bool:
        return self._http.is_idle() and not self._http.has_expired()

    def dismiss(self) -> None:
        self._stop()

    # ------------------------------------------------------------------------------------- inside

    async def _run(self, exchange: Exchange, request: httpcore.Request, bodyless: bool) -> None:
        reused = self.served > 1
        answered = False
        try:
            response = await self._http.handle_async_request(request)
            try:
                headers = [(name.decode().lower(), value.decode("latin-1")) for name, value in response.headers]
                length, encoding, delimited = self._framing(headers, bodyless or response.status in (204, 304))
                exchange.on_head(response.status, headers, length, delimited, encoding)
                answered = True
                async for data in response.aiter_stream():
                    if not data:
                        continue
                    await self._readable.wait()
                    if self._exchange is not None:
                        exchange.last_activity = monotonic()
                        exchange.push(data)
                    else:
                        self._allowance -= len(data)
                        if self._allowance < 0:
                            raise Cut("too much was left unread")
            finally:
                await response.aclose()
        except asyncio.CancelledError:
            await self._close()
            raise
        except _FAULTS as error:
            await self._close()
            self._break(exchange, error, answered=answered, reused=reused)
            return
        self._pump = None
        mine, self._exchange = self._exchange is exchange, None
        if mine:
            exchange.part()
        self._keep_or_close(drained=not mine)
        if mine:
            exchange.end(None)

    def _keep_or_close(self, *, drained: bool) -> None:
        if self.is_usable():
            self._slot = False
            self._origin.keep(self)
        elif drained:
            self._origin.lost(self)
        else:
            self.abort()

    def _break(self, exchange: Exchange, error: Exception, *, answered: bool, reused: bool) -> None:
        self._pump = None
        mine, self._exchange = self._exchange is exchange, None
        if not mine:
            self._origin.lost(self)
        elif answered:
            exchange.part()
            if self.give_slot():
                self._origin.free()
            exchange.end(self._translate(error, answered=True))
        elif reused and self._untouched(error):
            exchange.fail(Stale())
        else:
            exchange.fail(self._translate(error, answered=False))

    def _untouched(self, error: Exception) -> bool:
        """Whether the upstream cannot have begun with the request that `error` ended before its answer."""
        return self._backend.received == 0 and not isinstance(error, ArbiterError)

    def _translate(self, error: Exception, *, answered: bool) -> ArbiterError:
        if isinstance(error, ArbiterError):
            return error
        if isinstance(error, httpcore.ProxyError):
            return Unreachable(f"the proxy refused the connection: {error}")
        if isinstance(error, httpcore.LocalProtocolError):
            return BadRequest(f"the request cannot be sent: {error}")
        if isinstance(error, httpcore.RemoteProtocolError) and not self._backend.at_eof:
            return Garbled(f"the upstream's answer is not proper HTTP: {error}")
        if answered:
            return Cut(f"the upstream's answer was cut short: {error}")
        cause = error.__cause__
        if isinstance(cause, ssl.SSLCertVerificationError):
            return Unreachable(f"the certificate of {self._place} cannot be trusted: {cause.verify_message}")
        return Unreachable(f"{self._place} cannot be reached{self._via}: {str(error) or 'the connection broke'}")

    @property
    def _place(self) -> str:
        return f"{self._target[1]}:{self._target[2]}"

    # ------------------------------------------------------------------------------------- what HTTP/2 does its own way

    def _connection(
        self, target: httpcore.Origin, proxy: str | None, context: ssl.SSLContext | None
    ) -> httpcore.AsyncConnectionInterface:
        """The connection, not yet made. Errors: ConfigFault."""
        assert proxy is not None, "direct HTTP/1.1 is h1.py's"
        return _proxied(target, proxy, context, self._backend)

    def _content(self, body: bytes) -> bytes | AsyncIterator[bytes]:
        return body

    def _framing(self, headers: list[tuple[str, str]], bodyless: bool) -> tuple[int, str, bool]:
        """(announced length or -1, Content-Encoding, whether only the end of the connection ends the body)."""
        names = dict(headers)
        length = int(names.get("content-length", "-1"))
        encoding = ",".join(value for name, value in headers if name == "content-encoding")
        return length, encoding, not bodyless and length < 0 and "transfer-encoding" not in names

    # ------------------------------------------------------------------------------------- its end

    def _stop(self) -> None:
        pump, self._pump = self._pump, None
        if pump is not None:
            pump.cancel()  # it closes the connection on its way out
        else:
            self._spawn(self._close())

    async def _close(self) -> None:
        await self._http.aclose()
        # httpcore leaves the socket open where a handshake with the proxy failed or was cancelled.
        if self._backend.stream is not None:
            await self._backend.stream.aclose()

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class Backend(httpcore.AsyncNetworkBackend):
    """httpcore's own backend, with TCP keepalive, and a count of what came: it decides whether to send once more."""

    def __init__(self, first_probe_s: float) -> None:
        from httpcore._backends.auto import AutoBackend

        self._inner = AutoBackend()
        first = max(1, round(first_probe_s))
        self._options: list[Any] = [
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
            (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, first),
            (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, round(first / 4))),
            (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
        ]
        self.stream: httpcore.AsyncNetworkStream | None = None
        self.received = 0
        self.at_eof = False

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        self.stream = await self._inner.connect_tcp(host, port, timeout, local_address, self._options)
        return _Stream(self.stream, self)


class _Stream(httpcore.AsyncNetworkStream):
    def __init__(self, inner: httpcore.AsyncNetworkStream, backend: Backend) -> None:
        self._inner = inner
        self._backend = backend

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = await self._inner.read(max_bytes, timeout)
        self._backend.received += len(data)
        self._backend.at_eof = not data
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        return _Stream(await self._inner.start_tls(ssl_context, server_hostname, timeout), self._backend)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class _Socks5(AsyncSocks5Connection):
    """httpcore's, for proxies that answer something else."""

    async def handle_async_request(self, request: httpcore.Request) -> httpcore.Response:
        try:
            return await super().handle_async_request(request)
        except NO_SOCKS as error:
            raise httpcore.ProxyError(f"it does not speak SOCKS5 ({error})") from None


class ProxyAddress(NamedTuple):
    """Where a proxy is, and who we are there."""

    scheme: str
    host: bytes
    port: int
    auth: tuple[bytes, bytes] | None


def proxy_address(url: str) -> ProxyAddress:
    """Read a proxy's URL. Errors: ConfigFault."""
    parts = urlsplit(url)
    try:
        port = parts.port or _PORTS[parts.scheme]
    except (KeyError, ValueError):
        port = 0
    if parts.scheme not in _PORTS or not port or not parts.hostname:
        raise ConfigFault("a proxy must be a URL with http, https, socks5 or socks5h, a host and a port")
    auth = (unquote(parts.username).encode(), unquote(parts.password or "").encode()) if parts.username else None
    return ProxyAddress(parts.scheme, parts.hostname.encode(), port, auth)


def _proxied(
    target: httpcore.Origin, url: str, context: ssl.SSLContext | None, backend: Backend
) -> httpcore.AsyncConnectionInterface:
    """The httpcore connection that reaches `target` through the proxy at `url`. Errors: ConfigFault."""
    scheme, host, port, auth = proxy_address(url)
    if scheme.startswith("socks5"):
        return _Socks5(
            httpcore.Origin(b"http", host, port), target, proxy_auth=auth, ssl_context=context, network_backend=backend
        )
    # httpcore's proxy pool makes these connections; it is never used as a pool.
    return httpcore.AsyncHTTPProxy(
        httpcore.URL(scheme=scheme.encode(), host=host, port=port, target=b"/"),
        proxy_auth=auth,
        ssl_context=context,
        network_backend=backend,
    ).create_connection(target)
