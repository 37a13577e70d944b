"""What Anthropic's models take: limits of output, thinking, effort, sampling, forced calls; and what gives way."""

from __future__ import annotations

import json
from typing import Any

import pytest

from arbiter.model import Message, Reasoning, Request, Target, Tool, ToolCall, ToolChoice, ToolResult
from arbiter.wire.messages_build import build_request
from arbiter.wire.messages_models import abilities_of

FORCED = ToolChoice("required")
TOOLS = (Tool("f"),)
SHOWN = {"type": "adaptive", "display": "summarized"}


def build(model: str, *said: Message, target: Target | None = None, **members: Any) -> Any:
    said = said or (Message("user", "x"),)
    return json.loads(build_request(Request(model=model, messages=said, **members), target or Target()))


def thinking(model: str, effort: str | None, *said: Message, **members: Any) -> tuple[Any, Any]:
    """What `reasoning_effort` becomes: `thinking`, and the effort."""
    body = build(model, *said, reasoning=Reasoning(effort) if effort else None, **members)
    return body.get("thinking"), body.get("output_config", {}).get("effort")


def budget(tokens: int) -> dict[str, Any]:
    return {"type": "enabled", "budget_tokens": tokens}


# --- The limit of output ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "most"),
    [
        ("claude-3-opus-20240229", 4096),
        ("anthropic.claude-3-haiku-20240307-v1:0", 4096),
        ("claude-3-5-sonnet@20240620", 8192),
        ("anthropic/claude-3.5-haiku", 8192),
        ("claude-3-7-sonnet-latest", 64_000),
        ("claude-opus-4-20250514", 32_000),
        ("claude-4-sonnet-20250514", 64_000),
        ("claude-opus-4-1@20250805", 32_000),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", 64_000),
        ("claude-opus-4-5", 64_000),
        ("claude-haiku-4-5-20251001", 64_000),
        ("Claude-Sonnet-4.6", 128_000),
        ("claude-opus-4-6-v1", 128_000),
        ("claude-haiku-5-5", 128_000),
        ("claude-fable-5-1", 128_000),
        ("claude-mythos-preview", 128_000),
        ("claude-opus-7", 128_000),
        ("claude-2.1", 4096),
        ("claude-instant-1.2", 4096),
        ("kimi-k2", 32_000),
        ("claude-sonnet-latest", 32_000),
    ],
)
def test_without_a_limit_a_model_may_write_what_it_can(model: str, most: int) -> None:
    """B54: never a flat 4096. Vendors' prefixes, dates and versions are no part of the name."""
    assert build(model)["max_tokens"] == most


def test_the_clients_limit_comes_first_then_the_catalogs() -> None:
    """A client's limit is no more than the model can write, where somebody knows that; less than one is none."""
    known = Target(max_output=5000)
    assert build("claude-opus-4-6", target=known)["max_tokens"] == 5000
    assert build("claude-opus-4-6", target=known, max_output=4000)["max_tokens"] == 4000
    assert build("claude-opus-4-6", target=known, max_output=10**6)["max_tokens"] == 5000
    assert build("claude-opus-4-6", max_output=10**6)["max_tokens"] == 128_000
    assert build("somebody-elses", max_output=10**6)["max_tokens"] == 10**6
    assert build("claude-opus-4-6", max_output=-1)["max_tokens"] == 128_000


# --- Thinking ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "effort", "wanted"),
    [
        ("claude-3-5-sonnet-20241022", "high", (None, None)),
        ("claude-sonnet-4-5", None, (None, None)),
        ("claude-sonnet-4-5", "none", (None, None)),
        ("claude-sonnet-4-5", "minimal", (budget(1024), None)),
        ("claude-sonnet-4-5", "high", (budget(24_576), None)),
        ("claude-sonnet-4-5", "max", (budget(32_000), None)),
        ("claude-opus-4-5", "xhigh", (budget(32_000), "high")),
        ("claude-opus-4-6", "none", (None, None)),
        ("claude-opus-4-6", "minimal", ({"type": "adaptive"}, "low")),
        ("claude-opus-4-6", "xhigh", ({"type": "adaptive"}, "high")),
        ("claude-sonnet-4-6", "max", ({"type": "adaptive"}, "max")),
        ("claude-opus-4-7", "xhigh", (SHOWN, "xhigh")),
        ("claude-opus-5", "none", ({"type": "disabled"}, None)),
        ("claude-sonnet-5", "medium", (SHOWN, "medium")),
        ("claude-sonnet-5-5", "none", ({"type": "between_tools"}, None)),
        ("claude-opus-5-5", "none", (None, "low")),
        ("claude-fable-5", "high", (SHOWN, "high")),
        ("claude-opus-4-7", "ludicrous", (SHOWN, None)),
        ("glm-5", "none", ({"type": "disabled"}, None)),
        ("glm-5", "minimal", (None, "low")),
        ("glm-5", "xhigh", (None, "xhigh")),
    ],
)
def test_a_level_of_reasoning_is_said_in_the_models_words(model: str, effort: str | None, wanted: Any) -> None:
    """Budgets until 4.5, adaptive from 4.6; what one generation takes is a 400 of the next."""
    assert thinking(model, effort) == wanted


