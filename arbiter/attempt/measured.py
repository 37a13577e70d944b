"""What this worker sees of its targets, and what the others saw: requests under way, and how fast answers came.

Kept in memory and exchanged with the other workers once a second through the state, so that `least_busy` and
`fastest_measured` mean the whole gateway without a request ever waiting for it.
"""

from __future__ import annotations

from collections import deque

from arbiter.accounting.facts import Facts
from arbiter.state.base import State

_NEW_SAMPLES = 64  # per target between two exchanges; a median needs no more
_ENOUGH_NS = 50_000_000  # a stream that took less from its first event to its last says nothing of its pace


class Measured:
    """`routing.plan.Facts` of one worker; `name` tells its share from the others'."""

    def __init__(self, state: State, name: str) -> None:
        self._state = state
        self._name = name
        self._own: dict[str, int] = {}
        self._others: dict[str, int] = {}
        self._speeds: dict[str, tuple[float, float]] = {}
        self._samples: dict[str, deque[tuple[float, float]]] = {}
        self._told = False

    # --- routing.plan.Facts -------------------------------------------------------------------------------------------

    def busy(self, target: str) -> int:
        return self._own.get(target, 0) + self._others.get(target, 0)

    def speed(self, target: str) -> tuple[float, float] | None:
        return self._speeds.get(target)

    # --- what happens here --------------------------------------------------------------------------------------------

    def began(self, target: str) -> None:
        self._own[target] = self._own.get(target, 0) + 1

    def ended(self, target: str) -> None:
        left = self._own.get(target, 0) - 1
        if left > 0:
            self._own[target] = left
        else:
            self._own.pop(target, None)

    def saw(self, target: str, sent_ns: int, facts: Facts) -> None:
        """A stream of `target`, sent at `sent_ns`, ended well. One that does not tell its pace tells when it began."""
        if not facts.first_event_ns:
            return
        usage, took_ns = facts.usage, facts.last_event_ns - facts.first_event_ns
        output = usage.output if usage is not None and took_ns >= _ENOUGH_NS else None
        samples = self._samples.get(target)
        if samples is None:
            samples = self._samples[target] = deque(maxlen=_NEW_SAMPLES)
        samples.append(((facts.first_event_ns - sent_ns) / 1e9, output * 1e9 / took_ns if output else 0.0))

    def exchange(self, *, wants_speeds: bool) -> None:
        """Tell the others, and hear what they say. Called once a second; an idle worker writes nothing.

        Medians over everybody's samples are work, done only where somebody `wants_speeds`.
        """
        if self._own or self._samples or self._told:
            self._told = bool(self._own)  # once more after the last request, so that nobody thinks us busy
            self._state.share(self._name, self._own, self._samples)
            self._samples = {}
        self._others = dict(self._state.busy(self._name))
        if wants_speeds:
            self._speeds = dict(self._state.measures())
