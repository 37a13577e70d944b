"""What is kept of a call that is over, beside its row: words for a title, content for capture, a line in the log."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Raw

from arbiter.attempt.client_end import Overheard
from arbiter.call import Call
from arbiter.ledger.capture import Heard
from arbiter.ledger.row import RequestRow
from arbiter.ledger.sessions import is_turn
from arbiter.ledger.titles import text_of
from arbiter.log import Log
from arbiter.sessions import excerpt

TITLE_BYTES = 64 << 10  # of an answer that holds a title

_log = Log("arbiter.gateway")  # whose calls these are


def tell_words(call: Call) -> None:
    """What a title can be made of goes with the row as far as control, and no further."""
    row, answer = call.row, call.answer
    try:
        if answer is not None and row.outcome == "ok":
            row.titled = text_of(row.format_in, answer.pieces, is_stream=answer.is_stream, limit=TITLE_BYTES)
        elif call.members is not None and row.parent_session is None and is_turn(row):
            row.words = excerpt.of(call.members) or None
    except Exception as bug:
        _log.error("a session goes without its words", trace_id=row.trace_id, error=bug)


def heard(call: Call, overheard: Overheard) -> Heard:
    """Return what content capture may keep of the call."""
    row = call.row
    return Heard(
        row.id,
        row.received_ms,
        row.format_in,
        _kept(call),
        overheard.pieces,
        overheard.is_stream,
        call.incoming.fields,
        overheard.headers,
        row.bytes_in + overheard.held_bytes,
        overheard.left_out,
        call.secrets,
    )


def _kept(call: Call) -> Mapping[str, Raw] | None:
    """What content capture may keep of the request."""
    members = call.members
    if members is None or call.endpoint == "count_tokens":  # it repeats what is asked right behind it
        return None
    # A corpus on its way into an index is nobody's conversation.
    if call.endpoint == "embeddings":
        return {name: raw for name, raw in members.items() if name not in _EMBEDDED}
    return members


_EMBEDDED = ("input", "content", "requests", "title")
"""What is to be embedded, of OpenAI's and of Google's."""


def report(row: RequestRow) -> None:
    """Failures are news; that a request went well stands in its row, and in the log only for who debugs."""
    if row.outcome != "error" and not _log.tells_all:
        return
    say = _log.warn if row.outcome == "error" else _log.debug
    say(
        row.message or "request",
        trace_id=row.trace_id,
        endpoint=row.endpoint,
        client=row.client,
        model=row.model_asked,
        provider=row.provider,
        status=row.status,
        outcome=row.outcome,
        error_class=row.error_class,
        attempts=row.attempts,
        total_us=row.total_us,
    )
