"""The endpoints, thin: what the client wants is read off here and handed on."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote

import msgspec

from arbiter import __version__, gateway, own
from arbiter import metrics as numbers
from arbiter.app import model_list
from arbiter.app.array_end import ArrayEnd
from arbiter.attempt import logins
from arbiter.attempt.client_end import ClientEnd
from arbiter.call import call_of
from arbiter.config.snapshot import Client
from arbiter.routing.plan import Caller

if TYPE_CHECKING:
    from arbiter.app.routes import Route
    from arbiter.app.rsgi import Exchange

GATEWAY = Caller(Client(own.GATEWAY, ""))
JSON = [("content-type", "application/json")]
CHAT, MESSAGES, GEMINI = "openai-chat", "anthropic-messages", "google-gemini"
GOOGLES_OWN = ("/v1beta", "/v1alpha")
GOOGLES_HEADERS = ("x-goog-api-key", "x-goog-api-client")
_encode = msgspec.json.Encoder().encode


def generate(exchange: Exchange, route: Route) -> Awaitable[None]:
    """Chat completions, messages, responses, embeddings and what belongs to them: whatever goes to a provider."""
    worker, incoming, addressed, wire = exchange.worker, exchange.incoming, route.addressed, route.format
    services = worker.services
    out: ClientEnd = exchange.out
    if addressed is not None:
        incoming.without_key()
        if addressed.stream and "sse" not in parse_qs(incoming.query).get("alt", ()):
            out = ArrayEnd(out, services.snapshot.limits.event)
    exchange.own = own.told(incoming.fields, worker.own_key)
    assert wire is not None, "a generating route has a format"
    call = call_of(services, route.name, route.path, wire, exchange, addressed)
    exchange.trace_id = call.row.trace_id
    return gateway.serve(call, out)


def spoken(exchange: Exchange) -> str:
    """The format in which to tell of models, and of errors outside of model calls. Anthropic's clients name their
    version in a header, Google's in the path, and their SDKs name themselves."""
    incoming = exchange.incoming
    if incoming.get("anthropic-version") is not None:
        return MESSAGES
    mount, found, _ = exchange.path.partition("/models")
    if found and (mount.endswith(GOOGLES_OWN) or any(name in incoming.fields for name in GOOGLES_HEADERS)):
        incoming.without_key()
        return GEMINI
    return CHAT


def told(exchange: Exchange) -> str | None:
    """The format whose client it is that asks at a path where nothing is, as far as path and headers tell."""
    incoming, path = exchange.incoming, exchange.path
    if incoming.get("anthropic-version") is not None:
        return MESSAGES
    if path.startswith(_GOOGLES_MOUNTS) or any(name in incoming.fields for name in GOOGLES_HEADERS):
        incoming.without_key()
        return GEMINI
    if path.startswith("/anthropic/"):
        return MESSAGES
    return CHAT if path.startswith(("/v1/", "/openai/")) else None


_GOOGLES_MOUNTS = tuple(f"{mount}{version}/" for mount in ("", "/gemini", "/v1") for version in GOOGLES_OWN)


async def models(exchange: Exchange, route: Route) -> None:
    """The models and aliases that this caller may name."""
    worker, incoming = exchange.worker, exchange.incoming
    speaks = spoken(exchange)
    found = model_list.entries(worker.services.snapshot, worker.keys.identify(incoming))
    told: model_list.Told
    if speaks == GEMINI:
        told = model_list.googles_page(found, incoming.query)
    elif speaks == MESSAGES:
        told = model_list.anthropic_page(found, incoming.query, worker.started_iso)
    else:
        told = model_list.union_list(found, worker.started_s, worker.started_iso)
    exchange.reply(200, JSON, _encode(told))


async def model(exchange: Exchange, route: Route) -> None:
    """One of them; its name may have slashes."""
    worker, incoming = exchange.worker, exchange.incoming
    services = worker.services
    speaks = spoken(exchange)
    name = unquote(exchange.path.partition(route.path)[2])
    caller = worker.keys.identify(incoming)
    found = model_list.entry(services.snapshot, services.router, caller, name)
    if (rung := found.unsure) is not None:
        for account in logins.accounts(rung.provider, caller.login)[:1]:
            services.auto_models.recall(rung, account, services.around.state)
    if speaks == GEMINI:
        told = model_list.googles(found)
    elif speaks == MESSAGES:
        told = model_list.anthropic(found, worker.started_iso)
    else:
        told = model_list.union(found, worker.started_s, worker.started_iso)
    exchange.reply(200, JSON, _encode(told))


async def websocket(exchange: Exchange, route: Route) -> None:
    """Codex asks for a WebSocket first. 426 sends it to HTTP at once; any other refusal costs it seconds of retries."""
    exchange.reply(426, [*JSON, ("upgrade", "HTTP/1.1")], b'{"code":426,"detail":"Upgrade Required: use POST"}')


async def root(exchange: Exchange, route: Route) -> None:
    exchange.reply(302, [("location", "/admin/ui/")], b"")


async def probe(exchange: Exchange, route: Route) -> None:
    """Claude Code asks HEAD / before anything else; a hang would hold it up."""
    exchange.reply(200, [], b"")


async def health(exchange: Exchange, route: Route) -> None:
    """A few words, for anybody: nothing private stands in them."""
    worker = exchange.worker
    ready = not worker.not_ready()
    body = {"status": "ok", "version": __version__, "ready": ready, "prices": worker.prices()}
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
