"""Callers that keep a gateway busy, and the reckoning: what the upstream saw against what stands in the rows.

    async with Load(gateway.port, callers=8) as load:
        ...                                             # something dies
    check_books(gateway, witness)

Every request has a name of its own, which is its trace id to the gateway and its `user` to the `Witness`.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from .client import Answer, Caller, Ending, request
from .gateway import Gateway, until
from .witness import Witness

PATH = "/v1/chat/completions"
_numbers = itertools.count()


def new_name() -> str:
    """A name that no request of this test run has yet."""
    return f"call-{next(_numbers):06d}"


def call(name: str, *, stream: bool = True, **play: Any) -> bytes:
    """The bytes of a request called `name` that the witness answers as `play` says."""
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": name}],
        "stream": stream,
        "user": name,
        "play": play,
    }
    return request(PATH, body, headers=[("x-trace-id", name)])


def config(witness: Witness, **sections: Any) -> dict[str, Any]:
    """A configuration whose one provider is the witness."""
    provider = {"type": "openai", "endpoint": witness.url, "key": "sk-upstream-secret", "models": ["m"]}
    return {"providers": {"witness": provider}, **sections}


@dataclass
class Outcome:
    """One request of the load. `answer` None: refused, or broken before its head."""

    name: str
    answer: Answer | None

    @property
    def is_whole(self) -> bool:
        answer = self.answer
        return answer is not None and answer.status == 200 and answer.ending is Ending.CLEAN


class Load:
    """Callers that ask again and again, streams and whole answers in turn, until the block ends."""

    def __init__(self, port: int, *, callers: int = 6, **play: Any) -> None:
        self.outcomes: list[Outcome] = []
        self._port = port
        self._callers = callers
        self._play = play or {"events": 10, "every_s": 0.02, "wait_s": 0.02}
        self._is_over = False
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._ask_again(n)) for n in range(self._callers)]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over = True
        if error is not None:
            for task in self._tasks:
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=error is not None)

    def whole(self) -> int:
        """How many were answered whole so far."""
        return sum(outcome.is_whole for outcome in self.outcomes)

    async def more(self, count: int = 20) -> None:
        """Wait until so many more were answered whole."""
        target = self.whole() + count
        async with asyncio.timeout(60):
            while self.whole() < target:
                await asyncio.sleep(0.01)

    async def _ask_again(self, number: int) -> None:
        while not self._is_over:
            name = new_name()
            answer = None
            with suppress(OSError, EOFError):
                async with await Caller.connect(self._port) as caller:
                    await caller.send(call(name, stream=number % 2 == 0, **self._play))
                    answer = await caller.head()
                    answer = await caller.whole()
            self.outcomes.append(Outcome(name, answer))
            if answer is None:
                await asyncio.sleep(0.02)


def check_books(gateway: Gateway, witness: Witness) -> Counter[str]:
    """Every request the witness saw has exactly one attempt, in a request that is settled; nothing stands there twice.

    Waits for the rows. Returns the outcomes of the attempts. Those that the witness never saw were open when their
    process died, before they were sent.
    """
    seen = witness.seen()
    assert set(seen.values()) <= {1}, "the witness saw a request twice"
    sql = "SELECT r.client_trace_id AS name, a.outcome FROM attempts a JOIN requests r ON r.id = a.request_id"

    def missing() -> set[str]:
        return set(seen) - {row["name"] for row in gateway.select(sql)}

    until(lambda: not missing(), "a row for every request that the upstream saw", 30)
    rows = gateway.select(sql)
    counts = Counter(row["name"] for row in rows)
    assert set(counts.values()) <= {1}, [name for name, count in counts.items() if count > 1]
    unsent = [row for row in rows if row["name"] not in seen]
    assert all(row["outcome"] in ("interrupted", "error", "cancelled") for row in unsent), unsent
    known = "SELECT client_trace_id AS name FROM requests WHERE client_trace_id IS NOT NULL"
    assert gateway.select(f"SELECT name FROM ({known}) AS known GROUP BY name HAVING COUNT(*) > 1") == []
    return Counter(row["outcome"] for row in rows)
