"""An upstream in a process of its own, in both formats, that writes down each request it saw and how it answered.

    with Notary() as notary:                            # tests.fakes.wires.config(notary.port)
        ...  a message that says `errand("call-7", fail=1, how="reset", events=5)`
        for sight in notary.seen(): sight.name, sight.answered

A request says in its message what becomes of it, so that a translation changes nothing: how often it `fail`s before it
is served and `how` (a status, or `reset`), how many `events` a stream has, `every` how many seconds and after what
`wait`, and whether it is `cut` behind them. Each answer has an id of its own, which the gateway keeps with the attempt.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from dataclasses import asdict, dataclass

from tests.fakes.apart import Apart, serve
from tests.fakes.origin import LAST_CHUNK, answer, chunk
from tests.fakes.wires import CHAT, MESSAGES, Wire, sse_head

_ERRAND = re.compile(r"<([a-z0-9-]+)\|([^>]*)>")


def errand(name: str, **play: object) -> str:
    """What a message says to get what `play` says."""
    return f"<{name}|{' '.join(f'{key}={value}' for key, value in play.items())}>"


@dataclass
class Sight:
    """One request as the upstream saw it. `answered`: open | whole | cut | failed | gone (the gateway hung up)."""

    name: str
    id: str
    answered: str = "open"


class Notary(Apart):
    """The process, as tests start and ask it."""

    MODULE = "tests.fakes.notary"

    def seen(self) -> list[Sight]:
        """Every request so far, in order of arrival."""
        return [Sight(**found) for found in self._ask("/seen")]


# --- the process itself -----------------------------------------------------------------------------------------------


class _Office:
    def __init__(self) -> None:
        self.seen: list[Sight] = []
        self.times: Counter[str] = Counter()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                length = re.search(r"content-length: (\d+)", head, re.IGNORECASE)
                body = (await reader.readexactly(int(length[1]) if length else 0)).decode()
                if head.startswith("GET /seen"):
                    _answer(writer, "200 OK", json.dumps([asdict(sight) for sight in self.seen]).encode())
                else:
                    await self._answer(writer, "/messages" in head.partition("\r\n")[0], body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the gateway hung up, or the test is over
        finally:
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, is_messages: bool, body: str) -> None:
        found = _ERRAND.search(body)
        assert found is not None, body
        name, play = found[1], dict(part.split("=") for part in found[2].split())
        sight = Sight(name, f"sight-{len(self.seen)}")
        self.seen.append(sight)
        self.times[name] += 1
        try:
            await asyncio.sleep(float(play.get("wait", 0)))
            if self.times[name] <= int(play.get("fail", 0)):
                sight.answered = "failed"
                if play.get("how") == "reset":
                    # Not before the first byte: on a kept connection that would be sent again, which is no attempt.
                    writer.write(b"HTTP/1.1 200")
                    await asyncio.sleep(0.005)
                    writer.transport.abort()
                    return
                told = b'{"error":{"message":"as the test wants","type":"server_error"}}'
                _answer(writer, f"{play.get('how', 503)} Failed", told, sight.id)
                return
            await self._serve(writer, MESSAGES if is_messages else CHAT, sight, play, '"stream":true' in body)
        finally:
            if sight.answered == "open":
                sight.answered = "gone"

    async def _serve(
        self, writer: asyncio.StreamWriter, wire: Wire, sight: Sight, play: dict[str, str], is_stream: bool
    ) -> None:
        if not is_stream:
            sight.answered = "whole"
            _answer(writer, "200 OK", wire.answer(sight.name), sight.id)
            return
        said = wire.events(*(f"{sight.name} {number};" for number in range(int(play.get("events", 3)))))
        writer.write(sse_head(("x-request-id", sight.id)))
        for event in said[:-3]:
            writer.write(chunk(event))
            await writer.drain()
            if writer.is_closing():
                return
            await asyncio.sleep(float(play.get("every", 0)))
        if "cut" in play:
            sight.answered = "cut"
            writer.transport.abort()
            return
        sight.answered = "whole"
        writer.write(b"".join(map(chunk, said[-3:])) + LAST_CHUNK)


def _answer(writer: asyncio.StreamWriter, status: str, body: bytes, sight_id: str = "") -> None:
    writer.write(
        answer(body, status=status, headers=[("content-type", "application/json"), ("x-request-id", sight_id)])
    )


if __name__ == "__main__":
    serve(_Office().serve)
