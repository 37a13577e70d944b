"""Measure what recording costs and print the tables of docs/performance.md.

    python -m bench.recording             all of it (some ten minutes)
    python -m bench.recording --smoke     seconds; does everything work, whatever it costs?

Two gateways side by side, one that records and one with `storage.url: none`, are asked in turns by the same client with
the same mock behind them: what a slice of requests costs the worker, the one over the other. Then each side by itself
and hot: what a request takes in the worker (opened, ended, written with 99 others) and in control, by its parts. Last,
a recorder with half a million rows to catch up with, beside a worker that opens attempts.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from arbiter.config.load import parse
from bench import tools
from bench.path import peers, process
from bench.path.__main__ import WORKLOADS, drive, machine, settle, versions
from bench.recording import alone, catchup

SLICES, SLICE_REQUESTS = 20, 1_500
CATCH_UP_REQUESTS = 250_000
CONFIG = "providers: {anthropic: {type: anthropic, key: bench, models: [claude-sonnet-4-5]}}"


def side_by_side(folder: Path, slices: int, requests: int) -> tuple[dict[str, list[dict[str, Any]]], list[str]]:
    """Slices of unary requests, in turns, by a gateway that records and by one that does not."""
    cores = sorted(os.sched_getaffinity(0))
    ours, theirs = (cores[0], cores[1]) if len(cores) > 1 else (None, None)
    workload = replace(WORKLOADS[0], requests=requests)
    found: dict[str, list[dict[str, Any]]] = {"rows": [], "none": []}
    faults = []
    with contextlib.ExitStack() as stack:
        mock = stack.enter_context(peers.mock(folder, theirs))
        both = [
            stack.enter_context(
                peers.arbiter(folder, ours, mock.port, [workload.answer], name=name, records=name == "rows")
            )
            for name in found
        ]
        for number in range(-1, slices):
            for peer in both if number % 2 else both[::-1]:
                others = [pid for pid in peer.pids if pid != peer.serving]
                before = process.cpu_ns(others)
                report = drive(theirs, peer, workload)
                settle(peer)  # control works on after the last answer
                report["others_us"] = (process.cpu_ns(others) - before) / 1000 / requests
                if report["errors"]:
                    faults.append(f"{peer.name}: {report['errors']} wrong ({report['complaint']})")
                if number >= 0:  # the first ones warm up
                    found[peer.name].append(report)
    return found, faults


def told(
    both: dict[str, list[dict[str, Any]]],
    worker: dict[str, float],
    encoding: dict[str, tuple[int, float]],
    control: dict[str, float],
    late: dict[str, Any],
) -> str:
    """The findings as Markdown."""
    pairs = [(on["serving_us"], off["serving_us"]) for on, off in zip(both["rows"], both["none"], strict=True)]
    ratios = sorted(on / off for on, off in pairs)
    other = [statistics.median(run["others_us"] for run in both[name]) for name in ("rows", "none")]
    middle = [statistics.median(values) for values in zip(*pairs, strict=True)]
    more = statistics.median(on - off for on, off in pairs)
    quarter = len(ratios) // 4
    lines = [
        "| unary, 1 KB, 32 connections, µs/request | recorded | `storage.url: none` | ratio | more |",
        "|---|---|---|---|---|",
        f"| worker | {middle[0]:.0f} | {middle[1]:.0f} | **{statistics.median(ratios):.2f}×** "
        f"({ratios[quarter]:.2f}–{ratios[-1 - quarter]:.2f}) | {more:.0f} |",
        f"| the other processes | {other[0]:.0f} | {other[1]:.0f} | – | {other[0] - other[1]:.0f} |",
        "",
        "| by itself, hot | µs/request |",
        "|---|---|",
        *(f"| worker: {what} | {us:.1f} |" for what, us in worker.items()),
        f"| worker: all of it | **{sum(worker.values()):.1f}** |",
        *(f"| of it, encoding {bytes_:,} bytes ({what}) | {us:.1f} |" for what, (bytes_, us) in encoding.items()),
        *(f"| control: {what} | {us:.1f} |" for what, us in control.items() if what != "all"),
        f"| control: all of it | **{control['all']:.1f}** |",
        "",
        f"Catching up with {late['rows']:,} rows: {late['rows_s']:,.0f} rows/s, {late['grown_mb']:.0f} MB more memory. "
        "To open an attempt took a worker beside it "
        + ", ".join(f"{late['busy'][part]:.0f} µs ({part}; {late['quiet'][part]:.0f} at rest)" for part in late["busy"])
        + ".",
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.recording", description=__doc__.partition("\n")[0])
    parser.add_argument("--smoke", action="store_true", help="a few seconds, every check, no figures worth keeping")
    options = parser.parse_args()
    slices, requests, late = (2, 64, 1_000) if options.smoke else (SLICES, SLICE_REQUESTS, CATCH_UP_REQUESTS)
    tools.say_smoke(options.smoke)
    if options.smoke:
        alone.REQUESTS, alone.ROUNDS = 500, 2
    busy = os.getloadavg()[0]
    if busy > 0.5 and not options.smoke:
        print(f"This machine is busy (load {busy:.1f}); expect noisy figures.", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="bench-recording-") as tmp:
        folder = Path(tmp)
        both, faults = side_by_side(folder, slices, requests)
        snapshot = parse(CONFIG, "bench", {"ARBITER_DATA_DIR": str(folder / "data")})
        findings = told(
            both,
            alone.worker(folder),
            alone.encoding(),
            alone.control(folder, f"sqlite:///{folder}/control.db", snapshot),
            catchup.measure(folder / "late", late),
        )
    print(f"Measured {datetime.date.today().isoformat()} on {machine()}, load {busy:.1f}; {versions()}.\n\n{findings}")
    for fault in faults:
        print(f"FAULT {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    tools.command(main)
