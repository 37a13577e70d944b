"""What it costs to move a plain delta into the other format: framing, recognition, and the copy."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

from bench.micro import streams

Twin = Callable[[str], ModuleType]

TO_MESSAGES = {
    "CHAT": (b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta",'
             b'"text":', b"}}\n\n"),
    "CHAT_ARGUMENTS": (b'event: content_block_delta\ndata: {"type":"content_block_delta","index":1,"delta":{"type":'
                       b'"input_json_delta","partial_json":', b"}}\n\n"),
}  # fmt: skip
HEAD = b'data: {"id":"chatcmpl-0190","object":"chat.completion.chunk","created":1741570283,"model":"claude","choices":['
TO_CHAT = {
    "MESSAGES": (HEAD + b'{"index":0,"delta":{"content":', b'},"finish_reason":null}]}\n\n'),
    "MESSAGES_ARGUMENTS": (HEAD + b'{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":',
                           b'}}]},"finish_reason":null}]}\n\n'),
}  # fmt: skip
MOULDS = TO_MESSAGES | TO_CHAT


@pytest.mark.parametrize("per_read", [1, 16])
@pytest.mark.parametrize("stream", MOULDS)
def test_deltas(twin: Twin, measure: Callable[..., None], stream: str, per_read: int) -> None:
    reads = streams.joined((getattr(streams, stream) * 4)[:200], per_read)
    mould = MOULDS[stream]
    carrier = getattr(twin("carry"), "ChatCarrier" if stream in TO_MESSAGES else "MessagesCarrier")()
    carrier.aim(mould, None, None, mould, 0, False)
    open, next, take = carrier.open, carrier.next, carrier.take

    def run() -> int:
        size = 0
        for read in reads:
            open(read)
            assert next() is None
            size += len(take())
        return size

    assert run() > 200 * len(mould[0])
    assert carrier.events == 200
    measure(run, units=200)


def test_deltas_padded_with_noise(twin: Twin, measure: Callable[..., None]) -> None:
    """As OpenAI sends them: the string of random letters is another one in each."""
    events = [event.replace(b"xYz0ABcd12", b"%010d" % at) for at, event in enumerate(streams.CHAT)]
    (read,) = streams.joined(events, 64)
    carrier = twin("carry").ChatCarrier()
    carrier.aim(MOULDS["CHAT"], None, None, None, -1, False)

    def run() -> int:
        carrier.open(read)
        assert carrier.next() is None
        return len(carrier.take())

    assert run() > 64 * len(MOULDS["CHAT"][0])
    measure(run, units=64)


def test_events_that_are_handed_out(twin: Twin, measure: Callable[..., None]) -> None:
    """Nothing has a mould: what a reader pays that wants every event."""
    read = b"".join(streams.CHAT)
    carrier = twin("carry").ChatCarrier()

    def run() -> int:
        events = 0
        carrier.open(read)
        while carrier.next() is not None:
            events += 1
        return events

    assert run() == 64
    measure(run, units=64)
