"""The endpoints, thin: what the client wants is read off here and handed on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from arbiter import __version__, gateway, own
from arbiter import metrics as numbers
from arbiter.app.body import read_body
from arbiter.config.snapshot import Client
from arbiter.errors import NotFound
from arbiter.routing.plan import Caller
from arbiter.routing.router import is_allowed

if TYPE_CHECKING:
    from arbiter.app.routes import Route
    from arbiter.app.rsgi import Exchange
    from arbiter.app.worker import Worker

GATEWAY = Caller(Client(own.GATEWAY, ""))
JSON = [("content-type", "application/json")]
_encode = msgspec.json.Encoder().encode


async def generate(exchange: Exchange, route: Route) -> None:
    """Chat completions, messages and count_tokens: whatever goes to a model."""
    worker, incoming = exchange.worker, exchange.incoming
    limits = worker.services.snapshot.limits
    keys = worker.keys
    ours = own.told(incoming.fields, worker.own_key)

    def identify() -> Caller:
        incoming.check_size(limits.headers)
        return keys.identify(incoming) if ours is None else GATEWAY

    assert route.format is not None, "a generating route has a format"
    call = gateway.Call(
        worker.services,
        route.name,
        route.path,
        route.format,
        incoming,
        identify,
        lambda: read_body(exchange.proto, incoming, limits, worker.services.doors.watch),
        ours,
    )
    exchange.trace_id = call.row.trace_id
    await gateway.serve(call, exchange.out)


async def models(exchange: Exchange, route: Route) -> None:
    """The models and aliases this caller may name, in one shape that OpenAI's and Anthropic's clients both read."""
    worker = exchange.worker
    caller = worker.keys.identify(exchange.incoming)
    exchange.reply(200, JSON, model_list(worker, caller))


def model_list(worker: Worker, caller: Caller) -> bytes:
    """The JSON body of `GET /models`."""
    snapshot = worker.services.snapshot
    names: dict[str, tuple[str, str]] = {}  # id -> (owner, display name)
    for alias in snapshot.aliases.values():
        names[alias.advertise_as or alias.name] = ("alias", alias.display_name or alias.name)
    for name, (provider, model) in snapshot.models.items():
        names.setdefault(name, (provider.name, model.id))
    data = [
        {
            "id": name,
            "object": "model",
            "created": worker.started_s,
            "owned_by": owner,
            "type": "model",
            "display_name": shown,
            "created_at": worker.started_iso,
        }
        for name, (owner, shown) in names.items()
        if is_allowed(name, caller)
    ]
    return _encode(
        {
            "object": "list",
            "data": data,
            "has_more": False,
            "first_id": data[0]["id"] if data else None,
            "last_id": data[-1]["id"] if data else None,
        }
    )


async def not_built(exchange: Exchange, route: Route) -> None:
    """An endpoint of OpenAI's that clients may try. Errors: NotFound, always."""
    raise NotFound(f"{route.path} is not built yet; this gateway speaks /v1/chat/completions and /v1/messages")


async def websocket(exchange: Exchange, route: Route) -> None:
    """Codex asks for a WebSocket first. 426 sends it to HTTP at once; any other refusal costs it seconds of retries."""
    exchange.reply(426, [*JSON, ("upgrade", "HTTP/1.1")], b'{"code":426,"detail":"Upgrade Required: use POST"}')


async def root(exchange: Exchange, route: Route) -> None:
    exchange.reply(302, [("location", "/admin/ui/")], b"")


async def probe(exchange: Exchange, route: Route) -> None:
    """Claude Code asks HEAD / before anything else; a hang would hold it up."""
    exchange.reply(200, [], b"")


async def health(exchange: Exchange, route: Route) -> None:
    worker = exchange.worker
    body = {"status": "ok", "version": __version__, "ready": not worker.not_ready()}
    exchange.reply(200, JSON, _encode(body))


async def live(exchange: Exchange, route: Route) -> None:
    exchange.reply(200, JSON, b'{"status":"ok"}')


async def ready(exchange: Exchange, route: Route) -> None:
    """200 while requests can be taken and written down; else 503 with the reasons.

    A store that is down is a warning: rows wait in the journal, and no request suffers (SPEC 7.6).
    """
    worker = exchange.worker
    reasons = worker.not_ready()
    body = {"status": "unavailable" if reasons else "ok", "reasons": reasons, "warnings": worker.warnings()}
    exchange.reply(503 if reasons else 200, JSON, _encode(body))


async def metrics(exchange: Exchange, route: Route) -> None:
    """Prometheus text, all workers added up. It names providers, so `auth.mode: require` wants a key here too."""
    worker = exchange.worker
    snapshot = worker.services.snapshot
    if not snapshot.telemetry.metrics:
        exchange.not_found()
        return
    if snapshot.auth.mode == "require":
        worker.check_insider(exchange.incoming, exchange.out.peer)
    worker.measure()
    text = numbers.render(worker.metrics_files(), __version__)
    exchange.reply(200, [("content-type", "text/plain; version=0.0.4; charset=utf-8")], text.encode())
