"""The way of rows into columns: what is bound, and what is not worth binding."""

from __future__ import annotations

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
