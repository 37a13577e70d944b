"""The way of rows into columns: what is bound, and what is not worth binding."""

from __future__ import annotations

import pytest

from arbiter.ledger import grouped
from arbiter.ledger.query import Filters
from arbiter.ledger.store import Position, StoreRefused
from arbiter.ledger.tables import ATTEMPTS, REQUESTS
from tests.fakes.rows import attempt_row, request_row


def test_columns_that_no_row_fills_are_not_bound(place):
    """A NULL costs a driver more than a number. One row that fills a column is enough, and the others lack it."""
    request = request_row()
    plain, rare = attempt_row(request, 1), attempt_row(request, 2, audio_input_tokens=7, rate_limits={"a": "ü"})
    assert "audio_input_tokens" not in ATTEMPTS.inserts([plain]).sql
    mixed = ATTEMPTS.inserts([plain, rare])
    assert "audio_input_tokens" in mixed.sql and "audio_output_tokens" not in mixed.sql
    assert len(mixed.rows[0]) == mixed.sql.count("?") < len(ATTEMPTS.columns)
    store = place.open()
    with store.database.transaction():
        store.database.run_many(REQUESTS.inserts([request]))
        store.database.run_many(mixed)
        store.database.run_many(ATTEMPTS.inserts([]))
    entry = store.request(request.id)
    assert entry is not None and entry.attempts == [plain, rare]
    store.close()


def test_an_upsert_takes_away_what_is_no_longer_there(place):
    """All columns are named then: what the row has no value for must not stay as it was."""
    request = request_row()
    store = place.open()
    with store.database.transaction():
        store.database.run_many(REQUESTS.upserts([request]))
        store.database.run_many(REQUESTS.upserts([request_row(client=None, follows_compaction=True)]))
    entry = store.request(request.id)
    assert entry is not None and entry.request == request_row(client=None, follows_compaction=True)
    store.close()


@pytest.mark.parametrize("count", [grouped.LEAST_ROWS, grouped.LEAST_ROWS + 7])
def test_many_rows_are_stored_as_few_are(place, count):
    """Whatever their columns have in common, a whole number of groups or not: each row is there, as it was."""
    rows = [request_row(n, client=None if n % 3 else "ü") for n in range(count)]
    rows[-1].message = "x"
    tries = [attempt_row(row, tool_names=["a"], pricing_available=row.client is None) for row in rows]
    store = place.open()
    store.write([*tries, *rows], Position("j", 1))
    entries = store.requests(Filters(limit=count)).entries
    assert [(entry.request, entry.attempts) for entry in reversed(entries)] == [
        (row, [tried]) for row, tried in zip(rows, tries, strict=True)
    ]
    store.close()


def test_of_many_rows_those_that_are_known_change_nothing(place):
    """Known to the store, or from the same batch: the first of an id stands. How many are new is told."""
    count = grouped.LEAST_ROWS
    store = place.open()
    store.write([request_row(7, client="before")], Position("j", 1))
    rows = [request_row(n) for n in range(count)]
    with store.database.transaction():
        again = [*rows, *(request_row(n, client="twice") for n in range(count))]
        assert store.database.run_many(REQUESTS.inserts(again)) == count - 1
        assert store.database.run_many(REQUESTS.inserts([rows[0]] * count)) == 0
    clients = {entry.request.id: entry.request.client for entry in store.requests(Filters(limit=count)).entries}
    assert clients == {row.id: row.client for row in rows} | {request_row(7).id: "before"}
    store.close()


def test_of_many_rows_one_that_is_refused_takes_all_with_it(place):
    """The transaction undoes those before it, also within one statement."""
    rows = [request_row(n) for n in range(grouped.LEAST_ROWS)]
    rows[-2].trace_id = None
    store = place.open()
    with pytest.raises(StoreRefused):
        store.write(rows, Position("j", 1))
    assert (store.counts().requests, store.position("j")) == (0, 0)
    store.close()


def test_what_many_rows_have_in_common_is_bound_once():
    """Of ten rows to a statement the first is bound as a whole, and of the others what varies."""
    rows = [request_row(n) for n in range(grouped.LEAST_ROWS)]
    whole = REQUESTS.inserts(rows)
    (one,) = grouped.statements(whole)
    names = whole.into[1]
    varying = [name for name in names if len({getattr(row, name) for row in rows}) > 1]
    assert len(one.rows) == grouped.LEAST_ROWS // grouped.AT_ONCE
    assert {len(values) for values in one.rows} == {len(names) + (grouped.AT_ONCE - 1) * len(varying)}
    few = REQUESTS.inserts(rows[1:])
    assert grouped.statements(few) == (few,)
