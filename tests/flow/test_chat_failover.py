"""A thinking tool loop goes on at another chat server, and comes back, whichever words each of them has for a thought.

Every server refuses a member that it does not know, in its own words; DeepSeek refuses calls without reasoning, too.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from tests.fakes.agents import Agent, ChatAgent, GeminiAgent, MessagesAgent, ResponsesAgent
from tests.fakes.client import ask, run
from tests.fakes.gateway import ADMIN, Gateway
from tests.fakes.origin import Origin
from tests.fakes.strict_chats import Cerebras, Fireworks, Groq, Mistral, OpenAI
from tests.fakes.thinkers import DONE, STEPS, Compat, DeepSeek

SERVERS: dict[str, tuple[DeepSeek, str, str]] = {
    "cerebras": (Cerebras(), "api.cerebras.ai", "zai-glm-4.7"),
    "deepseek": (DeepSeek(), "api.deepseek.com", "deepseek-v4-pro"),
    "fireworks": (Fireworks(), "api.fireworks.ai", "accounts/fireworks/models/kimi-k2p6"),
    "local": (DeepSeek(), "", "deepseek-v4-flash"),
    "google": (Compat(), "generativelanguage.googleapis.com", "gemini-3-pro-preview"),
    "groq": (Groq(), "api.groq.com", "openai/gpt-oss-120b"),
    "mistral": (Mistral(), "api.mistral.ai", "mistral-large-latest"),
    "openai": (OpenAI(), "api.openai.com", "gpt-4o"),
}
"""Who it is, whose host, and which model. A host that nobody knows is where it listens."""
PAIRS = [
    ("deepseek", "groq"),
    ("deepseek", "mistral"),
    ("deepseek", "cerebras"),
    ("deepseek", "openai"),
    ("openai", "deepseek"),
    ("openai", "local"),
    ("groq", "deepseek"),
    ("cerebras", "fireworks"),
    ("fireworks", "groq"),
    ("google", "groq"),
    ("google", "openai"),
    ("deepseek", "google"),
]
LANES = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
AGENTS = [(ChatAgent, ""), (ChatAgent, "-rebuilt"), (MessagesAgent, ""), (ResponsesAgent, ""), (GeminiAgent, "")]
"""And how what they send goes on: as it is, where it can, or built anew."""


def config() -> dict[str, Any]:
    providers: dict[str, Any] = {}
    for name, (server, host, model) in SERVERS.items():
        # Whoever answers for a host is for the proxy to say.
        place = {"endpoint": f"http://{host}/v1", "proxy": server.url} if host else {"endpoint": f"{server.url}/v1"}
        more = {**place, "key": "k", "responses_api": "transcode"}
        retry = {"attempts": 1, "before_fallback": 1, "base": "10ms"}
        providers[name] = {"type": "openai", **more, "models": [model], "retry": retry}
        providers[f"{name}-rebuilt"] = {**providers[name], "relay": "rebuild"}
    aliases = {}
    for a, b in PAIRS:
        for kind in ("", "-rebuilt"):
            aliases[f"{a}-{b}{kind}"] = {"group": [f"{a}{kind}/{SERVERS[a][2]}", f"{b}{kind}/{SERVERS[b][2]}"]}
    return {"providers": providers, "aliases": aliases}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(config(), tmp_path_factory.mktemp("failover"), workers=2) as gateway:
        yield gateway


@asynccontextmanager
async def listening() -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for one, _, _ in SERVERS.values():
            one.down = False
            one.bodies.clear()
            one.refusals.clear()
            await stack.enter_async_context(Origin(one.script, port=one.port))
        yield


def forget(gateway: Gateway) -> None:
    """Nobody rests any more for having been down."""
    assert gateway.get("/admin/cooldowns/clear", method="POST", headers=ADMIN).status == 200


@LANES
@pytest.mark.parametrize(("kind", "lane"), AGENTS)
@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_a_loop_goes_on_elsewhere_and_comes_back(
    gateway: Gateway, first: str, second: str, kind: type[Agent], lane: str, stream: bool
) -> None:
    """Each server is sent the one member that it knows, with what it thought itself in it, and nobody answers 400."""
    a, b = SERVERS[first][0], SERVERS[second][0]
    a.insists = b.insists = kind is not GeminiAgent  # which is given no signature that stood in another format

    async def main() -> None:
        async with listening():
            agent = kind(gateway.port, f"{first}-{second}{lane}", stream=stream)
            for down, asked in ((None, a), (a, b), (b, a)):
                forget(gateway)
                a.down, b.down = down is a, down is b
                seen = len(asked.bodies)
                answer = await agent.turn()
                assert answer.status == 200, (answer.body, a.refusals, b.refusals)
                assert len(asked.bodies) == seen + 1
            forget(gateway)
            while agent.is_calling:
                answer = await agent.turn()
                assert answer.status == 200, (answer.body, a.refusals, b.refusals)
                assert len(agent.said) <= STEPS + 1
            assert agent.said[-1] == DONE
            assert not a.refusals and not b.refusals

    run(main)


SAID = {"role": "assistant", "content": "Look.", "tool_calls": [
    {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": "{}"}}]}  # fmt: skip


def conversation(beginning: str, **thought: Any) -> list[dict[str, Any]]:
    result = {"role": "tool", "tool_call_id": "call_1", "content": "ok"}
    return [{"role": "user", "content": beginning}, {**SAID, **thought}, result]


def body(model: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
    return {"model": model, "messages": messages}


DETAILS = [{"type": "reasoning.text", "text": "h"}, {"type": "reasoning.summary", "summary": "m"}]


@pytest.mark.parametrize(
    ("server", "thought", "expected", "is_told"),
    [
        ("groq", {"reasoning_content": "hm"}, {"reasoning": "hm"}, False),
        ("groq", {"reasoning": "hm"}, {"reasoning": "hm"}, False),
        ("groq", {"reasoning_details": DETAILS}, {"reasoning": "hm"}, False),
        ("cerebras", {"reasoning": "hm", "reasoning_details": DETAILS}, {"reasoning": "hm"}, False),
        ("deepseek", {"reasoning": "hm"}, {"reasoning_content": "hm"}, False),
        ("fireworks", {"reasoning": "hm", "reasoning_content": "hm"}, {"reasoning_content": "hm"}, False),
        ("mistral", {"reasoning_content": "hm"}, {}, True),
        ("openai", {"reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]}, {}, True),
        ("openai", {"reasoning_content": None}, {}, False),
    ],
)
def test_a_route_that_changed_needs_no_failover_to_be_minded(
    gateway: Gateway, server: str, thought: dict[str, Any], expected: dict[str, Any], is_told: bool
) -> None:
    """Whoever thought it, and wherever: a client that was pointed elsewhere brings what it has. What a server cannot be
    told is told of."""
    found, _, model = SERVERS[server]

    async def main() -> None:
        async with listening():
            messages = conversation(f"To {server}: {json.dumps(thought)}", **thought)
            answer = await ask(gateway.port, "/v1/chat/completions", body(f"{server}/{model}", messages))
            assert answer.status == 200, found.refusals
            assert found.bodies[-1]["messages"] == [messages[0], {**SAID, **expected}, messages[2]]
            is_changed = thought != expected
            assert ("$.messages" in (answer.header("x-arbiter-fidelity") or "")) == is_changed
            assert (answer.header("x-arbiter-warning") is not None) == is_told

    run(main)
