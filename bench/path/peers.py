"""Who is measured: nobody in between, nginx, and the gateway. Each is started here, and stopped by its handle."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from bench import tools
from bench.path import process
from bench.tools import on_core

ROOT = Path(__file__).resolve().parents[2]
ARBITER = [sys.executable, "-m", "arbiter"]
CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"

# What the budget calls the floor: nothing buffered, nothing logged, connections kept on both sides.
NGINX = """
daemon off; master_process on; worker_processes 1; pid nginx.pid; error_log error.log crit; worker_rlimit_nofile 20000;
events {{ worker_connections 8192; multi_accept on; }}
http {{
    access_log off; tcp_nodelay on; keepalive_timeout 600s; keepalive_requests 100000000; server_tokens off;
    client_max_body_size 64m; client_body_buffer_size 1m;
    client_body_temp_path tmp/body; proxy_temp_path tmp/proxy;
    fastcgi_temp_path tmp/fastcgi; uwsgi_temp_path tmp/uwsgi; scgi_temp_path tmp/scgi;
    upstream mock {{ server 127.0.0.1:{mock}; keepalive 2048; keepalive_requests 100000000; keepalive_timeout 600s; }}
    {more[0]}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location = /health {{ return 200; }}
        {more[1]}
        location / {{
            proxy_pass http://mock; proxy_http_version 1.1; proxy_set_header Connection "";
            proxy_buffering off; proxy_request_buffering off; proxy_read_timeout 600s;
        }}
    }}
}}
"""

ARBITER_YAML = """
server: {{ bind: 127.0.0.1, port: {port}, workers: {workers} }}
storage: {{ url: "{store}" }}
state: "lmdb:///{data}/state"
telemetry: {{ log: {{ level: warn, format: json }} }}
providers:
"""

# The mock speaks either format; the provider's type says which, and so which clients are translated.
PROVIDER = """  {type}-{answer}:
    type: {type}
    endpoint: http://127.0.0.1:{mock}/{answer}/v1
    key: bench-upstream-key
    models: [{type}-{answer}]
    connections: {{ max: 4096, idle: 2048 }}
"""
PROVIDERS = ("openai", "anthropic")


@dataclass(frozen=True)
class Peer:
    """One way from the client to the mock. `serving` is the process whose CPU is compared, `pids` all that it needs.

    `speaks` is the client's format; the way `crosses` where the mock speaks the other one.
    """

    name: str
    port: int
    serving: int | None
    pids: tuple[int, ...]
    aim: Callable[[str], tuple[str, str]]  # what the mock shall answer -> the request's path and model
    speaks: Literal["chat", "messages"] = "chat"
    crosses: bool = False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running(child: subprocess.Popen[bytes], patience_s: float = 40) -> Iterator[subprocess.Popen[bytes]]:
    try:
        with tools.needed(child):
            yield child
    finally:
        child.terminate()
        try:
            child.wait(patience_s)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait(5)


def wait_for(port: int, child: subprocess.Popen[bytes], log: Path, patience_s: float = 30) -> None:
    """Until GET /health answers 200; RuntimeError with the end of the log when it never does."""
    give_up = time.monotonic() + patience_s
    while time.monotonic() < give_up and child.poll() is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
        try:
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        except OSError:
            time.sleep(0.05)
        finally:
            connection.close()
    raise RuntimeError(f"port {port} never answered:\n{log.read_text('utf-8', 'replace')[-3000:]}")


@contextlib.contextmanager
def mock(folder: Path, core: int | None) -> Iterator[Peer]:
    """The upstream, which is also the peer with nothing in between."""
    with (folder / "mock.log").open("wb") as log, tools.mock(core=core, log=log) as (port, pid):
        yield Peer("direct", port, None, (pid,), lambda answer: (f"/{answer}{CHAT}", "bench"))


@contextlib.contextmanager
def nginx(folder: Path, core: int | None, mock_port: int, *, more: tuple[str, str] = ("", "")) -> Iterator[Peer]:
    """nginx before the mock; `more` is what else its `http` and its `server` block hold."""
    program = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        raise RuntimeError("nginx is not here (Debian: apt-get install nginx-light)")
    home, port = folder / "nginx", free_port()
    (home / "tmp").mkdir(parents=True)
    config = home / "nginx.conf"
    user = "user root;\n" if os.geteuid() == 0 else ""
    config.write_text(user + NGINX.format(port=port, mock=mock_port, more=more))
    log = home / "out.log"
    with (
        log.open("wb") as out,
        running(
            subprocess.Popen(
                [program, "-p", str(home), "-c", str(config), "-e", str(home / "error.log")],
                stdout=out, stderr=out, preexec_fn=on_core(core),
            )
        ) as child,
    ):  # fmt: skip
        wait_for(port, child, log)
        pids = process.tree(child.pid)
        worker = process.server_of(port, pids)
        with tools.all_needed(pids):
            yield Peer("nginx", port, worker, tuple(pids), lambda answer: (f"/{answer}{CHAT}", "bench"))


@contextlib.contextmanager
def arbiter(
    folder: Path,
    core: int | None,
    mock_port: int,
    answers: Iterable[str],
    *,
    name: str = "arbiter",
    records: bool = True,
    workers: int = 1,
    more: str = "",
    patience_s: float = 30,
) -> Iterator[Peer]:
    """The gateway as `arbiter serve` with one worker and its books on; or off, where it `records` nothing.

    `more`: further providers, as they stand in its configuration. `patience_s`: how long it may take to start.
    """
    home, port = folder / name, free_port()
    (home / "data").mkdir(parents=True)
    config = home / "arbiter.yaml"
    config.write_text(
        ARBITER_YAML.format(
            port=port,
            workers=workers,
            data=home / "data",
            store=f"sqlite:///{home}/data/arbiter.db" if records else "none",
        )
        + "".join(
            PROVIDER.format(type=type, answer=answer, mock=mock_port)
            for answer in sorted(set(answers))
            for type in PROVIDERS
        )
        + more
    )
    env = {k: v for k, v in os.environ.items() if "proxy" not in k.lower()} | {
        "PYTHONPATH": str(ROOT),
        "ARBITER_DATA_DIR": str(home / "data"),
    }
    log = home / "out.log"
    with (
        log.open("wb") as out,
        running(
            subprocess.Popen(
                [*ARBITER, "serve", "--config", str(config)],
                cwd=home, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, preexec_fn=on_core(core),
            )
        ) as child,
    ):  # fmt: skip
        wait_for(port, child, log, patience_s)
        pids = process.tree(child.pid)
        worker = process.server_of(port, pids)
        with tools.all_needed(pids):
            yield Peer(name, port, worker, tuple(pids), lambda answer: (CHAT, f"openai-{answer}"))


def crossings(native: Peer) -> list[Peer]:
    """The same gateway where the client's format is not the upstream's, both ways."""
    return [
        replace(
            native,
            name="Messages on Chat",
            aim=lambda answer: (MESSAGES, f"openai-{answer}"),
            speaks="messages",
            crosses=True,
        ),
        replace(native, name="Chat on Messages", aim=lambda answer: (CHAT, f"anthropic-{answer}"), crosses=True),
    ]
