"""The echo provider: an upstream without a network, which answers real wire bytes in every format.

`Echo.send` reads the request as the format's own server would, lets `echo_script` decide what to say, and drives an
`Exchange` exactly as a connection does: head, pushes, end. So everything above it (budgets, pauses, aborts, the native
lane, the books) runs as it does over sockets.

    waiting --delay over--> head --pushes, one a turn of the loop--> end(None), or end(Cut) where the script says so

A paused player holds its next push; an aborted one never speaks again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import unquote

import msgspec

from arbiter.attempt import echo_script, echo_vectors
from arbiter.attempt.echo_script import Bytes, Ping, Script, Stop, Wait
from arbiter.clock import monotonic, now_ms
from arbiter.errors import ArbiterError, BadRequest, ClientError, Cut, ErrorClass, NotFound, UpstreamStatus
from arbiter.fold import collect
from arbiter.model import Ended, Event, Failed, Finish, Finished, Request, Started, Usage, UsageReported
from arbiter.upstream.transport import Exchange, Outgoing
from arbiter.wire.format import FORMATS, WIRES, Format, Wire
from arbiter.wire.gemini_names import to_count

if TYPE_CHECKING:
    from arbiter.config.snapshot import Budgets

PUSH_BYTES = 16 << 10
"""Bytes that a socket would have ready in one read, where nothing paces the stream."""

_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Echo:
    """One worker's echo provider. Create it on the loop."""

    def __init__(self) -> None:
        self._active: set[Exchange] = set()

    async def send(self, out: Outgoing, wire: str, budgets: Budgets, *, stream: bool) -> Exchange:
        """Answer `out`, which is in the format `wire`; returns at the head.

        Errors: TimedOut("headers" | "unary" | "total") where the script's delay is longer than the budget.
        """
        play = _read(out, WIRES[wire])
        exchange = Exchange(budgets, stream, _interval(budgets), self._active)
        exchange.queue_us = 0
        head = asyncio.get_running_loop().create_future()
        player = _Player(exchange, play)
        exchange.begin(player, head, reused=False)
        player.start()
        try:
            await head
        except BaseException:
            exchange.abort()
            player.abort()
            raise
        return exchange

    async def close(self) -> None:
        """End every exchange in flight."""
        for exchange in list(self._active):
            exchange.give_up(Cut("the gateway is closing"))


class _Play(msgspec.Struct):
    """An answer, ready to be played. A push of None is silence for ever."""

    status: int
    headers: list[tuple[str, str]]
    pushes: Iterator[tuple[float, bytes | None]]
    length: int = -1
    delay_s: float = 0.0
    cut: bool = False


class _Player:
    """The connection that is none: drives an exchange with timers, one push a turn of the loop."""

    def __init__(self, exchange: Exchange, play: _Play) -> None:
        self._loop = asyncio.get_running_loop()
        self._exchange = exchange
        self._play = play
        self._paused = False
        self._over = False
        self._held = False  # a push is due, and waits for `resume`
        self._next: tuple[float, bytes | None] | None = None
        self._timer: asyncio.Handle | None = None
        self._watch: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._timer = self._loop.call_later(self._play.delay_s, self._head)
        self._watch = self._loop.call_later(self._exchange.interval, self._check)

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        if self._held:
            self._held = False
            self._timer = self._loop.call_soon(self._push)

    def release(self) -> None:
        self.abort()

    def abort(self) -> None:
        self._over = True
        self._held = False
        for handle in (self._timer, self._watch):
            if handle is not None:
                handle.cancel()
        self._timer = self._watch = None

    def _check(self) -> None:
        late = self._exchange.overdue(monotonic())
        if late is not None:
            self.abort()
            self._exchange.give_up(late)
        else:
            self._watch = self._loop.call_later(self._exchange.interval, self._check)

    def _head(self) -> None:
        play = self._play
        self._exchange.on_head(play.status, play.headers, play.length, False)
        self._plan()

    def _plan(self) -> None:
        """Arm the timer for the next push; at the last one, end."""
        if self._over:
            return
        self._next = next(self._play.pushes, None)
        if self._next is None:
            self._end()
            return
        wait_s, data = self._next
        if data is None:
            return
        self._timer = self._loop.call_later(wait_s, self._push) if wait_s else self._loop.call_soon(self._push)

    def _push(self) -> None:
        if self._paused:
            self._held = True
            return
        data = self._next[1] if self._next is not None else None
        if data:
            self._exchange.last_activity = monotonic()
            self._exchange.push(data)
        self._plan()

    def _end(self) -> None:
        exchange = self._exchange
        self.abort()
        exchange.part()
        exchange.end(Cut("the upstream closed the connection before the answer was whole") if self._play.cut else None)


