"""OpenAI Chat streams and answers, inwards: what servers do to chunks, and what it means."""

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
    Refusal,
    RefusalDelta,
    Started,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ThinkingRedacted,
    ToolCall,
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


def test_a_fault_names_its_place_and_repeats_nothing() -> None:
    """What the upstream sent may be anybody's secret (A92: category, expected type and path)."""
    *_, failed = read(chunk({"content": ["my secret"]}))
    assert isinstance(failed, Failed)
    text = str(failed.error)
    assert text.endswith("Expected `object`, got `str` - at `$.choices[0].delta.content[0]`")


def test_what_is_somebody_elses_is_ignored() -> None:
    """Side channels (sse-017), comments, Azure's first chunk about the prompt, members that nobody knows."""
    prompt = b'data: {"id":"","choices":[],"prompt_filter_results":[]}\n\n'
    side = b'data: {"warning":"no usage reported"}\n\n'
    events = said(prompt, b": comment\n\n", chunk({"content": "Hi", "x": [{}]}, token_ids=[1]), side, chunk({}, "stop"))
    assert events == [TextDelta("Hi"), *STOP]


# --- Calls that no book describes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "names",
    [["get_", "weather"], ["get_weather", "get_weather"], ["get_w", "get_weather"], ["get_weather", "", "get_weather"]],
    ids=["in pieces", "repeated", "so far", "with a gap"],
)
def test_a_name_is_whole_before_its_call_opens(names: list[str]) -> None:
    """Gemini sends it in pieces, MiniMax again with every slice; the first arguments say that it is all there."""
    slices = [call(index=0, id="call_a", function={"name": name, "arguments": ""}) for name in names]
    name = names[-1] if names[0] == names[-1] else ""
    arguments = call(index=0, function={"name": name, "arguments": '{"city":"Oslo"}'})
    assert said(*slices, arguments, chunk({}, "tool_calls"), DONE) == [*OSLO, *CALLED]


def test_a_call_without_arguments_opens_at_the_latest_with_the_finish() -> None:
    opened = [CallStarted(0, "a", "f"), CallStarted(1, "b", "g")]
    calls = [call(index=0, id="a", function={"name": "f"}), call(index=1, id="b", function={"name": "g"})]
    assert said(*calls, chunk({}, "tool_calls"), DONE) == [*opened, *CALLED]
    assert said(*calls, DONE)[:2] == opened


def test_calls_without_ids_are_told_apart_by_their_arguments() -> None:
    """All at index 0, no ids, one whole object behind another; named again or not."""
    first = call(index=0, function=WEATHER)
    for second in ({"name": "get_weather", "arguments": "{}"}, {"name": "", "arguments": "{}"}, {"arguments": "{}"}):
        events = said(first, call(index=0, function=second), chunk({}, "tool_calls"), DONE)
        opened = [event for event in events if isinstance(event, CallStarted)]
        assert opened == [CallStarted(i, f"call_cc-1_{i}", "get_weather") for i in (0, 1)]
        assert CallDelta(1, "{}") in events


def test_a_call_of_another_name_is_another_call() -> None:
    events = said(call(index=0, function=WEATHER), call(index=0, function=TIME), chunk({}, "tool_calls"), DONE)
    assert [event.name for event in events if isinstance(event, CallStarted)] == ["get_weather", "get_time"]


def test_one_id_at_two_indices_is_two_calls() -> None:
    """The results would be mixed up under one id; the second gets another."""
    calls = [call(index=0, id="x", function=WEATHER), call(index=1, id="x", function=TIME)]
    events = said(*calls, chunk({}, "tool_calls"), DONE)
    assert [(event.id, event.name) for event in events if isinstance(event, CallStarted)] == [
        ("x", "get_weather"),
        ("call_cc-1_1", "get_time"),
    ]


