"""Undoing the Content-Encoding of an answer, or of a request, in bounded pieces and bounded steps.

The upstream is asked for `identity`; this is for the ones that compress all the same (SPEC 2.13), and for the clients
that do (SPEC 1.6). A decoder hands out pieces of about `PIECE_BYTES` (never twice that) and keeps the input it has not
unfolded yet, so a small compressed read that would unfold to gigabytes costs a reader that pauses, or stops, nothing.

The work is linear in what comes in and what goes out: the input is looked at in slices, from an offset, and what a
library leaves of a slice is never more than a slice. What could be had for next to nothing is bounded by number:
members and frames (`MAX_PARTS`), and what lies between two encodings and unfolds to nothing.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from typing import Protocol

import brotli
import zstandard

from ..errors import ArbiterError, Cut, Garbled

PIECE_BYTES = 64 << 10

MAX_PARTS = 1000
"""gzip members or zstd frames of one body. `bgzip` and `pigz -i` make one of each 64 KiB or more; most make one."""

# Of a whole body: what is looked at in one step, and in one turn of the loop, which takes a millisecond or a few.
_STEP_BYTES = 64 << 10
_TURN_BYTES = 256 << 10

_SLICE_BYTES = 16 << 10
# A library copies what is left of a slice behind the end of a member: little ones are not given much to copy.
_FIRST_SLICE_BYTES = 512
# Four bytes of zstd can stand for 128 KiB and the binding has no output limit: small sips keep one step near 2 MiB.
_ZSTD_SIP_BYTES = 64
_ZSTD_WINDOW_BYTES = 8 << 20  # RFC 9659: more than this is not for the web
# Whatever packs, packs to less than twice the size, but for some bytes per flush or a large table in front.
_IDLE_BYTES = 1 << 20


class Decoder(Protocol):
    """One body's Content-Encoding, undone."""

    def feed(self, data: bytes) -> None:
        """Take the next compressed bytes."""

    def take(self) -> bytes:
        """Return the next piece, b"" once more input is needed.

        Errors: Garbled.
        """

    def finish(self) -> None:
        """Say that the input is complete. Errors: Cut if the compressed stream is not."""


class _Input:
    """The compressed bytes that were not looked at yet."""

    __slots__ = ("_at", "_data", "began")

    def __init__(self) -> None:
        self._data = b""
        self._at = 0
        self.began = False

    def __len__(self) -> int:
        return len(self._data) - self._at

    def add(self, data: bytes) -> None:
        # Whoever feeds does so when `take` had no more to give, so what is left is a few bytes at most.
        self._data = self._data[self._at :] + data if len(self) else data
        self._at = 0
        self.began = self.began or bool(data)

    def next(self, size: int) -> memoryview:
        """At most `size` of the bytes, which stay here until they are skipped."""
        return memoryview(self._data)[self._at : self._at + size]

    def skip(self, count: int) -> None:
        self._at += count


class _Inflate:
    """gzip of any number of members, and deflate with or without its zlib frame, which many servers leave out."""

    def __init__(self, *, gzip: bool) -> None:
        self._gzip = gzip
        self._inflate = zlib.decompressobj(31) if gzip else None
        self._input = _Input()
        self._slice_bytes = _FIRST_SLICE_BYTES
        self._parts = 1

    def feed(self, data: bytes) -> None:
        self._input.add(data)

    def take(self) -> bytes:
        inflate = self._inflate
        if inflate is None:
            if len(self._input) < 2:
                return b""
            start = bytes(self._input.next(2))
            framed = start[0] & 15 == 8 and int.from_bytes(start, "big") % 31 == 0
            inflate = self._inflate = zlib.decompressobj(15 if framed else -15)
        while True:
            if inflate.eof:
                if not self._input:
                    return b""
                if not self._gzip:
                    raise Garbled("the upstream's answer goes on after its compressed end")
                self._parts = _one_more(self._parts)
                inflate = self._inflate = zlib.decompressobj(31)
                self._slice_bytes = _FIRST_SLICE_BYTES
            given = self._input.next(self._slice_bytes)
            try:
                # Also with nothing given: at the limit of a piece some of the output may still be inside.
                piece = inflate.decompress(given, PIECE_BYTES)
            except zlib.error as error:
                raise _unreadable(error) from None
            left = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
            self._input.skip(len(given) - len(left))
            self._slice_bytes = min(2 * self._slice_bytes, _SLICE_BYTES)
            if piece or not (self._input or inflate.eof):
                return piece

    def finish(self) -> None:
        if self._input.began and (self._inflate is None or not self._inflate.eof):
            raise _cut()


