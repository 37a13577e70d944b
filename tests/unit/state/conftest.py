"""State on a clock of the test's own, in memory and in LMDB."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from arbiter.state.base import Administered
from arbiter.state.lmdb_state import LmdbState
from arbiter.state.memory import Memory
from arbiter.state.shared import Shared

BOOT = "this-run"
MAP = 8 << 20


class Time:
    """Both clocks, standing still until somebody passes some time."""

    def __init__(self) -> None:
        self.monotonic_s = 1000.0
        self.wall_ms = 1_750_000_000_000

    def passes(self, seconds: float) -> None:
        self.monotonic_s += seconds
        self.wall_ms += round(seconds * 1000)

    def monotonic(self) -> float:
        return self.monotonic_s

    def now_ms(self) -> int:
        return self.wall_ms


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def open_lmdb(tmp_path: Path, time: Time) -> Iterator[Callable[..., LmdbState]]:
    """Opens the shared state: each call is as good as another process, but for the environment that they share."""
    opened = []

    def start(boot: str = BOOT, map_bytes: int = MAP) -> LmdbState:
        state = LmdbState(tmp_path / "state", boot, map_bytes=map_bytes, monotonic=time.monotonic, now_ms=time.now_ms)
        opened.append(state)
        return state

    yield start
    for state in opened:
        state.close()


@pytest.fixture
def open_shared(tmp_path: Path, time: Time) -> Iterator[Callable[..., Shared]]:
    """What a worker opens, over the same files."""
    opened = []

    def start(boot: str = BOOT, map_bytes: int = MAP) -> Shared:
        state = Shared(tmp_path, boot, map_bytes=map_bytes, monotonic=time.monotonic, now_ms=time.now_ms)
        opened.append(state)
        return state

    yield start
    for state in opened:
        state.close()


@pytest.fixture(params=["memory", "lmdb", "shared"])
def state(
    request: pytest.FixtureRequest,
    time: Time,
    open_lmdb: Callable[..., LmdbState],
    open_shared: Callable[..., Shared],
) -> Administered:
    """Each implementation: they give the same answers."""
    if request.param == "memory":
        return Memory(monotonic=time.monotonic, now_ms=time.now_ms)
    return open_lmdb() if request.param == "lmdb" else open_shared()
