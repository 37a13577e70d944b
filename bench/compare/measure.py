"""Rounds: every workload asked of every peer in turns, and what the kernel says it cost.

A record is one run: CPU time per unit of all the peer's processes, its books written after the answer included, and of
its serving process alone; answers a second; what was lost; resident memory before the run and at its highest.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bench.compare.client import Client
from bench.compare.peers.base import Peer, Target, Way
from bench.compare.workloads import LIGHT, LIGHT_GAP_MS, Workload, small
from bench.path import process

QUIET_NS, LOOK_S, LOOKS = 2_000_000, 0.1, 20  # under 2 ms of CPU in 100 ms; those that never rest are not waited for


@dataclass(frozen=True)
class Contender:
    peer: Peer
    way: Way


@dataclass
class Found:
    """Everything that was measured: records by workload and peer; at light load by peer, `direct` being none.

    `unable`: why a peer was not asked, by workload and peer.
    """

    runs: dict[str, dict[str, list[dict[str, Any]]]] = field(default_factory=dict)
    light: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    unable: dict[str, dict[str, str]] = field(default_factory=dict)


def takes(peer: Peer, w: Workload) -> bool:
    """Whether this is asked of this peer. nginx translates nothing, and is asked for chat in place of a crossing."""
    return (peer.crosses or not w.crosses or is_floor(peer)) and (peer.tls or not w.tls)


def is_floor(peer: Peer) -> bool:
    return peer.name == "nginx"


def as_asked(peer: Peer, w: Workload) -> Workload:
    """The workload as this peer gets it."""
    return replace(w, speaks="chat") if is_floor(peer) and w.crosses else w


def only_counts(record: dict[str, Any]) -> bool:
    """Whether all that was wrong was the number of tokens: everything arrived, so there is something to measure."""
    return set(record["losses"]) == {"usage"}


def settle(root: int) -> None:
    """Wait until the peer rests: what it writes after the answer is its cost too, and must not fall to the next one."""
    last = -1
    for _ in range(LOOKS):
        now = process.cpu_ns(process.tree(root))
        if last >= 0 and now - last < QUIET_NS:
            return
        last = now
        time.sleep(LOOK_S)


def run(client: Client, contender: Contender, w: Workload, requests: int, number: int) -> dict[str, Any]:
    """One run of one workload by one peer; its record."""
    way, w = contender.way, as_asked(contender.peer, w)
    root = way.root(w.answer)
    pids = process.tree(root)
    workers = (way.worker,) if way.worker else ()
    rest, worker_rest = (sum(map(process.rss_bytes, of)) for of in (pids, workers))
    all_ns, worker_ns = process.cpu_ns(pids), process.cpu_ns(workers)
    with process.Peak(*pids) as peak:
        report = client.ask(way.target(w.answer, w.speaks, w.tls), w, requests)
    worker_ns = process.cpu_ns(workers) - worker_ns
    settle(root)
    all_ns = process.cpu_ns(process.tree(root)) - all_ns
    units = report["events"] if w.events else requests - report["lost"]
    return {
        "round": number,
        "us": all_ns / 1000 / units if units else None,
        "worker_us": worker_ns / 1000 / units if units and workers else None,
        "per_s": (requests - report["lost"]) / report["seconds"],
        "ended_per_s": report["requests"] / report["seconds"],
        "asked": requests,
        "lost": report["lost"],
        "losses": report["errors_by_kind"],
        "complaint": report["complaint"],
        "first_us": report["first_us"],
        "total_us": report["total_us"],
        "rss_before": rest,
        "worker_rss_before": worker_rest,
        "rss_peak": peak.bytes,
    }


def light(client: Client, target: Target, number: int, requests: int) -> dict[str, Any]:
    """Latency where there is hardly any load."""
    report = client.ask(target, LIGHT, requests, LIGHT_GAP_MS)
    return {"round": number, "total_us": report["total_us"], "asked": requests, "lost": report["lost"]}


def measure(
    workloads: Sequence[Workload],
    contenders: Sequence[Contender],
    client: Client,
    direct: Target,
    *,
    rounds: int,
    light_requests: int = LIGHT.most,
) -> Found:
    """All of it. The order of the peers turns with every round, so that none is always behind the same one."""
    found = Found()
    speed: dict[tuple[str, str], float] = {}

    def tell(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    for contender in contenders:  # first connections, caches, lazy imports; and how much to ask
        for w in workloads:
            if not takes(contender.peer, w):
                continue
            trial = small(w)
            record = run(client, contender, trial, trial.most, 0)
            name = contender.peer.name
            if not record["per_s"] and not only_counts(record):
                found.unable.setdefault(w.name, {})[name] = record["complaint"]
                tell(f"{name} cannot do “{w.name}”: {record['complaint'][:300]}")
            else:
                scale = trial.events / w.events if w.events else 1.0
                speed[name, w.name] = record["ended_per_s"] * scale
                found.runs.setdefault(w.name, {}).setdefault(name, [])
    for number in range(1, rounds + 1):
        order = contenders if number % 2 else contenders[::-1]
        began = time.monotonic()
        for w in workloads:
            if number > w.rounds_at_most:
                continue
            for contender in order:
                name = contender.peer.name
                if (name, w.name) in speed:
                    record = run(client, contender, w, w.requests(speed[name, w.name]), number)
                    found.runs[w.name][name].append(record)
                    if record["lost"]:
                        told = f"{record['lost']} of {record['asked']} in “{w.name}”: {record['complaint'][:300]}"
                        tell(f"{name} lost {told}")
        found.light.setdefault("direct", []).append(light(client, direct, number, light_requests))
        for contender in order:
            target = contender.way.target(LIGHT.answer, "chat", False)
            record = light(client, target, number, light_requests)
            found.light.setdefault(contender.peer.name, []).append(record)
        tell(f"round {number} of {rounds} done in {time.monotonic() - began:.0f} s")
    return found
