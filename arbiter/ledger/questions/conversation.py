"""The conversation that an answer of Responses ended, as far as it was captured: so that another request can go on from
it where its provider keeps none (SPEC 6.3)."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from arbiter.clock import now_ms
from arbiter.ledger.blocks import LEFT_OUT, MAX_BLOCKS, UseRow
from arbiter.ledger.database import Database
from arbiter.ledger.questions.content import texts_of
from arbiter.ledger.tables import USES

PATH = "/workers/conversations/"
"""Where control answers it to workers, by trace id; `Kept` as JSON."""
MAX_BYTES = 16 << 20  # of its items: a conversation of a million tokens has some four

LATE_MS = 30_000
"""How much later than its answer a conversation may be stored: what is captured waits for its turn."""

_KINDS = "kind IN ('message', 'answer')"
_ATTACHED = (b'{"attachment":{"media_type":', b'{"attachment":{"name":')
_WITHHELD = b'"type":"withheld"'
_OURS = ("id", "status")  # of the items of an answer: no provider knows them


class Kept(msgspec.Struct, frozen=True):
    """The `items` of a conversation, the answer's last; or `why` there are none.

    `is_late`: they may be there in a moment, since what was captured is stored behind the answer.
    """

    items: list[Raw] = []
    why: str | None = None
    is_late: bool = False


def conversation(database: Database, trace_id: str) -> Kept:
    """What was asked under this trace id, and what was answered."""
    found = database.rows(
        "SELECT id, outcome, finished_ms FROM requests WHERE trace_id = ? AND endpoint = 'responses'", (trace_id,)
    )
    if not found:
        return Kept(why="it is not recorded", is_late=True)
    request_id, outcome, finished_ms = str(found[0][0]), found[0][1], int(found[0][2] or 0)
    if outcome != "ok":
        return Kept(why="it did not end well")
    asked = database.rows(
        "SELECT COALESCE(SUM(b.size), 0), COUNT(*) FROM request_blocks u JOIN blocks b ON b.id = u.block"
        f" WHERE u.request_id = ? AND u.{_KINDS}",
        (request_id,),
    )
    size, count = (int(number) for number in asked[0])
    if size > MAX_BYTES or count >= MAX_BLOCKS:
        return Kept(why="the conversation is too long to be put together again")
    sql = f"{USES.select} WHERE request_id = ? AND {_KINDS} ORDER BY direction, position"
    uses = [USES.load(UseRow, values) for values in database.rows(sql, (request_id,))]
    if not uses or uses[-1].kind != "answer":
        return Kept(why="it was not captured, or its time is over", is_late=now_ms() - finished_ms < LATE_MS)
    return _put_together(uses, texts_of(database, list(dict.fromkeys(use.block for use in uses))))


def _put_together(uses: list[UseRow], texts: dict[str, bytes]) -> Kept:
    items: list[Raw] = []
    for use in uses:
        text = texts.get(use.block)
        if text is None:
            return Kept(why="some of the conversation is no longer kept")
        if LEFT_OUT in (use.marks or {}) or _WITHHELD in text:
            return Kept(why="not all of the conversation was kept")
        if any(begins in text for begins in _ATTACHED):
            return Kept(why="it holds attachments, and of those only their identity is kept")
        if use.kind == "answer":
            items += _answered(msgspec.json.decode(text))
        elif text[:1] == b'"':
            items.append(Raw(b'{"role":"user","content":%b}' % text))
        else:
            items.append(Raw(text))
    return Kept(items)


def _answered(said: Any) -> list[Raw]:
    """The items of an answer, as those of an input."""
    found = said if isinstance(said, list) else [said]
    return [
        Raw(msgspec.json.encode({name: value for name, value in item.items() if name not in _OURS}))
        for item in found
        if isinstance(item, dict)
    ]
