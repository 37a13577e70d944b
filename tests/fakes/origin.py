"""A scripted upstream on a real socket: it answers with exactly the bytes a test says, and remembers what it saw.

    async with Origin(answer(b"hello")) as origin:                  # every request gets the same bytes
        await client.get(origin.host, origin.port)
        assert origin.requests[0].target == "/v1/models"

A script is what answers one request:

- `bytes`: written as they are; the connection stays open (end it with `CLOSE` or `RESET` in a list);
- a list of steps, done in order: `bytes` (written), an `asyncio.Event` (waited for: the test says when to go on), a
  number (seconds to wait, where time itself is the matter), `TAKEN` (wait until the client has read what was sent, by
  TCP on this machine), `CLOSE` (orderly end), `RESET` (TCP reset: what is not taken is lost), `SILENCE` (no more, until
  the client hangs up), or a callable as below;
- `async def script(peer: Peer, request: Request)`: anything, e.g. `await peer.send(b"...")`.

`Origin([first, second], ...)` is one script; `Origin(scripts=[a, b])` answers the first request with `a`, the second
with `b`, all later ones with `b` too. `greeting` steps run when a connection opens, before any request is read.

What it saw: `requests` in order of arrival, `peers` (one per connection), `hangups` (connections the client ended
while a script was running or waiting). `await origin.until(lambda: ...)` polls a condition with a generous bound, so
that no test needs to sleep.

Source: written for these tests; raw bytes, so that nothing is more proper than a test wants it.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Self


class Step(Enum):
    """Steps that are not bytes."""

    TAKEN = "taken"
    CLOSE = "close"
    RESET = "reset"
    SILENCE = "silence"


TAKEN, CLOSE, RESET, SILENCE = Step.TAKEN, Step.CLOSE, Step.RESET, Step.SILENCE

BOUND_S = 30.0
"""How long `until` waits for what must happen soon; only a failing test waits that long."""


@dataclass(frozen=True)
class Request:
    """A request as it arrived. `headers` keep their order and spelling; `connection` counts from 0."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes
    connection: int
    head: bytes = field(repr=False, default=b"")

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


@dataclass
class Peer:
    """One connection, seen from the origin."""

    number: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    hung_up: bool = False
    closed: bool = False

    async def send(self, data: bytes) -> None:
        """Write and flush."""
        self.writer.write(data)
        await self.writer.drain()

    def close(self) -> None:
        """End the connection in order."""
        self.closed = True
        self.writer.close()

    def reset(self) -> None:
        """End the connection with a TCP reset."""
        self.closed = True
        sock = self.writer.get_extra_info("socket")
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        _abort(self.writer)

    async def taken(self) -> None:
        """Wait until the client has read all that was sent, or is gone: both ends' queues in the kernel are empty."""
        ours, theirs = (_in_proc(self.writer.get_extra_info(name)) for name in ("sockname", "peername"))
        while self.writer.transport.get_write_buffer_size() or _waits_in_kernel({(ours, theirs), (theirs, ours)}):
            await asyncio.sleep(0.01)

    async def gone(self) -> None:
        """Wait until the client ends the connection."""
        with suppress(ConnectionError, ssl.SSLError):
            while await self.reader.read(65536):
                pass
        self.hung_up = True


Handler = Callable[[Peer, Request], Awaitable[None]]
Steps = bytes | Sequence["bytes | float | asyncio.Event | Step | Handler"] | Handler


