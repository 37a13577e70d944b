"""Measure the gateway beside nginx and print the table of docs/performance.md.

    python -m bench.path                  every workload, five interleaved rounds (about ten minutes)
    python -m bench.path --only unary     those whose name contains the word
    python -m bench.path --smoke          seconds; does everything work, whatever it costs?

A workload may also be measured where the gateway translates: a Messages client on the mock's OpenAI Chat, and the other
way round. nginx translates nothing; beside it stands what it costs to hand on chat as it is, the floor of both.

The proxies share one core, the mock upstream and the client the other. Compared is the CPU time of the process that
serves (nginx's worker, the gateway's worker); what the gateway's other processes use has a column of its own. Every
answer and every event is checked by the client; one that is missing, mixed up or out of order fails the run.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from bench import tools
from bench.path import peers, process
from bench.path.peers import Peer


@dataclass(frozen=True)
class Workload:
    """`answer` is the mock's first path segment; `limit` the ratio to nginx that the gateway may cost.

    `crosses`: also measured where formats are translated; `crossing_limit` is the budget for that, if there is one.
    """

    name: str
    answer: str
    connections: int
    requests: int
    body_bytes: int
    events: int = 0
    spread_ms: int = 0
    limit: float = 0.0
    aim: float = 0.0
    crosses: bool = False
    crossing_limit: float = 0.0


WORKLOADS = (
    Workload(
        "unary, 1 KB, 32 connections", "u1024", 32, 20_000, 1024,
        limit=4.5, aim=3.3, crosses=True, crossing_limit=5.0,
    ),
    Workload("unary, 200 KB, 8 connections", "u1024", 8, 3_000, 204_800, limit=3.5, aim=2.3, crosses=True),
    Workload(
        "stream, 200 events unpaced, 32 connections", "s200-0", 32, 640, 1024, events=200,
        limit=1.2, aim=1.2, crosses=True, crossing_limit=1.3,
    ),
    Workload(
        "64 streams, 20 ms apart", "s200-20", 64, 128, 1024, events=200, spread_ms=20,
        limit=1.9, aim=1.6, crosses=True,
    ),
    Workload("1,000 streams, 20 ms apart", "s200-20", 1000, 1000, 1024, events=200, spread_ms=2000, limit=1.9, aim=1.6),
)  # fmt: skip
LIGHT = Workload("light load", "u1024", 1, 300, 1024)
LIGHT_THINK_MS = 3


def small(w: Workload) -> Workload:
    """The same shape in a fraction of a second."""
    events = min(w.events, 20)
    return replace(
        w,
        answer=re.sub(r"^s\d+", f"s{events}", w.answer),
        connections=min(w.connections, 16),
        requests=min(w.requests, 64),
        events=events,
        spread_ms=min(w.spread_ms, 50),
    )


def takes(peer: Peer, w: Workload) -> bool:
    """Whether this workload is measured on this way."""
    return w.crosses or not peer.crosses


def drive(core: int | None, peer: Peer, w: Workload, think_ms: int = 0) -> dict[str, Any]:
    """One run of the client; its report with the CPU time that the peer's processes used meanwhile."""
    path, model = peer.aim(w.answer)
    serving = (peer.serving,) if peer.serving else ()
    others = tuple(pid for pid in peer.pids if pid not in serving) if serving else ()
    before = process.cpu_ns(serving), process.cpu_ns(others)
    report = tools.load(
        f"http://127.0.0.1:{peer.port}{path}", model, "--format", peer.speaks, "--answer", w.answer,
        "--connections", w.connections, "--requests", w.requests, "--body-bytes", w.body_bytes,
        "--think-ms", think_ms, "--spread-ms", w.spread_ms, core=core,
    )  # fmt: skip
    after = process.cpu_ns(serving), process.cpu_ns(others)
    units = report["events"] if w.events else report["requests"]
    report["serving_us"] = (after[0] - before[0]) / 1000 / max(units, 1)
    report["others_us"] = (after[1] - before[1]) / 1000 / max(report["requests"], 1)
    return report


def settle(peer: Peer) -> None:
    """Books are written after the answer; let them be written before the next peer is measured on the same core."""
    last = -1
    for _ in range(50):
        now = process.cpu_ns(peer.pids)
        if last >= 0 and now - last < 2_000_000:  # under 2 ms in 100 ms
            return
        last = now
        subprocess.run(["sleep", "0.1"], check=True)


