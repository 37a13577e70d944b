"""One table: (path, method) to endpoint. Paths match exactly; a mount prefix is part of the path (SPEC 1.1)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from arbiter.app import endpoints
from arbiter.wire.format import FORMATS, WIRES, Wire

if TYPE_CHECKING:
    from arbiter.app.rsgi import Exchange

Endpoint = Callable[["Exchange", "Route"], Awaitable[None]]

PREFIXES = ("", "/v1", "/openai/v1", "/anthropic", "/anthropic/v1", "/v1/v1")
"""Where clients may mount us: some base URLs end in /v1 and some clients add it once more."""


@dataclass(frozen=True, slots=True)
class Route:
    """One endpoint under one method. `name` is what rows and metrics call it; `path` stands below the mount prefix."""

    name: str
    path: str
    answer: Endpoint
    format: Wire | None = None


CHAT, MESSAGES = FORMATS["openai-chat"], FORMATS["anthropic-messages"]

API: dict[str, dict[str, Route]] = {
    "/chat/completions": {"POST": Route("chat", "/chat/completions", endpoints.generate, CHAT)},
    "/messages": {"POST": Route("messages", "/messages", endpoints.generate, MESSAGES)},
    "/messages/count_tokens": {"POST": Route("count_tokens", "/messages/count_tokens", endpoints.generate, MESSAGES)},
    "/models": {"GET": Route("models", "/models", endpoints.models)},
    # Not built yet, and said in the client's own words: an SDK shows nobody the body of a stranger's 404.
    "/responses": {
        "GET": Route("websocket", "/responses", endpoints.websocket),
        "POST": Route("responses", "/responses", endpoints.not_built),
    },
    "/responses/compact": {"POST": Route("responses", "/responses/compact", endpoints.not_built)},
    "/embeddings": {"POST": Route("embeddings", "/embeddings", endpoints.generate, WIRES["embeddings"])},
}
NESTED: dict[str, dict[str, Route]] = {
    "/models/": {"GET": Route("model", "/models/", endpoints.model)},
}
"""What stands below a path of the API, by that path: the rest names one of many, and may have slashes of its own."""

SITE: dict[str, dict[str, Route]] = {
    "/": {"GET": Route("root", "/", endpoints.root), "HEAD": Route("probe", "/", endpoints.probe)},
    "/metrics": {"GET": Route("metrics", "/metrics", endpoints.metrics)},
    "/health": {"GET": Route("health", "/health", endpoints.health)},
}
for _alias in ("/health/live", "/health/liveness", "/health/liveliness", "/livez"):
    SITE[_alias] = {"GET": Route("live", _alias, endpoints.live)}
for _alias in ("/health/ready", "/health/readiness", "/readyz"):
    SITE[_alias] = {"GET": Route("ready", _alias, endpoints.ready)}


def table() -> dict[str, dict[str, Route]]:
    """Every path we answer, `/admin/…` apart. A HEAD goes where its GET goes."""
    routes = dict(SITE)
    for prefix in PREFIXES:
        for path, methods in API.items():
            routes[prefix + path] = methods
    for methods in (*routes.values(), *NESTED.values()):
        if "GET" in methods:
            methods.setdefault("HEAD", methods["GET"])
    # Claude Code probes its base URL, wherever it was told that is.
    for prefix in PREFIXES[1:]:
        for path in (prefix, prefix + "/"):
            routes[path] = {"HEAD": Route("probe", path, endpoints.probe)}
    return routes


def nested(path: str) -> dict[str, Route] | None:
    """The endpoints of a path that is in no table: of one of many things below a path of the API."""
    for below, methods in NESTED.items():
        mount, found, rest = path.partition(below)
        if found and rest and mount in PREFIXES:
            return methods
    return None
