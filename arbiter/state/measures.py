"""What workers measured of each target, and the medians of it. Pure: where it is kept is not known here."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

import msgspec

SAMPLES = 64  # of each target and worker
SAMPLE_MS = 3_600_000  # an hour ago, a provider was another one
MEDIANS_EVERY_S = 1.0
BUSY_S = 5.0  # a worker that said nothing for so long is gone, or stuck
BUSY_AGAIN_S = 2.0  # so often it says the same again
BUSY_READ_EVERY_S = 0.1


class Measured(msgspec.Struct, array_like=True):
    """The samples of one target by one worker, oldest first: three lists, because thousands are read at once.

    `at_ms`: when, in Unix milliseconds; `first_s`: seconds to the first event; `rate`: tokens per second.
    """

    at_ms: list[int]
    first_s: list[float]
    rate: list[float]

    def since(self, begin_ms: int) -> Measured:
        """Those that are newer than this."""
        start = bisect_right(self.at_ms, begin_ms)
        return Measured(self.at_ms[start:], self.first_s[start:], self.rate[start:]) if start else self


def added(
    old: Mapping[str, Measured], new: Mapping[str, Sequence[tuple[float, float]]], now_ms: int
) -> dict[str, Measured]:
    """Per target the samples with the new ones in, and without those that are too old or too many."""
    found = {}
    for target in {**old, **new}:
        live = old.get(target, Measured([], [], [])).since(now_ms - SAMPLE_MS)
        more = new.get(target, ())
        live = Measured(
            (live.at_ms + [now_ms] * len(more))[-SAMPLES:],
            (live.first_s + [first_s for first_s, _ in more])[-SAMPLES:],
            (live.rate + [rate for _, rate in more])[-SAMPLES:],
        )
        if live.at_ms:
            found[target] = live
    return found


def medians(workers: Iterable[Mapping[str, Measured]], now_ms: int) -> dict[str, tuple[float, float]]:
    """Per target over all workers. A stream too short to tell its rate (0) counts for the first value only."""
    firsts: dict[str, list[float]] = {}
    rates: dict[str, list[float]] = {}
    for worker in workers:
        for target, measured in worker.items():
            live = measured.since(now_ms - SAMPLE_MS)
            if live.at_ms:
                firsts.setdefault(target, []).extend(live.first_s)
                rates.setdefault(target, []).extend(live.rate)
    return {target: (_median(seconds), _median(rates[target])) for target, seconds in firsts.items()}


def _median(values: list[float]) -> float:
    """Of what is above zero. Of an even number the lower of the two in the middle: a value that was measured."""
    values.sort()
    nothing = bisect_right(values, 0.0)
    return values[nothing + (len(values) - nothing - 1) // 2] if nothing < len(values) else 0.0


def total(workers: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Requests under way per target, over these workers."""
    found: dict[str, int] = {}
    for busy in workers:
        for target, number in busy.items():
            found[target] = found.get(target, 0) + number
    return found
