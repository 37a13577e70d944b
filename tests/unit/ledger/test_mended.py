"""What was taken for interrupted and ended after all: the rows tell how, and everything is as if nobody had erred.

The same day is written down twice: by a worker that the recorder takes for dead again and again, and by one that has
its peace. What the stores hold in the end, and what was counted on the way, is the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from arbiter.config.load import parse
from arbiter.control.main import stages
from arbiter.ledger import reaper, schema
from arbiter.ledger.journal import Journal
from arbiter.ledger.recorder import Recorder
from arbiter.ledger.row import AttemptRow, RequestRow
from arbiter.ledger.search import ENTRIES, create
from arbiter.ledger.tariffs import Tariffs
from arbiter.metrics import Metrics, render
from tests.fakes.histories import identity, turns
from tests.fakes.rows import attempt_row, request_row
from tests.fakes.stores import Place, SqlitePlace

LIMIT = 8 << 20
SNAPSHOT = parse(
    """
providers:
  anthropic: { type: anthropic, models: [claude-sonnet-4-5] }
models:
  - { model: anthropic/claude-sonnet-4-5, input_usd_per_mtok: 3, cached_input_usd_per_mtok: 0.3,
      cache_write_5m_usd_per_mtok: 3.75, output_usd_per_mtok: 15 }
