"""How control asks a worker for a model's answer: by the front door, as anybody would, with the key of this run."""

from __future__ import annotations

import contextlib
import http.client
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from arbiter import own
from arbiter.clock import Deadline
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
        self,
        path: str,
        body: bytes,
        what: Own,
        *,
        timeout_s: float,
        headers: Mapping[str, str] | None = None,
        limit_bytes: int = MAX_ANSWER_BYTES,
    ) -> Answered:
        """What a worker answers, whatever its status.

        Errors: NoAnswer, also where it takes longer than `timeout_s` from here to the answer's last byte, or is over
        `limit_bytes`.
        """
        asked = {"content-type": "application/json", **(headers or {}), **own.headers(what, own.key_of(self._run_dir))}
        was_sent = False
        with contextlib.closing(_Connection(self._server, Deadline(timeout_s))) as connection:
            try:
                connection.connect()
                was_sent = True
                connection.request("POST", path, body, asked)
                with connection.getresponse() as answer:
                    read = answer.read(limit_bytes + 1)
            except (OSError, http.client.HTTPException) as error:
                raise NoAnswer(f"no worker answered: {error or type(error).__name__}", was_sent=was_sent) from error
        if len(read) > limit_bytes:
            raise NoAnswer(f"the answer is over {limit_bytes} bytes", was_sent=True)
        return Answered(answer.status, read)


class _Connection(http.client.HTTPConnection):
    """To where `server` listens, for as long as `deadline` leaves."""

    def __init__(self, server: Server, deadline: Deadline) -> None:
        super().__init__(_EVERYWHERE.get(server.bind, server.bind), server.port)
        self._path = server.socket
        self._deadline = deadline

    def connect(self) -> None:
        if self._path is None:
            opened = socket.create_connection((self.host, self.port), _left_s(self._deadline))
        else:
            opened = socket.socket(socket.AF_UNIX)
            try:
                opened.settimeout(_left_s(self._deadline))
                opened.connect(self._path)
            except OSError:
                opened.close()
                raise
        self.sock = _Line(self._deadline, opened)


class _Line(socket.socket):
    """A socket of which each operation has what the ones before it left of the whole time.

    A time-out of a socket's own begins anew with every byte: whoever drips one every few seconds keeps us for ever.
    """

    def __init__(self, deadline: Deadline, opened: socket.socket) -> None:
        super().__init__(fileno=opened.detach())
        self._deadline = deadline

    def sendall(self, data: Any, flags: int = 0) -> None:
        self.settimeout(_left_s(self._deadline))
        super().sendall(data, flags)

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        self.settimeout(_left_s(self._deadline))
        return super().recv_into(buffer, nbytes, flags)


def _left_s(deadline: Deadline) -> float:
    """Errors: TimeoutError where nothing is left; a socket would take 0 for "do not wait"."""
    left_s = deadline.left_s()
    if left_s <= 0:
        raise TimeoutError("timed out")
    return left_s
