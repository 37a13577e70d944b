"""What it costs to find a client's socket among others, and to ask what it still owes."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import ModuleType

import pytest

Twin = Callable[[str], ModuleType]
Accepted = tuple[int, str, int]


@pytest.fixture(params=[1, 200])
def accepted(request: pytest.FixtureRequest) -> Iterator[Accepted]:
    """The last of so many connections: its descriptor, its client's address, and the listener's port."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        port = listener.getsockname()[1]
        for _ in range(request.param):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            server = stack.enter_context(listener.accept()[0])
        host, from_port = client.getsockname()
        yield server.fileno(), f"{host}:{from_port}", port


def test_find(twin: Twin, measure: Callable[..., None], accepted: Accepted) -> None:
    fd, peer, port = accepted
    find = twin("sock").find
    assert find(peer, port) == fd
    measure(lambda: find(peer, port), units=1)


def test_queued(twin: Twin, measure: Callable[..., None], accepted: Accepted) -> None:
    queued = twin("sock").queued
    assert queued(accepted[0]) == 0
    measure(lambda: queued(accepted[0]), units=1)
