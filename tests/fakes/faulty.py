"""Upstreams that fail in every way that upstreams have, on real sockets.

    async with upstream_of(FAULTS["reset before headers"], CHAT, stream=True, meets=Meets.EVERY) as upstream:
        ...                                       # at upstream.host, upstream.port
        assert upstream.reached == 3              # requests, or connections where it never reads one

`Meets` says whose request meets the fault; any other gets a whole answer that says `SAID`. A fault strikes where its
name says: while connecting, before the headers, after them, or in the middle of the answer, of which half is out then.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Protocol

from .gateway import free_port
from .origin import CLOSE, RESET, SILENCE, TAKEN, Origin, Peer, Request, Step, Steps, answer, chunk, chunked_head
from .wires import EVENT_STREAM, JSON, MESSAGES, RESPONSES, Wire, begun, sse, sse_head

SAID = "all of it"
HALF = "half "
"""What a stream has said when it fails in the middle."""
WAIT_S = 600
"""For how long a rate limit of theirs asks to stay away, in every spelling."""
PAGE = b"<!DOCTYPE html><html><head><title>Bad Gateway</title></head><body><h1>nginx</h1></body></html>"

_DRIP_S = 0.005


class Meets(Enum):
    """Whose requests meet the fault."""

    EVERY = "every request"
    FIRST = "only the first request"
    ONE_KEY = "every request with the key that came first"
    NONE = "no request"


class Listens(Enum):
    YES = "yes"
    NO = "nobody listens on the port"
    FULL = "the queue of connections is full, and nobody accepts any"


@dataclass(frozen=True)
class Fault:
    """One way to fail. `steps` answer a request that meets it; without them it strikes before a request is read.

    `hangs`: the budget that must end it in a stream; all others may be long.
    """

    name: str
    steps: Callable[[Wire, bool], Steps] | None = None
    listens: Listens = Listens.YES
    hangs: str = ""

    @property
    def reads(self) -> bool:
        """Whether requests reach it."""
        return self.steps is not None


class Upstream(Protocol):
    host: str
    port: int

    @property
    def reached(self) -> int:
        """Requests that arrived; connections, where it fails before it reads one."""


# --- what they do -----------------------------------------------------------------------------------------------------


def whole(wire: Wire, stream: bool) -> bytes:
    """An answer without any fault. Without usage events, so that all of its bytes are the client's."""
    return sse(*events(wire)) if stream else answer(wire.answer(SAID), headers=[JSON])


def events(wire: Wire) -> list[bytes]:
    return wire.events(SAID, usage=False)


def _head(wire: Wire, stream: bool) -> bytes:
    return sse_head() if stream else answer(headers=[JSON], length=len(wire.answer(SAID)))


