"""An upstream in a process of its own that keeps a list of every request it saw, whatever becomes of the gateway.

    with Witness() as witness:                          # speaks chat completions at witness.url
        ...  body: {..., "user": "id-1", "play": {"events": 50, "every_s": 0.02}}
        assert witness.seen() == {"id-1": 1}

A request names itself in `user` and chooses its answer in `play`: `wait_s` before the head, `events` and `every_s` of a
stream, `held` for what goes no further than the first event before `release()`, `fail` for a stream that is cut
after its events, `status` for an error. `headers_seen()` has what came with the requests. It knows nothing of the
gateway, and imports nothing of it.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

from tests.fakes.apart import Apart, serve


class Witness(Apart):
    """The process, as tests start and ask it."""

    MODULE = "tests.fakes.witness"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def seen(self) -> Counter[str]:
        """How often each request was seen, by its `user`."""
        return Counter(name for name, _ in self._ask("/seen"))

    def release(self) -> None:
        """From now on nothing is held, nor what comes later."""
        self._ask("/release")

    def headers_seen(self, name: str) -> dict[str, str]:
        """The headers of the last request called `name`."""
        return dict(next(headers for known, headers in reversed(self._ask("/seen")) if known == name))


# --- the process itself -----------------------------------------------------------------------------------------------

_seen: list[tuple[str, dict[str, str]]] = []
_released = asyncio.Event()


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            pairs = (line.partition(":") for line in head[1:-2])
            headers = {name.lower(): value.strip() for name, _, value in pairs}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            if head[0].startswith("GET /seen"):
                _answer(writer, "200 OK", json.dumps(_seen).encode())
            elif head[0].startswith("GET /release"):
                _released.set()
                _answer(writer, "200 OK", b"null")
            else:
                asked = json.loads(body)
                _seen.append((asked["user"], headers))
                await _play(writer, asked)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
        pass  # the gateway hung up, or the test is over
    finally:
        writer.close()


def _answer(writer: asyncio.StreamWriter, status: str, body: bytes) -> None:
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)


async def _play(writer: asyncio.StreamWriter, asked: dict[str, Any]) -> None:
    play = asked.get("play", {})
    await asyncio.sleep(play.get("wait_s", 0))
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    named = {"id": f"chatcmpl-{asked['user']}", "created": 1, "model": "served"}
    if "status" in play:
        _answer(writer, f"{play['status']} Failed", b'{"error":{"message":"as the test wants","type":"server_error"}}')
        return
    if not asked.get("stream"):
        if play.get("held"):
            await _released.wait()
        message = {"role": "assistant", "content": "hello"}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        whole = {**named, "object": "chat.completion", "choices": choices, "usage": usage}
        _answer(writer, "200 OK", json.dumps(whole).encode())
        return

    def send(value: dict[str, Any] | str) -> None:
        data = value if isinstance(value, str) else json.dumps({**named, "object": "chat.completion.chunk", **value})
        event = f"data: {data}\n\n".encode()
        writer.write(b"%x\r\n%b\r\n" % (len(event), event))

    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    for number in range(play.get("events", 3)):
        send({"choices": [{"index": 0, "delta": {"content": f"{number} "}, "finish_reason": None}]})
        await writer.drain()
        if play.get("held"):
            await _released.wait()
        await asyncio.sleep(play.get("every_s", 0))
    if play.get("fail"):
        writer.transport.abort()
        return
    send({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    if (asked.get("stream_options") or {}).get("include_usage"):
        send({"choices": [], "usage": usage})
    send("[DONE]")
    writer.write(b"0\r\n\r\n")


if __name__ == "__main__":
    serve(_serve)
