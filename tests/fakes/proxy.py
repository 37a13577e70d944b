"""A scripted HTTP proxy (CONNECT and absolute form) and a SOCKS5 server, as small as they can be and still carry bytes.

    async with HttpProxy() as proxy:            # or Socks5(user=b"u", password=b"p")
        ... proxy.url ...
        assert proxy.asked == ["127.0.0.1:4711"]

`asked` lists where clients wanted to go, `heads` the request heads an HTTP proxy saw. `refuse` answers instead of
connecting (an HTTP proxy writes it as it is). The client's hang-up ends the tunnel and the connection behind it.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from types import TracebackType
from typing import Self


class _Relay:
    scheme = ""

    def __init__(self, *, refuse: bytes = b"", user: bytes = b"", password: bytes = b"") -> None:
        self.asked: list[str] = []
        self.heads: list[bytes] = []
        self.connections = 0
        self._refuse = refuse
        self._user, self._password = user, password
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        assert self._server is not None
        auth = f"{self._user.decode()}:{self._password.decode()}@" if self._user else ""
        return f"{self.scheme}://{auth}127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            await self.talk(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()
            writer.close()

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError

    async def tunnel(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int, first: bytes = b""
    ) -> None:
        """Carry bytes both ways until either side ends."""
        far_reader, far_writer = await asyncio.open_connection(host, port)
        far_writer.write(first)

        async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            with suppress(ConnectionError):
                while data := await source.read(65536):
                    target.write(data)
                    await target.drain()

        pumps = [asyncio.ensure_future(pump(reader, far_writer)), asyncio.ensure_future(pump(far_reader, writer))]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            far_writer.transport.abort()
            far_writer.close()
            for one in pumps:
                one.cancel()
            await asyncio.wait(pumps)


class HttpProxy(_Relay):
    """CONNECT for https, absolute-form for http."""

    scheme = "http"

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head)
        method, target, _ = head.split(b"\r\n")[0].decode().split(" ")
        if self._refuse:
            writer.write(self._refuse)
            await writer.drain()
            return
        if method == "CONNECT":
            self.asked.append(target)
            host, _, port = target.rpartition(":")
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await self.tunnel(reader, writer, host, int(port))
            return
        authority, _, path = target.removeprefix("http://").partition("/")
        self.asked.append(authority)
        host, _, port = authority.rpartition(":")
        first = head.replace(target.encode(), b"/" + path.encode(), 1)
        await self.tunnel(reader, writer, host, int(port), first)


class Socks5(_Relay):
    """RFC 1928 with user and password (RFC 1929) where they are set."""

    scheme = "socks5"

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, count = await reader.readexactly(2)
        methods = await reader.readexactly(count)
        method = 2 if self._user else 0
        if method not in methods:
            writer.write(b"\x05\xff")
            await writer.drain()
            return
        writer.write(bytes([5, method]))
        if self._user:
            _, length = await reader.readexactly(2)
            user = await reader.readexactly(length)
            (length,) = await reader.readexactly(1)
            password = await reader.readexactly(length)
            good = (user, password) == (self._user, self._password)
            writer.write(b"\x01\x00" if good else b"\x01\x01")
            if not good:
                await writer.drain()
                return
        _, _, _, kind = await reader.readexactly(4)
        if kind == 3:
            (length,) = await reader.readexactly(1)
            host = (await reader.readexactly(length)).decode()
        else:
            family, size = (socket.AF_INET, 4) if kind == 1 else (socket.AF_INET6, 16)
            host = socket.inet_ntop(family, await reader.readexactly(size))
        port = int.from_bytes(await reader.readexactly(2), "big")
        self.asked.append(f"{host}:{port}")
        if self._refuse:
            writer.write(b"\x05\x02\x00\x01\x00\x00\x00\x00\x00\x00")
            await writer.drain()
            return
        writer.write(b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00")
        await self.tunnel(reader, writer, host, port)
