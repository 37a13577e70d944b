"""How near vectors are to one another: both twins, and against each other."""

from __future__ import annotations

import random
from array import array
from types import ModuleType

import pytest

from arbiter._speedups.c import vectors as compiled
from arbiter._speedups.py import vectors as reference
from tests.twins.conftest import twin


@pytest.fixture
def vectors(side: str) -> ModuleType:
    return twin(side, "vectors")


def packed(*numbers: float) -> bytes:
    return array("f", numbers).tobytes()


def test_the_nearest_of_several_is_found_with_its_product(vectors: ModuleType) -> None:
    asked = packed(0.6, 0.8)
    assert vectors.nearest(asked, packed(1, 0, 0.6, 0.8, 0, 1)) == (1, pytest.approx(1.0))
    assert vectors.nearest(asked, packed(1, 0)) == (0, pytest.approx(0.6))


def test_of_equals_the_first_counts_also_where_all_point_away(vectors: ModuleType) -> None:
    """A product below zero is still the best of its like, and zeros are no vector's secret."""
    assert vectors.nearest(packed(1, 0), packed(-1, 0, -0.5, 0, -0.5, 0)) == (1, pytest.approx(-0.5))
    assert vectors.nearest(packed(1, 0), packed(0, 1, 0, 1)) == (0, 0.0)


@pytest.mark.parametrize("sizes", [(0, 0), (0, 8), (8, 0), (8, 12), (6, 12), (12, 8), (3, 3)])
def test_sizes_that_do_not_fit_are_refused(vectors: ModuleType, sizes: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=f"{sizes[1]} bytes of vectors for one of {sizes[0]}"):
        vectors.nearest(bytes(sizes[0]), bytes(sizes[1]))


@pytest.mark.parametrize("width", [1, 2, 7, 8, 9, 15, 16, 384, 1536, 3072])
def test_the_twins_agree(width: int) -> None:
    """At every remainder of a width by the lanes of the compiled one, and wherever in memory the bytes begin."""
    drawn = random.Random(width)
    asked = packed(*(drawn.gauss(0, 1) for _ in range(width)))
    many = packed(*(drawn.gauss(0, 1) for _ in range(5 * width)))
    best, found = reference.nearest(asked, many)
    assert compiled.nearest(asked, many) == (best, pytest.approx(found, rel=1e-6, abs=1e-6))


def test_numbers_that_are_none_do_not_stop_it(vectors: ModuleType) -> None:
    """What a store holds may be anything: a NaN is nearest to nothing that comes before it."""
    best, _ = vectors.nearest(packed(1, 0), packed(1, 0, float("nan"), 0, float("-inf"), 0))
    assert best == 0
