"""Rows as MessagePack, and values moved from one object into another: msgspec does the one, `setattr` the other.

The compiled twin reads and writes the fields of a Struct, or of a class with `__slots__`, where they stand in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

_encode = msgspec.msgpack.Encoder().encode


class Packer:
    """Writes rows of one kind, a Struct that is an array (`array_like`), as msgspec does."""

    def __init__(self, kind: type[msgspec.Struct]) -> None:
        self.kind = kind

    def pack(self, row: Any, head: bytes = b"") -> bytes:
        """Return the row behind `head`. Errors: those of msgspec where a value has no MessagePack form."""
        return head + _encode(row)


class Moves:
    """Sets fields of one object to those of another; `fields` are names of the target's by names of the source's.

    The target is no Struct that is frozen, or that the garbage collector knows.
    """

    def __init__(self, source: type, target: type, fields: Mapping[str, str]) -> None:
        self._source, self._target = source, target
        self._fields = tuple(fields.items())

    def __call__(self, source: Any, target: Any) -> None:
        """Errors: TypeError where one of the two is of another class."""
        if type(source) is not self._source or type(target) is not self._target:
            raise TypeError("these are other classes")
        for name, into in self._fields:
            setattr(target, into, getattr(source, name))
