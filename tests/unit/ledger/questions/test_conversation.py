"""The conversation that an answer ended, put together from what was captured, over every kind of store."""

from __future__ import annotations

import json
from typing import Any

import pytest
import zstandard

from arbiter.ledger.blocks import LEFT_OUT, BlockRow, UseRow
from arbiter.ledger.questions import conversation as asked
from arbiter.ledger.questions.conversation import Kept, conversation
from arbiter.ledger.sqlstore import SqlStore
from arbiter.ledger.store import Position
from arbiter.ledger.tables import BLOCKS, USES
from tests.fakes.rows import request_row

TRACE = f"{1:032x}"
SAID = {"id": "msg_T_0", "type": "message", "status": "completed", "role": "assistant", "content": []}
Blocks = list[tuple[str, str, Any, dict[str, Any] | None]]
WHOLE: Blocks = [
    ("in", "tools", [], None),
    ("in", "message", "hello", None),
    ("in", "message", {"role": "user", "content": "and"}, None),
    ("in", "parameters", {"model": "m"}, None),
    ("out", "answer", [{"id": "rs_T_0", "type": "reasoning", "summary": []}, SAID], None),
]


def kept(store: SqlStore, blocks: Blocks, *, gone: int | None = None, **fields: Any) -> Kept:
    """What is found of a request with these blocks, of which number `gone` was swept."""
    row = request_row(1, **{"endpoint": "responses", **fields})
    store.write([row], Position("j", 1))
    uses, texts = [], []
    for position, (direction, kind, value, marks) in enumerate(blocks):
        text = json.dumps(value, separators=(",", ":")).encode()
        name = f"{position:064x}"
        made = {"size": len(text), "text": zstandard.compress(text), "created_ms": 1, "last_used_ms": 1}
        texts += [BlockRow(id=name, kind=kind, **made)] if position != gone else []
        where = {"request_id": row.id, "direction": direction, "position": position, "at_ms": 1}
        uses.append(UseRow(id=f"{row.id}-{position}", kind=kind, block=name, marks=marks, **where))
    for statement in (BLOCKS.inserts(texts), USES.inserts(uses)) if blocks else ():
        store.change(lambda database, statement=statement: database.run_many(statement))
    return store.read(lambda database: conversation(database, TRACE))


def test_it_is_what_was_asked_and_then_what_was_answered(store: SqlStore) -> None:
    """Tools and parameters are another request's own; an item of ours is known to nobody by its id."""
    found = kept(store, WHOLE)
    assert found.why is None
    assert [json.loads(bytes(item)) for item in found.items] == [
        {"role": "user", "content": "hello"},
        {"role": "user", "content": "and"},
        {"type": "reasoning", "summary": []},
        {"type": "message", "role": "assistant", "content": []},
    ]


@pytest.mark.parametrize(
    ("blocks", "fields", "why"),
    [
        ([*WHOLE[:-1], ("out", "answer", SAID, {LEFT_OUT: 7})], {}, "not all"),
        ([*WHOLE[:-1], ("out", "answer", {"type": "withheld", "was": "answer"}, None)], {}, "not all"),
        (
            [("in", "message", {"url": {"attachment": {"media_type": "image/png"}}}, None), WHOLE[-1]],
            {},
            "attach",
        ),
        ([("in", "message", {"file": {"attachment": {"name": "a.pdf"}}}, None), WHOLE[-1]], {}, "attach"),
        (WHOLE[:-1], {}, "captured"),
        ([], {}, "captured"),
        (WHOLE, {"outcome": "error"}, "end well"),
        (WHOLE, {"endpoint": "chat"}, "recorded"),
    ],
    ids=["left out", "withheld", "picture", "file", "no answer", "nothing", "failed", "another endpoint"],
)
def test_half_of_it_is_none(store: SqlStore, blocks: Blocks, fields: dict[str, Any], why: str) -> None:
    found = kept(store, blocks, **fields)
    assert found.items == [] and found.why is not None and why in found.why


def test_what_was_swept_or_is_too_long_is_none(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    found = kept(store, WHOLE, gone=1)
    assert found.why == "some of the conversation is no longer kept"
    monkeypatch.setattr(asked, "MAX_BYTES", 10)
    assert "too long" in (store.read(lambda database: conversation(database, TRACE)).why or "")
    monkeypatch.setattr(asked, "MAX_BYTES", 1 << 20)
    monkeypatch.setattr(asked, "MAX_BLOCKS", 2)
    assert "too long" in (store.read(lambda database: conversation(database, TRACE)).why or "")


def test_only_what_may_still_come_is_late(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is captured is stored behind its answer; of an old one nothing comes any more."""
    assert store.read(lambda database: conversation(database, TRACE)).is_late
    monkeypatch.setattr(asked, "now_ms", lambda: 10_000)
    assert kept(store, [], finished_ms=9_000).is_late
    monkeypatch.setattr(asked, "now_ms", lambda: 100_000)
    assert not store.read(lambda database: conversation(database, TRACE)).is_late
