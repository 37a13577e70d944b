"""Whatever a caller sends, it is built or refused: nothing else comes of it, for upstreams of every format."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbiter.errors import ClientError, ProtocolUnsupported
from arbiter.model import Target
from arbiter.wire import native
from arbiter.wire.format import FORMATS, UPSTREAMS
from arbiter.wire.gemini_names import Addressed

MARK = {"type": "ephemeral", "ttl": "1h"}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
WHOLE: dict[str, dict[str, Any]] = {
    "openai-chat": {
        "messages": [
            {"role": "system", "content": "s", "name": "n", "cache_control": MARK},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "hi", "cache_control": MARK},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo", "detail": "low"}},
                    {"type": "file", "file": {"file_data": "data:text/plain,a%20b", "filename": "a.txt"}},
                    {"type": "file", "file": {"file_id": "f"}},
                ],
            },
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": "r",
                "reasoning": {"text": "r"},
                "refusal": "no",
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}],
            },
            {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "x"}]},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA, "strict": True}}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "max_completion_tokens": 100,
        "temperature": 1.5,
        "stop": ["a"],
        "logit_bias": {"1": 2},
        "reasoning_effort": "low",
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}},
        "metadata": {"a": "b"},
    },
    "anthropic-messages": {
        "system": [{"type": "text", "text": "s", "cache_control": MARK}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo"}},
                    {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "d"}},
                    {"type": "document", "source": {"type": "base64", "data": "aGk="}, "title": "t"},
                    {"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": "q"}]},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "t", "signature": "S"},
                    {"type": "redacted_thinking", "data": "D"},
                    {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}, "cache_control": MARK},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "t",
                        "is_error": True,
                        "content": [{"type": "text", "text": "x"}],
                    }
                ],
            },
        ],
        "max_tokens": 100,
        "tools": [{"name": "f", "description": "d", "input_schema": SCHEMA, "strict": True}, {"type": "zzz"}],
        "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
        "thinking": {"type": "enabled", "budget_tokens": 2000},
        "output_config": {"effort": "high", "format": {"type": "json_schema", "schema": SCHEMA}},
        "stop_sequences": ["x"],
        "metadata": {"user_id": "u"},
    },
}
WHOLE["openai-responses"] = {
    "instructions": "s",
    "input": [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "hi"},
                {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo", "detail": "low"},
                {"type": "input_file", "file_data": "data:text/plain,a%20b", "filename": "a.txt"},
                {"type": "input_file", "file_id": "f"},
            ],
        },
        {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "t"}], "encrypted_content": "E"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a", "annotations": []}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a":1}', "namespace": "n"},
        {"type": "custom_tool_call", "call_id": "p", "name": "g", "input": "***"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "x"}]},
        {"type": "custom_tool_call_output", "call_id": "p", "output": "ok"},
    ],
    "tools": [
        {"type": "function", "name": "h", "description": "d", "parameters": SCHEMA, "strict": True},
        {"type": "custom", "name": "g", "format": {"type": "grammar", "syntax": "lark", "definition": "start: x"}},
        {"type": "namespace", "name": "n", "description": "d", "tools": [{"type": "function", "name": "f"}]},
        {"type": "web_search"},
    ],
    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "h"}]},
    "max_output_tokens": 100,
    "temperature": 1.5,
    "reasoning": {"effort": "low", "summary": "auto"},
    "text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA, "strict": True}, "verbosity": "low"},
    "include": ["message.output_text.logprobs"],
    "metadata": {"a": "b"},
}
WHOLE["google-gemini"] = {
    "system_instruction": {"parts": [{"text": "s"}]},
    "contents": [
        {
            "role": "user",
            "parts": [
                {"text": "hi"},
                {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo"}},
                {"inline_data": {"mime_type": "application/pdf", "data": "JVBERi0="}},
                {"inlineData": {"mimeType": "text/plain", "data": "aGk="}},
                {"fileData": {"mimeType": "image/png", "fileUri": "https://pictures.example/a.png"}},
            ],
        },
        {
            "role": "model",
            "parts": [
                {"text": "t", "thought": True},
                {"text": "u", "thoughtSignature": "S"},
                {"functionCall": {"name": "f", "args": {"a": 1}}, "thoughtSignature": "S"},
                {"functionCall": {"id": "c", "name": "f", "args": {}}},
                {"executableCode": {"language": "PYTHON", "code": "1"}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "f", "response": {"output": "x"}}},
                {"functionResponse": {"id": "c", "name": "f", "response": {"error": "x"}}},
            ],
        },
    ],
    "tools": [{"functionDeclarations": [{"name": "f", "parameters": {"type": "OBJECT", "nullable": True}}]}],
    "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}},
    "generationConfig": {
        "temperature": 1.5,
        "topK": 40.0,
        "maxOutputTokens": 100,
        "stopSequences": ["a"],
        "responseMimeType": "application/json",
        "responseSchema": {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}},
        "thinkingConfig": {"includeThoughts": True, "thinkingBudget": 1024},
    },
}
MODELS = (
    "gemini-3-pro",
    "gemini-2.5-flash",
    "claude-sonnet-4-5",
    "claude-opus-5-5",
    "gpt-5.2",
    "mistral-large",
    "deepseek-v4",
    "nobody's",
)
TOO_LARGE = 12345678987654321
"""Written as a number that no double holds."""

odd = st.one_of(
    st.sampled_from([None, True, 0, -1, 1.5, 2**63, 10**400, TOO_LARGE, "", "x", "é", "\0", "\ud83d", "{", "[1"]),
    st.sampled_from(["none", "auto", "zzz", "data:", "data:,%", "data:;base64,é", "http://"]),
    st.sampled_from([[], {}, [[]], [None], [{}], {"": ""}, MARK, {"type": None}, {"type": "text"}]),
    st.just({"type": "zzz", "cache_control": TOO_LARGE}),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield (*path, key)
        yield from places(value[key], (*path, key))


@st.composite
def bodies(draw: st.DrawFn, whole: dict[str, Any]) -> bytes:
    """A body that holds all that its format knows, with a few of its values lost, told twice or something odd."""
    body = copy.deepcopy(whole)
    for _ in range(draw(st.integers(1, 3))):
        *path, last = draw(st.sampled_from(list(places(body))))
        inside: Any = body
        for step in path:
            inside = inside[step]
        what = draw(st.sampled_from(["lose", "repeat", "put", "put", "put"]))
        if what == "lose":
            del inside[last]
        elif what == "repeat" and isinstance(inside, list):
            inside.append(copy.deepcopy(inside[last]))
        else:
            inside[last] = copy.deepcopy(draw(odd))
    text = json.dumps({"model": draw(st.sampled_from(MODELS)), **body})
    return text.replace(str(TOO_LARGE), "1e999").encode()


@pytest.mark.parametrize("wire", list(FORMATS))
@given(data=st.data())
def test_a_request_is_built_or_refused(wire: str, data: st.DataObject) -> None:
    body = data.draw(bodies(WHOLE[wire]))
    target = Target(prompt_cache=data.draw(st.sampled_from(["auto", "client", "arbiter", "off"])))
    for upstream in UPSTREAMS.values():
        try:
            request = FORMATS[wire].parse_request(native.open_body(body).members)
            upstream.disguised(request)
            built = upstream.build_request(request, target)
        except ClientError:
            continue
        is_addressed = upstream.name in ("google-gemini", "bedrock-converse")
        native.open_body(built, addressed=Addressed("m") if is_addressed else None)


@pytest.mark.parametrize("upstream", [name for name in UPSTREAMS if name != "google-gemini"])
@pytest.mark.parametrize("kind", [True, 7, {}, [], None, ""])
def test_a_part_whose_type_is_no_word_is_refused(upstream: str, kind: Any) -> None:
    contents = [{"role": "model", "parts": [{"type": kind, "ttl": "1h"}]}]
    opened = native.open_body(json.dumps({"contents": contents}).encode(), addressed=Addressed("m"))
    request = FORMATS["google-gemini"].parse_request(opened.members)
    with pytest.raises(ProtocolUnsupported, match="cannot be told"):
        UPSTREAMS[upstream].build_request(request)
