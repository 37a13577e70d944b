"""What is asked of everyone: the rows of the budget.

A workload is either as many requests as a peer answers in `aim_s` seconds (at most `most`), so that a slow one does not
hold up the run, or, where events are paced, a fixed number of streams.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from bench.compare.peers.base import Speaks


@dataclass(frozen=True)
class Workload:
    """`answer` is the mock's first path segment; `events` of a stream (0: one JSON answer).

    `rounds_at_most`: what takes long is not asked in every round. `limit_s`: what is not over then is lost.
    """

    name: str
    short: str
    answer: str
    connections: int
    most: int
    body_bytes: int = 1024
    events: int = 0
    spread_ms: int = 0
    paced: bool = False
    speaks: Speaks = "chat"
    tls: bool = False
    aim_s: float = 1.2
    rounds_at_most: int = 99
    limit_s: float = 20.0

    @property
    def crosses(self) -> bool:
        return self.speaks != "chat"

    @property
    def unit(self) -> str:
        return "event" if self.events else "request"

    def requests(self, a_second: float) -> int:
        """How many to ask of a peer that answers so many `a_second`: whole turns of every connection."""
        if self.paced:
            return self.most
        turns = max(1, round(min(self.most, a_second * self.aim_s) / self.connections))
        return turns * self.connections


STREAM, PACED = "s200-0", "s200-20"
WORKLOADS = (
    Workload("unary, 1 KB, 32 connections", "unary 1 KB", "u1024", 32, 20_000),
    Workload("unary, 200 KB, 8 connections", "unary 200 KB", "u1024", 8, 3_000, body_bytes=204_800),
    Workload("stream, 200 events unpaced, 32 connections", "stream", STREAM, 32, 640, events=200),
    Workload(
        "64 streams, 20 ms apart", "64 streams", PACED, 64, 64,
        events=200, spread_ms=20, paced=True, rounds_at_most=2,
    ),
    Workload(
        "1,000 streams, 20 ms apart", "1,000 streams", PACED, 1000, 1000,
        events=200, spread_ms=2000, paced=True, rounds_at_most=2,
    ),
    Workload(
        "Messages on Chat: unary, 1 KB, 32 connections", "crossing, unary", "u1024", 32, 20_000, speaks="messages"
    ),
    Workload(
        "Messages on Chat: stream, 200 events unpaced, 32 connections", "crossing, stream", STREAM, 32, 640,
        events=200, speaks="messages",
    ),
    Workload(
        "64 streams, 20 ms apart, upstream behind TLS", "64 streams, TLS", PACED, 64, 64,
        events=200, spread_ms=20, paced=True, tls=True, rounds_at_most=2,
    ),
)  # fmt: skip
LIGHT = Workload("one request at a time, 3 ms apart", "light", "u1024", 1, 300)
LIGHT_GAP_MS = 3


def small(w: Workload) -> Workload:
    """The same shape in a fraction of a second: to warm up, to see how fast a peer is, and to try whether all works."""
    events = min(w.events, 20)
    return replace(
        w,
        answer=re.sub(r"^s\d+", f"s{events}", w.answer),
        connections=min(w.connections, 16),
        most=min(w.most, 64),
        events=events,
        spread_ms=min(w.spread_ms, 50),
        limit_s=15.0,
    )


def answers(workloads: tuple[Workload, ...]) -> list[str]:
    """Every answer that the mock will be asked for, warming up included."""
    asked = (*workloads, LIGHT)
    return sorted({w.answer for w in asked} | {small(w).answer for w in asked})
