"""Where rows end up: what every store can do, and how it fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import msgspec

from arbiter.ledger.database import Change, Database
from arbiter.ledger.query import Entry, Filters, Page
from arbiter.ledger.records import Row

T = TypeVar("T")

QUERY_S = 900.0
"""How long a question may take where nobody said less. What it sees is kept for it as it is: none may take for ever."""


class StoreDown(Exception):
    """The store cannot do this now: down, locked, full, not ours. The message says what the driver said."""


class StoreBusy(StoreDown):
    """Somebody else writes to it, and for longer than we wait."""


class StoreMissing(StoreDown):
    """There is no store yet where one was to be read."""


class StoreOld(StoreDown):
    """The store was made by an earlier version, and is to be read only: whoever writes to it brings it up to date."""


class StoreMoved(StoreDown):
    """What is open is no longer what is there. Nothing was done; opened again, the store may be well."""


class StoreRefused(StoreDown):
    """The store is well, and will never take this: the statement is wrong, or a value in it."""


class QueryTooSlow(StoreDown):
    """The question takes longer than it may; the store is well, and a narrower one is answered."""


class Position(msgspec.Struct, frozen=True):
    """How far a journal has been stored: up to and including this sequence number."""

    journal: str
    sequence: int


class Counts(msgspec.Struct, frozen=True):
    """About how many rows there are: told from the first and the last row's number, without counting."""

    requests: int
    attempts: int


class Readable(Protocol):
    """Rows that can be looked at. Every method may block, and raises StoreDown when it cannot do its work."""

    def requests(self, filters: Filters) -> Page:
        """One page of requests, newest first, with their attempts."""

    def request(self, request_id: str) -> Entry | None:
        """One request with its attempts."""

    def counts(self) -> Counts:
        """About how many rows there are, at the same small cost for any number."""

    def read(self, question: Callable[[Database], T]) -> T:
        """What `question` finds, all of it as it was at one moment, within the time that questions have."""

    def close(self) -> None:
        """Let go of the connection; idempotent."""


class Store(Readable, Protocol):
    """Rows, kept for good."""

    def write(self, batch: Sequence[Row], position: Position, also: Sequence[Change] = ()) -> None:
        """Store the rows, then what changes with them in that order, and the position, in one transaction.

        A row whose id is known already changes nothing, unless it tells how something ended that was taken for
        interrupted.
        """

    def change(self, work: Callable[[Database], T]) -> T:
        """What `work` does, in one transaction of its own."""

    def look(self) -> None:
        """Find out whether rows could be stored now, without storing any. Errors: StoreDown."""

    def position(self, journal: str) -> int:
        """The last sequence number of that journal in the store; 0 for a journal never seen."""


class Changer:
    """A store that is changed now and then, beside the recorder: opened when it is first asked, and again after it
    failed; at once where it moved. Its changes take turns."""

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._open_store = open_store
        self._store: Store | None = None
        self._lock = threading.Lock()

    def change(self, work: Callable[[Database], T]) -> T:
        """What `work` does, in one transaction of its own. Errors: StoreDown."""
        with self._lock:
            try:
                return self._opened().change(work)
            except StoreMoved:
                self._close()
                return self._opened().change(work)
            except StoreDown:
                self._close()
                raise

    def _opened(self) -> Store:
        if self._store is None:
            self._store = self._open_store()
        return self._store

    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            store.close()


class Reader:
    """A store opened when it is first asked, and again after it failed, at once where it moved: readers outlive a
    store's bad hour."""

    def __init__(self, open_store: Callable[[], Readable]) -> None:
        self._open_store = open_store
        self._store: Readable | None = None
        self._lock = threading.Lock()

    def requests(self, filters: Filters) -> Page:
        return self._ask(lambda store: store.requests(filters))

    def request(self, request_id: str) -> Entry | None:
        return self._ask(lambda store: store.request(request_id))

    def counts(self) -> Counts:
        return self._ask(lambda store: store.counts())

    def read(self, question: Callable[[Database], T]) -> T:
        return self._ask(lambda store: store.read(question))

    def close(self) -> None:
        with self._lock:
            store, self._store = self._store, None
        if store is not None:
            store.close()

    def _ask(self, question: Callable[[Readable], T]) -> T:
        try:
            return self._ask_once(question)
        except StoreMoved:
            return self._ask_once(question)

    def _ask_once(self, question: Callable[[Readable], T]) -> T:
        with self._lock:
            if self._store is None:
                self._store = self._open_store()
            store = self._store
        try:
            return question(store)
        except QueryTooSlow:
            raise
        except StoreDown:
            with self._lock:
                if self._store is store:
                    self._store = None
            store.close()
            raise
