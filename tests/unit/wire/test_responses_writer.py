"""What a client of OpenAI's Responses is sent, event by event, and what of its request is repeated."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from arbiter.errors import ArbiterError, ErrorClass, Garbled, InStreamError, Unavailable
from arbiter.fold import collect
from arbiter.model import (
    Answer,
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
    ThinkingSigned,
    ToolCall,
    Usage,
    UsageReported,
)
from arbiter.wire import openai_responses, responses_writer
from arbiter.wire.json import NO_MEMBERS
from arbiter.wire.responses_errors import FAILED_CODES
from tests.fakes import grammar


def raw(body: dict[str, Any]) -> dict[str, msgspec.Raw]:
    return msgspec.json.decode(json.dumps(body).encode(), type=dict[str, msgspec.Raw])


def sent(*events: Event, asked: Any = NO_MEMBERS) -> list[dict[str, Any]]:
    writer = openai_responses.writer("T", "m", 17, asked=asked)
    out = b"".join(writer.write(event) for event in events)
    grammar.responses(out)
    return [json.loads(data) for _, data in grammar.frames(out)]


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


TEXT = ["output_item.added", "content_part.added", "output_text.delta", "output_text.done", "content_part.done",
        "output_item.done"]  # fmt: skip


def test_text_is_a_message_of_one_part() -> None:
    events = sent(Started("x", "up"), TextDelta("Hé"), TextDelta("llo"), Finished(Finish.STOP), Ended())
    assert kinds(events) == ["created", "in_progress", *TEXT[:3], *TEXT[2:], "completed"]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    message = events[-1]["response"]["output"][0]
    assert message == {
        "id": "msg_T_0",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Héllo", "annotations": [], "logprobs": []}],
    }
    assert {event["item_id"] for event in events if "item_id" in event} == {"msg_T_0"}
    assert events[-1]["response"]["model"] == "up" and events[-1]["response"]["created_at"] == 17


def test_each_kind_is_an_item_of_its_own() -> None:
    """A thought ends where it is signed; text and a refusal are parts of one message."""
    events = sent(
        ThinkingDelta("Hm"),
        ThinkingSigned("s"),
        ThinkingDelta("So"),
        TextDelta("a"),
        RefusalDelta("no"),
        CallStarted(0, "c", "f"),
        CallDelta(0, "{}"),
        TextDelta("b"),
        Finished(Finish.TOOL_CALLS),
        Ended(),
    )
    output = events[-1]["response"]["output"]
    assert [item["id"] for item in output] == ["rs_T_0", "rs_T_1", "msg_T_2", "fc_T_3", "msg_T_4"]
    assert output[0]["summary"] == [{"type": "summary_text", "text": "Hm"}]
    assert [part["type"] for part in output[2]["content"]] == ["output_text", "refusal"]


def test_calls_may_be_interleaved() -> None:
    """One that is whole ends when something else begins; one that is not stays open beside it."""
    slices = [
        CallStarted(0, "a", "f"),
        CallStarted(1, "b", "g"),
        CallDelta(0, '{"x":'),
        CallDelta(1, "{}"),
        CallDelta(0, "1}"),
    ]
    events = sent(*slices, TextDelta("t"), Finished(Finish.TOOL_CALLS), Ended())
    done = [event["output_index"] for event in events if event["type"] == "response.output_item.done"]
    assert done == [0, 1, 2]
    assert [event.get("arguments") for event in events if event["type"].endswith("arguments.done")] == ['{"x":1}', "{}"]
    assert [event["name"] for event in events if event["type"].endswith("arguments.done")] == ["f", "g"]


def test_a_call_without_arguments_has_an_empty_object() -> None:
    events = sent(CallStarted(0, "a", "f"), Finished(Finish.TOOL_CALLS), Ended())
    assert events[-1]["response"]["output"][0]["arguments"] == "{}"
    free = sent(CallStarted(0, "a", "p", True), Finished(Finish.TOOL_CALLS), Ended())
    assert free[-1]["response"]["output"][0]["input"] == ""


def test_what_was_cut_off_is_incomplete() -> None:
    whole, half = (CallStarted(0, "a", "f"), CallDelta(0, "{}")), (CallStarted(1, "b", "f"), CallDelta(1, '{"x'))
    events = sent(*whole, *half, Finished(Finish.LENGTH), Ended())
    response = events[-1]["response"]
    assert events[-1]["type"] == "response.incomplete" and response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert [item["status"] for item in response["output"]] == ["completed", "incomplete"]


def test_log_probabilities_are_this_formats() -> None:
    entry = {"token": "a", "logprob": -0.1, "bytes": [97], "top_logprobs": []}
    found = json.dumps({"content": [entry], "refusal": None}).encode()
    events = sent(TextDelta("a", found), TextDelta("a", found), Finished(Finish.STOP), Ended())
    assert [event["logprobs"] for event in events if event["type"].endswith("text.delta")] == [[entry], [entry]]
    assert events[-1]["response"]["output"][0]["content"][0]["logprobs"] == [entry, entry]
    reader = openai_responses.reader()
    stream = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
    logprobs = [event.logprobs for event in reader.feed(stream) if isinstance(event, TextDelta)]
    assert [json.loads(one or b"null") for one in logprobs] == [{"content": [entry], "refusal": None}] * 2


def test_usage_counts_what_was_cached_and_is_never_lacking() -> None:
    usage = Usage(input=10, cache_read=5, cache_write=3, output=7, reasoning=4)
    told = sent(TextDelta("a"), Finished(Finish.STOP), UsageReported(usage), Ended())[-1]["response"]["usage"]
    assert told == {
        "input_tokens": 18,
        "input_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 3},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 4},
        "total_tokens": 25,
    }
    # Where nobody knows, what is demanded is 0: the AI SDK takes an answer without it for none, and asks again.
    told = sent(TextDelta("a"), Finished(Finish.STOP), Ended())[-1]["response"]["usage"]
    assert (told["input_tokens"], told["output_tokens"], told["total_tokens"]) == (0, 0, 0)
    assert "usage" not in sent(TextDelta("a"), Failed(Unavailable("no")))[-1]["response"]


# --- What was asked ---------------------------------------------------------------------------------------------------

FUNCTION = {"type": "function", "name": "close", "parameters": {"type": "object"}}
GROUP = {"type": "namespace", "name": "agents", "description": "d", "tools": [FUNCTION]}
CALL: list[Event] = [CallStarted(0, "c", "agents__close"), CallDelta(0, "{}"), Finished(Finish.TOOL_CALLS)]


def test_a_call_names_the_group_of_its_tool() -> None:
    """The client's own names: Codex looks its tools up by both."""
    events = sent(*CALL, Ended(), asked=raw({"tools": [GROUP]}))
    items = [event["item"] for event in events if "item" in event] + events[-1]["response"]["output"]
    assert {(item["namespace"], item["name"]) for item in items} == {("agents", "close")}
    answer = Answer(parts=(ToolCall("c", "agents__close", "{}"),), finish=Finish.TOOL_CALLS)
    (item,) = json.loads(openai_responses.write_answer(answer, "T", "m", 17, asked=raw({"tools": [GROUP]})))["output"]
    assert (item["namespace"], item["name"]) == ("agents", "close")
    assert "namespace" not in sent(*CALL, Ended())[-1]["response"]["output"][0]