class _Brotli:
    def __init__(self) -> None:
        self._inflate = brotli.Decompressor()
        self._input = _Input()

    def feed(self, data: bytes) -> None:
        self._input.add(data)

    def take(self) -> bytes:
        given = b""
        while True:
            try:
                # With nothing given first: whether it "can accept more data" says nothing of the output that is
                # still inside, and more input would push the output over the limit.
                piece = self._inflate.process(given, output_buffer_limit=PIECE_BYTES)
            except brotli.error as error:
                raise _unreadable(error) from None
            if piece:
                return bytes(piece)
            given = b""
            if self._inflate.can_accept_more_data():
                if not self._input:
                    return b""
                given = bytes(self._input.next(_SLICE_BYTES))
                self._input.skip(len(given))

    def finish(self) -> None:
        if self._input.began and not self._inflate.is_finished():
            raise _cut()


class _Zstd:
    def __init__(self) -> None:
        self._open = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
        self._frame = self._open.decompressobj()
        self._input = _Input()
        self._ready = _Input()
        self._parts = 1

    def feed(self, data: bytes) -> None:
        self._input.add(data)

    def take(self) -> bytes:
        while not self._ready and self._input:
            if self._frame.eof:
                self._parts = _one_more(self._parts)
                self._frame = self._open.decompressobj()
            sip = self._input.next(_ZSTD_SIP_BYTES)
            try:
                self._ready.add(self._frame.decompress(sip))
            except zstandard.ZstdError as error:
                raise _unreadable(error) from None
            self._input.skip(len(sip) - (len(self._frame.unused_data) if self._frame.eof else 0))
        piece = bytes(self._ready.next(PIECE_BYTES))
        self._ready.skip(len(piece))
        return piece

    def finish(self) -> None:
        if self._input.began and not self._frame.eof:
            raise _cut()


def _one_more(parts: int) -> int:
    if parts == MAX_PARTS:
        raise Garbled(f"the upstream's compressed answer is in more than {MAX_PARTS} parts")
    return parts + 1


def _cut() -> Cut:
    return Cut("the upstream's compressed answer ended early")


def _unreadable(error: Exception) -> Garbled:
    return Garbled(f"the upstream's compressed answer cannot be read: {error}")


_DECODERS: dict[str, Callable[[], Decoder]] = {
    "gzip": lambda: _Inflate(gzip=True),
    "x-gzip": lambda: _Inflate(gzip=True),
    "deflate": lambda: _Inflate(gzip=False),
    "br": _Brotli,
    "zstd": _Zstd,
}


class _Layers:
    """Several encodings, undone from the last applied to the first."""

    def __init__(self, outer: Decoder, inner: Decoder) -> None:
        self._outer, self._inner = outer, inner
        self._idle_left = _IDLE_BYTES

    def feed(self, data: bytes) -> None:
        self._outer.feed(data)

    def take(self) -> bytes:
        while not (piece := self._inner.take()):
            middle = self._outer.take()
            if not middle:
                return b""
            # A few bytes can stand for gigabytes that in their turn stand for nothing.
            self._idle_left -= len(middle)
            if self._idle_left < 0:
                raise Garbled("the upstream's answer is encoded twice, and out of proportion")
            self._inner.feed(middle)
        self._idle_left = min(self._idle_left + 2 * len(piece), _IDLE_BYTES)
        return piece

    def finish(self) -> None:
        self._outer.finish()
        self._inner.finish()


def decoder_for(label: str) -> Decoder | None:
    """The decoder for a Content-Encoding value, None where there is nothing to undo.

    Errors: Garbled for an encoding we do not know, or more than two of them.
    """
    names = [name for name in (part.strip(" \t").lower() for part in label.split(",")) if name not in ("", "identity")]
    if not names:
        return None
    if len(names) > 2 or any(name not in _DECODERS for name in names):
        raise Garbled(f"the upstream encoded its answer as {label!r}, which nobody asked for")
    decoder = _DECODERS[names[0]]()
    return _Layers(_DECODERS[names[1]](), decoder) if len(names) == 2 else decoder


async def unpacked(decoder: Decoder, body: bytes, limit: int, too_long: ArbiterError) -> bytes:
    """The whole of `body`, undone, in turns, so that everything else on this loop goes on meanwhile.

    Errors: `too_long` over `limit` bytes, Garbled, Cut.
    """
    pieces: list[bytes] = []
    size = turn = 0
    for at in range(0, len(body), _STEP_BYTES):
        step = body[at : at + _STEP_BYTES]
        decoder.feed(step)
        turn += len(step)
        while piece := decoder.take():
            size += len(piece)
            if size > limit:
                raise too_long
            pieces.append(piece)
            turn = await _in_turns(turn + len(piece))
        turn = await _in_turns(turn)
    decoder.finish()
    return b"".join(pieces)


async def _in_turns(done_bytes: int) -> int:
    """`done_bytes`, or 0 after the others had their turn."""
    if done_bytes < _TURN_BYTES:
        return done_bytes
    await asyncio.sleep(0)
    return 0
