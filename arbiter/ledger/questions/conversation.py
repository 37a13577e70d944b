"""What was captured of answers of Responses and of the conversations that they ended: so that another request can go on
from them, or refer to their items, where no provider keeps any (SPEC 6.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw

from arbiter.clock import now_ms
from arbiter.ledger.blocks import LEFT_OUT, MAX_BLOCKS, UseRow
from arbiter.ledger.database import Database
from arbiter.ledger.questions.content import texts_of
from arbiter.ledger.tables import USES

PATH = "/workers/conversations/"
"""Where control answers `conversation` to workers, by trace id; `Kept` as JSON."""
ANSWERS_PATH = "/workers/answers/"
"""Where it answers `answers`, by trace ids with commas between them; `Kept` as JSON."""
MAX_BYTES = 16 << 20  # of its items: a conversation of a million tokens has some four

LATE_MS = 30_000
"""How much later than its answer a conversation may be stored: what is captured waits for its turn."""

_ATTACHED = (b'{"attachment":{"media_type":', b'{"attachment":{"name":')
_WITHHELD = b'"type":"withheld"'
_OURS = ("id", "status")  # of the items of an answer: no provider knows them


class Kept(msgspec.Struct, frozen=True):
    """The `items` of a conversation, the answer's last; or `why` there are none. Those of answers alone have `ids`.

    `is_late`: they may be there in a moment, since what was captured is stored behind the answer.
    """

    items: list[Raw] = []
    ids: list[str] = []
    why: str | None = None
    is_late: bool = False


def conversation(database: Database, trace_id: str) -> Kept:
    """What was asked under this trace id, and what was answered."""
    return _kept(database, [trace_id], ("message", "answer"))


def answers(database: Database, trace_ids: Sequence[str]) -> Kept:
    """What was answered under these trace ids: every item with its id."""
    return _kept(database, trace_ids, ("answer",))


def _kept(database: Database, trace_ids: Sequence[str], kinds: Sequence[str]) -> Kept:
    places = ", ".join("?" * len(trace_ids))
    found = database.rows(
        f"SELECT id, outcome, finished_ms FROM requests WHERE trace_id IN ({places}) AND endpoint = 'responses'",
        tuple(trace_ids),
    )
    if len(found) < len(trace_ids):
        return Kept(why="it is not recorded", is_late=True)
    if any(outcome != "ok" for _, outcome, _ in found):
        return Kept(why="it did not end well")
    requests = tuple(str(row[0]) for row in found)
    kind = " OR ".join(f"u.kind = '{kind}'" for kind in kinds)
    of_them = f"u.request_id IN ({', '.join('?' * len(requests))}) AND ({kind})"
    asked = database.rows(
        "SELECT COALESCE(SUM(b.size), 0), COUNT(*) FROM request_blocks u JOIN blocks b ON b.id = u.block"
        f" WHERE {of_them}",
        requests,
    )
    size, count = (int(number) for number in asked[0])
    if size > MAX_BYTES or count >= MAX_BLOCKS:
        return Kept(why="the conversation is too long to be put together again")
    sql = f"{USES.select} u WHERE {of_them} ORDER BY request_id, direction, position"
    uses = [USES.load(UseRow, values) for values in database.rows(sql, requests)]
    if len({use.request_id for use in uses if use.kind == "answer"}) < len(requests):
        latest_ms = max(int(row[2] or 0) for row in found)
        return Kept(why="it was not captured, or its time is over", is_late=now_ms() - latest_ms < LATE_MS)
    return _put_together(uses, texts_of(database, list(dict.fromkeys(use.block for use in uses))))


def _put_together(uses: list[UseRow], texts: dict[str, bytes]) -> Kept:
    items: list[Raw] = []
    ids: list[str] = []
    for use in uses:
        text = texts.get(use.block)
        if text is None:
            return Kept(why="some of the conversation is no longer kept")
        if LEFT_OUT in (use.marks or {}) or _WITHHELD in text:
            return Kept(why="not all of the conversation was kept")
        if any(begins in text for begins in _ATTACHED):
            return Kept(why="it holds attachments, and of those only their identity is kept")
        if use.kind == "answer":
            for item in _answered(msgspec.json.decode(text)):
                ids.append(str(item.get("id", "")))
                known = {name: value for name, value in item.items() if name not in _OURS}
                items.append(Raw(msgspec.json.encode(known)))
        elif text[:1] == b'"':
            items.append(Raw(b'{"role":"user","content":%b}' % text))
        else:
            items.append(Raw(text))
    return Kept(items, ids if len(ids) == len(items) else [])


def _answered(said: Any) -> list[dict[str, Any]]:
    found = said if isinstance(said, list) else [said]
    return [item for item in found if isinstance(item, dict)]
