"""A store by its URL: `sqlite:///FILE` or `postgresql://…`."""

from __future__ import annotations

from pathlib import Path

from arbiter.ledger.sqlstore import SqlStore
from arbiter.ledger.store import QUERY_S

BUSY_S = 5.0


def open_store(url: str, *, readonly: bool = False, busy_s: float = BUSY_S, query_s: float = QUERY_S) -> SqlStore:
    """The store at `url`, as `storage.url` spells it once the configuration is read; one that may write is migrated.

    `busy_s`: how long somebody else's lock is waited for; `query_s`: how long a question may take.
    Errors: StoreDown, StoreMissing.
    """
    # Whoever has one kind of store does not load the driver of the other.
    if url.startswith("postgresql://"):
        from arbiter.ledger.postgres import PostgresStore

        return PostgresStore(url, readonly=readonly, busy_s=busy_s, query_s=query_s)
    from arbiter.ledger.sqlite import SqliteStore

    path = Path(url.removeprefix("sqlite:///"))
    return SqliteStore(path, readonly=readonly, busy_s=busy_s, query_s=query_s)
