"""What it costs to frame an event."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

from bench.micro import streams

Twin = Callable[[str], ModuleType]


@pytest.mark.parametrize("per_read", [1, 16])
@pytest.mark.parametrize("stream", ["CHAT", "MESSAGES"])
def test_events(twin: Twin, measure: Callable[..., None], stream: str, per_read: int) -> None:
    reads = streams.joined(getattr(streams, stream), per_read)
    reader = twin("sse").SSEReader()
    open, next = reader.open, reader.next

    def run() -> int:
        events = 0
        for read in reads:
            open(read)
            while next() is not None:
                events += 1
        return events

    assert run() == 64
    measure(run, units=64)


def test_an_event_of_two_megabytes(twin: Twin, measure: Callable[..., None]) -> None:
    reads = streams.sliced(streams.LARGE)
    reader = twin("sse").SSEReader()
    open, next = reader.open, reader.next

    def run() -> int:
        events = 0
        for read in reads:
            open(read)
            while next() is not None:
                events += 1
        return events

    assert run() == 1
    measure(run, units=1)
