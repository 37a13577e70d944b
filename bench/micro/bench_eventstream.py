"""What it costs to read a message of an AWS event stream, and to make a server-sent event of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import ModuleType

import pytest

from tests.fakes.eventstream import chunk, event

Twin = Callable[[str], ModuleType]

DELTAS = [{"contentBlockIndex": 0, "delta": {"text": f" word{n}"}, "p": "abcdefghij"} for n in range(64)]
CONVERSE = [event("contentBlockDelta", json.dumps(delta).encode()) for delta in DELTAS]
CLAUDE = [
    chunk(b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" word%d"}}' % n)
    for n in range(64)
]


@pytest.mark.parametrize("per_read", [1, 16])
@pytest.mark.parametrize("stream", [CONVERSE, CLAUDE], ids=["converse", "claude"])
def test_messages(twin: Twin, measure: Callable[..., None], stream: list[bytes], per_read: int) -> None:
    reads = [b"".join(stream[i : i + per_read]) for i in range(0, len(stream), per_read)]
    reader = twin("eventstream").MessageReader()
    feed = reader.feed

    def run() -> int:
        return sum(len(feed(read)) for read in reads)

    assert run() == 64 and reader.fault is None
    measure(run, units=64)


def test_a_message_that_a_cut_went_through(twin: Twin, measure: Callable[..., None]) -> None:
    """Each read ends within a message."""
    data = b"".join(CLAUDE)
    reads = [data[i : i + 1000] for i in range(0, len(data), 1000)]
    reader = twin("eventstream").MessageReader()
    feed = reader.feed

    def run() -> int:
        return sum(len(feed(read)) for read in reads)

    assert run() == 64
    measure(run, units=64)
