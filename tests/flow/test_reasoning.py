"""Reasoning crosses formats: loops of five thoughts and calls, at upstreams that refuse what is not as they gave it.

Gateways of two workers, every request on a connection of its own: nobody knows who is asked next.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from google import genai
from google.genai import types

from arbiter.config.snapshot import key_digest
from tests.fakes.agents import Agent, BareGeminiAgent, ChatAgent, GeminiAgent, MessagesAgent, ResponsesAgent
from tests.fakes.client import Answer, ask, run
from tests.fakes.gateway import ADMIN, ARBITER, Gateway
from tests.fakes.origin import Origin
from tests.fakes.thinkers import DONE, STEPS, Claude, Compat, DeepSeek, Gem, Gpt, Router, Thinker

CLAUDE, DEEP, GPT, GEM = "claude-opus-4-6", "deepseek-chat", "gpt-5.2", "gemini-3-pro"
ROUTER, COMPAT = "anthropic/claude-opus-4.6", "gemini-3-pro-preview"
RETRY = {"attempts": 1, "before_fallback": 1, "base": "10ms"}
KEYS = {"ann": "arb-the-key-of-ann", "bob": "arb-the-key-of-bob"}


class Upstreams:
    def __init__(self) -> None:
        self.claude, self.deep, self.gpt, self.gem = Claude(), DeepSeek(), Gpt(), Gem()
        self.router, self.compat = Router(), Compat()

    @property
    def all(self) -> tuple[Thinker, ...]:
        return self.claude, self.deep, self.gpt, self.gem, self.router, self.compat

    def config(self, **more: Any) -> dict[str, Any]:
        openai = {"type": "openai", "retry": RETRY}
        # Whoever answers for Google's host is for the proxy to say.
        google = {"endpoint": "http://generativelanguage.googleapis.com/v1beta/openai", "proxy": self.compat.url}
        return {
            "auth": {"mode": "attribute"},
            "clients": [{"name": name, "key_hash": f"sha256:{key_digest(key)}"} for name, key in KEYS.items()],
            "providers": {
                "claude": {
                    "type": "anthropic",
                    "endpoint": self.claude.url,
                    "key": "sk-c",
                    "models": [CLAUDE],
                    "retry": RETRY,
                },
                "deep": {**openai, "endpoint": f"{self.deep.url}/v1", "key": "sk-d", "models": [DEEP],
                         "responses_api": "transcode"},
                "gem": {"type": "gemini", "endpoint": self.gem.url, "key": "g", "models": [GEM], "retry": RETRY},
                "gpt": {**openai, "endpoint": f"{self.gpt.url}/v1", "key": "sk-g",
                        "models": [{"id": GPT, "api": "responses"}]},
                "router": {**openai, "type": "openrouter", "endpoint": f"{self.router.url}/api/v1", "key": "sk-r",
                           "models": [ROUTER], "responses_api": "transcode"},
                "compat": {**openai, **google, "key": "g", "models": [COMPAT],
                           "responses_api": "transcode"},
                "rebuilt-router": {**openai, "type": "openrouter", "endpoint": f"{self.router.url}/api/v1",
                                   "key": "sk-r", "models": [ROUTER], "relay": "rebuild"},
                "rebuilt-compat": {**openai, **google, "key": "g",
                                   "models": [COMPAT], "relay": "rebuild"},
                "rebuilt-gpt": {**openai, "endpoint": f"{self.gpt.url}/v1", "key": "sk-g", "relay": "rebuild",
                                "models": [{"id": GPT, "api": "responses"}]},
            },
            "aliases": {
                "claude-then-gem": {"group": [f"claude/{CLAUDE}", f"gem/{GEM}"]},
                "router-first": {"group": [f"router/{ROUTER}", f"claude/{CLAUDE}"]},
                "compat-first": {"group": [f"compat/{COMPAT}", f"deep/{DEEP}"]},
                "gem-then-claude": {"group": [f"gem/{GEM}", f"claude/{CLAUDE}"]},
                "deep-first": {"group": [f"deep/{DEEP}", f"claude/{CLAUDE}", f"gpt/{GPT}"]},
                "claude-first": {"group": [f"claude/{CLAUDE}", f"deep/{DEEP}", f"gpt/{GPT}"]},
                "deep-then-gpt": {"group": [f"deep/{DEEP}", f"gpt/{GPT}"]},
            },
            **more,
        }  # fmt: skip

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        for one in self.all:
            one.refusals.clear()
            one.down = False
        async with AsyncExitStack() as stack:
            for one in self.all:
                await stack.enter_async_context(Origin(one.script, port=one.port))
            yield


@pytest.fixture(scope="module")
def upstreams() -> Upstreams:
    return Upstreams()


@pytest.fixture(scope="module")
def gateway(upstreams: Upstreams, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(upstreams.config(), tmp_path_factory.mktemp("reasoning"), workers=2) as gateway:
        yield gateway


async def finish(agent: Agent, upstreams: Upstreams) -> None:
    """Let `agent` go on until it is done. However many turns it takes, none is refused."""
    while agent.is_calling:
        answer = await agent.turn()
        assert answer.status == 200, (answer.body, [one.refusals for one in upstreams.all])
        assert len(agent.said) <= STEPS + 1
    assert agent.said[-1] == DONE
    assert not any(one.refusals for one in upstreams.all)


CROSSINGS = [
    (ChatAgent, CLAUDE),
    (ResponsesAgent, CLAUDE),
    (ResponsesAgent, DEEP),
    (MessagesAgent, DEEP),
    (ChatAgent, GPT),
    (MessagesAgent, GPT),
    (ChatAgent, GEM),
    (ResponsesAgent, GEM),
    (MessagesAgent, ROUTER),
    (ResponsesAgent, ROUTER),
    (MessagesAgent, COMPAT),
    (ResponsesAgent, COMPAT),
    (ResponsesAgent, f"rebuilt-gpt/{GPT}"),
    *((GeminiAgent, model) for model in (CLAUDE, DEEP, GPT, ROUTER, COMPAT)),
]
BARE = [(BareGeminiAgent, model) for model in (CLAUDE, DEEP, GPT, ROUTER, COMPAT)]
AS_IT_IS = [
    (ChatAgent, ROUTER),
    (ChatAgent, COMPAT),
    (ChatAgent, f"rebuilt-router/{ROUTER}"),
    (ChatAgent, f"rebuilt-compat/{COMPAT}"),
]
LANES = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


@LANES
@pytest.mark.parametrize("says", [True, False], ids=["speaking", "silent"])
@pytest.mark.parametrize(("kind", "model"), CROSSINGS + BARE, ids=lambda one: getattr(one, "__name__", one))
def test_five_thoughts_and_calls_survive(
    gateway: Gateway, upstreams: Upstreams, kind: type[Agent], model: str, stream: bool, says: bool
) -> None:
    """What an upstream thought comes back to it byte for byte, through a client whose format has no place for it."""

    async def main() -> None:
        async with upstreams.listening():
            for one in upstreams.all:
                one.says = says
            agent = kind(gateway.port, model, stream=stream)
            await finish(agent, upstreams)
            assert len(agent.said) == STEPS + 1
            for one in upstreams.all:
                one.says = True

    run(main)


@LANES
@pytest.mark.parametrize(("kind", "model"), AS_IT_IS, ids=lambda one: getattr(one, "__name__", one))
def test_what_a_client_of_the_same_format_can_hand_back_is_not_sealed(
    gateway: Gateway, upstreams: Upstreams, kind: type[Agent], model: str, stream: bool
) -> None:
    """A chat upstream's own members reach a chat client as they are, also where its answer is built anew."""

    async def main() -> None:
        async with upstreams.listening():
            agent = kind(gateway.port, model, stream=stream)
            await finish(agent, upstreams)
            assert "arbiter-reasoning" not in json.dumps(agent.history)
            assert len(agent.said) == STEPS + 1

    run(main)


