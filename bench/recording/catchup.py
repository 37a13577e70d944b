"""A recorder that has much to catch up with, beside a worker that serves: who waits for whom, and what memory it takes.

python -m bench.recording.catchup FOLDER        # the worker's process, until its standard input ends
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from arbiter.ledger.journal import Journal
from arbiter.ledger.opening import open_store
from arbiter.ledger.recorder import BATCH_ROWS, Recorder
from bench.recording import alone, rows
from bench.recording.alone import LIMIT_BYTES

OPEN_EVERY_S = 0.001


def measure(folder: Path, requests: int) -> dict[str, Any]:
    """Rows a second, memory beyond that at rest, and what `open` took a worker before and meanwhile."""
    state = folder / "state"
    alone.fill(state, requests)
    recorder = Recorder(state, LIMIT_BYTES, lambda: open_store(f"sqlite:///{folder}/arbiter.db"))
    quiet = _watch(state, 2.0, None)
    busy = _watch(state, None, recorder)
    recorder.close()
    return {"quiet": quiet, "busy": busy["open"], **busy["drain"]}


def _own_mb() -> float:
    """This process's own memory: pages of the journal that it has mapped are the kernel's to give and take."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1000


def _watch(state: Path, seconds: float | None, recorder: Recorder | None) -> Any:
    command = [sys.executable, "-m", "bench.recording.catchup", str(state)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdin is not None and worker.stdout is not None
        worker.stdout.readline()  # it began
        drain = {}
        if recorder is None:
            time.sleep(seconds or 0)
        else:
            began, moved, most_mb, rest_mb = time.perf_counter(), 0, 0.0, _own_mb()
            while (count := recorder.step()) >= BATCH_ROWS:
                moved += count
                most_mb = max(most_mb, _own_mb())
            drain = {"rows": moved, "rows_s": moved / (time.perf_counter() - began), "grown_mb": most_mb - rest_mb}
        worker.stdin.close()
        found = json.loads(worker.stdout.read())
    return found if recorder is None else {"open": found, "drain": drain}


async def _serve(state: Path) -> None:
    """Open and end an attempt each millisecond; the percentiles of what opening one took."""
    loop = asyncio.get_running_loop()
    over = loop.run_in_executor(None, sys.stdin.read)
    pen = Journal(state, "beside", LIMIT_BYTES, loop)
    print("began", flush=True)
    took = []
    number = 1 << 30
    while not over.done():
        number += 1
        request, attempt = alone.as_opened(number)
        began = time.perf_counter_ns()
        pen.open(request, attempt)
        took.append(time.perf_counter_ns() - began)
        rows.end(request, attempt)
        pen.close(attempt)
        pen.settle(request)
        await asyncio.sleep(OPEN_EVERY_S)
    await pen.aclose()
    took.sort()
    at = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    print(json.dumps({name: took[min(len(took) - 1, int(len(took) * part))] / 1000 for name, part in at.items()}))


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1])))
