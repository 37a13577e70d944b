"""Backpressure, and answers that come compressed though nobody asked."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import zlib

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from arbiter.errors import ArbiterError, Cut, Garbled
from arbiter.upstream.encodings import PIECE_BYTES, decoder_for
from arbiter.upstream.transport import Transport
from tests.fakes.loops import Run
from tests.fakes.origin import LAST_CHUNK, SILENCE, Origin, Peer, Request, answer, chunk, chunked, chunked_head
from tests.fakes.reader import Collected, ask, counts, endpoint_of


def test_a_pause_stops_the_pieces_and_the_upstream(run: Run) -> None:
    """What the client cannot take stays in the kernel and with the server, not with us (SPEC 3.5)."""

    async def main() -> None:
        sent = 0

        async def script(peer: Peer, request: Request) -> None:
            nonlocal sent
            await peer.send(chunked_head())
            for _ in range(640):
                await peer.send(chunk(b"x" * 100_000))
                sent += 100_000
            await peer.send(LAST_CHUNK)

        async with Origin(script) as origin:
            transport = Transport()
            exchange = await ask(transport, endpoint_of(origin))
            sink = Collected()
            exchange.stream(sink)
            exchange.pause()
            got = len(sink.data)
            stable = -1
            while stable != sent:
                stable = sent
                await asyncio.sleep(0.1)
            assert sent < 64_000_000
            assert len(sink.data) == got
            assert exchange._backlog_bytes <= 256 << 10
            exchange.resume()
            assert await sink.end() is None
            assert len(sink.data) == 64_000_000
            await transport.close()

    run(main, debug=False)


def test_nobody_reading_yet_is_a_pause_too(run: Run) -> None:
    """Between the head and the reader, at most two reads are held."""

    async def main() -> None:
        async with Origin(answer(b"x" * (30 << 20))) as origin:
            transport = Transport()
            exchange = await ask(transport, endpoint_of(origin))
            await asyncio.sleep(0.1)
            assert exchange._backlog_bytes <= 256 << 10
            assert len(await exchange.read(30 << 20)) == 30 << 20
            await transport.close()

    run(main, debug=False)


def test_a_sink_that_pauses_in_each_piece_gets_all_of_them(run: Run) -> None:
    """In order, none twice, the end last; also where it pauses and resumes at once."""

    async def main() -> None:
        async with Origin([chunked_head(), *[chunk(b"%05d" % n) for n in range(300)], LAST_CHUNK]) as origin:
            transport = Transport()
            exchange = await ask(transport, endpoint_of(origin))
            loop = asyncio.get_running_loop()

            class Slow(Collected):
                def on_data(self, data: bytes) -> None:
                    super().on_data(data)
                    exchange.pause()
                    if len(self.pieces) % 2:
                        exchange.resume()
                    else:
                        loop.call_soon(exchange.resume)

            sink = Slow()
            exchange.stream(sink)
            assert await sink.end() is None
            assert sink.data == b"".join(b"%05d" % n for n in range(300))
            await transport.close()

    run(main)


def test_an_end_that_came_during_a_pause_waits_for_it(run: Run) -> None:
    """The connection is free before the client has read."""

    async def main() -> None:
        async with Origin([chunked_head() + chunk(b"one"), chunk(b"two") + LAST_CHUNK]) as origin:
            transport = Transport()
            exchange = await ask(transport, endpoint_of(origin))
            await origin.until(lambda: counts(transport) == (1, 1, 0, 0))
            sink = Collected()
            exchange.pause()
            exchange.stream(sink)
            assert (sink.pieces, sink.ends) == ([], [])
            exchange.resume()
            assert (sink.data, sink.ends) == (b"onetwo", [None])
            await transport.close()

    run(main)


# ------------------------------------------------------------------------------------------------ encodings


def raw_deflate(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(data) + compressor.flush()


def frames(data: bytes) -> bytes:
    return zstandard.compress(data[: len(data) // 2]) + zstandard.compress(data[len(data) // 2 :])


ENCODERS = {
    "gzip": ("gzip", gzip.compress),
    "two gzip members": ("X-GZIP", lambda data: gzip.compress(data[:5]) + gzip.compress(data[5:])),
    "zlib": ("deflate", zlib.compress),
    "bare deflate": ("deflate", raw_deflate),
    "brotli": ("br", brotli.compress),
    "zstd": ("zstd", zstandard.compress),
    "two zstd frames": ("zstd", frames),
    "twice": ("gzip, br", lambda data: brotli.compress(gzip.compress(data))),
}
TEXT = b"".join(b"data: event %d\n\n" % n for n in range(500))


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("whole", [True, False], ids=["read", "stream"])
def test_a_compressed_answer_is_decoded(run: Run, name: str, whole: bool) -> None:
    """And its label and its length come off: what the reader has is neither."""
    label, encode = ENCODERS[name]

    async def main() -> None:
        body = encode(TEXT)
        script = chunked(body[:9], body[9:], headers=[("content-encoding", label), ("x", "y")])
        async with Origin(scripts=[script, answer(body, headers=[("Content-Encoding", label)])]) as origin:
            transport = Transport()
            for _ in range(2):
                exchange = await ask(transport, endpoint_of(origin))
                assert exchange.header("content-encoding") is None
                assert exchange.header("content-length") is None
                if whole:
                    assert await exchange.read(len(TEXT)) == TEXT
                else:
                    sink = Collected()
                    exchange.stream(sink)
                    assert await sink.end() is None
                    assert sink.data == TEXT
            await transport.close()

    run(main)


def test_a_compressed_stream_is_not_held_back(run: Run) -> None:
    """An event that was flushed upstream arrives before the next one is written."""

    async def main() -> None:
        gate = asyncio.Event()
        compressor = zlib.compressobj(wbits=31)

        async def script(peer: Peer, request: Request) -> None:
            await peer.send(chunked_head(headers=[("content-encoding", "gzip")]))
            await peer.send(chunk(compressor.compress(b"data: 1\n\n") + compressor.flush(zlib.Z_SYNC_FLUSH)))
            await gate.wait()
            await peer.send(chunk(compressor.compress(b"data: 2\n\n") + compressor.flush()) + LAST_CHUNK)

        async with Origin(script) as origin:
            transport = Transport()
            exchange = await ask(transport, endpoint_of(origin))
            sink = Collected()
            exchange.stream(sink)
            await origin.until(lambda: sink.data == b"data: 1\n\n")
            gate.set()
            assert await sink.end() is None
            assert sink.data == b"data: 1\n\ndata: 2\n\n"
            await transport.close()

    run(main)


@pytest.mark.parametrize("name", ENCODERS)
def test_a_compressed_answer_that_ends_early_is_cut(run: Run, name: str) -> None:
    """Though the HTTP message around it is whole."""
    label, encode = ENCODERS[name]

    async def main() -> None:
        body = encode(TEXT)[:-1]
        async with Origin(answer(body, headers=[("content-encoding", label)])) as origin:
            transport = Transport()
            with pytest.raises(Cut):
                await (await ask(transport, endpoint_of(origin))).read(1 << 20)
            exchange = await ask(transport, endpoint_of(origin))
            sink = Collected()
            exchange.stream(sink)
            assert isinstance(await sink.end(), Cut)
            assert TEXT.startswith(sink.data)
            await transport.close()

    run(main)


@pytest.mark.parametrize("label", ["gzip", "deflate", "br", "zstd"])
def test_what_is_not_compressed_as_it_says_is_garbled(run: Run, label: str) -> None:
    """And the connection is closed, for the rest is worth nothing."""

    async def main() -> None:
        script = [
            chunked_head(headers=[("content-encoding", label)]) + chunk(b"\xff plainly not compressed" * 9),
            SILENCE,
        ]
        async with Origin(script) as origin:
            transport = Transport()
            exchange = await ask(transport, endpoint_of(origin))
            sink = Collected()
            exchange.stream(sink)
            assert isinstance(await sink.end(), Garbled)
            assert counts(transport)[0] == 0
            await origin.until(lambda: origin.hangups == 1)
            await transport.close()

    run(main)


@pytest.mark.parametrize("name", ENCODERS)
def test_a_bomb_is_read_no_further_than_its_limit(run: Run, name: str) -> None:
    """16 MB of zeros in a few kilobytes; pieces stay small, and a pause stops the unfolding."""
    label, encode = ENCODERS[name]
    bomb = encode(bytes(16 << 20))

    async def main() -> None:
        async with Origin(answer(bomb, headers=[("content-encoding", label)])) as origin:
            transport = Transport()
            with pytest.raises(Garbled):
                await (await ask(transport, endpoint_of(origin))).read(1 << 20)
            exchange = await ask(transport, endpoint_of(origin))

            class Wary(Collected):
                def on_data(self, data: bytes) -> None:
                    super().on_data(data)
                    assert len(data) <= 2 * PIECE_BYTES  # brotli goes to the end of its block
                    if len(self.pieces) == 3:
                        exchange.pause()

            sink = Wary()
            exchange.stream(sink)
            await origin.until(lambda: len(sink.pieces) == 3)
            await asyncio.sleep(0.01)
            assert len(sink.pieces) == 3
            exchange.abort()
            await transport.close()

    run(main, debug=False)


@given(
    st.binary(max_size=2000),
    st.sampled_from(sorted(ENCODERS)),
    st.lists(st.integers(0, 1 << 16), max_size=5),
    st.booleans(),
)
def test_any_cut_of_a_compressed_body_decodes_alike(data: bytes, name: str, places: list[int], truncate: bool) -> None:
    """However the network slices it; and a missing last byte is always noticed."""
    label, encode = ENCODERS[name]
    body = encode(data)[: -1 if truncate else None]
    edges = [0, *sorted(place % (len(body) + 1) for place in places), len(body)]
    decoder = decoder_for(label)
    assert decoder is not None
    out = b""
    error: ArbiterError | None = None
    try:
        for start, stop in itertools.pairwise(edges):
            decoder.feed(body[start:stop])
            while piece := decoder.take():
                out += piece
        decoder.finish()
    except ArbiterError as caught:
        error = caught
    assert data.startswith(out)
    if truncate and body:
        assert isinstance(error, Cut | Garbled)
    else:
        assert (out, error) == (data, None)


@pytest.mark.parametrize("label", ["", "identity", " , identity"])
def test_identity_needs_no_decoder(label: str) -> None:
    """Some servers label what they did not do."""
    assert decoder_for(label) is None


@pytest.mark.parametrize("label", ["compress", "gzip, gzip, gzip", "gzip;q=1"])
def test_an_encoding_nobody_knows_is_refused(label: str) -> None:
    """Relaying it would be relaying garbage."""
    with pytest.raises(Garbled):
        decoder_for(label)


@pytest.mark.parametrize("label", ["gzip", "deflate", "br", "zstd"])
def test_an_empty_body_with_a_label_is_empty(label: str) -> None:
    """A 304 or a HEAD has one."""
    decoder = decoder_for(label)
    assert decoder is not None
    assert decoder.take() == b""
    decoder.finish()
