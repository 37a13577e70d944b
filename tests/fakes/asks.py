"""Requests and rungs for whoever tests a climb without a network."""

from __future__ import annotations

import json
from typing import Any

from arbiter.attempt.ask import Ask
from arbiter.config.snapshot import Endpoint, Limits, Provider
from arbiter.routing.plan import Rung
from arbiter.wire import native
from arbiter.wire.format import WIRES
from arbiter.wire.headers import Incoming

TRACE = "0123456789abcdef0123456789abcdef"


def ask(wire: str, body: dict[str, Any], *, query: str = "", path: str | None = None, owner: str | None = None) -> Ask:
    """`body` as a client of format `wire` asked it."""
    format, opened = WIRES[wire], native.open_body(json.dumps(body).encode())
    incoming = Incoming((), query)
    return Ask(
        format,
        path or format.path,
        opened,
        incoming,
        Limits(),
        stream=opened.stream,
        trace_id=TRACE,
        owner=owner,
    )


def rung(wire: str, model: str = "served", *, base: str = "/v1", host: str = "up.test", **provider: Any) -> Rung:
    """One provider that speaks `wire`, and `model` there."""
    kind = {"anthropic-messages": "anthropic", "google-gemini": "gemini", "any": "echo"}.get(wire, "openai")
    return Rung(Provider("up", kind, wire, Endpoint("https", host, 443, base), **provider), model)
