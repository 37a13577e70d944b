"""How state is written down: keys and values of the LMDB databases.

A value is a version byte and MessagePack; between the two, pins and artefacts have eight bytes that say when their life
ends, so that nobody need decode them to know that it has. What cannot be read, or was written by a newer version, reads
as absent. Names are hashed into keys, because LMDB bounds those to 511 bytes; the values hold them in full.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import msgspec
import xxhash

from arbiter.state.base import AccountName, Breaker, Cooldown, Origin, Pause, Pin
from arbiter.state.measures import Measured
from arbiter.state.rules import Count

VERSION = b"\x01"

_VALUES_KNOWN = 1000

# The first byte of a key in `standing`, and all of the generation's.
GENERATION, TRIAL = b"g", b"t"
COOLDOWN, BREAKER, REFUSED, PAUSE, LACK = b"c", b"b", b"r", b"p", b"l"
# The first byte of a key in `measures`; the worker's name follows, or the target's and the client's.
BUSY, SAMPLES, LEARNED = b"b", b"s", b"l"

_Value = TypeVar("_Value")
_Record = TypeVar("_Record")
_encode = msgspec.msgpack.Encoder().encode


class Dated(NamedTuple, Generic[_Value]):
    """A value, and when its life ends (Unix milliseconds)."""

    expires_ms: int
    value: _Value


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


class LackRecord(msgspec.Struct, array_like=True, frozen=True):
    boot: str
    url: str
    until: float  # on the monotonic clock of this host


class BusyRecord(msgspec.Struct, array_like=True, frozen=True):
    boot: str
    at: float  # on the monotonic clock of this host
    busy: dict[str, int]


class LearnedRecord(msgspec.Struct, array_like=True, frozen=True):
    """`sums` are bytes of text and tokens, `at_ms` is when they last grew."""

    target: str
    client: str
    at_ms: int
    sums: tuple[float, float]


def encode(record: object) -> bytes:
    return VERSION + _encode(record)


def encode_dated(expires_ms: int, value: object) -> bytes:
    return VERSION + expires_ms.to_bytes(8, "big") + _encode(value)


def read_expiry(raw: bytes | None) -> int | None:
    """When the life of a pin or an artefact ends."""
    return int.from_bytes(raw[1:9], "big") if raw is not None and raw[:1] == VERSION and len(raw) > 9 else None


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


def _dated_reader(kind: type[_Value]) -> Callable[[bytes, int], tuple[_Value | None, int]]:
    """Reads what is still alive at a time, and when its life ends; (None, 0) for what is not. Many have few values
    between them, so these are decoded once."""
    decode = msgspec.msgpack.Decoder(kind).decode
    known: dict[bytes, _Value] = {}

    def read(raw: bytes, now_ms: int) -> tuple[_Value | None, int]:
        if raw[:1] != VERSION or (expires_ms := int.from_bytes(raw[1:9], "big")) <= now_ms:
            return None, 0
        encoded = raw[9:]
        value = known.get(encoded)
        if value is None:
            try:
                value = decode(encoded)
            except msgspec.MsgspecError:
                return None, 0
            if len(known) >= _VALUES_KNOWN:
                known.clear()
            known[encoded] = value
        return value, expires_ms

    return read


read_dated_pin = _dated_reader(Pin)
_read_dated_origin = _dated_reader(Origin)


def read_pin(raw: bytes | None, now_ms: int) -> Pin | None:
    return read_dated_pin(raw, now_ms)[0] if raw is not None else None


def read_origin(raw: bytes | None, now_ms: int) -> Origin | None:
    return _read_dated_origin(raw, now_ms)[0] if raw is not None else None


read_cooldown = _reader(CooldownRecord)
read_breaker = _reader(BreakerRecord)
read_refused = _reader(RefusedRecord)
read_lack = _reader(LackRecord)
read_pause = _reader(Pause)
read_count = _reader(Count)
read_busy = _reader(BusyRecord)
read_samples = _reader(dict[str, Measured])
read_learned = _reader(LearnedRecord)


def is_ours(raw: bytes) -> bool:
    """Whether a sweep may judge it: a newer version's record is that version's to remove."""
    return raw[:1] <= VERSION
