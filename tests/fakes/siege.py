"""Everything at once: callers in processes of their own that ask for all sorts of things, while processes are killed.

    with Notary() as notary, Gateway(config(notary.port), folder, workers=4) as gateway, Siege(gateway) as siege:
        siege.kill("worker")                            # or "control", "supervisor", "everything"
        books = reckon(gateway, notary, siege.end())    # fails unless rows and upstream agree, one to one

The callers keep their connections, ask in both formats, streams and whole answers, some translated, some that fail
first, that are cut, that hang up themselves, or that ask for a model nobody has.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any, Self

from tests.fakes.apart import ROOT
from tests.fakes.client import Caller, Ending, request
from tests.fakes.gateway import ADMIN, Gateway, Row, is_dead, until
from tests.fakes.notary import Notary, Sight, errand
from tests.fakes.wires import WIRES

VICTIMS = ("worker", "control", "supervisor", "everything")
PAUSE_S = 0.02  # of a caller whom nobody answered


@dataclass
class Asked:
    """One request as its caller saw it. `status` None: refused, or broken before its head."""

    name: str
    kind: str
    is_sent: bool = False
    status: int | None = None
    is_whole: bool = False


class Siege:
    """A gateway under load from `processes` processes with `callers` connections each."""

    def __init__(self, gateway: Gateway, processes: int = 2, callers: int = 8, seed: int = 0) -> None:
        self.killed: Counter[str] = Counter()
        self._gateway = gateway
        self._random = random.Random(seed)
        commands = [
            [sys.executable, "-m", "tests.fakes.siege", str(gateway.port), str(callers), f"p{number}-{seed}"]
            for number in range(processes)
        ]
        self._processes = [
            subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for command in commands
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            if process.stdin is not None:
                process.stdin.close()
        for process in self._processes:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def end(self) -> list[Asked]:
        """No further requests; those under way go on to their end. Returns all that were asked."""
        said = []
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self._processes:
            assert process.stdout is not None
            said += json.load(process.stdout)
            process.stdout.close()
            process.wait(60)
        self._processes = []
        return [Asked(**one) for one in said]

    def kill(self, victim: str) -> None:
        """SIGKILL, and wait until the gateway is whole again."""
        gateway, workers = self._gateway, len(self._gateway.workers)
        self.killed[victim] += 1
        if victim == "worker":
            pid = self._random.choice(gateway.workers)
        elif victim == "control":
            pid = gateway.control or 0
            assert pid
        else:
            children = gateway.children
            if victim == "everything":
                for child in children:
                    os.kill(child, signal.SIGKILL)
            gateway.kill()
            until(lambda: all(map(is_dead, children)) and _is_free(gateway.port), "the end of the children")
            gateway.start()
            until(lambda: len(gateway.workers) == workers, "all workers")
            return
        os.kill(pid, signal.SIGKILL)
        until(lambda: is_dead(pid), "its death")
        until(lambda: len(gateway.workers) == workers and gateway.control is not None, "its successor")

    def kill_at_random(self, kills: int, longest_s: float = 1.0) -> None:
        """So many deaths of a random process at random moments; mostly workers, who have most to lose."""
        for _ in range(kills):
            time.sleep(self._random.uniform(0, longest_s))
            self.kill(self._random.choices(VICTIMS, weights=(5, 2, 2, 1))[0])


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


# --- the reckoning ----------------------------------------------------------------------------------------------------


@dataclass
class Books:
    """What `reckon` found. `unheard`: sent, of no upstream's seeing, and without a row: whoever read them died first.

    `unheard_answers`: those of them that were answered all the same, which only a refusal can be.
    """

    requests: Counter[str] = field(default_factory=Counter)
    attempts: Counter[str] = field(default_factory=Counter)
    sights: Counter[str] = field(default_factory=Counter)
    unsent: int = 0  # opened, and killed before it was sent
    unheard: int = 0
    unheard_answers: list[Asked] = field(default_factory=list)


def reckon(gateway: Gateway, notary: Notary, asked: list[Asked]) -> Books:
    """Compare the rows with what the upstream saw, request by request and try by try; fail where they differ."""
    until(lambda: gateway.in_flight() == 0, "the end of every request", 30)
    until(lambda: _is_settled(gateway), "an empty journal", 60)
    seen: dict[str, list[Sight]] = defaultdict(list)
    for sight in notary.seen():
        seen[sight.name].append(sight)
    requests = {}
    for row in gateway.requests():
        name = row["client_trace_id"]
        assert name is not None and name not in requests, f"{name} has two rows"
        requests[name] = row
    attempts: dict[str, list[Row]] = defaultdict(list)
    for row in gateway.attempts():
        attempts[row["request_id"]].append(row)
    books = Books(
        requests=Counter(row["outcome"] for row in requests.values()),
        attempts=Counter(row["outcome"] for rows in attempts.values() for row in rows),
        sights=Counter(sight.answered for sights in seen.values() for sight in sights),
    )
    assert set(seen) <= set(requests), f"seen by the upstream, and no row: {set(seen) - set(requests)}"
    for name, row in requests.items():
        rows = sorted(attempts.pop(row["id"], []), key=lambda row: row["number"])
        told = _told(row, rows, seen[name])
        assert [one["number"] for one in rows] == list(range(1, len(rows) + 1)), told
        assert row["attempts"] == len(rows), told
        books.unsent += _pair(rows, seen[name], told)
        assert row["finished_ms"] is None or row["outcome"] != "interrupted", told
        if row["outcome"] == "ok":
            assert rows and rows[-1]["outcome"] == "ok", told
    assert not attempts, f"attempts of no request: {attempts}"
    for one in asked:
        row = requests.get(one.name, {})
        if not row and one.is_sent:
            books.unheard += 1
            if one.status is not None:
                books.unheard_answers.append(one)
        if one.is_whole and one.status == 200:
            assert row and row["outcome"] in ("ok", "interrupted"), (one, row)
        if one.status is not None and row and row["outcome"] != "interrupted" and row["status"] != 499:
            assert row["status"] == one.status, (one, row)
    return books


def _is_settled(gateway: Gateway) -> bool:
    told = gateway.get("/admin/api/state", headers=ADMIN).json["journal"]
    return bool(told["open"] == 0 and told["depth"] == 0)


def _told(row: Row, rows: list[Row], sights: list[Sight]) -> str:
    """A request in the books and at the upstream, for people."""
    tries = [f"{one['number']} {one['outcome']} {one['upstream_request_id']} {one['message']!r}" for one in rows]
    said = f"{row['client_trace_id']}: {row['outcome']} {row['status']} {row['message']!r}, {row['attempts']} attempts"
    return "\n".join([said, *tries, *map(str, sights)])


def _pair(rows: list[Row], sights: list[Sight], told: str) -> int:
    """Every sight has a row of its own, and a row without one was never sent. Returns how many those are."""
    by_id = {sight.id: sight for sight in sights}
    left = []
    for row in rows:
        said = row["upstream_request_id"]
        if said is None:
            left.append(row)
            continue
        sight = by_id.pop(said, None)
        assert sight is not None, f"{said} was never seen, or stands there twice\n{told}"
        if row["outcome"] == "ok":
            assert sight.answered == "whole", told
    assert all(row["outcome"] in ("interrupted", "error", "cancelled") for row in left), told
    assert len(by_id) <= len(left), told
    return len(left) - len(by_id)


# --- a process of callers ---------------------------------------------------------------------------------------------


def _choose(chance: random.Random) -> tuple[str, dict[str, Any]]:
    """A kind of request, and what the upstream is to do."""
    how = chance.choice(("503", "502", "reset"))
    kinds: list[tuple[int, str, dict[str, Any]]] = [
        (50, "served", {"events": chance.randrange(1, 12), "every": 0.005, "wait": chance.choice((0, 0, 0.01, 0.05))}),
        (15, "retried", {"fail": 1, "how": how, "events": 3, "every": 0.005}),
        (5, "failed", {"fail": 99, "how": how}),
        (5, "cut", {"events": 4, "every": 0.005, "cut": 1}),
        (5, "slow", {"events": 20, "every": 0.05}),
        (8, "left", {"events": 30, "every": 0.02, "wait": 0.02}),
        (12, "refused", {}),
    ]
    _, kind, play = chance.choices(kinds, weights=[weight for weight, _, _ in kinds])[0]
    return kind, play


class _Crowd:
    def __init__(self, port: int, prefix: str) -> None:
        self.asked: list[Asked] = []
        self._port = port
        self._prefix = prefix
        self._random = random.Random(prefix)
        self._is_over = False

    async def run(self, callers: int) -> None:
        tasks = [asyncio.create_task(self._ask_again()) for _ in range(callers)]
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        self._is_over = True
        await asyncio.gather(*tasks)

    async def _ask_again(self) -> None:
        caller: Caller | None = None
        while not self._is_over:
            kind, play = _choose(self._random)
            one = Asked(f"{self._prefix}-{len(self.asked)}", kind)
            self.asked.append(one)
            try:
                if caller is None:
                    caller = await Caller.connect(self._port)
                await self._ask(caller, one, play)
                if one.is_whole:
                    continue
            except (OSError, EOFError, TimeoutError):
                await asyncio.sleep(PAUSE_S)
            if caller is not None:
                caller.leave()
                caller = None
        if caller is not None:
            caller.leave()

    async def _ask(self, caller: Caller, one: Asked, play: dict[str, Any]) -> None:
        wire, upstream = self._random.choice(WIRES), self._random.choice(WIRES)
        stream = one.kind in ("cut", "slow") or self._random.random() < 0.5
        body = wire.ask(errand(one.name, **play), stream=stream)
        body["model"] = "nobody-has-this" if one.kind == "refused" else upstream.model
        one.is_sent = True
        await caller.send(request(wire.path, body, headers=[("x-trace-id", one.name)]))
        if one.kind == "left":
            with suppress(TimeoutError):
                async with asyncio.timeout(self._random.uniform(0, 0.2)):
                    one.status = (await caller.head()).status
                    while await caller.piece():
                        pass
            return
        one.status = (await caller.head()).status
        one.is_whole = (await caller.whole()).ending is Ending.CLEAN


async def _main(port: int, callers: int, prefix: str) -> None:
    crowd = _Crowd(port, prefix)
    await crowd.run(callers)
    json.dump([asdict(one) for one in crowd.asked], sys.stdout)


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
