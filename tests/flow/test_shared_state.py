"""What one worker learns, every worker knows: cooldowns, pins and limits over four of them, and under kill -9."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lmdb
import pytest

from tests.fakes.client import Answer, Caller, Ending, request, run
from tests.fakes.gateway import ADMIN, BOUND_S, Gateway, connections, free_port, until
from tests.fakes.load import PATH, new_name
from tests.fakes.origin import Origin, Peer, Request
from tests.fakes.witness import Witness

WORKERS = 4
KILLING_S = float(os.environ.get("ARBITER_KILLING_S", "10"))
"""How long workers are killed, one a second; by hand, for longer."""


@pytest.fixture
def witnesses() -> Iterator[tuple[Witness, Witness]]:
    with Witness() as one, Witness() as two:
        yield one, two


def whole_answer(text: str) -> bytes:
    message = {"role": "assistant", "content": text}
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "served",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    }
    return reply(200, body)


def reply(status: int, body: dict[str, Any], *headers: str) -> bytes:
    data = json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} x", "content-type: application/json", f"content-length: {len(data)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + data


def group(ones: Witness, twos: Witness, **more: Any) -> dict[str, Any]:
    """Two providers, and `talk` for both of them."""
    return {
        "providers": {
            "one": {"type": "openai", "endpoint": ones.url, "key": "sk-secret-of-one", "models": ["m"], **more},
            "two": {"type": "openai", "endpoint": twos.url, "key": "sk-secret-of-two", "models": ["m"], **more},
        },
        "aliases": {"talk": {"group": ["one/m", "two/m"], "select": "random"}},
    }


def turn(conversation: str, *, model: str = "talk", stream: bool = False, **play: Any) -> bytes:
    """A request of that conversation, with a name of its own."""
    name = new_name()
    messages = [{"role": "user", "content": f"This is conversation {conversation}."}]
    body = {"model": model, "messages": messages, "stream": stream, "user": name, "play": play}
    return request(PATH, body, headers=[("x-trace-id", name)])


def home(gateway: Gateway, caller: Caller, workers: Sequence[int]) -> int:
    """The worker that a caller is connected to."""
    port = caller.writer.get_extra_info("sockname")[1]
    (pid,) = [pid for pid in workers if connections(pid, port)]
    return pid


async def one_caller_each(gateway: Gateway, stack: AsyncExitStack) -> list[Caller]:
    """A connection to every worker; the kernel spreads them by their ports."""
    workers = until(lambda: len(found := gateway.workers) == WORKERS and found, "every worker")
    found: dict[int, Caller] = {}
    async with asyncio.timeout(BOUND_S):
        while len(found) < WORKERS:
            caller = await stack.enter_async_context(await Caller.connect(gateway.port))
            # Granian takes a connection up some time after the kernel did.
            await caller.send(request("/health", method="GET"))
            await caller.whole()
            found.setdefault(home(gateway, caller, workers), caller)
    return list(found.values())


async def asked(caller: Caller, what: bytes) -> Answer:
    await caller.send(what)
    await caller.head()
    return await caller.whole()


def test_a_cooldown_that_one_worker_learns_is_honoured_by_all_at_once(tmp_path: Path) -> None:
    """SPEC 5.8: no other worker contacts the account again before its time, and the client learns how long that is."""
    port = free_port()
    config = {
        "providers": {
            "up": {"type": "openai", "endpoint": f"http://127.0.0.1:{port}/v1", "key": "sk-secret", "models": ["m"]}
        }
    }

    async def main() -> None:
        limited = reply(429, {"error": {"message": "slow down", "type": "rate_limit_error"}}, "retry-after: 3000")
        async with Origin(limited, port=port) as origin, AsyncExitStack() as stack:
            callers = await one_caller_each(gateway, stack)
            first = await asked(callers[0], turn("a", model="m"))
            assert first.status == 429 and first.header("x-arbiter-attempts") == "1"
            began = time.monotonic()
            answers = await asyncio.gather(*(asked(caller, turn("a", model="m")) for caller in callers))
            took_s = time.monotonic() - began
            print(f"{WORKERS} workers honoured a cooldown within {took_s * 1000:.1f} ms of the answer that told it")
            for answer in answers:
                assert answer.status == 429 and answer.header("x-arbiter-attempts") == "0"
                assert answer.header("x-arbiter-error-source") == "gateway"
                assert 2900 <= int(answer.header("retry-after") or 0) <= 3000
            assert len(origin.requests) == 1
            cleared = gateway.get("/admin/cooldowns/clear", method="POST", headers=ADMIN)
            assert cleared.json == {"cleared": 1}
            await asyncio.gather(*(asked(caller, turn("a", model="m")) for caller in callers[:1]))
            assert len(origin.requests) == 2

    with Gateway(config, tmp_path, workers=WORKERS) as gateway:
        run(main)
        row = until(lambda: [row for row in gateway.requests() if row["attempts"] == 0], "the refused requests' rows")[
            0
        ]
        assert (row["status"], row["error_class"], row["outcome"]) == (429, "rate_limited_transient", "error")


def test_a_pin_that_one_worker_writes_serves_the_next_turn_on_any(
    witnesses: tuple[Witness, Witness], tmp_path: Path
) -> None:
    """SPEC 5.8: forty conversations, each turn on another worker, and none of them ever changes its provider."""

    async def main() -> None:
        async with AsyncExitStack() as stack:
            callers = await one_caller_each(gateway, stack)
            served: dict[str, list[str | None]] = defaultdict(list)
            for number in range(2 * WORKERS):
                for conversation in map(str, range(40)):
                    caller = callers[(int(conversation) + number) % WORKERS]
                    answer = await asked(caller, turn(conversation))
                    assert answer.status == 200
                    served[conversation].append(answer.header("x-arbiter-provider"))
            assert all(len(set(providers)) == 1 for providers in served.values()), served
            assert len({providers[0] for providers in served.values()}) == 2, "all went one way: that proves nothing"

    with Gateway(group(*witnesses), tmp_path, workers=WORKERS) as gateway:
        run(main)
        rows = gateway.until_settled(2 * WORKERS * 40)
        assert Counter(row["affinity"] for row in rows) == {"new": 40, "kept": (2 * WORKERS - 1) * 40}
        assert len({row["affinity_key"] for row in rows}) == 40
        state = gateway.get("/admin/api/state", headers=ADMIN).json
        assert state["pins"] == 40 and state["sharing"] == {"healthy": True, "reason": ""}


def test_a_pin_follows_a_fallback_on_every_worker(witnesses: tuple[Witness, Witness], tmp_path: Path) -> None:
    """SPEC 5.7: what served becomes the pin; the next turn goes there at once, wherever it comes in."""
    one, two = witnesses
    config = group(one, two, retry={"attempts": 1, "before_fallback": 1, "base": "10ms"})
    config["aliases"]["talk"]["select"] = "ordered"

    async def main() -> None:
        async with AsyncExitStack() as stack:
            callers = await one_caller_each(gateway, stack)
            assert (await asked(callers[0], turn("a"))).header("x-arbiter-provider") == "one"
            one.__exit__(None, None, None)
            moved = await asked(callers[1], turn("a"))
            assert moved.header("x-arbiter-provider") == "two" and moved.header("x-arbiter-attempts") == "2"
            for caller in callers:
                answer = await asked(caller, turn("a"))
                assert answer.header("x-arbiter-provider") == "two" and answer.header("x-arbiter-attempts") == "1"
            one.__enter__()

    with Gateway(config, tmp_path, workers=WORKERS) as gateway:
        run(main)
        rows = gateway.until_settled(2 + WORKERS)
        assert Counter(row["affinity"] for row in rows) == {"new": 1, "moved": 1, "kept": WORKERS}


def test_a_providers_limit_counts_the_requests_of_all_workers(tmp_path: Path) -> None:
    """Ten a day are ten, whoever they came through; the eleventh is told to come back."""
    port = free_port()
    provider = {
        "type": "openai",
        "endpoint": f"http://127.0.0.1:{port}/v1",
        "key": "sk-secret",
        "models": ["m"],
        "limits": {"requests_per_day": 10},
    }

    async def main() -> None:
        async with Origin(whole_answer("hello"), port=port) as origin, AsyncExitStack() as stack:
            callers = await one_caller_each(gateway, stack)
            answers = []
            for _ in range(5):
                answers += await asyncio.gather(*(asked(caller, turn("a", model="m")) for caller in callers))
            statuses = Counter(answer.status for answer in answers)
            assert statuses == {200: 10, 429: 10} and len(origin.requests) == 10
            refused = next(answer for answer in answers if answer.status == 429)
            assert int(refused.header("retry-after") or 0) > 0 and b"limit" in refused.body

    with Gateway({"providers": {"up": provider}}, tmp_path, workers=WORKERS) as gateway:
        run(main)


@dataclass
class Try:
    """One request under the killer: which worker had it, and how it ended."""

    conversation: str
    worker: int | None
    answer: Answer | None

    @property
    def is_whole(self) -> bool:
        return self.answer is not None and self.answer.status == 200 and self.answer.ending is Ending.CLEAN


def test_killing_a_worker_every_second_costs_nobody_else_anything(tmp_path: Path) -> None:
    """No request that another worker had fails, every conversation stays where it was, the state is whole, and every
    request that reached an upstream has its attempt."""
    seen: list[tuple[str, str]] = []  # (request, key) at the upstreams
    ports = free_port(), free_port()

    async def script(peer: Peer, asked_for: Request) -> None:
        body = json.loads(asked_for.body)
        key = asked_for.header("authorization") or ""
        seen.append((body["user"], key))
        await asyncio.sleep(0.01)
        if key.endswith("limited"):
            error = {"error": {"message": "slow down", "type": "rate_limit_error"}}
            await peer.send(reply(429, error, "retry-after: 1"))
        else:
            await peer.send(whole_answer("hello"))

    provider = {"type": "openai", "models": ["m"], "retry": {"base": "10ms"}}
    pool = [{"label": "good", "key": "sk-good"}, {"label": "bad", "key": "sk-limited"}]
    config = {
        "providers": {
            name: {**provider, "endpoint": f"http://127.0.0.1:{port}/v1", "keys": pool}
            for name, port in zip(("one", "two"), ports, strict=True)
        },
        "aliases": {"talk": {"group": ["one/m", "two/m"], "select": "random"}},
    }
    tries: list[Try] = []
    killed: set[int] = set()

    async def talk(number: int) -> None:
        while not is_over:
            conversation = f"{number}-{random.randrange(5)}"
            worker: int | None = None
            answer: Answer | None = None
            with suppress(OSError, EOFError):
                async with await Caller.connect(gateway.port) as caller:
                    with suppress(ValueError):
                        worker = home(gateway, caller, workers)
                    await caller.send(turn(conversation))
                    await caller.head()
                    answer = await caller.whole()
            tries.append(Try(conversation, worker, answer))
            await asyncio.sleep(0.01)

    async def look() -> None:
        nonlocal workers
        while not is_over:
            workers = await asyncio.to_thread(lambda: gateway.workers)
            await asyncio.sleep(0.1)

    def is_enough() -> bool:
        """To prove something, also on a slow machine."""
        return len(killed) >= KILLING_S / 2 and sum(one.is_whole for one in tries) > 5 * KILLING_S

    async def main() -> None:
        nonlocal is_over
        async with Origin(script, port=ports[0]), Origin(script, port=ports[1]):
            looking = asyncio.create_task(look())
            talking = [asyncio.create_task(talk(number)) for number in range(6)]
            end = time.monotonic() + KILLING_S
            while time.monotonic() < end or not is_enough():
                await asyncio.sleep(1)
                if workers:
                    victim = random.choice(workers)
                    killed.add(victim)
                    with suppress(ProcessLookupError):  # it was killed a moment ago, and looked up before that
                        os.kill(victim, signal.SIGKILL)
            await asyncio.sleep(1)
            is_over = True
            await asyncio.gather(looking, *talking)

    is_over = False
    workers: list[int] = []
    with Gateway(config, tmp_path, workers=WORKERS) as gateway:
        # Longer than `run` allows: the killing may go on for a minute.
        asyncio.run(asyncio.wait_for(main(), KILLING_S + 90))
        whole = [one for one in tries if one.is_whole]
        broken = [one for one in tries if not one.is_whole]
        print(f"{len(killed)} workers killed in {KILLING_S:.0f} s; {len(whole)} answers whole, {len(broken)} cut off")
        # A worker that nobody could name was gone before it could be looked up.
        strangers = [one for one in broken if one.worker is not None and one.worker not in killed]
        assert not strangers, strangers[:3]

        served: dict[str, set[str | None]] = defaultdict(set)
        for one in whole:
            assert one.answer is not None
            served[one.conversation].add(one.answer.header("x-arbiter-provider"))
        assert all(len(providers) == 1 for providers in served.values()), served

        _check_accounts(gateway, seen)
        state = gateway.get("/admin/api/state", headers=ADMIN).json
        assert state["sharing"] == {"healthy": True, "reason": ""} and state["pins"] >= len(served)
        gateway.stop()
        assert _entries(gateway.data / "state" / "state") > len(served)


def _entries(path: Path) -> int:
    """How many entries an LMDB environment has, every one of them read. Errors: lmdb's, for a damaged one."""
    with lmdb.open(str(path), readonly=True, max_dbs=16) as environment:
        with environment.begin() as txn:
            names = [bytes(name) for name, _ in txn.cursor()]
        found = 0
        for name in names:
            database = environment.open_db(name, create=False)
            with environment.begin(db=database) as txn:
                count = sum(1 for _ in txn.cursor())
                assert count == txn.stat(database)["entries"]
                found += count
        return found


def _check_accounts(gateway: Gateway, seen: list[tuple[str, str]]) -> None:
    """Every request of an upstream has one attempt on that key, and only what a killed worker had open was not sent."""
    sql = """SELECT r.client_trace_id AS name, a.account, a.outcome FROM attempts a
             JOIN requests r ON r.id = a.request_id"""
    wanted = Counter((name, "bad" if key.endswith("limited") else "good") for name, key in seen)

    def accounted() -> bool:
        found = Counter((row["name"], row["account"]) for row in gateway.select(sql))
        return not wanted - found

    until(accounted, "an attempt for every request that an upstream saw", 30)
    surplus = Counter((row["name"], row["account"]) for row in gateway.select(sql)) - wanted
    interrupted = {(row["name"], row["account"]) for row in gateway.select(sql) if row["outcome"] == "interrupted"}
    assert set(surplus) <= interrupted, set(surplus) - interrupted
