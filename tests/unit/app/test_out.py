"""The client's end of an answer, as Granian hears of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from arbiter.app.out import Out

CLOSE = ("connection", "close")


class Heard:
    """Granian's protocol object, as far as a head."""

    def __init__(self) -> None:
        self.headers: list[list[tuple[str, str]]] = []

    def response_bytes(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.headers.append(headers)

    def response_empty(self, status: int, headers: list[tuple[str, str]]) -> None:
        self.headers.append(headers)

    def response_stream(self, status: int, headers: list[tuple[str, str]]) -> None:
        self.headers.append(headers)


@pytest.mark.parametrize(
    "answer",
    [
        lambda out, headers: out.reply(200, headers, b"{}"),
        lambda out, headers: out.reply(204, headers, b""),
        lambda out, headers: out.start(200, headers, b""),
    ],
    ids=["whole", "empty", "stream"],
)
def test_whoever_is_answered_while_the_gateway_drains_is_told_to_let_go_of_the_connection(answer: Any) -> None:
    """A client's pool would send its next request to a port that is about to close; and nobody else is told that."""
    heard, serving = Heard(), SimpleNamespace(draining=False)
    own = [("content-type", "application/json")]
    limits: Any = SimpleNamespace(stream_buffer=1 << 20)
    for _ in range(2):
        answer(Out(heard, serving, None, None, 0.0, limits), own)  # type: ignore[arg-type]
        serving.draining = True
    assert heard.headers == [own, [*own, CLOSE]]
    assert own == [("content-type", "application/json")], "whoever made them keeps them"
