"""Arbiter as `arbiter serve` with one worker and everything on: rows, prefix identity, pins, metrics."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import arbiter
from bench.compare.peers.base import Peer, Place, Speaks, Target, Way, path_of
from bench.path import peers as path_peers

TLS_PROVIDER = """  tls-{answer}:
    type: openai
    endpoint: https://localhost:{port}/{answer}/v1
    key: bench-upstream-key
    models: [tls-{answer}]
    connections: {{ max: 4096, idle: 2048 }}
    tls: {{ ca: {ca} }}
"""


@contextlib.contextmanager
def start(place: Place) -> Iterator[Way]:
    up = place.upstream
    more = "".join(TLS_PROVIDER.format(answer=a, port=up.tls_port, ca=up.ca) for a in place.answers if up.tls_port)
    with path_peers.arbiter(place.folder, place.core, up.port, place.answers, more=more) as peer:

        def target(answer: str, speaks: Speaks, tls: bool) -> Target:
            return Target(peer.port, path_of(speaks), f"{'tls' if tls else 'openai'}-{answer}")

        yield Way(target, root=lambda answer: peer.pids[0], worker=peer.serving)


PEER = Peer(
    "Arbiter", "make build", lambda: arbiter.__version__, start, crosses=True, tls=True,
    keeps="a row per request and attempt, prefix identity, pins, metrics",
)  # fmt: skip
