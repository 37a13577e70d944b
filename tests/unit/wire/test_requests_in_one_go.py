"""A request of which everything is known is decoded in one go, and is the same request as read step by step."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from arbiter.model import Request
from arbiter.wire import (
    anthropic_messages,
    chat_parse,
    gemini_parse,
    google_gemini,
    messages_parse,
    openai_chat,
    openai_responses,
    responses_items,
)

PICTURE = "data:image/png;base64,iVBORw0KGgo="
SCHEMA = {"type": "object", "properties": {"file_path": {"type": "string"}}}
CHAT = {
    "model": "m",
    "messages": [
        {"role": "user", "content": [
            {"type": "text", "text": "Hi"},
            {"type": "image_url", "image_url": {"url": PICTURE}},
        ]},
        {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
            {"id": "c2", "type": "custom", "custom": {"name": "g", "input": "x"}},
        ]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "done"}]},
    ],
    "tools": [
        {"type": "function", "function": {"name": "f", "parameters": SCHEMA}},
        {"type": "custom", "custom": {"name": "g"}},
    ],
}  # fmt: skip
MESSAGES = {
    "model": "m",
    "messages": [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"file_path": "a"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}, {"type": "text", "text": "And?"}]},
    ],
    "tools": [{"name": "f", "description": "d", "input_schema": SCHEMA, "cache_control": {"type": "ephemeral"}}],
}
RESPONSES = {
    "model": "m",
    "input": [
        {"role": "user", "content": "Hi"},
        {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": PICTURE}]},
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "x"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "call_id": "c1", "name": "f", "namespace": "n", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "c2", "name": "g", "input": "x"},
        {"type": "function_call_output", "call_id": "c1", "output": "done"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "done"}]},
    ],
}
GEMINI = {
    "model": "m",
    "systemInstruction": {"parts": [{"text": "Be brief."}]},
    "contents": [
        {"role": "user", "parts": [{"text": "Hi"}, {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}]},
        {"role": "model", "parts": [
            {"text": "hm", "thought": True},
            {"functionCall": {"name": "f", "args": {"file_path": "a"}}, "thoughtSignature": "s"},
        ]},
        {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"output": "done"}}}]},
    ],
    "tools": [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": SCHEMA}]}],
    "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
    "generationConfig": {"temperature": 0, "thinkingConfig": {"includeThoughts": True, "thinkingBudget": -1}},
}  # fmt: skip


class Never:
    """Stands in for the decoder of all at once: nothing is of its shape."""

    def decode(self, raw: bytes) -> object:
        raise msgspec.DecodeError


def read(wire: Any, body: dict[str, Any]) -> Request:
    found: Request = wire.parse_request(msgspec.json.decode(json.dumps(body).encode(), type=dict[str, msgspec.Raw]))
    return found


# Whose decoder reads a request in one go, and whose reads what that one does not take.
ways = pytest.mark.parametrize(
    ("wire", "module", "decoder", "looser", "body"),
    [
        (openai_chat, chat_parse, "_REQUEST", "_LOOSE_REQUEST", CHAT),
        (anthropic_messages, messages_parse, "_REQUEST", "_LOOSE_REQUEST", MESSAGES),
        (openai_responses, responses_items, "_ITEM", "_TYPED", RESPONSES),
        (google_gemini, gemini_parse, "_ONE_SPELLING", "_REQUEST", GEMINI),
    ],
)


@ways
def test_a_request_read_in_one_go_is_the_same(
    wire: Any, module: Any, decoder: str, looser: str, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which way a request is read changes nothing of it."""
    found = read(wire, body)
    monkeypatch.setattr(module, decoder, Never())
    assert read(wire, body) == found


@ways
def test_what_agents_send_is_read_in_one_go(
    wire: Any, module: Any, decoder: str, looser: str, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of it needs the way that takes three times as long."""
    monkeypatch.setattr(module, looser, None)
    read(wire, body)


@pytest.mark.parametrize("name", ["system_instruction", "generation_config", "tool_config"])
def test_gemini_in_either_spelling_is_the_same_request(name: str) -> None:
    """One member in the other spelling is enough to be read so."""
    camel = {"system_instruction": "systemInstruction", "generation_config": "generationConfig"}.get(name, "toolConfig")
    body = {name if key == camel else key: value for key, value in GEMINI.items()}
    assert read(google_gemini, body) == read(google_gemini, GEMINI)
