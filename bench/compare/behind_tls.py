"""The mock upstream behind TLS: nginx ends it, on the client's core, so that only what a gateway does is its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from bench import tools
from bench.compare.peers.base import Upstream
from bench.path import peers as path_peers

CONFIG = """
daemon off; worker_processes 1; pid nginx.pid; error_log error.log crit; worker_rlimit_nofile 20000; {user}
events {{ worker_connections 8192; multi_accept on; }}
http {{
    access_log off; tcp_nodelay on; keepalive_timeout 600s; keepalive_requests 100000000; client_max_body_size 64m;
    client_body_temp_path tmp; proxy_temp_path tmp; fastcgi_temp_path tmp; uwsgi_temp_path tmp; scgi_temp_path tmp;
    ssl_certificate server.pem; ssl_certificate_key server.key; ssl_protocols TLSv1.3;
    upstream mock {{ server 127.0.0.1:{mock}; keepalive 2048; keepalive_requests 100000000; keepalive_timeout 600s; }}
    server {{
        listen 127.0.0.1:{port} ssl backlog=4096;
        location = /health {{ return 200; }}
        location / {{
            proxy_pass http://mock; proxy_http_version 1.1; proxy_set_header Connection "";
            proxy_buffering off; proxy_request_buffering off; proxy_read_timeout 600s;
        }}
    }}
    server {{ listen 127.0.0.1:{plain}; location = /health {{ return 200; }} }}
}}
"""


@contextlib.contextmanager
def behind_tls(folder: Path, core: int | None, mock_port: int) -> Iterator[Upstream]:
    """The mock on its own port and on one with TLS, and the authority that signed for `localhost`."""
    import trustme  # which only this needs

    home = folder / "tls"
    (home / "tmp").mkdir(parents=True)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(home / "ca.pem"))
    issued = authority.issue_cert("localhost", "127.0.0.1")
    issued.private_key_pem.write_to_path(str(home / "server.key"))
    for part in issued.cert_chain_pems:
        part.write_to_path(str(home / "server.pem"), append=True)
    port, plain = path_peers.free_port(), path_peers.free_port()
    user = "user root;" if os.geteuid() == 0 else ""
    (home / "nginx.conf").write_text(CONFIG.format(mock=mock_port, port=port, plain=plain, user=user))
    program = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin") or "nginx"
    log = home / "out.log"
    command = [program, "-p", str(home), "-c", str(home / "nginx.conf"), "-e", str(home / "error.log")]
    with (
        log.open("wb") as out,
        path_peers.running(subprocess.Popen(command, stdout=out, stderr=out, preexec_fn=tools.on_core(core))) as child,
    ):
        path_peers.wait_for(plain, child, log)
        yield Upstream(mock_port, port, home / "ca.pem")
