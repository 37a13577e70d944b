"""Whole tables, oldest row first, a page at a time: however many rows there are, so many are held and no more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from arbiter.ledger.database import Database
from arbiter.ledger.store import Readable
from arbiter.ledger.tables import ATTEMPTS, REQUESTS, Table

PAGE_ROWS = 1000

MOMENTS = {REQUESTS.name: (REQUESTS, "received_ms"), ATTEMPTS.name: (ATTEMPTS, "started_ms")}
"""The tables that can be had, each with the column that orders it."""

Page = list[tuple[Any, ...]]


class Span(msgspec.Struct, frozen=True):
    """From when to when, both included."""

    since_ms: int
    until_ms: int


def pages(store: Readable, name: str, span: Span) -> Iterator[Page]:
    """The rows of a table, as their columns stand in `Table.columns`. Errors: StoreDown.

    Each page is a question of its own, which goes on where the last one ended: no transaction stays open meanwhile.
    """
    table, moment = MOMENTS[name]
    place = [column.name for column in table.columns].index
    id_at, moment_at = place("id"), place(moment)
    after: tuple[int, str] = (span.since_ms, "")
    while True:
        page = store.read(lambda database: _page(database, table, moment, after, span.until_ms))  # noqa: B023
        if page:
            yield page
        if len(page) < PAGE_ROWS:
            return
        after = (page[-1][moment_at], page[-1][id_at])


def _page(database: Database, table: Table, moment: str, after: tuple[int, str], until_ms: int) -> Page:
    sql = f"{table.select} WHERE ({moment}, id) > (?, ?) AND {moment} <= ? ORDER BY {moment}, id LIMIT {PAGE_ROWS}"
    return database.rows(sql, (*after, until_ms))
