"""HAProxy as a plain reverse proxy."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator

from bench.compare.peers.base import CHAT, INSTALLER, Peer, Place, Target, Way, program, said
from bench.path import peers as path_peers

# option http-no-delay: without it a chunk waits for the next one.
CONFIG = """
global
    nbthread 1
    maxconn 8192
defaults
    mode http
    option http-no-delay
    http-reuse always
    timeout connect 10s
    timeout client 600s
    timeout server 600s
frontend front
    bind 127.0.0.1:{port} backlog 4096
    monitor-uri /health
    default_backend mock
backend mock
    server mock 127.0.0.1:{mock} pool-max-conn 2048
"""


def version() -> str | None:
    found = re.search(r"version (\d+\.\d+\.\d+)", said("haproxy", "-v") or "")
    return found and found.group(1)


@contextlib.contextmanager
def start(place: Place) -> Iterator[Way]:
    port = path_peers.free_port()
    config = place.folder / "haproxy.cfg"
    config.write_text(CONFIG.format(port=port, mock=place.upstream.port))
    found = shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin") or "haproxy"
    with program(place, "haproxy", [found, "-f", config], port=port) as child:
        yield Way(lambda answer, speaks, tls: Target(port, f"/{answer}{CHAT}", "bench"), root=lambda answer: child.pid)


PEER = Peer("haproxy", f"{INSTALLER} haproxy", version, start, keeps="nothing")
