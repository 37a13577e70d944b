"""What a whole answer says about itself: read once, never believed further than it goes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from arbiter._speedups import reduce
from arbiter.accounting.facts import (
    Facts,
    of_chat_answer,
    of_embeddings_answer,
    of_messages_answer,
    of_responses_answer,
    of_stream,
)
from arbiter.errors import Garbled
from arbiter.model import Usage

CHAT: dict[str, Any] = {
    "id": "chatcmpl-1",
    "model": "m-1",
    "choices": [
        {
            "finish_reason": "tool_calls",
            "message": {
                "content": "é!",
                "reasoning_content": "hmm",
                "tool_calls": [{"function": {"name": "run", "arguments": '{"a":1}'}}],
            },
        }
    ],
    "usage": {"prompt_tokens": 10, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}},
}
MESSAGES: dict[str, Any] = {
    "id": "msg_1",
    "model": "m-1",
    "stop_reason": "tool_use",
    "content": [
        {"type": "thinking", "thinking": "hmm", "signature": "s"},
        {"type": "text", "text": "é!"},
        {"type": "tool_use", "name": "run", "input": {"a": 1}},
    ],
    "usage": {"input_tokens": 6, "cache_read_input_tokens": 4, "output_tokens": 3},
}

RESPONSE: dict[str, Any] = {
    "id": "resp_1",
    "model": "m-1",
    "status": "completed",
    "error": None,
    "incomplete_details": None,
    "output": [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hmm"}], "encrypted_content": "gAAAA"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "é!", "annotations": []}]},
        {"type": "function_call", "call_id": "call_1", "name": "run", "arguments": '{"a":1}'},
    ],
    "usage": {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 3},
}

ANSWERS = [(of_chat_answer, CHAT), (of_messages_answer, MESSAGES), (of_responses_answer, RESPONSE)]


@pytest.mark.parametrize(
    ("read", "body", "finish"),
    [(of_chat_answer, CHAT, "tool_calls"), (of_messages_answer, MESSAGES, "tool_use"),
     (of_responses_answer, RESPONSE, "completed")],
    ids=["chat", "messages", "responses"],
)  # fmt: skip
def test_all_formats_tell_the_same_facts(read: Any, body: Any, finish: str) -> None:
    facts = read(json.dumps(body, separators=(",", ":")).encode())
    assert (facts.model, facts.finish, facts.tool_names, facts.usage_source) == ("m-1", finish, ("run",), "provider")
    assert (facts.output_bytes, facts.thinking_bytes) == (3 + 7, 3)
    assert (facts.usage.input, facts.usage.cache_read, facts.usage.output) == (6, 4, 3)


@pytest.mark.parametrize(
    ("read", "body", "odd"),
    [
        *((of_chat_answer, CHAT, {"choices": odd}) for odd in (
            [{"finish_reason": 5}], {"a": 1}, [None], "x", [{"message": 7}], [{"message": {"reasoning_content": 5}}],
            [{"message": {"tool_calls": {}}}], [{"message": {"tool_calls": [{"function": {"name": 5}}]}}],
        )),
        (of_messages_answer, MESSAGES, {"stop_reason": 5}),
        *((of_messages_answer, MESSAGES, {"content": odd}) for odd in (
            "x", [{"type": None}], [{"type": "text", "text": 5}], [None], [{"type": "tool_use", "name": 5}],
        )),
        *((of_responses_answer, RESPONSE, {"output": odd}) for odd in ("x", {"a": 1}, [None], [5])),
        (of_responses_answer, RESPONSE, {"status": 5}),
        (of_responses_answer, RESPONSE, {"incomplete_details": "x"}),
    ],
)  # fmt: skip
def test_what_an_answer_cost_is_read_whatever_shape_its_content_has(read: Any, body: Any, odd: Any) -> None:
    """It is billed all the same. Its id and its model stand beside it, too."""
    facts = read(json.dumps({**body, **odd}).encode())
    assert (facts.usage.input, facts.usage.cache_read, facts.usage.output) == (6, 4, 3)
    assert (facts.model, facts.usage_source, facts.error) == ("m-1", "provider", None)
    assert facts.response_id == body["id"]


@pytest.mark.parametrize("read", [of_chat_answer, of_messages_answer, of_responses_answer])
@pytest.mark.parametrize("body", [b"{}", b'{"choices":7,"content":"x"}', b'{"id":5,"model":[],"usage":"many"}'])
def test_an_answer_of_another_shape_costs_its_facts_and_nothing_else(read: Any, body: bytes) -> None:
    """A count that nobody stated stays unknown, never 0 (SPEC 7.2)."""
    facts = read(body)
    assert (facts.usage, facts.usage_source, facts.response_id) == (None, "missing", None)


@pytest.mark.parametrize("read", [of_chat_answer, of_messages_answer, of_responses_answer])
@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b'{"id":'])
def test_what_is_no_json_object_is_the_upstreams_fault(read: Any, body: bytes) -> None:
    with pytest.raises(Garbled):
        read(body)


@pytest.mark.parametrize(("read", "body"), ANSWERS)
def test_half_an_emoji_costs_no_fact(read: Any, body: Any) -> None:
    """Models do send it, and JSON allows it; it counts as the U+FFFD that a reader makes of it."""
    whole, half = (json.dumps(body).replace("!", text).encode() for text in ("\\ufffd", "\\ud83d"))
    assert read(half) == read(whole) and read(half).output_bytes > 0


def test_what_the_provider_cleared_from_the_prompt_is_told() -> None:
    """An odd word there costs that fact alone."""
    edits = [{"type": "clear_tool_uses_20250919", "cleared_tool_uses": 8, "cleared_input_tokens": 50_000}]
    said = [{"context_management": {"applied_edits": edits}}, {"context_management": 7}, {}]
    facts = [of_messages_answer(json.dumps({**MESSAGES, **one}).encode()) for one in said]
    assert [one.cleared_tokens for one in facts] == [50_000, None, None]
    assert all(one.usage is not None and one.finish == "tool_use" for one in facts)


def test_the_version_of_a_model_is_its_fingerprint() -> None:
    said = [{"system_fingerprint": "fp_1"}, {"system_fingerprint": None}, {"system_fingerprint": 7}, {}]
    told = [of_chat_answer(json.dumps({"id": "a", "choices": [], **one}).encode()).model_version for one in said]
    assert told == ["fp_1", None, None, None]
    tap = reduce.ChatTap()
    tap.feed(b'data: {"id":"a","object":"chat.completion.chunk","system_fingerprint":"fp_2","choices":[]}\n\n')
    facts = of_stream(tap, first_event_ns=0, last_event_ns=0, finish_inferred=False, protocol_fault=None)
    assert facts.model_version == "fp_2"


def test_a_compaction_by_the_provider_is_told() -> None:
    """A block of Anthropic's answer, an item of OpenAI's; also of the answer that is nothing but that."""
    block = {"type": "compaction", "content": "so far"}
    said = {**MESSAGES, "content": [block, *MESSAGES["content"]]}
    assert [of_messages_answer(json.dumps(one).encode()).compacted for one in (said, MESSAGES)] == [True, False]
    item = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAA"}
    message = {"type": "message", "content": [{"type": "output_text", "text": "compaction"}]}
    for kind in ("response", "response.compaction"):
        told = [
            of_responses_answer(json.dumps({"object": kind, "status": "completed", "output": output}).encode())
            for output in ([message, item], [message])
        ]
        assert [one.compacted for one in told] == [True, False]


def test_an_error_in_a_200_is_seen() -> None:
    assert of_chat_answer(b'{"error":{"message":"no"}}').error is not None
    assert of_chat_answer(b'{"error":null,"choices":[]}').error is None
    failed = b'{"status":"failed","error":{"code":"server_error","message":"no"},"output":[]}'
    assert of_responses_answer(failed).error is not None
    assert of_responses_answer(failed.replace(b'"failed"', b'"completed"')).error is None


def test_why_a_response_is_incomplete_is_its_finish() -> None:
    body = {**RESPONSE, "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    assert of_responses_answer(json.dumps(body).encode()).finish == "max_output_tokens"


@pytest.mark.parametrize(
    ("output", "is_speechless"),
    [
        ([{"type": "reasoning", "summary": []}], True),
        ([{"type": "reasoning", "summary": []}, {"type": "web_search_call"}], False),
        ([{"type": "compaction", "encrypted_content": "gAAAA"}], False),
        ([{"type": "custom_tool_call", "name": "p", "input": ""}], False),
        ([{"type": "message", "content": [{"type": "refusal", "refusal": "no"}]}], False),
    ],
)
def test_a_response_is_speechless_that_only_thought(output: list[dict[str, Any]], is_speechless: bool) -> None:
    """SPEC 4.7. A compaction, and a tool that the provider runs, say something."""
    usage = {"input_tokens": 1, "output_tokens": 9, "output_tokens_details": {"reasoning_tokens": 9}}
    body = {**RESPONSE, "output": output, "usage": usage}
    assert of_responses_answer(json.dumps(body).encode()).is_speechless is is_speechless


def test_of_an_answer_of_countless_values_what_it_cost_is_read() -> None:
    """Decoded whole it would take twenty times the memory that it has bytes."""
    body = b'{"usage":{"prompt_tokens":1},"choices":[' + b"{}," * 400_000 + b"{}]}"
    assert of_chat_answer(body) == Facts(usage=Usage(input=1), usage_source="partial")
    assert of_chat_answer(body[:28] + b"}") == Facts(usage=Usage(input=1), usage_source="partial")


def test_of_embeddings_the_vectors_are_not_read():
    """Nothing is written, so there is no output to be counted, nor priced."""
    data = [{"embedding": [0.5] * 200_000}]
    usage = {"prompt_tokens": 7, "total_tokens": 7}
    found = of_embeddings_answer(json.dumps({"model": "m-1", "data": data, "usage": usage}).encode())
    assert found == Facts(model="m-1", usage=Usage(input=7, output=0, total=7), usage_source="provider")
    assert of_embeddings_answer(b'{"data":[]}') == Facts()
    assert of_embeddings_answer(b'{"error":{"message":"no"}}').error is not None
    for body in (b"[]", b"<html>", b'{"data":'):
        with pytest.raises(Garbled):
            of_embeddings_answer(body)
