"""`arbiter bench`: what this installation costs with this configuration."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

from arbiter import __version__
from arbiter._speedups import SIDE
from arbiter.cli import FAILED, OK, options
from arbiter.cli.benching import copied, talk
from arbiter.cli.benching.measure import CONNECTIONS, STREAMS, Latency, Load, Result, measure
from arbiter.cli.table import number, render, soft
from arbiter.config.load import Source, config_path
from arbiter.config.snapshot import Snapshot

# What a gateway takes on a machine that has nothing else to do, doubled: beyond it there is a reason to be found.
_ADDED_P50_MS, _REQUEST_US, _EVENT_US, _WORKER_BYTES = 1.5, 600.0, 120.0, 150e6


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = options.add(
        commands,
        "bench",
        run,
        help="measure what the gateway costs, here and as it is configured",
        description="Start the gateway with a copy of the configuration, on a free loopback port, with a throw-away "
        "data directory and an upstream of its own, and measure what it adds to a request and to a stream, and what it "
        "takes of processor and memory. The gateway that serves, its store, state, providers and keys are not touched.",
        json="one JSON object",
    )
    options.add_config(command)
    command.add_argument(
        "--seconds", type=options.whole(2, 600), default=10, metavar="S", help="how long to measure (default: 10)"
    )


def run(arguments: argparse.Namespace) -> int:
    source = Source(arguments.config, dict(os.environ))
    snapshot = source.keyless()  # whoever is asked here is an upstream of our own
    file = str(config_path(source.path, source.env))
    with _stoppable():
        result = measure(snapshot, arguments.seconds)
    if arguments.json:
        options.print_json(report(snapshot, file, result, arguments.seconds))
    else:
        print(text(snapshot, file, result), end="")
    return FAILED if result.lost else OK


@contextlib.contextmanager
def _stoppable() -> Iterator[None]:
    """Told to end, or left by its terminal, it stops what was started and removes what was made."""

    def stop(number: int, _: object) -> None:
        sys.exit(128 + number)

    # One that is to be ignored, as `nohup` has it, still is.
    heard = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def report(snapshot: Snapshot, file: str, result: Result, seconds: int) -> dict[str, Any]:
    """All of it for programs. Units: as the names say; `cpu_us` of all processes for one request or event."""

    def latency(of: Latency) -> dict[str, Any]:
        ways = {"direct": (of.direct_p50, of.direct_p99), "through": (of.through_p50, of.through_p99)}
        ways["added"] = (of.added_p50, of.added_p99)
        return {f"{way}_ms": {"p50": round(p50, 4), "p99": round(p99, 4)} for way, (p50, p99) in ways.items()}

    def load(of: Load) -> dict[str, Any]:
        return {"count": of.count, "per_s": round(of.per_s, 1), "cpu_us": round(of.cpu_us, 2), "lost": of.lost}

    return {
        "version": __version__,
        "config": file,
        "seconds": seconds,
        "format": "messages" if copied.is_messages(snapshot) else "chat",
        "workers": snapshot.server.workers,
        "cores": _cores(),
        "compiled": SIDE == "c",
        "load_before": round(result.load_before, 2),
        "unary": latency(result.unary),
        "first_event": latency(result.first_event),
        "requests": {"connections": CONNECTIONS, **load(result.requests)},
        "events": {"streams": STREAMS, "apart_ms": talk.PACE_S * 1000, **load(result.events)},
        "memory": {
            "at_rest_bytes": result.at_rest_bytes,
            "at_most_bytes": result.at_most_bytes,
            "per_stream_bytes": result.stream_bytes,
        },
        "lost": result.lost,
        "complaint": result.complaint,
        "left_out": copied.left_out(snapshot),
        "advice": advice(snapshot, result),
    }


def text(snapshot: Snapshot, file: str, result: Result) -> str:
    """The same for people: two tables, what they mean, and what to do."""
    spoken = "Anthropic Messages" if copied.is_messages(snapshot) else "OpenAI Chat"
    keeps = "nothing" if snapshot.storage.url == "none" else "rows"
    if snapshot.storage.capture.content and keeps == "rows":
        keeps = "rows and content"
    workers = "1 worker" if snapshot.server.workers == 1 else f"{snapshot.server.workers} workers"
    unary, first, requests, events = result.unary, result.first_event, result.requests, result.events
    waits = render(
        (soft("one request at a time, ms", least=25), *map(number, ("direct", "through", "added"))),
        [
            ("an answer of 1 KB, median", *_three(unary.direct_p50, unary.through_p50, unary.added_p50)),
            ("  99th percentile", *_three(unary.direct_p99, unary.through_p99, unary.added_p99)),
            ("a stream's first event, median", *_three(first.direct_p50, first.through_p50, first.added_p50)),
            ("  99th percentile", *_three(first.direct_p99, first.through_p99, first.added_p99)),
        ],
    )
    costs = render(
        (soft("under load", least=23), number("a second"), number("CPU µs each"), number("lost")),
        [
            (
                f"requests, {CONNECTIONS} connections",
                f"{requests.per_s:,.0f}", f"{requests.cpu_us:,.0f}", requests.lost,
            ),
            (
                f"events of {STREAMS} streams, {talk.PACE_S * 1000:.0f} ms apart",
                f"{events.per_s:,.0f}", f"{events.cpu_us:,.1f}", events.lost,
            ),
        ],
    )  # fmt: skip
    parts = [
        f"{file}: {workers}, keeps {keeps}; {spoken} on both sides, {_cores()} cores, Arbiter {__version__}\n",
        f"\n{waits}\n{costs}",
        f"\nMemory of all processes: {result.at_rest_bytes / 1e6:,.0f} MB at rest, "
        f"{result.at_most_bytes / 1e6:,.0f} MB with {STREAMS} streams open, "
        f"{result.stream_bytes / 1024:,.0f} KB for each.\n",
        f"\n{_meaning(result)}\n",
    ]
    if left := copied.left_out(snapshot):
        parts.append("\nNot measured\n" + "".join(f"  {one}\n" for one in left))
    if told := advice(snapshot, result):
        parts.append("\nWhat to do\n" + "".join(f"  {one}\n" for one in told))
    return "".join(parts)


def _three(*milliseconds: float) -> tuple[str, ...]:
    return tuple(f"{value:.2f}" for value in milliseconds)


def _meaning(result: Result) -> str:
    """What the figures come to, in a sentence each."""
    requests, events = (1e6 / max(load.cpu_us, 0.1) for load in (result.requests, result.events))
    lines = [
        f"The gateway adds {max(0.0, result.unary.added_p50):.2f} ms to an answer, where a model takes seconds.",
        f"One core carries some {_rounded(requests):,} requests a second, or {_rounded(events):,} events a second: "
        f"{_rounded(events * talk.PACE_S):,} streams with an event every {talk.PACE_S * 1000:.0f} ms.",
        "CPU is that of all its processes, what is written down after the answer included.",
    ]
    return "\n".join(lines)


def _rounded(value: float) -> int:
    """To two digits: more would not be the same the next time."""
    places = max(0, len(str(int(value))) - 2)
    return int(round(value, -places))


def advice(snapshot: Snapshot, result: Result) -> list[str]:
    """What explains figures that are bad, likeliest first; nothing where none is."""
    told = []
    if result.lost:
        told.append(
            f"{result.lost} answers were not as they should be ({result.complaint}): that is a fault of Arbiter's, "
            "please report it."
        )
    is_slow = (
        result.unary.added_p50 > _ADDED_P50_MS
        or result.requests.cpu_us > _REQUEST_US
        or result.events.cpu_us > _EVENT_US
    )
    if SIDE != "c":
        told.append("The compiled parts are not in use (ARBITER_PURE is set): without them everything takes longer.")
    if is_slow:
        told.append("This is more than a request usually takes (docs/performance.md).")
        if result.load_before > _cores() / 2:
            told.append(
                f"The machine was busy before (load {result.load_before:.1f} on {_cores()} cores): "
                "measure again when it is not."
            )
        if snapshot.server.workers > _cores():
            told.append(
                "server.workers is more than there are cores: they wait for each other; `auto` is one per core."
            )
        if _cores() < 3:
            told.append("Client, upstream and gateway share few cores here: latency is less on a machine of its own.")
        if snapshot.storage.capture.content and snapshot.storage.url != "none":
            told.append("storage.capture.content is on: what is asked and answered is written down, which costs.")
        if snapshot.telemetry.log_level == "debug":
            told.append("telemetry.log.level is debug: each request writes lines.")
    if result.at_rest_bytes > _WORKER_BYTES * (snapshot.server.workers + 1):
        told.append("That is more memory than usual: fewer workers (server.workers) take less.")
    return told


def _cores() -> int:
    return len(os.sched_getaffinity(0))
