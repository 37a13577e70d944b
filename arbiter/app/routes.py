"""One table: (path, method) to endpoint. Paths match exactly; a mount prefix is part of the path (SPEC 1.1)."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from arbiter.app import endpoints
from arbiter.wire import gemini_names
from arbiter.wire.format import FORMATS, WIRES, Wire
from arbiter.wire.gemini_names import Addressed

if TYPE_CHECKING:
    from arbiter.app.rsgi import Exchange

Endpoint = Callable[["Exchange", "Route"], Awaitable[None]]

PREFIXES = ("", "/v1", "/openai/v1", "/anthropic", "/anthropic/v1", "/v1/v1")
"""Where clients may mount us: some base URLs end in /v1 and some clients add it once more."""
GOOGLES = tuple(
    f"{mount}/{version}" for mount in ("", "/gemini", "/v1") for version in ("v1beta", "v1alpha", "v1")
)  # fmt: skip
"""Where Gemini's clients mount us: their base URLs have no version, and they add one of theirs."""


@dataclass(frozen=True, slots=True)
class Route:
    """One endpoint under one method. `name` is what rows and metrics call it; `path` stands below the mount prefix."""

    name: str
    path: str
    answer: Endpoint
    format: Wire | None = None
    addressed: Addressed | None = None


CHAT, MESSAGES, RESPONSES, GEMINI = (
    FORMATS[name] for name in ("openai-chat", "anthropic-messages", "openai-responses", "google-gemini")
)

EMBEDDINGS, GEMINI_EMBEDDINGS = WIRES["embeddings"], WIRES["google-embeddings"]

API: dict[str, dict[str, Route]] = {
    "/chat/completions": {"POST": Route("chat", "/chat/completions", endpoints.generate, CHAT)},
    "/messages": {"POST": Route("messages", "/messages", endpoints.generate, MESSAGES)},
    "/messages/count_tokens": {"POST": Route("count_tokens", "/messages/count_tokens", endpoints.generate, MESSAGES)},
    "/models": {"GET": Route("models", "/models", endpoints.models)},
    "/responses": {
        "GET": Route("websocket", "/responses", endpoints.websocket),
        "POST": Route("responses", "/responses", endpoints.generate, RESPONSES),
    },
    "/responses/compact": {"POST": Route("compact", "/responses/compact", endpoints.generate, RESPONSES)},
    "/responses/input_tokens": {
        "POST": Route("count_tokens", "/responses/input_tokens", endpoints.generate, RESPONSES)
    },
    "/embeddings": {"POST": Route("embeddings", "/embeddings", endpoints.generate, EMBEDDINGS)},
}
SITE: dict[str, dict[str, Route]] = {
    "/": {"GET": Route("root", "/", endpoints.root), "HEAD": Route("probe", "/", endpoints.probe)},
    "/metrics": {"GET": Route("metrics", "/metrics", endpoints.metrics)},
    "/health": {"GET": Route("health", "/health", endpoints.health)},
}
for _alias in ("/health/live", "/health/liveness", "/health/liveliness", "/livez"):
    SITE[_alias] = {"GET": Route("live", _alias, endpoints.live)}
for _alias in ("/health/ready", "/health/readiness", "/readyz"):
    SITE[_alias] = {"GET": Route("ready", _alias, endpoints.ready)}


_STORED = re.compile(r"(?!compact$|input_tokens$)[\w.-]{1,256}(?P<what>/input_items|/cancel)?")
"""What is asked of an answer that a provider keeps."""


def _of_stored(rest: str) -> dict[str, Route]:
    found = _STORED.fullmatch(rest)
    if found is None:
        return {}
    path = "/responses/" + rest
    match found["what"]:
        case "/input_items":
            return {"GET": Route("input_items", path, endpoints.generate, RESPONSES)}
        case "/cancel":
            return {"POST": Route("cancel", path, endpoints.generate, RESPONSES)}
    answer = Route("response", path, endpoints.generate, RESPONSES)
    return {"GET": answer, "DELETE": answer}


_METHODS = {
    "generateContent": ("gemini", gemini_names.PATH, False),
    "streamGenerateContent": ("gemini", gemini_names.PATH, True),
    "countTokens": ("count_tokens", gemini_names.COUNT_PATH, False),
    "embedContent": ("embeddings", gemini_names.EMBED_PATH, False),
    "batchEmbedContents": ("embeddings", gemini_names.BATCH_PATH, False),
}
"""What is asked of a model in Google's way, by the word behind the last colon of its path: the endpoint's name in rows,
its path inside, and whether it streams."""


def _of_model(rest: str) -> dict[str, Route]:
    if not rest:
        return {}
    model = Route("model", "/models/", endpoints.model)  # its name may have slashes of its own
    named, colon, method = rest.rpartition(":")
    if colon and named and method in _METHODS:
        name, path, stream = _METHODS[method]
        addressed = gemini_names.Addressed(unquote(named).removeprefix("models/"), stream)
        wire = GEMINI_EMBEDDINGS if name == "embeddings" else GEMINI
        return {"POST": Route(name, path, endpoints.generate, wire, addressed)}
    return {"GET": model, "HEAD": model}


NESTED: dict[str, Callable[[str], dict[str, Route]]] = {"/models/": _of_model, "/responses/": _of_stored}
"""What stands below a path of the API, by that path: the rest names one of many."""


_LEGACY = {"/completions": "/chat/completions", "/complete": "/messages"}
"""What OpenAI and Anthropic had before, and what they have in its place."""


def instead(path: str) -> str | None:
    """The path to ask in place of a legacy one, under the same mount."""
    mount, slash, last = path.rpartition("/")
    new = _LEGACY.get(slash + last)
    return mount + new if new is not None and mount in PREFIXES else None


def table() -> dict[str, dict[str, Route]]:
    """Every path we answer, `/admin/…` apart. A HEAD goes where its GET goes."""
    routes = dict(SITE)
    for prefix in PREFIXES:
        for path, methods in API.items():
            routes[prefix + path] = methods
    for prefix in GOOGLES:
        routes[f"{prefix}/models"] = API["/models"]
    for methods in routes.values():
        if "GET" in methods:
            methods.setdefault("HEAD", methods["GET"])
    # Claude Code probes its base URL, wherever it was told that is.
    for prefix in PREFIXES[1:]:
        for path in (prefix, prefix + "/"):
            routes[path] = {"HEAD": Route("probe", path, endpoints.probe)}
    return routes


def nested(path: str) -> dict[str, Route] | None:
    """The endpoints of a path that is in no table: of one of many things below a path of the API.

    None where it is below none of those; empty where it names nothing there."""
    for below, methods in NESTED.items():
        mount, found, rest = path.partition(below)
        if found and (mount in PREFIXES or (mount in GOOGLES and below == "/models/")):
            return methods(rest)
    return None


def is_googles(methods: dict[str, Route]) -> bool:
    """Whether a path is asked as only Google's clients ask."""
    return any(route.addressed is not None for route in methods.values())
