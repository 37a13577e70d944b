"""LiteLLM's proxy with one worker and no database."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from bench.compare.peers.base import INSTALLER, KEY, Peer, Place, Target, Way, in_venv, path_of, program, venv_version
from bench.path import peers as path_peers

CONFIG = """
litellm_settings:
  telemetry: false
  use_chat_completions_url_for_anthropic_messages: true  # else it speaks Responses upstream
model_list:
"""
MODEL = """  - model_name: {answer}
    litellm_params: {{ model: openai/bench, api_base: "{url}/v1", api_key: {key} }}
"""
ENV = {
    "LITELLM_LOG": "ERROR",
    "LITELLM_MODE": "PRODUCTION",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it asks the network for prices
    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",  # nobody but us can reach it
}


@contextlib.contextmanager
def start(place: Place) -> Iterator[Way]:
    port = path_peers.free_port()
    config = place.folder / "litellm.yaml"
    config.write_text(CONFIG + "".join(MODEL.format(answer=a, url=place.url(a), key=KEY) for a in place.answers))
    command = [
        in_venv("litellm", "litellm") or "", "--config", config, "--host", "127.0.0.1", "--port", str(port),
        "--num_workers", "1",
    ]  # fmt: skip
    with program(place, "litellm", command, port=port, ready="/health/liveliness", env=ENV) as child:
        yield Way(lambda answer, speaks, tls: Target(port, path_of(speaks), answer), root=lambda answer: child.pid)


PEER = Peer(
    "LiteLLM", f"{INSTALLER} litellm", lambda: venv_version("litellm", "litellm"), start, crosses=True,
    keeps="prices and callbacks in memory, no database here",
)  # fmt: skip
