"""From records to figures, and figures to Markdown: medians over the rounds, ratios to nginx with their spread."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bench import tools

FLOOR, OURS = "nginx", "Arbiter"
Record = Mapping[str, Any]


class Spread(NamedTuple):
    """The median of several rounds, and the lowest and highest of one."""

    middle: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread | None:
    return Spread(statistics.median(values), min(values), max(values)) if values else None


def ratio(floor: Sequence[Record], runs: Sequence[Record], key: str = "us") -> Spread | None:
    """How many times the floor it cost, compared round by round: what disturbed the one disturbed the other.

    `key`: `us`, or `worker_us`, which is compared with the floor's own where that has one. None: no round has both.
    """
    by_round = {run["round"]: run.get(key) or run["us"] for run in floor}
    pairs = [(by_round.get(run["round"]), run[key]) for run in runs]
    return spread([ours / nginx for nginx, ours in pairs if nginx and ours])


def middle(runs: Sequence[Record], *keys: str) -> float | None:
    """The median of what lies under `keys`, of the runs that have it."""
    values = []
    for run in runs:
        value: Any = run
        for key in keys:
            value = value and value[key]
        if value is not None:
            values.append(value)
    return statistics.median(values) if values else None


def added_ms(direct: Sequence[Record], runs: Sequence[Record], percentile: str) -> Spread | None:
    """What a peer adds to the time of an answer at light load, round by round, in milliseconds."""
    base = {run["round"]: run["total_us"][percentile] for run in direct}
    good = [run for run in runs if run["round"] in base and not run["lost"]]
    return spread([(run["total_us"][percentile] - base[run["round"]]) / 1000 for run in good])


def lost(runs: Sequence[Record]) -> tuple[int, int]:
    """How many were lost of how many."""
    return sum(run["lost"] for run in runs), sum(run["asked"] for run in runs)


def remark(runs: Sequence[Record]) -> str:
    """What stands behind a figure of theirs where something went wrong, in a few words."""
    gone, asked = lost(runs)
    if not gone:
        return ""
    only_counts = {kind for run in runs for kind in run["losses"]} == {"usage"}
    return "wrong token counts" if only_counts else f"{100 * gone / asked:.0f} % lost"


def kinds(runs: Sequence[Record]) -> str:
    """What became of them, by the client's words."""
    return ", ".join(sorted({kind for run in runs for kind in run["losses"]} or {"never ended"}))


def number(value: float | None, digits: int = 1) -> str:
    """With as many decimals as mean something: fewer for what is large."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}f}"


def times(found: Spread | None, *, bold: bool = False, alone: bool = False) -> str:
    """A ratio as it is printed, `alone` without its spread."""
    if found is None:
        return "–"
    digits = 0 if found.middle >= 100 else 1 if found.middle >= 10 else 2
    text = f"{found.middle:,.{digits}f}×"
    if bold:
        text = f"**{text}**"
    return text if alone else f"{text} ({found.low:,.{digits}f}–{found.high:,.{digits}f})"


def row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def head(*cells: str) -> list[str]:
    return [row(*cells), row(*("---" for _ in cells))]


def overview(result: Mapping[str, Any]) -> list[str]:
    """One row a peer, one column a workload: how many times nginx's CPU it takes."""
    workloads = result["workloads"]
    lines = head("CPU, times nginx's", *(w["short"] for w in workloads))
    for peer in result["peers"]:
        name = peer["name"]
        cells = []
        for w in workloads:
            runs = result["runs"].get(w["name"], {})
            found = ratio(runs.get(FLOOR, []), runs.get(name, []))
            text = times(found, bold=name == OURS, alone=True)
            if name in result["unable"].get(w["name"], {}):
                text = "fails"
            wrong = remark(runs.get(name, []))
            cells.append(f"{text} ({wrong})" if wrong else text)
        lines.append(row(f"{name} {peer['version']}", *cells))
    return lines


