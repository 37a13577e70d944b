"""How long the loop stands still where an upstream answers before a long prompt was hashed.

    python -m bench.micro.prefix_stall [--megabytes N] [--rounds N]

Requests of a size that this worker has never seen are sent, answered in the loop's next turn, and settled, as the spine
does it, alone and several at once. Meanwhile something else wants its turn on the loop: the longest that it waited, in
milliseconds, is the median of all rounds, with the worst behind it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from statistics import median

from arbiter.config.snapshot import Account
from arbiter.errors import Unreachable
from arbiter.ledger.book import Book
from arbiter.ledger.journal import NullJournal
from arbiter.ledger.prefix import Prefixes
from arbiter.ledger.prompt import Prompt
from arbiter.metrics import Metrics
from arbiter.wire import native
from bench.micro.prefix_cost import SOURCE, body, conversation
from tests.fakes.asks import rung
from tests.fakes.rows import request_row

AT_ONCE = (1, 4, 16)


class Pen(NullJournal):
    """Counts what it is handed."""

    def __init__(self) -> None:
        self.settled = 0

    def settle(self, request: object) -> None:
        self.settled += 1


def bodies(kind: str, size: int, count: int) -> list[bytes]:
    """So many requests of about that size, each of which begins in words of its own."""
    if kind == "conversation":
        turns = conversation(size, random.Random(size))
        first = [[{"type": "text", "text": f"{n} {SOURCE[:500]}"}] for n in range(count)]
        return [body([{"role": "user", "content": text}, *turns]) for text in first]
    text, times = ('a"\n' * (size // 5), 1) if kind == "escapes" else ("word", size // 40)
    return [
        json.dumps({"model": "m", "messages": [{"role": "user", "content": f"{n}{text}"}] * times}).encode()
        for n in range(count)
    ]


async def stall(raws: list[bytes]) -> float:
    """The longest wait for a turn, in seconds, from the first request to the last row."""
    loop = asyncio.get_running_loop()
    prefixes, pen = Prefixes(loop), Pen()
    opened = [native.open_body(raw).members for raw in raws]
    longest = 0.0
    books = []
    for members in opened:
        book = Book(pen, Metrics(None), request_row(attempts=0), lambda text: text)
        book.prompt = Prompt(prefixes, members)
        attempt = book.open(rung("openai-chat"), Account(), "openai-chat", "native", "verbatim")
        attempt.sent()
        books.append((book, attempt))

    def answered() -> None:
        for book, attempt in books:
            attempt.close(None, Unreachable("not now"))
            book.settle()

    last = time.perf_counter()
    for _ in range(2):
        await asyncio.sleep(0)
    loop.call_soon(answered)
    while pen.settled < len(raws):
        await asyncio.sleep(0)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    await prefixes.aclose()
    return longest


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    print(f"{'prompt':>14} {'at once':>8} {'median ms':>10} {'worst ms':>10}")
    for kind in ("conversation", "escapes", "words"):
        for count in AT_ONCE:
            raws = bodies(kind, options.megabytes * 1_000_000, count)
            found = [asyncio.run(stall(raws)) * 1000 for _ in range(options.rounds)]
            print(f"{kind:>14} {count:8} {median(found):10.1f} {max(found):10.1f}")


if __name__ == "__main__":
    main()