class Origin:
    """See the module's docstring. Give `tls` a server-side context, or `uds` a path, or `port`, to listen elsewhere."""

    def __init__(
        self,
        script: Steps | None = None,
        *,
        scripts: Sequence[Steps] | None = None,
        greeting: Steps | None = None,
        tls: ssl.SSLContext | None = None,
        uds: str | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.requests: list[Request] = []
        self.peers: list[Peer] = []
        self.host, self.port, self.uds = host, port, uds
        self._scripts = list(scripts) if scripts is not None else [script if script is not None else b""]
        self._greeting = greeting
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.faults: list[BaseException] = []

    @property
    def hangups(self) -> int:
        """Connections that the client ended."""
        return sum(peer.hung_up for peer in self.peers)

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://{self.host}:{self.port}"

    def answer_with(self, script: Steps) -> None:
        """From now on, every request gets this."""
        self._scripts = [script]

    async def until(self, condition: Callable[[], bool], what: str = "the condition") -> None:
        """Poll until `condition` holds."""
        loop = asyncio.get_running_loop()
        end = loop.time() + BOUND_S
        while not condition():
            assert loop.time() < end, f"{what} did not come true within {BOUND_S:.0f} s"
            await asyncio.sleep(0.002)

    async def __aenter__(self) -> Self:
        if self.uds is not None:
            self._server = await asyncio.start_unix_server(self._serve, self.uds, ssl=self._tls)
        else:
            self._server = await asyncio.start_server(self._serve, self.host, self.port, ssl=self._tls, backlog=4096)
            self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for peer in self.peers:
            _abort(peer.writer)
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await asyncio.sleep(0)
        if error is None and self.faults:
            raise self.faults[0]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        peer = Peer(len(self.peers), reader, writer)
        self.peers.append(peer)
        try:
            if self._greeting is not None:
                await self._play(peer, Request("", "", [], b"", peer.number), self._greeting)
            while not peer.closed and not peer.hung_up:
                request = await _read_request(peer)
                if request is None:
                    peer.hung_up = True
                    break
                index = min(len(self.requests), len(self._scripts) - 1)
                self.requests.append(request)
                await self._play(peer, request, self._scripts[index])
        except (ConnectionError, ssl.SSLError):
            peer.hung_up = True
        except asyncio.CancelledError:
            pass
        except Exception as error:
            self.faults.append(error)
        finally:
            self._tasks.discard(task)
            writer.close()
            with suppress(ConnectionError, ssl.SSLError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _play(self, peer: Peer, request: Request, script: Steps) -> None:
        steps = script if isinstance(script, list | tuple) else [script]
        for step in steps:
            if isinstance(step, bytes):
                await peer.send(step)
            elif isinstance(step, asyncio.Event):
                await step.wait()
            elif isinstance(step, int | float):
                await asyncio.sleep(step)
            elif step is TAKEN:
                await peer.taken()
            elif step is CLOSE:
                peer.close()
            elif step is RESET:
                peer.reset()
            elif step is SILENCE:
                await peer.gone()
            else:
                await step(peer, request)  # type: ignore[operator]


def answer(
    body: bytes = b"", *, status: str = "200 OK", headers: Sequence[tuple[str, str]] = (), length: int | None = None
) -> bytes:
    """A whole response with its Content-Length (`length` to lie about it)."""
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body) if length is None else length}"]
    lines += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def chunked_head(*, status: str = "200 OK", headers: Sequence[tuple[str, str]] = ()) -> bytes:
    """The head of a chunked response; `chunk` and `LAST_CHUNK` follow."""
    lines = [f"HTTP/1.1 {status}", "transfer-encoding: chunked", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def chunk(data: bytes) -> bytes:
    """One chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"


def chunked(*pieces: bytes, headers: Sequence[tuple[str, str]] = ()) -> bytes:
    """A whole chunked response."""
    return chunked_head(headers=headers) + b"".join(map(chunk, pieces)) + LAST_CHUNK


def _in_proc(address: tuple[str, int]) -> str:
    """An address as /proc/net/tcp spells it."""
    return f"{int.from_bytes(socket.inet_aton(address[0]), sys.byteorder):08X}:{address[1]:04X}"


def _waits_in_kernel(ends: set[tuple[str, str]]) -> bool:
    """Whether there is something at one of these sockets that is not sent yet, or not read."""
    listed = Path("/proc/net/tcp").read_text()
    for ours, theirs in ends:
        _, found, rest = listed.partition(f" {ours} {theirs} ")  # then its state, and both queues
        if found and rest.split(" ", 2)[1] != "00000000:00000000":
            return True
    return False


def _abort(writer: asyncio.StreamWriter) -> None:
    # Until Python 3.11.4 a TLS transport that was closed twice has lost its protocol, and `abort` trips over that.
    if getattr(writer.transport, "_ssl_protocol", writer) is not None:
        writer.transport.abort()


async def _read_request(peer: Peer) -> Request | None:
    try:
        head = await peer.reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
        return None
    lines = head.decode("latin-1").split("\r\n")
    method, target, _ = lines[0].split(" ")
    headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines[1:-2])]
    length = next((int(value) for name, value in headers if name.lower() == "content-length"), 0)
    try:
        body = await peer.reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
        return None
    return Request(method, target, headers, body, peer.number, head)
