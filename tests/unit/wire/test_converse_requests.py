"""Requests as Bedrock's Converse wants them: what each part becomes, what is refused, what no request breaks."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arbiter.errors import BadRequest, ProtocolUnsupported
from arbiter.model import (
    Audio,
    CacheMark,
    File,
    Grammar,
    Image,
    Message,
    Opaque,
    OpaqueTool,
    OutputShape,
    Reasoning,
    RedactedThinking,
    Request,
    Target,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from arbiter.wire.bedrock_converse import build_request, disguised
from arbiter.wire.converse_build import NO_LONGER
from tests.fakes.bedrock import check_converse
from tests.unit.wire import neutral

CLAUDE = "eu.anthropic.claude-sonnet-4-5-20250929-v1:0"
NOVA, NOVA_2 = "amazon.nova-pro-v1:0", "us.amazon.nova-2-lite-v1:0"
OPUS = "global.anthropic.claude-opus-4-6-v1"
OSS, ARN = "openai.gpt-oss-120b-1:0", "arn:aws:bedrock:us-east-1:1:application-inference-profile/abc"
MODELS = [CLAUDE, NOVA, NOVA_2, OSS, ARN]
PNG = "iVBORw0KGgoAAAANSUhEUg=="
HI = (Message("user", "hi"),)
WEATHER = Tool("weather", "Tells it.", b'{"type":"object","properties":{"city":{"type":"string"}}}')
CALL, RESULT = ToolCall("call_1", "weather", '{"city": "Oslo"}'), ToolResult("call_1", "cold")
LOOP = (*HI, Message("assistant", (CALL,)), Message("tool", (RESULT,)))


def built(model: str = NOVA, messages: tuple[Message, ...] = HI, target: Target | None = None, **members: Any) -> Any:
    request = Request(model=model, messages=messages, **members)
    body = json.loads(build_request(request, target or Target(prompt_cache="client")))
    check_converse(body, model)
    return body


def test_a_plain_request_is_its_turns_and_what_was_asked_of_the_answer() -> None:
    """The model stands in the path, and whether it streams too."""
    messages = (Message("system", "Be brief."), *HI, Message("assistant", "yes?"), Message("user", "go on"))
    body = built(messages=messages, max_output=9, temperature=0.5, top_p=0.9, stop=("X", " "), stream=True, user="u")
    assert body == {
        "messages": [
            {"role": "user", "content": [{"text": "hi"}]},
            {"role": "assistant", "content": [{"text": "yes?"}]},
            {"role": "user", "content": [{"text": "go on"}]},
        ],
        "system": [{"text": "Be brief."}],
        "inferenceConfig": {"maxTokens": 9, "temperature": 0.5, "topP": 0.9, "stopSequences": ["X"]},
    }


def test_a_limit_that_nobody_set_is_the_models_own() -> None:
    """Claude's is known; of another model nobody knows it, and Bedrock needs none."""
    assert "inferenceConfig" not in built(NOVA)
    assert built(CLAUDE)["inferenceConfig"] == {"maxTokens": 64_000}
    assert built(NOVA, target=Target(max_output=5_000))["inferenceConfig"] == {"maxTokens": 5_000}


def test_calls_and_results_are_told_with_their_tools() -> None:
    body = built(messages=LOOP, tools=(WEATHER,), tool_choice=ToolChoice("required"))
    assert body["messages"][1:] == [
        {
            "role": "assistant",
            "content": [{"toolUse": {"toolUseId": "call_1", "name": "weather", "input": {"city": "Oslo"}}}],
        },
        {"role": "user", "content": [{"toolResult": {"toolUseId": "call_1", "content": [{"text": "cold"}]}}]},
    ]
    schema = json.loads(WEATHER.parameters or b"")
    spec = {"name": "weather", "description": "Tells it.", "inputSchema": {"json": schema}}
    assert body["toolConfig"] == {"tools": [{"toolSpec": spec}], "toolChoice": {"any": {}}}
    named = built(tools=(WEATHER,), tool_choice=ToolChoice("tool", "weather"))
    assert named["toolConfig"]["toolChoice"] == {"tool": {"name": "weather"}}
    assert "toolChoice" not in built(tools=(WEATHER,), tool_choice=ToolChoice("auto"))["toolConfig"]


@pytest.mark.parametrize("choice", [None, ToolChoice("none")])
def test_tools_that_were_called_are_known_of_even_where_none_may_be(choice: ToolChoice | None) -> None:
    """Converse refuses a conversation with calls and no tools, as agents have it when they ask for a summary."""
    tools = (WEATHER,) if choice is not None else ()
    body = built(messages=LOOP, tools=tools, tool_choice=choice)
    gone = {"name": "weather", "description": NO_LONGER, "inputSchema": {"json": {"type": "object", "properties": {}}}}
    assert body["toolConfig"] == {"tools": [{"toolSpec": gone}]}
    assert "toolConfig" not in built(tools=tools, tool_choice=choice)


