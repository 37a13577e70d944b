"""Requests for a title that name no session belong to the conversation that they named (SPEC 8.3).

Agents ask for a title beside the first turn of a conversation, mostly before it. Where both tell the same session
there is nothing to find out. Else they are known by the text that they share: the user's first. A title's row that
comes first waits without a session until the conversation's comes; one whose conversation never comes has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from arbiter.ledger.blocks_answer import message_of
from arbiter.ledger.blocks_text import said
from arbiter.ledger.database import Database, Statement
from arbiter.ledger.row import RequestRow
from arbiter.ledger.tables import REQUESTS

TITLE: Final = "title"
REACH_MS: Final = 600_000
"""A conversation that began longer ago, or later, only begins alike."""

MOST_WAITING: Final = 500
"""Of one batch. Whoever asks for more titles of nothing than that gets the latest of them adopted."""


class _Named(NamedTuple):
    session: str
    received_ms: int


def waits(row: RequestRow) -> bool:
    """Whether this is a title of a conversation that is still to be found."""
    return row.request_kind == TITLE and row.session is None and row.opener is not None


def concerns(rows: Iterable[RequestRow]) -> bool:
    """Whether `adopt` has anything to do for these."""
    return any(waits(row) or _begins(row) for row in rows)


def adopt(db: Database, rows: Sequence[RequestRow]) -> list[RequestRow]:
    """Give their session to the titles among `rows`, and to those in the store that waited for one of `rows`.

    Returns them as they are from now on. Within the transaction that stored `rows`: two gateways that have a title and
    its conversation between them, or two conversations for one title, take turns, and so each title has one.
    """
    waiting = [row for row in rows if waits(row)]
    begun = [row for row in rows if _begins(row)]
    for client, opener in sorted({(row.client or "", row.opener or "") for row in (*waiting, *begun)}):
        db.alone(f"titles of {client} {opener}")
    found = [(row, _nearest(row, _here(row, begun) or _conversations(db, row))) for row in waiting]
    own = {row.id for row in waiting}
    found += [(row, _nearest(row, _here(row, begun))) for row in _waiting(db, begun) if row.id not in own]
    adopted = [msgspec.structs.replace(row, session=session) for row, session in found if session is not None]
    pairs = [(row.session, row.id) for row in adopted]
    if pairs:
        db.run_many(Statement("UPDATE requests SET session = ? WHERE id = ? AND session IS NULL", pairs))
        db.run_many(Statement("UPDATE attempts SET session = ? WHERE request_id = ? AND session IS NULL", pairs))
    return adopted


def text_of(format: str, pieces: Sequence[bytes], *, is_stream: bool, limit: int) -> str | None:
    """What the answer to a request for a title says; None where it says nothing. Shapes: as `message_of` has them."""
    message = message_of(format, pieces, is_stream=is_stream, limit=limit)
    if message is None:
        return None
    return (
        "\n".join(one.text for one in said("answer", msgspec.json.decode(message)) if one.label == "assistant") or None
    )


def _begins(row: RequestRow) -> bool:
    """Whether it begins a conversation that a title may be of."""
    return row.opener is not None and row.session is not None and row.request_kind != TITLE


def _nearest(title: RequestRow, found: Sequence[_Named]) -> str | None:
    """The session of the conversation that began the nearest to it."""
    nearest = min(found, key=lambda one: abs(one.received_ms - title.received_ms), default=None)
    return nearest.session if nearest is not None else None


def _here(title: RequestRow, begun: Iterable[RequestRow]) -> list[_Named]:
    """The conversations among `begun` that it may be the title of."""
    return [
        _Named(one.session or "", one.received_ms)
        for one in begun
        if (one.client, one.opener) == (title.client, title.opener)
        and abs(one.received_ms - title.received_ms) <= REACH_MS
    ]


def _conversations(db: Database, title: RequestRow) -> list[_Named]:
    """The conversations in the store that this may be the title of."""
    same, client = ("client IS NULL", ()) if title.client is None else ("client = ?", (title.client,))
    sql = (
        f"SELECT session, received_ms FROM requests WHERE opener = ? AND {same} AND session IS NOT NULL"
        " AND COALESCE(request_kind, '') <> ? AND received_ms BETWEEN ? AND ?"
    )
    reach = (title.received_ms - REACH_MS, title.received_ms + REACH_MS)
    return [_Named(*found) for found in db.rows(sql, (title.opener, *client, TITLE, *reach))]


def _waiting(db: Database, begun: Sequence[RequestRow]) -> list[RequestRow]:
    """The titles in the store that wait for one of these; not more of them than MOST_WAITING."""
    if not begun:
        return []
    openers = sorted({row.opener for row in begun if row.opener})
    received = [row.received_ms for row in begun]
    marks = ", ".join("?" * len(openers))
    sql = (
        f"{REQUESTS.select} WHERE opener IN ({marks}) AND received_ms BETWEEN ? AND ? AND session IS NULL"
        " AND request_kind = ? ORDER BY received_ms DESC LIMIT ?"
    )
    reach = (min(received) - REACH_MS, max(received) + REACH_MS)
    return [REQUESTS.load(RequestRow, values) for values in db.rows(sql, (*openers, *reach, TITLE, MOST_WAITING))]
