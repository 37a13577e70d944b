"""A client's end that takes a stream as a JSON array, as Google's `:streamGenerateContent` gives it without `alt=sse`.

Inside, a stream is events, whoever asked for it. Here each event's data becomes an element:

    start: the head, as JSON --events--> `[`, then the elements with commas between them --end--> `]`
    fail_stream --> the error is the last element, and the array ends or breaks off as any stream does

An error before the stream began is an array of one, as Google's is. Between elements JSON allows blanks, so this stream
has keepalives where the one of events has none.
"""

from __future__ import annotations

from arbiter._speedups import sse
from arbiter.attempt.client_end import ClientEnd, Passing
from arbiter.wire.headers import Pairs

_BLANK = b"\n"
_JSON = ("content-type", "application/json; charset=UTF-8")


class ArrayEnd(Passing):
    """`end`, to which events go as the elements of an array."""

    __slots__ = ("_has_any", "_reader")

    def __init__(self, end: ClientEnd, limit: int) -> None:
        super().__init__(end)
        self._reader = sse.SSEReader(limit)
        self._has_any = False

    def reply(self, status: int, headers: Pairs, body: bytes) -> None:
        """Send a whole answer: the elements of a stream that came at once, else one."""
        if _is_events(headers):
            body = b"".join((self._elements(body), self._closing()))
        elif body.lstrip()[:1] == b"{":
            body = b"[" + body + b"]\n"
        self._end.reply(status, _as_json(headers), body)

    def start(self, status: int, headers: Pairs, keepalive: bytes) -> None:
        self._end.start(status, _as_json(headers), _BLANK)

    def send(self, data: bytes) -> None:
        elements = self._elements(data)
        if elements:
            self._end.send(elements)

    def end(self) -> None:
        self._end.send(self._closing())
        self._end.end()

    async def fail_stream(self, event: bytes, *, abrupt: bool) -> None:
        last = self._elements(event)
        await self._end.fail_stream(last if abrupt else last + self._closing(), abrupt=abrupt)

    def _elements(self, data: bytes) -> bytes:
        reader = self._reader
        reader.open(data)
        found: list[bytes] = []
        while (event := reader.next()) is not None:
            if event[1].strip():
                found += b",\r\n" if self._has_any else b"[", event[1]
                self._has_any = True
        return b"".join(found)

    def _closing(self) -> bytes:
        return b"\n]\n" if self._has_any else b"[]\n"


def _is_events(headers: Pairs) -> bool:
    return any(name == "content-type" and value.startswith("text/event-stream") for name, value in headers)


def _as_json(headers: Pairs) -> Pairs:
    return [pair for pair in headers if pair[0] != "content-type"] + [_JSON]
