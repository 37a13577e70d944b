"""Upstreams that speak HTTP/2 and nothing else: httpcore's connection for it, one exchange at a time.

A connection could carry many streams. Here each exchange has its own, as in HTTP/1.1: what one client leaves unread
holds up no other, and closing the socket is what stops the server. TLS offers `h2` alone; without TLS the server is
taken to know (prior knowledge). Through a proxy both go in a tunnel.

`_Connection` mends what the library does less well than a gateway for long answers must:

- after any GOAWAY it reads no more, and a server that is being replaced says so in the middle of an answer that it will
  still finish: `_Frames` keeps the polite ones from it, and the connection is not used again;
- an answer that comes before the whole request was taken (413, 401) would be lost;
- the server's mistakes would look like ours, and header fields would arrive unchecked.

Errors from here on are as in compat.py; `Http2` knows which of them mean that the server never began (a stream it
refused, a GOAWAY that does not count it in), so that a kept connection's last moment costs a resend and no failure.
"""

from __future__ import annotations

import base64
import re
import select
import ssl
from collections.abc import AsyncIterator
from typing import Any

import h2.errors
import h2.events
import h2.exceptions
import httpcore
from httpcore._async.socks_proxy import _init_socks5_connection

from ..errors import ArbiterError, Cut, Garbled, Unreachable
from .compat import NO_SOCKS, Backend, Compat, ProxyAddress, proxy_address

# httpcore cuts what is left of a piece anew for each frame: of a large body in one piece, again and again.
_PIECE_BYTES = 64 << 10
_FRAME_HEAD, _GOAWAY = 9, 7
_FRAME_BYTES = 16 << 10  # what HTTP/2 allows who was not told otherwise; h2 would first wait for all of a larger one
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+")
_STATUS = re.compile(rb"[2-9][0-9][0-9]")
_NOT_PROPER = "the upstream's answer is not proper HTTP/2"
_NOT_HTTP2 = 'does not speak HTTP/2; set `http: "1.1"` for this provider'


class Http2(Compat):
    """One HTTP/2 connection, direct or through a proxy."""

    def is_usable(self) -> bool:
        return super().is_usable() and not self._hung_up()

    def _hung_up(self) -> bool:
        """Whether the server closed it. Frames that wait unread are no reason: settings and pings come at any time."""
        stream = self._backend.stream
        fd = -1 if stream is None else stream.get_extra_info("socket").fileno()
        if fd < 0:
            return True
        poll = select.poll()
        poll.register(fd, select.POLLRDHUP)
        return bool(poll.poll(0))

    @property
    def _ignored(self) -> bool:
        """Whether the server has had our HTTP/2 and never sent any."""
        assert isinstance(self._http, _Route)
        return self._http.is_ignored()

    def _connection(
        self, target: httpcore.Origin, proxy: str | None, context: ssl.SSLContext | None
    ) -> httpcore.AsyncConnectionInterface:
        return _Route(target, proxy_address(proxy) if proxy is not None else None, context, self._backend)

    def _content(self, body: bytes) -> bytes | AsyncIterator[bytes]:
        return body if len(body) <= _PIECE_BYTES else _pieces(body)

    def _framing(self, headers: list[tuple[str, str]], bodyless: bool) -> tuple[int, str, bool]:
        length, encoding, _ = super()._framing(headers, bodyless)
        return length, encoding, False  # the end of a stream is always said

    def _untouched(self, error: Exception) -> bool:
        if isinstance(error, httpcore.ConnectionNotAvailable):
            return True
        ended = error.args[0] if error.args else None
        if isinstance(ended, h2.events.StreamReset):
            return ended.error_code == h2.errors.ErrorCodes.REFUSED_STREAM
        return super()._untouched(error)

    def _translate(self, error: Exception, *, answered: bool) -> ArbiterError:
        kind = Cut if answered else Unreachable
        ended = error.args[0] if error.args else None
        if isinstance(error, httpcore.ConnectionNotAvailable):
            return kind(f"{self._place} closed the connection without taking the request")
        if isinstance(ended, h2.events.StreamReset):
            if ended.error_code == h2.errors.ErrorCodes.HTTP_1_1_REQUIRED:
                return Garbled(f"{self._place} {_NOT_HTTP2}")
            return kind(f"{self._place} reset the stream: {_word(ended.error_code)}")
        if isinstance(ended, h2.events.ConnectionTerminated):
            return kind(f"{self._place} ended the connection: {_word(ended.error_code)}")
        if isinstance(error, httpcore.ReadError | httpcore.WriteError | httpcore.RemoteProtocolError) and self._ignored:
            return Unreachable(f"{self._place} closed the connection without a word of HTTP/2; does it speak it?")
        if isinstance(error.__cause__, ssl.SSLError) and "NO_APPLICATION_PROTOCOL" in str(error):
            return Garbled(f"{self._place} {_NOT_HTTP2}")
        return super()._translate(error, answered=answered)


