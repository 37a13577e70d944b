"""What the upstream client costs beside httpcore: CPU of this process per request and per streamed read.

    python -m bench.micro.upstream_cost [--requests N] [--events N]

The answers come from the mock of `bench/loadgen` in its own process. Each row is its own run on uvloop, best of three;
the numbers are microseconds of CPU time (user and system) of the client's process alone. httpcore is measured over its
own pool, as it is meant to be used, up to the sizes at which it ends within reason.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable

import httpcore
import uvloop

from arbiter.config.snapshot import Budgets, Endpoint
from arbiter.errors import ArbiterError
from arbiter.upstream.transport import Outgoing, Transport
from bench import tools

BODY = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"hello"}]}'
HEADERS = [("authorization", "Bearer sk-0123456789"), ("content-type", "application/json"), ("user-agent", "bench")]
BUDGETS = Budgets()


class Counting:
    """A sink that counts reads and bytes."""

    def __init__(self) -> None:
        self.reads = self.bytes = 0
        self.end: asyncio.Future[ArbiterError | None] = asyncio.get_running_loop().create_future()

    def on_data(self, data: bytes) -> None:
        self.reads += 1
        self.bytes += len(data)

    def on_end(self, error: ArbiterError | None) -> None:
        self.end.set_result(error)


class Ours:
    def __init__(self, port: int) -> None:
        self.transport = Transport()
        self.endpoint = Endpoint("http", "127.0.0.1", port)

    async def _send(self, path: str, stream: bool):  # type: ignore[no-untyped-def]
        return await self.transport.send(
            self.endpoint,
            Outgoing("POST", path, HEADERS, BODY),
            BUDGETS,
            stream=stream,
            max_connections=2000,
            idle_connections=2000,
            idle_for_s=60,
        )

    async def unary(self, path: str) -> None:
        await (await self._send(path, False)).read(1 << 20)

    async def stream(self, path: str) -> int:
        sink = Counting()
        (await self._send(path, True)).stream(sink)
        if (error := await sink.end) is not None:
            raise error
        return sink.reads

    async def close(self) -> None:
        await self.transport.close()


class Httpcore:
    def __init__(self, port: int) -> None:
        self.pool = httpcore.AsyncConnectionPool(max_connections=2000, max_keepalive_connections=2000)
        self.base = f"http://127.0.0.1:{port}"

    async def unary(self, path: str) -> None:
        await self.pool.request("POST", self.base + path, headers=HEADERS, content=BODY)

    async def stream(self, path: str) -> int:
        reads = 0
        async with self.pool.stream("POST", self.base + path, headers=HEADERS, content=BODY) as response:
            async for _ in response.aiter_stream():
                reads += 1
        return reads

    async def close(self) -> None:
        await self.pool.aclose()


async def requests(client: Ours | Httpcore, width: int, count: int) -> float:
    """µs of CPU per request with `width` at once."""

    async def worker(share: int) -> None:
        for _ in range(share):
            await client.unary("/u1024/v1/chat/completions")

    await asyncio.gather(*(worker(2) for _ in range(width)))
    share = max(1, count // width)
    began = time.process_time()
    await asyncio.gather(*(worker(share) for _ in range(width)))
    return (time.process_time() - began) * 1e6 / (share * width)


async def streams(client: Ours | Httpcore, width: int, events: int) -> float:
    """µs of CPU per read, `width` streams at once, 20 ms between the events of one."""
    await asyncio.gather(*(client.unary("/u1024/v1/chat/completions") for _ in range(width)))
    began = time.process_time()
    reads = await asyncio.gather(*(client.stream(f"/s{events}-20/v1/chat/completions") for _ in range(width)))
    return (time.process_time() - began) * 1e6 / sum(reads)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--requests", type=int, default=6000, help="requests per run")
    parser.add_argument("--events", type=int, default=40, help="events per stream")
    options = parser.parse_args()

    Measure = Callable[[Ours | Httpcore, int, int], Awaitable[float]]

    def best(make: type[Ours] | type[Httpcore], measure: Measure, width: int, count: int, port: int) -> float:
        async def once() -> float:
            client = make(port)
            try:
                return await measure(client, width, count)
            finally:
                await client.close()

        return min(uvloop.run(once()) for _ in range(3))

    print(f"{'µs of CPU':28} {'ours':>9} {'httpcore':>9}")
    with tools.mock() as (port, _):
        for width in (1, 32, 500):
            ours = best(Ours, requests, width, options.requests, port)
            theirs = (
                f"{best(Httpcore, requests, width, options.requests // 10, port):9.1f}" if width < 100 else "        –"
            )
            print(f"{f'a request, {width} at once':28} {ours:9.1f} {theirs}", flush=True)
        for width in (32, 1000):
            ours = best(Ours, streams, width, options.events, port)
            theirs = f"{best(Httpcore, streams, width, options.events, port):9.1f}" if width < 100 else "        –"
            print(f"{f'a read, {width} streams':28} {ours:9.1f} {theirs}", flush=True)


if __name__ == "__main__":
    main()
