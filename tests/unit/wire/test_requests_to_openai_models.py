"""What differs between the servers of OpenAI's format, by the model's name; names and ids that all of them take."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbiter.errors import BadRequest, ProtocolUnsupported
from arbiter.model import Message, Request, Target, Tool, ToolCall, ToolChoice, ToolResult
from arbiter.wire import anthropic_messages, openai_chat
from arbiter.wire.openai_names import renamed, sent_name

TOOL = {"name": "f", "input_schema": {"type": "object", "properties": {}}}


NOBODY = Target()


def sent(model: str, target: Target = NOBODY, **body: Any) -> Any:
    raw = json.dumps({"model": model, "max_tokens": 64000, "messages": [], **body}).encode()
    request = anthropic_messages.parse_request(msgspec.json.decode(raw, type=dict[str, msgspec.Raw]))
    return json.loads(openai_chat.build_request(request, target))


# --- The output limit -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "member"),
    [
        *[(name, "max_completion_tokens") for name in ("o1", "o3-mini", "o4-mini-2025-04-16", "openai/o3")],
        *[(name, "max_completion_tokens") for name in ("gpt-5", "gpt-5.6-sol", "openai/gpt-5-mini", "GPT-6", "gpt-10")],
        *[(name, "max_completion_tokens") for name in ("codex-mini-latest", "gpt-5-codex", "gpt-5-chat-latest")],
        *[
            (name, "max_tokens")
            for name in (
                "gpt-4o",
                "gpt-4.1-mini",
                "gpt-3.5-turbo",
                "gpt-35-turbo",
                "gpt-oss-120b",
                "openai/gpt-oss-20b",
            )
        ],
        *[
            (name, "max_tokens")
            for name in ("deepseek-chat", "mistral-large-latest", "kimi-k2.5", "glm-4.7", "olmo-3", "m")
        ],
    ],
)
def test_the_limit_has_the_name_that_the_model_takes(model: str, member: str) -> None:
    """OpenAI's reasoning models refuse `max_tokens`, Mistral `max_completion_tokens`; DeepSeek ignores the latter."""
    body = sent(model)
    assert member in body and len(body.keys() & {"max_tokens", "max_completion_tokens"}) == 1


def test_the_limit_is_no_more_than_the_model_writes() -> None:
    """Claude Code asks for 64,000, and gpt-4o refuses more than 16,384. What the catalog says goes first."""
    assert sent("gpt-4o")["max_tokens"] == 16384
    assert sent("gpt-4o", Target(max_output=4000))["max_tokens"] == 4000
    assert sent("m", Target(max_output=4000))["max_tokens"] == 4000
    assert sent("m", Target(max_output=100000))["max_tokens"] == sent("m")["max_tokens"] == 64000
    assert "max_tokens" not in sent("gpt-4o", max_tokens=None)


# --- Reasoning --------------------------------------------------------------------------------------------------------


ADAPTIVE, DISABLED = {"type": "adaptive"}, {"type": "disabled"}


@pytest.mark.parametrize(
    ("budget", "word"),
    [(1024, "low"), (4096, "low"), (4097, "medium"), (16384, "medium"), (16385, "high"), (63999, "high")],
)
def test_a_budget_is_an_effort(budget: int, word: str) -> None:
    body = sent("o3", thinking={"type": "enabled", "budget_tokens": budget})
    assert body["reasoning_effort"] == word and "thinking" not in body


@pytest.mark.parametrize(
    ("model", "asked", "word"),
    [
        ("gpt-5", "high", "high"),
        ("gpt-5", "max", "high"),
        ("gpt-5.2", "max", "xhigh"),
        ("gpt-5.6", "max", "max"),
        ("o3", "xhigh", "high"),
        ("gpt-5.1", "low", "low"),
        ("deepseek-v4-pro", "max", "max"),
        ("deepseek-v4-pro", "xhigh", "high"),
        ("openai/gpt-oss-120b", "max", "high"),
        ("x-ai/grok-4.5", "high", "high"),
        ("nobody-knows-it", "max", "high"),
        ("nobody-knows-it", "medium", "medium"),
        *[
            (name, "high", None)
            for name in ("gpt-4o", "gpt-4.1", "gpt-3.5-turbo", "chatgpt-4o-latest", "gpt-5-chat-latest")
        ],
        *[(name, "high", None) for name in ("mistral-large-latest", "open-mixtral-8x22b", "labs-devstral-small-2512")],
        *[(name, "high", None) for name in ("llama3.1:8b", "meta-llama/Llama-4-Scout", "Qwen/Qwen3-32B", "gemma3:12b")],
        *[(name, "high", None) for name in ("grok-4-fast", "grok-4.20-0309-reasoning", "kimi-k2.5", "glm-4.7", "phi4")],
        *[(name, "high", None) for name in ("deepseek-chat", "deepseek-r1:7b", "Foo-Instruct", "bigcoder-30b")],
    ],
)
def test_an_effort_is_said_in_the_models_words_or_not_at_all(model: str, asked: str, word: str | None) -> None:
    """Claude Code sends `thinking` always, and a model that does not reason refuses the member with a 400."""
    body = sent(model, thinking=ADAPTIVE, output_config={"effort": asked})
    assert body.get("reasoning_effort") == word


