"""Anthropic Messages streams and answers, inwards: blocks, whatever servers do to them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from arbiter.errors import Cut, ErrorClass, Garbled, InStreamError
from arbiter.model import (
    CallDelta,
    CallStarted,
    Ended,
    Event,
    Failed,
    Finish,
    Finished,
    Started,
    TextDelta,
    ThinkingDelta,
    ThinkingRedacted,
    ThinkingSigned,
    Usage,
    UsageReported,
)
from arbiter.wire import anthropic_messages


def sse(kind: str, **members: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **members})}\n\n".encode()


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> bytes:
    return (
        sse("content_block_start", index=index, content_block=start)
        + b"".join(sse("content_block_delta", index=index, delta=delta) for delta in deltas)
        + sse("content_block_stop", index=index)
    )


def text(*slices: str, index: int = 0) -> bytes:
    return block(index, {"type": "text", "text": ""}, *({"type": "text_delta", "text": one} for one in slices))


def tool(*slices: str, index: int = 0, whole: Any = None) -> bytes:
    start = {"type": "tool_use", "id": f"toolu_{index}", "name": "f", "input": whole or {}}
    return block(index, start, *({"type": "input_json_delta", "partial_json": one} for one in slices))


START = sse("message_start", message={"id": "msg_1", "model": "m", "usage": {"input_tokens": 25, "output_tokens": 1}})
STOP = sse("message_stop")


def end(reason: str | None = "end_turn", sequence: str | None = None) -> bytes:
    delta = {"stop_reason": reason, "stop_sequence": sequence}
    return sse("message_delta", delta=delta, usage={"output_tokens": 15})


def read(data: bytes) -> list[Event]:
    reader = anthropic_messages.reader()
    return reader.feed(data) + reader.finish()


def said(data: bytes) -> list[Event]:
    """What was read between the start and the usage."""
    first, *events = read(START + data)
    assert first == Started("msg_1", "m", Usage(input=25, output=1))
    return [event for event in events if not isinstance(event, UsageReported)]


def test_blocks_become_slices() -> None:
    thinking = block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "Hm"},
        {"type": "signature_delta", "signature": "sig"},
    )
    redacted = block(1, {"type": "redacted_thinking", "data": "secret"})
    events = said(thinking + redacted + text("Hel", "lo", index=2) + tool("{", "}", index=3) + end("tool_use") + STOP)
    assert events == [
        ThinkingDelta("Hm"),
        ThinkingSigned("sig"),
        ThinkingRedacted("secret"),
        TextDelta("Hel"),
        TextDelta("lo"),
        CallStarted(0, "toolu_3", "f"),
        CallDelta(0, "{"),
        CallDelta(0, "}"),
        Finished(Finish.TOOL_CALLS),
        Ended(),
    ]


def test_usage_is_cumulative() -> None:
    """message_delta's counts replace message_start's (SPEC 9.1)."""
    reported = [event for event in read(START + end() + STOP) if isinstance(event, UsageReported)]
    assert reported == [UsageReported(Usage(output=15))]
    assert Usage(input=25, output=1).merged(reported[0].usage) == Usage(input=25, output=15)


def test_calls_are_counted_apart_from_blocks() -> None:
    """Text and built-in tools take block indexes; the calls that a client must answer count from 0."""
    builtin = block(
        1,
        {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {}},
        {"type": "input_json_delta", "partial_json": "{}"},
    )
    result = block(2, {"type": "web_search_tool_result", "tool_use_id": "srv", "content": []})
    events = said(text("Hi") + builtin + result + tool("{}", index=3) + tool("[]", index=4) + end("tool_use") + STOP)
    assert events[:-2] == [
        TextDelta("Hi"),
        CallStarted(0, "toolu_3", "f"),
        CallDelta(0, "{}"),
        CallStarted(1, "toolu_4", "f"),
        CallDelta(1, "[]"),
    ]


def test_input_that_came_whole_is_told_once() -> None:
    """Some servers put the whole input into the start of the block, some of them the slices too."""
    for data in (tool(whole={"a": 1}), tool('{"a": 1}', whole={"a": 1})):
        assert said(data + end("tool_use") + STOP)[1] == CallDelta(0, '{"a": 1}')
        assert len(said(data + end("tool_use") + STOP)) == 4


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", Finish.STOP),
        ("max_tokens", Finish.LENGTH),
        ("stop_sequence", Finish.STOP_SEQUENCE),
        ("refusal", Finish.CONTENT_FILTER),
        ("pause_turn", Finish.PAUSE),
        ("model_context_window_exceeded", Finish.CONTEXT_WINDOW),
        ("something_new", Finish.STOP),
    ],
)
def test_a_stop_reason_is_understood(reason: str, finish: Finish) -> None:
    assert said(text("Hi") + end(reason, "END") + STOP)[-2:] == [Finished(finish, "END"), Ended()]


def test_the_end_is_read_as_it_was_meant() -> None:
    """SPEC 2.7: a stop reason and any end is an end, a terminal event alone is an inferred one, nothing is a cut."""
    assert said(text("Hi") + end())[-1] == Ended()
    assert said(text("Hi") + STOP)[-2:] == [Finished(Finish.STOP), Ended(inferred=True)]
    failed = said(text("Hi"))[-1]
    assert isinstance(failed, Failed) and isinstance(failed.error, Cut)


def test_pings_and_comments_say_nothing() -> None:
    assert said(sse("ping") + b": hello\n\n" + text("Hi") + sse("ping") + end() + STOP)[0] == TextDelta("Hi")
    assert said(sse("something_new", x=1) + end() + STOP) == [Finished(Finish.STOP), Ended()]


def test_an_error_event_ends_the_stream() -> None:
    error = sse("error", error={"type": "overloaded_error", "message": "Overloaded"})
    partial = sse("content_block_delta", index=0, delta={"type": "text_delta", "text": "Hel"})
    first, failed = said(partial + error + STOP)
    assert first == TextDelta("Hel") and isinstance(failed, Failed)
    assert isinstance(failed.error, InStreamError) and failed.error.code is ErrorClass.OVERLOADED


@pytest.mark.parametrize(
    "bad", [b"data: {\n\n", b'event: content_block_delta\ndata: {"index":"x"}\n\n', b"data: \xff\n\n"]
)
def test_what_is_no_event_fails_the_stream(bad: bytes) -> None:
    events = said(text("Hel") + bad + text("lo"))
    assert events[0] == TextDelta("Hel") and len(events) == 2
    assert isinstance(events[1], Failed) and isinstance(events[1].error, Garbled)


def test_an_event_may_lack_its_type_or_its_name() -> None:
    bare = b'event: content_block_delta\ndata: {"index":0,"delta":{"type":"text_delta","text":"a"}}\n\n'
    unnamed = b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"b"}}\n\n'
    assert said(bare + unnamed + end())[:2] == [TextDelta("a"), TextDelta("b")]