def _half(wire: Wire, stream: bool) -> bytes:
    if stream:
        return begun(*wire.opening(HALF))
    body = wire.answer(SAID)
    return answer(body[: len(body) // 2], headers=[JSON], length=len(body))


def _cut_chunk(wire: Wire, stream: bool) -> Steps:
    body = wire.answer(SAID)
    said = begun(*wire.opening(HALF)) if stream else chunked_head(headers=[JSON]) + chunk(body[: len(body) // 2])
    return [said + b"3e8\r\n" + b": and the rest never came", TAKEN, CLOSE]


def _dripped(wire: Wire, stream: bool) -> Steps:
    async def drip(peer: Peer, request: Request) -> None:
        said = whole(wire, stream)
        for at in range(len(said)):
            await peer.send(said[at : at + 1])
            await asyncio.sleep(_DRIP_S)

    return drip


async def _half_close(peer: Peer, request: Request) -> None:
    peer.writer.write_eof()
    await peer.gone()


def _delimited_by_its_end(wire: Wire, stream: bool) -> Steps:
    kind = EVENT_STREAM if stream else JSON
    body = b"".join(events(wire)) if stream else wire.answer(SAID)
    return [b"HTTP/1.1 200 OK\r\n%b: %b\r\n\r\n" % (kind[0].encode(), kind[1].encode()) + body, _half_close]


def error_body(wire: Wire, kind: str, message: str = "not now", **more: object) -> bytes:
    """An error in the format's own shape."""
    if wire is MESSAGES:
        return json.dumps({"type": "error", "error": {"type": kind, "message": message, **more}}).encode()
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": None, **more}}).encode()


def _error_event(wire: Wire, kind: str) -> bytes:
    """The same inside of a stream."""
    if wire is RESPONSES:
        told = {"type": "error", "code": kind, "message": "not now", "param": None, "sequence_number": 9}
        return b"event: error\ndata: %b\n\n" % json.dumps(told).encode()
    return (b"event: error\n" if wire is MESSAGES else b"") + b"data: %b\n\n" % error_body(wire, kind)


def _status(status: str, kind: str) -> Callable[[Wire, bool], Steps]:
    return lambda wire, stream: answer(error_body(wire, kind), status=status, headers=[JSON])


def _limited(
    headers: Callable[[], Sequence[tuple[str, str]]] = tuple, message: str = "not now", **more: object
) -> Callable[[Wire, bool], Steps]:
    """A 429; `headers` is called when it is sent, since some tell a moment."""
    return lambda wire, stream: answer(
        error_body(wire, "rate_limit_error", message, **more),
        status="429 Too Many Requests",
        headers=[JSON, *headers()],
    )


def _then() -> datetime:
    # Whole seconds, rounded down as dates are.
    return datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=WAIT_S)


def _overloaded(wire: Wire, stream: bool) -> Steps:
    if not stream:
        return answer(error_body(wire, "overloaded_error"), headers=[JSON])
    return sse(_error_event(wire, "overloaded_error"))


def _overloaded_midway(wire: Wire, stream: bool) -> Steps:
    assert stream, "only a stream has a middle that can tell an error"
    return sse(*wire.opening(HALF), _error_event(wire, "overloaded_error"))


def _behind_the_opening(*steps: bytes | float | Step) -> Callable[[Wire, bool], Steps]:
    """A stream that opens, says nothing, and then does `steps`."""
    return lambda wire, stream: [begun(*wire.opening()), TAKEN, *steps]


def _overloaded_behind_the_opening(wire: Wire, stream: bool) -> Steps:
    return sse(*wire.opening(), _error_event(wire, "overloaded_error"))


def _cut_short(status: str, *headers: tuple[str, str]) -> Callable[[Wire, bool], Steps]:
    """An error status whose body ends early."""
    body = b'{"error":{"message":"not now, becau'
    return lambda wire, stream: [
        answer(body, status=status, headers=[JSON, *headers], length=len(body) + 99),
        TAKEN,
        CLOSE,
    ]


def _garbage(wire: Wire, stream: bool) -> Steps:
    kind = EVENT_STREAM if stream else JSON
    return answer(b"data: \x00\xff\xfe\x80 {]\n\n" * 3, headers=[kind])


FAULTS = {
    fault.name: fault
    for fault in (
        Fault("refuses the connection", listens=Listens.NO),
        Fault("hangs at connect", listens=Listens.FULL, hangs="connect"),
        Fault("reset at connect"),
        Fault("hangs before headers", lambda wire, stream: [SILENCE], hangs="first_event"),
        Fault("reset before headers", lambda wire, stream: [RESET]),
        Fault("end before headers", lambda wire, stream: [CLOSE]),
        Fault("half-close before headers", lambda wire, stream: [_half_close]),
        Fault("end inside of the headers", lambda wire, stream: [b"HTTP/1.1 200 OK\r\ncontent-", TAKEN, CLOSE]),
        Fault("hangs after headers", lambda wire, stream: [_head(wire, stream), SILENCE], hangs="first_event"),
        Fault("reset after headers", lambda wire, stream: [_head(wire, stream), TAKEN, RESET]),
        Fault("end after headers", lambda wire, stream: [_head(wire, stream), TAKEN, CLOSE]),
        Fault("hangs behind the opening", _behind_the_opening(SILENCE), hangs="idle"),
        Fault("reset behind the opening", _behind_the_opening(RESET)),
        Fault("end behind the opening", _behind_the_opening(CLOSE)),
        Fault("hangs midway", lambda wire, stream: [_half(wire, stream), SILENCE], hangs="idle"),
        Fault("reset midway", lambda wire, stream: [_half(wire, stream), TAKEN, RESET]),
        Fault("end midway", lambda wire, stream: [_half(wire, stream), TAKEN, CLOSE]),
        Fault("truncated chunk", _cut_chunk),
        Fault("429, retry-after in seconds", _limited(lambda: [("retry-after", str(WAIT_S))])),
        Fault("429, retry-after-ms", _limited(lambda: [("retry-after-ms", str(WAIT_S * 1000))])),
        Fault(
            "429, retry-after as a date",
            _limited(lambda: [("retry-after", f"{_then():%a, %d %b %Y %H:%M:%S} GMT")]),
        ),
        Fault(
            "429, x-ratelimit-reset-tokens",
            _limited(lambda: [("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", f"{WAIT_S}s")]),
        ),
        Fault(
            "429, x-ratelimit-reset in milliseconds since 1970",
            _limited(
                lambda: [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", f"{_then().timestamp() * 1e3:.0f}")]
            ),
        ),
        Fault(
            "429, anthropic-ratelimit-tokens-reset",
            _limited(
                lambda: [
                    ("anthropic-ratelimit-tokens-remaining", "0"),
                    ("anthropic-ratelimit-tokens-reset", f"{_then():%Y-%m-%dT%H:%M:%SZ}"),
                ]
            ),
        ),
        Fault(
            "429, anthropic-ratelimit-unified-reset",
            _limited(
                lambda: [
                    ("anthropic-ratelimit-unified-status", "rejected"),
                    ("anthropic-ratelimit-unified-reset", f"{_then().timestamp():.0f}"),
                ]
            ),
        ),
        Fault(
            "429, x-codex-primary-reset-after-seconds",
            _limited(
                lambda: [("x-codex-primary-used-percent", "100"), ("x-codex-primary-reset-after-seconds", str(WAIT_S))]
            ),
        ),
        Fault("429, RetryInfo in its body", _limited(details=[{"@type": "RetryInfo", "retryDelay": f"{WAIT_S}s"}])),
        Fault("429, prose", _limited(message=f"Rate limit reached. Please try again in {WAIT_S}.0s.")),
        Fault("429 whose body is cut short", _cut_short("429 Too Many Requests", ("retry-after", str(WAIT_S)))),
        Fault("429 that does not say when", _limited()),
        Fault("429, quota used up", _limited(code="insufficient_quota")),
        Fault("401", _status("401 Unauthorized", "authentication_error")),
        Fault("403", _status("403 Forbidden", "permission_error")),
        Fault("400", _status("400 Bad Request", "invalid_request_error")),
        Fault("500", _status("500 Internal Server Error", "api_error")),
        Fault("501", _status("501 Not Implemented", "api_error")),
        Fault("502", _status("502 Bad Gateway", "api_error")),
        Fault("503", _status("503 Service Unavailable", "overloaded_error")),
        Fault("503 whose body is cut short", _cut_short("503 Service Unavailable")),
        Fault("504", _status("504 Gateway Timeout", "api_error")),
        Fault("524", _status("524 A Timeout Occurred", "api_error")),
        Fault("529", _status("529 Overloaded", "overloaded_error")),
        Fault(
            "502 with a web page",
            lambda wire, stream: answer(PAGE, status="502 Bad Gateway", headers=[("content-type", "text/html")]),
        ),
        Fault("200 with a web page", lambda wire, stream: answer(PAGE, headers=[("content-type", "text/html")])),
        Fault("overloaded inside of a 200", _overloaded),
        Fault("overloaded behind the opening", _overloaded_behind_the_opening),
        Fault("overloaded midway", _overloaded_midway),
        Fault("garbage in place of HTTP", lambda wire, stream: [b"\x16\x03\x01\x00\xff\r\n\r\n\x00", TAKEN, CLOSE]),
        Fault("garbage in place of the body", _garbage),
        Fault("slow drip", _dripped),
        Fault("half-close behind the answer", _delimited_by_its_end),
    )
}


# --- where they do it -------------------------------------------------------------------------------------------------


class _Faulty(Origin):
    """An upstream that some requests meet a fault at."""

    def __init__(self, fault: Fault, wire: Wire, *, stream: bool, meets: Meets) -> None:
        super().__init__(self._answer, greeting=None if fault.reads else self._greet)
        self._fault, self._wire, self._stream, self._meets = fault, wire, stream, meets

    @property
    def reached(self) -> int:
        return len(self.requests) if self._fault.reads or self._meets is Meets.NONE else len(self.peers)

    async def _greet(self, peer: Peer, request: Request) -> None:
        # No key was seen yet: the fault is the place's own.
        if self._meets in (Meets.EVERY, Meets.ONE_KEY) or (self._meets is Meets.FIRST and peer.number == 0):
            peer.reset()

    async def _answer(self, peer: Peer, request: Request) -> None:
        steps = self._fault.steps
        is_met = steps is not None and self._is_met(request)
        # Only then is it made: some faults tell a moment.
        await self._play(peer, request, steps(self._wire, self._stream) if is_met and steps else self._whole())

    def _whole(self) -> bytes:
        return whole(self._wire, self._stream)

    def _is_met(self, request: Request) -> bool:
        first = self.requests[0]
        match self._meets:
            case Meets.EVERY:
                return True
            case Meets.FIRST:
                return request is first
            case Meets.ONE_KEY:
                return _key(request) == _key(first)
            case Meets.NONE:
                return False


def _key(request: Request) -> str | None:
    return request.header("authorization") or request.header("x-api-key")


@dataclass
class _Nobody:
    """A port at which no connection is made."""

    host: str
    port: int
    reached: int = 0


@asynccontextmanager
async def _full() -> AsyncIterator[_Nobody]:
    """A listener whose queue is filled by connections of our own: the next one's handshake is never answered."""
    fillers: list[socket.socket] = []
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        try:
            for _ in range(4):
                filler = socket.socket()
                fillers.append(filler)
                filler.setblocking(False)
                filler.connect_ex(listener.getsockname())
            yield _Nobody(*listener.getsockname())
        finally:
            for filler in fillers:
                filler.close()


@asynccontextmanager
async def upstream_of(fault: Fault, wire: Wire, *, stream: bool, meets: Meets) -> AsyncIterator[Upstream]:
    """An upstream at which the requests that `meets` says meet `fault`."""
    if meets is not Meets.NONE and fault.listens is Listens.NO:
        yield _Nobody("127.0.0.1", free_port())
    elif meets is not Meets.NONE and fault.listens is Listens.FULL:
        async with _full() as nobody:
            yield nobody
    else:
        async with _Faulty(fault, wire, stream=stream, meets=meets) as origin:
            yield origin
