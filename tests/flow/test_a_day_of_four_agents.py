"""A day of four agents, through a real gateway, to upstreams that keep prompt caches of their own.

Every loss gets its cause and its price, as the upstream's own books have them, and what is ordinary gets none: hours of
turns with moved marks, parallel calls, titles, sub-agents and two calls in flight. Hours pass by `fakes.moved_clock`.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arbiter.config.snapshot import key_digest
from arbiter.ledger import losses
from tests.fakes.client import Answer, ask, run
from tests.fakes.gateway import ADMIN, Gateway, free_port, until
from tests.fakes.moved_clock import Clock
from tests.fakes.origin import Origin
from tests.fakes.prefix_cache import PrefixCache, Served

OPENCODE_KEY = "arb-opencode-of-the-tests"
SONNET, OPUS = "claude-sonnet-4-5", "claude-opus-4-1"
PRICES = {  # USD per million tokens, as millions of picodollars per token
    SONNET: {"input": 3, "cached_input": 0.3, "cache_write_5m": 3.75, "cache_write_1h": 6, "output": 15},
    OPUS: {"input": 15, "cached_input": 1.5, "cache_write_5m": 18.75, "cache_write_1h": 30, "output": 75},
    "gpt-5.2": {"input": 1.25, "cached_input": 0.125, "output": 10},
}


def text(size: int, about: str) -> str:
    return (f"{about}. " * (size // (len(about) + 2) + 1))[:size]


def tool(name: str, size: int = 900) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    return {"name": name, "description": text(size, f"what {name} does"), "input_schema": schema}


TOOLS = [tool(name) for name in ("read", "write", "list", "search", "run", "ask")]


class Day:
    """The gateway, its upstreams, the clock, and what the books must say."""

    def __init__(self, folder: Path) -> None:
        self.clock = Clock(folder / "clock")
        self.anthropic, self.openai, self.small = (PrefixCache(self.clock.now_ms) for _ in range(3))
        self.ports = [free_port() for _ in range(3)]
        self.expected: dict[str, tuple[str, str | None, int, int | None]] = {}
        self.calls = 0
        at = [f"http://127.0.0.1:{port}" for port in self.ports]
        config = {
            "clients": [{"name": "oc", "key_hash": f"sha256:{key_digest(OPENCODE_KEY)}", "agent": "opencode"}],
            "providers": {
                "anthropic": {
                    "type": "anthropic",
                    "endpoint": at[0],
                    "keys": [{"label": "team-a", "key": "key-a"}, {"label": "team-b", "key": "key-b"}],
                    "models": [SONNET, OPUS],
                },
                "openai": {"type": "openai", "endpoint": f"{at[1]}/v1", "key": "key-o", "models": ["gpt-5.2"]},
                "small": {
                    "type": "openai",
                    "endpoint": f"{at[2]}/v1",
                    "key": "key-s",
                    "models": ["qwen3-coder"],
                    "cache": {"floor": 256, "minimum": 1024},
                },
            },
            "models": [
                {
                    "model": f"{'openai' if model.startswith('gpt') else 'anthropic'}/{model}",
                    **{f"{kind}_usd_per_mtok": usd for kind, usd in usd_per_mtok.items()},
                }
                for model, usd_per_mtok in PRICES.items()
            ],
            "plugins": [self.clock.plugin],
        }
        self.gateway = Gateway(config, folder, env=self.clock.env)
        self.claude = Claude(self, "0199c2a4")
        bearer = [("authorization", f"Bearer {OPENCODE_KEY}"), ("x-session-id", "ses_17f3c2")]
        self.opencode = Chat(self, self.anthropic, SONNET, bearer)
        self.plain = Chat(self, self.openai, "gpt-5.2", [("user-agent", "plain")])
        self.little = Chat(self, self.small, "qwen3-coder", [("x-arbiter-session-id", "little")], scale=60)

    def served(self) -> list[Served]:
        """Every call that was answered, titles too."""
        return [*self.anthropic.calls, *self.openai.calls, *self.small.calls]

    def note(self, answer: Answer, before: Served | None, now: Served, lost: str | None, where: str | None) -> None:
        """One call was answered; `lost` is the cause that its row must name."""
        assert answer.status == 200, answer.body
        assert answer.trace_id is not None
        self.calls += 1
        if lost is None:
            return
        assert before is not None
        left = before.prompt if now.model.startswith(("gpt", "qwen")) else before.read + before.written
        tokens = min(left, now.prompt) - now.read
        self.expected[answer.trace_id] = (lost, where, tokens, _price(now, tokens))


def _price(now: Served, tokens: int) -> int | None:
    usd = PRICES.get(now.model)
    if usd is None:
        return None
    again = min(tokens, now.written)
    dear = usd.get("cache_write_1h" if now.written_1h else "cache_write_5m", 0)
    rest = (tokens - again) * (usd["input"] - usd["cached_input"])
    return round((again * (dear - usd["cached_input"]) + rest) * 1_000_000)


class Claude:
    """Claude Code: marks on its instructions and on the newest message, which move with every call."""

    def __init__(self, day: Day, session: str, *, agent: str | None = None, lasts: str = "5m") -> None:
        self.day = day
        self.headers = [("x-claude-code-session-id", session), ("x-api-key", "whatever")]
        if agent is not None:
            self.headers.append(("x-claude-code-agent-id", agent))
        self.model, self.thinking, self.lasts = SONNET, 4000, lasts
        self.choice = {"type": "auto"}
        self.system = [
            {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1.{len(session)}; cc_entrypoint=cli;"},
            {"type": "text", "text": text(6000, f"You are {agent or 'Claude Code'}")},
        ]
        self.tools = copy.deepcopy(TOOLS if agent is None else TOOLS[:4])
        self.messages: list[dict[str, Any]] = []
        self.served: Served | None = None
        self.turns = 0

    async def turn(
        self,
        lost: str | None = None,
        where: str | None = None,
        *,
        calls: int = 0,
        minutes: float = 0.4,
        marks: bool = True,
        headers: list[tuple[str, str]] | None = None,
        keep: bool = True,
        at_once: bool = False,
    ) -> None:
        """One call after so many minutes: the user's words, or the results of what the last answer called."""
        day = self.day
        day.clock.advance(minutes=minutes)
        self.turns += 1
        if not self.messages or self.messages[-1]["role"] == "assistant":
            self.messages.append({"role": "user", "content": [self._text(700)]})
        day.anthropic.tool_calls = calls
        count = len(day.anthropic.calls)
        answer = await ask(
            day.gateway.port, "/v1/messages?beta=true", self._body(marks), headers=self.headers + (headers or [])
        )
        now = day.anthropic.calls[-1 if not at_once else count]
        day.note(answer, self.served, now, lost, where)
        if keep:
            self.served = now
            self._hear(answer)

    async def work(self, turns: int) -> None:
        """Ordinary turns: parallel calls, their results, and words in between."""
        for number in range(turns):
            await self.turn(calls=(0, 1, 3, 2)[number % 4])

    def _text(self, size: int) -> dict[str, Any]:
        return {"type": "text", "text": text(size, f"turn {self.turns} of {self.headers[0][1]}")}

    def _body(self, marks: bool) -> dict[str, Any]:
        mark = {"cache_control": {"type": "ephemeral"} | ({"ttl": "1h"} if self.lasts == "1h" else {})}
        system, messages = copy.deepcopy(self.system), copy.deepcopy(self.messages)
        if marks:
            system[-1] |= mark
            messages[-1]["content"][-1] |= mark
        thinking = {"type": "enabled", "budget_tokens": self.thinking} if self.thinking else {"type": "disabled"}
        return {
            "model": self.model,
            "max_tokens": 32_000,
            "system": system,
            "tools": self.tools,
            "messages": messages,
            "thinking": thinking,
            "tool_choice": self.choice,
            "stream": True,
        }

    def _hear(self, answer: Answer) -> None:
        events = [json.loads(data) for _, data in answer.events]
        content = [event["content_block"] for event in events if event["type"] == "content_block_start"]
        for event in events:
            if event["type"] == "content_block_delta":
                block, delta = content[event["index"]], event["delta"]
                words = ("text", "thinking", "signature", "content")
                said = {name: value for name, value in delta.items() if name in words}
                block |= said or {"input": json.loads(delta["partial_json"])}
        self.messages.append({"role": "assistant", "content": content})
        results = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": text(900, f"result {block['id']}")}
            for block in content
            if block["type"] == "tool_use"
        ]
        if results:
            self.messages.append({"role": "user", "content": results})

    def title(self) -> Any:
        """The call that names the session: other instructions, no tools, nothing of the history."""
        prompt = {"role": "user", "content": [{"type": "text", "text": text(3000, "make a title of this")}]}
        system = [{"type": "text", "text": text(4000, "You write titles")}]
        body = {"model": self.model, "max_tokens": 100, "system": system, "messages": [prompt], "stream": True}
        return ask(self.day.gateway.port, "/v1/messages", body, headers=self.headers)


