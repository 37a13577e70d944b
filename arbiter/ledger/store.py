"""Where rows end up: what every store can do, and how it fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from arbiter.ledger.query import Entry, Filters, Page
from arbiter.ledger.records import Row


class StoreDown(Exception):
    """The store cannot do this now: down, locked, full, not ours. The message says what the driver said."""


class StoreMissing(StoreDown):
    """There is no store yet where one was to be read."""


class Position(msgspec.Struct, frozen=True):
    """How far a journal has been stored: up to and including this sequence number."""

    journal: str
    sequence: int


class Counts(msgspec.Struct, frozen=True):
    """How many rows there are."""

    requests: int
    attempts: int


class Store(Protocol):
    """Rows, kept for good. Every method may block, and raises StoreDown when it cannot do its work."""

    def write(self, batch: Sequence[Row], position: Position) -> None:
        """Store the rows and the position in one transaction. A row whose id is known already changes nothing."""

    def position(self, journal: str) -> int:
        """The last sequence number of that journal in the store; 0 for a journal never seen."""

    def requests(self, filters: Filters) -> Page:
        """One page of requests, newest first, with their attempts."""

    def request(self, request_id: str) -> Entry | None:
        """One request with its attempts."""

    def counts(self) -> Counts:
        """How many rows there are."""

    def close(self) -> None:
        """Let go of the connection; idempotent."""
