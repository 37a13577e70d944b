"""Five thoughts and calls at each cloud, for clients of each format: a cloud refuses what is not as it gave it.

Bedrock through Converse and as Claude's own, Vertex AI with Claude and with Gemini, OpenRouter.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from tests.fakes.agents import Agent, ChatAgent, GeminiAgent, MessagesAgent, ResponsesAgent
from tests.fakes.bedrock import BEARER, REGION, Bedrock
from tests.fakes.client import run
from tests.fakes.gateway import Gateway
from tests.fakes.origin import Origin
from tests.fakes.thinkers import DONE, STEPS, Claude, Gem, Thinker
from tests.fakes.thinking_clouds import Conversing, Routed

CLOUDS: dict[str, Thinker] = {
    "converse": Conversing(),
    "invoke": Claude(),
    "vertex-claude": Claude(),
    "vertex-gemini": Gem(),
    "openrouter": Routed(),
}
AGENTS: list[tuple[type[Agent], dict[str, Any]]] = [
    (ChatAgent, {}),
    (MessagesAgent, {"thinking": {"type": "adaptive"}}),
    (MessagesAgent, {"thinking": {"type": "enabled", "budget_tokens": 2000}}),
    (ResponsesAgent, {}),
    (GeminiAgent, {}),
]
SEALED = [(name, kind) for name in CLOUDS for kind in (ChatAgent, ResponsesAgent) if name != "openrouter"]
SEALED += [("openrouter", MessagesAgent), ("openrouter", ResponsesAgent)]
SEALED += [(name, GeminiAgent) for name in CLOUDS if name != "vertex-gemini"]
CASES = [(name, kind, members, True) for name in CLOUDS for kind, members in AGENTS]
CASES += [(name, kind, {}, False) for name, kind in SEALED]


def config() -> dict[str, Any]:
    bedrock = {"type": "bedrock", "region": REGION, "key": BEARER}
    vertex = {"type": "vertex", "project": "p", "location": "l", "key": "token"}
    claude = "eu.anthropic.claude-opus-4-6-v1"
    kinds: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "converse": (bedrock, {"id": "converse", "upstream": claude, "api": "converse"}),
        "invoke": (bedrock, {"id": "invoke", "upstream": claude}),
        "vertex-claude": (vertex, {"id": "vertex-claude", "upstream": "claude-opus-4-6@20260205", "api": "messages"}),
        "vertex-gemini": (vertex, {"id": "vertex-gemini", "upstream": "gemini-3-pro"}),
        "openrouter": ({"type": "openrouter", "key": "k", "responses_api": "transcode"},
                       {"id": "openrouter", "upstream": "deepseek/deepseek-v4-pro"}),
    }  # fmt: skip
    return {
        "providers": {
            name: {**kind, "endpoint": CLOUDS[name].url, "models": [model], "retry": {"attempts": 1}}
            for name, (kind, model) in kinds.items()
        }
    }


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(config(), tmp_path_factory.mktemp("clouds"), workers=2) as gateway:
        yield gateway


@asynccontextmanager
async def listening(name: str) -> AsyncIterator[Any]:
    """The cloud, where it listens."""
    cloud = CLOUDS[name]
    cloud.refusals.clear()
    cloud.bodies.clear()
    async with AsyncExitStack() as stack:
        at = Bedrock if name in ("converse", "invoke") else Origin
        yield await stack.enter_async_context(at(cloud.script, port=cloud.port))


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("says", [True, False], ids=["speaking", "silent"])
@pytest.mark.parametrize(("name", "kind", "members", "keeps_text"), CASES)
def test_five_thoughts_and_calls_survive(
    gateway: Gateway, name: str, kind: type[Agent], members: dict[str, Any], keeps_text: bool, says: bool, stream: bool
) -> None:
    """What a cloud's model thought comes back to it byte for byte and where it stood, whichever format the client
    speaks; where it is sealed, also through one that keeps only what it cannot read."""
    cloud = CLOUDS[name]
    cloud.says = says

    async def main() -> None:
        async with listening(name) as place:
            agent = kind(gateway.port, name, stream=stream, **members)
            while agent.is_calling:
                answer = await agent.turn()
                assert answer.status == 200, (answer.body, cloud.refusals, getattr(place, "refusals", None))
                assert len(agent.said) <= STEPS + 1
                if not keeps_text:
                    agent.forget_plain_thoughts()
            assert agent.said[-1] == DONE and len(agent.said) == STEPS + 1
            assert cloud.refusals == []
            assert answer.header("x-arbiter-warning") is None

    run(main)