class _Route(httpcore.AsyncConnectionInterface):
    """What httpcore calls a connection: it connects at the first request."""

    def __init__(
        self,
        target: httpcore.Origin,
        proxy: ProxyAddress | None,
        context: ssl.SSLContext | None,
        backend: Backend,
    ) -> None:
        self._target = target
        self._proxy = proxy
        self._context = context
        self._backend = backend
        self._made: _Connection | None = None

    async def handle_async_request(self, request: httpcore.Request) -> httpcore.Response:
        if self._made is None:
            self._made = _Connection(self._target, await self._connect())
        return await self._made.handle_async_request(request)

    async def aclose(self) -> None:
        if self._made is not None:
            await self._made.aclose()

    def is_idle(self) -> bool:
        return self._made is not None and self._made.is_idle() and self._made.is_available()

    def has_expired(self) -> bool:
        return False

    def is_ignored(self) -> bool:
        return self._made is not None and not self._made.frames.has_begun

    async def _connect(self) -> _Frames:
        """Errors: Garbled for a server without HTTP/2, ProxyError, NetworkError."""
        host, port = self._target.host.decode(), self._target.port
        if self._proxy is None:
            stream: httpcore.AsyncNetworkStream = await self._backend.connect_tcp(host, port)
        elif self._proxy.scheme.startswith("socks5"):
            stream = await _through_socks(self._proxy, self._target, self._backend)
        else:
            stream = await _through_connect(self._proxy, self._target, self._backend)
        if self._context is not None:
            stream = await stream.start_tls(self._context, host)
            if stream.get_extra_info("ssl_object").selected_alpn_protocol() != "h2":
                raise Garbled(f"{host}:{port} {_NOT_HTTP2}")
        return _Frames(stream, f"{host}:{port}")


async def _through_socks(proxy: ProxyAddress, target: httpcore.Origin, backend: Backend) -> httpcore.AsyncNetworkStream:
    stream = await backend.connect_tcp(proxy.host.decode(), proxy.port)
    try:
        await _init_socks5_connection(stream, host=target.host.decode(), port=target.port, auth=proxy.auth)  # type: ignore[arg-type]
    except NO_SOCKS as error:
        raise httpcore.ProxyError(f"it does not speak SOCKS5 ({error})") from None
    return stream


async def _through_connect(
    proxy: ProxyAddress, target: httpcore.Origin, backend: Backend
) -> httpcore.AsyncNetworkStream:
    host = b"[%b]" % target.host if b":" in target.host else target.host
    place = b"%b:%d" % (host, target.port)
    headers = [(b"Host", place)]
    if proxy.auth is not None:
        headers.append((b"Proxy-Authorization", b"Basic " + base64.b64encode(b":".join(proxy.auth))))
    where = httpcore.Origin(proxy.scheme.encode(), proxy.host, proxy.port)
    url = httpcore.URL(scheme=where.scheme, host=where.host, port=where.port, target=place)
    hop = httpcore.AsyncHTTPConnection(where, network_backend=backend)
    response = await hop.handle_async_request(httpcore.Request(b"CONNECT", url, headers=headers))
    if not 200 <= response.status <= 299:
        raise httpcore.ProxyError(f"{response.status} {response.extensions['reason_phrase'].decode('latin-1')}")
    stream = response.extensions["network_stream"]
    assert isinstance(stream, httpcore.AsyncNetworkStream)
    return stream