def test_an_id_that_is_a_bare_number_is_not_passed_on() -> None:
    """SGLang counts from 0 in every answer; two turns of one conversation would share an id."""
    calls = [call(id="0", function={"name": "f", "arguments": "{"}), call(id="0", function={"arguments": "}"})]
    assert said(*calls, chunk({}, "tool_calls"), DONE)[:3] == [
        CallStarted(0, "call_cc-1_0", "f"),
        CallDelta(0, "{"),
        CallDelta(0, "}"),
    ]


def test_an_id_may_come_after_the_name() -> None:
    calls = [call(index=0, function={"name": "f"}), call(index=0, id="a"), call(index=0, function={"arguments": "{}"})]
    assert said(*calls, chunk({}, "tool_calls"), DONE)[:2] == [CallStarted(0, "a", "f"), CallDelta(0, "{}")]


def test_ids_of_ours_differ_where_the_server_gives_none_at_all() -> None:
    """Nothing in the stream could make them unique, so chance does."""
    bare = json.dumps({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": WEATHER}]}}]})
    first, second = (read(f"data: {bare}\n\n".encode())[1] for _ in range(2))
    assert isinstance(first, CallStarted) and isinstance(second, CallStarted) and first.id != second.id


def test_what_follows_whole_arguments_is_dropped() -> None:
    """Blanks, or the same arguments once more: anything behind would break them."""
    calls = [call(index=0, id="a", function=WEATHER), call(index=0, id="a", function=WEATHER), call(index=0, id="a")]
    assert said(*calls, chunk({}, "tool_calls"), DONE) == [
        CallStarted(0, "a", "get_weather"),
        CallDelta(0, '{"city":"Oslo"}'),
        *CALLED,
    ]


@pytest.mark.parametrize("members", [{"index": 0}, {}, {"index": 0, "id": "call_a"}, {"index": 0, "id": None}])
def test_the_same_arguments_again_are_an_echo(members: dict[str, Any]) -> None:
    """An agent would run the tool twice; other arguments are another call."""
    echo = call(**members, function={"arguments": WEATHER["arguments"]})
    assert said(call(index=0, id="call_a", function=WEATHER), echo, chunk({}, "stop"), DONE) == [*OSLO, *CALLED]
    sliced = [{"index": 0, "function": {"arguments": one}} for one in ('{"city"', ':"Oslo"}')]
    calls = [call(index=0, id="call_a", function={"name": "get_weather"}), *(call(**one) for one in sliced)]
    events = said(*calls, echo, chunk({}, "stop"), DONE)
    assert [event.arguments for event in events if isinstance(event, CallDelta)] == ['{"city"', ':"Oslo"}']


def test_the_same_call_without_ids_is_another_call() -> None:
    """A server that gives none has no other way to say so: its name comes again, too."""
    events = said(call(index=0, function=WEATHER), call(index=0, function=WEATHER), chunk({}, "tool_calls"), DONE)
    assert [event.index for event in events if isinstance(event, CallStarted)] == [0, 1]


def test_what_follows_whole_arguments_in_their_last_slice_is_dropped() -> None:
    """Some parsers close the object once too often. What says more, or less, is left as it is."""
    for arguments in ('{"city":"Oslo"}}', '{"city":"Oslo"}\n', '\n{"city":"Oslo"}"}'):
        function = {**WEATHER, "arguments": arguments}
        assert said(call(index=0, id="call_a", function=function), chunk({}, "stop"), DONE) == [*OSLO, *CALLED]
    for arguments in ('{"city":"Os', '{"city":"Oslo"}{"city":"Rome"}'):
        function = {**WEATHER, "arguments": arguments}
        assert CallDelta(0, arguments) in said(call(index=0, id="a", function=function), chunk({}, "length"), DONE)


def test_an_empty_object_before_the_slices_says_nothing() -> None:
    calls = [call(index=0, id="call_a", function={"name": "get_weather", "arguments": {}})]
    calls.append(call(index=0, function={"arguments": '{"city":"Oslo"}'}))
    assert said(*calls, chunk({}, "tool_calls"), DONE) == [*OSLO, *CALLED]


def test_a_function_call_of_old_is_a_call() -> None:
    deltas = [{"function_call": {"name": "get_weather", "arguments": ""}}, {"function_call": {"arguments": "{}"}}]
    events = said(*(chunk(delta) for delta in deltas), chunk({}, "function_call"), DONE)
    assert events == [CallStarted(0, "call_cc-1_0", "get_weather"), CallDelta(0, "{}"), *CALLED]


def test_too_many_calls_are_a_fault() -> None:
    """Each is remembered to the end; SPEC 14.1 wants a bound on all that is."""
    *_, failed = said(*(call(index=i, id=f"c{i}", function={"name": "f"}) for i in range(1025)))
    assert isinstance(failed, Failed) and isinstance(failed.error, Garbled)


def test_a_call_of_megabytes_may_come_whole() -> None:
    """A file to write, in one chunk; only what waits is counted."""
    arguments = json.dumps({"content": "x" * 3_000_000})
    events = said(call(index=0, id="a", function={"name": "f", "arguments": arguments}), chunk({}, "tool_calls"))
    assert CallDelta(0, arguments) in events


def test_what_is_kept_of_calls_has_a_bound() -> None:
    """Names that never end, ids that are long, arguments of a call that never gets a name."""
    long = "x" * 600_000
    for one in (
        [call(index=0, function={"name": f"{i}{long}"}) for i in range(2)],
        [call(index=i, id=f"{i}{long}", function={"name": "f"}) for i in range(2)],
        [call(index=0, id="a", function={"arguments": long}) for _ in range(2)],
    ):
        *_, failed = said(*one)
        assert isinstance(failed, Failed) and isinstance(failed.error, Garbled)


def test_a_slice_that_belongs_to_no_call_is_a_fault() -> None:
    (failed,) = said(call(index=3, function={"arguments": "{}"}))
    assert isinstance(failed, Failed) and isinstance(failed.error, Garbled)


# --- Reasoning and content --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("delta", "event"),
    [
        ({"reasoning_content": "Hm", "reasoning": "Hm"}, ThinkingDelta("Hm", "reasoning_content")),
        ({"reasoning": {"content": "Hm"}}, ThinkingDelta("Hm", "reasoning")),
        ({"reasoning": {"text": "Hm"}}, ThinkingDelta("Hm", "reasoning")),
        ({"reasoning": "Hm", "reasoning_details": [{"text": "Hm"}]}, ThinkingDelta("Hm", "reasoning")),
        ({"reasoning_details": [{"type": "reasoning.summary", "summary": "Hm"}]}, ThinkingDelta("Hm", "reasoning")),
        ({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}]}, ThinkingDelta("Hm")),
        ({"content": [{"type": "thinking", "thinking": "Hm"}]}, ThinkingDelta("Hm")),
        ({"content": [{"type": "text", "text": "Hi"}, {"type": "reference", "reference_ids": [1]}]}, TextDelta("Hi")),
        ({"content": [{"type": "refusal", "refusal": "No"}]}, RefusalDelta("No")),
        ({"content": "Hi", "role": "assistant", "annotations": [{}]}, TextDelta("Hi")),
    ],
)
def test_what_is_said_is_found_where_servers_put_it(delta: dict[str, Any], event: Event) -> None:
    """Once, where they put it in several places."""
    events = said(chunk(delta), chunk({}, "stop"), DONE)
    assert [one for one in events if type(one) is not ThinkingRedacted] == [event, *STOP]


