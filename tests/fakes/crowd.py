"""Thousands of slow streams at once, cheaply: an upstream in a process of its own, and callers that count.

    with Crowd(port, events=12, every_s=0.5) as crowd:         # the upstream
        streams = asyncio.run(call_all(crowd, gateway_port, wire, 2000, look))

The upstream repeats a request's marker (`<n>`, found in its body) in each event of the answer, so that a mixed-up
stream shows, and ends none before all were seen open, however long that takes. Both ends are plain protocols over
uvloop: at this number, the fakes must cost less than the gateway.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import uvloop

from .client import request
from .gateway import until
from .wires import CHAT, MESSAGES, Wire, sse_head

_MARKER = re.compile(rb"<(\d+)>")
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_ROOT = Path(__file__).parent.parent.parent


def words_of(number: int, events: int) -> list[str]:
    """What the stream with this marker says."""
    return [f"<{number}>{turn};" for turn in range(events)]


class _Upstream(asyncio.Protocol):
    """One connection of the upstream."""

    def __init__(self, events: int, every_s: float, may_end: asyncio.Future[None]) -> None:
        self._events, self._every_s, self._may_end = events, every_s, may_end
        self._data = b""
        self._transport: Any = None
        self._pieces: list[bytes] = []
        self._is_quick = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, found, body = self._data.partition(b"\r\n\r\n")
        if not found or len(body) < int(_LENGTH.search(head)[1]):  # type: ignore[index]
            return
        self._data = b""
        wire = MESSAGES if b"/messages " in head else CHAT
        marker = _MARKER.search(body)
        said = wire.events(*words_of(int(marker[1]) if marker else 0, self._events))
        self._pieces = [b"%x\r\n%b\r\n" % (len(event), event) for event in said]
        self._pieces[0] = sse_head() + self._pieces[0]
        self._pieces[-1] += b"0\r\n\r\n"
        self._pieces.reverse()
        self._is_quick = b"quick" in body
        self._next()

    def _next(self, _: object = None) -> None:
        if self._transport.is_closing():
            return
        self._transport.write(self._pieces.pop())
        if len(self._pieces) == 1 and not self._is_quick:
            self._may_end.add_done_callback(self._next)
        elif self._pieces:
            every_s = 0.001 if self._is_quick else self._every_s
            self._timer = asyncio.get_running_loop().call_later(every_s, self._next)

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()


class Crowd:
    """The upstream's process, for as long as the `with` lasts."""

    def __init__(self, port: int, *, events: int, every_s: float) -> None:
        self._command = [sys.executable, "-m", "tests.fakes.crowd", str(port), str(events), str(every_s)]
        self._port = port

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, cwd=_ROOT, stdin=subprocess.PIPE)
        until(self._listens, "the upstream")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self.let_end()
        self._process.wait(10)

    def let_end(self) -> None:
        """From now on streams end with their last event."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def _listens(self) -> bool:
        assert self._process.poll() is None
        return f":{self._port:04X} 00000000:0000 0A" in Path("/proc/net/tcp").read_text()


class _Call(asyncio.Protocol):
    """One caller's stream."""

    def __init__(self, data: bytes) -> None:
        self._request = data
        self._pieces: list[bytes] = []
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.begun = False
        self._tail = b""
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self.begun = True
        self._pieces.append(data)
        self._tail = (self._tail + data)[-7:]
        if self._tail == b"\r\n0\r\n\r\n":
            self._finish()
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._finish()

    def leave(self) -> None:
        self._transport.abort()

    def _finish(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def answer(self) -> tuple[int, bytes, bool]:
        """Status, body, and whether the final chunk was seen."""
        head, _, rest = b"".join(self._pieces).partition(b"\r\n\r\n")
        body = []
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            if not (length := int(size, 16)):
                return int(head[9:12]), b"".join(body), rest == b"\r\n"
            body.append(rest[:length])
            rest = rest[length + 2 :]
        return int(head[9:12] or b"0"), b"".join(body), False


class Streams:
    """What came of all calls, and when all of them were open at once."""

    def __init__(self, calls: list[_Call], all_open_s: float, took_s: float) -> None:
        self.answers = [call.answer() for call in calls]
        self.all_open_s, self.took_s = all_open_s, took_s


async def warm_up(port: int, wire: Wire, **members: Any) -> None:
    """A few quick streams."""
    loop = asyncio.get_running_loop()
    for _ in range(20):
        data = request(wire.path, wire.ask("quick <0>", stream=True, **members))
        _, call = await loop.create_connection(lambda: _Call(data), "127.0.0.1", port)  # noqa: B023
        await asyncio.wait_for(call.ended, 20)


async def call_all(
    crowd: Crowd, port: int, wire: Wire, count: int, when_open: Callable[[], None], **members: Any
) -> Streams:
    """Open `count` streams; `when_open()` is called (in a thread) once each of them has begun, and then they end."""
    loop = asyncio.get_running_loop()
    began = time.monotonic()
    calls: list[_Call] = []

    async def open_one(number: int) -> None:
        data = request(wire.path, wire.ask(f"say <{number}>", stream=True, **members))
        _, call = await loop.create_connection(lambda: _Call(data), "127.0.0.1", port)
        calls[number] = call

    calls = [None] * count  # type: ignore[list-item]
    for start in range(0, count, 50):
        await asyncio.gather(*(open_one(number) for number in range(start, min(count, start + 50))))
    try:
        while not all(call.begun or call.ended.done() for call in calls):
            await asyncio.sleep(0.02)
        all_open_s = time.monotonic() - began
        early = sum(call.ended.done() for call in calls)
        await asyncio.to_thread(when_open)
        crowd.let_end()
        await asyncio.wait_for(asyncio.gather(*(call.ended for call in calls)), 60)
    finally:
        for call in calls:
            call.leave()  # uvloop's loop does not close before they are closed
    assert not early, f"{early} streams ended before all had begun"
    return Streams(calls, all_open_s, time.monotonic() - began)


async def _serve(port: int, events: int, every_s: float) -> None:
    loop = asyncio.get_running_loop()
    may_end: asyncio.Future[None] = loop.create_future()

    def told() -> None:
        loop.remove_reader(sys.stdin)
        may_end.set_result(None)

    loop.add_reader(sys.stdin, told)
    server = await loop.create_server(lambda: _Upstream(events, every_s, may_end), "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
