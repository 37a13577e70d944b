"""What servers of OpenAI's Responses send, within and beside the books, and what is understood of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from arbiter._speedups import reduce
from arbiter.errors import Cut, ErrorClass, Garbled, InStreamError
from arbiter.fold import collect
from arbiter.model import (
    CallStarted,
    Ended,
    Event,
    Failed,
    Finish,
    Finished,
    Started,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ThinkingSigned,
    ToolCall,
    UsageReported,
)
from arbiter.wire import openai_responses

START = {"type": "response.created", "response": {"id": "resp_1", "model": "up"}}
END = {"type": "response.completed", "response": {"id": "resp_1", "model": "up", "status": "completed", "output": []}}


def read(*events: Any) -> list[Event]:
    reader = openai_responses.reader()
    data = b"".join(
        b"data: " + (one if isinstance(one, bytes) else json.dumps(one).encode()) + b"\n\n" for one in events
    )
    return reader.feed(data) + reader.finish()


def whole(*events: Any) -> list[Event]:
    """The events between a start and an end."""
    found = read(START, *events, END)
    assert found[0] == Started("resp_1", "up") and found[-1] == Ended()
    return found[1:-2]


def added(item: dict[str, Any], **where: Any) -> dict[str, Any]:
    return {"type": "response.output_item.added", "item": item, **where}


def done(item: dict[str, Any], **where: Any) -> dict[str, Any]:
    return {"type": "response.output_item.done", "item": item, **where}


def delta(kind: str, text: str, **where: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}.delta", "delta": text, **where}


def call(id: str, **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "id": f"fc_{id}", "call_id": id, "name": "f", "arguments": "", **more}


def calls(events: list[Event]) -> list[tuple[str, str]]:
    parts = collect([*events, Finished(Finish.STOP), Ended()]).parts
    return [(part.id, part.arguments) for part in parts if isinstance(part, ToolCall)]


def test_slices_find_their_call_by_index_by_id_or_as_the_latest() -> None:
    argument = "function_call_arguments"
    by_index = [added(call("a"), output_index=0), added(call("b"), output_index=1)]
    by_index += [delta(argument, "{1", output_index=0), delta(argument, "{2", output_index=1)]
    by_id = [
        added(call("a")),
        added(call("b")),
        delta(argument, "{1", item_id="fc_a"),
        delta(argument, "{2", item_id="fc_b"),
    ]
    latest = [added(call("a")), delta(argument, "{1"), added(call("b")), delta(argument, "{2")]
    for events in (by_index, by_id, latest):
        assert calls(whole(*events)) == [("a", "{1"), ("b", "{2")]


def test_what_an_item_has_at_its_end_counts_where_no_delta_said_it() -> None:
    told = call("a", arguments='{"x":1}')
    assert calls(whole(added(call("a"), output_index=0), done(told, output_index=0))) == [("a", '{"x":1}')]
    assert calls(whole(done(told, output_index=0))) == [("a", '{"x":1}')]
    slices = [added(call("a"), output_index=0), delta("function_call_arguments", '{"x":1}', output_index=0)]
    assert calls(whole(*slices, done(told, output_index=0))) == [("a", '{"x":1}')]
    assert calls(whole(added(call("a")), done(call("a")))) == [("a", "{}")]
    assert calls(whole(added({**call("a"), "id": None}), done(told))) == [("a", '{"x":1}')]
    free = {"type": "custom_tool_call", "call_id": "p", "name": "p", "input": "***"}
    assert whole(done(free))[0] == CallStarted(0, "p", "p", True)


def test_the_response_at_the_end_counts_where_nothing_else_was_said() -> None:
    message = {
        "type": "message",
        "content": [{"type": "output_text", "text": "a"}, {"type": "refusal", "refusal": "b"}],
    }
    response = {**END["response"], "output": [message, {"type": "brand_new", "content": 5}]}  # type: ignore[dict-item]
    answer = collect(read(START, {"type": "response.completed", "response": response}))
    assert [part.text for part in answer.parts] == ["a", "b"]  # type: ignore[union-attr]
    said = read(START, delta("output_text", "a"), {"type": "response.completed", "response": response})
    assert collect(said).text() == "a"


def test_ids_of_calls_are_different_and_there() -> None:
    made = [{**call("a"), "call_id": "", "id": ""}, call("x"), {**call("x"), "id": "fc_y"}]
    found = calls(whole(*(done(one, output_index=at) for at, one in enumerate(made))))
    assert [id for id, _ in found][1] == "x" and len({id for id, _ in found}) == 3 and all(id for id, _ in found)


def test_the_group_of_a_tool_is_the_beginning_of_its_name() -> None:
    (started, *_) = whole(done(call("a", namespace="agents", name="close")))
    assert started == CallStarted(0, "a", "agents__close")


def test_a_thought_is_told_once_and_its_parts_stand_apart() -> None:
    """Its summary or itself, whichever comes first; a new thought ends the one before."""
    summary = [delta("reasoning_summary_text", text, output_index=0, summary_index=at) for at, text in enumerate("ab")]
    itself = [delta("reasoning_text", "z", output_index=0, content_index=0)]
    other = [delta("reasoning_text", "c", output_index=1)]
    assert whole(*summary, *itself, *other) == [
        ThinkingDelta("a"),
        ThinkingDelta("\n\nb"),
        ThinkingSigned(""),
        ThinkingDelta("c"),
    ]
    item = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "a"}], "content": None}
    assert collect(read(START, done(item), END)).parts == (Thinking("a"),)


@pytest.mark.parametrize(
    ("status", "details", "finish", "word"),
    [
        ("completed", None, Finish.STOP, "completed"),
        ("incomplete", {"reason": "max_output_tokens"}, Finish.LENGTH, "max_output_tokens"),
        ("incomplete", {"reason": "content_filter"}, Finish.CONTENT_FILTER, "content_filter"),
        ("incomplete", {"reason": "steered"}, Finish.STOP, "steered"),
    ],
)
def test_why_it_stopped(status: str, details: Any, finish: Finish, word: str) -> None:
    reader = openai_responses.reader()
    body = {"id": "resp_1", "status": status, "incomplete_details": details, "output": []}
    found = reader.read(b"", json.dumps({"type": f"response.{status}", "response": body}).encode())
    assert Finished(finish) in found and reader.finish_word == word
    assert openai_responses.parse_answer(json.dumps(body).encode()).finish is finish


def test_a_response_that_failed_tells_what_it_cost_and_why() -> None:
    error = {"code": "rate_limit_exceeded", "message": "Tokens per minute exceeded"}
    usage = {"input_tokens": 3, "output_tokens": 1}
    body = {"id": "resp_1", "status": "failed", "error": error, "usage": usage, "output": []}
    _, told, failed = read(START, {"type": "response.failed", "response": body})
    assert isinstance(told, UsageReported) and told.usage.output == 1
    assert isinstance(failed, Failed) and failed.error.code is ErrorClass.RATE_LIMITED_TRANSIENT
    with pytest.raises(InStreamError, match="Tokens per minute"):
        openai_responses.parse_answer(json.dumps(body).encode())


@pytest.mark.parametrize(
    "event",
    [
        {"type": "error", "code": "server_error", "message": "busy", "param": None},
        {"type": "error", "error": {"type": "server_error", "message": "busy"}},
        {"error": {"message": "busy"}},
    ],
)
def test_an_error_event_ends_the_stream(event: dict[str, Any]) -> None:
    *_, failed = read(START, delta("output_text", "a"), event, END)
    assert isinstance(failed, Failed) and str(failed.error) == "busy"


def test_a_stream_that_ends_without_its_response_is_cut() -> None:
    *_, failed = read(START, delta("output_text", "a"))
    assert isinstance(failed, Failed) and isinstance(failed.error, Cut)


def test_another_formats_last_word_and_blanks_say_nothing() -> None:
    assert whole(b"[DONE]", b"", delta("output_text", "")) == []
    reader = openai_responses.reader()
    assert reader.read(b"response.output_text.delta", b'{"delta":"a"}') == [Started(), TextDelta("a")]


@pytest.mark.parametrize(
    "event",
    [
        delta("function_call_arguments", "{", output_index=3),
        {"type": "response.output_text.delta", "delta": "a", "output_index": "x"},
        b"{",
    ],
)
def test_what_breaks_the_format_is_the_upstreams_fault(event: Any) -> None:
    *_, failed = read(START, event)
    assert isinstance(failed, Failed) and isinstance(failed.error, Garbled)


def test_what_must_be_remembered_has_a_bound() -> None:
    items = [added({"type": "message"}, output_index=at) for at in range(reduce.MAX_CALLS + 1)]
    parts = [delta("output_text", "a", output_index=0, content_index=at) for at in range(reduce.MAX_CALLS + 1)]
    for events in (items, parts):
        *_, failed = read(START, *events)
        assert isinstance(failed, Failed) and isinstance(failed.error, Garbled)


@pytest.mark.parametrize("body", [b"{}", b'{"id":"x"}', b"[]", b'{"output":5}'])
def test_a_body_that_is_no_response_is_garbled(body: bytes) -> None:
    with pytest.raises(Garbled):
        openai_responses.parse_answer(body)


def test_a_200_that_is_an_error() -> None:
    with pytest.raises(InStreamError, match="busy"):
        openai_responses.parse_answer(b'{"error":{"message":"busy"}}')


def test_log_probabilities_are_one_line() -> None:
    """An event may have several lines of data; what another format's client is sent of it has one."""
    entry = {"token": "a\n", "logprob": -0.1, "bytes": [97, 10], "top_logprobs": []}
    event = json.dumps(delta("output_text", "a\n", logprobs=[entry]), indent=1)
    for end in ("\n", "\r\n", "\r"):
        (told,) = whole(event.replace("\n", f"{end}data: ").encode())
        assert isinstance(told, TextDelta) and told.logprobs is not None and not {10, 13} & set(told.logprobs)
        assert json.loads(told.logprobs) == {"content": [entry], "refusal": None}