def test_half_of_a_surrogate_pair_becomes_a_replacement_character() -> None:
    """Servers cut text in the middle of an emoji; the rest of the stream is as good as ever."""
    data = (
        rb'data: {"id":"cc-1","model":"m","choices":[{"delta":{"content":"a\ud83d"},"finish_reason":"stop"}]}' + b"\n\n"
    )
    assert said(data, DONE) == [TextDelta("a�"), *STOP]


def test_log_probabilities_pass_as_they_are() -> None:
    """In one line, as an event needs it; nothing where they say nothing."""
    told = {"content": [{"token": "Hi", "logprob": -0.5}], "refusal": None}
    pretty = json.dumps(
        {"id": "cc-1", "model": "m", "choices": [{"delta": {"content": "Hi"}, "logprobs": told}]}, indent=1
    )
    data = "".join(f"data: {line}\n" for line in pretty.split("\n")) + "\n"
    text, *rest = said(
        data.encode(), chunk({}, "stop", choices=[{"delta": {}, "logprobs": {"content": []}}]), chunk({}, "stop")
    )
    assert isinstance(text, TextDelta) and text.logprobs is not None
    assert b"\n" not in text.logprobs and json.loads(text.logprobs) == told
    assert rest == STOP


# --- Ends -------------------------------------------------------------------------------------------------------------

