"""What the gateway shows at its edges, headers and metrics, stands in docs/."""

from __future__ import annotations

import re
from pathlib import Path

from arbiter import metrics
from arbiter.wire import headers

ROOT = Path(__file__).parents[2]
HEADERS = (ROOT / "docs/headers.md").read_text("utf-8")
METRICS = (ROOT / "docs/metrics.md").read_text("utf-8")


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_header_that_crosses_is_documented() -> None:
    for name in (*headers.PROTOCOL_HEADERS, *headers.NEVER_FORWARDED, *headers.TO_CLIENT_NAMES):
        assert f"`{name}`" in HEADERS, name
    for part in (*headers.TO_CLIENT_PREFIXES, *headers.TO_CLIENT_PARTS):
        assert f"`{part}`" in HEADERS, part


def test_every_header_of_our_own_is_documented() -> None:
    sources = "\n".join(path.read_text("utf-8") for path in (ROOT / "arbiter").rglob("*.py"))
    a_workers_words_to_control = {"x-arbiter-peer", "x-arbiter-sharing", "x-arbiter-user"}
    ours = set(re.findall(r'"(x-arbiter-[a-z-]+)"', sources)) - a_workers_words_to_control
    assert ours
    assert {name for name in ours if f"`{name}`" not in HEADERS} == set()


def test_the_metrics_page_is_the_code() -> None:
    documented = {row[0].strip("`"): (row[1], tuple(re.findall(r"`([a-z_]+)`", row[2]))) for row in rows(METRICS)}
    expected = {"arbiter_build_info": ("gauge", ("version",))}
    expected |= {name: ("counter", labels) for name, (_, labels) in metrics.COUNTERS.items()}
    expected |= {name: ("histogram", labels) for name, (_, labels) in metrics.HISTOGRAMS.items()}
    expected |= dict.fromkeys(metrics.GAUGES, ("gauge", ()))
    assert documented == expected