class Chat:
    """An agent that speaks Chat Completions, and marks nothing."""

    def __init__(self, day: Day, upstream: PrefixCache, model: str, headers: list[tuple[str, str]], scale: int = 1000):
        self.day, self.upstream, self.model, self.headers = day, upstream, model, headers
        self.tools = [{"type": "function", "function": _function(one)} for one in TOOLS] if scale == 1000 else []
        self.scale = scale
        self.messages = [{"role": "system", "content": text(6 * scale, f"You are an agent of {headers}")}]
        self.served: Served | None = None
        self.turns = 0

    async def turn(
        self, lost: str | None = None, where: str | None = None, *, calls: int = 0, minutes: float = 0.4
    ) -> None:
        self.day.clock.advance(minutes=minutes)
        self.turns += 1
        if self.messages[-1]["role"] != "tool":
            self.messages.append({"role": "user", "content": text(self.scale, f"turn {self.turns} of {self.headers}")})
        self.upstream.tool_calls = calls
        body: dict[str, Any] = {"model": self.model, "messages": self.messages}
        if self.tools:
            body["tools"] = self.tools
        answer = await ask(self.day.gateway.port, "/v1/chat/completions", body, headers=self.headers)
        now = self.upstream.calls[-1]
        self.day.note(answer, self.served, now, lost, where)
        self.served = now
        said = answer.json["choices"][0]["message"]
        self.messages.append({name: value for name, value in said.items() if value is not None})
        for call in said.get("tool_calls") or ():
            content = text(self.scale, f"result {call['id']}")
            self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})

    async def work(self, turns: int) -> None:
        for number in range(turns):
            await self.turn(calls=(0, 2, 1, 4)[number % 4])