WHOLE = [chunk({"content": "Hi"}), chunk({}, "stop")]


@pytest.mark.parametrize(
    "after",
    [
        chunk({}),
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": ""}, "stop"),
        chunk({"tool_calls": []}, ""),
    ],
    ids=["empty", "role", "the same finish", "empty lists"],
)
def test_noise_behind_the_finish_is_accepted(after: bytes) -> None:
    """SPEC 2.6; what usage it carries is kept."""
    assert said(*WHOLE, after, DONE) == [TextDelta("Hi"), *STOP]
    with_usage = after.replace(
        b'"model"', b'"usage":{"prompt_tokens":10,"completion_tokens":3,"total_tokens":13},"model"'
    )
    assert said(*WHOLE, with_usage, DONE)[-2:] == [UsageReported(COUNTS), Ended()]


@pytest.mark.parametrize("after", [chunk({"content": "x"}), chunk({}, "length"), call(index=0, id="a", function=TIME)])
def test_data_or_another_reason_behind_the_finish_is_a_fault(after: bytes) -> None:
    """SPEC 2.6: recorded as the upstream's protocol error."""
    *_, failed = said(*WHOLE, after, DONE)
    assert isinstance(failed, Failed) and failed.error.code is ErrorClass.UPSTREAM_PROTOCOL


@pytest.mark.parametrize("before", [[], WHOLE[:1], WHOLE], ids=["first", "in the middle", "behind the finish"])
@pytest.mark.parametrize(
    "error",
    [
        b'data: {"error":{"message":"busy","code":503}}\n\n',
        b'data: {"error":"busy"}\n\n',
        b'data: {"object":"error","message":"busy","type":"BadRequestError"}\n\n',
        b'event: error\ndata: {"message":"busy"}\n\n',
        b'data: {"type":"error","error":{"type":"overloaded_error","message":"busy"}}\n\n',
        b'data: {"choices":[{"index":0,"delta":{},"error":{"message":"busy","code":502},"finish_reason":"error"}]}\n\n',
    ],
)
def test_an_error_is_one_wherever_it_comes_and_however_it_looks(before: list[bytes], error: bytes) -> None:
    *_, failed = read(*before, error, DONE)
    assert isinstance(failed, Failed) and isinstance(failed.error, InStreamError) and str(failed.error) == "busy"


@pytest.mark.parametrize(
    ("word", "code"),
    [("error", ErrorClass.UPSTREAM_ERROR), ("insufficient_system_resource", ErrorClass.OVERLOADED)],
)
def test_some_finish_reasons_are_failures(word: str, code: ErrorClass) -> None:
    """What was counted by then is kept."""
    *_, usage, failed = said(chunk({"content": "Hi"}), chunk({}, word, usage=USAGE), DONE)
    assert usage == UsageReported(COUNTS)
    assert isinstance(failed, Failed) and failed.error.code is code


@pytest.mark.parametrize("empty", [b'"error":null', b'"error":{}', b'"error":""'])
def test_an_error_member_that_says_nothing_is_none(empty: bytes) -> None:
    assert said(WHOLE[0].replace(b'"model"', empty + b',"model"'), *WHOLE[1:], DONE) == [TextDelta("Hi"), *STOP]


