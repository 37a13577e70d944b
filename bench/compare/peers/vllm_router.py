"""vllm-router: a router in Rust for servers of one kind. It has one set of upstreams, so one is started per answer."""

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
            in_venv("vllm_router", "vllm-router") or "", "--host", "127.0.0.1", "--port", str(port),
            "--worker-urls", place.url(answer), "--prometheus-port", str(path_peers.free_port()),
            "--max-concurrent-requests", "4096", "--log-level", "error",
        ]  # fmt: skip
        return program(place, f"vllm_router-{answer}", command, port=port)

    with one_per_answer(place, one, lambda answer: "bench") as way:
        yield way


PEER = Peer(
    "vllm-router", f"{INSTALLER} vllm_router", lambda: venv_version("vllm_router", "vllm_router"), start,
    keeps="metrics, a prefix tree",
)  # fmt: skip
