"""What the prefix identity of a request costs, beside plain SHA-256 of its whole body.

    python -m bench.micro.prefix_cost [--turns N]

A conversation of each size is read for the first time, then turn by turn: each adds an answer with a tool call and its
result, and moves the cache mark to that result as Claude Code does. The numbers are microseconds, the best of all.
`ratio` is a turn's share of hashing the same conversation anew.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import random
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Raw

from arbiter.ledger.prefix import Prefixes
from arbiter.wire import native

SIZES = (1_000, 20_000, 200_000, 2_000_000)
SOURCE = Path(__file__).parents[2].joinpath("arbiter", "gateway.py").read_text("utf-8")
Turn = dict[str, Any]


def turn(number: int, draw: random.Random, size: int) -> list[Turn]:
    """A tool call and its result: some source code, with its quotes and line ends."""
    at = draw.randrange(len(SOURCE) - size)
    call = {"type": "tool_use", "id": f"toolu_{number:08}", "name": "read", "input": {"path": "a.py", "offset": number}}
    text = [{"type": "text", "text": SOURCE[at : at + size]}]
    result = {"type": "tool_result", "tool_use_id": f"toolu_{number:08}", "content": text}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


def conversation(size: int, draw: random.Random) -> list[Turn]:
    turns: list[Turn] = [{"role": "user", "content": [{"type": "text", "text": SOURCE[: min(size, 2000) - 200]}]}]
    while (left := size - len(json.dumps(turns))) > 300:
        turns += [one for n in range(10 if left > 60_000 else 1) for one in turn(n, draw, min(2500, left - 200))]
    return turns


def body(turns: list[Turn]) -> bytes:
    turns = json.loads(json.dumps(turns))
    turns[-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
    return json.dumps({"model": "m", "system": "You read files.", "messages": turns}, separators=(",", ":")).encode()


def micros(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return (time.perf_counter() - began) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--turns", type=int, default=40, help="turns of each conversation")
    options = parser.parse_args()
    loop = asyncio.new_event_loop()
    print(f"{'body':>10} {'first turn':>12} {'next turn':>12} {'anew':>12} {'ratio':>7} {'SHA-256':>10}")
    for size in SIZES:
        draw = random.Random(size)
        turns = conversation(size, draw)
        prefixes = Prefixes(loop)
        first, following, anew, plain = [], [], [], []
        for number in range(options.turns):
            raw = body(turns)
            members: Mapping[str, Raw] = native.open_body(raw).members
            fresh = Prefixes(loop)
            anew.append(micros(fresh.reading(members).read))
            plain.append(micros(partial(hashlib.sha256, raw)))
            (following if number else first).append(micros(prefixes.reading(members).read))
            if not number:
                first += [micros(Prefixes(loop).reading(members).read) for _ in range(10)]
                length = len(raw)
            turns = turns + turn(1000 + number, draw, 300)
        ratio = min(following) / min(anew)
        print(
            f"{length:10,} {min(first):12.1f} {min(following):12.1f} {min(anew):12.1f} {ratio:7.1%} {min(plain):10.1f}"
        )
    loop.close()


if __name__ == "__main__":
    main()