class _Connection(httpcore.AsyncHTTP2Connection):
    """httpcore's HTTP/2 connection, mended (see above)."""

    def __init__(self, target: httpcore.Origin, frames: _Frames) -> None:
        super().__init__(target, frames)
        self.frames = frames
        self._broken_off = False

    def is_available(self) -> bool:
        return super().is_available() and not self._broken_off and not self.frames.is_going_away

    async def handle_async_request(self, request: httpcore.Request) -> httpcore.Response:
        try:
            return await super().handle_async_request(request)
        except httpcore.RemoteProtocolError as error:
            ended = error.args[0]
            if isinstance(ended, h2.events.ConnectionTerminated) and self.frames.stream_id > (
                ended.last_stream_id or 0
            ):
                raise httpcore.ConnectionNotAvailable from None
            raise

    async def _send_request_headers(self, request: httpcore.Request, stream_id: int) -> None:
        self.frames.stream_id = stream_id
        await super()._send_request_headers(request, stream_id)

    async def _send_request_body(self, request: httpcore.Request, stream_id: int) -> None:
        try:
            await super()._send_request_body(request, stream_id)
        except (_Answered, h2.exceptions.StreamClosedError, h2.exceptions.NoSuchStreamError):
            # The server wants no more of it. Its answer, or its reset, is what the caller will read next.
            if not self._events[stream_id]:
                raise
            self._broken_off = True

    async def _wait_for_outgoing_flow(self, request: httpcore.Request, stream_id: int) -> int:
        while True:
            window = self._h2_state.local_flow_control_window(stream_id)
            if window > 0:
                return min(window, self._h2_state.max_outbound_frame_size)
            if any(isinstance(event, h2.events.StreamEnded) for event in self._events[stream_id]):
                raise _Answered
            await self._receive_events(request)

    async def _read_incoming_data(self, request: httpcore.Request) -> list[h2.events.Event]:
        try:
            return await super()._read_incoming_data(request)
        except h2.exceptions.ProtocolError as error:
            raise Garbled(f"{_NOT_PROPER}: {error}") from None

    async def _receive_response(
        self, request: httpcore.Request, stream_id: int
    ) -> tuple[int, list[tuple[bytes, bytes]]]:
        event: Any = None
        while not isinstance(event, h2.events.ResponseReceived):
            event = await self._receive_stream_event(request, stream_id)
        status, headers = b"", []
        for name, value in event.headers:
            if name == b":status":
                status = value
            elif not _NAME.fullmatch(name) or b"\r" in value or b"\n" in value or b"\0" in value:
                raise Garbled(f"{_NOT_PROPER}: a header field holds what none may")
            else:
                headers.append((name, value))
        if not _STATUS.fullmatch(status):
            raise Garbled(f"{_NOT_PROPER}: it has no status")
        return int(status), headers


class _Answered(Exception):
    """The answer is whole, and the server takes no more of the request."""


class _Frames(httpcore.AsyncNetworkStream):
    """The network, without the GOAWAYs that let the stream in flight finish."""

    def __init__(self, inner: httpcore.AsyncNetworkStream, place: str) -> None:
        self._inner = inner
        self._place = place
        self.has_begun = False
        self._head = bytearray()  # of a frame, or the whole of a GOAWAY, until it is complete
        self._left = 0  # bytes of a payload that passes
        self.stream_id = 0
        self.is_going_away = False

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        while data := await self._inner.read(max_bytes, timeout):
            if not self.has_begun:
                self.has_begun = True
                if data.startswith(b"HTTP/1"):
                    raise Garbled(f"{self._place} {_NOT_HTTP2}")
            if passed := self._passed(data):
                return passed
        return b""

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)

    def _passed(self, data: bytes) -> bytes:
        """`data` without those GOAWAYs.

        Errors: Garbled for a frame that is too large.
        Source: RFC 9113, sections 4.1 and 6.8.
        """
        out = bytearray()
        at = 0
        while at < len(data):
            if self._left:
                piece = data[at : at + self._left]
                self._left -= len(piece)
                at += len(piece)
                out += piece
                continue
            head = self._head
            size = int.from_bytes(head[:3], "big") if len(head) >= _FRAME_HEAD else 0
            piece = data[at : at + _FRAME_HEAD + size - len(head)]
            head += piece
            at += len(piece)
            if len(head) < _FRAME_HEAD:
                continue
            size = int.from_bytes(head[:3], "big")
            if size > _FRAME_BYTES:
                raise Garbled(f"{_NOT_PROPER}: a frame of {size} bytes")
            if head[3] == _GOAWAY and size >= 8:
                if len(head) < _FRAME_HEAD + size:
                    continue
                last = int.from_bytes(head[9:13], "big") & 0x7FFFFFFF
                if last >= self.stream_id and not any(head[13:17]):
                    self.is_going_away = True
                    head.clear()
                    continue
                # After this one h2 takes nothing more, whatever it is.
                return bytes(out + head)
            out += head
            head.clear()
            self._left = size
        return bytes(out)


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(body), _PIECE_BYTES):
        yield body[at : at + _PIECE_BYTES]


def _word(code: h2.errors.ErrorCodes | int | None) -> str:
    return code.name if isinstance(code, h2.errors.ErrorCodes) else f"error {code}"
