"""Run the gateway under mixed load for a long time, and see that nothing grows: memory, descriptors, waiting, loss.

    python -m bench.soak --minutes 20     what is printed goes into docs/performance.md
    python -m bench.soak --smoke          under a minute, for CI: the same checks

The load comes in slices: short and long requests, streams of two formats, the crossing between them, an upstream whose
every third answer is a failure that another one makes good, clients that leave in mid-stream, bodies that are no JSON
and models that do not exist. Between two slices the gateway rests, and is looked at: the memory that its processes have
for themselves, their open files, what is still in flight, what waits in the journal. At the end its books are compared
with what was asked.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import sqlite3
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import tools
from bench.path import peers, process

MAY_KEEP_BYTES = 32
"""Of a process's memory for each request, over the later half of the slices, when caches are full. Whatever is kept of
every third request, and be it one entry of a dictionary, is more. A limit of what is seen, and not what may leak: at
one hundred requests a second these are 280 MB a day."""
BREATHES_BYTES = 1 << 20
"""What allocators keep at rest, or do not, from one look to the next; more where a run's own looks vary by more. Three
standard errors that follow from it are allowed for, so the longer the soak the less it overlooks: of 20 minutes 34
bytes a request, of 4 minutes 390."""
BREATHES_IN_SMOKE = 16 << 20
"""Where slices are few, one burst of a machine that others keep busy is much of what there is."""
MAY_OPEN = 8
"""More files at rest than after the first slice: the store's and LMDB's come and go."""
REST_S = 2.0

LIMPING = "u1024.status503.every3"
MENDED = f"""
aliases:
  mended: {{ group: [openai-{LIMPING}, openai-u1024] }}
"""


@dataclass(frozen=True)
class Load:
    """One stream of requests at a steady rate, whose every answer is checked."""

    name: str
    path: str
    format: str
    model: str
    answer: str
    per_s: float
    body_bytes: int = 1024


LOADS = (
    Load("chat, 1 KB", peers.CHAT, "chat", "openai-u1024", "u1024", 60),
    Load("chat, 200 KB", peers.CHAT, "chat", "openai-u1024", "u1024", 5, 200_000),
    Load("chat, streams", peers.CHAT, "chat", "openai-s50-10", "s50-10", 15),
    Load("Messages, streams with reasoning", peers.MESSAGES, "messages", "anthropic-s50-10.r20", "s50-10.r20", 15),
    Load("Messages on Chat, streams", peers.MESSAGES, "messages", "openai-s50-10", "s50-10", 10),
    Load("chat, every third fails over", peers.CHAT, "chat", "mended", "u1024", 15),
)
ENDLESS = "s2000-10"
ANSWERS = [*{load.answer for load in LOADS}, LIMPING, ENDLESS]


@dataclass
class Look:
    """The gateway at rest, after `asked` requests: memory and open files of each process (without kept connections),
    and what is unfinished."""

    asked: int
    memory: dict[str, int]
    files: dict[str, int]
    in_flight: float
    waiting: float


@dataclass
class Found:
    looks: list[Look] = field(default_factory=list)
    reports: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {one.name: [] for one in LOADS})
    trouble: int = 0
    faults: list[str] = field(default_factory=list)

    @property
    def asked(self) -> int:
        return self.trouble + sum(report["requests"] for reports in self.reports.values() for report in reports)


def anonymous_bytes(pid: int) -> int:
    """What a process has for itself: not the store's and LMDB's pages, which the kernel lends."""
    status = (process.PROC / str(pid) / "status").read_text()
    found = re.search(r"^RssAnon:\s+(\d+) kB", status, re.MULTILINE)
    assert found is not None
    return int(found.group(1)) << 10


def gauge(port: int, name: str) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
    return float(found.group(1)) if found else 0.0


def look(gateway: peers.Peer, names: dict[int, str], asked: int) -> Look:
    """Once it rests: nothing in flight and nothing waiting, or half a minute later as it is then."""
    time.sleep(REST_S)
    give_up = time.monotonic() + 30
    while True:
        in_flight = gauge(gateway.port, "arbiter_requests_in_flight")
        waiting = gauge(gateway.port, "arbiter_journal_depth")
        if not (in_flight or waiting) or time.monotonic() > give_up:
            break
        time.sleep(0.5)
    files = {name: len(list((process.PROC / str(pid) / "fd").iterdir())) for pid, name in names.items()}
    # How many connections to the upstream are kept for the next burst depends on how high the last one was.
    files["worker"] -= round(gauge(gateway.port, "arbiter_upstream_connections"))
    return Look(asked, {name: anonymous_bytes(pid) for pid, name in names.items()}, files, in_flight, waiting)


# ------------------------------------------------------------------------------------------------ the troublesome


async def _trouble(port: int, body: bytes, path: str, reads: int) -> int:
    """One request whose answer is read up to `reads` pieces, and left; its status, 0 where none came."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        head = f"POST {path} HTTP/1.1\r\nhost: soak\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        first = await asyncio.wait_for(reader.readline(), 20)
        status = int(first.split()[1]) if first else 0
        for _ in range(reads if status == 200 else 0):
            await asyncio.wait_for(reader.read(2048), 20)
        return status
    finally:
        writer.transport.abort()


