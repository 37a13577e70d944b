"""Reading a request's body: counted, whole or refused, and unpacked without holding up anybody else."""

from __future__ import annotations

import asyncio
import gzip
import random
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import brotli
import pytest
import zstandard

from arbiter.app.body import read_body
from arbiter.config.snapshot import Limits
from arbiter.errors import ArbiterError, BadRequest, ClientGone, TooLarge
from arbiter.watch import Watch
from arbiter.wire.headers import Incoming

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": lambda data: brotli.compress(data, quality=5),
    "zstd": zstandard.compress,
    "gzip, zstd": lambda data: zstandard.compress(gzip.compress(data)),
}


class Sender:
    """Granian's end of a request: the body at once when called, its pieces when iterated."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = pieces

    async def __call__(self) -> bytes:
        return b"".join(self.pieces)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            await asyncio.sleep(0)
            yield piece


async def read(sender: Any, *headers: tuple[str, str], body: int = 32 << 20) -> bytes:
    watch = Watch(asyncio.get_running_loop())
    try:
        return await read_body(sender, Incoming(headers), Limits(body=body), watch)
    finally:
        watch.close()


async def turns_during(work: Any) -> tuple[Any, int]:
    """What `work` came to, and how often something else of the same loop had its turn meanwhile."""
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    task = asyncio.create_task(other())
    try:
        result = await work
    except ArbiterError as error:
        result = error
    task.cancel()
    return result, turns


@pytest.mark.parametrize("label", PACKERS)
@pytest.mark.parametrize("length", [True, False], ids=["length", "chunks"])
def test_a_packed_body_comes_out_whole(label: str, length: bool) -> None:
    """Below, about and far over one piece, compressible or not."""

    async def main() -> None:
        for size in (0, 1000, 65_536, 100_000, 3 << 20):
            for data in (bytes(size), random.Random(size).randbytes(size), b"hello world " * (size // 12)):
                packed = PACKERS[label](data)
                headers = [("content-encoding", label)] + [("content-length", str(len(packed)))] * length
                assert await read(Sender(packed, b""), *headers) == data

    asyncio.run(main())


@pytest.mark.parametrize("label", PACKERS)
def test_unpacking_leaves_the_loop_to_others(label: str) -> None:
    """At least one turn for each half MiB, of a body that unfolds far and of one that does not at all."""

    async def main() -> None:
        for data in (bytes(16 << 20), random.Random(1).randbytes(8 << 20)):
            packed = PACKERS[label](data)
            found, turns = await turns_during(read(Sender(packed), ("content-encoding", label)))
            assert found == data
            assert turns >= len(data) >> 19

    asyncio.run(main())


def test_unpacking_what_unfolds_to_nothing_leaves_the_loop_to_others_too() -> None:
    """Empty blocks are input without output."""

    async def main() -> None:
        packed = b"\x1f\x8b\x08" + bytes(7) + b"\0\0\0\xff\xff" * (1 << 20)
        found, turns = await turns_during(read(Sender(packed), ("content-encoding", "gzip")))
        assert isinstance(found, BadRequest)
        assert turns >= len(packed) >> 19

    asyncio.run(main())


@pytest.mark.parametrize("label", PACKERS)
def test_the_limit_is_that_of_the_unpacked_body(label: str) -> None:
    """To the byte; and what is over it is not unpacked."""

    async def main() -> None:
        packed = PACKERS[label](bytes(1 << 20))
        headers = [("content-encoding", label)]
        assert len(await read(Sender(packed), *headers, body=1 << 20)) == 1 << 20
        with pytest.raises(TooLarge, match=r"limits\.body"):
            await read(Sender(packed), *headers, body=(1 << 20) - 1)

    asyncio.run(main())


BROKEN = {
    "cut": ("gzip", gzip.compress(b"x" * 1000)[:-1]),
    "not at all": ("br", b"\xff plainly not"),
    "too many members": ("gzip", gzip.compress(b"") * 200_000),
    "too many frames": ("zstd", zstandard.compress(b"") * 200_000),
    "endless in between": ("gzip, zstd", zstandard.compress(b"\x1f\x8b\x08\x10" + bytes(5) + b"\xff" * (64 << 20))),
    "unknown": ("compress", b"x"),
    "three": ("gzip, gzip, gzip", b"x"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_body_that_cannot_be_unpacked_is_the_callers_fault(fault: str) -> None:
    """And it is told about its request, not about an upstream's answer."""

    async def main() -> None:
        label, body = BROKEN[fault]
        with pytest.raises(BadRequest) as found:
            await read(Sender(body), ("content-encoding", label))
        assert "request" in str(found.value) and label in str(found.value)
        assert "upstream" not in str(found.value)

    asyncio.run(main())


def test_a_chunked_body_is_whole_or_gone() -> None:
    """One empty piece is the end; two are a fault at the end, however whole the JSON before it looks."""

    async def main() -> None:
        for pieces in ((), (b"",), (b"{}",), (b"{}", b""), (b"{", b"}", b"")):
            assert await read(Sender(*pieces)) == b"".join(pieces)
        for pieces in ((b"", b""), (b"{}", b"", b"")):
            with pytest.raises(ClientGone):
                await read(Sender(*pieces))

    asyncio.run(main())


def test_a_chunked_body_is_counted_as_it_comes() -> None:
    """Nobody collects one that is over the limit."""

    async def main() -> None:
        taken = 0

        async def endless() -> AsyncIterator[bytes]:
            nonlocal taken
            while True:
                taken += 1
                yield bytes(1000)

        with pytest.raises(TooLarge):
            await read(endless(), body=10_000)
        assert taken == 11

    asyncio.run(main())
