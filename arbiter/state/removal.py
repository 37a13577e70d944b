"""Removes entries of an LMDB database, however many, without anybody having to wait long for the write lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from arbiter.state import records
from arbiter.state.environment import Environment

# A long read keeps old pages alive, and a long write keeps everybody waiting.
SEARCHED = 1000
REMOVED = 64


def remove(env: Environment, database: Any, is_meant: Callable[[bytes, bytes], bool]) -> int:
    """Remove the entries that `is_meant` says, and return how many they were.

    What is searched is asked about again under the write lock: it may have been written anew in between. New entries
    behind the place that the search has come to are found too. Errors: lmdb.Error.
    """
    removed = 0
    last: bytes | None = b""
    while last is not None:
        found, last = _search(env, database, last, is_meant)
        for start in range(0, len(found), REMOVED):
            removed += _remove_batch(env, database, found[start : start + REMOVED], is_meant)
    return removed


def _search(
    env: Environment, database: Any, after: bytes, is_meant: Callable[[bytes, bytes], bool]
) -> tuple[list[bytes], bytes | None]:
    """Keys that are meant among the next entries, and the last key looked at (None: the end was reached)."""
    found: list[bytes] = []
    with env.read() as txn, txn.cursor(database) as cursor:
        searched = 0
        # The shortest key that comes behind it.
        if cursor.set_range(after + b"\0") if after else cursor.first():
            for key, raw in cursor:
                if is_meant(key, raw):
                    found.append(key)
                searched += 1
                if searched == SEARCHED:
                    return found, key
    return found, None


def _remove_batch(env: Environment, database: Any, keys: list[bytes], is_meant: Callable[[bytes, bytes], bool]) -> int:
    removed = 0
    with env.begin() as txn:
        for key in keys:
            raw = txn.get(key, db=database)
            if raw is not None and is_meant(key, raw):
                removed += txn.delete(key, db=database)
    return removed


def soonest(env: Environment, database: Any, share: float) -> int:
    """The time, in Unix milliseconds, by which about this share of the entries will have expired.

    Keys are hashes, so the first entries are as good a sample as any.
    """
    ends: list[int] = []
    with env.read() as txn, txn.cursor(database) as cursor:
        for _, raw in cursor:
            if (expires_ms := records.read_expiry(raw)) is not None:
                ends.append(expires_ms)
            if len(ends) == SEARCHED:
                break
    ends.sort()
    return ends[int(len(ends) * share)] if ends else 0