@pytest.mark.parametrize(("model", "failed"), [(CLAUDE, {"status": "error"}), (NOVA, {"status": "error"}), (OSS, {})])
def test_a_result_that_is_a_failure_says_so_as_its_model_takes_it(model: str, failed: dict[str, str]) -> None:
    messages = (*LOOP[:2], Message("tool", (ToolResult("call_1", "no", is_error=True),)))
    (result,) = built(model, messages, tools=(WEATHER,))["messages"][2]["content"]
    content = [{"text": "no"}] if failed else [{"text": "Error:"}, {"text": "no"}]
    assert result["toolResult"] == {"toolUseId": "call_1", "content": content, **failed}


def test_pictures_and_documents_are_their_bytes_and_have_names_of_their_own() -> None:
    """A document needs words beside it; two with one title are told apart."""
    text = base64.b64encode(b"words").decode()
    parts = (
        Image(media_type="image/png", data=PNG),
        File(media_type="application/pdf", data="JVBERi0=", filename="a_b.pdf"),
        File(text="words", filename="a.b.pdf"),
        File(text="words"),
    )
    (turn,) = built(messages=(Message("user", parts),))["messages"]
    assert turn["content"] == [
        {"image": {"format": "png", "source": {"bytes": PNG}}},
        {"document": {"format": "pdf", "name": "a b pdf", "source": {"bytes": "JVBERi0="}}},
        {"document": {"format": "txt", "name": "a b pdf 2", "source": {"bytes": text}}},
        {"document": {"format": "txt", "name": "document", "source": {"bytes": text}}},
        {"text": "."},
    ]
    inside = (*LOOP[:2], Message("tool", (ToolResult("call_1", (parts[0],)),)))
    (result,) = built(messages=inside)["messages"][2]["content"]
    assert result["toolResult"]["content"] == [{"image": {"format": "png", "source": {"bytes": PNG}}}]


def test_thoughts_go_back_to_who_signed_them() -> None:
    """What nobody signed stays behind: no model takes it."""
    said = (Thinking("Hm.", signature="sig"), Thinking("no"), RedactedThinking("blob"), Text("yes"))
    (_, turn, _) = built(CLAUDE, (*HI, Message("assistant", said), *HI))["messages"]
    assert turn["content"] == [
        {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "sig"}}},
        {"reasoningContent": {"redactedContent": "blob"}},
        {"text": "yes"},
    ]


@pytest.mark.parametrize(
    ("model", "asked", "more"),
    [
        (CLAUDE, Reasoning(effort="high"), {"thinking": {"type": "enabled", "budget_tokens": 24_576}}),
        (CLAUDE, Reasoning(mode="enabled", budget=2000), {"thinking": {"type": "enabled", "budget_tokens": 2000}}),
        (OPUS, Reasoning(effort="low"), {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}),
        (NOVA_2, Reasoning(effort="minimal"), {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "low"}}),
        (OSS, Reasoning(effort="max"), {"reasoning_effort": "high"}),
        (NOVA, Reasoning(effort="high"), None),
        (ARN, Reasoning(effort="high"), None),
        (CLAUDE, None, None),
    ],
)  # fmt: skip
def test_reasoning_is_asked_for_in_the_makers_words(model: str, asked: Reasoning | None, more: Any) -> None:
    assert built(model, reasoning=asked).get("additionalModelRequestFields") == more


def test_an_effort_that_is_a_beta_says_so() -> None:
    more = built("us.anthropic.claude-opus-4-5-20251101-v1:0", tools=(WEATHER,), reasoning=Reasoning(effort="low"))
    assert more["additionalModelRequestFields"] == {
        "output_config": {"effort": "low"},
        "anthropic_beta": ["effort-2025-11-24"],
    }


def test_top_k_is_the_makers_own_word() -> None:
    assert built(CLAUDE, top_k=5)["additionalModelRequestFields"] == {"top_k": 5}
    assert built(NOVA, top_k=5)["additionalModelRequestFields"] == {"inferenceConfig": {"topK": 5}}
    assert "additionalModelRequestFields" not in built(OSS, top_k=5)


def test_marks_are_cache_points_where_the_model_takes_them() -> None:
    """Behind what they mark; Nova takes none behind tools, and none that lasts an hour; others none at all."""
    hour = CacheMark("1h")
    messages = (Message("system", (Text("s", cache=hour),)), Message("user", (Text("hi", cache=CacheMark()),)))
    tools = (Tool("t", parameters=b"{}", cache=hour),)
    point, lasting = {"cachePoint": {"type": "default"}}, {"cachePoint": {"type": "default", "ttl": "1h"}}
    body = built(CLAUDE, messages, tools=tools)
    assert body["system"] == [{"text": "s"}, lasting]
    assert body["messages"][0]["content"] == [{"text": "hi"}, point]
    assert body["toolConfig"]["tools"][1:] == [lasting]
    nova = built(NOVA, messages, tools=tools)
    assert nova["system"] == [{"text": "s"}, point] and len(nova["toolConfig"]["tools"]) == 1
    for model in (OSS, ARN):
        assert "cachePoint" not in json.dumps(built(model, messages, Target(prompt_cache="arbiter"), tools=tools))
    ours = built(CLAUDE, (Message("system", "s"), *HI), Target(prompt_cache="auto"), tools=(WEATHER,))
    assert (ours["system"][-1], ours["messages"][0]["content"][-1], ours["toolConfig"]["tools"][-1]) == (point,) * 3


