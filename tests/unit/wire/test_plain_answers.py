"""An answer with nothing to put right is read without its events, and is the same answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from arbiter.errors import ArbiterError
from arbiter.fold import collect, unfold
from arbiter.model import Answer, Refusal, Text, Thinking, ToolCall
from arbiter.wire import anthropic_messages, chat_reader, messages_reader, openai_chat
from arbiter.wire.sealer import may_seal

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
IN_A_CHAT: list[dict[str, Any]] = [
    {},
    {"service_tier": "default"},
    {"usage": None},
    {"usage": {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}, "service_tier": "flex"},
    {"id": None, "model": 5},
    {"object": "error"},
    {"error": {"message": "busy"}},
    {"error": None},
    {"type": "error"},
    {"x_groq": {"usage": {"prompt_tokens": 5}}},
]
OF_A_CHOICE: list[dict[str, Any]] = [
    {"index": 1},
    {"index": None},
    {"finish_reason": None},
    {"finish_reason": "length"},
    {"finish_reason": "content_filter: SAFETY"},
    {"finish_reason": "tool_calls"},
    {"finish_reason": "error"},
    {"logprobs": None},
    {"logprobs": {"content": [{"token": "Hi", "logprob": -1}]}},
    {"usage": {"prompt_tokens": 5}},
    {"error": {"message": "busy"}},
    {"delta": {"content": "other"}},
]
OF_A_MESSAGE: list[dict[str, Any]] = [
    {"content": ""},
    {"content": None},
    {"content": [{"type": "text", "text": "Hi"}]},
    {"refusal": None, "reasoning_content": None, "tool_calls": []},
    {"refusal": "no"},
    {"reasoning_content": "hm"},
    {"reasoning": "hm"},
    {"reasoning_details": [{"type": "reasoning.text", "text": "hm"}]},
    {"extra_content": {"google": {"thought_signature": "s"}}},
    {"tool_calls": [CALL]},
    {"tool_calls": [CALL], "content": None, "reasoning_content": "hm"},
    {"tool_calls": [CALL], "reasoning": {"text": "hm"}},
    {"tool_calls": [CALL, {**CALL, "id": "c2"}]},
    {"tool_calls": [CALL, CALL]},
    {"tool_calls": [{**CALL, "id": None}]},
    {"tool_calls": [{**CALL, "id": "7"}]},
    {"tool_calls": [{**CALL, "id": "c" * 300}]},
    {"tool_calls": [{**CALL, "index": 1}, {**CALL, "id": "c2", "index": 1}]},
    {"tool_calls": [{"id": "c1", "type": "custom", "custom": {"name": "g", "input": "x"}}]},
    {"tool_calls": [{**CALL, "extra_content": {"google": {"thought_signature": "s"}}}]},
    *(
        {"tool_calls": [{**CALL, "function": {"name": "f", "arguments": said}}, {**CALL, "id": "c2"}]}
        for said in ("", None, {"a": 1}, ' {"a": 1} ', '{"a": 1}}', '{"a":', '{"a": 1}{"b": 2}', "[1]", "text")
    ),
    {"tool_calls": [{**CALL, "function": {"name": "", "arguments": "{}"}}]},
    {"tool_calls": [{"id": "c1", "type": "function"}]},
    {"function_call": {"name": "f", "arguments": "{}"}},
]


def read(parse: Any, body: dict[str, Any]) -> object:
    try:
        return parse(json.dumps(body).encode())
    except ArbiterError as error:
        return type(error), str(error)


@pytest.mark.parametrize(
    ("members", "choice", "message"),
    [
        *((one, {}, {}) for one in IN_A_CHAT),
        *(({}, one, {}) for one in OF_A_CHOICE),
        *(({}, {}, one) for one in OF_A_MESSAGE),
    ],
)
def test_a_chats_answer_is_what_its_events_say(
    members: dict[str, Any], choice: dict[str, Any], message: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever stands beside the text, nothing of it is lost by the shorter way."""
    said = {"role": "assistant", "content": "Hi", **message}
    first = {"index": 0, "message": said, "finish_reason": "stop", **choice}
    body = {"id": "cc-1", "object": "chat.completion", "model": "m", "choices": [first], **members}
    found = read(openai_chat.parse_answer, body)
    monkeypatch.setattr(chat_reader, "_plain", lambda found: None)
    assert read(openai_chat.parse_answer, body) == found


TEXT = {"type": "text", "text": "Hi"}


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"content": "Hi"},
        {"content": []},
        {"content": [{"type": "text", "text": ""}]},
        {"content": [TEXT, TEXT]},
        {"content": [{"type": "thinking", "thinking": "hm", "signature": "s", "text": "Hi"}]},
        {"content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
        {"content": [{"type": "text", "text": "Hi", "citations": [1], "thinking": "hm"}]},
        {"stop_reason": None, "id": None, "model": None},
        {"stop_reason": "stop_sequence", "stop_sequence": "END"},
        {"stop_reason": "tool_use"},
        {"usage": {"input_tokens": 3, "output_tokens": 4}},
        {"error": {"message": "busy"}},
    ],
)
def test_an_answer_of_messages_is_what_its_events_say(members: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    body = {"type": "message", "id": "msg_1", "model": "m", "content": [TEXT], "stop_reason": "end_turn", **members}
    found = read(anthropic_messages.parse_answer, body)
    monkeypatch.setattr(messages_reader, "_plain", lambda found: None)
    assert read(anthropic_messages.parse_answer, body) == found


def test_only_an_answer_with_a_thought_is_taken_through_the_sealer() -> None:
    """Any other comes out of it as it was."""
    plain = openai_chat.parse_answer(b'{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]}')
    assert not may_seal(plain) and collect(unfold(plain)) == plain
    assert not may_seal(Answer(parts=(Text("Hi"), Refusal("no"), ToolCall("c", "f", "{}"))))
    assert may_seal(Answer(parts=(Text("Hi"), Thinking("hm"))))
