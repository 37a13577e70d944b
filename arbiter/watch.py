"""Coarse alarms for things that mostly do not happen: a slow sender, a silent stream, a client that left early.

An event loop's own timer costs a heap entry and a cancellation per request. These alarms are queued by delay, so
that setting and dropping one is an append and an assignment, and one tick serves them all. They ring up to one tick
late and never early.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import msgspec

from arbiter.clock import monotonic

TICK_S = 0.05  # SPEC 3.4 wants an early-leaving unary client noticed by 350 ms: 250 ms of grace, then one or two ticks


class Alarm(msgspec.Struct, eq=False):
    """One pending call, and whether it `rang`. `off()` drops it and all that it holds; a second `off()` is fine."""

    due: float
    call: Callable[[], object] | None
    rang: bool = False

    def off(self) -> None:
        self.call = None


class Watch:
    """All alarms of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queues: dict[float, deque[Alarm]] = {}
        self._ticking: asyncio.TimerHandle | None = None

    def after(self, delay_s: float, call: Callable[[], object]) -> Alarm:
        """Ring once, `delay_s` to `delay_s` + one tick from now, unless switched off before; with a delay of 0, never.

        That is what 0 means wherever the configuration has a duration.
        """
        alarm = Alarm(monotonic() + delay_s, call)
        if not delay_s:
            alarm.off()
            return alarm
        queue = self._queues.get(delay_s)
        if queue is None:
            queue = self._queues[delay_s] = deque()
        queue.append(alarm)
        if self._ticking is None:
            self._ticking = self._loop.call_later(TICK_S, self._tick)
        return alarm

    def close(self) -> None:
        """Drop every alarm."""
        self._queues.clear()
        if self._ticking is not None:
            self._ticking.cancel()
            self._ticking = None

    def _tick(self) -> None:
        self._ticking = None
        now = monotonic()
        waiting = False
        # One delay is one queue, so each queue is in order of its due times. An alarm may set another.
        for queue in list(self._queues.values()):
            while queue and (queue[0].call is None or queue[0].due <= now):
                alarm = queue.popleft()
                if alarm.call is not None:
                    alarm.rang = True
                    alarm.call()
            waiting = waiting or bool(queue)
        if self._ticking is None and waiting:
            self._ticking = self._loop.call_later(TICK_S, self._tick)
