"""How cost grows: with a body's bytes, its messages, open streams and workers. The curves of docs/performance.md.

    python -m bench.scaling               all of it (some six minutes)
    python -m bench.scaling --smoke       seconds; does everything work, whatever it costs?
    python -m bench.scaling --only turns  those whose name contains the word: bodies, turns, streams, workers

Measured is the CPU time of the gateway's workers, as in `bench.path`: the proxy on one core, the mock and the client on
the other. Behind the costs stands how each grew from the row above: no more than what was asked of it, if it is well.
The same conversations come again and again, but for their last message, as an agent's do.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import itertools
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench import tools
from bench.path import peers, process
from bench.path.__main__ import machine, settle, versions
from bench.path.peers import MESSAGES, Peer
from bench.scaling.client import Report, Shape, drive

KB = 1024
BODIES = (1 * KB, 4 * KB, 16 * KB, 64 * KB, 256 * KB, 1024 * KB, 4096 * KB)
TURNS = (1, 10, 50, 100, 250, 500)
TURNS_BODY = 512 * KB
STREAMS = (10, 100, 1_000, 2_000)
EVENTS_PER_S = 10_000
"""Of all streams together: how many events one read brings, and so what one costs, depends on it."""
STREAM_S = 2
CONNECTIONS = 8
_WORKER = "arbiter-w"


@dataclass
class Measured:
    """CPU of the workers per run, in microseconds; `faults` are what the client complained of."""

    spent_us: list[float] = field(default_factory=list)
    units: list[int] = field(default_factory=list)
    per_s: list[float] = field(default_factory=list)

    @property
    def each_us(self) -> float:
        return statistics.median(spent / max(1, units) for spent, units in zip(self.spent_us, self.units, strict=True))


class Bench:
    """The proxies and the one who asks them."""

    def __init__(self, seconds: float, rounds: int) -> None:
        self.seconds = seconds
        self.rounds = rounds
        self.faults: list[str] = []

    def run(
        self,
        peer: Peer,
        answer: str,
        shape: Shape,
        into: Measured,
        connections: int = CONNECTIONS,
        *,
        events: int = 0,
        spread_s: float = 0.0,
    ) -> Report:
        path, model = peer.aim(answer)
        pids = workers(peer)
        before = process.cpu_ns(pids)
        seconds = 0.0 if events else self.seconds
        report = asyncio.run(
            drive(peer.port, path, model, shape, connections, seconds=seconds, events=events, spread_s=spread_s)
        )
        into.spent_us.append((process.cpu_ns(pids) - before) / 1000)
        into.units.append(report.events if events else report.requests)
        into.per_s.append(report.requests / report.seconds)
        tools.see_all_run()
        if report.complaint is not None:
            self.faults.append(f"{peer.name}, {answer}, {shape}: {report.complaint}")
        settle(peer)
        return report

    def warm(self, peers_: Iterable[Peer]) -> None:
        for peer in peers_:
            path, model = peer.aim("u1024")
            shape = Shape(peer.speaks, KB, 1)
            report = asyncio.run(drive(peer.port, path, model, shape, CONNECTIONS, seconds=self.seconds / 2))
            tools.see_all_run()
            if report.complaint is not None:
                self.faults.append(f"{peer.name}: {report.complaint}")
            settle(peer)


def workers(peer: Peer) -> list[int]:
    """The processes that serve."""
    if peer.name == "nginx":
        return [peer.serving] if peer.serving is not None else []
    return [pid for pid in peer.pids if (Path("/proc") / str(pid) / "comm").read_text().startswith(_WORKER)]


def growth(cost: float, before: float | None, factor: float) -> str:
    """How much more a row costs than the one above, for `factor` times as much; "" in the first row."""
    return "" if before is None else f"{cost / before:.2f}× for {factor:.3g}×"


def row(*cells: object) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def per_shape(
    bench: Bench, ways: list[Peer], shapes: dict[str, Callable[[Peer], Shape]], label: str, amounts: list[float]
) -> list[str]:
    """µs per request for each shape by each way, the last of which is the one whose growth is told, after nginx."""
    found = {name: [Measured() for _ in ways] for name in shapes}
    for number in range(bench.rounds):
        for name, make in shapes.items():
            order = list(zip(ways, found[name], strict=True))
            for way, into in order if number % 2 == 0 else order[::-1]:
                bench.run(way, "u1024", make(way), into)
    native = next(at for at, way in enumerate(ways) if way.name == "chat")
    lines = [
        row(
            label, *(f"{way.name} µs" for way in ways), *(f"{way.name}, beside the row above" for way in ways[native:])
        ),
        row(*["---"] * (1 + len(ways) + len(ways) - native)),
    ]
    last: list[float | None] = [None] * len(ways)
    for (name, measured), factor in zip(
        found.items(), [0.0, *(b / a for a, b in itertools.pairwise(amounts))], strict=True
    ):
        costs = [one.each_us for one in measured]
        grown = [growth(costs[at], last[at], factor) for at in range(native, len(ways))]
        lines.append(row(name, *(f"{cost:,.0f}" for cost in costs), *grown))
        last = list(costs)
    return lines


def ways_of(gateway: Peer) -> list[Peer]:
    messages_on_chat = next(peer for peer in peers.crossings(gateway) if peer.speaks == "messages")
    messages = replace(
        gateway, name="Messages", aim=lambda answer: (MESSAGES, f"anthropic-{answer}"), speaks="messages"
    )
    return [replace(gateway, name="chat"), messages, messages_on_chat]


def size_name(size: int) -> str:
    return f"{size // KB:,} KB" if size < KB * KB else f"{size // (KB * KB)} MB"


def bodies(bench: Bench, nginx: Peer, gateway: Peer, sizes: tuple[int, ...]) -> list[str]:
    def shape(size: int) -> Callable[[Peer], Shape]:
        # As agents send it: the longer, the more turns.
        return lambda way: Shape(way.speaks, size, max(1, size // (4 * KB)))

    shapes = {size_name(size): shape(size) for size in sizes}
    return per_shape(bench, [nginx, *ways_of(gateway)], shapes, "body", [float(size) for size in sizes])


def turns(bench: Bench, gateway: Peer, counts: tuple[int, ...], size: int) -> list[str]:
    def shape(count: int) -> Callable[[Peer], Shape]:
        return lambda way: Shape(way.speaks, size, count)

    shapes = {str(count): shape(count) for count in counts}
    label = f"messages, {size_name(size)} in all"
    return per_shape(bench, ways_of(gateway), shapes, label, [float(count) for count in counts])


def stream_answers(counts: tuple[int, ...], seconds: int) -> dict[int, tuple[int, int]]:
    """How many events, and how many milliseconds apart, so that all streams together bring EVENTS_PER_S."""
    return {count: (max(4, EVENTS_PER_S * seconds // count), max(1, 1000 * count // EVENTS_PER_S)) for count in counts}


def streams(bench: Bench, nginx: Peer, gateway: Peer, counts: tuple[int, ...], seconds: int) -> list[str]:
    """The slope of two runs, one with twice the events of the other: what an event costs, without the stream around."""
    assert gateway.serving is not None
    lines = [
        row(
            "open streams", "events/s", "nginx µs/event", "Arbiter µs/event", "more memory of the worker per stream, KB"
        ),
        row(*["---"] * 5),
    ]
    shape = Shape("chat", KB, 1, stream=True)
    at_rest = process.rss_bytes(gateway.serving)
    for count, (events, gap_ms) in stream_answers(counts, seconds).items():
        spread_s = min(1.0, events * gap_ms / 2000)
        slopes: dict[str, list[float]] = {nginx.name: [], gateway.name: []}
        with process.Peak(gateway.serving) as peak:
            for _, peer in itertools.product(range(bench.rounds), (nginx, gateway)):
                short, long = Measured(), Measured()
                for into, many in ((short, events), (long, 2 * events)):
                    bench.run(peer, f"s{many}-{gap_ms}", shape, into, count, events=many, spread_s=spread_s)
                if long.units[0] > short.units[0]:
                    more_us = long.spent_us[0] - short.spent_us[0]
                    slopes[peer.name].append(more_us / (long.units[0] - short.units[0]))
        told = [f"{statistics.median(found):.1f}" if found else "–" for found in slopes.values()]
        memory = f"{(peak.bytes - at_rest) / count / KB:.0f}" if count >= 100 else "–"
        lines.append(row(f"{count:,}", f"{1000 * count // gap_ms:,}", *told, memory))
    return lines


def by_workers(bench: Bench, folder: Path, core: int | None, mock: Peer, counts: Iterable[int]) -> list[str]:
    found: dict[int, Measured] = {}
    shape = Shape("chat", KB, 1)
    for count in counts:
        with peers.arbiter(folder, core, mock.port, ["u1024"], name=f"workers-{count}", workers=count) as gateway:
            bench.warm([replace(gateway, name="chat")])
            found[count] = Measured()
            for _ in range(bench.rounds):
                bench.run(gateway, "u1024", shape, found[count], 4 * CONNECTIONS)
    lines = [row("workers", "µs/request", "requests/s"), row(*["---"] * 3)]
    for count, measured in found.items():
        lines.append(row(count, f"{measured.each_us:,.0f}", f"{statistics.median(measured.per_s):,.0f}"))
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.scaling", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="curves whose name contains this")
    parser.add_argument("--rounds", type=tools.at_least_one, default=2)
    parser.add_argument("--smoke", action="store_true", help="a few seconds, every check, no figures worth keeping")
    options = parser.parse_args()
    wanted = [name for name in ("bodies", "turns", "streams", "workers") if options.only in name]
    if not wanted:
        parser.error(f"no curve's name contains {options.only!r}")
    sizes, counts, open_streams, seconds, stream_s = BODIES, TURNS, STREAMS, 1.5, STREAM_S
    tools.say_smoke(options.smoke)
    if options.smoke:
        sizes, counts, open_streams, seconds, stream_s, options.rounds = (KB, 256 * KB), (1, 50), (10, 50), 0.1, 1, 1
    cores = sorted(os.sched_getaffinity(0))
    core, client_core = (cores[0], cores[-1]) if len(cores) > 1 else (None, None)
    # One worker for each core that the client does not have, and twice as many to see what they cost each other.
    most = max(2, len(cores) - 1)
    by_count = sorted({1, 2, most})
    busy = os.getloadavg()[0]
    if busy > 0.5 and not options.smoke:
        print(f"This machine is busy (load {busy:.1f}); expect noisy figures.", file=sys.stderr)
    where = machine()
    if client_core is not None:
        os.sched_setaffinity(0, {client_core})

    bench = Bench(seconds, options.rounds)
    tables: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory(prefix="bench-scaling-") as tmp, contextlib.ExitStack() as stack:
        folder = Path(tmp)
        mock = stack.enter_context(peers.mock(folder, client_core))
        plan = stream_answers(open_streams, stream_s)
        answers = {"u1024"} | {f"s{many}-{gap}" for events, gap in plan.values() for many in (events, 2 * events)}
        if wanted != ["workers"]:
            nginx = stack.enter_context(peers.nginx(folder, core, mock.port))
            bench.warm([nginx])
        if "bodies" in wanted or "turns" in wanted:
            with peers.arbiter(folder, core, mock.port, answers) as gateway:
                bench.warm(ways_of(gateway))
                if "bodies" in wanted:
                    tables["Bytes"] = bodies(bench, nginx, gateway, sizes)
                if "turns" in wanted:
                    tables["Messages"] = turns(bench, gateway, counts, TURNS_BODY if not options.smoke else 64 * KB)
        if "streams" in wanted:
            # One that has served nothing long: what it kept of that would be memory that streams find there.
            with peers.arbiter(folder, core, mock.port, answers, name="streams") as gateway:
                bench.warm([replace(gateway, name="chat")])
                tables["Streams"] = streams(bench, nginx, gateway, open_streams, stream_s)
        if "workers" in wanted:
            tables["Workers"] = by_workers(bench, folder, core if len(cores) < 3 else None, mock, by_count)

    today = datetime.date.today().isoformat()
    print(f"Measured {today} on {where} (load {busy:.1f} before); {versions()}. Medians of {options.rounds} rounds.")
    for name, lines in tables.items():
        print(f"\n**{name}**\n", *lines, sep="\n")
    for fault in bench.faults:
        print(f"FAULT {fault}", file=sys.stderr)
    return 1 if bench.faults else 0


if __name__ == "__main__":
    tools.command(main)
