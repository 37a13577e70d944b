"""OpenAI Chat streams and answers, inwards: what servers do to chunks, and what it means."""

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
    Usage,
    UsageReported,
)
from arbiter.wire import openai_chat

USAGE = {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13}
COUNTS = Usage(input=10, output=3, total=13)


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **members: Any) -> bytes:
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}] if delta is not None else []
    body = {"id": "cc-1", "object": "chat.completion.chunk", "model": "m", "choices": choices, **members}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def call(**members: Any) -> bytes:
    return chunk({"tool_calls": [members]})


DONE = b"data: [DONE]\n\n"


def read(*chunks: bytes) -> list[Event]:
    reader = openai_chat.reader()
    events = [event for data in chunks for event in reader.feed(data)]
    return events + reader.finish()


def said(*chunks: bytes) -> list[Event]:
    """What was read, without the start."""
    first, *rest = read(*chunks)
    assert first == Started("cc-1", "m")
    return rest


STOP: list[Event] = [Finished(Finish.STOP), Ended()]
CALLED: list[Event] = [Finished(Finish.TOOL_CALLS), Ended()]
OSLO: list[Event] = [CallStarted(0, "call_a", "get_weather"), CallDelta(0, '{"city":"Oslo"}')]
UTC: list[Event] = [CallStarted(1, "call_b", "get_time"), CallDelta(1, '{"tz":"UTC"}')]
WEATHER = {"name": "get_weather", "arguments": '{"city":"Oslo"}'}
TIME = {"name": "get_time", "arguments": '{"tz":"UTC"}'}


def test_text_reasoning_and_refusals_come_slice_by_slice() -> None:
    events = said(
        chunk({"role": "assistant", "content": ""}),
        chunk({"reasoning_content": "Hm"}),
        chunk({"reasoning": "m."}),
        chunk({"content": "Hel"}),
        chunk({"content": "lo", "reasoning_content": None}),
        chunk({"refusal": "no"}),
        chunk({}, "stop"),
        DONE,
    )
    assert events == [
        ThinkingDelta("Hm", "reasoning_content"),
        ThinkingDelta("m.", "reasoning"),
        TextDelta("Hel"),
        TextDelta("lo"),
        RefusalDelta("no"),
        *STOP,
    ]


@pytest.mark.parametrize(
    "calls",
    [
        [call(index=0, id="call_a", function=WEATHER), call(index=1, id="call_b", function=TIME)],
        [call(index=0, id="call_a", function=WEATHER), call(index=0, id="call_b", function=TIME)],
        [call(id="call_a", function=WEATHER), call(id="call_b", function=TIME)],
        [chunk({"tool_calls": [{"id": "call_a", "function": WEATHER}, {"id": "call_b", "function": TIME}]})],
    ],
    ids=["by the book", "all at index 0", "no index", "both in one chunk"],
)
def test_parallel_calls_open_once_each(calls: list[bytes]) -> None:
    """However a server numbers its calls, each opens once, under a number of its own."""
    assert said(*calls, chunk({}, "tool_calls"), DONE) == [*OSLO, *UTC, *CALLED]


def test_slices_find_their_call() -> None:
    """By id if it is repeated, by index if there is one, else the latest call."""
    events = said(
        call(index=0, id="a", function={"name": "f", "arguments": "{"}),
        call(index=1, id="b", function={"name": "g"}),
        call(index=0, id="a", function={"name": "f", "arguments": '"x"'}),
        call(index=0, function={"arguments": ":1}"}),
        call(index=1, function={"arguments": "{"}),
        call(function={"arguments": "}"}),
        chunk({}, "tool_calls"),
        DONE,
    )
    opened = [event for event in events if isinstance(event, CallStarted)]
    assert opened == [CallStarted(0, "a", "f"), CallStarted(1, "b", "g")]
    slices = [(event.index, event.arguments) for event in events if isinstance(event, CallDelta)]
    assert slices == [(0, "{"), (0, '"x"'), (0, ":1}"), (1, "{"), (1, "}")]


def test_a_name_may_come_after_the_id() -> None:
    events = said(
        call(index=0, id="call_a", function={"arguments": '{"city":'}),
        call(index=0, function={"name": "get_weather", "arguments": '"Oslo"}'}),
        chunk({}, "tool_calls"),
    )
    assert events == [*OSLO, *CALLED]


def test_a_server_without_call_ids_gets_ids_of_its_own() -> None:
    """The result must find its call again, and no call of another turn."""
    events = said(call(index=0, function=WEATHER), call(index=1, function=TIME), chunk({}, "tool_calls"), DONE)
    ids = [event.id for event in events if isinstance(event, CallStarted)]
    assert ids == ["call_cc-1_0", "call_cc-1_1"]


