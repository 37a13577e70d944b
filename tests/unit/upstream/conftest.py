"""Every test of the upstream client runs on both loops: the one we ship on, and the one that is written down."""

from __future__ import annotations

import pytest

from tests.fakes.loops import Run, run_on


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    return run_on(request.param)
