"""The recorder's stage that estimates what nobody counted: tokens of answers without a usage, and of tool schemas.

An estimate fills columns of its own and never a reported one (SPEC 9.2). A worker sends a sample of the prompt with the
row of an attempt whose usage it was not told, and the schemas of a set of tools when it first sees them. Here the
sample's tokens are counted, and the bytes of request and answer are turned into tokens at its density.

Counting is work: of each batch at most `COUNTED_BYTES` are looked at, pieces from all over a text. What is beyond is
taken for four bytes to a token.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from arbiter import clock
from arbiter.accounting.facts import UNFINISHED
from arbiter.ledger.database import Database, Statement
from arbiter.ledger.recorder import Batch
from arbiter.ledger.row import AttemptRow
from arbiter.ledger.store import Readable
from arbiter.ledger.tables import Table
from arbiter.ledger.tokenizer import BYTES_PER_TOKEN, Tokenizer
from arbiter.ledger.toolsets import USED_EVERY_S, ToolSetRow, read

COUNTED_BYTES = 128 << 10
"""Of one batch: a tenth of a second."""
ROW_BYTES = 8 << 10
TOOLS_BYTES = 32 << 10
KNOWN_SETS = 4096

TOOL_SETS = Table("tool_sets", ToolSetRow)
_USED = "UPDATE tool_sets SET used_ms = ? WHERE id = ?"


class Known(NamedTuple):
    """What there is to know of a set in the store. `until`: it is to be looked at again then (monotonic clock)."""

    tokens: int
    until: float


class Estimates:
    """A `Stage`."""

    def __init__(self, tokenizer: Tokenizer | None = None) -> None:
        self._tokenizer = tokenizer if tokenizer is not None else Tokenizer()
        self._known: dict[str, Known] = {}  # the sets that are in the store
        self._found: dict[str, Known] = {}  # those that will be with the batch, or were found there for it
        self._left_bytes = 0

    def take(self, batch: Batch, store: Readable) -> None:
        self._left_bytes = COUNTED_BYTES
        self._take_tools(batch, store)
        for row in batch.attempts:
            if is_owed(row):
                self._estimate(row)

    def stored(self, batch: Batch) -> None:
        for id, known in self._found.items():
            self._known.pop(id, None)
            self._known[id] = known
        self._found.clear()
        while len(self._known) > KNOWN_SETS:
            del self._known[next(iter(self._known))]

    def forget(self) -> None:
        self._found.clear()

    def _take_tools(self, batch: Batch, store: Readable) -> None:
        self._found.clear()
        now, now_ms = clock.monotonic(), clock.now_ms()
        until = now + USED_EVERY_S
        unknown = {
            row.tools_hash for row in batch.attempts if row.tools_hash is not None and self._due(row.tools_hash) <= now
        }
        if unknown:
            found = store.read(lambda database: _tokens(database, unknown))
            self._found.update((id, Known(tokens, until)) for id, tokens in found.items())
            if found:
                # In order: two gateways that wait for each other's row would wait for ever.
                batch.also.append(Statement(_USED, [(now_ms, id) for id in sorted(found)]))
        rows = []
        for row in batch.attempts:
            id, schemas = row.tools_hash, row.tools_sample
            if id is None or schemas is None or id not in unknown or id in self._found:
                continue
            made = read(id, schemas, row.started_ms, now_ms, self._rate(schemas, TOOLS_BYTES))
            self._found[id] = Known(made.tokens, until)
            rows.append(made)
        if rows:
            batch.also.append(TOOL_SETS.inserts(rows))
        for row in batch.attempts:
            # One that was swept meanwhile still has as many.
            known = self._found.get(row.tools_hash or "") or self._known.get(row.tools_hash or "")
            if known is not None:
                row.tools_tokens = known.tokens

    def _due(self, id: str) -> float:
        """When a set is to be looked at, on the monotonic clock."""
        known = self._known.get(id)
        return known.until if known is not None else 0.0

    def _estimate(self, row: AttemptRow) -> None:
        sample = row.sample
        assert sample is not None
        rate = self._rate(sample, ROW_BYTES)
        if row.input_tokens is None:
            row.estimated_input_tokens = round(row.sample_of_bytes * rate)
        if row.output_bytes is not None and (row.output_tokens is None or row.finish_reason is None):
            row.estimated_output_tokens = round((row.output_bytes + (row.thinking_bytes or 0)) * rate)
        if row.usage_source == "missing":
            row.usage_source = "estimated"

    def _rate(self, text: bytes, at_most: int) -> float:
        """Tokens per byte."""
        if self._left_bytes <= 0:
            return 1 / BYTES_PER_TOKEN
        rate, looked_at = self._tokenizer.rate(text, min(at_most, self._left_bytes))
        self._left_bytes -= looked_at
        return rate


def is_owed(row: AttemptRow) -> bool:
    """Whether tokens were used that nobody counted: the model answered, wholly or until it was cut. What it goes on
    with in the background has its usage when it is asked for."""
    return (
        row.usage_source in ("missing", "partial")
        and row.sample is not None
        and row.status is not None
        and 200 <= row.status < 300
        and row.outcome != "interrupted"
        and row.finish_reason not in UNFINISHED
    )


def _tokens(database: Database, ids: Iterable[str]) -> dict[str, int]:
    wanted = sorted(ids)
    marks = ", ".join("?" * len(wanted))
    return {
        id: int(tokens)
        for id, tokens in database.rows(f"SELECT id, tokens FROM tool_sets WHERE id IN ({marks})", wanted)
    }
