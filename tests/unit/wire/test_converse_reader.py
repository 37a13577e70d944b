"""Bedrock's Converse, inwards: whole answers, counts, and whatever else an upstream may send."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arbiter.errors import ArbiterError, Garbled, InStreamError
from arbiter.fold import collect
from arbiter.model import Answer, Finish, RedactedThinking, Text, Thinking, ToolCall, Usage
from arbiter.wire.bedrock_converse import parse_answer, reader
from arbiter.wire.converse_reader import read_usage
from tests.fakes.vectors import CASES, read

USAGE = {"inputTokens": 4, "outputTokens": 61, "totalTokens": 65}


def answer(content: list[Any], reason: str = "end_turn", **members: Any) -> bytes:
    output = {"message": {"role": "assistant", "content": content}}
    return json.dumps({"output": output, "stopReason": reason, "usage": USAGE, "metrics": {}, **members}).encode()


def test_a_whole_answer_is_its_blocks_in_order() -> None:
    found = parse_answer(
        answer(
            [
                {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "sig"}}},
                {"reasoningContent": {"redactedContent": "blob"}},
                {"text": "I'll look."},
                {"toolUse": {"toolUseId": "tooluse_1", "name": "weather", "input": {"city": "Oslo", "n": 1.50}}},
                {"toolUse": {"toolUseId": "tooluse_2", "name": "now", "input": {}}},
                {"video": {"format": "mp4"}},
            ],
            "tool_use",
            serviceTier={"type": "flex"},
        )
    )
    assert found == Answer(
        parts=(
            Thinking("Hm.", signature="sig"),
            RedactedThinking("blob"),
            Text("I'll look."),
            ToolCall("tooluse_1", "weather", '{"city": "Oslo", "n": 1.5}'),
            ToolCall("tooluse_2", "now", "{}"),
        ),
        finish=Finish.TOOL_CALLS,
        usage=Usage(input=4, output=61, total=65, service_tier="flex"),
    )


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", Finish.STOP),
        ("max_tokens", Finish.LENGTH),
        ("stop_sequence", Finish.STOP_SEQUENCE),
        ("guardrail_intervened", Finish.CONTENT_FILTER),
        ("content_filtered", Finish.CONTENT_FILTER),
        ("model_context_window_exceeded", Finish.CONTEXT_WINDOW),
        ("tool_use", Finish.STOP),
        ("something_new", Finish.STOP),
        ("", Finish.STOP),
    ],
)
def test_a_stop_reason_means_what_was_said(reason: str, finish: Finish) -> None:
    assert parse_answer(answer([{"text": "x"}], reason)).finish is finish


@pytest.mark.parametrize("reason", ["malformed_model_output", "malformed_tool_use"])
def test_an_answer_that_could_not_be_read_is_a_failure(reason: str) -> None:
    with pytest.raises(InStreamError, match=reason):
        parse_answer(answer([{"text": "x"}], reason))


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b"{}", b"\xff", b'{"output":null}', b'{"output":{"message":[]}}']
)
def test_what_is_no_answer_is_the_upstreams_fault(body: bytes) -> None:
    with pytest.raises(Garbled):
        parse_answer(body)


@pytest.mark.parametrize("output", [{}, {"message": {}}, {"message": {"content": []}}])
def test_an_answer_may_say_nothing(output: Any) -> None:
    assert parse_answer(json.dumps({"output": output, "stopReason": "end_turn"}).encode()).parts == ()


@pytest.mark.parametrize(
    ("raw", "usage"),
    [
        ({"inputTokens": 1, "outputTokens": 2, "totalTokens": 3}, Usage(input=1, output=2, total=3)),
        (
            {"inputTokens": 1, "cacheReadInputTokens": 5, "cacheWriteInputTokens": 6},
            Usage(input=1, cache_read=5, cache_write=6),
        ),
        (
            {"inputTokens": 1, "cacheDetails": [{"ttl": "5m", "inputTokens": 2}, {"ttl": "1h", "inputTokens": 3}]},
            Usage(input=1, cache_write_5m=2, cache_write_1h=3),
        ),
        ({"inputTokens": 1, "cacheDetails": [{"ttl": "9d", "inputTokens": 2}, {"ttl": "5m"}, {}]}, Usage(input=1)),
        ({"inputTokens": -1, "outputTokens": "2", "totalTokens": 10**30}, None),
        ({"inputTokens": 1.5, "outputTokens": True}, None),
        ({}, None),
    ],
)
def test_counts_are_read_as_they_are_meant_or_not_at_all(raw: Any, usage: Usage | None) -> None:
    """SPEC 9.1: what was cached stands beside the rest, and a count that cannot be is unknown."""
    assert read_usage(json.dumps(raw).encode()) == usage
    assert read_usage(None) is None


def test_a_stream_folds_into_its_whole_answer() -> None:
    """SPEC 2.6: the same blocks, told at once, give the same answer."""
    (case,) = [one for one in CASES if one.name == "thinking-text-tool" and one.parent.name == "bedrock-converse"]
    thought = {"text": "The user wants the weather.", "signature": "EqQBCkgIBxABGAIiQL8="}
    content = [
        {"reasoningContent": {"reasoningText": thought}},
        {"text": "I'll look."},
        {"toolUse": {"toolUseId": "tooluse_kZJMlvQmRJ6eAyJE5GIl7Q", "name": "get_weather", "input": {"city": "Oslo"}}},
    ]
    usage = {"inputTokens": 4, "outputTokens": 61, "totalTokens": 2113, "cacheReadInputTokens": 2000}
    written = [{"ttl": "5m", "inputTokens": 40}, {"ttl": "1h", "inputTokens": 8}]
    usage |= {"cacheWriteInputTokens": 48, "cacheDetails": written}
    assert parse_answer(answer(content, "tool_use", usage=usage)) == collect(read(case))


NAMES = st.sampled_from(
    ["messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop", "metadata", "error",
     "newKind"]
)  # fmt: skip
KEYS = [
    "contentBlockIndex", "start", "delta", "toolUse", "toolUseId", "name", "input", "text", "reasoningContent",
    "signature", "redactedContent", "stopReason", "usage", "inputTokens", "cacheDetails", "ttl", "message", "type",
    "role", "serviceTier", "reasoningText", "output", "content",
]  # fmt: skip
SCALARS = st.none() | st.booleans() | st.integers() | st.sampled_from(["", "a", "end_turn", "{}", "\ud83d", 1.5, 1e300])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=10,
)
PAYLOADS = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=5)


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(NAMES, PAYLOADS), max_size=6), st.integers(1, 40))
def test_whatever_comes_is_an_answer_or_a_failure(events: list[Any], cut: int) -> None:
    """No exception but a documented one, and the same at any cut."""
    data = b"".join(f"event: {name}\ndata: {json.dumps(payload)}\n\n".encode() for name, payload in events)
    whole, pieces = reader(), reader()
    told = whole.feed(data) + whole.finish()
    cuts = [one for i in range(0, len(data), cut) for one in pieces.feed(data[i : i + cut])] + pieces.finish()
    assert [str(one) for one in told] == [str(one) for one in cuts]
    try:
        collect(told)
    except ArbiterError:
        pass
    for _, payload in events:
        try:
            parse_answer(json.dumps({"output": {"message": payload}, **payload}).encode())
        except ArbiterError:
            pass
