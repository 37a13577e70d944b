"""Anthropic Messages streams and answers, inwards: blocks, whatever servers do to them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from arbiter.errors import Cut, ErrorClass, Garbled, InStreamError
from arbiter.model import (
    Answer,
    CallDelta,
    CallStarted,
    Ended,
    Event,
    Failed,
    Finish,
    Finished,
    Part,
    RedactedThinking,
    Started,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ThinkingRedacted,
    ThinkingSigned,
    ToolCall,
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


# --- What only some servers do ----------------------------------------------------------------------------------------


def thinking(*slices: str, index: int = 0, signature: str = "") -> bytes:
    deltas = [{"type": "thinking_delta", "thinking": one} for one in slices]
    signed = [{"type": "signature_delta", "signature": signature}] if signature else []
    return block(index, {"type": "thinking", "thinking": "", "signature": ""}, *deltas, *signed)


def test_a_stream_starts_once() -> None:
    """Repeated by proxies that retry, or missing altogether."""
    assert said(START + text("Hi") + START + end() + STOP) == [TextDelta("Hi"), Finished(Finish.STOP), Ended()]
    assert read(text("Hi") + end() + STOP)[:2] == [Started(), TextDelta("Hi")]


def test_a_call_without_input_is_whole_when_its_block_stops() -> None:
    """So whoever writes it elsewhere need not wait for more."""
    assert said(tool("") + text("Hi", index=1) + end("tool_use"))[:3] == [
        CallStarted(0, "toolu_0", "f"),
        CallDelta(0, "{}"),
        TextDelta("Hi"),
    ]


def test_unsigned_thinking_ends_where_more_thinking_follows() -> None:
    """Else the next block's signature would vouch for both."""
    assert said(thinking("a") + thinking("b", index=1, signature="sig") + end())[:4] == [
        ThinkingDelta("a"),
        ThinkingSigned(""),
        ThinkingDelta("b"),
        ThinkingSigned("sig"),
    ]


def test_a_block_of_thinking_has_one_signature() -> None:
    """The last that came, as in the vendor's SDKs; told when the block stops, or at the latest when another starts."""
    start = sse("content_block_start", index=0, content_block={"type": "thinking", "thinking": "", "signature": ""})
    first, last = (
        sse("content_block_delta", index=0, delta={"type": "signature_delta", "signature": one}) for one in ("1", "2")
    )
    assert said(start + first + last + text("Hi", index=1) + end())[:2] == [ThinkingSigned("2"), TextDelta("Hi")]
    assert said(start + first + end())[0] == ThinkingSigned("1")


def test_blocks_that_never_stop_are_stopped_by_the_end() -> None:
    start = sse("content_block_start", index=0, content_block={"type": "tool_use", "id": "a", "name": "f", "input": {}})
    assert said(start + end("tool_use") + STOP) == [
        CallStarted(0, "a", "f"),
        CallDelta(0, "{}"),
        Finished(Finish.TOOL_CALLS),
        Ended(),
    ]


def test_events_without_an_index_are_of_the_latest_block() -> None:
    start = sse("content_block_start", content_block={"type": "tool_use", "id": "a", "name": "f", "input": {}})
    slices = sse("content_block_delta", delta={"type": "input_json_delta", "partial_json": "{}"})
    assert said(start + slices + sse("content_block_stop") + end("tool_use"))[:2] == [
        CallStarted(0, "a", "f"),
        CallDelta(0, "{}"),
    ]


def test_a_call_without_an_id_gets_one_of_its_own() -> None:
    bare = block(0, {"type": "tool_use", "name": "f", "input": {}}) + block(
        1, {"type": "tool_use", "id": "", "name": "g"}
    )
    ids = [event.id for event in said(bare + end("tool_use")) if isinstance(event, CallStarted)]
    assert ids == ["toolu_msg_1_0", "toolu_msg_1_1"]


def test_one_id_for_two_calls_is_an_id_and_one_of_its_own() -> None:
    """The results would be mixed up under one id."""
    block = {"type": "tool_use", "id": "toolu_x", "name": "f", "input": {"a": 1}}
    body = {"id": "msg_1", "content": [block, {**block, "name": "g"}], "stop_reason": "tool_use"}
    parts = anthropic_messages.parse_answer(json.dumps(body).encode()).parts
    assert parts == (ToolCall("toolu_x", "f", '{"a": 1}'), ToolCall("toolu_msg_1_1", "g", '{"a": 1}'))


def test_input_of_a_block_that_never_started_is_a_fault() -> None:
    (failed,) = said(sse("content_block_delta", index=7, delta={"type": "input_json_delta", "partial_json": "{}"}))
    assert isinstance(failed, Failed) and isinstance(failed.error, Garbled)


def test_what_follows_the_finish() -> None:
    """SPEC 2.6: the same reason and empty blocks are noise; another reason, or output, is the upstream's fault."""
    empty = sse("content_block_start", index=1, content_block={"type": "text", "text": ""})
    assert said(text("Hi") + end() + end() + empty + STOP) == [TextDelta("Hi"), Finished(Finish.STOP), Ended()]
    for after in (text("more", index=1), end("max_tokens"), tool("{}", index=1)):
        failed = said(text("Hi") + end() + after + STOP)[-1]
        assert isinstance(failed, Failed) and isinstance(failed.error, Garbled)


