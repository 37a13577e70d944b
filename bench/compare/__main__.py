"""Measure Arbiter beside every peer that is installed.

    bash bench/compare/peers.sh           install the peers (into .cache/peers), once
    python -m bench.compare               all workloads, three rounds in turns: about ten minutes with all peers
    python -m bench.compare --only unary --peers arbiter,rolter
    python -m bench.compare --smoke       seconds; does everything work, whatever it costs?
    python -m bench.compare --from bench/results/compare.json    the table and the chart of an earlier run

Each peer runs on one core, the mock upstream and the client on the other. Compared is the CPU time of all that belongs
to a peer, as the kernel's scheduler counts it, in ratios to nginx. The client checks every answer and every event: what
a peer loses or mangles is counted and shown; it is Arbiter's and nginx's own losses that fail the run.

Tables go to standard output; compare.json and compare.svg to bench/results.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench import tools
from bench.compare import chart, figures
from bench.compare.behind_tls import behind_tls
from bench.compare.client import Client
from bench.compare.measure import Contender, Found, measure
from bench.compare.peers import ALL
from bench.compare.peers.base import CHAT, Peer, Place, Target
from bench.compare.workloads import LIGHT, WORKLOADS, Workload, answers, small
from bench.path import peers as path_peers
from bench.path.__main__ import machine, versions


def chosen(words: str) -> list[tuple[Peer, str]]:
    """The peers that are meant and there, with their versions; a line on standard error for each that is not there."""
    wanted = [word.strip().lower() for word in words.split(",") if word.strip()]
    found = []
    for peer in ALL:
        if wanted and peer.name != figures.FLOOR and not any(word in peer.name.lower() for word in wanted):
            continue
        if version := peer.version():
            found.append((peer, version))
        else:
            print(f"{peer.name} is not installed: {peer.install}", file=sys.stderr)
    return found


def compare(
    workloads: Sequence[Workload], there: Sequence[tuple[Peer, str]], *, rounds: int, light_requests: int
) -> tuple[Found, list[Peer]]:
    """Start everyone, measure, stop everyone; the peers that could be started."""
    cores = sorted(os.sched_getaffinity(0))
    proxy_core, client_core = (cores[0], cores[1]) if len(cores) > 1 else (None, None)
    with tempfile.TemporaryDirectory(prefix="bench-compare-") as tmp, contextlib.ExitStack() as stack:
        folder = Path(tmp)
        client = Client(client_core)
        mock_port, _ = stack.enter_context(tools.mock(core=client_core))
        upstream = stack.enter_context(behind_tls(folder, client_core, mock_port))
        place = Place(folder, proxy_core, upstream, answers(tuple(workloads)))
        contenders = []
        for peer, version in there:
            print(f"starting {peer.name} {version}", file=sys.stderr, flush=True)
            try:
                contenders.append(Contender(peer, stack.enter_context(peer.start(place))))
            except RuntimeError as error:
                if peer.name in (figures.FLOOR, figures.OURS):
                    raise
                print(f"{peer.name} does not start: {error}", file=sys.stderr)
        direct = Target(mock_port, f"/{LIGHT.answer}{CHAT}", "bench")
        found = measure(workloads, contenders, client, direct, rounds=rounds, light_requests=light_requests)
        return found, [contender.peer for contender in contenders]


def faults(result: dict[str, Any]) -> list[str]:
    """What Arbiter, or nginx in its place, did wrong."""
    found = []
    for name in (figures.FLOOR, figures.OURS):
        for workload, by_peer in result["unable"].items():
            if name in by_peer:
                found.append(f"{name}, {workload}: {by_peer[name]}")
        for workload, by_peer in result["runs"].items():
            for run in by_peer.get(name, []):
                if run["lost"]:
                    found.append(f"{name}, {workload}: {run['lost']} lost ({run['complaint']})")
        found += [f"{name}, light load: {run['lost']} lost" for run in result["light"].get(name, []) if run["lost"]]
    return found


def write(result: dict[str, Any], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "compare.json").write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    (folder / "compare.svg").write_text(chart.svg(result), "utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="workloads whose name contains this")
    parser.add_argument("--peers", default="", help="comma-separated parts of names; nginx is always there")
    parser.add_argument("--rounds", type=tools.at_least_one, default=3)
    parser.add_argument("--smoke", action="store_true", help="a few seconds, every check, no figures worth keeping")
    parser.add_argument(
        "--out", type=Path, default=path_peers.ROOT / "bench" / "results", help="folder of JSON and SVG"
    )
    parser.add_argument("--from", dest="earlier", type=Path, help="print and draw an earlier run's JSON instead")
    options = parser.parse_args()

    if options.earlier:
        result = json.loads(options.earlier.read_text("utf-8"))
        print(figures.report(result))
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "compare.svg").write_text(chart.svg(result), "utf-8")
        return 0
    workloads = [w for w in WORKLOADS if options.only.lower() in w.name.lower()]
    if not workloads:
        parser.error(f"no workload's name contains {options.only!r}")
    there = chosen(options.peers)
    if not there or there[0][0].name != figures.FLOOR:
        print("Nothing can be compared without nginx, to which every ratio is.", file=sys.stderr)
        return 1
    if options.smoke:
        workloads, options.rounds = [small(w) for w in workloads], 1
    busy = os.getloadavg()[0]
    if busy > 0.5 and not options.smoke:
        print(f"This machine is busy (load {busy:.1f}); expect noisy figures.", file=sys.stderr)
    found, started = compare(
        workloads, there, rounds=options.rounds, light_requests=30 if options.smoke else LIGHT.most
    )
    result = {
        "facts": {
            "date": datetime.date.today().isoformat(),
            "machine": machine(),
            "versions": versions(),
            "rounds": options.rounds,
            "load_before": busy,
            "smoke": options.smoke,
        },
        "peers": [
            {"name": peer.name, "version": version, "keeps": peer.keeps} for peer, version in there if peer in started
        ],
        "workloads": [asdict(w) | {"unit": w.unit} for w in workloads],
        **asdict(found),
    }
    print(figures.report(result))
    if options.smoke:
        with tempfile.TemporaryDirectory() as nowhere:
            write(result, Path(nowhere))
    else:
        write(result, options.out)
    wrong = faults(result)
    for fault in wrong:
        print(f"FAULT {fault}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    tools.command(main)