# --- Very long ones ---------------------------------------------------------------------------------------------------


PROBABLE = {"token": "a", "bytes": [97, 98, 99], "logprob": -0.5}


def spoken(tokens: int) -> dict[str, Any]:
    probable = [{**PROBABLE, "top_logprobs": [PROBABLE] * 20}] * tokens
    part = {"type": "output_text", "text": "a" * tokens, "annotations": [], "logprobs": probable}
    return {"id": "msg_1", "type": "message", "role": "assistant", "content": [part]}


def test_log_probabilities_do_not_make_an_answer_too_large() -> None:
    """Whether they come in one delta or with the item at its end, and in a whole answer of any length."""
    message = spoken(1500)
    probable = message["content"][0]["logprobs"]
    delta = {"type": "response.output_text.delta", "output_index": 0, "item_id": "msg_1", "delta": "a" * 1500}
    end = {"type": "response.completed", "response": {"status": "completed", "output": [message]}}
    item = {"type": "response.output_item.done", "output_index": 0, "item": message}
    for events in ([{**delta, "logprobs": probable}, item, end], [item, end], [end]):
        answer = collect(read(START, *events))
        assert answer.text() == "a" * 1500
        assert answer.finish is Finish.STOP
    whole = {"id": "resp_1", "status": "completed", "output": [spoken(16_000)]}
    answer = openai_responses.parse_answer(json.dumps(whole).encode())
    assert len(answer.text()) == 16_000 and len(answer.logprobs) == 1


def test_log_probabilities_have_a_bound_of_their_own() -> None:
    part = {"type": "output_text", "text": "a", "logprobs": [0] * 100_001}
    whole = {"status": "completed", "output": [{"type": "message", "content": [part]}]}
    with pytest.raises(Garbled, match="log probabilities"):
        openai_responses.parse_answer(json.dumps(whole).encode())
