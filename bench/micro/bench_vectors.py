"""What it costs to compare a vector with that of a text, at the widths that models have."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable
from types import ModuleType

import pytest

Twin = Callable[[str], ModuleType]


@pytest.mark.parametrize("width", [384, 1536, 3072])
def test_nearest(twin: Twin, measure: Callable[..., None], width: int) -> None:
    drawn = random.Random(width)
    asked, kept = (array("f", [drawn.gauss(0, 1) for _ in range(width)]).tobytes() for _ in range(2))
    nearest = twin("vectors").nearest
    measure(lambda: nearest(asked, kept), units=1)
