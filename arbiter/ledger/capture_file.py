"""The way of captured content from the workers to the store: an LMDB environment of its own, bounded and droppable.

One record per request, numbered as they come: the blocks that are new, and what the request consists of. Whoever drains
it may be older or newer than whoever wrote it, so a record begins with its version.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import lmdb
import msgspec

from arbiter.state import environment

DIRECTORY = "capture"  # below the state directory
VERSION = b"\x01"
SEQUENCE = b"sequence"
DELETE_RECORDS = 64


class New(msgspec.Struct, array_like=True):
    """A block that this worker has not written lately. `text` is zstd, `size` its length without."""

    id: str
    kind: str
    media: list[str] | None
    size: int
    text: bytes


class Use(msgspec.Struct, array_like=True):
    """A block where it stands."""

    direction: str
    position: int
    kind: str
    block: str
    marks: dict[str, object] | None


class Captured(msgspec.Struct, array_like=True):
    """What is kept of one request."""

    request_id: str
    at_ms: int
    uses: list[Use] = []
    blocks: list[New] = []
    headers: dict[str, dict[str, str]] = {}  # by direction


class Unreadable(ValueError):
    """These bytes are no record that this version can read."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Captured).decode


class Full(Exception):
    """The environment is at its bound."""


class CaptureFile:
    """The environment, as workers and control open it. Errors: lmdb.Error and OSError, here and from every method but
    `close`.

    Units: `limit_bytes` bounds the pages in use; the map is twice that, as for the journal.
    """

    def __init__(self, state_dir: Path, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.env = environment.open_shared(state_dir / DIRECTORY, max(2 * limit_bytes, 1 << 20))
        try:
            self.queue = self.env.open_db(b"queue")
            self.meta = self.env.open_db(b"meta")
        except BaseException:
            self.env.close()
            raise

    def put(self, captured: Captured) -> None:
        """One more record. Errors: Full, also where LMDB has no page left."""
        record = VERSION + _encode(captured)
        if self.used_bytes() + len(record) > self.limit_bytes:
            raise Full
        try:
            with self.env.begin() as txn:
                number = int.from_bytes(txn.get(SEQUENCE, db=self.meta) or b"", "big") + 1
                key = number.to_bytes(8, "big")
                txn.put(key, record, db=self.queue, append=True)
                txn.put(SEQUENCE, key, db=self.meta)
        except lmdb.MapFullError as error:
            raise Full from error

    def first(self, records: int, size: int) -> tuple[list[bytes], int]:
        """The oldest records, at most so many, and no more of them once `size` bytes are reached; the last's number."""
        found: list[bytes] = []
        last, taken = 0, 0
        with self.env.read() as txn, txn.cursor(self.queue) as cursor:
            more = cursor.first()
            while more and len(found) < records and taken < size:
                last = int.from_bytes(cursor.key(), "big")
                found.append(bytes(cursor.value()))
                taken += len(found[-1])
                more = cursor.next()
        return found, last

    def forget(self, last: int) -> None:
        """Remove everything up to number `last`, a few per transaction: workers wait for LMDB's one write lock."""
        more = True
        while more:
            with self.env.begin() as txn, txn.cursor(self.queue) as cursor:
                left = DELETE_RECORDS
                more = cursor.first()
                while more and left and int.from_bytes(cursor.key(), "big") <= last:
                    more = cursor.delete()
                    left -= 1
                more = more and not left

    def used_bytes(self) -> int:
        """What waiting records occupy now."""
        return self.env.used_bytes(self.queue)

    def depth(self) -> int:
        """How many records wait."""
        with self.env.read() as txn:
            return int(txn.stat(self.queue)["entries"])

    def close(self) -> None:
        """Let go of it, also where the disk takes no more: what it has not taken yet is in the kernel's hands."""
        with contextlib.suppress(lmdb.Error):
            self.env.close()


def decode(record: bytes) -> Captured:
    """The record that `put` made. Errors: Unreadable."""
    if record[:1] != VERSION:
        raise Unreadable(f"a record of version {record[:1].hex()}; this Arbiter reads version {VERSION.hex()}")
    try:
        return _decode(memoryview(record)[1:])
    except (msgspec.DecodeError, ValueError) as error:
        raise Unreadable(str(error)) from error
