"""What recording takes of a worker's time and of control's, each by itself, in this process and hot."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from arbiter import garbage
from arbiter.config.snapshot import Snapshot
from arbiter.control.main import stages
from arbiter.ledger import records
from arbiter.ledger.database import Change
from arbiter.ledger.journal import Journal
from arbiter.ledger.opening import open_store
from arbiter.ledger.recorder import Batch, Recorder, Stage
from arbiter.ledger.records import Row
from arbiter.ledger.row import AttemptRow, RequestRow
from arbiter.ledger.store import Position, Readable, Store
from arbiter.ledger.tariffs import Tariffs
from arbiter.metrics import Metrics
from bench.recording import rows

LIMIT_BYTES = 1 << 30
REQUESTS = 5_000
ROUNDS = 5

Make = Callable[[int], tuple[RequestRow, AttemptRow]]


def as_opened(number: int) -> tuple[RequestRow, AttemptRow]:
    request = rows.request(number)
    return request, rows.attempt(request)


def worker(folder: Path) -> dict[str, float]:
    """µs per request with one attempt: to open it, to take its end, to write its rows with 99 others."""

    async def run(place: Path) -> dict[str, float]:
        pen = Journal(place, "bench", LIMIT_BYTES, asyncio.get_running_loop())
        took = {"open": 0, "close and settle": 0, "write": 0}
        for start in range(0, REQUESTS, 50):
            made = [as_opened(number) for number in range(start, start + 50)]
            began = time.process_time_ns()
            for request, attempt in made:
                pen.open(request, attempt)
            took["open"] += time.process_time_ns() - began
            for request, attempt in made:
                rows.end(request, attempt)
            began = time.process_time_ns()
            for request, attempt in made[:-1]:
                pen.close(attempt)
                pen.settle(request)
            pen.close(made[-1][1])
            took["close and settle"] += time.process_time_ns() - began
            began = time.process_time_ns()
            pen.settle(made[-1][0])  # the hundredth row: all of them are written
            took["write"] += time.process_time_ns() - began
        await pen.aclose()
        return {what: ns / 1000 / REQUESTS for what, ns in took.items()}

    found = [asyncio.run(run(folder / f"worker-{number}")) for number in range(ROUNDS)]
    return {what: min(one[what] for one in found) for what in found[0]}


def encoding() -> dict[str, tuple[int, float]]:
    """Bytes and µs of a request's records, as an agent's turn fills them and with no more than any request has."""

    def bare(number: int) -> tuple[RequestRow, AttemptRow]:
        request, attempt = as_opened(number)
        rows.end(request, attempt)
        for name in RARE:
            setattr(attempt, name, None)
        return request, attempt

    def whole(number: int) -> tuple[RequestRow, AttemptRow]:
        request, attempt = as_opened(number)
        rows.end(request, attempt)
        return request, attempt

    found = {}
    for name, make in (("no more than any request has", bare), ("an agent's turn", whole)):
        request, attempt = make(1)
        records_of = [records.encode_open("0" * 24, request, attempt), *records.encode_rows([attempt, request])]
        took = []
        for _ in range(20):
            began = time.process_time_ns()
            for _ in range(200):
                records.encode_open("0" * 24, request, attempt)
                records.encode_rows([attempt, request])
            took.append(time.process_time_ns() - began)
        found[name] = (sum(map(len, records_of)), min(took) / 200 / 1000)
    return found


# What only some requests have: identity of the prefix, rate limits, the client's session.
RARE = (
    *("client", "session", "request_kind", "conversation", "service_tier", "rate_limits", "tools_offered"),
    *("head_hash", "system_hash", "tools_hash", "inputs", "effort", "cache_marks", "input_chain"),
)


class _Timed:
    """A stage, and how long it took."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.ns = 0

    def _time(self, work: Callable[..., None], *arguments: Any) -> None:
        began = time.process_time_ns()
        work(*arguments)
        self.ns += time.process_time_ns() - began

    def take(self, batch: Batch, store: Readable) -> None:
        self._time(self.stage.take, batch, store)

    def stored(self, batch: Batch) -> None:
        self._time(self.stage.stored, batch)

    def forget(self) -> None:
        self.stage.forget()


class _TimedStore:
    """A store, and how long writing to it took."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.ns = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def write(self, batch: Sequence[Row], position: Position, also: Sequence[Change] = ()) -> None:
        began = time.process_time_ns()
        self.store.write(batch, position, also)
        self.ns += time.process_time_ns() - began


def fill(place: Path, requests: int, first: int = 0) -> None:
    """A journal with so many finished requests."""

    async def main() -> None:
        pen = Journal(place, "bench", LIMIT_BYTES, asyncio.get_running_loop())
        for number in range(first, first + requests):
            request, attempt = as_opened(number)
            pen.open(request, attempt)
            rows.end(request, attempt)
            pen.close(attempt)
            pen.settle(request)
        await pen.aclose()

    asyncio.run(main())


def control(folder: Path, url: str, snapshot: Snapshot) -> dict[str, float]:
    """µs of control's CPU per request, all of it and its parts, into a store that has REQUESTS already."""
    made = stages(lambda: snapshot, Tariffs(lambda: snapshot), Metrics(), lambda rows: None)
    timed = [_Timed(stage) for stage in made]
    opened: list[_TimedStore] = []

    def make() -> Any:
        opened.append(_TimedStore(open_store(url)))
        return opened[-1]

    garbage.rarely()  # as control does
    recorder = Recorder(folder / "control", LIMIT_BYTES, make, timed)
    found: list[dict[str, float]] = []
    for number in range(ROUNDS):
        fill(folder / "control", REQUESTS, number * REQUESTS)
        for stage in timed:
            stage.ns = 0
        if opened:
            opened[-1].ns = 0
        began = time.process_time_ns()
        while recorder.step():
            pass
        all_ns = time.process_time_ns() - began
        parts = {type(one.stage).__name__: one.ns for one in timed} | {"write": opened[-1].ns}
        parts["read, decode, delete"] = all_ns - sum(parts.values())
        found.append({what: ns / 1000 / REQUESTS for what, ns in {"all": all_ns, **parts}.items()})
    recorder.close()
    with contextlib.suppress(IndexError):
        found.pop(0)  # the empty store
    return {what: statistics.median(one[what] for one in found) for what in found[0]}
