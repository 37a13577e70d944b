"""Rows a second that each store takes from the recorder: batches of 500, durable, with every index.

    python -m bench.recording.stores [--rows 200000] [--rounds 3] [--only sqlite]

PostgreSQL is started for it (Debian: apt-get install postgresql), as the tests start theirs: on the same machine, the
same disk, with fsync. A round writes into a new store; its second half is measured apart, since indexes grow.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from arbiter.ledger.opening import open_store
from arbiter.ledger.recorder import BATCH_ROWS
from arbiter.ledger.store import Position
from bench.recording import rows
from tests.fakes.postgres import Postgres


@contextmanager
def places(kind: str) -> Iterator[Iterator[str]]:
    """URLs of new stores, one after the other."""
    if kind == "sqlite":
        with tempfile.TemporaryDirectory(prefix="arbiter-bench-") as folder:
            yield (f"sqlite:///{Path(folder) / str(number)}.db" for number in range(1000))
    else:
        with Postgres() as server:
            yield (server.database() for _ in range(1000))


def measure(url: str, count: int) -> tuple[float, float, float]:
    """Rows a second of the first and of the second half, and µs of our own CPU for each row."""
    store = open_store(url)
    took, cpu_s = [], 0.0
    for start in range(0, count // 2, BATCH_ROWS // 2):
        requests = [rows.request(start + number) for number in range(BATCH_ROWS // 2)]
        attempts = [rows.attempt(request) for request in requests]
        for request, attempt in zip(requests, attempts, strict=True):
            rows.end(request, attempt)
        began, began_cpu = time.perf_counter(), time.process_time()
        store.write([*requests, *attempts], Position("bench", start + 1))
        took.append(time.perf_counter() - began)
        cpu_s += time.process_time() - began_cpu
    assert store.read(lambda database: database.rows("SELECT COUNT(*) FROM attempts")) == [(count // 2,)]
    store.close()
    half = len(took) // 2
    first, second = (BATCH_ROWS * len(part) / sum(part) for part in (took[:half], took[half:]))
    return first, second, cpu_s / count * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("sqlite", "postgresql"))
    asked = parser.parse_args()
    kinds = [asked.only] if asked.only else ["sqlite", "postgresql"]
    load = os.getloadavg()[0]
    print(f"{datetime.now(UTC):%Y-%m-%d}, {asked.rows:,} rows, {asked.rounds} rounds, load {load:.1f} at the start\n")
    print("| store | rows/s, first half | rows/s, second half | µs of control's CPU per row |")
    print("|---|---|---|---|")
    for kind in kinds:
        with places(kind) as urls:
            rounds = [measure(next(urls), asked.rows) for _ in range(asked.rounds)]
        first, second, cpu = (sorted(column) for column in zip(*rounds, strict=True))
        told = [f"{statistics.median(one):,.0f} ({one[0]:,.0f}–{one[-1]:,.0f})" for one in (first, second)]
        print(f"| {kind} | {told[0]} | {told[1]} | {statistics.median(cpu):.1f} |", flush=True)


if __name__ == "__main__":
    main()
