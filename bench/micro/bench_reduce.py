"""What it costs to read along with a stream, framing included."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

from bench.micro import streams

Twin = Callable[[str], ModuleType]


@pytest.mark.parametrize("per_read", [1, 16])
@pytest.mark.parametrize("stream", ["CHAT", "CHAT_ARGUMENTS", "MESSAGES", "MESSAGES_ARGUMENTS", "GEMINI"])
def test_deltas(twin: Twin, measure: Callable[..., None], stream: str, per_read: int) -> None:
    reads = streams.joined(getattr(streams, stream), per_read)
    tap = getattr(twin("reduce"), {"CHAT": "ChatTap", "GEMI": "GeminiTap"}.get(stream[:4], "MessagesTap"))()
    feed = tap.feed

    def run() -> None:
        for read in reads:
            feed(read)

    run()
    assert tap.events == 64
    measure(run, units=64)


def test_deltas_that_each_carry_the_time(twin: Twin, measure: Callable[..., None]) -> None:
    """The beginnings differ from event to event, so none can be taken from the one before."""
    reads = [read.replace(b"1741570283", b"%d" % (1741570283 + at)) for at, read in enumerate(streams.CHAT)]
    tap = twin("reduce").ChatTap()
    feed = tap.feed

    def run() -> None:
        for read in reads:
            feed(read)

    run()
    assert tap.events == 64
    measure(run, units=64)


def test_an_event_of_two_megabytes(twin: Twin, measure: Callable[..., None]) -> None:
    reads = streams.sliced(streams.LARGE)
    tap = twin("reduce").ChatTap()
    tap.feed(streams.CHAT[0])
    feed = tap.feed

    def run() -> None:
        for read in reads:
            feed(read)

    run()
    assert tap.events == 2
    measure(run, units=1)