def _function(one: dict[str, Any]) -> dict[str, Any]:
    return {"name": one["name"], "description": one["description"], "parameters": one["input_schema"]}


async def _morning(day: Day) -> None:
    """Ordinary hours: four agents, their titles and sub-agents, one beside the other."""
    claude, oc, plain, small = day.claude, day.opencode, day.plain, day.little
    first = asyncio.ensure_future(claude.title())
    await claude.turn(calls=1)
    assert (await first).status == 200
    for turn in range(12):
        await claude.turn(calls=turn % 4, minutes=0.5)
        await oc.turn(calls=(turn + 1) % 3, minutes=0.3)
        await plain.turn(calls=(turn + 2) % 3, minutes=0.3)
        if turn % 4 == 1:
            agent = Claude(day, "0199c2a4", agent=f"a{turn}")
            for _ in range(4):
                await agent.turn(calls=2, minutes=0.2)
        if turn % 4 == 2:
            assert (await claude.title()).status == 200
    # Two calls of one session in flight: what one writes, the other cannot have read.
    twin = copy.copy(claude)
    twin.messages = [*claude.messages, {"role": "user", "content": [claude._text(5000)]}]
    day.anthropic.hold = asyncio.Event()
    both = []
    for one in (claude, twin):
        count = len(day.anthropic.calls)
        both.append(asyncio.ensure_future(one.turn(keep=one is claude, at_once=True, minutes=0)))
        await asyncio.to_thread(until, lambda count=count: len(day.anthropic.calls) > count, "a call in flight")
    day.anthropic.hold.set()
    await asyncio.gather(*both)
    day.anthropic.hold = None
    await claude.work(4)
    assert small.turns == 0