def _interval(budgets: Budgets) -> float:
    """Seconds between two looks at the budgets: a fraction of the smallest, so that tests with small ones are quick."""
    smallest = min((seconds for _, seconds in budgets.items() if seconds > 0), default=2.0)
    return min(0.5, max(0.005, smallest / 4))


# --- Reading the request, composing the answer ------------------------------------------------------------------------


def _read(out: Outgoing, wire: Wire) -> _Play:
    path = out.path.partition("?")[0].rstrip("/")
    try:
        if out.method == "GET" and path.endswith("/models"):
            return _whole(wire, 200, msgspec.json.encode(_MODELS))
        if out.method != "POST":
            raise NotFound(f"the echo provider has nothing at {out.method} {path}")
        members = {**_told_in(path), **_members(bytes(out.body))}
        if wire.name == "embeddings":
            return _whole(wire, 200, echo_vectors.answer(members))
        format = FORMATS[wire.name]
        request = format.parse_request(members)
        if path.endswith(":countTokens"):
            request = format.parse_request({**members, **to_count(members)})
            return _whole(format, 200, msgspec.json.encode({"totalTokens": echo_script.count(request)}))
        if path.endswith("/count_tokens"):
            return _whole(format, 200, msgspec.json.encode({"input_tokens": echo_script.count(request)}))
        if path.endswith("/input_tokens"):
            counted = {"object": "response.input_tokens", "input_tokens": echo_script.count(request)}
            return _whole(format, 200, msgspec.json.encode(counted))
        if path.endswith("/compact"):
            return _whole(format, 200, msgspec.json.encode(_compaction(request)))
        prefix = "toolu_" if format.name == "anthropic-messages" else "call_"
        script = echo_script.read(request, out.headers, lambda: prefix + _fresh()[:24])
        return _compose(script, request, format)
    except ClientError as error:
        return _fault(wire, error.status, error)


def _told_in(path: str) -> dict[str, msgspec.Raw]:
    """What Gemini says in a path and others in the body."""
    named, colon, method = path.partition("/models/")[2].rpartition(":")
    if not colon:
        return {}
    told = {"model": unquote(named), "stream": method.startswith("stream")}
    return {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in told.items()}


def _members(body: bytes) -> dict[str, msgspec.Raw]:
    try:
        return _MEMBERS.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BadRequest(f"the request body is not a JSON object: {error}") from error


_MODELS = {
    "object": "list",
    "data": [
        {
            "id": "echo",
            "object": "model",
            "created": 1700000000,
            "owned_by": "arbiter",
            "type": "model",
            "display_name": "Echo",
            "created_at": "2023-11-14T22:13:20Z",
        }
    ],
    "has_more": False,
    "first_id": "echo",
    "last_id": "echo",
}


def _compaction(request: Request) -> dict[str, object]:
    """What a conversation is compacted to: an item that nobody can read, and need not."""
    item = {"id": f"cmp_{_fresh()}", "type": "compaction", "encrypted_content": _fresh()}
    usage = {"input_tokens": echo_script.count(request), "output_tokens": 1}
    return {
        "id": f"resp_{_fresh()}",
        "object": "response.compaction",
        "created_at": now_ms() // 1000,
        "output": [item],
        "usage": {**usage, "total_tokens": sum(usage.values())},
    }


def _fresh() -> str:
    return os.urandom(16).hex()


def _head(format: Wire, content_type: str) -> list[tuple[str, str]]:
    name = "request-id" if format.name == "anthropic-messages" else "x-request-id"
    return [("content-type", content_type), (name, f"req_{_fresh()[:24]}")]


def _whole(format: Wire, status: int, body: bytes, content_type: str = "application/json") -> _Play:
    headers = [*_head(format, content_type), ("content-length", str(len(body)))]
    return _Play(status, headers, iter([(0.0, body)]) if body else iter(()), len(body))


def _fault(format: Wire, status: int, error: ArbiterError) -> _Play:
    _, headers, body = format.write_error(error, f"req_{_fresh()[:24]}")
    play = _whole(format, status, body)
    play.headers += [(name, value) for name, value in headers if name not in ("content-type", "retry-after")]
    return play


def _compose(script: Script, request: Request, format: Format) -> _Play:
    if script.error is not None:
        status, code, message = script.error
        named = format.parse_error(status, (), b"")
        play = _fault(format, status, UpstreamStatus(code or named.code, status, b"", (), message))
    elif script.body is not None:
        status, text = script.body
        kind = (
            "text/html" if text.lstrip()[:1] == "<" else "application/json" if text[:1] in ("{", "[") else "text/plain"
        )
        play = _whole(format, status, text.encode(), kind)
    elif request.stream:
        play = _Play(200, _head(format, "text/event-stream; charset=utf-8"), _stream(script, request, format))
        play.cut = Stop.CUT in script.acts
    else:
        play = _unary(script, request, format)
    play.delay_s = script.delay_s
    play.headers += script.headers
    return play


