"""The client's end of a call, as the spine knows it; and one that holds on to what it passes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from arbiter.attempt.live import Taker
from arbiter.errors import ArbiterError
from arbiter.upstream.exchange import Answering
from arbiter.wire.headers import Pairs

KEPT_BYTES = 16 << 20  # of an answer; what follows is passed on only


class ClientEnd(Taker, Protocol):
    """What the spine needs of the client's end (`app.out.Out`)."""

    @property
    def started(self) -> bool: ...

    @property
    def gone(self) -> bool: ...

    @property
    def status(self) -> int: ...

    @property
    def bytes_out(self) -> int: ...

    def watch(self, on_gone: Callable[[], None]) -> None: ...

    def reply(self, status: int, headers: Pairs, body: bytes) -> None: ...

    def start(self, status: int, headers: Pairs, keepalive: bytes) -> None: ...

    def end(self) -> None: ...

    async def fail_stream(self, event: bytes, *, abrupt: bool) -> None: ...


class Overheard:
    """A client's end, and what the client was sent: `headers`, and of the answer `pieces` where `content` is wanted."""

    __slots__ = ("_end", "_room", "headers", "is_stream", "pieces")

    def __init__(self, end: ClientEnd, *, content: bool) -> None:
        self._end = end
        self._room = KEPT_BYTES if content else 0
        self.headers: Pairs = []
        self.pieces: list[bytes] = []
        self.is_stream = False

    @property
    def started(self) -> bool:
        return self._end.started

    @property
    def gone(self) -> bool:
        return self._end.gone

    @property
    def status(self) -> int:
        return self._end.status

    @property
    def bytes_out(self) -> int:
        return self._end.bytes_out

    def watch(self, on_gone: Callable[[], None]) -> None:
        self._end.watch(on_gone)

    def reply(self, status: int, headers: Pairs, body: bytes) -> None:
        self._end.reply(status, headers, body)
        self.headers = headers
        self._keep(body)

    def start(self, status: int, headers: Pairs, keepalive: bytes) -> None:
        self._end.start(status, headers, keepalive)
        self.headers, self.is_stream = headers, True

    def send(self, data: bytes) -> None:
        self._end.send(data)
        self._keep(data)

    def draw_from(self, source: Answering, stop: Callable[[ArbiterError], None]) -> None:
        self._end.draw_from(source, stop)

    def end(self) -> None:
        self._end.end()

    async def fail_stream(self, event: bytes, *, abrupt: bool) -> None:
        await self._end.fail_stream(event, abrupt=abrupt)

    def _keep(self, data: bytes) -> None:
        if self._room > 0:
            self.pieces.append(data[: self._room])
            self._room -= len(data)