def test_arguments_may_be_an_object() -> None:
    events = said(call(index=0, id="call_a", function={"name": "get_weather", "arguments": {"city": "Oslo"}}))
    assert json.loads(events[1].arguments) == {"city": "Oslo"}  # type: ignore[union-attr]


def test_calls_and_finish_may_share_a_chunk() -> None:
    whole = chunk({"content": None, "tool_calls": [{"index": 0, "id": "call_a", "function": WEATHER}]}, "tool_calls")
    assert said(whole, DONE) == [*OSLO, *CALLED]


@pytest.mark.parametrize("word", ["stop", "tool_calls", "function_call", "eos"])
def test_a_finish_reason_agrees_with_what_was_said(word: str) -> None:
    """`stop` after calls would end an agent's loop, `tool_calls` without one would hang it."""
    assert said(call(index=0, id="call_a", function=WEATHER), chunk({}, word), DONE) == [*OSLO, *CALLED]
    assert said(chunk({"content": "Hi"}), chunk({}, word), DONE) == [TextDelta("Hi"), *STOP]


@pytest.mark.parametrize(
    ("word", "finish"), [("length", Finish.LENGTH), ("content_filter", Finish.CONTENT_FILTER)], ids=str
)
def test_a_finish_reason_is_kept(word: str, finish: Finish) -> None:
    assert said(chunk({"content": "Hi"}, word), DONE) == [TextDelta("Hi"), Finished(finish), Ended()]


def test_usage_comes_anywhere() -> None:
    """On every chunk, on the finish, behind it with empty choices, or behind it with an empty delta (fin-004)."""
    assert said(chunk({"content": "Hi"}, usage=USAGE), chunk({}, "stop"), DONE)[1] == UsageReported(COUNTS)
    assert said(chunk({}, "stop", usage=USAGE), DONE)[1] == UsageReported(COUNTS)
    assert said(chunk({}, "stop"), chunk(usage=USAGE), DONE)[1] == UsageReported(COUNTS)
    trailing = chunk({"role": "assistant", "content": ""}, usage=USAGE)
    assert said(chunk({}, "stop"), trailing, DONE) == [Finished(Finish.STOP), UsageReported(COUNTS), Ended()]


def test_done_without_a_finish_reason_is_a_stop() -> None:
    """SPEC 2.7, marked as inferred."""
    assert said(chunk({"content": "Hi"}), DONE) == [TextDelta("Hi"), Finished(Finish.STOP), Ended(inferred=True)]


def test_a_finish_reason_followed_by_any_end_is_an_end() -> None:
    """transformers' server sends no [DONE]; vLLM's last event may lack its blank line."""
    assert said(chunk({"content": "Hi"}, "stop")) == [TextDelta("Hi"), *STOP]
    assert said(chunk({"content": "Hi"}, "stop"), DONE.strip()) == [TextDelta("Hi"), *STOP]


def test_a_stream_that_dies_has_failed() -> None:
    *_, text, failed = read(chunk({"content": "Hel"}))
    assert text == TextDelta("Hel")
    assert isinstance(failed, Failed) and isinstance(failed.error, Cut)


@pytest.mark.parametrize("after", [DONE, b"", chunk({"content": "x"})], ids=["done", "end", "more"])
def test_an_error_object_ends_the_stream(after: bytes) -> None:
    """vLLM sends [DONE] behind it, llama.cpp nothing; it is the end either way."""
    error = b'data: {"error":{"message":"engine queue full","type":"overloaded","code":503}}\n\n'
    text, failed = said(chunk({"content": "Hel"}), error, after)
    assert text == TextDelta("Hel")
    assert isinstance(failed, Failed) and isinstance(failed.error, InStreamError)
    assert failed.error.code is ErrorClass.OVERLOADED and str(failed.error) == "engine queue full"


@pytest.mark.parametrize(
    "bad", [b'data: {"choices":[{"delta"\n\n', b'data: {"choices":"none"}\n\n', b"data: hello\n\n", b"data: \xff\n\n"]
)
def test_what_is_no_chunk_fails_the_stream(bad: bytes) -> None:
    text, failed = said(chunk({"content": "Hel"}), bad, chunk({"content": "lo"}, "stop"), DONE)
    assert text == TextDelta("Hel")
    assert isinstance(failed, Failed) and isinstance(failed.error, Garbled)


def test_what_is_somebody_elses_is_ignored() -> None:
    """Side channels (sse-017), comments, Azure's first chunk about the prompt, members that nobody knows."""
    prompt = b'data: {"id":"","choices":[],"prompt_filter_results":[]}\n\n'
    side = b'data: {"warning":"no usage reported"}\n\n'
    events = said(prompt, b": comment\n\n", chunk({"content": "Hi", "x": [{}]}, token_ids=[1]), side, chunk({}, "stop"))
    assert events == [TextDelta("Hi"), *STOP]
