"""OpenAI Chat streams, outwards: what clients get."""

from __future__ import annotations

import json
from typing import Any

import pytest

from arbiter.errors import Garbled, InStreamError
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
    ThinkingSigned,
    Usage,
    UsageReported,
)
from arbiter.wire import openai_chat
from arbiter.wire.moulds import Moulds


def write(*events: Event, include_usage: bool = True) -> list[Any]:
    writer = openai_chat.writer("T", "m", 1700000000, include_usage=include_usage)
    out = b"".join(writer.write(event) for event in events)
    payloads = [block.removeprefix("data: ") for block in out.decode().split("\n\n") if block]
    return [json.loads(payload) if payload != "[DONE]" else payload for payload in payloads]


def deltas(chunks: list[Any]) -> list[Any]:
    return [one["choices"][0]["delta"] for one in chunks if one != "[DONE]" and one.get("choices")]


def test_a_stream_starts_once_and_ends_once() -> None:
    """SPEC 2.6, whatever the upstream repeats."""
    chunks = write(Started(), Started(), TextDelta("Hi"), Finished(Finish.STOP), Finished(Finish.STOP), Ended())
    assert deltas(chunks) == [{"role": "assistant", "content": ""}, {"content": "Hi"}, {}]
    assert [one["choices"][0]["finish_reason"] for one in chunks[:-1]] == [None, None, "stop"]
    assert chunks[-1] == "[DONE]"
    assert {(one["id"], one["created"], one["model"]) for one in chunks[:-1]} == {("chatcmpl-T", 1700000000, "m")}


def test_usage_leaves_as_one_chunk_and_only_if_asked_for() -> None:
    """The prompt counts what was cached again, as this format does (SPEC 9.1, 2.5)."""
    usage = Usage(input=3, cache_read=20_000, cache_write=1500, output=120, reasoning=7)
    events = [TextDelta("Hi"), UsageReported(Usage(output=1)), Finished(Finish.STOP), UsageReported(usage), Ended()]
    asked = write(*events)
    assert [one["usage"] for one in asked if "usage" in one] == [
        {
            "prompt_tokens": 21503,
            "completion_tokens": 120,
            "total_tokens": 21623,
            "prompt_tokens_details": {"cached_tokens": 20_000, "cache_write_tokens": 1500},
            "completion_tokens_details": {"reasoning_tokens": 7},
        }
    ]
    assert asked[-2]["choices"] == []
    assert not [one for one in write(*events, include_usage=False)[:-1] if "usage" in one or not one["choices"]]
    assert not [one for one in write(TextDelta("Hi"), Finished(Finish.STOP), Ended())[:-1] if "usage" in one]


def test_calls_are_written_slice_by_slice() -> None:
    """Id and name first, arguments after them; a call without arguments gets an empty object (tool-010)."""
    chunks = write(
        CallStarted(0, "a", "f"),
        CallDelta(0, '{"x"'),
        CallStarted(1, "b", "g"),
        CallDelta(0, ":1}"),
        Finished(Finish.TOOL_CALLS),
        Ended(),
    )
    calls = [delta["tool_calls"][0] for delta in deltas(chunks) if "tool_calls" in delta]
    assert calls == [
        {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"x"'}},
        {"index": 1, "id": "b", "type": "function", "function": {"name": "g", "arguments": ""}},
        {"index": 0, "function": {"arguments": ":1}"}},
        {"index": 1, "function": {"arguments": "{}"}},
    ]


def test_a_failed_stream_ends_with_its_error_and_no_done() -> None:
    chunks = write(TextDelta("Hel"), Failed(InStreamError("Overloaded")))
    assert chunks[-1]["error"]["message"] == "Overloaded"


def test_an_upstream_that_breaks_the_order_is_caught() -> None:
    writer = openai_chat.writer("T", "m", 0)
    writer.write(Finished(Finish.STOP))
    with pytest.raises(Garbled):
        writer.write(TextDelta("more"))


def test_the_model_that_answered_is_named() -> None:
    """The upstream's own word where it says one, else what was asked for."""
    assert {one["model"] for one in write(Started(model="gpt-x"), TextDelta("Hi"))} == {"gpt-x"}
    assert {one["model"] for one in write(Started(), TextDelta("Hi"))} == {"m"}


def test_a_call_whose_only_slice_is_empty_has_arguments_all_the_same() -> None:
    """Clients parse them: nothing is no JSON."""
    said = deltas(write(CallStarted(0, "c", "f"), CallDelta(0, ""), Finished(Finish.TOOL_CALLS), Ended()))
    slices = [call["function"]["arguments"] for delta in said for call in delta.get("tool_calls", ())]
    assert "".join(slices) == "{}"


def test_a_slice_of_a_call_that_is_not_open_is_the_upstreams_fault() -> None:
    """And so is a call out of turn; the stream can still go on."""
    writer = openai_chat.writer("T", "m", 0)
    for bad in (CallDelta(0, "{}"), CallStarted(1, "b", "g")):
        with pytest.raises(Garbled):
            writer.write(bad)
    assert b'"role"' in writer.write(CallStarted(0, "a", "f"))


def test_deltas_that_say_nothing_are_not_written() -> None:
    assert deltas(write(Started(), TextDelta(""), ThinkingDelta(""), ThinkingSigned("s"), RefusalDelta(""))) == [
        {"role": "assistant", "content": ""}
    ]


def test_log_probabilities_are_written_beside_their_text() -> None:
    told = b'{"content":[{"token":"Hi","logprob":-0.5}],"refusal":null}'
    chunks = write(TextDelta("H", told), TextDelta("i", told), Finished(Finish.STOP), Ended())
    assert [one["choices"][0].get("logprobs") for one in chunks[1:3]] == [json.loads(told)] * 2


def test_moulds_are_there_while_the_stream_is_open() -> None:
    """Of arguments only once their call has some: a call without any gets `{}` before the finish."""
    writer = openai_chat.writer("T", "m", 0)
    assert writer.moulds() == Moulds()
    writer.write(Started())
    text, content, reasoning, arguments, call, keep = writer.moulds()
    assert None not in (text, content, reasoning) and (arguments, call, keep) == (None, -1, False)
    writer.write(CallStarted(0, "a", "f"))
    assert writer.moulds().arguments is None
    writer.write(CallDelta(0, "{"))
    mould = writer.moulds().arguments
    assert mould is not None and writer.moulds().call == 0
    moved = json.loads((mould[0] + b'"}"' + mould[1]).removeprefix(b"data: "))
    assert moved["choices"][0]["delta"] == {"tool_calls": [{"index": 0, "function": {"arguments": "}"}}]}
    writer.write(CallStarted(1, "b", "g"))
    writer.write(CallDelta(0, " "))
    assert writer.moulds().call == -1
    writer.write(Finished(Finish.TOOL_CALLS))
    assert writer.moulds() == Moulds()