async def trouble(port: int, seconds: float, found: Found) -> None:
    """Ten troublesome clients a second: who leaves in mid-stream, who sends no JSON, who asks for what nobody has."""
    turn = {"role": "user", "content": "go on"}
    stream = json.dumps({"model": f"openai-{ENDLESS}", "stream": True, "messages": [turn]})
    nobody = stream.replace("openai-", "nobody-")
    cases = [(stream, 200, 8), (stream, 200, 1), ("{no json", 400, 0), (nobody, 404, 0)]
    until = time.monotonic() + seconds
    asked = 0
    while time.monotonic() < until:
        body, status, reads = cases[asked % len(cases)]
        asked += 1
        said = await _trouble(port, body.encode(), peers.CHAT, reads)
        if said != status:
            found.faults.append(f"a troublesome request got {said} in place of {status}")
        await asyncio.sleep(0.1)
    found.trouble += asked


# --------------------------------------------------------------------------------------------------- the slices


def asked(load: Load, port: int, seconds: float, seed: int) -> dict[str, Any]:
    """One load for so many seconds: its report."""
    return tools.load(
        f"http://127.0.0.1:{port}{load.path}", load.model, "--format", load.format, "--answer", load.answer,
        "--body-bytes", load.body_bytes, "--rate", load.per_s, "--arrivals", "poisson", "--seed", seed,
        "--connections", 256, "--duration", seconds, timeout_s=seconds + 120,
    )  # fmt: skip


def slice_of(port: int, seconds: float, found: Found) -> None:
    """Everything at once for so many seconds."""
    with ThreadPoolExecutor(len(LOADS)) as pool:
        running = {load: pool.submit(asked, load, port, seconds, len(found.looks)) for load in LOADS}
        try:
            asyncio.run(trouble(port, seconds, found))
        except OSError:
            tools.see_all_run()
            raise
        for load, promised in running.items():
            report = promised.result()
            found.reports[load.name].append(report)
            if report["errors"]:
                found.faults.append(f"{load.name}: {report['errors']} wrong ({report['complaint']})")


def stored(data: Path) -> dict[str, int]:
    """How many requests the books have, by how they ended."""
    with contextlib.closing(sqlite3.connect(f"file:{data}/arbiter.db?mode=ro", uri=True)) as books:
        return dict(books.execute("SELECT outcome, count(*) FROM requests GROUP BY outcome").fetchall())


