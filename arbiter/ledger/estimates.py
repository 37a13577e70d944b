"""The recorder's stage that estimates what nobody counted: tokens of answers without a usage, and of tool schemas.

An estimate fills columns of its own and never a reported one (SPEC 9.2). A worker sends a sample of the prompt with the
row of an attempt whose usage it was not told, and the schemas of a set of tools when it first sees them. Here the
sample's tokens are counted, and the bytes of request and answer are turned into tokens at its density.

Counting is work: of each batch at most `COUNTED_BYTES` are looked at, pieces from all over a text. What is beyond is
taken for four bytes to a token.
"""

from __future__ import annotations

from collections.abc import Iterable

from arbiter.accounting.facts import UNFINISHED
from arbiter.ledger.database import Database
from arbiter.ledger.recorder import Batch
from arbiter.ledger.row import AttemptRow
from arbiter.ledger.store import Readable
from arbiter.ledger.tables import Table
from arbiter.ledger.tokenizer import BYTES_PER_TOKEN, Tokenizer
from arbiter.ledger.toolsets import ToolSetRow, read

COUNTED_BYTES = 128 << 10
"""Of one batch: a tenth of a second."""
ROW_BYTES = 8 << 10
TOOLS_BYTES = 32 << 10
KNOWN_SETS = 4096

TOOL_SETS = Table("tool_sets", ToolSetRow)


class Estimates:
    """A `Stage`."""

    def __init__(self, tokenizer: Tokenizer | None = None) -> None:
        self._tokenizer = tokenizer if tokenizer is not None else Tokenizer()
        self._known: dict[str, int] = {}  # tokens of the sets that are in the store
        self._found: dict[str, int] = {}  # of those that will be with the batch, or were found there for it
        self._left_bytes = 0

    def take(self, batch: Batch, store: Readable) -> None:
        self._left_bytes = COUNTED_BYTES
        self._take_tools(batch, store)
        for row in batch.attempts:
            if is_owed(row):
                self._estimate(row)

    def stored(self, batch: Batch) -> None:
        for id, tokens in self._found.items():
            self._known.pop(id, None)
            self._known[id] = tokens
        self._found.clear()
        while len(self._known) > KNOWN_SETS:
            del self._known[next(iter(self._known))]

    def forget(self) -> None:
        self._found.clear()

    def _take_tools(self, batch: Batch, store: Readable) -> None:
        self._found.clear()
        unknown = {row.tools_hash for row in batch.attempts if row.tools_hash is not None} - self._known.keys()
        if unknown:
            self._found.update(store.read(lambda database: _tokens(database, unknown)))
        rows = []
        for row in batch.attempts:
            id, schemas = row.tools_hash, row.tools_sample
            if id is None or schemas is None or id in self._known or id in self._found:
                continue
            found = read(id, schemas, row.started_ms, self._rate(schemas, TOOLS_BYTES))
            self._found[id] = found.tokens
            rows.append(found)
        if rows:
            batch.also.append(TOOL_SETS.inserts(rows))
        for row in batch.attempts:
            if row.tools_hash is not None:
                row.tools_tokens = self._known.get(row.tools_hash, self._found.get(row.tools_hash))

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
