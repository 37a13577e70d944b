"""The client's end of a call, as the spine knows it; and one that holds on to what it passes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from arbiter.attempt.live import Taker
from arbiter.errors import ArbiterError
from arbiter.upstream.exchange import Answering
from arbiter.wire.headers import Pairs

KEPT_BYTES = 16 << 20  # of an answer; what follows is passed on only
WORKER_BYTES = 64 << 20  # of all answers under way in a worker: as much as may wait behind them (`ledger.capture`)
PIECE_BYTES = 48  # what a piece takes beside its bytes: a stream may come in pieces of a few bytes each


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

    def hold_less(self) -> None: ...

    def end(self) -> None: ...

    async def fail_stream(self, event: bytes, *, abrupt: bool) -> None: ...


class Room:
    """The memory that answers under way may be held in, of one worker. Units: bytes."""

    __slots__ = ("_left",)

    def __init__(self, limit_bytes: int = WORKER_BYTES) -> None:
        self._left = limit_bytes

    def take(self, size: int) -> bool:
        """Whether there is so much; it is taken then."""
        if size > self._left:
            return False
        self._left -= size
        return True

    def give_back(self, size: int) -> None:
        self._left += size


class Passing:
    """A client's end in front of another, to which everything passes as it comes."""

    __slots__ = ("_end",)

    def __init__(self, end: ClientEnd) -> None:
        self._end = end

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

    def start(self, status: int, headers: Pairs, keepalive: bytes) -> None:
        self._end.start(status, headers, keepalive)

    def send(self, data: bytes) -> None:
        self._end.send(data)

    def hold_less(self) -> None:
        self._end.hold_less()

    def draw_from(self, source: Answering, stop: Callable[[ArbiterError], None]) -> None:
        self._end.draw_from(source, stop)

    def end(self) -> None:
        self._end.end()

    async def fail_stream(self, event: bytes, *, abrupt: bool) -> None:
        await self._end.fail_stream(event, abrupt=abrupt)


class Overheard(Passing):
    """A client's end, and what the client was sent: `headers`, and of the answer `pieces` where there is a `room`.

    The pieces are the beginning of the answer: one for which there is no room is the last that is looked at. A whole
    answer is one piece. `left_out` are the bytes behind them.
    """

    __slots__ = ("_room", "headers", "held_bytes", "is_stream", "left_out", "pieces")

    def __init__(self, end: ClientEnd, room: Room | None) -> None:
        super().__init__(end)
        self._room = room
        self.headers: Pairs = []
        self.pieces: list[bytes] = []
        self.held_bytes = 0
        self.left_out = 0
        self.is_stream = False

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

    def let_go(self) -> None:
        """Nothing more comes: whoever takes the pieces answers for them from now on."""
        if self._room is not None:
            self._room.give_back(self.held_bytes)
            self._room = None

    def _keep(self, data: bytes) -> None:
        room = self._room
        if room is None:
            return
        size = len(data) + PIECE_BYTES
        if self.left_out or self.held_bytes + size > KEPT_BYTES or not room.take(size):
            self.left_out += len(data)
            return
        self.held_bytes += size
        self.pieces.append(data)