def test_settings_are_repeated_as_they_were_written() -> None:
    asked = {
        "instructions": "Be terse",
        "temperature": 0.70,
        "store": False,
        "metadata": {"k": "v"},
        "tool_choice": {"type": "function", "name": "f"},
        "parallel_tool_calls": None,
        "tools": [FUNCTION, {"type": "web_search", "x": 1}],
        "service_tier": "flex",
        "user": "u",
        "input": "secret",
    }
    response = sent(Finished(Finish.STOP), Ended(), asked=raw(asked))[-1]["response"]
    for name in ("instructions", "temperature", "store", "metadata", "tool_choice", "user"):
        assert response[name] == asked[name]
    assert response["tools"] == [{**FUNCTION, "strict": True}, {"type": "web_search", "x": 1}]
    assert response["parallel_tool_calls"] is True and response["truncation"] == "disabled"
    assert "service_tier" not in response and "secret" not in json.dumps(response)


def test_what_is_repeated_is_one_line_of_an_event() -> None:
    """However the client lays its JSON out: a line end inside of `data:` would end the event's JSON."""
    asked = {"tools": [FUNCTION, {"type": "web_search"}], "metadata": {"k": "a\nb"}, "user": "u"}
    ending = (Finished(Finish.STOP), Ended())
    laid_out = json.dumps(asked, indent=1).replace("\n", "\r\n").encode()
    told = sent(*ending, asked=msgspec.json.decode(laid_out, type=dict[str, msgspec.Raw]))
    assert told == sent(*ending, asked=raw(asked))
    assert told[-1]["response"]["metadata"] == {"k": "a\nb"}


