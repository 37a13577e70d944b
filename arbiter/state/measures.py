"""What workers measured of each target, and the medians of it. Pure: where it is kept is not known here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

SAMPLES = 64  # of each target and worker
SAMPLE_MS = 3_600_000  # an hour ago, a provider was another one
MEDIANS_EVERY_S = 1.0
BUSY_S = 5.0  # a worker that said nothing for so long is gone, or stuck
BUSY_AGAIN_S = 2.0  # so often it says the same again
BUSY_READ_EVERY_S = 0.1

Sample = tuple[int, float, float]
"""(when, in Unix milliseconds; seconds to the first event; tokens per second)."""

Samples = dict[str, list[Sample]]
"""By target, oldest first."""


def added(
    old: Mapping[str, Sequence[Sample]], new: Mapping[str, Sequence[tuple[float, float]]], now_ms: int
) -> Samples:
    """The samples with the new ones in, and without those that are too old or too many."""
    found: Samples = {}
    for target in {**old, **new}:
        live = [sample for sample in old.get(target, ()) if is_live(sample, now_ms)]
        live += [(now_ms, first_s, rate) for first_s, rate in new.get(target, ())]
        if live:
            found[target] = live[-SAMPLES:]
    return found


def is_live(sample: Sample, now_ms: int) -> bool:
    return now_ms - sample[0] < SAMPLE_MS


def medians(workers: Iterable[Mapping[str, Sequence[Sample]]], now_ms: int) -> dict[str, tuple[float, float]]:
    """Per target over all workers. A stream too short to tell its rate (0) counts for the first value only."""
    firsts: dict[str, list[float]] = {}
    rates: dict[str, list[float]] = {}
    for samples in workers:
        for target, measured in samples.items():
            live = [sample for sample in measured if is_live(sample, now_ms)]
            if live:
                firsts.setdefault(target, []).extend(first_s for _, first_s, _ in live)
                rates.setdefault(target, []).extend(rate for _, _, rate in live if rate > 0)
    return {target: (_median(seconds), _median(rates[target])) for target, seconds in firsts.items()}


def _median(values: list[float]) -> float:
    """Of an even number the lower of the two in the middle: a value that was measured. 0 of none."""
    return sorted(values)[(len(values) - 1) // 2] if values else 0.0


def total(workers: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Requests under way per target, over these workers."""
    found: dict[str, int] = {}
    for busy in workers:
        for target, number in busy.items():
            found[target] = found.get(target, 0) + number
    return found
