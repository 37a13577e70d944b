"""How rows look inside the journal: one version byte, one kind byte, then MessagePack.

Rows are arrays there, so a field may be appended to a Struct at any time; a field moved or removed needs a new
`VERSION`. Whoever drains the journal may be older or newer than whoever wrote it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from arbiter._speedups import rows, unpacker
from arbiter.ledger.row import AttemptRow, RequestRow

VERSION = 1
REQUEST, ATTEMPT, OPEN = 1, 2, 3

Row = RequestRow | AttemptRow


class OpenRecord(msgspec.Struct, array_like=True):
    """What is known of an attempt while it runs; without `attempt`, of a request between two attempts."""

    worker: str  # key of the process that runs it
    request: RequestRow
    attempt: AttemptRow | None


class _Opener(msgspec.Struct, array_like=True):
    """The beginning of an `OpenRecord`."""

    worker: str


class Unreadable(ValueError):
    """These bytes are no record this version can read."""


_HEAD = {kind: bytes((VERSION, kind)) for kind in (REQUEST, ATTEMPT, OPEN)}
_REQUEST_HEAD, _ATTEMPT_HEAD, _OPEN_HEAD = _HEAD[REQUEST], _HEAD[ATTEMPT], _HEAD[OPEN]
_BAD_VALUE = (ValueError, TypeError, OverflowError, msgspec.MsgspecError)
_NOTHING = b"\xc0"
_encode = msgspec.msgpack.Encoder().encode
_pack_attempt, _pack_request = rows.Packer(AttemptRow).pack, rows.Packer(RequestRow).pack
_unpack_attempt, _unpack_request = unpacker.Unpacker(AttemptRow).unpack, unpacker.Unpacker(RequestRow).unpack
_decode_opener = msgspec.msgpack.Decoder(_Opener).decode
_decode_open = msgspec.msgpack.Decoder(OpenRecord).decode


def encode_row(row: Row) -> bytes:
    """One completed row; a value that has no MessagePack form is stored as `storable` says."""
    try:
        return _packed(row)
    except _BAD_VALUE:
        return _packed(storable(row))


def _packed(row: Row) -> bytes:
    return _pack_attempt(row, _ATTEMPT_HEAD) if type(row) is AttemptRow else _pack_request(row, _REQUEST_HEAD)


def encode_rows(batch: Sequence[Row]) -> list[bytes]:
    """Each of `batch` as `encode_row` does it."""
    pack_attempt, attempt_head, pack_request, request_head = _pack_attempt, _ATTEMPT_HEAD, _pack_request, _REQUEST_HEAD
    try:
        return [
            pack_attempt(row, attempt_head) if type(row) is AttemptRow else pack_request(row, request_head)
            for row in batch
        ]
    except _BAD_VALUE:
        return [encode_row(row) for row in batch]


def encode_open(worker: str, request: RequestRow, attempt: AttemptRow | None) -> bytes:
    """One open record; `worker` is the key of the process that runs the attempt."""
    head = _head_of(worker)
    try:
        opened = _pack_request(request, head)
        return _pack_attempt(attempt, opened) if attempt is not None else opened + _NOTHING
    except _BAD_VALUE:
        return _OPEN_HEAD + _encode((worker, storable(request), attempt and storable(attempt)))


@functools.lru_cache(64)
def _head_of(worker: str) -> bytes:
    """How an open record begins, up to the request: an array of three."""
    return _OPEN_HEAD + b"\x93" + _encode(worker)


def storable(row: Row) -> Row:
    """A copy of `row` that every store can hold: one odd value from outside must not cost the row.

    A lone surrogate becomes "?", a number beyond 64 bits becomes unknown, a NUL (which PostgreSQL refuses) goes.
    """
    values = {name: storable_value(getattr(row, name)) for name in row.__struct_fields__}
    return type(row)(**values)


def storable_value(value: Any) -> Any:
    """One value, as `storable` has them."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode().replace("\0", "")
    if isinstance(value, bool | float | bytes) or value is None:
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else None
    if isinstance(value, list):
        return [storable_value(item) for item in value]
    if isinstance(value, dict):
        return {storable_value(key): storable_value(item) for key, item in value.items()}
    return str(value)


class Decoded(NamedTuple):
    """Records, each as what it is; of those that nobody can read the position among the others, and why."""

    requests: list[RequestRow]
    attempts: list[AttemptRow]
    unreadable: list[tuple[int, Unreadable]]


def decode_rows(encoded: Iterable[bytes]) -> Decoded:
    """The rows that `encode_row` took, in order."""
    requests: list[RequestRow] = []
    attempts: list[AttemptRow] = []
    unreadable: list[tuple[int, Unreadable]] = []
    for at, data in enumerate(encoded):
        head = data[:2]
        try:
            if head == _ATTEMPT_HEAD:
                attempts.append(_unpack_attempt(data, 2))
            elif head == _REQUEST_HEAD:
                requests.append(_unpack_request(data, 2))
            else:
                raise Unreadable(f"a record of kind {_kind(data)}, where a row was expected")
        except (msgspec.DecodeError, ValueError) as error:
            unreadable.append((at, error if isinstance(error, Unreadable) else Unreadable(str(error))))
    return Decoded(requests, attempts, unreadable)


def decode_open(data: bytes) -> OpenRecord:
    """The open record that `encode_open` took. Errors: Unreadable."""
    kind = _kind(data)
    if kind != OPEN:
        raise Unreadable(f"a record of kind {kind}, where an open one was expected")
    try:
        return _decode_open(memoryview(data)[2:])
    except (msgspec.DecodeError, ValueError) as error:
        raise Unreadable(str(error)) from error


def opener(data: bytes) -> str:
    """Whose open record it is: the key of the process. Errors: Unreadable."""
    kind = _kind(data)
    if kind != OPEN:
        raise Unreadable(f"a record of kind {kind}, where an open one was expected")
    try:
        return _decode_opener(memoryview(data)[2:]).worker
    except (msgspec.DecodeError, ValueError) as error:
        raise Unreadable(str(error)) from error


def _kind(data: bytes) -> int:
    if len(data) < 2:
        raise Unreadable("a record shorter than its head")
    if data[0] != VERSION:
        raise Unreadable(f"a record of version {data[0]}; this Arbiter reads version {VERSION}")
    return data[1]