async def _claude(day: Day) -> None:
    """One thing after another happens to one conversation, with ordinary turns between."""
    claude = day.claude
    # Something in the client rewrites turn 3.
    claude.messages[2]["content"][0]["content"] += " (edited)"
    await claude.turn("drift", "messages 1-16")
    await claude.work(4)
    # The provider forgets.
    day.anthropic.forget()
    await claude.turn("miss")
    await claude.work(3)
    # A server with more tools is connected, then the instructions change, then how hard it thinks.
    claude.tools.append(tool("browse"))
    await claude.turn("tools", "tools")
    await claude.work(2)
    claude.system[1]["text"] += " It is Tuesday."
    await claude.turn("system", "system")
    await claude.work(2)
    claude.thinking = 16_000
    await claude.turn("effort")
    await claude.work(2)
    # From here on it may call one tool at a time.
    claude.choice = {"type": "auto", "disable_parallel_tool_use": True}
    await claude.turn("settings")
    await claude.work(2)
    # Another model for one turn; the first one's cache is still warm afterwards.
    claude.model = OPUS
    await claude.turn("model")
    claude.model = SONNET
    await claude.turn()
    await claude.work(2)
    # Its key is told to slow down, and the other key has a cache of its own.
    day.anthropic.refused.add(day.anthropic.calls[-1].key)
    await claude.turn("account")
    day.anthropic.refused.clear()
    assert day.gateway.get("/admin/cooldowns/clear", method="POST", headers=ADMIN).status == 200
    await claude.work(3)
    # A request without marks; the next one finds nothing that the call before left.
    await claude.turn("marks", marks=False)
    await claude.turn()
    # Twelve parallel calls: more blocks than a mark is looked back from.
    await claude.turn(calls=12)
    await claude.turn("marks")
    await claude.work(2)
    # A turn of several calls with thoughts in it; they are gone once the user speaks again.
    day.anthropic.thinks = True
    for calls in (2, 3, 1, 0):
        await claude.turn(calls=calls)
    day.anthropic.thinks = False
    await claude.turn("thinking")
    await claude.work(3)
    # Lunch, shorter than the cache lasts, and longer.
    await claude.turn(minutes=4.9)
    await claude.turn("idle", minutes=6)
    await claude.work(24)
    # Back to a message of a while ago: what was cached there has gone meanwhile.
    del claude.messages[-36:]
    while claude.messages[-1]["role"] != "assistant" or len(claude.messages[-1]["content"]) > 1:
        del claude.messages[-1]
    await claude.turn("rewind")
    await claude.work(4)
    # It compacts its context, and says so.
    await claude.turn(headers=[("x-claude-code-request-class", "compaction"), ("x-claude-code-compaction", "auto")])
    summary = {"type": "text", "text": text(9000, "what happened so far")}
    claude.messages = [{"role": "user", "content": [summary]}]
    await claude.turn("compaction", headers=[("x-claude-code-context-compacted", "1")])
    await claude.work(8)
    # The provider compacts it: the history goes on, and most of it is no part of the prompt any more.
    day.anthropic.compacts = True
    await claude.turn()
    day.anthropic.compacts = False
    await claude.turn("compaction")
    await claude.work(4)
    # Marks that last an hour.
    claude.lasts = "1h"
    await claude.turn(minutes=1)
    await claude.turn(minutes=50)
    await claude.turn("idle", minutes=61)
    await claude.work(2)


