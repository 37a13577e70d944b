"""A client on a bare socket: it says exactly what a test wants said, and sees how an answer really ended.

    answer = await ask(port, "/v1/chat/completions", {"model": ..., "stream": True})
    assert answer.ending is Ending.CLEAN

Or step by step, for clients that dawdle or leave:

    async with await Caller.connect(port) as caller:
        await caller.send(request("/v1/messages", {...}))
        await caller.head()                      # status and headers are here
        piece = await caller.piece()             # the next bytes of the body, b"" at its end
        caller.leave()                           # or `reset`

An ending is CLEAN (the final chunk, or all of the promised length, was seen), CUT (the connection was shut down
before that) or RESET (it broke). HTTP is read by hand here: a library would hide the difference.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import Any, Self

WAIT_S = 45.0
"""The longest that any one wait of a caller may take."""

TEST_S = 100.0
"""No test of a whole gateway takes longer, whatever hangs."""


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Run a test's coroutine."""

    async def bounded() -> None:
        async with asyncio.timeout(TEST_S):
            await main()

    asyncio.run(bounded())


class Ending(Enum):
    """How the body of an answer ended."""

    OPEN = "open"
    CLEAN = "clean"
    CUT = "cut"
    RESET = "reset"


@dataclass
class Answer:
    """One answer as it came. `headers` keep their order; names are lower case."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes = b""
    ending: Ending = Ending.OPEN
    pieces: list[bytes] = field(default_factory=list, repr=False)  # one per chunk

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)

    @property
    def trace_id(self) -> str | None:
        return self.header("x-arbiter-trace-id")

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[tuple[str, str]]:
        """The SSE events of a canonical stream: (name or "", data)."""
        return events_of(self.body)


def events_of(body: bytes) -> list[tuple[str, str]]:
    found = []
    for block in body.decode().replace("\r\n", "\n").split("\n\n"):
        name, data = "", []
        for line in block.split("\n"):
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                data.append(line[6:])
        if data:
            found.append((name, "\n".join(data)))
    return found


def request(
    path: str,
    body: Any = None,
    *,
    method: str = "POST",
    headers: Sequence[tuple[str, str]] = (),
    length: int | None = None,
) -> bytes:
    """The bytes of a request. `body` is bytes, or something to be sent as JSON; `length` lies about its length."""
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    names = {name.lower() for name, _ in headers}
    lines = [f"{method} {path} HTTP/1.1"]
    if "host" not in names:
        lines.append("host: gateway")
    if body is not None and "content-type" not in names:
        lines.append("content-type: application/json")
    if (body is not None or method == "POST") and not names & {"transfer-encoding", "content-length"}:
        lines.append(f"content-length: {len(data) if length is None else length}")
    lines += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + data


class Caller:
    """One connection to the gateway."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.answer: Answer | None = None
        self._left = -1  # of a body with a length; -1 while the body is chunked
        self._head_only = False

    @classmethod
    async def connect(cls, port: int | str, *, receive_buffer: int = 0) -> Self:
        """Open a connection to a port, or to the path of a unix socket.

        A small `receive_buffer` makes a client that stalls soon.
        """
        if isinstance(port, str):
            return cls(*await asyncio.open_unix_connection(port, limit=1 << 20))
        sock = socket.socket()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            async with asyncio.timeout(WAIT_S):
                await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
                reader, writer = await asyncio.open_connection(sock=sock, limit=1 << 20)
        except BaseException:
            sock.close()
            raise
        return cls(reader, writer)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()
        with suppress(ConnectionError, OSError):
            await self.writer.wait_closed()

    async def send(self, data: bytes) -> None:
        self._head_only = data.startswith(b"HEAD ")
        self.writer.write(data)
        async with asyncio.timeout(WAIT_S):
            await self.writer.drain()

    async def head(self) -> Answer:
        """Wait for the head of the next answer."""
        async with asyncio.timeout(WAIT_S):
            raw = await self.reader.readuntil(b"\r\n\r\n")
        lines = raw.decode("latin-1").split("\r\n")
        pairs = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines[1:-2])]
        self.answer = answer = Answer(int(lines[0].split(" ")[1]), pairs)
        length = answer.header("content-length")
        if self._head_only or answer.status in (204, 304):
            self._left = 0
        elif answer.header("transfer-encoding") is not None:
            assert length is None, "both a length and chunks"
            self._left = -1
        else:
            assert length is not None, "neither a length nor chunks"
            self._left = int(length)
        if self._left == 0:
            answer.ending = Ending.CLEAN
        return answer

    async def piece(self) -> bytes:
        """The next bytes of the body: a whole chunk, or what a read gave; b"" at its end, which `ending` then tells."""
        answer = self.answer
        assert answer is not None, "no head yet"
        if answer.ending is not Ending.OPEN:
            return b""
        try:
            async with asyncio.timeout(WAIT_S):
                data = await (self._chunk() if self._left < 0 else self._read())
        except asyncio.IncompleteReadError:
            answer.ending = Ending.CUT
            return b""
        except ConnectionError:
            answer.ending = Ending.RESET
            return b""
        answer.pieces.append(data)
        return data

    async def _chunk(self) -> bytes:
        size = int((await self.reader.readuntil(b"\r\n"))[:-2], 16)
        data = await self.reader.readexactly(size + 2)
        assert data.endswith(b"\r\n")
        if not size:
            assert self.answer is not None
            self.answer.ending = Ending.CLEAN
        return data[:-2]

    async def _read(self) -> bytes:
        data = await self.reader.read(min(self._left, 1 << 20))
        if not data:
            raise asyncio.IncompleteReadError(b"", self._left)
        self._left -= len(data)
        if not self._left:
            assert self.answer is not None
            self.answer.ending = Ending.CLEAN
        return data

    async def whole(self) -> Answer:
        """Wait for the head, if it was not read yet, and then for everything."""
        answer = self.answer if self.answer is not None else await self.head()
        while await self.piece():
            pass
        answer.body = b"".join(answer.pieces)
        self.answer = None
        return answer

    async def until_seen(self, text: bytes) -> bytes:
        """Read until `text` was in the body; returns the body so far."""
        answer = self.answer if self.answer is not None else await self.head()
        while text not in (seen := b"".join(answer.pieces)):
            assert await self.piece(), f"the body ended ({answer.ending}) before {text!r}: {seen[-500:]!r}"
        return seen

    async def exchange(self, data: bytes) -> Answer:
        """Send one request and read its whole answer; the connection may serve another."""
        await self.send(data)
        return await self.whole()

    def leave(self) -> None:
        """Close the connection in order."""
        self.writer.close()

    def reset(self) -> None:
        """Break the connection."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    def half_close(self) -> None:
        """Say that nothing more will be sent."""
        self.writer.write_eof()


async def exchange(port: int, data: bytes) -> Answer:
    """One request, as bytes, on a connection of its own."""
    async with await Caller.connect(port) as caller:
        return await caller.exchange(data)


async def ask(
    port: int,
    path: str,
    body: Any = None,
    *,
    method: str = "POST",
    headers: Sequence[tuple[str, str]] = (),
) -> Answer:
    """One request on a connection of its own, and its whole answer."""
    return await exchange(port, request(path, body, method=method, headers=headers))
