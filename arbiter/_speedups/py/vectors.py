"""How near vectors are to one another: the reference."""

from __future__ import annotations

from array import array
from operator import mul

__all__ = ["nearest"]


def nearest(asked: bytes, vectors: bytes) -> tuple[int, float]:
    """Which of the `vectors` has the largest dot product with `asked`, and what that is; of equal ones the first.

    Shapes: float32 in this machine's byte order; `vectors` is a whole number of them, one behind the other. Of unit
    vectors the product is the cosine of their angle.
    Errors: ValueError where the sizes do not fit, or there is none.
    """
    if not asked or len(asked) % 4 or not vectors or len(vectors) % len(asked):
        raise ValueError(f"{len(vectors)} bytes of vectors for one of {len(asked)}")
    wanted, numbers = array("f", asked), array("f", vectors)
    width, best, found = len(wanted), 0, 0.0
    for start in range(0, len(numbers), width):
        product = sum(map(mul, wanted, numbers[start : start + width]))
        if not start or product > found:
            best, found = start // width, product
    return best, found