def detail(w: Mapping[str, Any], result: Mapping[str, Any]) -> list[str]:
    """One workload: what it cost everyone."""
    unit = w["unit"]
    lines = head(
        w["name"], f"µs/{unit}", "times nginx", f"its worker alone, µs/{unit}", "times nginx's",
        "answers/s", "first byte p50/p99 ms", "lost",
    )  # fmt: skip
    by_peer = result["runs"].get(w["name"], {})
    floor = by_peer.get(FLOOR, [])
    for peer in result["peers"]:
        name = peer["name"]
        if why := result["unable"].get(w["name"], {}).get(name):
            lines.append(row(name, f"fails: {' '.join(why.split())[:80]}".replace("|", "/"), *["–"] * 6))
        if not (runs := by_peer.get(name)):
            continue
        own = any(run["worker_us"] for run in runs)
        gone, asked = lost(runs)
        first = [middle(runs, "first_us", p) for p in ("p50", "p99")]
        lines.append(
            row(
                name,
                number(middle(runs, "us")),
                times(ratio(floor, runs), bold=name == OURS),
                number(middle(runs, "worker_us")) if own else "–",
                times(ratio(floor, runs, "worker_us")) if own else "–",
                number(middle(runs, "per_s"), 0),
                "/".join("–" if value is None else number(value / 1000, 2) for value in first),
                f"{gone:,} of {asked:,} ({kinds(runs)})" if gone else "0",
            )
        )
    return lines


def latency(result: Mapping[str, Any]) -> list[str]:
    """What each adds to an answer when there is hardly any load."""
    lines = head("added over direct, one request at a time", "p50 ms", "p99 ms")
    direct = result["light"].get("direct", [])
    for peer in result["peers"]:
        cells = []
        for percentile in ("p50", "p99"):
            found = added_ms(direct, result["light"].get(peer["name"], []), percentile)
            cells.append(f"{found.middle:.3f} ({found.low:.3f}–{found.high:.3f})" if found else "–")
        lines.append(row(peer["name"], *cells))
    return lines


def memory(result: Mapping[str, Any]) -> list[str]:
    """Resident memory: at rest, at the most, and per open stream of the workload with the most of them."""
    streams = max((w for w in result["workloads"] if w["events"]), key=lambda w: w["connections"], default=None)
    at = f"{streams['connections']:,} streams" if streams else "streams"
    lines = head(
        "resident memory, all processes", "at rest MB", "its worker alone", "at most MB", f"more per stream KB, {at}"
    )
    for peer in result["peers"]:
        runs = [run for by_peer in result["runs"].values() for run in by_peer.get(peer["name"], [])]
        if not runs:
            continue
        crowd = result["runs"].get(streams["name"], {}).get(peer["name"], []) if streams else []
        # The first round: later ones find what it left behind.
        grown = [max(0, run["rss_peak"] - run["rss_before"]) / streams["connections"] / 1024 for run in crowd[:1]]
        lines.append(
            row(
                peer["name"],
                number(min(run["rss_before"] for run in runs) / 1e6, 0),
                number(min(run["worker_rss_before"] for run in runs) / 1e6, 0) if runs[0]["worker_rss_before"] else "–",
                number(max(run["rss_peak"] for run in runs) / 1e6, 0),
                number(grown[0], 0) if grown else "–",
            )
        )
    return lines


def report(result: Mapping[str, Any]) -> str:
    """Everything, as Markdown."""
    facts = result["facts"]
    rounds = "one round" if facts["rounds"] == 1 else f"{facts['rounds']} rounds in turns"
    paced = " (two where streams are paced)" if facts["rounds"] > 2 else ""
    parts = [
        *([[tools.SMOKE]] if facts.get("smoke") else ()),
        [
            f"Measured {facts['date']} on {facts['machine']}, load {facts['load_before']:.1f} before it began; "
            f"{facts['versions']}. Medians of {rounds}{paced}; in brackets the lowest and highest of one round.",
        ],
        overview(result),
        ["What each does beside: " + "; ".join(f"{peer['name']}: {peer['keeps']}" for peer in result["peers"]) + "."],
        *(detail(w, result) for w in result["workloads"]),
        latency(result),
        memory(result),
    ]
    return "\n\n".join("\n".join(part) for part in parts)