def _usage(script: Script, request: Request) -> Usage | None:
    if script.no_usage:
        return None
    output, reasoning = echo_script.count_output(script.acts)
    usage = Usage(input=echo_script.count(request), output=output, reasoning=reasoning or None)
    return usage.merged(script.usage) if script.usage is not None else usage


def _finished(script: Script) -> Finished:
    finish = script.finish or (Finish.TOOL_CALLS if script.calls else Finish.STOP)
    return Finished(finish, script.stop_sequence)


def _events(script: Script) -> Iterator[Event]:
    for act in script.acts:
        if not isinstance(act, Wait | Bytes | Ping | Stop):
            yield act


def _unary(script: Script, request: Request, format: Format) -> _Play:
    """Return the answer in one piece. It is silent until it is whole, so every wait is one before the head."""
    failed = next((act for act in script.acts if isinstance(act, Failed)), None)
    if failed is not None:
        status = 503 if failed.error.code is ErrorClass.OVERLOADED else 500
        return _fault(format, status, UpstreamStatus(failed.error.code, status, b"", (), str(failed.error)))
    usage = _usage(script, request)
    reported: list[Event] = [UsageReported(usage)] if usage is not None else []
    answer = collect([Started(), *_events(script), _finished(script), *reported, Ended()])
    body = format.write_answer(answer, _fresh(), script.model or request.model, now_ms() // 1000)
    play = _whole(format, 200, body)
    script.delay_s += sum(act.seconds for act in script.acts if isinstance(act, Wait))
    if Stop.CUT in script.acts:
        play.pushes, play.cut = iter([(0.0, body[: len(body) // 2])]), True
    elif Stop.HANG in script.acts:
        play.pushes = iter([(0.0, None)])
    return play


def _stream(script: Script, request: Request, format: Format) -> Iterator[tuple[float, bytes | None]]:
    """Return the pushes of a stream: seconds to wait, then bytes."""
    steps = _steps(script, request, format)
    if script.split:
        for wait_s, data in steps:
            for start in range(0, len(data or b""), script.split):
                yield (0.0 if start else wait_s), data[start : start + script.split] if data else None
            if not data:
                yield wait_s, data
        return
    # What is ready at the same moment comes in one read, cut where the buffer ends, not where an event does.
    ready, waited = b"", 0.0
    for wait_s, data in steps:
        if (wait_s or data is None) and ready:
            yield waited, ready
            ready, waited = b"", 0.0
        if data is None:
            yield waited, None
            return
        ready += data
        waited += wait_s
        while len(ready) >= PUSH_BYTES:
            yield waited, ready[:PUSH_BYTES]
            ready, waited = ready[PUSH_BYTES:], 0.0
    yield waited, ready


def _steps(script: Script, request: Request, format: Format) -> Iterator[tuple[float, bytes | None]]:
    model = script.model or request.model
    writer = format.writer(_fresh(), model, now_ms() // 1000, include_usage=request.include_usage)
    usage = _usage(script, request)
    start = Usage(input=usage.input, cache_read=usage.cache_read, cache_write=usage.cache_write) if usage else None
    yield 0.0, writer.write(Started(usage=start if format.name == "anthropic-messages" else None))
    failed = False
    for act in script.acts:
        if isinstance(act, Wait):
            yield act.seconds, b""
        elif isinstance(act, Ping):
            yield script.pace_s, format.keepalive
        elif isinstance(act, Bytes):
            yield script.pace_s, act.data
        elif act is Stop.HANG:
            yield 0.0, None
        elif act is Stop.CUT:
            return
        elif not isinstance(act, Stop) and not failed:
            failed = isinstance(act, Failed)
            yield script.pace_s, writer.write(act)
    if failed:
        return
    finished = b"" if script.no_finish else writer.write(_finished(script))
    yield script.pace_s, finished
    reported = writer.write(UsageReported(usage)) if usage is not None else b""
    yield 0.0, reported
    yield 0.0, _ending(script, writer.write(Ended()) if not script.no_finish else b"", format)


_TERMINALS = {
    "openai-chat": b"data: [DONE]\n\n",
    "anthropic-messages": b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
}
"""What comes behind the finish reason. Responses have nothing there: their terminal event is what says it."""


def _ending(script: Script, ending: bytes, format: Format) -> bytes:
    """Return the last bytes of a stream: all of them, or without what the script leaves out."""
    terminal = _TERMINALS.get(format.name, b"")
    if script.no_finish:
        return terminal
    if script.no_done:
        return ending.removesuffix(terminal) if terminal else b""
    return ending