def test_without_a_level_the_choice_is_the_models() -> None:
    for thinking in (ADAPTIVE, {"type": "enabled"}, None):
        assert "reasoning_effort" not in sent("o3", thinking=thinking)
    assert sent("m", output_config={"effort": "minimal"})["reasoning_effort"] == "minimal"


@pytest.mark.parametrize(
    ("model", "members"),
    [
        ("gpt-5.1", {"reasoning_effort": "none"}),
        ("gpt-5", {"reasoning_effort": "minimal"}),
        ("o4-mini", {"reasoning_effort": "low"}),
        ("gpt-oss-20b", {"reasoning_effort": "low"}),
        ("deepseek-v4-flash", {"thinking": DISABLED}),
        ("deepseek/deepseek-chat", {"thinking": DISABLED}),
        ("kimi-k2.6", {"thinking": DISABLED}),
        ("z-ai/glm-4.7", {"thinking": DISABLED}),
        ("gpt-4o", {}),
        ("mistral-small-latest", {}),
        ("m", {}),
    ],
)
def test_disabled_is_what_comes_closest(model: str, members: dict[str, Any]) -> None:
    """Claude Code's titles and sub-agents: `disabled` beside an effort, which then says nothing."""
    body = sent(model, thinking=DISABLED, output_config={"effort": "high"})
    assert {name: body[name] for name in ("reasoning_effort", "thinking") if name in body} == members


def test_tools_come_first_where_openai_takes_not_both() -> None:
    """Chat Completions refuses tools beside reasoning of GPT-5.2 and later, even where nobody asked for any."""
    for thinking in (ADAPTIVE, DISABLED, None):
        body = sent("gpt-5.6-terra", thinking=thinking, output_config={"effort": "high"}, tools=[TOOL])
        assert body["reasoning_effort"] == "none"
    assert sent("gpt-5.6-terra", thinking=ADAPTIVE, output_config={"effort": "high"})["reasoning_effort"] == "high"
    elsewhere = sent("openai/gpt-5.6", thinking=ADAPTIVE, output_config={"effort": "high"}, tools=[TOOL])
    assert elsewhere["reasoning_effort"] == "high"
    assert sent("gpt-5.1", output_config={"effort": "high"}, tools=[TOOL])["reasoning_effort"] == "high"


TURN = [
    {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "Hm", "signature": "s"}, {"type": "text", "text": "a"}],
    },
    {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_a", "name": "f", "input": {}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_a", "content": "c"}]},
    {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "", "signature": "s"}, {"type": "text", "text": "b"}],
    },
]


@pytest.mark.parametrize(
    ("model", "members"),
    [
        ("m", [{"reasoning_content": "Hm"}, {}, {}]),
        ("deepseek-v4-pro", [{"reasoning_content": "Hm"}, {"reasoning_content": ""}, {}]),
        ("moonshotai/kimi-k2.5", [{"reasoning_content": "Hm"}, {"reasoning_content": ""}, {}]),
        ("moonshotai/kimi-k2-instruct", [{"reasoning_content": "Hm"}, {}, {}]),
        ("openai/gpt-oss-120b", [{"reasoning": "Hm"}, {}, {}]),
        *[(name, [{}, {}, {}]) for name in ("gpt-4o", "gpt-5", "o3", "mistral-medium-3-5", "deepseek-r1")],
    ],
)
def test_earlier_reasoning_goes_where_it_is_taken(model: str, members: list[dict[str, str]]) -> None:
    """DeepSeek and Kimi want it back on turns with calls; Mistral refuses it; OpenAI has no use for it."""
    found = sent(model, messages=TURN)["messages"]
    names = ("reasoning_content", "reasoning")
    assert [
        {name: one[name] for name in names if name in one} for one in found if one["role"] == "assistant"
    ] == members


# --- Other members ----------------------------------------------------------------------------------------------------


def test_sampling_stays_behind_where_a_model_that_thinks_refuses_it() -> None:
    body: dict[str, Any] = {"temperature": 0.2, "top_p": 0.9, "top_k": 40}
    for model in ("o3", "gpt-5"):
        assert sent(model, **body).keys() & body.keys() == set()
    assert sent("gpt-5.1", **body, thinking=DISABLED).keys() & body.keys() == {"temperature", "top_p"}
    for model in ("gpt-4o", "gpt-5-chat-latest", "mistral-large-latest"):
        assert sent(model, **body).keys() & body.keys() == {"temperature", "top_p"}
    assert sent("m", **body).keys() & body.keys() == body.keys()


def test_more_stop_sequences_than_openai_takes_are_refused() -> None:
    """Fewer would let the model run on; other servers take as many as there are."""
    five = ["a", "b", "c", "d", "e"]
    assert sent("m", stop_sequences=five)["stop"] == five
    assert sent("gpt-4o", stop_sequences=five[:4])["stop"] == five[:4]
    with pytest.raises(ProtocolUnsupported, match="at most 4") as caught:
        sent("gpt-4o", stop_sequences=five)
    assert caught.value.param == "stop"


