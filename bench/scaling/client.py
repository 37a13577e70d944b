"""A client for requests of any shape: it keeps so many connections busy for so long, and checks every answer.

Each request carries a mark, which the mock repeats: in a unary answer, and with a number in each event of a stream.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import time
from dataclasses import dataclass
from typing import Any, Literal

from arbiter._speedups import h1

Format = Literal["chat", "messages"]

PATIENCE_S = 60.0
_LINE = '    if (value == "{n}") return lookup(table, value); // why not\n'
_ARENA = memoryview(bytearray(256 << 10))
_EVENT = re.compile(rb'"(?:content|text)":"(\d{8})-(\d{6}) token "')
_marks = itertools.count()


@dataclass(frozen=True)
class Shape:
    """A conversation of so many turns, some `size` bytes in all; the last one ends with the mark."""

    format: Format
    size: int
    turns: int
    stream: bool = False

    def body(self, model: str) -> tuple[bytes, bytes]:
        """What stands before the mark and behind it."""
        each = max(0, self.size // self.turns - 60)
        lines = "".join(_LINE.format(n=n) for n in range(each // len(_LINE) + 1))

        def turn(number: int, text: str) -> dict[str, Any]:
            role = "assistant" if (self.turns - number) % 2 == 0 else "user"
            return {"role": role, "content": [{"type": "text", "text": text}] if self.format == "messages" else text}

        # An escape is two bytes of a line: cut to what it becomes.
        text = lines[: int(each * len(lines) / max(1, len(json.dumps(lines)) - 2))]
        turns = [turn(number, text) for number in range(self.turns - 1)]
        request = {"model": model, "max_tokens": 4096, "messages": [*turns, turn(self.turns - 1, text + "mark=?")]}
        if self.stream:
            request |= {"stream": True} | ({"stream_options": {"include_usage": True}} if self.format == "chat" else {})
        before, _, behind = json.dumps(request, separators=(",", ":")).encode().rpartition(b"?")
        return before, behind


@dataclass
class Report:
    """What was asked and answered; `complaint` is the first fault, None where there was none."""

    requests: int = 0
    events: int = 0
    seconds: float = 0.0
    complaint: str | None = None


class _Connection(h1.H1Core, asyncio.BufferedProtocol):
    """One connection, one request at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.transport: Any = None
        self.over: asyncio.Future[None] | None = None
        self.said: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return _ARENA

    def buffer_updated(self, nbytes: int) -> None:
        self.said.append(self.feed(_ARENA, nbytes))
        if self.state in (h1.DONE, h1.FAILED):
            self._end(self.fault if self.state == h1.FAILED else None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end("the connection broke off")

    def _end(self, fault: str | None) -> None:
        over, self.over = self.over, None
        if over is not None and not over.done():
            if fault is not None:
                over.set_exception(ConnectionError(fault))
            else:
                over.set_result(None)

    async def ask(self, pieces: tuple[bytes, ...]) -> bytes:
        """Send a request; its answer's body. Errors: ConnectionError for what is no 200."""
        self.said.clear()
        self.over = over = asyncio.get_running_loop().create_future()
        self.begin(False)
        self.transport.writelines(pieces)
        async with asyncio.timeout(PATIENCE_S):
            await over
        body = b"".join(self.said)
        if self.status != 200:
            raise ConnectionError(f"status {self.status}: {body[:200]!r}")
        return body


def _check(body: bytes, mark: bytes, events: int) -> int:
    """How many events it brought. Errors: ConnectionError."""
    if not events:
        if mark not in body:
            raise ConnectionError(f"another request's answer: {body[:200]!r}")
        return 0
    found = [(whose, int(number)) for whose, number in _EVENT.findall(body)]
    if found != [(mark, number) for number in range(events)]:
        raise ConnectionError(f"{len(found)} of {events} events, or not in order: {body[-200:]!r}")
    if not body.rstrip().endswith((b"[DONE]", b'{"type":"message_stop"}')):
        raise ConnectionError(f"no end of the stream: {body[-200:]!r}")
    return events


async def _keep_asking(
    port: int, head: str, body: tuple[bytes, bytes], events: int, wait_s: float, until: float, report: Report
) -> None:
    try:
        await asyncio.sleep(wait_s)
        _, connection = await asyncio.get_running_loop().create_connection(_Connection, "127.0.0.1", port)
        before, behind = body
        while report.complaint is None:
            mark = b"%08d" % (next(_marks) % 10**8)
            start = f"{head}content-length: {len(before) + 8 + len(behind)}\r\n\r\n".encode()
            answer = await connection.ask((start, before, mark, behind))
            report.events += _check(answer, mark, events)
            report.requests += 1
            if time.monotonic() >= until:
                break
        connection.transport.close()
    except (OSError, TimeoutError) as error:
        report.complaint = report.complaint or f"{type(error).__name__}: {error}"


async def drive(
    port: int,
    path: str,
    model: str,
    shape: Shape,
    connections: int,
    *,
    seconds: float,
    events: int = 0,
    spread_s: float = 0.0,
) -> Report:
    """Keep `connections` busy: one request each at least, and others until `seconds` are over. They begin within
    `spread_s`; with `events`, each answer is a stream that has to bring so many."""
    key = (
        "x-api-key: bench-key\r\nanthropic-version: 2023-06-01"
        if shape.format == "messages"
        else "authorization: Bearer bench-key"
    )
    head = (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nuser-agent: bench/1\r\n{key}\r\ncontent-type: application/json\r\n"
    )
    report, body, began = Report(), shape.body(model), time.monotonic()
    until = began + seconds
    asking = [
        _keep_asking(port, head, body, events, spread_s * number / connections, until, report)
        for number in range(connections)
    ]
    await asyncio.gather(*asking)
    report.seconds = time.monotonic() - began
    return report
