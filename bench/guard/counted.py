"""A pytest plugin: `benchmark` counts instructions instead of measuring time, where callgrind looks on.

Callgrind writes what it has counted, and begins anew, whenever the process enters the function that `python -m
bench.guard` names. `os.getppid` is one that nothing else here calls.
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

RUNS = 5
WARM_UPS = 3
NAMES = "ARBITER_GUARD_NAMES"
"""The environment variable with the file that gets the cases, in the order in which they were counted."""
TOO_LONG = (
    "two_megabytes", "4096]", "-1000]", "on Chat-200]", "on Messages-200]", "[100]", "nearest", "bench_state",
    "utf8_of", "bench_sock",
)  # fmt: skip
"""Cases whose preparation or run would take callgrind minutes, and those that wait for a disk or ask the kernel."""

_counted: list[str] = []


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The compiled side, and what has no sides: the Python twin is nobody's hot path."""
    left_out = [item for item in items if "[py" in item.name or any(word in item.nodeid for word in TOO_LONG)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


class Counted:
    """Stands in for pytest-benchmark's fixture."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.group: str | None = None
        self.extra_info: dict[str, Any] = {}

    def __call__(self, run: Callable[..., Any], *args: object) -> Any:
        for _ in range(WARM_UPS):
            made = run(*args)
        gc.collect()
        gc.disable()
        runs = range(RUNS)
        os.getppid()
        for _ in runs:
            run(*args)
        os.getppid()
        gc.enable()
        _counted.append(self._name)
        return made


@pytest.fixture
def benchmark(request: pytest.FixtureRequest) -> Counted:
    path, _, case = request.node.nodeid.rpartition("::")
    return Counted(f"{Path(path).stem.removeprefix('bench_')}: {case.removeprefix('test_')}")


def pytest_sessionfinish() -> None:
    Path(os.environ[NAMES]).write_text(json.dumps(_counted), "utf-8")
