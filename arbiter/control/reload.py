"""Reloads as control sees them: it shows the snapshot of the day, and passes on that somebody wants a newer one.

The supervisor reads the file, hands the outcome to every process, and says when all of them run it; control asks it
over its line, and answers whoever asked with its words (SPEC 5.9).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from arbiter.config.snapshot import Snapshot
from arbiter.control.api import fault, json
from arbiter.control.audit import Audit
from arbiter.lines import Applied, Apply, Line, Reload, Reloaded, Serving, take_up
from arbiter.log import Log, setup

# One reload may have to wait for another, and each may wait for a process that is stuck; a worker waits 30 s for us.
ANSWER_S = 28.0


_log = Log(__name__)


class Configuration:
    """The current snapshot: call it. `line` None: there is no supervisor, and nothing changes.

    `audit` is where actions are written down; it is set once there is one.
    """

    def __init__(self, snapshot: Snapshot, line: Line | None) -> None:
        self.audit = Audit(None, None)
        self._snapshot = snapshot
        self._line = line
        self._on_reload: Callable[[], None] = lambda: None
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Reloaded]] = {}

    def __call__(self) -> Snapshot:
        return self._snapshot

    def routes(self) -> list[Route]:
        return [
            Route("/admin/reload", self.reload, methods=["POST"]),
            Route("/admin/keys/reload", self.reload_keys, methods=["POST"]),
        ]

    async def reload(self, request: Request) -> Response:
        """Have the file read again; answered once every process runs what it says, or with why it was rejected."""
        return await self._reload(request, only_keys=False)

    async def reload_keys(self, request: Request) -> Response:
        """Have the client keys read again, whatever the file says by now; answered as `reload` is."""
        return await self._reload(request, only_keys=True)

    async def _reload(self, request: Request, *, only_keys: bool) -> Response:
        wanted = "the keys read again" if only_keys else "a reload"
        _log.info(f"an administrator wants {wanted}", peer=request.headers.get("x-arbiter-peer", ""))
        number = next(self._numbers)
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            if self._line is None or not self._line.send(Reload(number, only_keys)):
                return fault(503, "there is no supervisor to read the configuration", reason="no_supervisor")
            async with asyncio.timeout(ANSWER_S):
                reloaded = await answer
        except TimeoutError:
            return fault(503, "the supervisor has not answered yet; its log will tell", reason="late")
        finally:
            del self._asked[number]
        what = {name: reloaded.told.get(name) for name in ("epoch", "previous_epoch", "detail")}
        action = "keys_reload" if only_keys else "reload"
        await run_in_threadpool(self.audit.note, request, action, None, {"status": reloaded.status, **what})
        return json(reloaded.told, reloaded.status)

    def listen(self, on_reload: Callable[[], None]) -> None:
        """We serve: say so, and hear the supervisor from now on. Called in the event loop.

        `on_reload` is called in it too, whenever refused keys may be good again.
        """
        self._on_reload = on_reload
        if self._line is not None:
            self._line.send(Serving())
            asyncio.get_running_loop().add_reader(self._line.fileno(), self._hear)

    def _hear(self) -> None:
        assert self._line is not None
        for message, descriptor in self._line.receive():
            if isinstance(message, Apply) and descriptor is not None:
                self._apply(take_up(descriptor))
                self._line.send(Applied(message.number))
            elif isinstance(message, Reloaded):
                if message.status == 200:
                    # Once more: while some still ran the old configuration, they refused its keys again.
                    self._on_reload()
                for number in message.asks:
                    answer: Any = self._asked.get(number)
                    if answer is not None and not answer.done():
                        answer.set_result(message)
        if not self._line.is_open:
            asyncio.get_running_loop().remove_reader(self._line.fileno())

    def _apply(self, snapshot: Snapshot) -> None:
        secrets = self._snapshot.secrets() | snapshot.secrets()
        setup(snapshot.telemetry.log_level, snapshot.telemetry.log_format, secrets=secrets)
        self._snapshot = snapshot
        self._on_reload()