def test_the_upstreams_own_word_is_kept() -> None:
    reader = openai_chat.reader()
    reader.feed(b"".join([*WHOLE[:1], chunk({}, "max_tokens"), chunk({}, "length")]))
    assert reader.finish_word == "max_tokens"


def test_usage_is_found_where_servers_put_it() -> None:
    for holder in ({"usage": USAGE}, {"x_groq": {"usage": USAGE}}):
        assert said(chunk({}, "stop", **holder), DONE)[1] == UsageReported(COUNTS)
    in_choice = [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": USAGE}]
    assert said(chunk({}, choices=in_choice), DONE)[1] == UsageReported(COUNTS)


def test_usage_that_is_none_is_not_reported() -> None:
    odd = {"prompt_tokens": None, "completion_tokens": -1, "total_tokens": 0.5}
    assert said(chunk({"content": "Hi"}, "stop", usage=odd), chunk(usage={}), DONE) == [TextDelta("Hi"), *STOP]


def test_other_choices_are_not_ours() -> None:
    other = {"index": 1, "delta": {"content": "no"}, "finish_reason": "length"}
    both = [other, {"index": 0, "delta": {"content": "Hi"}, "finish_reason": None}]
    assert said(chunk(choices=both), chunk(choices=[other]), chunk({}, "stop"), DONE) == [TextDelta("Hi"), *STOP]


# --- Where slices may pass the reader by ------------------------------------------------------------------------------


def test_slices_pass_by_only_where_their_index_tells_their_call() -> None:
    """Not before the first; not of a call that is whole, whose next slice may begin another, or that is no object."""
    reader = openai_chat.reader()
    assert reader.place_of(0) == -1
    reader.feed(call(index=2, id="a", function={"name": "f", "arguments": ""}))
    assert reader.place_of(0) == -1
    reader.feed(call(index=2, function={"arguments": "{"}))
    assert reader.place_of(0) == 2
    reader.feed(call(index=2, id="b", function={"name": "g", "arguments": "{}"}))
    assert reader.place_of(0) == -1 and reader.place_of(1) == -1
    reader.feed(call(index=3, id="c", function={"name": "h", "arguments": "["}))
    assert reader.place_of(2) == -1
    reader.feed(call(index=4, function={"name": "h", "arguments": ' {"a":'}))
    assert reader.place_of(3) == 4


def test_arguments_that_passed_by_count_as_read() -> None:
    """What comes behind them is an echo, or the next call, as if all had been read."""
    for behind, calls in (('{"x":1}', 1), ("}", 1), (" ", 1), ('{"x":2}', 2)):
        reader = openai_chat.reader()
        reader.feed(call(index=0, id="a", function={"name": "f", "arguments": "{"}))
        assert reader.place_of(0) == 0 and reader.keeps
        reader.carried('"x"')
        reader.carried(":1")
        reader.feed(call(index=0, function={"arguments": "}"}))
        events = reader.feed(call(index=0, function={"arguments": behind})) + reader.feed(chunk({}, "stop"))
        assert events[:-1] == [CallStarted(1, "call_cc-1_1", "f"), CallDelta(1, '{"x":2}')][: 2 * (calls - 1)]


# --- Unary answers ----------------------------------------------------------------------------------------------------


def test_a_whole_answer_may_be_as_wide_as_its_log_probabilities() -> None:
    """Those stay text; of what becomes an object each, a stream's chunk may not have more either."""
    probability = {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}
    found = answer_of({"message": {"content": "Hi"}, "logprobs": {"content": [probability] * 40_000}})
    assert len(found.logprobs) == 1
    for wide in (
        {"message": {"content": [{"type": "text", "text": "x"}] * 60_000}},
        {"message": {"tool_calls": [{"id": "a", "function": {"name": "f"}}] * 60_000}},
    ):
        with pytest.raises(Garbled, match="too many values"):
            answer_of(wide)
    with pytest.raises(Garbled, match="too many values"):
        openai_chat.parse_answer(b'{"choices":[%b]}' % b",".join([b"{}"] * 100_001))


def answer_of(choice: dict[str, Any]) -> Answer:
    return openai_chat.parse_answer(json.dumps({"choices": [{"index": 0, "finish_reason": "stop", **choice}]}).encode())


def answer(**message: Any) -> Answer:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    return openai_chat.parse_answer(json.dumps({"id": "cc-1", "model": "m", "choices": [choice]}).encode())


@pytest.mark.parametrize(
    ("message", "parts"),
    [
        ({"content": None}, ()),
        ({"content": ""}, ()),
        ({"content": [{"type": "text", "text": "Hi"}]}, (Text("Hi"),)),
        ({"content": "Hi", "refusal": None, "tool_calls": []}, (Text("Hi"),)),
        ({"content": None, "refusal": "No"}, (Refusal("No"),)),
        ({"content": "Hi", "reasoning": {"content": "Hm"}}, (Thinking("Hm", spelling="reasoning"), Text("Hi"))),
        (
            {"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": {"x": 1}}}]},
            (ToolCall("a", "f", '{"x": 1}'),),
        ),
        ({"tool_calls": [{"id": "a", "function": {"name": "f"}}]}, (ToolCall("a", "f", "{}"),)),
        (
            {"tool_calls": [{"function": {"name": "f"}}, {"function": {"name": "f"}}]},
            (ToolCall("call_cc-1_0", "f", "{}"), ToolCall("call_cc-1_1", "f", "{}")),
        ),
        ({"function_call": {"name": "f", "arguments": "{}"}}, (ToolCall("call_cc-1_0", "f", "{}"),)),
    ],
)
def test_an_answer_is_read_as_a_stream_of_one_chunk(message: dict[str, Any], parts: tuple[Part, ...]) -> None:
    """With all that streams are forgiven."""
    found = answer(**message)
    assert found.parts == parts and (found.id, found.model) == ("cc-1", "m")


