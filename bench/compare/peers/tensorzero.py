"""TensorZero's gateway, which its Python package has in it (in Rust); without its database, so without its books."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from bench.compare.peers.base import CHAT, INSTALLER, KEY, Peer, Place, Target, Way, in_venv, program, venv_version

CONFIG = """
[gateway]
observability.enabled = false
"""
MODEL = """
[models."{answer}"]
routing = ["mock"]
[models."{answer}".providers.mock]
type = "openai"
model_name = "bench"
api_base = "{url}/v1/"
api_key_location = "env::BENCH_KEY"
"""
# It chooses its port itself, and says which.
RUN = """
import signal, sys, tensorzero
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
gateway = tensorzero._start_http_gateway(
    config_file=sys.argv[1], clickhouse_url=None, postgres_url=None, valkey_url=None, async_setup=False)
print("listening at", gateway.base_url, flush=True)
signal.sigwait({signal.SIGTERM})
"""


@contextlib.contextmanager
def start(place: Place) -> Iterator[Way]:
    config = place.folder / "tensorzero.toml"
    config.write_text(CONFIG + "".join(MODEL.format(answer=a, url=place.url(a)) for a in place.answers))
    command = [in_venv("tensorzero", "python") or "", "-c", RUN, config]
    says = re.compile(r"listening at http://[^:\s]+:(\d+)/")
    with program(place, "tensorzero", command, port=says, env={"BENCH_KEY": KEY, "RUST_LOG": "error"}) as child:
        yield Way(
            lambda answer, speaks, tls: Target(child.port, f"/openai{CHAT}", f"tensorzero::model_name::{answer}"),
            root=lambda answer: child.pid,
        )


PEER = Peer(
    "TensorZero",
    f"{INSTALLER} tensorzero",
    lambda: venv_version("tensorzero", "tensorzero"),
    start,
    keeps="its own ids and metrics, no database here",
)
