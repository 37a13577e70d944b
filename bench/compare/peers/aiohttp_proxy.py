"""The reference that is no product: aiohttp on uvloop, handing bytes on (byte_proxy.py)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from bench.compare.peers.base import CHAT, INSTALLER, Peer, Place, Target, Way, in_venv, program, venv_version
from bench.path import peers as path_peers


@contextlib.contextmanager
def start(place: Place) -> Iterator[Way]:
    port = path_peers.free_port()
    python = in_venv("aiohttp_proxy", "python")
    assert python is not None
    command = [python, Path(__file__).with_name("byte_proxy.py"), str(port), str(place.upstream.port)]
    with program(place, "aiohttp_proxy", command, port=port) as child:
        yield Way(lambda answer, speaks, tls: Target(port, f"/{answer}{CHAT}", "bench"), root=lambda answer: child.pid)


PEER = Peer(
    "aiohttp byte proxy",
    f"{INSTALLER} aiohttp_proxy",
    lambda: venv_version("aiohttp_proxy", "aiohttp"),
    start,
    keeps="nothing",
)
