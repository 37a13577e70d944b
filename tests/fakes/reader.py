"""The gateway's side of the upstream client, as small as a test needs it."""

from __future__ import annotations

import asyncio
from typing import Any

from arbiter.config.snapshot import Budgets, Endpoint
from arbiter.errors import ArbiterError
from arbiter.pieces import Body
from arbiter.upstream.exchange import Exchange
from arbiter.upstream.transport import Outgoing, Transport

from .origin import BOUND_S, Origin

LIMITS: dict[str, Any] = {"max_connections": 10, "idle_connections": 4, "idle_for_s": 60.0}


class Collected:
    """A sink that keeps what it is given, and notices whatever comes out of turn."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.ends: list[ArbiterError | None] = []
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def data(self) -> bytes:
        return b"".join(self.pieces)

    def on_data(self, data: bytes) -> None:
        assert not self.ends, "data after the end"
        assert data, "an empty piece"
        self.pieces.append(data)

    def on_end(self, error: ArbiterError | None) -> None:
        assert not self.ends, "a second end"
        self.ends.append(error)
        self._ended.set_result(None)

    async def end(self, timeout_s: float = BOUND_S) -> ArbiterError | None:
        """Wait for the end and return its error."""
        async with asyncio.timeout(timeout_s):
            await asyncio.shield(self._ended)
        return self.ends[0]


def endpoint_of(origin: Origin, **changes: Any) -> Endpoint:
    values = {"scheme": "https" if origin.url.startswith("https") else "http", "host": origin.host, "port": origin.port}
    return Endpoint(**{**values, "uds": origin.uds, **changes})


async def ask(
    transport: Transport,
    endpoint: Endpoint,
    *,
    method: str = "POST",
    path: str = "/v1/x",
    headers: list[tuple[str, str]] | None = None,
    body: Body = b"{}",
    budgets: Budgets | None = None,
    stream: bool = True,
    **limits: Any,
) -> Exchange:
    """One request with calm defaults."""
    return await transport.send(
        endpoint,
        Outgoing(method, path, headers if headers is not None else [], body),
        budgets or Budgets(),
        stream=stream,
        **{**LIMITS, **limits},
    )


async def answered(transport: Transport, endpoint: Endpoint, **changes: Any) -> bytes:
    """Ask and read the whole answer."""
    return await (await ask(transport, endpoint, **changes)).read(64 << 20)


def counts(transport: Transport) -> tuple[int, int, int, int]:
    """(open, idle, draining, waiters) over all origins."""
    stats = transport.stats()
    return (
        sum(origin["open"] for origin in stats),
        sum(origin["idle"] for origin in stats),
        sum(origin["draining"] for origin in stats),
        sum(origin["waiters"] for origin in stats),
    )