search: { index: true }
""",
    "test",
    {},
)
COLUMNS = {
    **{name: [column.name for column in schema.columns(row)] for name, row in schema.TABLES.items()},
    ENTRIES: ["kind", "source", "text"],
}
OPEN_REQUEST = {"outcome": "cancelled", "status": None, "finished_ms": None, "total_us": None, "first_byte_us": None}
OPEN_ATTEMPT = dict.fromkeys(
    ("finished_ms", "total_us", "status", "input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens",
     "total_tokens", "finish_reason", "events", "tool_names", *identity([])))  # fmt: skip


class Worker:
    """A worker and the recorder behind it. `interrupt` is called wherever something is open."""

    def __init__(self, folder: Path, place: Place, interrupt: Callable[[Worker], None]) -> None:
        self.place = place
        self.pen = Journal(folder / "state", "w1", LIMIT, asyncio.get_running_loop())
        self.numbers = Metrics(folder / "numbers.bin")
        made = stages(lambda: SNAPSHOT, Tariffs(lambda: SNAPSHOT), self.numbers, lambda rows: None)
        self.recorder = Recorder(folder / "state", LIMIT, place.open, made, self.numbers)
        self._folder = folder
        store = place.open()
        store.change(create)
        store.close()
        self._interrupt = interrupt

    def opens(self, request: RequestRow, attempt: AttemptRow) -> None:
        begun = msgspec.structs.replace(request, **OPEN_REQUEST, attempts=attempt.number)
        fields = OPEN_ATTEMPT | {"outcome": "interrupted", "usage_source": "missing"}
        self.pen.open(begun, msgspec.structs.replace(attempt, **fields))
        self._interrupt(self)

    def closes(self, attempt: AttemptRow) -> None:
        self.pen.close(msgspec.structs.replace(attempt))
        self.pen.flush()
        self._interrupt(self)

    def settles(self, request: RequestRow) -> None:
        self.pen.settle(msgspec.structs.replace(request))
        self.pen.flush()

    def serves(self, request: RequestRow, *attempts: AttemptRow) -> None:
        request.attempts = len(attempts)
        for attempt in attempts:
            self.opens(request, attempt)
            self.closes(attempt)
        self.settles(request)

    def drain(self) -> None:
        while self.recorder.step():
            pass

    def tables(self) -> dict[str, list[Any]]:
        """All there is in the store."""
        store = self.place.open(readonly=True)
        try:
            found = {}
            for table, order in (("requests", "id"), ("attempts", "id"), ("sessions", "id"), (ENTRIES, "source")):
                columns = COLUMNS[table]
                sql = f"SELECT {', '.join(columns)} FROM {table} ORDER BY {order}"
                rows = store.read(lambda db, sql=sql: db.rows(sql))
                found[table] = [dict(zip(columns, row, strict=True)) for row in rows]
            return found
        finally:
            store.close()

    def counted(self) -> list[str]:
        """What is counted of costs and losses, and of rows that a stage failed on."""
        self.numbers.flush()
        names = ("arbiter_cost", "arbiter_cache_loss", "arbiter_ledger_stage_failures")
        return [line for line in render([self._folder / "numbers.bin"], "0").splitlines() if line.startswith(names)]

    async def aclose(self) -> None:
        await self.pen.aclose()
        self.drain()
        self.recorder.close()


def called(request: RequestRow, number: int, **fields: Any) -> AttemptRow:
    known = {"provider": "anthropic", "model_asked": "claude-sonnet-4-5", "format_out": "anthropic-messages",
             "input_tokens": 10, "cached_tokens": 0, "client": request.client, "session": request.session,
             "cache_marks": ["message:0.0@5m"]}  # fmt: skip
    return attempt_row(request, number, **(known | fields))


def a_day(worker: Worker) -> None:
    """A conversation that loses its cache, what names no session and is tried twice, a title, a client that leaves."""
    talk = {"conversation": "c" * 32, "tool_names": ["read"]}
    one = request_row(1, session="s", opener="0f" * 16, request_kind="main", model_asked="claude-sonnet-4-5")
    worker.serves(one, called(one, 1, cache_write_tokens=50_000, **talk, **identity(turns(1))))
    two = request_row(2, session="s", request_kind="main", model_asked="claude-sonnet-4-5")
    failed = called(two, 1, outcome="error", status=429, usage_source="missing", input_tokens=None, cached_tokens=None,
                    output_tokens=None, total_tokens=None, **talk, **identity(turns(3)))  # fmt: skip
    worker.serves(two, failed, called(two, 2, cache_write_tokens=51_000, **talk, **identity(turns(3))))
    three = request_row(3, model_asked="claude-sonnet-4-5")
    worker.serves(three, *(called(three, number, input_tokens=100 * number) for number in (1, 2)))
    title = request_row(4, request_kind="title", opener="0f" * 16, model_asked="claude-sonnet-4-5")
    worker.serves(title, called(title, 1))
    left = request_row(5, session="s", outcome="cancelled", status=499, model_asked="claude-sonnet-4-5")
    worker.serves(left, called(left, 1, outcome="cancelled", usage_source="partial", output_tokens=3))
    worker.serves(request_row(6, session="t", parent_session="s", model_asked="claude-sonnet-4-5"))


def in_peace(worker: Worker) -> None:
    """Nobody takes it for dead."""


def at_once(worker: Worker) -> None:
    """Taken for dead, and that is stored before anything else happens."""
    reap(worker)
    worker.drain()


def reap(worker: Worker) -> None:
    """Taken for dead; how it goes on is stored together with that."""
    file = worker.recorder._file
    if file is not None:
        with file.writing() as txn:
            txn.delete(worker.pen._key.encode(), db=file.workers)
        reaper.reap(file)
        worker.pen.look()  # as each second


@pytest.mark.parametrize("interrupt", [at_once, reap], ids=["stored-before", "stored-together"])
def test_what_ended_after_all_is_as_if_nobody_had_erred(
    tmp_path: Path, place: Place, interrupt: Callable[[Worker], None], caplog: pytest.LogCaptureFixture
) -> None:
    """Rows, sessions, costs, losses and metrics."""

    async def write_down(folder: Path, where: Place, interrupt: Callable[[Worker], None]) -> Worker:
        worker = Worker(folder, where, interrupt)
        worker.drain()
        a_day(worker)
        await worker.aclose()
        return worker

    mended = asyncio.run(write_down(tmp_path / "mended", place, interrupt))
    assert caplog.text.count("1 attempts of a process that died are recorded as interrupted") == 7
    plain = asyncio.run(write_down(tmp_path / "plain", SqlitePlace(tmp_path / "plain" / "a.db"), in_peace))
    found, wanted = mended.tables(), plain.tables()
    for table, rows in wanted.items():
        assert found[table] == rows, table
    assert len(wanted["requests"]) == 6 and len(wanted["attempts"]) == 7
    outcomes = {row["id"]: row["outcome"] for row in wanted["requests"]}
    assert set(outcomes.values()) == {"ok", "cancelled"}
    assert sum(row["cost_pd"] for row in wanted["requests"] if row["cost_pd"]) == sum(
        row["cost_pd"] for row in wanted["attempts"] if row["cost_pd"]
    )
    assert [row["text"] for row in wanted[ENTRIES]] == ["read"] * 2
    assert [row["cache_verdict"] for row in wanted["attempts"] if row["cache_verdict"]] == ["miss"]
    told = next(row for row in wanted["sessions"] if row["session"] == "s")
    assert (told["requests"], told["turns"], told["failed"], told["titles"]) == (4, 2, 1, 1)
    assert mended.counted() == plain.counted() and len(plain.counted()) >= 2
