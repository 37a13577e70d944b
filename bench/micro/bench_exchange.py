"""What it costs to carry one request over a kept connection, without a socket: sent, answered, kept again."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from bench.micro.bench_h1 import HEAD, arena_of

Twin = Callable[[str], ModuleType]


class Socket:
    def write(self, data: bytes) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0


class Head:
    def done(self) -> bool:
        return False

    def set_result(self, result: None) -> None:
        pass


class Pool:
    watching = True


def test_requests(twin: Twin, measure: Callable[..., None]) -> None:
    """An answer of 1,000 bytes with 20 headers, in one read."""
    ((arena, length),) = arena_of([HEAD % b"Content-Length: 1000\r\n" + b"x" * 1000])
    side, head, active = twin("exchange"), Head(), set()  # type: ignore[var-annotated]
    origin = side.OriginCore(Pool(), {}, {})
    origin.max_idle = origin.open = 1
    link = side.LinkCore(origin, arena)
    link.transport = Socket()
    origin.keep(link)

    def run() -> bytes:
        connection = origin.try_acquire()
        exchange = side.ExchangeCore(None, False, 0.5, active)
        exchange.begin(connection, head, reused=True)
        connection.start(exchange, b"head", b"body", False)
        connection.buffer_updated(length)
        return exchange.here(1000)  # type: ignore[no-any-return]

    assert len(run()) == 1000 and not active
    measure(run, units=1)
