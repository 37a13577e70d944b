"""Places where a ledger can be: an SQLite file, a database of a PostgreSQL server.

store = place.open(readonly=True)           # arbiter.ledger.opening.open_store
place.sql("UPDATE requests SET ...")        # somebody else, with their own connection
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg

from arbiter.ledger.opening import open_store
from arbiter.ledger.sqlstore import SqlStore
from arbiter.ledger.store import StoreDown

from .postgres import Postgres


class Place:
    """See the module's docstring. `kind` is the dialect's name."""

    kind: str

    def __init__(self, url: str) -> None:
        self.url = url

    def open(self, **more: Any) -> SqlStore:
        return open_store(self.url, **more)

    def sql(self, statement: str) -> list[Any]:
        raise NotImplementedError

    def is_made(self) -> bool:
        """Whether there is a ledger in it."""
        try:
            self.open(readonly=True).close()
        except StoreDown:
            return False
        return True

    def held(self) -> AbstractContextManager[None]:
        """Somebody else has the tables to themselves: they can be read, and not written."""
        raise NotImplementedError

    def close(self) -> None:
        """It is needed no longer."""


class SqlitePlace(Place):
    kind = "sqlite"

    def __init__(self, path: Path) -> None:
        super().__init__(f"sqlite:///{path}")
        self.path = path

    def sql(self, statement: str) -> list[Any]:
        with closing(sqlite3.connect(self.path, isolation_level=None, timeout=10)) as db:
            return db.execute(statement).fetchall()

    @contextmanager
    def held(self) -> Iterator[None]:
        with closing(sqlite3.connect(self.path, isolation_level=None, timeout=10)) as db:
            db.execute("BEGIN EXCLUSIVE")
            yield
            db.execute("ROLLBACK")


class PostgresPlace(Place):
    kind = "postgresql"

    def __init__(self, server: Postgres, options: str = "") -> None:
        super().__init__(server.database(options))
        self.server = server
        self._leave = server.drop if options else server.take_back

    def sql(self, statement: str) -> list[Any]:
        return self.server.run(self.url.rpartition("/")[2], statement)

    @contextmanager
    def held(self) -> Iterator[None]:
        with psycopg.connect(self.url) as db:
            for (table,) in db.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall():
                db.execute(f"LOCK TABLE {table} IN EXCLUSIVE MODE".encode())
            yield

    def close(self) -> None:
        self._leave(self.url)
