"""The captured conversations of tests/vectors/sessions, as the gateway sees them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arbiter.config.snapshot import Client
from arbiter.sessions.signals import Fields, Members
from arbiter.wire import native

VECTORS = Path(__file__).parents[2] / "vectors/sessions"


@dataclass(frozen=True)
class Captured:
    """One request. `client` is a caller that is known to be the agent; None where no agent is known by that."""

    name: str
    format: str
    client: Client | None
    part: str
    fields: Fields
    body: dict[str, Any]
    as_known: dict[str, str]
    as_anyone: dict[str, str]

    @property
    def members(self) -> Members:
        return opened(self.body)


def opened(body: dict[str, Any] | bytes) -> Members:
    """A body as the gateway opens it. Its `model` is added where it has none."""
    raw = body if isinstance(body, bytes) else json.dumps({"model": "m", **body}).encode()
    return native.open_body(raw).members


def conversations() -> dict[str, list[Captured]]:
    """Every capture's requests, in their order, by the capture's name."""
    found = {}
    for path in sorted(VECTORS.glob("*.json")):
        capture = json.loads(path.read_text("utf-8"))
        client = Client("dev", "0" * 64, agent=capture["agent"]) if capture["agent"] else None
        found[path.stem] = [
            Captured(
                f"{path.stem}-{n}",
                capture["format"],
                client,
                one["part"],
                {name.lower(): value for name, value in one["headers"]},
                one["body"],
                one["as_known"],
                one["as_anyone"],
            )
            for n, one in enumerate(capture["requests"], 1)
        ]
    return found