def test_a_shape_of_the_output_is_a_text_format() -> None:
    shape = OutputShape("json_schema", b'{"type":"object"}', name="n", description="d")
    assert built(CLAUDE, output=shape)["outputConfig"]["textFormat"] == {
        "type": "json_schema",
        "structure": {
            "jsonSchema": {"schema": '{"type":"object","additionalProperties":false}', "name": "n", "description": "d"}
        },
    }
    assert "outputConfig" not in built(output=OutputShape("json_object"))


@pytest.mark.parametrize(("asked", "sent"), [("flex", "flex"), ("priority", "priority"), ("standard_only", "default")])
def test_a_service_tier_is_bedrocks_own(asked: str, sent: str) -> None:
    assert built(service_tier=asked)["serviceTier"] == {"type": sent}
    assert "serviceTier" not in built(service_tier="auto")


def test_names_and_ids_are_of_few_characters_and_come_back() -> None:
    """Of 64 at most, as in a chat; the tool is known again by the name that was sent."""
    long = Tool(f"mcp__{'x' * 70}.do it", parameters=b"{}")
    call = ToolCall("c" * 100, long.name, "{}")
    messages = (*HI, Message("assistant", (call,)), Message("tool", (ToolResult("c" * 100, "r"),)))
    request = Request(model=NOVA, messages=messages, tools=(long,))
    body = json.loads(build_request(request))
    check_converse(body, NOVA)
    (sent,) = disguised(request)
    assert disguised(request)[sent] is long and len(sent) == 64
    assert body["messages"][1]["content"][0]["toolUse"]["name"] == sent
    assert body["toolConfig"]["tools"][0]["toolSpec"]["name"] == sent


def test_a_tool_that_takes_free_text_is_a_function() -> None:
    patch = Tool("apply_patch", "Patches.", is_free=True, grammar=Grammar("lark", "start: X"))
    spec = built(tools=(patch,))["toolConfig"]["tools"][0]["toolSpec"]
    assert spec["inputSchema"]["json"]["properties"].keys() == {"input"} and "lark" in spec["description"]
    assert disguised(Request(model=NOVA, messages=HI, tools=(patch,))) == {"apply_patch": patch}


@pytest.mark.parametrize(
    "part",
    [
        Image(url="https://x.test/a.png"),
        Image(media_type="image/bmp", data="Qk0="),
        File(url="https://x.test/a.pdf"),
        File(file_id="file_1"),
        File(media_type="application/zip", data="UEs="),
        Audio("UklGRg==", "wav"),
        Opaque("anthropic-messages", b'{"type":"mcp_tool_use"}'),
    ],
    ids=lambda part: type(part).__name__,
)
def test_what_converse_has_no_word_for_is_refused_in_words_of_its_own(part: Any) -> None:
    with pytest.raises(ProtocolUnsupported) as refused:
        built(messages=(Message("user", (Text("look"), part)),))
    assert "Bedrock" in str(refused.value) and "Anthropic" not in str(refused.value)
    inside = (*LOOP[:2], Message("tool", (ToolResult("call_1", (part,)),)))
    with pytest.raises(ProtocolUnsupported):
        built(messages=inside)


def test_parts_and_tools_of_another_format_are_told_or_left_out_or_refused() -> None:
    """As for every format that is not theirs (SPEC 2.2)."""
    told = Message("user", (Opaque("openai-responses", b"{}", text="words"), Opaque("x", b"{}", text="")))
    assert built(messages=(told,))["messages"][0]["content"] == [{"text": "words"}]
    search = OpaqueTool("openai-responses", b'{"type":"web_search"}', needless=True)
    assert "toolConfig" not in built(tools=(search,))
    with pytest.raises(ProtocolUnsupported, match=r"tools\[0\]: a built-in tool cannot be told"):
        built(tools=(OpaqueTool("anthropic-messages", b'{"type":"bash_20250124"}'),))
    with pytest.raises(ProtocolUnsupported, match="one choice"):
        built(choices=2)


@pytest.mark.parametrize("wire", ["openai-chat", "anthropic-messages", "openai-responses"])
@given(data=st.data(), model=st.sampled_from(MODELS), marks=st.sampled_from(["auto", "client", "arbiter", "off"]))
@settings(max_examples=50, deadline=None)
def test_whatever_a_client_asks_is_refused_or_a_body_that_bedrock_takes(
    wire: str, data: st.DataObject, model: str, marks: Any
) -> None:
    """And the same request gives the same bytes (SPEC 2.4)."""

    request = msgspec.structs.replace(data.draw(neutral.requests(wire)), model=model)
    target = Target(prompt_cache=marks)
    try:
        body = build_request(request, target)
    except (ProtocolUnsupported, BadRequest):
        return
    assert build_request(request, target) == body
    check_converse(json.loads(body), model)