def test_parallel_calls_are_not_spoken_of_to_models_that_refuse_that() -> None:
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    assert "parallel_tool_calls" not in sent("o3-mini", tools=[TOOL], tool_choice=choice)
    assert sent("gpt-4o", tools=[TOOL], tool_choice=choice)["parallel_tool_calls"] is False


def test_a_long_user_is_a_digest() -> None:
    """OpenAI refuses more than 64 characters, and Claude Code's is JSON with a device, an account and a session."""
    long = json.dumps({"device_id": "d" * 64, "account_uuid": "", "session_id": "s"})
    user = sent("m", metadata={"user_id": long})["user"]
    assert re.fullmatch("[0-9a-f]{64}", user) and user == sent("gpt-4o", metadata={"user_id": long})["user"]
    assert user != sent("m", metadata={"user_id": long + " "})["user"]
    assert sent("m", metadata={"user_id": "u" * 64})["user"] == "u" * 64
    assert "user" not in sent("m", metadata={}) and "user" not in sent(
        "mistral-large-latest", metadata={"user_id": "u"}
    )


def test_mistral_gets_an_assistant_between_results_and_words() -> None:
    """`Unexpected role 'user' after role 'tool'`: Claude Code sends both in one message, and system messages too."""
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_a", "name": "f", "input": {}}]}
    result = {"type": "tool_result", "tool_use_id": "toolu_a", "content": "sun"}
    words = {"role": "user", "content": [result, {"type": "text", "text": "And?"}]}
    roles = [one["role"] for one in sent("mistral-large-latest", messages=[call, words])["messages"]]
    assert roles == ["assistant", "tool", "assistant", "user"]
    alone = {"role": "user", "content": [result]}
    assert [one["role"] for one in sent("devstral-2512", messages=[call, alone, call])["messages"]] == [
        "assistant",
        "tool",
        "assistant",
    ]


# --- Names and ids ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "fits"),
    [("gpt-4o", r".{1,40}"), ("m", r".{1,40}"), ("mistral-large-latest", r"[a-zA-Z0-9]{9}"), ("gemini-3-pro", r".+")],
)
@pytest.mark.parametrize("call_id", ["toolu_01A09q90qw90lq917835lq9", "a" * 40, "a" * 41, "b" * 300, "9characte", "c"])
def test_an_id_fits_and_its_result_finds_it(call_id: str, model: str, fits: str) -> None:
    said = (
        Message("assistant", (ToolCall(call_id, "f", "{}"), ToolCall(call_id + "2", "f", "{}"))),
        Message("tool", (ToolResult(call_id, "sun"),)),
    )
    built = json.loads(openai_chat.build_request(Request(model=model, messages=said)))["messages"]
    first, second = (call["id"] for call in built[0]["tool_calls"])
    assert built[1]["tool_call_id"] == first != second
    assert re.fullmatch(fits, first)
    if re.fullmatch(fits, call_id):
        assert first == call_id


LONG = "mcp__plugin_playwright_playwright__browser_network_requests_of_this_page"


def test_names_that_openai_refuses_are_shortened_and_found_again() -> None:
    """In definitions, choices and history alike; what comes back is what the client called it."""
    names = ["Bash", LONG, LONG + "2", "mcp__notes.app__find", "café"]
    request = Request(
        model="m",
        messages=(Message("assistant", (ToolCall("a", LONG, "{}"),)),),
        tools=tuple(Tool(name) for name in names),
        tool_choice=ToolChoice("tool", LONG),
    )
    body = json.loads(openai_chat.build_request(request))
    found = [tool["function"]["name"] for tool in body["tools"]]
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in found) and len(set(found)) == len(names)
    assert found[0] == "Bash"
    back = renamed(request)
    assert [back[name].name if name in back else name for name in found] == names and len(back) == 4
    assert body["tool_choice"]["function"]["name"] == found[1]
    assert body["messages"][0]["tool_calls"][0]["function"]["name"] == found[1]


def test_most_requests_have_no_renamed() -> None:
    assert renamed(Request(model="m", messages=(), tools=(Tool("Bash"), Tool("a" * 64)))) == {}


def test_two_tools_never_share_a_name() -> None:
    tools = (Tool(LONG), Tool(sent_name(LONG)))
    with pytest.raises(BadRequest):
        openai_chat.build_request(Request(model="m", messages=(), tools=tools))


@given(st.sets(st.text(max_size=90), min_size=2, max_size=20))
def test_a_name_depends_on_nothing_else(names: set[str]) -> None:
    """So a call in an old turn keeps its bytes when tools come and go (SPEC 2.4), and no two become one."""
    found = {name: sent_name(name) for name in names if name.isprintable()}
    assert len(set(found.values())) == len(found)
    assert all(sent_name(short) == short for short in found.values())