@LANES
@pytest.mark.parametrize(("kind", "model"), CROSSINGS, ids=lambda one: getattr(one, "__name__", one))
def test_the_items_alone_are_enough(
    gateway: Gateway, upstreams: Upstreams, kind: type[Agent], model: str, stream: bool
) -> None:
    """Many clients show what was thought and send no word of it: what is sealed holds all that the upstream wants."""

    async def main() -> None:
        async with upstreams.listening():
            agent = kind(gateway.port, model, stream=stream)
            while agent.is_calling:
                answer = await agent.turn()
                assert answer.status == 200, (answer.body, [one.refusals for one in upstreams.all])
                agent.forget_plain_thoughts()
            assert agent.said[-1] == DONE
            assert len(items_in(agent)) == STEPS + 1

    run(main)


@LANES
@pytest.mark.parametrize("members", [{"include": []}, {"include": ["message.output_text.logprobs"], "store": True}])
@pytest.mark.parametrize("model", [CLAUDE, DEEP, ROUTER])
def test_a_responses_client_need_not_ask_for_what_it_will_be_asked_for(
    gateway: Gateway, upstreams: Upstreams, model: str, members: dict[str, Any], stream: bool
) -> None:
    """`include` is about what OpenAI stores; elsewhere, who hands nothing along has lost it."""

    async def main() -> None:
        async with upstreams.listening():
            agent = ResponsesAgent(gateway.port, model, stream=stream, **members)
            await finish(agent, upstreams)
            assert len(items_in(agent)) == STEPS + 1

    run(main)


