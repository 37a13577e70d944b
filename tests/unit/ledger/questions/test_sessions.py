"""Which session a name means, in every kind of store."""

from __future__ import annotations

from arbiter.ledger.questions.sessions import Filters, listing, named
from arbiter.ledger.session_rows import SessionRow
from arbiter.ledger.sessions import key_of
from arbiter.ledger.sqlstore import SqlStore
from arbiter.ledger.store import Position
from arbiter.ledger.tables import SESSIONS
from tests.fakes.rows import attempt_row, request_row

MANY = 30  # more than are looked at


def put(store: SqlStore, *rows: SessionRow) -> None:
    store.change(lambda db: db.run_many(SESSIONS.inserts(rows)))


def row(session: str, client: str, last_ms: int | None) -> SessionRow:
    return SessionRow(
        id=key_of(client, session), session=session, client=client, first_ms=last_ms and 1, last_ms=last_ms
    )


def test_the_session_of_a_client_is_found_however_many_use_its_name(store: SqlStore) -> None:
    """Also where it is the one that was alive the longest ago, and where only its beginning is given."""
    put(store, *(row("shared-name", f"c{number}", number + 1) for number in range(MANY)))
    for name in ("shared-name", "shared-n", "c0 shared-name"):
        assert [one.client for one in store.read(lambda db, name=name: named(db, name, "c0"))] == ["c0"]
    assert store.read(lambda db: named(db, "shared-name", "nobody")) == []
    assert [one.client for one in store.read(lambda db: named(db, "shared-name"))][:2] == ["c29", "c28"]


def test_sessions_that_nobody_saw_come_last(store: SqlStore) -> None:
    """They do not fill the answer: what was alive is what is meant first, in every kind of store."""
    put(store, *(row(f"long-name-{number}", "ci", None) for number in range(MANY)), row("long-name-seen", "ci", 5))
    assert store.read(lambda db: named(db, "long-name"))[0].session == "long-name-seen"


def test_a_session_tells_how_long_its_good_attempts_took_and_how_fast_they_wrote(store: SqlStore) -> None:
    """SPEC 7.2: neither a failed attempt nor one that reported no tokens slows it down; nothing is no speed."""
    put(store, row("s", "ci", 5), row("t", "ci", 6))
    told, silent, failed = (request_row(number, session="s") for number in (1, 2, 3))
    store.write(
        [
            told,
            attempt_row(told, 1, outcome="error", total_us=9_000_000, output_tokens=4),
            attempt_row(told, 2, total_us=1_500_000, output_tokens=60),
            silent,
            attempt_row(silent, total_us=500_500, output_tokens=None),
            failed,
            attempt_row(failed, outcome="cancelled", total_us=7_000_000),
            other := request_row(4, session="t", outcome="error"),
            attempt_row(other, outcome="error", total_us=1_000_000),
        ],
        Position("j", 1),
    )
    found = {one.session.session: one.totals for one in store.read(lambda db: listing(db, Filters())).sessions}
    assert (found["s"].elapsed_ms, found["s"].tokens_per_s) == (2000, 40.0)
    assert (found["t"].elapsed_ms, found["t"].tokens_per_s) == (None, None)
