"""rolter: a gateway in Rust for OpenAI's and Anthropic's formats, here without its database and control plane."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from bench.compare.peers.base import INSTALLER, Peer, Place, Target, Way, in_venv, path_of, program, venv_version
from bench.path import peers as path_peers

CONFIG = """
[server]
host = "127.0.0.1"
port = {port}
"""
ROUTE = """
[[providers]]
name = "{answer}"
kind = "openai_compatible"
api_base = "{url}"
[[routes]]
model = "{answer}"
[[routes.targets]]
provider = "{answer}"
model = "bench"
"""


@contextlib.contextmanager
def start(place: Place) -> Iterator[Way]:
    port = path_peers.free_port()
    config = place.folder / "rolter.toml"
    routes = "".join(ROUTE.format(answer=answer, url=place.url(answer)) for answer in place.answers)
    config.write_text(CONFIG.format(port=port) + routes)
    command = [in_venv("rolter", "rolter") or "", "gateway", "--config", config]
    with program(place, "rolter", command, port=port, env={"RUST_LOG": "error"}) as child:
        yield Way(lambda answer, speaks, tls: Target(port, path_of(speaks), answer), root=lambda answer: child.pid)


PEER = Peer(
    "rolter", f"{INSTALLER} rolter", lambda: venv_version("rolter", "rolter"), start, crosses=True,
    keeps="metrics, no database here",
)  # fmt: skip