@LANES
@pytest.mark.parametrize("model", [CLAUDE, DEEP, GPT, ROUTER, COMPAT])
def test_googles_own_sdk_hands_it_along(gateway: Gateway, upstreams: Upstreams, model: str, stream: bool) -> None:
    """As a chat of its keeps what came: signatures are bytes there, and each chunk is a content of its own."""
    google = genai.Client(api_key="x", http_options={"base_url": f"http://127.0.0.1:{gateway.port}"})
    read = types.FunctionDeclaration(name="read", parameters_json_schema={"type": "object", "properties": {}})
    thinking = types.ThinkingConfig(include_thoughts=True, thinking_level=types.ThinkingLevel.HIGH)
    config = types.GenerateContentConfig(
        tools=[types.Tool(function_declarations=[read])],
        thinking_config=thinking,
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
    )
    chat = google.chats.create(model=model, config=config)

    def turn(message: Any) -> tuple[str, list[types.FunctionCall]]:
        told = list(chat.send_message_stream(message)) if stream else [chat.send_message(message)]
        parts = [part for one in told for part in one.candidates[0].content.parts or ()]  # type: ignore[index, union-attr]
        said = "".join(part.text for part in parts if part.text and not part.thought)
        return said, [part.function_call for part in parts if part.function_call is not None]

    async def main() -> None:
        async with upstreams.listening():
            message: Any = "Read five files, one after the other."
            for _ in range(STEPS + 1):
                said, calls = await asyncio.to_thread(turn, message)
                message = [types.Part.from_function_response(name="read", response={"output": "ok"}) for _ in calls]
            assert (said, calls) == (DONE, [])
            assert not any(one.refusals for one in upstreams.all)

    run(main)


