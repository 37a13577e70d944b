"""nginx with `proxy_pass`, nothing buffered and nothing logged: the floor that every ratio is to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from bench.compare.peers.base import CHAT, Peer, Place, Speaks, Target, Way, said
from bench.path import peers as path_peers

# One more upstream for the same server, behind TLS and verified as the gateways verify it.
HTTP = (
    "upstream mock_tls {{ server 127.0.0.1:{port}; "
    "keepalive 2048; keepalive_requests 100000000; keepalive_timeout 600s; }}\n"
    "proxy_ssl_trusted_certificate {ca}; proxy_ssl_verify on; proxy_ssl_name localhost; proxy_ssl_server_name on; "
    "proxy_ssl_protocols TLSv1.3;"
)
SERVER = (
    'location /tls/ { proxy_pass https://mock_tls/; proxy_http_version 1.1; proxy_set_header Connection ""; '
    "proxy_buffering off; proxy_request_buffering off; proxy_read_timeout 600s; }"
)


def version() -> str | None:
    text = said("nginx", "-v")
    return text and text.rpartition("/")[2]


@contextlib.contextmanager
def start(place: Place) -> Iterator[Way]:
    up = place.upstream
    more = (HTTP.format(port=up.tls_port, ca=up.ca), SERVER) if up.tls_port else ("", "")
    with path_peers.nginx(place.folder, place.core, up.port, more=more) as peer:

        def target(answer: str, speaks: Speaks, tls: bool) -> Target:
            # It translates nothing: beside a crossing stands what chat on chat costs.
            return Target(peer.port, f"{'/tls' if tls else ''}/{answer}{CHAT}", "bench")

        yield Way(target, root=lambda answer: peer.pids[0], worker=peer.serving)


PEER = Peer("nginx", "apt-get install nginx-light", version, start, tls=True, keeps="nothing")
