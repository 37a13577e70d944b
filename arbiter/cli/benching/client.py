"""The client of a bench: keep-alive connections that time what they get, and check it."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import NamedTuple, Self, cast

from arbiter.cli.benching import talk

PATIENCE_S = 15.0


class Answer(NamedTuple):
    """One answer: when its first byte and its last one came after the request went out, and what was wrong with it."""

    first_s: float
    total_s: float
    fault: str | None
    events: int = 0


class Connection(asyncio.Protocol):
    """One connection to the gateway, or to the upstream itself; it is opened anew when it was closed."""

    _marks = itertools.count(1)

    def __init__(self, port: int, *, is_messages: bool) -> None:
        self.port = port
        self.is_messages = is_messages
        self.transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._body = bytearray()
        self._left: int | None = None  # of the body, or of the chunk; None: the head is unread
        self._is_chunked = False
        self._status = 0
        self._first_s = 0.0
        self._done: asyncio.Future[str | None] | None = None

    async def ask(self, *, streams: bool = False, paced_events: int = 0) -> Answer:
        """One request and its answer."""
        mark = f"{next(self._marks):08}"
        request = talk.request(mark, is_messages=self.is_messages, streams=streams, is_paced=paced_events > 0)
        loop = asyncio.get_running_loop()
        if self.transport is None:
            try:
                await loop.create_connection(lambda: self, "127.0.0.1", self.port)
            except OSError as error:
                return Answer(0.0, 0.0, f"no connection: {error}")
        assert self.transport is not None
        self._received.clear()
        self._body.clear()
        self._left, self._first_s = None, 0.0
        self._done = loop.create_future()
        began_s = time.perf_counter()
        self.transport.write(request)
        try:
            async with asyncio.timeout(PATIENCE_S + paced_events * talk.PACE_S):
                fault = await self._done
        except TimeoutError:
            fault = f"nothing for {PATIENCE_S:.0f} s"
        total_s = time.perf_counter() - began_s
        if fault is None and self._status != 200:
            fault = f"answered {self._status}: {self._body[:200].decode('utf-8', 'replace')}"
        count = paced_events or talk.EVENTS if streams else 0
        if fault is None and streams:
            fault = talk.fault_of_stream(bytes(self._body), mark, count, is_messages=self.is_messages)
        elif fault is None:
            fault = talk.fault_of_answer(bytes(self._body), mark, is_messages=self.is_messages)
        if fault is not None:
            self.close()
        events = self._body.count(b"\ndata: ") + self._body.startswith(b"data: ") if streams else 0
        return Answer(self._first_s - began_s, total_s, fault, events)

    def close(self) -> None:
        if self.transport is not None:
            self.transport.abort()
            self.transport = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- asyncio's side ---------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._end("the connection was closed before the end")

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._left is None:
            head, found, rest = self._received.partition(b"\r\n\r\n")
            if not found:
                return
            self._read_head(bytes(head))
            self._received = rest
        if self._is_chunked:
            self._read_chunks()
        else:
            self._read_plain()

    def _read_head(self, head: bytes) -> None:
        line, *fields = head.split(b"\r\n")
        self._status = int(line.split(b" ", 2)[1])
        self._left, self._is_chunked = 0, False
        for field in fields:
            name, _, value = field.partition(b":")
            if name.lower() == b"content-length":
                self._left = int(value)
            elif name.lower() == b"transfer-encoding":
                self._is_chunked = b"chunked" in value.lower()

    def _take(self, size: int) -> None:
        if size and not self._first_s:
            self._first_s = time.perf_counter()
        self._body += self._received[:size]
        del self._received[:size]

    def _read_plain(self) -> None:
        assert self._left is not None
        size = min(len(self._received), self._left)
        self._take(size)
        self._left -= size
        if not self._left:
            self._end(None)

    def _read_chunks(self) -> None:
        assert self._left is not None
        while self._received:
            if self._left == 0:
                size, found, _ = self._received.partition(b"\r\n")
                if not found:
                    return
                length = int(size.split(b";")[0], 16)
                if length == 0:
                    if self._received.endswith(b"\r\n\r\n"):
                        self._end(None)
                    return
                del self._received[: len(size) + 2]
                self._left = length + 2  # its line break is read with it
            if len(self._received) < self._left:
                return
            self._take(self._left - 2)
            del self._received[:2]
            self._left = 0

    def _end(self, fault: str | None) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(fault)
