"""What it costs to read an HTTP/1.1 answer: whole small ones, and the reads of a stream."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

from bench.micro import streams

Twin = Callable[[str], ModuleType]

# As many headers as the large providers send.
HEAD = (
    b"HTTP/1.1 200 OK\r\nDate: Mon, 01 Sep 2025 12:00:00 GMT\r\nContent-Type: application/json\r\n%b"
    b"Connection: keep-alive\r\nAccess-Control-Expose-Headers: X-Request-ID\r\nOpenAI-Organization: org-abcdef\r\n"
    b"OpenAI-Processing-Ms: 512\r\nOpenAI-Version: 2020-10-01\r\nX-Request-Id: req_0123456789abcdef\r\n"
    b"X-Ratelimit-Limit-Requests: 10000\r\nX-Ratelimit-Limit-Tokens: 2000000\r\n"
    b"X-Ratelimit-Remaining-Requests: 9999\r\nX-Ratelimit-Remaining-Tokens: 1999975\r\n"
    b"X-Ratelimit-Reset-Requests: 6ms\r\nX-Ratelimit-Reset-Tokens: 0s\r\nX-Content-Type-Options: nosniff\r\n"
    b"Strict-Transport-Security: max-age=31536000; includeSubDomains; preload\r\nCF-Cache-Status: DYNAMIC\r\n"
    b"Server: cloudflare\r\nCF-RAY: 0123456789abcdef-AMS\r\n\r\n"
)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def arena_of(reads: list[bytes]) -> list[tuple[memoryview, int]]:
    """Each read as the socket gives it: the first bytes of a large buffer."""
    return [(memoryview(bytearray(read + b"\0" * (65536 - len(read)))), len(read)) for read in reads]


@pytest.mark.parametrize("size", [1_000, 50_000])
def test_answers(twin: Twin, measure: Callable[..., None], size: int) -> None:
    """Head and body in one read, as a small unary answer comes."""
    answer = HEAD % (b"Content-Length: %d\r\n" % size) + b"x" * size
    core = twin("h1").H1Core()
    ((arena, length),) = arena_of([answer])

    def run() -> None:
        core.begin(False)
        core.feed(arena, length)

    run()
    assert core.state == 2 and core.keep_alive
    measure(run, units=1)


@pytest.mark.parametrize("per_read", [1, 16])
def test_chunks(twin: Twin, measure: Callable[..., None], per_read: int) -> None:
    """The reads of a stream; an event is a chunk of its own, as most servers send it."""
    reads = streams.joined([chunk(event) for event in streams.CHAT], per_read)
    core = twin("h1").H1Core()
    core.feed(HEAD % b"Transfer-Encoding: chunked\r\n")
    arenas = arena_of(reads)
    feed = core.feed

    def run() -> None:
        for arena, length in arenas:
            feed(arena, length)

    run()
    assert core.state == 1
    measure(run, units=len(streams.CHAT))


@pytest.mark.parametrize("size", [200, 64_000])
def test_plain_reads(twin: Twin, measure: Callable[..., None], size: int) -> None:
    """A body without chunks: one copy, nothing to look at."""
    core = twin("h1").H1Core()
    core.feed(b"HTTP/1.1 200 OK\r\n\r\n")
    ((arena, length),) = arena_of([b"x" * size])

    def run() -> None:
        core.feed(arena, length)

    run()
    measure(run, units=1)


def test_request_fields(twin: Twin, measure: Callable[..., None]) -> None:
    """A request's headers, as the edge hands them over."""
    h1 = twin("h1")
    items = [(f"x-header-{n}", f"of some length, as they are {n}") for n in range(12)]
    measure(lambda: h1.fields(items), units=1)


def test_headers_chosen(twin: Twin, measure: Callable[..., None]) -> None:
    """Those of a provider's 23 headers that cross to the client, once it was decided of their names."""
    h1 = twin("h1")
    pairs = [(f"x-header-{n}", f"of some length, as they are {n}") for n in range(23)]
    decided = {name: n % 4 != 0 for n, (name, _) in enumerate(pairs)}
    measure(lambda: h1.chosen(pairs, decided, decided.__getitem__), units=1)
