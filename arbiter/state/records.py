"""How state is written down: keys and values of the LMDB databases.

A value is a version byte and a MessagePack array. What cannot be read, or was written by a newer version, reads as
absent. Names are hashed into keys, because LMDB bounds those to 511 bytes; the values hold them in full.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec
import xxhash

from arbiter.state.base import AccountName, Breaker, Cooldown, Origin, Pause, Pin
from arbiter.state.measures import Samples
from arbiter.state.rules import Count

VERSION = b"\x01"

# The first byte of a key in `standing`, and all of the generation's.
GENERATION, TRIAL = b"g", b"t"
COOLDOWN, BREAKER, REFUSED, PAUSE = b"c", b"b", b"r", b"p"
# The first byte of a key in `measures`; the worker's name follows.
BUSY, SAMPLES = b"b", b"s"

_Record = TypeVar("_Record")
_encode = msgspec.msgpack.Encoder().encode


class PinRecord(msgspec.Struct, array_like=True, frozen=True, gc=False):
    expires_ms: int
    pin: Pin


class ArtefactRecord(msgspec.Struct, array_like=True, frozen=True, gc=False):
    expires_ms: int
    origin: Origin


class Expiry(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The beginning that pins and artefacts have in common."""

    expires_ms: int


class CooldownRecord(msgspec.Struct, array_like=True, frozen=True):
    """`boot`, here and below: the run of the gateway that it is of. In another one it does not count."""

    boot: str
    account: AccountName
    cooldown: Cooldown


class BreakerRecord(msgspec.Struct, array_like=True, frozen=True):
    boot: str
    provider: str
    breaker: Breaker


class RefusedRecord(msgspec.Struct, array_like=True, frozen=True):
    boot: str
    account: AccountName


class BusyRecord(msgspec.Struct, array_like=True, frozen=True):
    boot: str
    at: float  # on the monotonic clock of this host
    busy: dict[str, int]


def encode(record: object) -> bytes:
    return VERSION + _encode(record)


def key(kind: bytes, *names: str) -> bytes:
    """The key of what is known by these names."""
    return kind + xxhash.xxh3_128_digest(_encode(names))


def _reader(kind: type[_Record]) -> Callable[[bytes | None], _Record | None]:
    decode = msgspec.msgpack.Decoder(kind).decode

    def read(raw: bytes | None) -> _Record | None:
        if raw is None or raw[:1] != VERSION:
            return None
        try:
            return decode(raw[1:])
        except msgspec.MsgspecError:
            return None

    return read


read_pin = _reader(PinRecord)
read_artefact = _reader(ArtefactRecord)
read_expiry = _reader(Expiry)
read_cooldown = _reader(CooldownRecord)
read_breaker = _reader(BreakerRecord)
read_refused = _reader(RefusedRecord)
read_pause = _reader(Pause)
read_count = _reader(Count)
read_busy = _reader(BusyRecord)
read_samples = _reader(Samples)


def is_ours(raw: bytes) -> bool:
    """Whether a sweep may judge it: a newer version's record is that version's to remove."""
    return raw[:1] <= VERSION
