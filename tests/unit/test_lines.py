"""The lines between the supervisor and its children: messages whole, values in memory, nobody waits."""

from __future__ import annotations

import gc
import os
import warnings

from arbiter.lines import Applied, Apply, Counted, Line, Prices, Reload, Reloaded, Serving, put_down, take_up

MESSAGES = [Serving(), Applied(3), Reload(7), Reloaded([7, 8], 200, {"epoch": "e", "pending": []}), Counted("ok"),
            Prices(fetched_ms=5, entries=3, tried_ms=5, outcome="ok")]  # fmt: skip


def test_messages_arrive_whole_and_in_order():
    ours, theirs = Line.pair()
    assert list(theirs.receive()) == []
    for message in MESSAGES:
        assert ours.send(message)
    assert list(theirs.receive()) == [(message, None) for message in MESSAGES]
    assert theirs.is_open
    ours.close()
    theirs.close()


def test_what_was_said_before_the_end_is_heard():
    """A child that dies at once after it said something has said it."""
    ours, theirs = Line.pair()
    ours.send(Serving())
    ours.close()
    assert list(theirs.receive()) == [(Serving(), None)]
    assert not theirs.is_open
    assert not theirs.send(Applied(1))
    theirs.close()


def test_a_value_is_written_once_and_read_by_everybody():
    """They share one file, and its position: reading must not depend on who read before."""
    value = {"snapshot": list(range(100_000))}
    pairs = [Line.pair() for _ in range(3)]
    descriptor = put_down(value)
    for ours, _ in pairs:
        assert ours.send(Apply(2), descriptor)
    os.close(descriptor)
    before = len(os.listdir("/proc/self/fd"))
    for _, theirs in pairs:
        ((message, received),) = theirs.receive()
        assert message == Apply(2) and received is not None
        assert take_up(received) == value
    assert len(os.listdir("/proc/self/fd")) == before
    for pair in pairs:
        for end in pair:
            end.close()


def test_an_end_that_reads_nothing_makes_nobody_wait():
    """What it has no room for is not sent; once it has read, there is room again."""
    ours, theirs = Line.pair()
    sent = 0
    while ours.send(Counted("ok")):
        sent += 1
        assert sent < 100_000
    assert len(list(theirs.receive())) == sent
    assert ours.send(Serving())
    assert list(theirs.receive()) == [(Serving(), None)]
    ours.close()
    theirs.close()


def test_a_closed_line_leaves_no_descriptor():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = len(os.listdir("/proc/self/fd"))
        for end in Line.pair():
            end.close()
        gc.collect()
        assert len(os.listdir("/proc/self/fd")) == before