def test_what_a_client_of_this_format_said_of_thinking_leaves_unchanged() -> None:
    asked = Reasoning("high", "enabled", 2000)
    body = build("claude-opus-4-7", reasoning=asked, temperature=0.5, tools=TOOLS, tool_choice=FORCED)
    assert body["thinking"] == budget(2000) and body["temperature"] == 0.5
    assert body["output_config"] == {"effort": "high"} and body["tool_choice"] == {"type": "any"}


def test_a_budget_leaves_half_of_the_clients_limit_for_the_answer() -> None:
    """The limit counts thoughts too; a budget must be 1,024 at least, and below the limit."""
    for limit, wanted in ((64_000, budget(24_576)), (10_000, budget(5000)), (2048, budget(1024)), (2047, None)):
        assert thinking("claude-sonnet-4-5", "high", max_output=limit)[0] == wanted


def test_models_with_budgets_do_not_think_in_an_agents_conversation() -> None:
    """They want signed thoughts before every call, which a chat client cannot keep: the second request of each loop
    would be refused. Not in the first one either: switching thinking changes what is cached of the whole conversation.
    """
    call = Message("assistant", (ToolCall("a", "f", "{}"),))
    loop = (Message("user", "x"), call, Message("tool", (ToolResult("a", "sun"),)))
    assert thinking("claude-haiku-4-5", "high", tools=TOOLS) == (None, None)
    assert thinking("claude-haiku-4-5", "high", *loop, tools=TOOLS) == (None, None)
    assert thinking("claude-haiku-4-5", "high", *loop, Message("user", "y")) == (None, None)
    assert thinking("claude-opus-4-5", "high", *loop, tools=TOOLS) == (None, "high")
    # Adaptive thinking takes such a history.
    assert thinking("claude-opus-4-6", "high", *loop, tools=TOOLS) == ({"type": "adaptive"}, "high")


def test_a_forced_call_comes_before_thinking() -> None:
    """Where both together are refused; and where a call can never be forced, it is asked for."""
    forced = {"tools": TOOLS, "tool_choice": FORCED, "reasoning": Reasoning("high")}
    assert "thinking" not in build("claude-opus-4-6", **forced)
    assert build("claude-opus-4-6", **forced)["tool_choice"] == {"type": "any"}
    both = build("claude-opus-5", **forced)
    assert both["thinking"] == SHOWN and both["tool_choice"] == {"type": "any"}
    never = build("claude-opus-5-5", tools=TOOLS, tool_choice=ToolChoice("tool", "f"))
    assert never["tool_choice"] == {"type": "auto"}


def test_the_beginning_of_an_answer_comes_before_thinking() -> None:
    begun = (Message("user", "x"), Message("assistant", "Two:"))
    assert thinking("claude-sonnet-4-5", "high", *begun) == (None, None)


def test_a_model_that_takes_no_beginning_is_told_to_go_on() -> None:
    """Since 4.6 a conversation must end with the user. The mark stays on the turn that comes again."""
    begun = (Message("user", "x"), Message("assistant", "Two: "))
    assert [turn["role"] for turn in build("claude-opus-4-5", *begun)["messages"]] == ["user", "assistant"]
    first, second, third = build("claude-opus-4-6", *begun, reasoning=Reasoning("high"))["messages"]
    assert "cache_control" in first["content"][0] and second["content"] == [{"type": "text", "text": "Two:"}]
    assert third == {"role": "user", "content": [{"type": "text", "text": "Go on."}]}
    assert thinking("claude-opus-4-6", "high", *begun) == ({"type": "adaptive"}, "high")


@pytest.mark.parametrize(
    ("model", "effort", "wanted"),
    [
        ("claude-3-5-sonnet-20241022", None, (1.0, 0.9, 5)),
        ("claude-sonnet-4-5", None, (1.0, None, 5)),
        ("claude-sonnet-4-5", "high", (None, None, None)),
        ("claude-opus-4-6", "high", (None, None, None)),
        ("claude-opus-4-7", None, (None, None, None)),
        ("claude-sonnet-5", "none", (None, None, None)),
        ("glm-5", "high", (1.5, 0.9, 5)),
    ],
)
def test_sampling_gives_way(model: str, effort: str | None, wanted: Any) -> None:
    """To thinking, to each other, and to models that take none of it. Anthropic's temperatures end at 1."""
    asked = Reasoning(effort) if effort else None
    body = build(model, reasoning=asked, temperature=1.5, top_p=0.9, top_k=5)
    assert tuple(body.get(name) for name in ("temperature", "top_p", "top_k")) == wanted


def test_a_high_top_p_may_stay_while_thinking() -> None:
    body = build("claude-sonnet-4-5", reasoning=Reasoning("high"), top_p=0.97)
    assert body["top_p"] == 0.97 and body["thinking"]["type"] == "enabled"


def test_a_name_that_says_nothing_has_no_abilities() -> None:
    for name in ("gpt-5", "claude", "claude-saga-9", "claude-opus", "openrouter/auto", ""):
        assert abilities_of(name) is None
