"""Rows read from MessagePack, one after the other: msgspec does it.

The compiled twin takes from the row before what is the same in both.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

R = TypeVar("R", bound=msgspec.Struct)


class Unpacker(Generic[R]):
    """Reads rows of one kind, a Struct that is an array (`array_like`) and that the garbage collector does not know."""

    def __init__(self, kind: type[R]) -> None:
        self.kind = kind
        self._decode = msgspec.msgpack.Decoder(kind).decode

    def unpack(self, data: bytes, at: int = 0) -> R:
        """Return the row that begins there. Errors: msgspec.DecodeError."""
        return self._decode(memoryview(data)[at:])
