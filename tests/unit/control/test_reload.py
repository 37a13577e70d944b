"""Control's part in a reload, between a supervisor at the other end of a line and callers over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from starlette.requests import Request

from arbiter.config.load import parse
from arbiter.config.snapshot import Snapshot
from arbiter.control import reload
from arbiter.control.reload import Configuration
from arbiter.lines import Applied, Apply, Line, Reload, Reloaded, Serving, put_down


def snapshot(model: str = "m") -> Snapshot:
    return parse(f"providers: {{ up: {{ type: echo, models: [{model}] }} }}\n", "arbiter.yaml", {})


class Supervisor:
    """The other end of control's line."""

    def __init__(self) -> None:
        self.line, self.theirs = Line.pair()
        self.reloads = 0
        self.current = Configuration(snapshot(), self.theirs)

    def listen(self) -> None:
        def count() -> None:
            self.reloads += 1

        self.current.listen(count)

    async def hears(self) -> list[Any]:
        """What control says next."""
        async with asyncio.timeout(30):
            while not (found := [message for message, _ in self.line.receive()]):
                await asyncio.sleep(0)
            return found

    async def post(self) -> tuple[int, Any]:
        answer = await self.current.reload(Request({"type": "http", "headers": []}))
        return answer.status_code, json.loads(answer.body)


def run(main: Callable[[Supervisor], Awaitable[None]]) -> None:
    async def bounded() -> None:
        supervisor = Supervisor()
        supervisor.listen()
        try:
            async with asyncio.timeout(60):
                assert await supervisor.hears() == [Serving()]
                await main(supervisor)
        finally:
            asyncio.get_running_loop().remove_reader(supervisor.theirs.fileno())
            supervisor.line.close()
            supervisor.theirs.close()

    asyncio.run(bounded())


def test_what_it_is_handed_is_what_it_shows() -> None:
    async def main(supervisor: Supervisor) -> None:
        descriptor = put_down(snapshot("newcomer"))
        supervisor.line.send(Apply(2), descriptor)
        os.close(descriptor)
        assert await supervisor.hears() == [Applied(2)]
        assert "newcomer" in supervisor.current().models
        assert supervisor.reloads == 1, "refused keys may be good again"

    run(main)


def test_everybody_who_asks_gets_an_answer_of_their_own() -> None:
    async def main(supervisor: Supervisor) -> None:
        first = asyncio.create_task(supervisor.post())
        (one,) = await supervisor.hears()
        second = asyncio.create_task(supervisor.post())
        (two,) = await supervisor.hears()
        assert isinstance(one, Reload) and isinstance(two, Reload) and one.ask != two.ask
        supervisor.line.send(Reloaded([two.ask], 500, {"code": 500, "detail": "no"}))
        assert await second == (500, {"code": 500, "detail": "no"})
        assert not first.done() and supervisor.reloads == 0
        supervisor.line.send(Reloaded([one.ask, 77], 200, {"epoch": "e"}))
        assert await first == (200, {"epoch": "e"})
        assert supervisor.reloads == 1

    run(main)


def test_a_reload_that_nobody_asked_for_here_counts_too() -> None:
    """A signal, a changed file: refused keys are tried again all the same."""

    async def main(supervisor: Supervisor) -> None:
        supervisor.line.send(Reloaded([], 200, {}))
        while not supervisor.reloads:
            await asyncio.sleep(0)

    run(main)


def test_a_supervisor_that_says_nothing_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reload, "ANSWER_S", 0.01)

    async def main(supervisor: Supervisor) -> None:
        status, told = await supervisor.post()
        assert (status, told["reason"]) == (503, "late")
        (asked,) = await supervisor.hears()
        supervisor.line.send(Reloaded([asked.ask], 200, {}))  # too late, and no fault
        while not supervisor.reloads:
            await asyncio.sleep(0)

    run(main)


def test_without_a_supervisor_nothing_is_reloaded() -> None:
    """As it is where control runs alone, and while a supervisor is being killed."""

    async def main(supervisor: Supervisor) -> None:
        supervisor.line.close()
        assert (await supervisor.post())[0] == 503
        alone = Configuration(snapshot(), None)
        alone.listen(lambda: None)
        assert (await alone.reload(Request({"type": "http", "headers": []}))).status_code == 503

    run(main)
