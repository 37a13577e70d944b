"""Every test of the upstream client runs on both loops: the one we ship on, and the one that is written down."""

from __future__ import annotations

import pytest

from arbiter.clock import monotonic
from arbiter.upstream import pool, transport
from tests.fakes.loops import Run, run_on


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    return run_on(request.param)


class Moved:
    """The clock by which the sweepers judge what is late, as a test moves it."""

    def __init__(self) -> None:
        self._by_s = 0.0

    def __call__(self) -> float:
        return monotonic() + self._by_s

    def passes(self, seconds: float) -> None:
        """So much later is it from now on."""
        self._by_s += seconds


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> Moved:
    """Sweepers that look all the time, by a clock of the test's: a budget may be longer than any machine stands still,
    and be used up in the moment in which the test wants it."""
    clock = Moved()
    for module, sweep_s in ((transport, "_SWEEP_S"), (pool, "SWEEP_S")):
        monkeypatch.setattr(module, "monotonic", clock)
        monkeypatch.setattr(module, sweep_s, 0.01)
    return clock
