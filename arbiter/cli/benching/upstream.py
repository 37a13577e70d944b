"""The upstream of a bench, a process of its own: `python -m arbiter.cli.benching.upstream PACED_EVENTS`.

It prints its port, answers as talk.py has it, and ends when its standard input does, which is when whoever started it
is gone. What a provider would be sent in earnest comes here: nothing is passed on, and nothing kept.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from os import _exit
from typing import cast

import uvloop

from arbiter.cli.benching import talk

_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
    b"cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n"
)
_NOT_FOUND = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"


class Upstream(asyncio.Protocol):
    """One connection: a request at a time, as HTTP/1.1 clients without pipelining ask."""

    def __init__(self, paced_events: int) -> None:
        self.paced_events = paced_events
        self.received = bytearray()
        self.transport: asyncio.Transport
        self.pacing: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name

    def connection_lost(self, exc: Exception | None) -> None:
        if self.pacing is not None:
            self.pacing.cancel()

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, found, body = self.received.partition(b"\r\n\r\n")
        if not found:
            return
        length = 0
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        if len(body) < length:
            return
        self.received.clear()
        self.answer(bytes(head.partition(b"\r\n")[0]), bytes(body))

    def answer(self, line: bytes, body: bytes) -> None:
        is_messages = b"/messages" in line
        if not is_messages and b"/chat/completions" not in line:
            self.transport.write(_NOT_FOUND)
            return
        asked = talk.asked(body)
        if not asked.streams:
            payload = talk.answer(asked.mark, is_messages=is_messages)
            head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(payload)}\r\n\r\n"
            self.transport.write(head.encode() + payload)
        elif asked.is_paced:
            events = talk.events(asked.mark, self.paced_events, is_messages=is_messages)
            self.pacing = asyncio.get_running_loop().create_task(self.pace(events))
        else:
            events = talk.events(asked.mark, talk.EVENTS, is_messages=is_messages)
            self.transport.write(_STREAM_HEAD + b"".join(map(_chunk, events)) + b"0\r\n\r\n")

    async def pace(self, events: list[bytes]) -> None:
        """One event at a time, each due PACE_S after the one before it, however late that was."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        self.transport.write(_STREAM_HEAD)
        for event in events:
            self.transport.write(_chunk(event))
            due += talk.PACE_S
            await asyncio.sleep(max(0.0, due - loop.time()))
        self.transport.write(b"0\r\n\r\n")


def _chunk(event: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(event), event)


async def serve(paced_events: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Upstream(paced_events), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def _end_with_stdin() -> None:
    sys.stdin.buffer.read()
    _exit(0)


if __name__ == "__main__":
    # Ctrl-C reaches everybody in the terminal. Whoever started it hears it, too, and then ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    uvloop.run(serve(int(sys.argv[1])))
