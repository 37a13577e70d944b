"""The open records of one worker: a file in its memory, with a slot for each attempt under way.

Theory of operation. An attempt is written down before it is sent, so that has to cost little: a slot takes two copies
into a mapping, and the kernel has them whatever becomes of the process. A slot begins with the number of its record,
which is written last, so that half a record is none; a free one begins with zero. No number comes twice.

A slot is free again after the transaction that wrote the completed row, which also says which numbers it completed
(`Journal`). Of a process that was killed between the two, whoever completes what it left (`reaper`) so knows what was
complete. One list of them is enough: the next transaction begins once the slots of the last one are free.

The file has its room on the disk from the beginning, and before it grows: a mapping without is a process killed. It
never shrinks; once nothing is open in one that has grown, another takes its place.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
from pathlib import Path

SLOT_BYTES = 2048
FIRST_SLOTS = 256
MOST_SLOTS = 1 << 16
MOST_BYTES = SLOT_BYTES - 12
"""Of a record; a longer one has no place here. Few have half of it."""

_PREFIX = "open-"
_MAGIC = b"arbiter1"
_FREE = bytes(8)
_is_name = re.compile(rf"{_PREFIX}[\w-]+", re.ASCII).fullmatch


class Slots:
    """One worker's. A position stands for a slot that is in use; `last` is the highest number there was.

    `above`: the number that the new ones come behind. Errors: OSError where there is no room for the file.
    """

    def __init__(self, directory: Path, worker: str, above: int = 0) -> None:
        self.path = _path(directory, worker)
        self.descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            size = max(os.fstat(self.descriptor).st_size, SLOT_BYTES * (1 + FIRST_SLOTS))
            os.posix_fallocate(self.descriptor, 0, size)
            self._map = mmap.mmap(self.descriptor, size)
        except BaseException:
            os.close(self.descriptor)
            raise
        self._map[: len(_MAGIC)] = _MAGIC
        # What an earlier one of this very process left open stays so.
        used = {position: number for position, number, _ in _read(self._map)}
        self.last = max(above, *used.values(), 0)
        # The last one freed is the first one used: few pages are touched.
        self._free = [at for at in range(size - SLOT_BYTES, 0, -SLOT_BYTES) if at not in used]
        self._all = size // SLOT_BYTES - 1

    @property
    def used(self) -> int:
        """How many are in use."""
        return self._all - len(self._free)

    @property
    def is_grown(self) -> bool:
        """Whether there were more at once than a file of slots begins with."""
        return self._all > FIRST_SLOTS

    def put(self, record: bytes) -> int:
        """Write down a record, and return its position; 0 where there is no place for it."""
        size = len(record)
        if size > MOST_BYTES or (not self._free and not self._grow()):
            return 0
        at = self._free.pop()
        self.last += 1
        slots = self._map
        slots[at + 8 : at + 12 + size] = size.to_bytes(4, "little") + record
        slots[at : at + 8] = self.last.to_bytes(8, "little")
        return at

    def numbers(self, positions: list[int]) -> bytes:
        """The numbers of these records, eight bytes each."""
        slots = self._map
        return b"".join([slots[at : at + 8] for at in positions])

    def free(self, positions: list[int]) -> None:
        """Their records are no longer open."""
        slots = self._map
        for at in positions:
            slots[at : at + 8] = _FREE
        self._free += positions

    def is_there(self) -> bool:
        """Whether the file is still the one that others find."""
        try:
            found, ours = os.stat(self.path), os.fstat(self.descriptor)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino)

    def close(self) -> None:
        """Let go of the file; where nothing is open in it, it goes."""
        if not self.used and self.is_there():
            remove(self.path)
        self._map.close()
        os.close(self.descriptor)

    def _grow(self) -> bool:
        if self._all >= MOST_SLOTS:
            return False
        size = len(self._map)
        try:
            os.posix_fallocate(self.descriptor, size, size)
            self._map.resize(2 * size)
        except (OSError, SystemError):
            return False
        self._free = list(range(2 * size - SLOT_BYTES, size - SLOT_BYTES, -SLOT_BYTES))
        self._all = 2 * size // SLOT_BYTES - 1
        return True


def _path(directory: Path, worker: str) -> Path:
    return directory / f"{_PREFIX}{worker}"


def files(directory: Path) -> dict[str, Path]:
    """The files of all workers, by their keys. What else lies there is none of them."""
    found = [path for path in directory.glob(f"{_PREFIX}*") if _is_name(path.name) and path.is_file()]
    return {path.name.removeprefix(_PREFIX): path for path in found}


def left(path: Path) -> dict[int, bytes]:
    """The records in a file, by number; none where it is gone. Errors: OSError where it cannot be read."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    return {number: record for _, number, record in _read(data)}


def remove(path: Path) -> bool:
    """Remove a file that nothing is open in any more. Returns whether it is gone."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
        return True
    return False


def _read(data: bytes | mmap.mmap) -> list[tuple[int, int, bytes]]:
    found = []
    for at in range(SLOT_BYTES, len(data), SLOT_BYTES):
        number = int.from_bytes(data[at : at + 8], "little")
        if number:
            size = int.from_bytes(data[at + 8 : at + 12], "little")
            found.append((at, number, data[at + 12 : at + 12 + size]))
    return found
