"""How control asks a worker for a model's answer: by the front door, as anybody would, with the key of this run."""

from __future__ import annotations

import contextlib
import http.client
import socket
from collections.abc import Mapping
from pathlib import Path

import msgspec

from arbiter import own
from arbiter.config.snapshot import Server
from arbiter.own import Own

MAX_ANSWER_BYTES = 1 << 20
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class NoAnswer(Exception):
    """There was none; the text says why. `was_sent`: a worker may have worked on it, and may have a row of it."""

    def __init__(self, message: str, *, was_sent: bool) -> None:
        super().__init__(message)
        self.was_sent = was_sent


class Answered(msgspec.Struct, frozen=True):
    status: int
    body: bytes


class Door:
    """The door of the gateway that listens as `server` says, and runs in `run_dir`."""

    def __init__(self, server: Server, run_dir: Path) -> None:
        self._server = server
        self._run_dir = run_dir

    def post(
        self, path: str, body: bytes, what: Own, *, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> Answered:
        """What a worker answers, whatever its status. Errors: NoAnswer, also where it takes longer than `timeout_s`."""
        asked = {"content-type": "application/json", **(headers or {}), **own.headers(what, own.key_of(self._run_dir))}
        was_sent = False
        with contextlib.closing(self._connection(timeout_s)) as connection:
            try:
                connection.connect()
                was_sent = True
                connection.request("POST", path, body, asked)
                with connection.getresponse() as answer:
                    read = answer.read(MAX_ANSWER_BYTES + 1)
            except (OSError, http.client.HTTPException) as error:
                raise NoAnswer(f"no worker answered: {error or type(error).__name__}", was_sent=was_sent) from error
        if len(read) > MAX_ANSWER_BYTES:
            raise NoAnswer(f"the answer is over {MAX_ANSWER_BYTES} bytes", was_sent=True)
        return Answered(answer.status, read)

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        server = self._server
        if server.socket is not None:
            return _UnixConnection(server.socket, timeout_s)
        return http.client.HTTPConnection(_EVERYWHERE.get(server.bind, server.bind), server.port, timeout=timeout_s)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