def measure(
    workloads: list[Workload],
    light_load: Workload,
    rounds: int,
    client_core: int | None,
    contenders: list[Peer],
    direct: Peer,
) -> tuple[dict[str, Any], list[str]]:
    """Every workload by every contender, in turns; and the latency that each adds when there is hardly any load."""
    found: dict[str, Any] = {w.name: {peer.name: [] for peer in contenders if takes(peer, w)} for w in workloads}
    light: dict[str, list[dict[str, Any]]] = {peer.name: [] for peer in [direct, *contenders]}
    faults: list[str] = []

    def note(peer: Peer, w: Workload, report: dict[str, Any]) -> dict[str, Any]:
        if report["errors"]:
            faults.append(f"{peer.name}, {w.name}: {report['errors']} wrong ({report['complaint']})")
        return report

    for peer in contenders:  # first connections, caches, lazy imports
        for w in workloads:
            if takes(peer, w):
                note(peer, w, drive(client_core, peer, small(w)))
    for number in range(rounds):
        order = contenders if number % 2 == 0 else contenders[::-1]
        for w in workloads:
            for peer in (peer for peer in order if takes(peer, w)):
                assert peer.serving is not None
                rest = process.rss_bytes(peer.serving)
                with process.Peak(peer.serving) as peak:
                    report = note(peer, w, drive(client_core, peer, w))
                report |= {"rss_before": rest, "rss_peak": peak.bytes}
                found[w.name][peer.name].append(report)
                settle(peer)
        for peer in [direct, *order]:
            light[peer.name].append(note(peer, light_load, drive(client_core, peer, light_load, LIGHT_THINK_MS)))
        print(f"round {number + 1} of {rounds} done", file=sys.stderr, flush=True)
    return {"workloads": found, "light": light}, faults


# ------------------------------------------------------------------------------------------------- the table


def middle(reports: list[dict[str, Any]], *keys: str) -> float:
    def dig(report: Any) -> Any:
        for key in keys:
            report = report[key]
        return report

    return statistics.median(dig(report) for report in reports)


def unit(w: Workload) -> str:
    return "event" if w.events else "request"


def cost(reports: list[dict[str, Any]]) -> str:
    return f"{middle(reports, 'serving_us'):.1f}" if reports else "–"


def ratio(floor: list[dict[str, Any]], ours: list[dict[str, Any]]) -> str:
    """Compare round by round: what disturbed the one disturbed the other."""
    if not (floor and ours):
        return "–"
    ratios = [b["serving_us"] / a["serving_us"] for a, b in zip(floor, ours, strict=True)]
    return f"**{statistics.median(ratios):.2f}×** ({min(ratios):.2f}–{max(ratios):.2f})"


