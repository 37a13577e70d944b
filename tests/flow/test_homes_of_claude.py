"""A Claude takes over from itself in the middle of a thinking tool loop, wherever else it is at home.

Each home refuses what its model did not sign, and takes what it signed elsewhere, as Anthropic says of its platforms.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from tests.fakes.agents import Agent, ChatAgent, MessagesAgent, ResponsesAgent
from tests.fakes.bedrock import BEARER, REGION, Bedrock
from tests.fakes.client import run
from tests.fakes.gateway import ADMIN, Gateway
from tests.fakes.origin import Origin
from tests.fakes.thinkers import DONE, Claude

OPUS = Claude()
HOMES = {
    "own": Claude(same_as=OPUS),
    "vertex": OPUS,
    "eu": Claude(same_as=OPUS),
    "us": Claude(same_as=OPUS),
    "foundry": Claude(same_as=OPUS),
    "proxy": Claude(),
    "sonnet": Claude(),
}
BEDROCKS = ("eu", "us", "sonnet")
NAMES = {
    "own": "claude-opus-4-6",
    "vertex": "claude-opus-4-6@20260205",
    "eu": "eu.anthropic.claude-opus-4-6-v1",
    "us": f"arn:aws:bedrock:{REGION}:123456789012:application-inference-profile/abcdefghijkl",
    "foundry": "our-deployment",
    "proxy": "claude-opus-4-6",
    "sonnet": "anthropic.claude-sonnet-4-6",
}
UNTOLD = ("us", "foundry")
"""Whose names say nothing of the model."""
PAIRS = [("own", "eu"), ("vertex", "own"), ("vertex", "eu"), ("eu", "us"), ("us", "foundry"), ("foundry", "vertex")]
STRANGERS = [("own", "proxy"), ("vertex", "proxy"), ("proxy", "eu"), ("eu", "sonnet")]


def config() -> dict[str, Any]:
    bedrock = {"type": "bedrock", "region": REGION, "key": BEARER}
    kinds: dict[str, dict[str, Any]] = {
        # Whoever answers for a name is for the proxy to say.
        "own": {"type": "anthropic", "key": "k", "endpoint": "http://api.anthropic.com", "proxy": HOMES["own"].url},
        "vertex": {"type": "vertex", "project": "p", "location": "l", "key": "token"},
        "eu": bedrock,
        "us": bedrock,
        "foundry": {"type": "azure", "key": "k"},
        "proxy": {"type": "anthropic", "key": "k"},
        "sonnet": bedrock,
    }
    providers = {}
    for name, kind in kinds.items():
        model = "claude-sonnet-4-6" if name == "sonnet" else "claude-opus-4-6"
        declared = {"id": model, "upstream": NAMES[name], **({"api": "messages"} if name in UNTOLD else {})}
        retry = {"attempts": 1, "before_fallback": 1, "base": "10ms"}
        providers[name] = {"endpoint": HOMES[name].url, **kind, "models": [declared], "retry": retry}
    ids = {name: providers[name]["models"][0]["id"] for name in providers}
    aliases = {f"{a}-{b}": {"group": [f"{a}/{ids[a]}", f"{b}/{ids[b]}"]} for a, b in PAIRS + STRANGERS}
    return {"providers": providers, "aliases": aliases}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(config(), tmp_path_factory.mktemp("homes"), workers=2) as gateway:
        yield gateway


@asynccontextmanager
async def listening(gateway: Gateway) -> AsyncIterator[None]:
    assert gateway.get("/admin/cooldowns/clear", method="POST", headers=ADMIN).status == 200
    async with AsyncExitStack() as stack:
        for name, one in HOMES.items():
            one.down = False
            one.bodies.clear()
            one.refusals.clear()
            at = Bedrock if name in BEDROCKS else Origin
            await stack.enter_async_context(at(one.script, port=one.port))
        yield


AGENTS: list[tuple[type[Agent], dict[str, Any]]] = [
    (MessagesAgent, {"thinking": {"type": "adaptive"}}),
    (MessagesAgent, {"thinking": {"type": "enabled", "budget_tokens": 2000}}),
    (ChatAgent, {}),
    (ResponsesAgent, {}),
]


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize(("kind", "members"), AGENTS)
@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_another_home_goes_on_with_the_thoughts_of_the_first(
    gateway: Gateway, first: str, second: str, kind: type[Agent], members: dict[str, Any], stream: bool
) -> None:
    """In an open loop, and back again: nothing is taken out, nothing refused, and nobody is told of anything."""
    a, b = HOMES[first], HOMES[second]

    async def main() -> None:
        async with listening(gateway):
            agent = kind(gateway.port, f"{first}-{second}", stream=stream, **members)
            for down, asked in ((None, a), (a, b), (b, a)):
                assert gateway.get("/admin/cooldowns/clear", method="POST", headers=ADMIN).status == 200
                a.down, b.down = down is a, down is b
                seen = len(asked.bodies)
                answer = await agent.turn()
                assert answer.status == 200, (answer.body, a.refusals, b.refusals)
                assert len(asked.bodies) == seen + 1
                assert answer.header("x-arbiter-warning") is None
            while agent.is_calling:
                assert (await agent.turn()).status == 200
            assert agent.said[-1] == DONE
            for body in b.bodies:
                said = [turn["content"] for turn in body["messages"] if turn["role"] == "assistant"]
                assert said and all(blocks[0]["type"] == "thinking" for blocks in said)
            assert not a.refusals and not b.refusals

    run(main)


@pytest.mark.parametrize(("first", "second"), STRANGERS)
def test_another_base_url_and_another_model_are_still_not_asked(gateway: Gateway, first: str, second: str) -> None:
    """A proxy may have any model behind it, and a Sonnet is no Opus: they would refuse the open loop."""
    a, b = HOMES[first], HOMES[second]

    async def main() -> None:
        async with listening(gateway):
            agent = MessagesAgent(gateway.port, f"{first}-{second}", stream=False, thinking={"type": "adaptive"})
            assert (await agent.turn()).status == 200
            a.down = True
            answer = await agent.turn()
            assert answer.status in (503, 529) and b.bodies == []

    run(main)
