"""How soon the upstream hears that a client has left, and print it as Markdown (SPEC 3.4 says when at the latest).

    python -m bench.leaving               half a minute
    python -m bench.leaving --rounds 200
    python -m bench.leaving --smoke       seconds; does everything work, however long it takes?

The upstream is in this process, and never ends an answer. What is measured lies between the client's last call on its
socket and the end of the gateway's connection to the upstream, with the gateway otherwise at rest.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import statistics
import struct
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from bench import tools
from bench.path import peers
from bench.path.__main__ import machine, versions
from bench.path.peers import Peer

PATIENCE_S = 30
EVENT = b'data: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n'
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
BEGUN = b"%s%x\r\n%s\r\n" % (HEAD, len(EVENT), EVENT)
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: on, 0 s


@dataclass(frozen=True)
class Case:
    """When the client leaves: `rest_s` after the upstream was asked, and `begun` where it has seen a first event."""

    name: str
    streams: bool
    limit_ms: int
    begun: bool = False
    rest_s: float = 0.0


CASES = (
    Case("a stream, after its first event", True, 100, begun=True),
    Case("a stream, before its head", True, 100),
    Case("a unary call, at once", False, 350),
    Case("a unary call, after 0.5 s", False, 100, rest_s=0.5),
)


class Upstream(asyncio.Protocol):
    """Whoever asks gets the beginning of a stream, or nothing, as its path says; and is asked when it went."""

    asked: asyncio.Queue[Upstream]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport, self.gone, self.left_s, self.seen = transport, asyncio.Event(), 0.0, b""

    def data_received(self, data: bytes) -> None:
        is_first, self.seen = not self.seen, self.seen + data
        if is_first:
            if self.seen.startswith(b"POST /begun/"):
                self.transport.write(BEGUN)
            self.asked.put_nowait(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.left_s = time.monotonic()
        self.gone.set()


async def leave(gateway: Peer, case: Case, *, crosses: bool, resets: bool) -> float:
    """One client's life; milliseconds from its going to the upstream's hearing of it."""
    name = "begun" if case.begun else "silent"
    ask = {"model": f"openai-{name}", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    body = json.dumps(ask | {"stream": case.streams}).encode()
    head = f"POST {peers.MESSAGES if crosses else peers.CHAT} HTTP/1.1\r\nhost: bench\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
    upstream = await Upstream.asked.get()
    if case.begun:
        await reader.readuntil(b"Hi")
    await asyncio.sleep(case.rest_s)
    if resets:
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    went_s = time.monotonic()
    writer.transport.abort()
    await upstream.gone.wait()
    return (upstream.left_s - went_s) * 1000


async def rows(gateway: Peer, upstream_port: int, rounds: int) -> list[str]:
    Upstream.asked = asyncio.Queue()
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", upstream_port)
    found = []
    async with server:
        for case, crosses, resets in product(CASES, (False, True), (False, True)):
            times = []
            for _ in range(rounds):
                one = leave(gateway, case, crosses=crosses, resets=resets)
                try:
                    times.append(await asyncio.wait_for(one, PATIENCE_S))
                except TimeoutError:
                    raise RuntimeError(f"{case.name}: the upstream heard nothing for {PATIENCE_S} s") from None
            way = "Messages on Chat" if crosses else "Chat"
            figures = f"{statistics.median(times):.1f} | {max(times):.1f} | {case.limit_ms}"
            found.append(f"| {case.name} | {way} | {'reset' if resets else 'closed'} | {figures} |")
    return found


def table(rounds: int) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="bench-leaving-") as folder:
        port = peers.free_port()
        with peers.arbiter(Path(folder), None, port, ("begun", "silent")) as gateway:
            found = asyncio.run(rows(gateway, port, rounds))
    yield "| the client leaves | formats | how | ms, median | most | at the latest |"
    yield "|---|---|---|---|---|---|"
    yield from found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.leaving", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=tools.at_least_one, default=50, help="clients of each kind (50)")
    parser.add_argument("--smoke", action="store_true", help="three clients of each kind")
    options = parser.parse_args()
    tools.say_smoke(options.smoke)
    print(f"{machine()}; {versions()}\n")
    for line in table(3 if options.smoke else options.rounds):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    tools.command(main)