def growth(looks: Sequence[Look], name: str, breathes: int) -> tuple[float, float]:
    """By how many bytes a process grew with each request over the later half, and how far off that may be."""
    later = looks[len(looks) // 2 :]
    asked, held = [one.asked for one in later], [one.memory[name] for one in later]
    line = statistics.linear_regression(asked, held)
    misses = [have - line.intercept - line.slope * when for when, have in zip(asked, held, strict=True)]
    off = max(breathes, statistics.pstdev(misses))
    return line.slope, 3 * off / (statistics.pstdev(asked) * len(later) ** 0.5)


def judge(found: Found, books: dict[str, int], breathes: int = BREATHES_BYTES) -> None:
    """Put what is wrong among the faults. Latency is printed and not judged: it depends on the machine."""
    if sum(books.values()) != found.asked:
        found.faults.append(f"{found.asked} requests were asked, {sum(books.values())} are in the books: {books}")
    first, last = found.looks[0], found.looks[-1]
    for name in first.memory:
        slope, give_or_take = growth(found.looks, name, breathes)
        if slope > MAY_KEEP_BYTES + give_or_take:
            size = f"{last.memory[name] / 1e6:.1f} MB"
            found.faults.append(f"{name} grew by {slope:,.0f} ± {give_or_take:,.0f} bytes a request, to {size}")
        if last.files[name] > first.files[name] + MAY_OPEN:
            found.faults.append(f"{name} has {last.files[name]} files open, {first.files[name]} after the first slice")
    for number, one in enumerate(found.looks):
        if one.in_flight or one.waiting:
            found.faults.append(f"at rest {number}: {one.in_flight:.0f} in flight, {one.waiting:.0f} rows waiting")


def table(found: Found, books: dict[str, int], breathes: int = BREATHES_BYTES) -> str:
    thirds = max(1, len(found.looks) // 3)
    lines = ["| load | requests | p50 ms, first third | last third | p99 ms, first third | last third |"]
    lines.append("|---|" + "---|" * 5)
    for name, reports in found.reports.items():
        cells = [name, f"{sum(report['requests'] for report in reports):,}"]
        for point in ("p50", "p99"):
            for part in (reports[:thirds], reports[-thirds:]):
                cells.append(f"{statistics.median(report['first_us'][point] for report in part) / 1e3:.2f}")
        lines.append("| " + " | ".join(cells) + " |")
    end = len(found.looks) - 1
    points = sorted({round(end * part / 4) for part in range(5)})
    heads = " | ".join(str(n + 1) for n in points)
    lines += ["", f"| at rest after slice | {heads} | bytes a request, later half |"]
    lines.append("|---|" + "---|" * (len(points) + 1))
    looks = [found.looks[n] for n in points]
    for name in looks[0].memory:
        megabytes = " | ".join(f"{one.memory[name] / 1e6:.1f}" for one in looks)
        slope, give_or_take = growth(found.looks, name, breathes)
        lines.append(f"| {name}, MB of its own | {megabytes} | {slope:,.0f} ± {give_or_take:,.0f} |")
        lines.append(f"| {name}, open files | " + " | ".join(str(one.files[name]) for one in looks) + " | |")
    ends = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(books.items()))
    lines += ["", f"In the books: {sum(books.values()):,} requests ({ends}); {found.trouble:,} were troublesome."]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--smoke", action="store_true", help="four slices of six seconds")
    options = parser.parse_args()
    slices, seconds = (4, 6.0) if options.smoke else (max(4, round(options.minutes * 2)), 28.0)
    tools.say_smoke(options.smoke)
    found = Found()
    with tempfile.TemporaryDirectory(prefix="bench-soak-") as tmp, contextlib.ExitStack() as stack:
        folder = Path(tmp)
        mock_port, _ = stack.enter_context(tools.mock())
        gateway = stack.enter_context(peers.arbiter(folder, None, mock_port, ANSWERS, more=MENDED))
        rest = (pid for pid in gateway.pids if pid != gateway.serving)
        names = dict(zip(rest, ("supervisor", "control"), strict=True)) | {gateway.serving or 0: "worker"}
        slice_of(gateway.port, min(seconds, 5), found)  # first connections, caches, lazy imports
        look(gateway, names, found.asked)
        for number in range(slices):
            slice_of(gateway.port, seconds, found)
            found.looks.append(look(gateway, names, found.asked))
            print(f"slice {number + 1} of {slices} done", file=sys.stderr, flush=True)
        books = stored(folder / "arbiter" / "data")
    breathes = BREATHES_IN_SMOKE if options.smoke else BREATHES_BYTES
    judge(found, books, breathes)
    print(table(found, books, breathes))
    for fault in found.faults:
        print(f"FAULT {fault}", file=sys.stderr)
    return 1 if found.faults else 0


if __name__ == "__main__":
    tools.command(main)