CUT = [
    [TextDelta("He")],
    [ThinkingDelta("Hm"), TextDelta("He")],
    [TextDelta("He"), ThinkingDelta("Hm")],
    [CallStarted(0, "a", "f"), CallDelta(0, '{"x":1}')],
    [CallStarted(0, "a", "f"), CallDelta(0, '{"x":')],
    [CallStarted(0, "a", "f")],
    [CallStarted(0, "a", "f"), CallDelta(0, "{}")],
    [CallStarted(0, "a", "f"), CallDelta(0, "{}"), TextDelta("He")],
    [CallStarted(0, "a", "f"), CallDelta(0, '{"x":1}'), CallStarted(1, "b", "g"), CallDelta(1, '{"y')],
    [CallStarted(0, "a", "f"), CallDelta(0, '{"x"'), CallStarted(1, "b", "g"), CallDelta(1, '{"y":2}')],
    [CallStarted(0, "a", "f", True), CallDelta(0, "patch")],
    [CallStarted(0, "a", "f", True), CallDelta(0, "patch"), TextDelta("He")],
    [TextDelta("He"), CallStarted(0, "a", "f"), CallDelta(0, '"text"')],
]


@pytest.mark.parametrize("finish", Finish, ids=str)
@pytest.mark.parametrize("said", CUT, ids=str)
def test_an_answer_is_as_complete_whole_as_streamed(said: list[Event], finish: Finish) -> None:
    """What was cut is incomplete, and nothing before it: a whole call stays one at whatever end (SPEC 2.6)."""
    events = [Started("x", "up"), *said, Finished(finish), Ended()]
    (*_, end) = sent(*events)
    whole = json.loads(openai_responses.write_answer(collect(events), "T", "m", 17))
    assert end["response"] == whole


def test_a_whole_call_is_complete_where_the_answer_is_cut() -> None:
    def statuses(*said: Event) -> list[str]:
        answer = collect([*said, Finished(Finish.LENGTH), Ended()])
        return [item["status"] for item in json.loads(openai_responses.write_answer(answer, "T", "m", 17))["output"]]

    assert statuses(CallStarted(0, "a", "f"), CallDelta(0, '{"x":1}')) == ["completed"]
    assert statuses(CallStarted(0, "a", "f"), CallDelta(0, '{"x":')) == ["incomplete"]
    assert statuses(CallStarted(0, "a", "f")) == ["incomplete"]
    assert statuses(TextDelta("He"), CallStarted(0, "a", "f", True), CallDelta(0, "p")) == ["completed", "incomplete"]


def test_a_tier_is_not_told_that_nobody_knows() -> None:
    """Neither where none was asked for nor where one was: whether it was given another upstream does not say."""
    for asked in ({}, {"service_tier": "flex"}):
        (*_, end) = sent(TextDelta("a"), Finished(Finish.STOP), Ended(), asked=raw(asked))
        assert "service_tier" not in end["response"]