FAILOVERS: list[tuple[type[Agent], str, str, str, dict[str, Any]]] = [
    (MessagesAgent, "deep-first", "deep", "claude", {"thinking": {"type": "adaptive"}}),
    (
        MessagesAgent,
        "deep-first",
        "deep",
        "claude",
        {
            "thinking": {"type": "enabled", "budget_tokens": 2048},
            "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        },
    ),
    (ChatAgent, "claude-first", "claude", "deep", {}),
    (ResponsesAgent, "deep-then-gpt", "deep", "gpt", {}),
    (ResponsesAgent, "claude-first", "claude", "deep", {}),
    (ChatAgent, "gem-then-claude", "gem", "claude", {}),
    (GeminiAgent, "claude-then-gem", "claude", "gem", {}),
    (MessagesAgent, "router-first", "router", "claude", {}),
    (ResponsesAgent, "compat-first", "compat", "deep", {}),
]


@LANES
@pytest.mark.parametrize(("kind", "alias", "first", "second", "members"), FAILOVERS)
def test_a_failover_in_the_middle_of_a_loop_is_no_end_and_nor_is_the_way_back(
    gateway: Gateway,
    upstreams: Upstreams,
    kind: type[Agent],
    alias: str,
    first: str,
    second: str,
    members: dict[str, Any],
    stream: bool,
) -> None:
    """Who takes over is not shown what it would refuse; who comes back gets what is its own, and nobody answers 400."""
    a: Thinker = getattr(upstreams, first)
    b: Thinker = getattr(upstreams, second)

    async def main() -> None:
        async with upstreams.listening():
            agent = kind(gateway.port, alias, stream=stream, **members)
            for down, other in ((None, a), (a, b), (b, a)):
                forget(gateway)
                for one in upstreams.all:
                    one.down = one is down or (down is not None and one not in (a, b))
                seen = len(other.bodies)
                for _ in range(2):
                    answer = await agent.turn()
                    assert answer.status == 200, (answer.body, [one.refusals for one in upstreams.all])
                assert len(other.bodies) == seen + 2
                if other is b:  # DeepSeek is told everybody's thoughts, as text, where there is any
                    warning = answer.header("x-arbiter-warning") or ""
                    is_told = b is upstreams.deep and a is not upstreams.compat
                    assert warning.startswith("reasoning_left_out") is not is_told
            if "budget_tokens" in str(members):
                told = [(body["thinking"]["type"], "context_management" in body) for body in upstreams.claude.bodies]
                assert told[-2:] == [("disabled", False)] * 2  # of an open loop without its first thoughts
            await finish(agent, upstreams)
            # The loop is over: thinking is what the client asks for again.
            agent.history.append({"role": "user", "content": "Thank you."})
            assert (await agent.turn()).status == 200
            assert not any(one.refusals for one in upstreams.all)
            if members:
                b.down, a.down = False, True
                forget(gateway)
                agent.history.append({"role": "user", "content": "And how was it?"})
                assert (await agent.turn()).status == 200
                assert b.bodies[-1]["thinking"] == members["thinking"]

    run(main)


def test_a_chat_client_that_keeps_items_only_still_gives_deepseek_its_reasoning(
    gateway: Gateway, upstreams: Upstreams
) -> None:
    """What was thought elsewhere is told as text to an upstream of the client's own format that insists on some."""

    async def main() -> None:
        async with upstreams.listening():
            agent = ChatAgent(gateway.port, "claude-first", stream=True)
            forget(gateway)
            await agent.turn()
            thought = agent.history[1].pop("reasoning_content")
            upstreams.claude.down = True
            answer = await agent.turn()
            assert answer.status == 200, answer.body
            assert upstreams.deep.bodies[-1]["messages"][1]["reasoning_content"] == thought
            assert "reasoning_details" not in upstreams.deep.bodies[-1]["messages"][1]
            assert answer.header("x-arbiter-warning") is None  # nothing was
            assert "$.messages" in (answer.header("x-arbiter-fidelity") or "")

    run(main)


def forget(gateway: Gateway) -> None:
    """Nobody rests any more for having been down."""
    assert gateway.get("/admin/cooldowns/clear", method="POST", headers=ADMIN).status == 200


def rotated(gateway: Gateway) -> None:
    subprocess.run([*ARBITER, "keys", "deployment", "rotate"], env=gateway.env, check=True, capture_output=True)


@pytest.mark.parametrize("event", ["restart", "rotation", "both"])
@pytest.mark.parametrize(("kind", "model"), [(ChatAgent, CLAUDE), (ResponsesAgent, DEEP), (MessagesAgent, GPT)])
def test_a_loop_survives_a_restart_and_a_new_key_in_the_middle(
    upstreams: Upstreams, tmp_path: Path, kind: type[Agent], model: str, event: str
) -> None:
    """Nothing is kept in a process, and the key that an item was sealed with goes on opening it."""

    async def main() -> None:
        async with upstreams.listening():
            with Gateway(upstreams.config(), tmp_path, workers=2) as gateway:
                agent = kind(gateway.port, model, stream=True)
                await agent.turn()
                await agent.turn()
                if event in ("rotation", "both"):
                    rotated(gateway)
                    await agent.turn()
                if event in ("restart", "both"):
                    gateway.stop()
                    gateway.start()
                await finish(agent, upstreams)
                file = gateway.data / "reasoning.keys"
                assert file.stat().st_mode & 0o777 == 0o600
                assert len(file.read_text().split()) == (2 if event != "restart" else 1)

    run(main)


def test_replicas_with_one_key_open_what_each_other_sealed(upstreams: Upstreams, tmp_path: Path) -> None:
    """Two gateways that share a key and nothing else answer a conversation in turn; one with another key refuses it."""
    key, other = "A" * 43, "B" * 42 + "A"

    async def main() -> None:
        async with upstreams.listening():
            shared = upstreams.config(reasoning={"keys": ["${SHARED}"]})
            with (
                Gateway(shared, tmp_path / "one", env={"SHARED": key}) as one,
                Gateway(upstreams.config(), tmp_path / "two", env={"ARBITER_REASONING_KEY": key}) as two,
                Gateway(shared, tmp_path / "other", env={"SHARED": other}) as stranger,
            ):
                agent = ResponsesAgent(one.port, CLAUDE, stream=True)
                while agent.is_calling:
                    assert (await agent.turn()).status == 200
                    agent.port = two.port if agent.port == one.port else one.port
                assert not (one.data / "reasoning.keys").exists()
                agent.port = stranger.port
                agent.history.append({"role": "user", "content": "Once more."})
                answer = await agent.turn()
                assert (answer.status, code_of(answer)) == (400, "invalid_reasoning_content")

    run(main)


def code_of(answer: Answer) -> str | None:
    error = answer.json["error"]
    return error["details"][0]["reason"].lower() if "details" in error else error.get("code")


def broken(item: str) -> str:
    return item[:-9] + ("A" if item[-9] != "A" else "B") + item[-8:]


def items_in(agent: Agent) -> list[tuple[dict[str, Any], str]]:
    """Where the items are in what an agent kept: the objects, and the member of each."""
    found = []
    for turn in agent.history:
        for one in turn.get("reasoning_details", ()):
            found.append((one, "data"))
        if turn.get("encrypted_content"):
            found.append((turn, "encrypted_content"))
        found += [(part, "thoughtSignature") for part in turn.get("parts", ()) if "thoughtSignature" in part]
        if turn.get("role") == "assistant" and isinstance(turn["content"], list):
            found += [(one, "data") for one in turn["content"] if one["type"] == "redacted_thinking"]
    return found


def place_in(agent: Agent) -> str:
    """Where the first item stands, as the agent's own format says it."""
    if isinstance(agent, ResponsesAgent):
        return f"input[{next(i for i, item in enumerate(agent.history) if item.get('encrypted_content'))}]: "
    if isinstance(agent, ChatAgent):
        return "messages[1]: "
    if isinstance(agent, GeminiAgent):
        parts = agent.history[1]["parts"]
        return f"contents[1].parts[{next(i for i, part in enumerate(parts) if 'thoughtSignature' in part)}]: "
    kinds = [block["type"] for block in agent.history[1]["content"]]
    return f"messages[1].content[{kinds.index('redacted_thinking')}]: "


COUNTS = {MessagesAgent: "/v1/messages/count_tokens", ResponsesAgent: "/v1/responses/input_tokens"}
"""Where a kind of agent has its tokens counted, also where that is estimated."""
TAMPERINGS = ["broken", "cut", "huge", "foreign", "text", "call"]


@pytest.mark.parametrize("tampering", TAMPERINGS)
@pytest.mark.parametrize(("kind", "model"), CROSSINGS, ids=lambda one: getattr(one, "__name__", one))
def test_what_was_tampered_with_is_refused_and_nobody_is_asked(
    gateway: Gateway, upstreams: Upstreams, kind: type[Agent], model: str, tampering: str
) -> None:
    """A broken item, another client's, or one beside other words or calls is a 400 with a code, in the client's format;
    on the way to any upstream, also to one of the client's own format."""

    async def main() -> None:
        async with upstreams.listening():
            agent = kind(gateway.port, model, stream=True, key=KEYS["ann"])
            await agent.turn()
            ((holder, name),) = items_in(agent)
            item = holder[name]
            if tampering == "broken":
                holder[name] = broken(item)
            elif tampering == "cut":
                holder[name] = item[:40]
            elif tampering == "huge":
                holder[name] = item + "A" * (4 << 20)
            elif tampering == "foreign":
                agent.key = KEYS["bob"]
            else:
                text = json.dumps(agent.history)
                was, now = ("Step 1.", "Step 9.") if tampering == "text" else ("_call_", "_cell_")
                agent.history = json.loads(text.replace(was, now))
            own = {ChatAgent: DEEP, MessagesAgent: CLAUDE, ResponsesAgent: GPT, GeminiAgent: GEM}[kind]
            asked = sum(len(one.bodies) for one in upstreams.all)
            for agent.model in (model, own):
                answer = await agent.turn()
                assert (answer.status, code_of(answer)) == (400, "invalid_reasoning_content"), answer.body
                if kind is not GeminiAgent:
                    assert answer.json["error"]["type"] == "invalid_request_error"
                assert answer.json["error"]["message"].startswith(place_in(agent))
                row = gateway.row(answer.trace_id)
                assert (row["outcome"], row["error_class"]) == ("error", "bad_request")
                if (path := COUNTS.get(kind)) is not None:
                    body = {name: value for name, value in agent.body().items() if name != "stream"}
                    counted = await ask(gateway.port, path, body, headers=[("x-api-key", agent.key or "")])
                    assert (counted.status, code_of(counted)) == (400, "invalid_reasoning_content"), counted.body
            assert sum(len(one.bodies) for one in upstreams.all) == asked

    run(main)
