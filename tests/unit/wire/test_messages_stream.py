"""Anthropic Messages streams: blocks in, blocks out, one at a time."""

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
    RefusalDelta,
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


# --- Writing ----------------------------------------------------------------------------------------------------------


def write(*events: Event) -> list[dict[str, Any]]:
    writer = anthropic_messages.writer("T", "m", 0)
    out = b"".join(writer.write(event) for event in events).decode()
    written = []
    for part in out.split("\n\n")[:-1]:
        name, data = part.split("\n")
        payload = json.loads(data.removeprefix("data: "))
        assert name == f"event: {payload['type']}"
        written.append(payload)
    return written


def shape(written: list[dict[str, Any]]) -> list[str]:
    """Each event as a word: what opens, what is added, what closes."""
    words = []
    for one in written:
        kind = one["type"].removeprefix("content_block_")
        if kind == "start":
            kind = f"+{one['index']}:{one['content_block']['type']}"
        elif kind == "delta":
            kind = f"{one['index']}:{one['delta']['type'].removesuffix('_delta')}"
        elif kind == "stop":
            kind = f"-{one['index']}"
        words.append(kind)
    return words


END: list[Event] = [Finished(Finish.STOP), Ended()]


def test_blocks_open_and_close_one_by_one() -> None:
    """SPEC 2.6: indexes without gaps, every block closed, one stop. Text that resumes is another block (a2o-009)."""
    written = write(
        Started(),
        ThinkingDelta("Hm"),
        TextDelta("Hel"),
        ThinkingDelta("again"),
        ThinkingSigned("sig"),
        ThinkingRedacted("secret"),
        TextDelta("lo"),
        RefusalDelta("!"),
        CallStarted(0, "a", "f"),
        CallDelta(0, "{}"),
        Finished(Finish.TOOL_CALLS),
        Ended(),
    )
    assert shape(written) == [
        *("message_start", "+0:thinking", "0:thinking", "-0", "+1:text", "1:text", "-1"),
        *("+2:thinking", "2:thinking", "2:signature", "-2", "+3:redacted_thinking", "-3"),
        *("+4:text", "4:text", "4:text", "-4", "+5:tool_use", "5:input_json", "-5", "message_delta", "message_stop"),
    ]
    assert written[0]["message"]["id"] == "msg_T" and written[0]["message"]["model"] == "m"
    assert written[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}


def test_an_empty_answer_has_no_blocks() -> None:
    assert shape(write(Started(), TextDelta(""), *END)) == ["message_start", "message_delta", "message_stop"]


def test_usage_after_the_finish_is_in_the_one_message_delta() -> None:
    """fin-003, use-006: whenever it comes and however often, the last word is told once."""
    usage = Usage(input=86, cache_read=1920, cache_write=5, output=300, reasoning=7)
    early = UsageReported(Usage(input=86, output=1))
    written = write(Started(), early, TextDelta("Hi"), Finished(Finish.STOP), UsageReported(usage), Ended())
    told = [one["usage"] for one in written if one["type"] == "message_delta"]
    assert told == [
        {
            "input_tokens": 86,
            "cache_creation_input_tokens": 5,
            "cache_read_input_tokens": 1920,
            "output_tokens": 300,
            "output_tokens_details": {"thinking_tokens": 7},
        }
    ]


def test_what_is_known_at_the_start_is_told_at_the_start() -> None:
    usage = Usage(input=9, cache_write=100, cache_write_5m=60, cache_write_1h=40, output=1)
    assert write(Started(usage=usage), *END)[0]["message"]["usage"] == {
        "input_tokens": 9,
        "cache_creation_input_tokens": 100,
        "cache_creation": {"ephemeral_5m_input_tokens": 60, "ephemeral_1h_input_tokens": 40},
        "output_tokens": 1,
    }


def test_calls_one_after_the_other_are_never_held_back() -> None:
    """SPEC 2.2: fragment by fragment."""
    writer = anthropic_messages.writer("T", "m", 0)
    for index in (0, 1):
        assert b"tool_use" in writer.write(CallStarted(index, f"c{index}", "f"))
        assert b'{\\"a\\"' in writer.write(CallDelta(index, '{"a"'))
        assert b":1}" in writer.write(CallDelta(index, ":1}"))


def test_interleaved_calls_are_put_in_order() -> None:
    """Two open blocks at once would break every reader of this format; nothing is lost or mixed up instead."""
    written = write(
        CallStarted(0, "a", "f"),
        CallDelta(0, '{"x"'),
        CallStarted(1, "b", "g"),
        CallDelta(1, '{"y"'),
        CallStarted(2, "c", "h"),
        CallDelta(2, "{}"),
        CallDelta(0, ":1}"),
        CallDelta(1, ":2}"),
        *END,
    )
    inputs: dict[str, str] = {}
    current = ""
    for one in written:
        if one["type"] == "content_block_start":
            current = one["content_block"]["id"]
        elif one["type"] == "content_block_delta":
            inputs[current] = inputs.get(current, "") + one["delta"]["partial_json"]
    assert inputs == {"a": '{"x":1}', "b": '{"y":2}', "c": "{}"}
    assert [word for word in shape(written) if word[0] in "+-"] == [
        *("+0:tool_use", "-0", "+1:tool_use", "-1", "+2:tool_use", "-2")
    ]


def test_calls_that_never_become_whole_are_written_at_the_end() -> None:
    """A call without arguments, or one cut off by the limit, must not swallow the next one."""
    written = write(CallStarted(0, "a", "f"), CallStarted(1, "b", "g"), CallDelta(1, "{}"), TextDelta("so"), *END)
    assert shape(written)[1:-2] == [
        *("+0:tool_use", "-0", "+1:tool_use", "1:input_json", "-1", "+2:text", "2:text", "-2")
    ]


def test_a_slice_for_a_closed_call_is_the_upstreams_fault() -> None:
    writer = anthropic_messages.writer("T", "m", 0)
    writer.write(CallStarted(0, "a", "f"))
    writer.write(TextDelta("so"))
    with pytest.raises(Garbled):
        writer.write(CallDelta(0, "{}"))


def test_a_failed_stream_ends_with_its_error_and_no_stop() -> None:
    written = write(TextDelta("Hel"), Failed(InStreamError("engine queue full")))
    assert written[-1]["error"]["message"] == "engine queue full"
    assert "message_stop" not in shape(written) and "message_delta" not in shape(written)
