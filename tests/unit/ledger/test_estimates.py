"""What nobody counted: estimated for the rows it is owed to, and for no other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from arbiter import clock
from arbiter.ledger import estimates
from arbiter.ledger.estimates import Estimates
from arbiter.ledger.recorder import Batch
from arbiter.ledger.row import AttemptRow
from arbiter.ledger.store import Position
from arbiter.ledger.tokenizer import Tokenizer
from tests.fakes.rows import attempt_row, request_row

TOKENIZER = Tokenizer()  # loaded once
SAMPLE = b'{"role":"user","content":"Please read the file and tell me what it is about."}'
TOOLS = [{"name": "read_file", "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}},
         {"type": "function", "function": {"name": "ls", "description": "list " * 50}},
         {"type": "web_search_20250305"}, 7]  # fmt: skip


@pytest.fixture
def stage() -> Estimates:
    return Estimates(TOKENIZER)


class Run:
    """Batches through a stage into a store, as the recorder moves them."""

    def __init__(self, stage: Estimates, store: Any) -> None:
        self.stage, self.store, self.at = stage, store, 0

    def move(self, *rows: AttemptRow, fails: bool = False) -> Batch:
        batch = Batch([], list(rows))
        self.stage.take(batch, self.store)
        if fails:
            self.stage.forget()
            return batch
        self.at += 1
        self.store.write(batch.attempts, Position("j", self.at), batch.also)
        self.stage.stored(batch)
        return batch

    def sets(self) -> list[tuple[Any, ...]]:
        return self.store.read(lambda db: db.rows("SELECT id, tools, bytes, tokens, names FROM tool_sets ORDER BY id"))


def untold(number: int = 1, **fields: Any) -> AttemptRow:
    values = {"usage_source": "missing", "input_tokens": None, "cached_tokens": None, "output_tokens": None,
              "total_tokens": None, "output_bytes": 400, "thinking_bytes": 100, "sample": SAMPLE,
              "sample_of_bytes": len(SAMPLE) * 10, "finish_reason": "stop"}  # fmt: skip
    return attempt_row(request_row(number), **(values | fields))


def density() -> float:
    return TOKENIZER.rate(SAMPLE, 1 << 20)[0]


def test_an_answer_without_a_usage_is_estimated_beside_the_reported_columns(stage, store):
    """SPEC 9.2: input and output at the density of the prompt's sample; nothing is written where reports stand."""
    row = untold()
    Run(stage, store).move(row)
    assert row.estimated_input_tokens == round(len(SAMPLE) * 10 * density())
    assert row.estimated_output_tokens == round(500 * density())
    assert row.usage_source == "estimated"
    assert (row.input_tokens, row.output_tokens, row.total_tokens) == (None, None, None)
    kept = store.read(lambda db: db.rows("SELECT usage_source, estimated_input_tokens, input_tokens FROM attempts"))
    assert [tuple(one) for one in kept] == [("estimated", row.estimated_input_tokens, None)]


def test_a_stream_that_was_cut_keeps_what_it_told(stage, store):
    """Some chunk of it told how much there was of both until then; how much came after it is in the bytes."""
    row = untold(usage_source="partial", input_tokens=25, output_tokens=1, finish_reason=None, outcome="error")
    Run(stage, store).move(row)
    assert (row.usage_source, row.input_tokens, row.output_tokens) == ("partial", 25, 1)
    assert (row.estimated_input_tokens, row.estimated_output_tokens) == (None, round(500 * density()))


@pytest.mark.parametrize(
    "fields",
    [
        {"usage_source": "provider", "input_tokens": 5, "output_tokens": 5},
        {"status": 429, "outcome": "error"},
        {"status": 500, "outcome": "error"},
        {"status": None, "outcome": "error"},  # never reached
        {"status": None, "outcome": "interrupted"},
        {"sample": None, "sample_of_bytes": 0},  # count_tokens, and what else is no prompt
    ],
)
def test_nothing_is_owed_to_others(stage, store, fields):
    row = untold(**fields)
    before = row.usage_source
    Run(stage, store).move(row)
    assert (row.estimated_input_tokens, row.estimated_output_tokens, row.usage_source) == (None, None, before)


def test_a_client_that_left_is_owed_what_it_got(stage, store):
    row = untold(outcome="cancelled", finish_reason=None)
    Run(stage, store).move(row)
    assert row.usage_source == "estimated" and row.estimated_output_tokens


