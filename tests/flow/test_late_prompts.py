"""Upstreams that answer sooner than a long prompt is hashed: nobody waits for that, and no row is lost (SPEC 7.4, 7.6).

The gateway's hashing thread does nothing before the test lets it: whoever waited for it would wait for ever.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.client import Answer, Caller, exchange, request, run
from tests.fakes.gateway import Gateway, Row, until
from tests.fakes.held import GATE
from tests.fakes.load import PATH, call, new_name
from tests.fakes.witness import Witness

LONG_BYTES = (2_000_000, 3_000_000, 4_000_000, 2_500_000)


@pytest.fixture
def witness() -> Iterator[Witness]:
    with Witness() as process:
        yield process


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    return tmp_path / "gate"


@pytest.fixture
def gateway(witness: Witness, gate: Path, tmp_path: Path) -> Iterator[Gateway]:
    """With two providers at the witness: what one of them refuses is nothing to the other."""
    provider = {"type": "openai", "endpoint": witness.url, "key": "sk-upstream-secret", "retry": {"attempts": 1}}
    providers = {"witness": {**provider, "models": ["m"]}, "busy": {**provider, "models": ["busy-model"]}}
    config = {"providers": providers, "plugins": [{"use": "tests.fakes.held:HeldHashing", "required": True}]}
    with Gateway(config, tmp_path, env={GATE: str(gate)}) as gateway:
        try:
            yield gateway
        finally:
            gate.touch()


async def refused(gateway: Gateway, size: int) -> Answer:
    """A long request that the upstream refuses at once."""
    name = new_name()
    body: dict[str, Any] = {
        "model": "busy-model",
        "messages": [{"role": "user", "content": f"{name} {'x' * size}"}],
        "user": name,
        "play": {"status": 429},
    }
    answer = await exchange(gateway.port, request(PATH, body))
    assert answer.status == 429
    return answer


async def streamed(gateway: Gateway) -> Answer:
    async with await Caller.connect(gateway.port) as caller:
        answer = await caller.exchange(call(new_name(), events=20, every_s=0.005))
    assert answer.status == 200 and b"[DONE]" in answer.body
    return answer


def told(gateway: Gateway, answers: list[Answer]) -> list[Row]:
    """The rows of these requests, which have one attempt each."""
    rows = [gateway.row(answer.trace_id) for answer in answers]
    assert [len(row["attempts"]) for row in rows] == [1] * len(rows)
    return rows


def test_refused_long_prompts_keep_no_stream_waiting(gateway: Gateway, gate: Path) -> None:
    """While none of them can be hashed all others are served, and written down; then each of them has its row."""
    late: list[Answer] = []

    async def main() -> None:
        for size in LONG_BYTES:
            late.append(await refused(gateway, size))
            others = await asyncio.gather(*(streamed(gateway) for _ in range(8)))
            rows = await asyncio.to_thread(told, gateway, others)
            assert [row["outcome"] for row in rows] == ["ok"] * 8
            assert all(row["attempts"][0]["input_chain"] for row in rows)

    run(main)
    assert len(gateway.requests()) == 8 * len(LONG_BYTES) and gateway.in_flight() == 0
    gate.touch()
    for row in told(gateway, late):
        (attempt,) = row["attempts"]
        assert (row["outcome"], row["status"], attempt["outcome"], attempt["status"]) == ("error", 429, "error", 429)
        assert attempt["inputs"] == 1 and len(json.loads(attempt["input_chain"])) == 1
    assert len(gateway.attempts()) == 9 * len(LONG_BYTES)


def test_a_gateway_that_is_stopped_writes_late_rows_first(gateway: Gateway, gate: Path) -> None:
    """Their requests are long over when the drain begins; nothing of them is left open."""
    late: list[Answer] = []

    async def main() -> None:
        for size in LONG_BYTES[:2]:
            late.append(await refused(gateway, size))

    run(main)
    os.kill(gateway.pid, signal.SIGTERM)
    until(lambda: not gateway.workers, "no worker that listens")
    assert not gateway.requests()
    gate.touch()
    assert gateway.stop() == 0
    rows = told(gateway, late)
    assert [(row["outcome"], row["attempts"][0]["outcome"]) for row in rows] == [("error", "error")] * 2
    assert all(row["attempts"][0]["input_chain"] for row in rows)


def test_a_killed_worker_leaves_late_rows_interrupted(gateway: Gateway) -> None:
    """They are open in the journal until they are complete, so none is missing, and none stands there twice."""
    late: list[Answer] = []

    async def main() -> None:
        late.append(await refused(gateway, LONG_BYTES[0]))
        await streamed(gateway)

    async def again() -> None:
        await streamed(gateway)

    run(main)
    gateway.until_settled(1)
    os.kill(gateway.worker, signal.SIGKILL)
    (row,) = told(gateway, late)
    assert (row["outcome"], row["attempts"][0]["outcome"]) == ("interrupted", "interrupted")
    until(lambda: gateway.workers, "another worker")
    run(again)
    gateway.until_settled(3)
    assert len(gateway.attempts()) == len(gateway.requests()) == 3