def crossing_table(workloads: list[Workload], result: dict[str, Any]) -> list[str]:
    """What translation adds: each crossing beside nginx and beside the gateway's own native lane."""
    lines = [
        "| client on upstream | work | unit | nginx µs | native µs | translated µs | ratio to nginx | must "
        "| more than native, µs |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    crossed = [w for w in workloads if w.crosses]
    names = {name: w for w in crossed for name in result["workloads"][w.name] if name not in ("nginx", "arbiter")}
    for name in names:
        for w in crossed:
            by_peer = result["workloads"][w.name]
            floor, native, ours = by_peer.get("nginx", []), by_peer["arbiter"], by_peer[name]
            more = [b["serving_us"] - a["serving_us"] for a, b in zip(native, ours, strict=True)]
            must = f"≤ {w.crossing_limit}×" if w.crossing_limit else "–"
            cells = [name, w.name, unit(w), cost(floor), cost(native), cost(ours), ratio(floor, ours), must]
            cells.append(f"{statistics.median(more):+.1f} ({min(more):+.1f} to {max(more):+.1f})")
            lines.append("| " + " | ".join(cells) + " |")
    return lines if names else []


def table(workloads: list[Workload], result: dict[str, Any], facts: dict[str, str]) -> str:
    """The findings as Markdown: medians over the rounds, ratios with their spread."""
    lines = [
        f"Measured {facts['date']} on {facts['machine']}; {facts['versions']}.",
        f"Medians of {facts['rounds']} interleaved rounds; in brackets the lowest and highest ratio of a round.",
        "",
        "| work | unit | nginx µs | Arbiter worker µs | ratio | must | Arbiter's other processes, µs/request "
        "| requests/s (nginx) | first byte p50/p99 ms (nginx) |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for w in workloads:
        by_peer = result["workloads"][w.name]
        floor, ours = by_peer.get("nginx", []), by_peer.get("arbiter", [])
        cells = [w.name, unit(w), cost(floor), cost(ours), ratio(floor, ours)]
        cells.append(f"≤ {w.limit}× (aim {w.aim}×)" if w.limit != w.aim else f"≤ {w.limit}×")
        cells.append(f"{middle(ours, 'others_us'):.1f}" if ours else "–")

        def pair(text: Any, floor: list[Any] = floor, ours: list[Any] = ours) -> str:
            return f"{text(ours) if ours else '–'} ({text(floor) if floor else '–'})"

        cells.append(pair(lambda runs: f"{statistics.median(r['requests'] / r['seconds'] for r in runs):,.0f}"))
        cells.append(
            pair(
                lambda runs: f"{middle(runs, 'first_us', 'p50') / 1e3:.2f}/{middle(runs, 'first_us', 'p99') / 1e3:.2f}"
            )
        )
        lines.append("| " + " | ".join(cells) + " |")
    if crossed := crossing_table(workloads, result):
        lines += ["", *crossed]
    lines += ["", "| added over direct at light load | p50 ms | p99 ms |", "|---|---|---|"]
    base = result["light"]["direct"]
    for name, runs in result["light"].items():
        if name != "direct":
            added = [middle(runs, "total_us", p) - middle(base, "total_us", p) for p in ("p50", "p99")]
            lines.append(f"| {name} | {added[0] / 1e3:.3f} | {added[1] / 1e3:.3f} |")
    crowd = max((w for w in workloads if w.events), key=lambda w: w.connections, default=None)
    if crowd and (ours := result["workloads"][crowd.name].get("arbiter")):
        grown = [(run["rss_peak"] - run["rss_before"]) / crowd.connections / 1024 for run in ours]
        at_rest = result["workloads"][workloads[0].name]["arbiter"][0]["rss_before"] / 1e6
        lines += [
            "",
            f"Worker memory: {at_rest:.0f} MB before the first run; {grown[0]:.0f} KB more per open stream at "
            f"{crowd.connections:,} streams in the first round.",
        ]
    return "\n".join(lines)


def machine() -> str:
    info = Path("/proc/cpuinfo").read_text()
    found = re.search(r"^model name\s*:\s*(.+)$", info, re.MULTILINE)
    return f"{len(os.sched_getaffinity(0))} cores of {found.group(1) if found else platform.machine()}"


def versions() -> str:
    parts = [f"Python {platform.python_version()}"]
    parts += [f"{name} {metadata.version(name)}" for name in ("granian", "uvloop", "msgspec", "lmdb")]
    with contextlib.suppress(OSError):
        said = subprocess.run(["nginx", "-v"], check=False, capture_output=True, text=True).stderr
        parts.append(said.strip().rpartition(": ")[2].replace("/", " "))
    return ", ".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.path", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="workloads whose name contains this")
    parser.add_argument("--rounds", type=tools.at_least_one, default=5)
    parser.add_argument(
        "--peers",
        default="nginx,arbiter,crossings",
        help="comma-separated: nginx, arbiter, crossings (of the gateway, between formats)",
    )
    parser.add_argument("--smoke", action="store_true", help="a few seconds, every check, no figures worth keeping")
    parser.add_argument("--out", type=Path, default=peers.ROOT / "bench" / "results" / "path.json")
    options = parser.parse_args()

    workloads = [w for w in WORKLOADS if options.only in w.name]
    if not workloads:
        parser.error(f"no workload's name contains {options.only!r}")
    names = options.peers.split(",")
    if strange := set(names) - {"nginx", "arbiter", "crossings"}:
        parser.error(f"no peer {', '.join(sorted(strange))}; there are nginx, arbiter and crossings")
    if "crossings" in names and "arbiter" not in names:
        parser.error("crossings are of the gateway: --peers arbiter,crossings")
    light = LIGHT
    tools.say_smoke(options.smoke)
    if options.smoke:
        workloads, light, options.rounds = [small(w) for w in workloads], small(LIGHT), 1
    cores = sorted(os.sched_getaffinity(0))
    proxy_core, client_core = (cores[0], cores[1]) if len(cores) > 1 else (None, None)
    busy = os.getloadavg()[0]
    if busy > 0.5 and not options.smoke:
        print(f"This machine is busy (load {busy:.1f}); expect noisy figures.", file=sys.stderr)

    with tempfile.TemporaryDirectory(prefix="bench-path-") as tmp, contextlib.ExitStack() as stack:
        folder = Path(tmp)
        direct = stack.enter_context(peers.mock(folder, client_core))
        contenders = []
        if "nginx" in names:
            contenders.append(stack.enter_context(peers.nginx(folder, proxy_core, direct.port)))
        if "arbiter" in names:
            answers = {w.answer for v in workloads for w in (v, small(v))} | {LIGHT.answer}
            gateway = stack.enter_context(peers.arbiter(folder, proxy_core, direct.port, answers))
            contenders += [gateway, *(peers.crossings(gateway) if "crossings" in names else ())]
        result, faults = measure(workloads, light, options.rounds, client_core, contenders, direct)

    facts = {
        "date": datetime.date.today().isoformat(),
        "machine": machine(),
        "versions": versions(),
        "rounds": str(options.rounds),
    }
    print(table(workloads, result, facts))
    if not options.smoke:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        written = {"facts": facts, "load_before": busy, "definitions": [asdict(w) for w in workloads], **result}
        options.out.write_text(json.dumps(written, indent=1) + "\n", "utf-8")
    for fault in faults:
        print(f"FAULT {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    tools.command(main)
