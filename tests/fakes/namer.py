"""A model that is asked for titles: a server of OpenAI's format on loopback that answers as a test says.

with Namer() as namer:
    namer.answer = lambda asked: "Fix the login\\nIt is about logging in."     # or a Reply
    ...; namer.asked[0]["messages"]
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


@dataclass
class Reply:
    """What is sent in place of a proper answer."""

    status: int = 200
    body: bytes = b""


class Namer:
    """`held` keeps every answer back while it is clear."""

    def __init__(self, port: int = 0) -> None:
        self.answer: Callable[[dict[str, Any]], str | Reply] = lambda asked: "A title\nA summary."
        self.asked: list[dict[str, Any]] = []
        self.held = threading.Event()
        self.held.set()
        self.port = port
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> Self:
        namer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
                namer.asked.append(asked)
                namer.held.wait(30)
                said = namer.answer(asked)
                reply = said if isinstance(said, Reply) else Reply(200, json.dumps(_completion(said)).encode())
                self.send_response(reply.status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)

            def log_message(self, *_: object) -> None:
                """The test's output is not the place for it."""

        server = self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        server.daemon_threads = True
        self.port = server.server_address[1]
        self._thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.held.set()
        assert self._server is not None and self._thread is not None
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


def _completion(text: str) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "n-served",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
    }
