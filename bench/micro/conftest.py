"""Each benchmark runs on both twins; the summary says what one event costs on each, and how many times the C side wins.

Run: `python -m pytest bench/micro` (`--benchmark-disable` only sees that they work).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Collect `bench_*.py` here when the directory is named; a file named by itself pytest finds alone."""
    ours = file_path.match("bench_*.py") and not parent.session.isinitpath(file_path)
    return pytest.Module.from_parent(parent, path=file_path) if ours else None


@pytest.fixture(params=["py", "c"])
def side(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def twin(side: str) -> Callable[[str], ModuleType]:
    """The module of a name on the side under test."""
    return lambda name: importlib.import_module(f"arbiter._speedups.{side}.{name}")


@pytest.fixture
def measure(benchmark: Any, request: pytest.FixtureRequest, side: str) -> Callable[..., None]:
    """Measure `run`, which handles `units` things; cases of one name are compared across the sides."""

    def start(run: Callable[[], object], *, units: int) -> None:
        case = request.node.name.removeprefix("test_").replace(f"[{side}]", "").replace(f"[{side}-", "[")
        benchmark.group = f"{request.node.path.stem.removeprefix('bench_')}: {case}"
        benchmark.extra_info.update(side=side, units=units)
        benchmark(run)

    return start


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    session = getattr(config, "_benchmarksession", None)
    rows: dict[str, dict[str, float]] = {}
    for bench in session.benchmarks if session is not None else ():
        if "units" in bench.extra_info and bench.stats:
            ns = bench.stats.min * 1e9 / bench.extra_info["units"]
            rows.setdefault(bench.group, {})[bench.extra_info["side"]] = ns
    if rows:
        terminalreporter.section("ns each: py, c, and py / c")
        for name, sides in rows.items():
            py, c = sides.get("py", 0.0), sides.get("c", 0.0)
            ratio = f"{py / c:8.1f}x" if py and c else ""
            terminalreporter.write_line(f"{name:48} {py:14,.0f} {c:14,.0f} {ratio}")
