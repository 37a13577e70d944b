"""Shepherd Model Gateway (it was sglang-router): a router in Rust; one is started per answer, as with vllm-router."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager

from bench.compare.peers.base import (
    INSTALLER,
    Peer,
    Place,
    Started,
    Way,
    in_venv,
    one_per_answer,
    program,
    venv_version,
)
from bench.path import peers as path_peers


@contextlib.contextmanager
def start(place: Place) -> Iterator[Way]:
    def one(answer: str, port: int) -> AbstractContextManager[Started]:
        command = [
            in_venv("smg", "smg") or "", "launch", "--host", "127.0.0.1", "--port", str(port),
            "--worker-urls", place.url(answer), "--prometheus-port", str(path_peers.free_port()),
            "--max-concurrent-requests", "4096", "--log-level", "error",
        ]  # fmt: skip
        return program(place, f"smg-{answer}", command, port=port)

    # A server that does not say which models it has is filed under this name.
    with one_per_answer(place, one, lambda answer: "unknown") as way:
        yield way


PEER = Peer("smg", f"{INSTALLER} smg", lambda: venv_version("smg", "smg"), start, keeps="metrics, a prefix tree")