@pytest.mark.parametrize(
    "error",
    [
        sse("error", error={"type": "overloaded_error", "message": "busy"}),
        b'data: {"type":"error","error":{"type":"api_error","message":"busy"}}\n\n',
        b'data: {"error":{"message":"busy","code":500}}\n\n',
        b'event: error\ndata: {"message":"busy"}\n\n',
    ],
)
@pytest.mark.parametrize("before", [b"", START, START + text("Hi"), START + text("Hi") + end()])
def test_an_error_is_one_wherever_it_comes_and_however_it_looks(before: bytes, error: bytes) -> None:
    failed = read(before + error + STOP)[-1]
    assert isinstance(failed, Failed) and isinstance(failed.error, InStreamError) and str(failed.error) == "busy"


def test_the_other_formats_done_says_nothing() -> None:
    assert said(text("Hi") + b"data: [DONE]\n\n" + end() + STOP + b"data: [DONE]\n\n")[-1] == Ended()


def test_half_of_a_surrogate_pair_becomes_a_replacement_character() -> None:
    assert said(text("HALF", "b").replace(b"HALF", rb"a\ud83d") + end())[:2] == [TextDelta("a�"), TextDelta("b")]


def test_usage_with_nulls_and_nonsense_is_what_it_states() -> None:
    odd = {"input_tokens": None, "output_tokens": 7, "cache_read_input_tokens": -1, "cache_creation": None}
    report = sse("message_delta", delta={"stop_reason": "end_turn"}, usage=odd)
    assert UsageReported(Usage(output=7)) in read(START + report)


def test_too_many_blocks_are_a_fault() -> None:
    """Each is remembered to the end; SPEC 14.1 wants a bound on all that is."""
    *_, failed = said(b"".join(text("x", index=i) for i in range(1025)))
    assert isinstance(failed, Failed) and isinstance(failed.error, Garbled)


def test_slices_pass_by_only_where_their_index_tells_their_call() -> None:
    """And not before the first, on which it depends what became of input that came with the start."""
    reader = anthropic_messages.reader()
    start = sse("content_block_start", index=2, content_block={"type": "tool_use", "id": "a", "name": "f", "input": {}})
    reader.feed(START + start)
    assert reader.place_of(0) == -1
    reader.feed(sse("content_block_delta", index=2, delta={"type": "input_json_delta", "partial_json": "{"}))
    assert reader.place_of(0) == 2 and reader.place_of(1) == -1
    reader.feed(start)  # another block at the same index
    assert reader.place_of(0) == -1


# --- Unary answers ----------------------------------------------------------------------------------------------------


def answer(*content: dict[str, Any], **members: Any) -> Answer:
    body = {"type": "message", "id": "msg_1", "model": "m", "content": content, "stop_reason": "end_turn", **members}
    return anthropic_messages.parse_answer(json.dumps(body).encode())


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ([], ()),
        ([{"type": "text", "text": ""}], ()),
        ([{"type": "text", "text": "Hi", "citations": None}, {"type": "text", "text": "!"}], (Text("Hi!"),)),
        ([{"type": "thinking", "thinking": "", "signature": "s"}], (Thinking("", "s"),)),
        ([{"type": "thinking", "thinking": "Hm", "signature": ""}], (Thinking("Hm"),)),
        ([{"type": "redacted_thinking", "data": "x"}], (RedactedThinking("x"),)),
        ([{"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}}], (ToolCall("a", "f", '{"x": 1}'),)),
        ([{"type": "tool_use", "id": "a", "name": "f"}], (ToolCall("a", "f", "{}"),)),
        ([{"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}, {"type": "brand_new"}], ()),
    ],
)
def test_an_answer_is_read_as_a_stream_of_whole_blocks(content: list[dict[str, Any]], parts: tuple[Part, ...]) -> None:
    found = answer(*content, usage={"input_tokens": 3, "output_tokens": 4})
    assert found.parts == parts and (found.id, found.model) == ("msg_1", "m")
    assert found.usage == Usage(input=3, output=4)


def test_an_answers_reason_is_that_of_a_stream() -> None:
    assert answer(stop_reason="stop_sequence", stop_sequence="END").stop_sequence == "END"
    assert answer(stop_reason=None).finish is Finish.STOP
    assert anthropic_messages.parse_answer(b'{"content":"Hi"}').text() == "Hi"


@pytest.mark.parametrize("body", [b"", b"{}", b'{"content":null}', b'{"content":5}', b"<html>", b"[]", b'"error"'])
def test_what_is_no_answer_is_garbled(body: bytes) -> None:
    with pytest.raises(Garbled):
        anthropic_messages.parse_answer(body)


def test_an_error_in_place_of_an_answer_is_one() -> None:
    with pytest.raises(InStreamError, match="busy"):
        anthropic_messages.parse_answer(b'{"type":"error","error":{"type":"api_error","message":"busy"}}')
