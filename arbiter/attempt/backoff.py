"""How long to wait before a target is tried again: a pure function of the failure's number, the hint and the draw."""

from __future__ import annotations

from arbiter.config.snapshot import Retry


def delay_s(retry: Retry, failures: int, hint_s: float | None, draw: float) -> float:
    """Seconds before the next try of one target after its `failures`-th failure (1 for the first).

    Doubling from `base_s`, at most `cap_s`, and spread by `draw` in [0, 1) over the upper half, so that the many
    callers of one outage do not all come back at once. A wait that the provider asked for is never cut short.
    """
    whole = min(retry.cap_s, retry.base_s * 2.0 ** min(failures - 1, 30))
    spread = whole * (0.5 + draw / 2)
    return spread if hint_s is None else max(spread, hint_s)
