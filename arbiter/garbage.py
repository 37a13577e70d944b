"""The collector of cycles, told what a process that serves is like."""

from __future__ import annotations

import gc

_THRESHOLD = (10_000, 20, 50)


def rarely() -> None:
    """What is here now stays: the collector need not look through it again, nor after every few requests.

    Requests and their rows leave hardly any cycles behind.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLD)
