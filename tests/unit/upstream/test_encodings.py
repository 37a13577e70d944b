"""Every encoding at every size: what was packed comes out, in bounded pieces, for work in proportion."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import random
import zlib
from collections.abc import Callable
from typing import Any

import brotli
import pytest
import zstandard

from arbiter.config.snapshot import Budgets
from arbiter.errors import Cut, Garbled
from arbiter.upstream import encodings
from arbiter.upstream.encodings import MAX_PARTS, PIECE_BYTES, decoder_for
from arbiter.upstream.exchange import Exchange

Packer = Callable[[bytes], bytes]

PACKERS: dict[str, Packer] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": lambda data: brotli.compress(data, quality=5),
    "zstd": zstandard.compress,
}
LABELS = [*PACKERS, *(", ".join(pair) for pair in itertools.product(PACKERS, PACKERS))]
SIZES = [1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 98_272, 2 * PIECE_BYTES + 1, 300_000, 1 << 20]
CONTENTS: dict[str, Callable[[int], bytes]] = {
    "zeros": bytes,
    "text": lambda size: b"".join(b"data: event %d\n\n" % n for n in range(size // 15 + 1))[:size],
    "noise": lambda size: random.Random(size).randbytes(size),
}


def pack(label: str, data: bytes) -> bytes:
    for name in label.split(", "):
        data = PACKERS[name](data)
    return data


def unpack(label: str, body: bytes, cut: int) -> bytes:
    """`body` decoded, `cut` bytes at a time."""
    decoder = decoder_for(label)
    assert decoder is not None
    pieces = []
    for at in range(0, len(body), cut):
        decoder.feed(body[at : at + cut])
        while piece := decoder.take():
            assert len(piece) <= 2 * PIECE_BYTES
            pieces.append(piece)
    decoder.finish()
    return b"".join(pieces)


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("label", LABELS)
def test_what_was_packed_comes_out_whatever_its_size(label: str, content: str) -> None:
    """Far below, about, and far over one piece; fed at once, in reads, and in odd bits."""
    for size in SIZES:
        data = CONTENTS[content](size)
        body = pack(label, data)
        for cut in (len(body), 64 << 10, 4099):
            assert unpack(label, body, cut) == data, (size, cut)


@pytest.mark.parametrize("label", LABELS)
def test_a_cut_anywhere_in_a_large_body_is_seen(label: str) -> None:
    """What came before it is the beginning of what was packed, and the missing end is told."""
    data = CONTENTS["text"](200_000) + CONTENTS["noise"](100_000)
    body = pack(label, data)
    for missing in (1, 7, len(body) // 3, len(body) - 1):
        with pytest.raises((Cut, Garbled)):
            unpack(label, body[:-missing], 64 << 10)


@pytest.mark.parametrize("label", ["br", "deflate"])
def test_bytes_behind_the_end_are_a_fault(label: str) -> None:
    """At once or later, behind a small body or a large one."""
    for size in (10, 300_000):
        body = pack(label, CONTENTS["text"](size)) + b"more"
        for cut in (len(body), len(body) - 4, 1 << 10):
            with pytest.raises(Garbled):
                unpack(label, body, cut)


PARTS = {
    "gzip": gzip.compress(b""),
    "zstd": zstandard.compress(b""),
    "zstd, skippable": b"\x50\x2a\x4d\x18\0\0\0\0",
}


@pytest.mark.parametrize("kind", PARTS)
def test_a_body_is_in_so_many_parts_and_no_more(kind: str) -> None:
    """A member or frame of some bytes costs a thousand times what its bytes do."""
    label = kind.partition(",")[0]
    body = PARTS[kind] * (MAX_PARTS - 1) + PACKERS[label](b"the end")
    for cut in (len(body), 1000):
        assert unpack(label, body, cut) == b"the end"
        with pytest.raises(Garbled, match="parts"):
            unpack(label, PARTS[kind] + body, cut)


class Meter:
    """`zlib`, counting the bytes that go in and the bytes that it copies because they were not used."""

    error = zlib.error

    def __init__(self) -> None:
        self.calls = self.given = self.copied = 0

    def decompressobj(self, wbits: int) -> Any:
        meter, real = self, zlib.decompressobj(wbits)

        class Metered:
            eof = property(lambda _: real.eof)
            unused_data = property(lambda _: real.unused_data)
            unconsumed_tail = property(lambda _: real.unconsumed_tail)

            def decompress(self, data: bytes, limit: int) -> bytes:
                piece = real.decompress(data, limit)
                meter.calls += 1
                meter.given += len(data)
                meter.copied += len(real.unused_data) + len(real.unconsumed_tail)
                return piece

        return Metered()


@pytest.mark.parametrize("member_bytes", [0, 100, 5000, 100_000])
def test_the_work_on_many_members_is_in_proportion_to_them(monkeypatch: pytest.MonkeyPatch, member_bytes: int) -> None:
    """Twice the members, twice the bytes looked at: what lies behind a member's end is not copied for each of them."""

    def work(members: int) -> tuple[int, int, int]:
        meter = Meter()
        monkeypatch.setattr(encodings, "zlib", meter)
        body = gzip.compress(CONTENTS["noise"](member_bytes)) * members
        assert len(unpack("gzip", body, len(body))) == member_bytes * members
        assert meter.given + meter.copied <= 4 * len(body) + 1024 * members
        return meter.calls, meter.given, meter.copied

    few, many = work(200), work(400)
    assert all(two <= 2.2 * one for one, two in zip(few, many, strict=True)), (few, many)


