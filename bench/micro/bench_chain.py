"""What it costs to hash a row of inputs in canonical form."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import ModuleType

import pytest

from bench.micro.prefix_cost import body, conversation

Twin = Callable[[str], ModuleType]


@pytest.mark.parametrize("size", [1_000, 200_000])
def test_inputs(twin: Twin, measure: Callable[..., None], size: int) -> None:
    raw = body(conversation(size, random.Random(size)))
    inputs = raw[raw.index(b"[") : -1]
    fold = twin("chain").fold

    def run() -> object:
        return fold(inputs, 0, bytes(32), 100_000)

    assert fold(inputs, 0, bytes(32), 100_000).is_over
    measure(run, units=1)


def test_what_is_told_of_a_short_conversation(twin: Twin, measure: Callable[..., None]) -> None:
    raw = body(conversation(1_000, random.Random(1)))
    inputs = raw[raw.index(b"[") : -1]
    told = twin("chain").told

    def run() -> object:
        return told(inputs, 0, 0, bytes(32), 100_000)

    assert run() is not None
    measure(run, units=1)
