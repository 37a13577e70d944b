"""Each twin runs the same suite: `py`, the reference, then `c`. A C side that is not built fails, it is not skipped."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest


def twin(side: str, name: str) -> ModuleType:
    return importlib.import_module(f"arbiter._speedups.{side}.{name}")


@pytest.fixture(params=["py", "c"])
def side(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def sse(side: str) -> ModuleType:
    return twin(side, "sse")


@pytest.fixture
def reduce(side: str) -> ModuleType:
    return twin(side, "reduce")


@pytest.fixture
def usage(side: str) -> ModuleType:
    return twin(side, "usage")


@pytest.fixture
def carry(side: str) -> ModuleType:
    return twin(side, "carry")


@pytest.fixture
def answers(side: str) -> ModuleType:
    return twin(side, "answers")
