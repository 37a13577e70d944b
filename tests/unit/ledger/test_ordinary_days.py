"""Days of agents at random. On ordinary ones no row says that anything was lost; on others each loss is laid to whom it
is due: to a provider that forgets, or to a client that rewrites what it said.

Agents work at random: marks in other places, any number of parallel calls, titles, sub-agents, side questions, requests
asked twice, two in flight, two runs of one task, rows out of order. The upstream's cache is `fakes.prefix_cache`.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import os
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from arbiter.config.load import demo_snapshot
from arbiter.config.snapshot import SessionAffinity
from arbiter.ledger.comparison import Comparison
from arbiter.ledger.losses import ALARMS
from arbiter.ledger.prefix import Prefixes
from arbiter.ledger.recorder import Batch
from arbiter.ledger.row import AttemptRow
from arbiter.ledger.sqlite import SqliteStore
from arbiter.ledger.store import Position
from arbiter.sessions.affinity import Affinity
from tests.fakes.histories import BEGAN_MS, request_of
from tests.fakes.prefix_cache import PrefixCache
from tests.unit.sessions.captures import opened

SEEDS = int(os.environ.get("ARBITER_DAYS", "4"))
"""ARBITER_DAYS=500 makes an evening's search."""
Body = dict[str, Any]


class Days:
    """A clock, the upstreams, and the rows of every call."""

    def __init__(self, seed: int, forgets: float, rewrites: float) -> None:
        self.luck = random.Random(seed)
        self.forgets, self.rewrites = forgets, rewrites  # how often, of all turns
        self.now_ms = BEGAN_MS
        self.upstream = PrefixCache(lambda: self.now_ms)
        self.loop = asyncio.new_event_loop()
        self.prefixes, self.affinity = Prefixes(self.loop), Affinity(SessionAffinity())
        self.rows: list[AttemptRow] = []
        self.numbers = itertools.count()

    def text(self, most: int) -> str:
        return f"{next(self.numbers)} " * self.luck.randint(1, most // 5)

    def call(self, body: Body, session: str | None, *, took_ms: int = 0) -> AttemptRow:
        """One call to the upstream, and its row."""
        is_chat = "system" not in body
        served = self.upstream.serve("key", body, is_chat=is_chat)
        members = opened(body)
        wire = "openai-chat" if is_chat else "anthropic-messages"
        slot = self.affinity.slot(wire, members, {}, session, "ci")
        prefix = self.prefixes.reading(members).read()
        assert prefix is not None and slot is not None
        number = next(self.numbers)
        row = AttemptRow(
            id=f"{number:08d}",
            request_id=f"r{number:08d}",
            trace_id=f"t{number}",
            number=1,
            provider="upstream",
            endpoint=f"{wire}:http://127.0.0.1:9",
            model_asked=served.model,
            format_out=wire,
            started_ms=self.now_ms,
            finished_ms=self.now_ms + (took_ms or self.luck.randint(200, 9000)),
            outcome="ok",
            input_tokens=served.prompt - served.read - served.written,
            cached_tokens=served.read,
            cache_write_tokens=None if is_chat else served.written,
            output_tokens=20,
            usage_source="provider",
            client="ci",
            session=session,
            conversation=slot.key.hex(),
        )
        for name in ("head_hash", "system_hash", "tools_hash", "inputs", "input_chain", "cache_marks", "effort"):
            setattr(row, name, getattr(prefix, name))
        self.rows.append(row)
        self.now_ms = max(self.now_ms, row.finished_ms or 0)
        return row


class Agent:
    """One conversation. Its next request is made of what was said so far; `answered` adds the model's part."""

    def __init__(self, days: Days, session: str | None, *, is_chat: bool, task: str) -> None:
        luck = days.luck
        self.days, self.session, self.is_chat = days, session, is_chat
        self.ttl = luck.choice(["5m", "5m", "1h"])
        self.marked = luck.choice([1, 1, 2])  # of the newest user messages
        self.system = f"You work on {task}. " * 300
        self.tools = [{"name": f"tool{n}", "description": "d" * 700, "input_schema": {}} for n in range(9)]
        self.spoke_ms = 0
        self.row: AttemptRow
        self.messages: list[Body] = [self._user(f"The task is {task}. " * 60)]

    def _user(self, text: str) -> Body:
        return {"role": "user", "content": text if self.is_chat else [{"type": "text", "text": text}]}

    def body(self) -> Body:
        if self.is_chat:
            tools = [{"type": "function", "function": tool} for tool in self.tools]
            return {
                "model": "gpt-5.2",
                "tools": tools,
                "messages": [{"role": "system", "content": self.system}, *self.messages],
            }
        mark = {"cache_control": {"type": "ephemeral"} | ({"ttl": "1h"} if self.ttl == "1h" else {})}
        messages = copy.deepcopy(self.messages)
        for message in [one for one in messages if one["role"] == "user"][-self.marked :]:
            message["content"][-1] |= mark
        system = [{"type": "text", "text": self.system} | mark]
        return {"model": "claude-sonnet-4-6", "tools": self.tools, "system": system, "messages": messages}

    def turn(self) -> None:
        self.spoke_ms = self.days.now_ms
        days, luck = self.days, self.days.luck
        if luck.random() < days.forgets:
            days.upstream.forget()
        if luck.random() < days.rewrites:
            said = luck.choice([one for one in self.messages if one["role"] == "user"][:3])
            said["content"] = copy.deepcopy(self._user(days.text(2000))["content"])
        self.row = days.call(self.body(), self.session)
        if luck.random() < 0.06:  # asked twice
            self.row = days.call(self.body(), self.session)
        if luck.random() < 0.08:  # a side question, with all of the history
            side = copy.copy(self)
            side.messages = [
                *self.messages,
                {"role": "assistant", "content": self._said("Well.")},
                self._user(days.text(2000)),
            ]
            days.call(side.body(), self.session)
        calls = luck.choice([0, 1, 1, 2, 3, 5, 9])
        self._hear(calls)

    def _said(self, text: str) -> Any:
        return text if self.is_chat else [{"type": "text", "text": text}]

    def _hear(self, calls: int) -> None:
        days, ids = self.days, [f"c{next(self.days.numbers)}" for _ in range(calls)]
        self.row.tool_names = ["tool1"] * calls or None
        said = self._said(days.text(900))
        if self.is_chat:
            functions = [
                {"id": one, "type": "function", "function": {"name": "tool1", "arguments": "{}"}} for one in ids
            ]
            self.messages.append({"role": "assistant", "content": said} | ({"tool_calls": functions} if ids else {}))
            self.messages += [{"role": "tool", "tool_call_id": one, "content": days.text(1500)} for one in ids]
        else:
            used = [{"type": "tool_use", "id": one, "name": "tool1", "input": {}} for one in ids]
            self.messages.append({"role": "assistant", "content": [*said, *used]})
            if ids:
                results = [{"type": "tool_result", "tool_use_id": one, "content": days.text(1500)} for one in ids]
                self.messages.append({"role": "user", "content": results})
        if not ids:
            self.messages.append(self._user(days.text(1500)))


def title(days: Days, session: str) -> None:
    """The same session, other instructions, no tools, and sometimes a good deal of text."""
    system = [{"type": "text", "text": "You write titles. " * 80, "cache_control": {"type": "ephemeral"}}]
    said = {"role": "user", "content": [{"type": "text", "text": days.text(30_000)}]}
    days.call({"model": "claude-sonnet-4-6", "system": system, "messages": [said]}, session)


def twins(days: Days, agent: Agent) -> None:
    """Two calls in flight at once, of one conversation."""
    other = copy.copy(agent)
    other.messages = [*agent.messages[:-1], agent._user(days.text(9000))]
    began = days.now_ms
    agent.row = days.call(agent.body(), agent.session, took_ms=4000)
    days.now_ms = began + 500
    days.call(other.body(), agent.session, took_ms=9000)
    agent._hear(days.luck.randint(0, 3))


def a_day(seed: int, forgets: float = 0, rewrites: float = 0) -> Iterator[AttemptRow]:
    days = Days(seed, forgets, rewrites)
    luck = days.luck
    agents = [Agent(days, f"s{n}", is_chat=n % 2 == 1, task=f"part {n}") for n in range(3)]
    agents += [Agent(days, None, is_chat=n == 1, task="the one that two runs share") for n in (0, 1, 1)]
    for _ in range(70):
        # Everybody's cache lasts five minutes at least, and there are six of them.
        agent = luck.choice(agents)
        days.now_ms += luck.randint(1, 12_000)
        if luck.random() < 0.07 and agent.spoke_ms and not agent.is_chat:
            agent.spoke_ms = days.now_ms
            twins(days, agent)
        else:
            agent.turn()
        if luck.random() < 0.05 and agent.session is not None:
            title(days, agent.session)
        if luck.random() < 0.04:
            helper = Agent(days, f"s0:{next(days.numbers)}", is_chat=False, task="something small")
            for _ in range(luck.randint(1, 4)):
                helper.turn()
        # Nobody is away for longer than a cache lasts.
        for other in agents:
            if other.spoke_ms and days.now_ms - other.spoke_ms > 200_000:
                other.turn()
    days.loop.run_until_complete(days.prefixes.aclose())
    days.loop.close()
    yield from days.rows


def judged(rows: Iterable[AttemptRow], luck: random.Random, folder: Path) -> list[AttemptRow]:
    """The rows once the stage has seen them, in batches of any size and a little out of order."""
    found = sorted(rows, key=lambda row: (row.finished_ms or 0, row.id))
    store, snapshot = SqliteStore(folder / "arbiter.db"), demo_snapshot()
    stage = Comparison(lambda: snapshot, lambda row: None)
    position = 0
    while position < len(found):
        batch = found[position : position + luck.randint(1, 40)]
        position += len(batch)
        luck.shuffle(batch)
        requests = [request_of(row) for row in batch]
        stage.take(Batch(requests, batch), store)
        store.write([*requests, *batch], Position("j", position))
    store.close()
    return found


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_is_said_of_a_day_on_which_nothing_was_lost(seed, tmp_path):
    """No alarm at all, and where the session was told, no reason either."""
    rows = judged(a_day(seed), random.Random(seed), tmp_path)
    said = [(row.id, row.session, row.cache_verdict) for row in rows if row.cache_verdict is not None]
    assert [one for one in said if one[2] in ALARMS or one[1] is not None] == []
    assert len(rows) > 70


def causes(folder: Path, **how: float) -> Counter[str | None]:
    """How often each cause was named, over all days."""
    found: Counter[str | None] = Counter()
    for seed in range(SEEDS):
        (folder / str(seed)).mkdir()
        found.update(row.cache_verdict for row in judged(a_day(seed, **how), random.Random(seed), folder / str(seed)))
    return found


def test_what_the_provider_forgets_is_not_laid_to_the_client(tmp_path):
    """It is a miss, or what happened beside it: a side question, a task that two models work on, a cold beginning."""
    found = causes(tmp_path, forgets=0.05)
    assert found["miss"] > SEEDS
    assert set(found) <= {None, "miss", "rewind", "model", "cold_predecessor"}


def test_what_the_client_rewrites_is_not_laid_to_the_provider(tmp_path):
    """Whoever changes what was said is named for it, also where nobody told the session."""
    found = causes(tmp_path, rewrites=0.05)
    assert found["drift"] >= SEEDS
    assert set(found) <= {None, "drift", "rewind", "model"}
