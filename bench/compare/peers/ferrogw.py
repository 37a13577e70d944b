"""Ferro Labs AI Gateway, in Go. A provider's address is one environment variable, so one is started per answer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager

from bench.compare.peers.base import (
    INSTALLER,
    KEY,
    Peer,
    Place,
    Started,
    Way,
    in_venv,
    one_per_answer,
    program,
    venv_version,
)

CONFIG = """
strategy: {{ mode: fallback }}
targets:
  - virtual_key: openai
    models: [{answer}]
"""


@contextlib.contextmanager
def start(place: Place) -> Iterator[Way]:
    def one(answer: str, port: int) -> AbstractContextManager[Started]:
        config = place.folder / f"ferrogw-{answer}.yaml"
        config.write_text(CONFIG.format(answer=answer))
        env = {
            "GATEWAY_CONFIG": str(config), "PORT": str(port), "HOST": "127.0.0.1", "LOG_LEVEL": "error",
            "RATE_LIMIT_RPS": "1000000", "RATE_LIMIT_BURST": "1000000",
            "OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": place.url(answer), "MASTER_KEY": "bench-key",
        }  # fmt: skip
        return program(place, f"ferrogw-{answer}", [in_venv("ferrogw", "ferrogw") or "", "serve"], port=port, env=env)

    with one_per_answer(place, one, lambda answer: answer) as way:
        yield way


PEER = Peer("ferrogw", f"{INSTALLER} ferrogw", lambda: venv_version("ferrogw", "ferrogw"), start, keeps="metrics")