def test_of_several_choices_the_first_is_the_answer() -> None:
    def body(*indices: int) -> bytes:
        return json.dumps({"choices": [{"index": i, "message": {"content": str(i)}} for i in indices]}).encode()

    assert openai_chat.parse_answer(body(1, 0)).text() == "0"
    assert openai_chat.parse_answer(body(3, 4)).text() == "3"


@pytest.mark.parametrize(
    "body", [b"", b"[DONE]", b"{}", b'{"choices":[]}', b'{"usage":{"prompt_tokens":1}}', b"<html>", b"[]"]
)
def test_what_is_no_answer_is_garbled(body: bytes) -> None:
    with pytest.raises(Garbled):
        openai_chat.parse_answer(body)


def test_an_error_in_place_of_an_answer_is_one() -> None:
    with pytest.raises(InStreamError, match="busy"):
        openai_chat.parse_answer(b'{"error":{"message":"busy"}}')


def test_log_probabilities_of_a_long_answer_are_read() -> None:
    """Some sixty values for each token; an event of a stream has never as many, so its bound is lower."""
    token = {"token": "x", "logprob": -0.5, "bytes": [120], "top_logprobs": [{"token": "y", "logprob": -1.5}] * 20}
    choice = {"index": 0, "message": {"content": "x"}, "logprobs": {"content": [token] * 3000}, "finish_reason": "stop"}
    found = openai_chat.parse_answer(json.dumps({"choices": [choice]}).encode())
    assert len(json.loads(found.logprobs[0])["content"]) == 3000
    too_many = b'{"choices":[{"index":0,"delta":{"tool_calls":[' + b"{}," * 200_000 + b"{}]}}]}"
    *_, failed = read(b"data: " + too_many + b"\n\n")
    assert isinstance(failed, Failed) and isinstance(failed.error, Garbled)