async def _others(day: Day) -> None:
    oc, plain, small = day.opencode, day.plain, day.little
    # Hours went by for the two others. OpenAI's format to Anthropic: the gateway sets the marks.
    await oc.turn("idle")
    await oc.work(4)
    day.anthropic.forget()
    await oc.turn("miss")
    await oc.work(3)
    oc.messages[3:-2] = [{"role": "user", "content": text(3000, "what happened so far")}]
    del oc.messages[1:3]
    await oc.turn("compaction")
    await oc.work(3)
    # An agent that names no session, at a provider that caches by itself and reports no writes.
    await plain.turn("idle")
    day.openai.forget()
    await plain.turn("cold_predecessor")
    await plain.work(4)
    day.openai.forget()
    await plain.turn("miss")
    await plain.work(4)
    at = next(at for at in range(8, len(plain.messages)) if plain.messages[at]["role"] == "user")
    plain.messages[at]["content"] += " (edited)"
    await plain.turn("drift", "messages 1-16", minutes=0.2)
    await plain.work(4)
    # Prompts too short for their model, until they are long enough.
    await small.turn()
    while len(json.dumps(small.messages)) < 900:
        await small.turn("below_minimum")
    await small.turn("below_minimum")
    await small.work(4)


def _compare(day: Day) -> None:
    """The books against what happened."""
    rows = day.gateway.until_settled(len(day.served()))
    traces = {row["id"]: row["trace_id"] for row in rows}
    columns = ("cache_verdict", "cache_lost_in", "cache_lost_tokens", "cache_lost_pd")
    found = {
        traces[row["request_id"]]: tuple(row[column] for column in columns)
        for row in day.gateway.attempts()
        if row["cache_verdict"] is not None
    }
    assert [one for one in found.items() if one not in day.expected.items()] == []
    assert [one for one in day.expected.items() if one not in found.items()] == []
    causes = {cause for cause, *_ in found.values()}
    # No guardrail edits yet, the vendors of this day clear nothing, and every prompt is known.
    assert set(losses.CAUSES) - causes == {"rewrite", "cleared", "undetermined"}
    assert day.calls > 5 * len(found)


def _report(day: Day) -> None:
    """The administration and the metrics add up what the rows say."""
    lost = sum(tokens for _, _, tokens, _ in day.expected.values())
    until(lambda: day.gateway.metric("arbiter_cache_loss_tokens_total") == lost, "the lost tokens in /metrics")
    found = day.gateway.get("/admin/api/cache?limit=500", headers=ADMIN).json
    assert sum(cause["lost_tokens"] for cause in found["causes"]) == lost
    assert {one["trace_id"]: one["lost_tokens"] for one in found["largest"]} == {
        trace_id: tokens for trace_id, (_, _, tokens, _) in day.expected.items()
    }
    served = day.served()
    read, sent = sum(one.read for one in served), sum(one.prompt for one in served)
    assert found["hit_rate"] == pytest.approx(read / sent)


@pytest.fixture
def day(tmp_path: Path) -> Iterator[Day]:
    one = Day(tmp_path)
    with one.gateway:
        yield one


def test_every_loss_has_its_cause_and_its_price_and_there_is_no_false_alarm(day):
    """The rows name the losses that were made, and no other, with the tokens that the upstream counted."""

    async def main() -> None:
        upstreams = zip((day.anthropic, day.openai, day.small), day.ports, strict=True)
        async with contextlib.AsyncExitStack() as stack:
            for upstream, port in upstreams:
                await stack.enter_async_context(Origin(upstream.script, port=port))
            await _morning(day)
            await _claude(day)
            await _others(day)

    run(main)
    _compare(day)
    _report(day)
