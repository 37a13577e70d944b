"""What an image comes to in tokens, by its width and height, which stand in its first bytes.

Anthropic counts a token for 750 pixels and makes an image smaller until its longer edge has 1,568; what OpenAI's models
count lies around that. No image is decoded.
"""

from __future__ import annotations

import binascii
import math
import struct

HEAD = 64 << 10
"""Bytes of base64 that are looked at: a JPEG's size stands behind its metadata."""
UNKNOWN = 1_500
"""Tokens of an image whose size nobody can tell."""

_PIXELS, _EDGE = 750, 1568

_NO_SIZE = frozenset((0xC4, 0xC8, 0xCC))  # JPEG segments that look like a frame's, and are none


def tokens(head: bytes) -> int:
    """Tokens of an image that begins with this base64."""
    try:
        data = binascii.a2b_base64(head[: len(head) // 4 * 4])
        found = _dimensions(data)
    except (binascii.Error, ValueError, struct.error, IndexError):
        found = None
    if found is None or 0 in found:
        return UNKNOWN
    width, height = found
    scale = min(1.0, _EDGE / max(width, height))
    return max(1, math.ceil(width * scale * height * scale / _PIXELS))


def _dimensions(data: bytes) -> tuple[int, int] | None:
    if data[:8] == b"\x89PNG\r\n\x1a\n":
        return struct.unpack_from(">II", data, 16)
    if data[:4] == b"GIF8":
        return struct.unpack_from("<HH", data, 6)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return _webp(data)
    return _jpeg(data) if data[:2] == b"\xff\xd8" else None


def _webp(data: bytes) -> tuple[int, int] | None:
    kind = data[12:16]
    if kind == b"VP8X":
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    if kind == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    width, height = struct.unpack_from("<HH", data, 26)
    return width & 0x3FFF, height & 0x3FFF


def _jpeg(data: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        if 0xC0 <= marker <= 0xCF and marker not in _NO_SIZE:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        at += 2 + length
    return None
