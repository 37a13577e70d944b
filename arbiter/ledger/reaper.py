"""Completes what processes that died have left open in the journal, as `interrupted`.

Attempts that ran, and requests that waited between two of them: their rows are written in one transaction with the
removal of their open records, or the word that these are complete, and take everybody's way from there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import NamedTuple

import lmdb
import msgspec

from arbiter.ledger import records, slots
from arbiter.ledger.journal import COMPLETED, JournalFile
from arbiter.ledger.records import OpenRecord
from arbiter.ledger.row import AttemptRow, RequestRow
from arbiter.ledger.seldom import Seldom
from arbiter.log import Log
from arbiter.state import process

ROWS_AT_ONCE = 64  # in a transaction: workers wait for LMDB's one write lock
INTERRUPTED = "the gateway's process ended before this did"

log = logging.getLogger("arbiter.ledger")
_closed_to_us = Seldom(Log("arbiter.ledger"), "a dead worker's file of open records cannot be read; it stays")


class Reaped(NamedTuple):
    """What there was to complete. `lost`: open records that nobody can read, which are gone now."""

    attempts: int
    lost: int


class _Left(NamedTuple):
    """One open record, under its key in LMDB, or under its number in the slots of a worker."""

    key: bytes
    number: int
    worker: str
    record: OpenRecord


def reap(file: JournalFile) -> Reaped:
    """Complete the open records of dead processes, and forget those processes.

    Errors: lmdb.Error; what was not completed yet is completed the next time.
    """
    with file.env.read() as txn:
        dead = [key for key, identity in workers(file, txn) if not process.is_alive(identity)]
    # Before the look at who lives: whoever has a file signed on before.
    files = slots.files(file.place)
    # Looked at only now: what they wrote last, a moment before they died, is to be seen.
    with file.env.read() as txn:
        alive = {key.decode() for key, _ in workers(file, txn) if key not in dead}
        left, unreadable = _left_open(file, txn, alive)
        lost = len(unreadable)
        gone = files.keys() - alive
        for worker in files.keys() - alive:
            try:
                found = slots.left(files[worker])
            except OSError as error:
                _closed_to_us.error(error)
                gone.discard(worker)
                continue
            placed, broken = _left_in_slots(found, file.completed(txn, worker), worker)
            left += placed
            lost += broken
    requests: dict[str, RequestRow] = {}
    for _, _, _, record in left:
        known = requests.get(record.request.id)
        if known is None or record.request.attempts > known.attempts:
            requests[record.request.id] = record.request
        if record.attempt is not None:
            newest = requests[record.request.id]
            newest.attempts = max(newest.attempts, record.attempt.number)
    attempts = 0
    for batch in _batches(left):
        attempts += _interrupt(file, batch, requests)
    gone = {worker for worker in gone if slots.remove(files[worker])}
    if dead or unreadable or gone:
        with file.writing() as txn:
            for key in {*dead, *(worker.encode() for worker in gone)}:
                txn.delete(key, db=file.workers)
                # As long as the file is there, this says what of it is complete.
                if (worker := key.decode()) in gone or worker not in files:
                    txn.delete(COMPLETED + key, db=file.meta)
            for key in unreadable:
                txn.delete(key, db=file.open)
    if attempts:
        log.warning("%d attempts of a process that died are recorded as interrupted", attempts)
    return Reaped(attempts, lost)


def workers(file: JournalFile, txn: lmdb.Transaction[bytes]) -> list[tuple[bytes, process.Identity]]:
    """Who writes to the journal, by key. One that cannot be read is of nobody alive."""
    found = []
    with txn.cursor(file.workers) as cursor:
        for key, value in cursor:
            try:
                found.append((bytes(key), msgspec.msgpack.decode(value, type=process.Identity)))
            except (msgspec.DecodeError, ValueError):
                found.append((bytes(key), process.Identity(0, -1, "")))
    return found


def _left_open(file: JournalFile, txn: lmdb.Transaction[bytes], alive: set[str]) -> tuple[list[_Left], list[bytes]]:
    """The records of those who are not alive, and the keys of what is no record."""
    left: list[_Left] = []
    unreadable: list[bytes] = []
    with txn.cursor(file.open) as cursor:
        for key, value in cursor:
            try:
                if (worker := records.opener(value)) not in alive:
                    left.append(_Left(bytes(key), 0, worker, records.decode_open(value)))
            except records.Unreadable as error:
                log.error("open record %s is lost: %s", bytes(key).decode("utf-8", "replace"), error)
                unreadable.append(bytes(key))
    return left, unreadable


def _left_in_slots(found: dict[int, bytes], completed: set[int], worker: str) -> tuple[list[_Left], int]:
    """The records that were still open, in their order, and how many are none."""
    left, lost = [], 0
    for number in sorted(found.keys() - completed):
        try:
            left.append(_Left(b"", number, worker, records.decode_open(found[number])))
        except records.Unreadable as error:
            log.error("open record %d of %s is lost: %s", number, worker, error)
            lost += 1
    return left, lost


def _batches(left: list[_Left]) -> Iterable[list[_Left]]:
    """A few for each transaction. Those of one request stay together: it has one row, also if we die between two."""
    left.sort(key=lambda one: one.record.request.id)
    start = 0
    while start < len(left):
        end = start + ROWS_AT_ONCE
        while end < len(left) and left[end].record.request.id == left[end - 1].record.request.id:
            end += 1
        yield left[start:end]
        start = end


def _complete(file: JournalFile, txn: lmdb.Transaction[bytes], left: Iterable[_Left]) -> None:
    """Say of records in slots that they are no longer open."""
    numbers: dict[str, set[int]] = {}
    for one in left:
        if one.number:
            numbers.setdefault(one.worker, set()).add(one.number)
    for worker, more in numbers.items():
        known = b"".join([number.to_bytes(8, "little") for number in file.completed(txn, worker) | more])
        txn.put(COMPLETED + worker.encode(), known, db=file.meta)


def _interrupt(file: JournalFile, left: list[_Left], requests: dict[str, RequestRow]) -> int:
    encoded: list[bytes] = []
    attempts = 0
    with file.writing() as txn:
        _complete(file, txn, left)
        for key, number, _, record in left:
            if not number and not txn.delete(key, db=file.open):
                continue
            if record.attempt is not None:
                attempts += 1
                encoded.append(records.encode_row(_interrupted(record.attempt)))
            request = requests.pop(record.request.id, None)
            if request is not None:
                encoded.append(records.encode_row(_interrupted(request)))
        file.append(txn, encoded)
    return attempts


def _interrupted(row: AttemptRow | RequestRow) -> AttemptRow | RequestRow:
    """The row of something whose process died: what was known when it began, and that nobody knows the rest."""
    row.outcome = "interrupted"
    row.message = INTERRUPTED
    row.status = row.finished_ms = row.total_us = None
    return row
