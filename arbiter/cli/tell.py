"""What a command has to tell or to ask the gateways that run on a data directory, over their control processes' own
sockets.

Only our own user can open those, so no token is needed; a worker's gate is for everybody else.
"""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from arbiter.app.running import gateways, is_held
from arbiter.cli import CommandError
from arbiter.clock import monotonic

ANSWER_S = 30.0
STARTS_S = 10.0
AGAIN_S = 0.1


def tell(data_dir: Path, path: str) -> int:
    """POST to each of them; how many there were. What was asked for holds in all of them once this returns.

    Errors: CommandError where one of them did not do it; the others may have.
    """
    told = 0
    for control in gateways(data_dir):
        answer = _post(control, path)
        if answer is not None:
            told += 1
            if pending := answer.get("pending"):
                raise CommandError(f"written, but not yet heard by {', '.join(pending)}; they will when they wake")
    return told


def ask(data_dir: Path, path: str, asked: Mapping[str, str]) -> tuple[int, Any] | None:
    """GET from the first of them that answers: the status, and the value of the JSON; None where none does."""
    for control in gateways(data_dir):
        connection = _Connection(control)
        try:
            connection.request("GET", f"{path}?{urlencode(asked)}")
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError):
            continue  # it is just starting, or about to end
        finally:
            connection.close()
    return None


def _post(control: Path, path: str) -> dict[str, Any] | None:
    """The answer of one; None where it has ended meanwhile."""
    until = monotonic() + STARTS_S
    while True:
        connection = _Connection(control)
        try:
            connection.request("POST", path)
            response = connection.getresponse()
            status, body = response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            if not is_held(control.parent):
                return None
            if monotonic() >= until:
                raise CommandError(
                    f"written, but the running gateway could not be told ({error}); "
                    "`arbiter keys list` shows what it will know once it starts again"
                ) from error
            time.sleep(AGAIN_S)  # it, or its control process, is just starting
            continue
        finally:
            connection.close()
        try:
            answer: dict[str, Any] = json.loads(body)
        except ValueError:
            answer = {}
        if status != 200:
            raise CommandError(
                f"written, but the running gateway does not take it: {answer.get('detail', f'it answered {status}')}"
            )
        return answer


class _Connection(http.client.HTTPConnection):
    """To a unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=ANSWER_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))