def test_too_many_members_cost_no_more_than_the_allowed_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many follow."""

    def work(members: int) -> int:
        meter = Meter()
        monkeypatch.setattr(encodings, "zlib", meter)
        with pytest.raises(Garbled):
            unpack("gzip", PARTS["gzip"] * members, len(PARTS["gzip"]) * members)
        return meter.given + meter.copied

    assert work(100 * MAX_PARTS) == work(2 * MAX_PARTS)


def test_an_encoding_that_unfolds_to_what_unfolds_to_nothing_is_refused() -> None:
    """A gzip header's comment may be endless: 64 MiB of it are some kilobytes, packed again, and no answer."""
    endless = b"\x1f\x8b\x08\x10" + bytes(5) + b"\xff" + b"x" * (64 << 20)
    decoder = decoder_for("gzip, zstd")
    assert decoder is not None
    decoder.feed(zstandard.compress(endless))
    with pytest.raises(Garbled, match="proportion"):
        decoder.take()


def test_a_stream_flushed_after_every_event_is_in_proportion_in_two_layers() -> None:
    """Each flush costs some bytes in each layer; small events pass all the same, each as it comes."""
    inner, outer = zlib.compressobj(wbits=31), zstandard.ZstdCompressor().compressobj()
    decoder = decoder_for("gzip, zstd")
    assert decoder is not None
    for n in range(20_000):
        event = b"data: %d\n\n" % n
        packed = inner.compress(event) + inner.flush(zlib.Z_SYNC_FLUSH)
        decoder.feed(outer.compress(packed) + outer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK))
        assert decoder.take() == event
        assert decoder.take() == b""


def test_a_whole_answer_is_unpacked_in_turns_and_to_its_limit() -> None:
    """A stream of the same worker has its turn at least once for each half MiB that a unary answer unfolds to."""

    async def main() -> None:
        size, turns = 16 << 20, 0

        async def other() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        exchange = Exchange(Budgets(), False, 0.5, set())
        exchange.on_head(200, [("content-encoding", "gzip")], -1, False, "gzip")
        packed = gzip.compress(bytes(size))
        for at in range(0, len(packed), 100):
            exchange.push(packed[at : at + 100])
        exchange.end(None)
        task = asyncio.create_task(other())
        assert await exchange.read(size) == bytes(size)
        assert turns >= size >> 19
        task.cancel()

    asyncio.run(main())
