"""AWS event streams, incrementally: bytes in, messages out, whatever the cuts.

A message is binary, numbers big-endian:

    0   4 bytes  its length, all of it
    4   4 bytes  the length of its headers
    8   4 bytes  CRC-32 of these eight bytes
    12           headers: a byte of length, the name, a byte of type, the value
                 the payload
    -4  4 bytes  CRC-32 of all that stands before

Of the headers only those count that say what a message is; they are text (type 7). Both checksums are checked, the
first of them as soon as it is here: what claims an absurd length is no message, and nothing is kept for it.

Source: AWS, Amazon Transcribe developer guide, "Event stream encoding"; smithy.io, "Amazon Event Stream".
"""

from __future__ import annotations

from zlib import crc32

from arbiter.errors import Garbled

LIMIT_BYTES = 16 << 20  # as of an event of any other stream (SPEC 2.10)
MAX_HEADER_BYTES = 128 << 10  # AWS's own limit

Message = tuple[bytes, bytes, bytes]
"""(`event`, `exception` or `error`; its name; the payload). Of an error the payload is its message."""

_PRELUDE, _LEAST = 12, 16
_FIXED = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}  # bytes of a value, by its type
_MEASURED = (6, 7)  # two bytes of length stand before these
_TEXT = 7
_NAMES = {b"event": b":event-type", b"exception": b":exception-type", b"error": b":error-code"}


class MessageReader:
    """Splits a stream into messages.

    `feed` never raises: a fault stays in `fault`, after the messages that came before it, and nothing is read from then
    on.
    """

    def __init__(self, limit: int = LIMIT_BYTES) -> None:
        self.limit = limit
        self.fault: Garbled | None = None
        self._held = bytearray()
        self._need = _PRELUDE  # bytes before which nothing more can be said

    @property
    def held(self) -> int:
        """Bytes of the message that is not whole yet."""
        return len(self._held)

    def feed(self, data: bytes) -> list[Message]:
        """Return the messages completed by `data`, in order.

        Shapes: any cut of the stream gives the same messages; only an unfinished one is kept.
        """
        messages: list[Message] = []
        if self.fault is not None:
            return messages
        held, at = self._held, 0
        held += data
        try:
            while len(held) - at >= self._need:
                if self._need == _PRELUDE:
                    self._need = self._length(bytes(held[at : at + _PRELUDE]))
                    continue
                messages.append(_message(bytes(held[at : at + self._need])))
                at += self._need
                self._need = _PRELUDE
        except Garbled as fault:
            self.fault = fault
            at = len(held)
        del held[:at]
        return messages

    def _length(self, prelude: bytes) -> int:
        total, headers = int.from_bytes(prelude[:4], "big"), int.from_bytes(prelude[4:8], "big")
        if crc32(prelude[:8]) != int.from_bytes(prelude[8:], "big"):
            raise Garbled("the upstream sent a message whose beginning does not match its checksum")
        if total < _LEAST or headers > total - _LEAST or headers > MAX_HEADER_BYTES:
            raise Garbled("the upstream sent a message of an impossible length")
        if total > self.limit:
            raise Garbled(f"the upstream sent a message over the limit of {self.limit} bytes (`limits.event`)")
        return total


def _message(raw: bytes) -> Message:
    if crc32(raw[:-4]) != int.from_bytes(raw[-4:], "big"):
        raise Garbled("the upstream sent a message that does not match its checksum")
    end = _PRELUDE + int.from_bytes(raw[4:8], "big")
    told: dict[bytes, bytes] = {}
    at = _PRELUDE
    while at < end:
        name_end = at + 1 + raw[at]
        if raw[at] == 0 or name_end >= end:
            raise Garbled(_ODD)
        name, kind = raw[at + 1 : name_end], raw[name_end]
        at = name_end + 1
        if kind in _MEASURED:
            size = int.from_bytes(raw[at : at + 2], "big")
            at += 2
        elif kind in _FIXED:
            size = _FIXED[kind]
        else:
            raise Garbled(_ODD)
        if at + size > end:
            raise Garbled(_ODD)
        if kind == _TEXT:
            told[name] = raw[at : at + size]
        at += size
    sort = told.get(b":message-type", b"event")
    if sort not in _NAMES:
        raise Garbled("the upstream sent a message of an unknown type")
    payload = told.get(b":error-message", b"") if sort == b"error" else raw[end:-4]
    return sort, told.get(_NAMES[sort], b""), payload


_ODD = "the upstream sent a message whose headers cannot be read"