# --- Failures ---------------------------------------------------------------------------------------------------------


def test_a_failure_is_an_error_and_the_response_that_failed() -> None:
    """SDKs raise the one, agents read the other; nothing says that it was completed (SPEC 2.7)."""
    error = InStreamError("prompt is too long")
    error.classify(ErrorClass.CONTEXT_LENGTH)
    events = sent(Started("x", "up"), TextDelta("a"), CallStarted(0, "c", "f"), Failed(error))
    assert kinds(events)[-2:] == ["error", "failed"]
    assert events[-2]["code"] == "context_length_exceeded" and events[-2]["message"] == "prompt is too long"
    response = events[-1]["response"]
    assert response["status"] == "failed" and response["error"]["code"] == "context_length_exceeded"
    assert [item["type"] for item in response["output"]] == ["message"]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


@pytest.mark.parametrize("code", ErrorClass, ids=str)
def test_without_a_stream_at_hand_it_is_told_alike(code: ErrorClass) -> None:
    error = ArbiterError("why")
    error.code = code
    out = openai_responses.write_error_event(error, "T")
    assert grammar.responses(out).ending == "error"
    first, second = (json.loads(data) for _, data in grammar.frames(out))
    assert first["code"] == code.value and second["response"]["id"] == "resp_T"
    assert second["response"]["error"]["code"] == FAILED_CODES.get(code, "server_error")


def test_before_a_stream_it_is_a_status_as_in_a_chat() -> None:
    status, headers, body = openai_responses.write_error(Unavailable("busy"), "T")
    assert status == 503 and ("retry-after", "1") in headers and json.loads(body)["error"]["message"] == "busy"


def test_what_an_answer_amounts_to_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it is repeated at the end, and so is kept."""
    monkeypatch.setattr(responses_writer, "MAX_KEPT_BYTES", 100)
    writer = openai_responses.writer("T", "m", 17)
    writer.write(TextDelta("x" * 90))
    with pytest.raises(Garbled):
        writer.write(TextDelta("x" * 90))


def test_what_could_not_be_written_takes_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that fails inside of an event goes on behind what its client has seen."""
    monkeypatch.setattr(responses_writer, "MAX_KEPT_BYTES", 100)
    writer = openai_responses.writer("T", "m", 17)
    out = writer.write(TextDelta("x" * 90))
    with pytest.raises(Garbled) as fault:
        writer.write(CallStarted(1, "c", "f"))
    out += writer.write(Failed(fault.value))
    numbers = [json.loads(data)["sequence_number"] for _, data in grammar.frames(out)]
    assert numbers == list(range(len(numbers)))
    writer = openai_responses.writer("T", "m", 17)
    out = writer.write(TextDelta("x")) + writer.write(CallStarted(0, "c", "f"))
    with pytest.raises(Garbled) as fault:
        writer.write(TextDelta("x" * 200))
    out += writer.write(Failed(fault.value))
    numbers = [json.loads(data)["sequence_number"] for _, data in grammar.frames(out)]
    assert numbers == list(range(len(numbers)))


def test_log_probabilities_count_towards_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses_writer, "MAX_KEPT_BYTES", 100)
    writer = openai_responses.writer("T", "m", 17)
    logprobs = json.dumps({"content": [{"token": "x" * 40}]}).encode()
    writer.write(TextDelta("x", logprobs))
    with pytest.raises(Garbled):
        writer.write(TextDelta("x", logprobs))


def test_arguments_of_a_call_that_ended_are_a_fault() -> None:
    writer = openai_responses.writer("T", "m", 17)
    for event in (CallStarted(0, "a", "f"), CallDelta(0, "{}"), TextDelta("t"), CallDelta(0, " ")):
        writer.write(event)
    with pytest.raises(Garbled):
        writer.write(CallDelta(0, "{}"))
