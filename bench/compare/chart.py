"""The overview as an SVG: for each workload a bar for each peer, times nginx's CPU, on a logarithmic axis."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any
from xml.sax.saxutils import escape

from bench.compare.figures import FLOOR, OURS, Spread, ratio, remark, times

COLUMNS, WIDTH, LABELS, VALUES = 2, 490, 124, 106  # panels side by side; a panel; its names; its figures
BAR, GAP, TITLE, AXIS, MARGIN = 14, 6, 34, 26, 24
STYLE = """
  svg { font: 12px system-ui, sans-serif; background: #fff; fill: #222 }
  .title { font-weight: 600; font-size: 13px } .head { font-weight: 600; font-size: 16px }
  .faint, .tick { fill: #666 } .tick { font-size: 10px }
  .bar { fill: #9fb3c8 } .ours { fill: #d9622b } .floor { fill: #5b6f82 }
  .grid { stroke: #e2e6ea } .whisker { stroke: #222; stroke-width: 1.2 }
  @media (prefers-color-scheme: dark) {
    svg { background: #16191d; fill: #e6e6e6 } .faint, .tick { fill: #9aa4ad } .bar { fill: #4d6378 }
    .ours { fill: #e9804f } .floor { fill: #8fa3b5 } .grid { stroke: #2b3138 } .whisker { stroke: #e6e6e6 }
  }
"""


def ticks(top: float) -> list[float]:
    """1, 2, 5, 10 … up to the first that is not below `top`."""
    found = [1.0]
    while found[-1] < top:
        power = 10.0 ** math.floor(math.log10(found[-1]) + 1e-9)
        lead = round(found[-1] / power)
        found.append({1: 2, 2: 5, 5: 10}[lead] * power)
    return found if len(found) > 1 else [1.0, 2.0]


def place(value: float, low: float, high: float, width: float) -> float:
    """Where a value lies on a logarithmic axis of that width; what is outside lies at its ends."""
    share = (math.log(value) - math.log(low)) / (math.log(high) - math.log(low))
    return width * min(1.0, max(0.0, share))


def text(x: float, y: float, what: str, style: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{style}" text-anchor="{anchor}">{escape(what)}</text>'


def panel(w: Mapping[str, Any], bars: list[tuple[str, Spread, str]], low: float, top: float) -> list[str]:
    """One workload: its bars, the cheapest first, with a whisker from the lowest to the highest round."""
    room = WIDTH - LABELS - VALUES
    foot = TITLE + len(bars) * (BAR + GAP)
    drawn = [text(0, 16, w["name"], "title")]
    marks = [tick for tick in ticks(top) if low <= tick <= top]
    for tick in marks if len(marks) < 7 else [tick for tick in marks if math.log10(tick) % 1 == 0]:
        x = LABELS + place(tick, low, top, room)
        drawn.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TITLE - 6}" y2="{foot}"/>')
        drawn.append(text(x, foot + 13, f"{tick:g}×", "tick", "middle"))
    for index, (name, found, note) in enumerate(bars):
        y = TITLE + index * (BAR + GAP)
        style = "bar ours" if name == OURS else "bar floor" if name == FLOOR else "bar"
        length = max(1.5, place(found.middle, low, top, room))
        ends = [LABELS + place(end, low, top, room) for end in (found.low, found.high)]
        drawn += [
            text(LABELS - 8, y + BAR - 3, name, "", "end"),
            f'<rect class="{style}" x="{LABELS}" y="{y}" width="{length:.1f}" height="{BAR}" rx="2"/>',
            f'<line class="whisker" x1="{ends[0]:.1f}" x2="{ends[1]:.1f}" y1="{y + BAR / 2}" y2="{y + BAR / 2}"/>',
            text(LABELS + max(length, ends[1] - LABELS) + 6, y + BAR - 3, times(found, alone=True) + note),
        ]
    return drawn


def svg(result: Mapping[str, Any]) -> str:
    """The whole chart; workloads that nobody but the floor could do are left out."""
    panels = []
    for w in result["workloads"]:
        by_peer = result["runs"].get(w["name"], {})
        bars = []
        for name, runs in by_peer.items():
            if found := ratio(by_peer.get(FLOOR, []), runs):
                wrong = remark(runs)
                bars.append((name, found, f", {wrong}" if wrong else ""))
        if len(bars) > 1:
            panels.append((w, sorted(bars, key=lambda bar: bar[1].middle)))
    if not panels:
        return ""
    top = ticks(max(found.high for _, bars in panels for _, found, _ in bars))[-1]
    low = min(0.5, *(found.low for _, bars in panels for _, found, _ in bars))
    rows = [panels[at : at + COLUMNS] for at in range(0, len(panels), COLUMNS)]
    heights = [TITLE + AXIS + max(len(bars) for _, bars in cells) * (BAR + GAP) for cells in rows]
    width = MARGIN + COLUMNS * (WIDTH + MARGIN)
    facts = result["facts"]
    drawn = [
        text(MARGIN, MARGIN + 12, "CPU time of a gateway, times nginx's (less is better)", "head"),
        text(
            MARGIN,
            MARGIN + 32,
            f"{facts['date']}, {facts['machine']}; all processes of each, logarithmic scale",
            "faint",
        ),
    ]
    y = 2 * MARGIN + 24
    for cells, height in zip(rows, heights, strict=True):
        for column, (w, bars) in enumerate(cells):
            x = MARGIN + column * (WIDTH + MARGIN)
            drawn += [f'<g transform="translate({x} {y})">', *panel(w, bars, low, top), "</g>"]
        y += height + MARGIN
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y}" viewBox="0 0 {width} {y}" role="img">'
    return "\n".join([head, f"<style>{STYLE}</style>", *drawn, "</svg>", ""])
