"""Undoing the Content-Encoding of an answer, in bounded pieces.

The upstream is asked for `identity`; this is for the ones that compress all the same (SPEC 2.13). A decoder hands out
pieces of about `PIECE_BYTES` (never twice that) and keeps the input it has not unfolded yet, so a small compressed
read that would unfold to gigabytes costs a reader that pauses, or stops, nothing.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Protocol

import brotli
import zstandard

from ..errors import Cut, Garbled

PIECE_BYTES = 64 << 10

# Four bytes of zstd can stand for 128 KiB and the binding has no output limit: small sips keep one step near 2 MiB.
_ZSTD_SIP_BYTES = 64
_ZSTD_WINDOW_BYTES = 8 << 20  # RFC 9659: more than this is not for the web


class Decoder(Protocol):
    """One answer's Content-Encoding, undone."""

    def feed(self, data: bytes) -> None:
        """Take the next compressed bytes."""

    def take(self) -> bytes:
        """Return the next piece, b"" once more input is needed.

        Errors: Garbled.
        """

    def finish(self) -> None:
        """Say that the input is complete. Errors: Cut if the compressed stream is not."""


class _Inflate:
    """gzip of any number of members, and deflate with or without its zlib frame, which many servers leave out."""

    def __init__(self, *, gzip: bool) -> None:
        self._gzip = gzip
        self._inflate = zlib.decompressobj(31) if gzip else None
        self._input = b""
        self._began = False

    def feed(self, data: bytes) -> None:
        self._input += data
        self._began = self._began or bool(data)

    def take(self) -> bytes:
        inflate = self._inflate
        if inflate is None:
            if len(self._input) < 2:
                return b""
            framed = self._input[0] & 15 == 8 and int.from_bytes(self._input[:2], "big") % 31 == 0
            inflate = self._inflate = zlib.decompressobj(15 if framed else -15)
        while True:
            if inflate.eof:
                if not self._input:
                    return b""
                if not self._gzip:
                    raise Garbled("the upstream's answer goes on after its compressed end")
                inflate = self._inflate = zlib.decompressobj(31)
            given = self._input
            try:
                piece = inflate.decompress(given, PIECE_BYTES)
            except zlib.error as error:
                raise _unreadable(error) from None
            self._input = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
            if piece or not (self._input or inflate.eof) or self._input is given:
                return piece

    def finish(self) -> None:
        if self._began and (self._inflate is None or not self._inflate.eof):
            raise Cut("the upstream's compressed answer ended early")


class _Brotli:
    def __init__(self) -> None:
        self._inflate = brotli.Decompressor()
        self._input = b""
        self._began = False

    def feed(self, data: bytes) -> None:
        self._input += data
        self._began = self._began or bool(data)

    def take(self) -> bytes:
        while True:
            given = b""
            if self._inflate.can_accept_more_data():
                if not self._input:
                    return b""
                given, self._input = self._input, b""
            try:
                piece = self._inflate.process(given, output_buffer_limit=PIECE_BYTES)
            except brotli.error as error:
                raise _unreadable(error) from None
            if piece:
                return bytes(piece)

    def finish(self) -> None:
        if self._began and not self._inflate.is_finished():
            raise Cut("the upstream's compressed answer ended early")


class _Zstd:
    def __init__(self) -> None:
        self._open = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
        self._frame = self._open.decompressobj()
        self._input = b""
        self._at = 0
        self._ready = b""
        self._began = False

    def feed(self, data: bytes) -> None:
        self._input = self._input[self._at :] + data
        self._at = 0
        self._began = self._began or bool(data)

    def take(self) -> bytes:
        while not self._ready and self._at < len(self._input):
            if self._frame.eof:
                self._frame = self._open.decompressobj()
            sip = self._input[self._at : self._at + _ZSTD_SIP_BYTES]
            try:
                self._ready = self._frame.decompress(sip)
            except zstandard.ZstdError as error:
                raise _unreadable(error) from None
            self._at += len(sip) - (len(self._frame.unused_data) if self._frame.eof else 0)
        piece, self._ready = self._ready[:PIECE_BYTES], self._ready[PIECE_BYTES:]
        return piece

    def finish(self) -> None:
        if self._began and not self._frame.eof:
            raise Cut("the upstream's compressed answer ended early")


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

    def feed(self, data: bytes) -> None:
        self._outer.feed(data)

    def take(self) -> bytes:
        while not (piece := self._inner.take()):
            middle = self._outer.take()
            if not middle:
                return b""
            self._inner.feed(middle)
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