def test_counting_never_holds_a_batch_back(stage, store):
    """What is beyond the bound is taken for four bytes to a token, however many rows wait."""
    long = ("你好，世界。" * 5000).encode()
    count = estimates.COUNTED_BYTES // estimates.ROW_BYTES + 10
    rows = [untold(number, sample=long, sample_of_bytes=len(long)) for number in range(count)]
    Run(stage, store).move(*rows)
    counted = rows[0].estimated_input_tokens
    assert [row.estimated_input_tokens for row in rows[:-10]] == [counted] * (count - 10)
    assert [row.estimated_input_tokens for row in rows[-10:]] == [round(len(long) / 4)] * 10
    assert counted != round(len(long) / 4)


def offering(number: int, sample: bytes | None = None, hash: str = "0123456789ab") -> AttemptRow:
    return attempt_row(request_row(number), tools_hash=hash, tools_offered=4, tools_sample=sample)


def test_a_set_of_tools_is_counted_once_and_told_with_every_row(stage, store):
    """The sample came with one row of one worker; the others', later batches' and a new process's have the number."""
    schemas = json.dumps(TOOLS).encode()
    run = Run(stage, store)
    first, same_batch = offering(1, schemas), offering(2)
    run.move(first, same_batch)
    (kept,) = run.sets()
    assert tuple(kept[:3]) == ("0123456789ab", 4, len(schemas))
    assert (
        first.tools_tokens
        == same_batch.tools_tokens
        == kept[3]
        == round(len(schemas) * TOKENIZER.rate(schemas, 1 << 20)[0])
    )
    names = json.loads(kept[4])
    assert set(names) == {"read_file", "ls", "web_search_20250305", ""} and names["ls"] > names["read_file"] > 0
    later, other_worker = offering(3), offering(4, schemas)
    run.move(later, other_worker)
    fresh = offering(5)
    Run(Estimates(TOKENIZER), store).move(fresh)
    assert later.tools_tokens == other_worker.tools_tokens == fresh.tools_tokens == kept[3]
    assert len(run.sets()) == 1


def test_that_a_set_is_in_use_is_written_down_hourly_and_no_more(stage, store, monkeypatch):
    """By every recorder; and one that was swept meanwhile is written anew, or still has its number."""
    now_s = 1000.0
    monkeypatch.setattr(clock, "monotonic", lambda: now_s)
    monkeypatch.setattr(clock, "now_ms", lambda: int(now_s * 1000))
    run = Run(stage, store)
    used: list[int] = []

    def move(row: AttemptRow) -> AttemptRow:
        batch = run.move(row)
        used.append(len(batch.also))
        return row

    def used_ms() -> list[tuple[int]]:
        return [tuple(one) for one in store.read(lambda db: db.rows("SELECT used_ms FROM tool_sets"))]

    tokens = move(offering(1, b'[{"name":"x"}]')).tools_tokens
    assert used_ms() == [(1_000_000,)] and tokens
    for number in range(2, 5):
        now_s += 1200 - 1
        assert move(offering(number)).tools_tokens == tokens
    assert used == [1, 0, 0, 0] and used_ms() == [(1_000_000,)]
    now_s += 4
    move(offering(5))
    assert used[4:] == [1] and used_ms() == [(4_601_000,)]
    now_s += 7200
    store.change(lambda db: db.run("DELETE FROM tool_sets"))
    assert move(offering(6)).tools_tokens == tokens and used_ms() == []
    assert move(offering(7, b'[{"name":"x"}]')).tools_tokens == tokens and used_ms() == [(11_801_000,)]


def test_a_set_that_nobody_sampled_yet_is_unknown(stage, store):
    run = Run(stage, store)
    early = offering(1)
    run.move(early, attempt_row(request_row(9)))
    assert early.tools_tokens is None
    run.move(offering(2, b"[]"))
    late = offering(3)
    run.move(late)
    assert late.tools_tokens == run.sets()[0][3] and early.tools_tokens is None


def test_what_the_store_did_not_take_did_not_happen(stage, store):
    """The batch comes again, with its sample; in between nothing is remembered of it."""
    run = Run(stage, store)
    run.move(offering(1, b'[{"name":"x"}]'), fails=True)
    unknown = offering(2)
    run.move(unknown)
    assert unknown.tools_tokens is None and run.sets() == []
    again = offering(1, b'[{"name":"x"}]')
    run.move(again)
    assert again.tools_tokens and len(run.sets()) == 1


@pytest.mark.parametrize(
    "schemas", [b"", b"{", b'"x"', b"\xff", b"[" * 1000, b'[{"name":7},{"function":{"name":"f"}}]']
)
def test_odd_schemas_cost_their_names_and_nothing_else(stage, store, schemas):
    run = Run(stage, store)
    row = offering(1, schemas)
    run.move(row)
    assert row.tools_tokens is not None and len(run.sets()) == 1
