"""How long the loop stands still while long requests are translated, or are read for what binds them.

    python -m bench.micro.lane_stall [--rounds N] [--switch-ms N]

So many requests at once are made ready for an upstream of another format, and what of a conversation is bound to
whoever made it is read, on the loop and in the thread beside it. Meanwhile something else wants its turn on the loop:
the longest that it waited, in milliseconds, is the median of all rounds, with the worst behind it.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import gc
import json
import random
import sys
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

from arbiter.app import linux
from arbiter.attempt.aside import Aside
from arbiter.attempt.conversation import Conversation
from arbiter.attempt.made_lanes import MadeLanes
from arbiter.config.snapshot import Account
from arbiter.state.memory import Memory
from arbiter.wire import bound, native
from bench.micro.bench_translate import CODE, chat_body, messages_body
from tests.fakes.asks import ask, rung

AT_ONCE = (1, 4)
MEGABYTES = (1, 4)
WAYS = {
    "Messages on Chat": ("anthropic-messages", "openai-chat", messages_body),
    "Chat on Messages": ("openai-chat", "anthropic-messages", chat_body),
}


def thoughtful_body(size: int) -> bytes:
    """A Messages conversation in which each call follows a signed thought."""
    turns: list[Any] = [{"role": "user", "content": "Why does this test fail?"}]
    draw = random.Random(size)
    for n in range(size // 4000):
        id, signature = f"toolu_{n:020d}", base64.b64encode(draw.randbytes(600)).decode()
        thought = {"type": "thinking", "thinking": "Let me think. " * 20, "signature": signature}
        call = {"type": "tool_use", "id": id, "name": "read", "input": {"path": f"/src/{n}.py"}}
        turns.append({"role": "assistant", "content": [thought, {"type": "text", "text": "Let me look."}, call]})
        result = {"type": "tool_result", "tool_use_id": id, "content": [{"type": "text", "text": CODE * 28}]}
        turns.append({"role": "user", "content": [result]})
    return json.dumps({"model": "asked", "messages": turns}, ensure_ascii=False).encode()


async def stall(works: list[Callable[[], Any]], aside: Aside | None) -> tuple[float, float]:
    """The longest wait for a turn, and how long it took in all, in seconds."""
    longest, began = 0.0, time.perf_counter()
    last = began
    tasks = [asyncio.ensure_future(_done(work, aside)) for work in works]
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    for task in tasks:
        task.result()
    return longest, time.perf_counter() - began


async def _done(work: Callable[[], Any], aside: Aside | None) -> None:
    if aside is not None:
        await aside.run(work)
    else:
        work()


async def told(works: Callable[[], list[Callable[[], Any]]], rounds: int) -> str:
    cells = []
    for aside in (None, Aside()):
        found = [await stall(works(), aside) for _ in range(rounds)]
        longest = [1000 * one for one, _ in found]
        cells.append(f"{median(longest):8.1f} ({max(longest):.1f})  in {1000 * median(took for _, took in found):.0f}")
        if aside is not None:
            aside.close()
    return "   ".join(cells)


def translations(ours: str, theirs: str, body: bytes, count: int) -> list[Callable[[], Any]]:
    target, account, members = rung(theirs), Account(), json.loads(body)
    works = []
    for _ in range(count):
        state, asked = Memory(), ask(ours, members)
        made = MadeLanes(state, Conversation(state, None, "asked", keeps=False), Aside())
        works.append(partial(made.of, target, account, asked))
    return works


async def measure(rounds: int) -> None:
    print(f"{'':20} {'MB':>3} {'at once':>8}   on the loop, ms            beside it, ms")
    for size in MEGABYTES:
        for count in AT_ONCE:
            for name, (ours, theirs, make) in WAYS.items():
                body = make(size * 1_000_000)
                cells = await told(partial(translations, ours, theirs, body, count), rounds)
                print(f"{name:20} {size:3} {count:8} {cells}", flush=True)
            members = native.open_body(thoughtful_body(size * 1_000_000)).members
            cells = await told(lambda members=members, count=count: [partial(bound.marks, members)] * count, rounds)
            print(f"{'what binds it':20} {size:3} {count:8} {cells}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--switch-ms", type=float, default=0.0, help="the interpreter's switch interval, as it is if 0")
    options = parser.parse_args()
    if options.switch_ms:
        sys.setswitchinterval(options.switch_ms / 1000)
    linux.tune_allocator()
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
    asyncio.run(measure(options.rounds))


if __name__ == "__main__":
    main()
