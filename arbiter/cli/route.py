"""`arbiter route`: where a request would go, what comes behind that, and why. Nothing is contacted."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from arbiter.app.auth import Keys
from arbiter.attempt import lanes, logins, ways
from arbiter.attempt.amounts import Amounts
from arbiter.attempt.ask import Ask
from arbiter.attempt.climb import untold
from arbiter.cli import CommandError, UsageError, options
from arbiter.cli.table import number, plain, render, soft
from arbiter.config import units
from arbiter.config.load import Source, with_keys
from arbiter.config.snapshot import Alias, Client, Snapshot
from arbiter.errors import ArbiterError, ProtocolUnsupported, TooLarge, Unauthorized
from arbiter.ledger.tariffs import known_apart
from arbiter.routing.plan import Asked, Caller, Login, Rung, explained
from arbiter.routing.router import Router
from arbiter.sessions.affinity import Affinity
from arbiter.sessions.identity import identify
from arbiter.state.memory import Memory
from arbiter.wire import bound_responses, embeddings, gemini_names, native
from arbiter.wire.format import EMBEDDINGS, WIRES
from arbiter.wire.gemini_names import Addressed
from arbiter.wire.headers import Incoming
from arbiter.wire.vault import vault_of

FORMATS = {
    "chat": native.CHAT,
    "messages": native.MESSAGES,
    "responses": native.RESPONSES,
    "gemini": native.GEMINI,
    "embeddings": embeddings.name,
    "gemini-embeddings": native.GEMINI_EMBEDDINGS,
}
_TOLD_BY = {
    "system": "messages",
    "contents": "gemini",
    "content": "gemini-embeddings",
    "requests": "gemini-embeddings",
    "input": "responses",
}
"""A member that only this endpoint's bodies have; that of embeddings looks like one of Responses."""
HEAD = (number(""), soft("provider"), soft("sent as"), "format", "lane", soft("keys"))

LIVE = (
    "The state of a running gateway was not looked at. A pin puts its target first. A pause takes a provider out, and\n"
    "a cooldown that the provider named takes a key out; an open breaker or a cooldown by our guess only puts last.\n"
    "What is under way and what was measured decides `least_busy` and `fastest_measured`; what was learned of prompts\n"
    "takes out whom this one is surely too long for."
)
LOGIN = (
    "a target is sent its caller's own login, and none was given (--header 'Authorization: Bearer …'): without one it "
    "is left out, and where no other is left the answer is 401"
)
WHOSE = {"passthrough": "the caller's", "oauth": "a login"}
NOBODYS = Login(bytes(16), ())
UNDECLARED = "Nobody declared this model: before the first request for it, its provider is asked whether it has one."
ELSEWHERE = (
    "It goes on from an earlier answer. A target of another format is told it where this gateway gave that answer and\n"
    "keeps it; where it does not, such a target is passed over."
)
ALONE = "Nothing tells which conversation this request belongs to: where a group draws, it draws anew for each of them."


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "route",
        help="show where a request would go, and why",
        description="Show which target a request would go to, which come behind it, and why; which session and which "
        "conversation it belongs to. Nothing is contacted, and the state of a running gateway is not looked at.",
        allow_abbrev=False,
    )
    command.add_argument("request", metavar="REQUEST.json", help="the body of the request; - reads standard input")
    options.add_config(command)
    command.add_argument(
        "--client", metavar="NAME", help="who asks: a name of `clients` (default: whose key a header has)"
    )
    command.add_argument(
        "--format",
        choices=tuple(FORMATS),
        help="the endpoint it is for (default: messages for a body with a `system` member, gemini for one with "
        "`contents`, gemini-embeddings for one with `content` or `requests`, responses for one with `input`, else "
        "chat)",
    )
    command.add_argument("--model", metavar="NAME", help="the model, which a request of Gemini's has in its path")
    command.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="'NAME: VALUE'",
        help="a header of the request; may be given several times",
    )
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    snapshot = with_keys(Source(arguments.config, dict(os.environ), look_up=known_apart).keyless())
    incoming = Incoming(_pairs(arguments.header))
    try:
        caller = _caller(snapshot, arguments.client, incoming)
        body = _read(arguments.request, snapshot.limits.body)
        found = report(snapshot, caller, body, incoming, arguments.format, arguments.model)
    except ArbiterError as error:
        if not arguments.json:
            ask_as = " (--client NAME asks as one that has a key)" if isinstance(error, Unauthorized) else ""
            raise CommandError(f"{error.status} {error.code.value}: {error}{ask_as}") from error
        refused = {"class": error.code.value, "status": error.status, "message": str(error)}
        options.print_json({"ok": False, "error": refused})
        return 1
    if arguments.json:
        options.print_json({"ok": True, **found})
    else:
        print(text(found))
    return 0


def report(
    snapshot: Snapshot, caller: Caller, body: bytes, incoming: Incoming, format: str | None, model: str | None = None
) -> dict[str, Any]:
    """What becomes of a request, for programs; `model` is what its path says.

    Errors: ArbiterError, as its client would get it; UsageError where its path would have to say more, or less.
    """
    opened, wire = _opened(body, snapshot, format, model)
    fields = incoming.fields
    told = identify(fields, opened.members, caller.client, snapshot.sessions)
    affinity = Affinity(snapshot.affinity)
    found = None if wire in EMBEDDINGS else affinity.slot(wire, opened.members, fields, told.session, caller.owner)
    is_pinned = found is not None and affinity.pins(told.kind)
    slot = found.key if found is not None and is_pinned else None
    amount = Amounts(Memory()).of(opened.members, "")
    asked = Asked(opened.model, caller, slot=slot, amount=amount)
    plan = Router(snapshot).plan(asked)
    lacks_login = caller.login is None and any(rung.provider.takes_logins for rung in plan.rungs)
    # Whoever tries out a request seldom has a login at hand: what becomes of it with one is the better answer.
    asking = replace(caller, login=NOBODYS) if lacks_login else caller
    plan = logins.admitted(plan, asking, wire, Memory())
    ask = Ask(
        WIRES[wire],
        gemini_names.BATCH_PATH if "requests" in opened.members and wire in EMBEDDINGS else WIRES[wire].path,
        opened,
        incoming,
        snapshot.limits,
        stream=opened.stream,
        trace_id="",
        owner=caller.owner,
        client=caller.name,
        vault=vault_of(snapshot.reasoning_keys),
        window=plan.window,
    )
    rungs, passed, faults = _told(plan.rungs, ask)
    return {
        "model": opened.model,
        "format": wire,
        "client": caller.name,
        "targets": [_target(rung, wire) for rung in rungs],
        "alias": plan.alias,
        "weights": _weights(snapshot.aliases[plan.alias], snapshot) if plan.alias is not None else {},
        "is_explicit": plan.is_explicit,
        "rationale": explained(plan.rationale, passed),
        "session": {"id": told.session, "parent": told.parent, "source": told.source},
        "agent": told.agent,
        "kind": told.kind,
        "affinity": {
            "key": found.key.hex() if found is not None else None,
            "source": found.source if found is not None else None,
            "pins": is_pinned,
        },
        "warnings": [
            *([plan.warning] if plan.warning else []),
            *([LOGIN] if lacks_login else []),
            *faults,
        ],
        "notes": [
            *([ALONE] if slot is None and len(plan.rungs) > 1 else []),
            *([UNDECLARED] if plan.is_auto else []),
            *([ELSEWHERE] if _stands_elsewhere(ask) else []),
            LIVE,
        ],
    }


def _opened(body: bytes, snapshot: Snapshot, format: str | None, model: str | None) -> tuple[native.Opened, str]:
    """A request and its format."""
    depth = snapshot.limits.json_depth
    # Which format it is, its members say; and only then is it known where to look for the model.
    members = native.open_body(body, depth, Addressed("")).members
    told = (endpoint for member, endpoint in _TOLD_BY.items() if member in members)
    endpoint = format or next(told, "chat")
    if endpoint.startswith("gemini") != (model is not None):
        raise UsageError(
            "--model: a request of Gemini's names its model in its path, and so there must be one"
            if model is None
            else "--model: only a request of Gemini's names its model in its path; here the body does"
        )
    addressed = Addressed(model.removeprefix("models/")) if model is not None else None
    return native.open_body(body, depth, addressed), FORMATS[endpoint]


def _told(rungs: Sequence[Rung], ask: Ask) -> tuple[list[Rung], dict[str, str], list[str]]:
    """Who of `rungs` can be told the request, who is passed over and why, and where a climb would end.

    Errors: ArbiterError where it ends at once.
    """
    if _stands_elsewhere(ask):
        return list(rungs), {}, []
    found: list[Rung] = []
    passed: dict[str, str] = {}
    first: ProtocolUnsupported | None = None
    for rung in rungs:
        try:
            lanes.choose(ask, rung)
        except ProtocolUnsupported as error:
            first = first or error
            passed[rung.name] = untold(error)
            continue
        except ArbiterError as error:
            if not found:
                raise
            ends = f"where it comes to {rung.name}, it ends: {error.status} {error.code.value}: {error}"
            return found, passed, [ends]
        found.append(rung)
    if first is not None and not found:
        raise first
    return found, passed, []


def _stands_elsewhere(ask: Ask) -> bool:
    return ask.format.name == native.RESPONSES and bound_responses.refers(ask.opened.members)


def text(found: dict[str, Any]) -> str:
    """The same for people."""
    targets, session, affinity = found["targets"], found["session"], found["affinity"]
    rows = [
        (place, one["provider"], one["model"], one["format"], one["lane"], ", ".join(one["accounts"]) or None)
        for place, one in enumerate(targets, 1)
    ]
    told = f"{session['id']} (from {session['source']})" if session["id"] else "none is told"
    if affinity["source"] is None:
        slot = "none: it tells too little, so it is never pinned"
    elif affinity["pins"]:
        slot = f"{affinity['key']} (from: {affinity['source']})"
    else:
        slot = f"none: `session_affinity.no_pin` lists {found['kind']}"
    facts = [
        ("asked for", f"{found['model']}, {found['format']}, by {found['client'] or 'a caller that is not known'}"),
        ("routed", found["rationale"]),
        *(("weights", f"{name}: {_weighed(members)}") for name, members in found["weights"].items()),
        ("behind it", "no other target: the model was named itself" if found["is_explicit"] else _behind(len(targets))),
        ("session", told),
        ("parent", session["parent"]),
        ("agent", found["agent"]),
        ("kind", found["kind"]),
        ("affinity", slot),
    ]
    lines = [f"{name:<12}{plain(value)}" for name, value in facts if value is not None]
    lines += ["", render(HEAD, rows).rstrip("\n")]
    if found["warnings"]:
        lines += ["", "Warnings", *(f"  {plain(warning)}" for warning in found["warnings"])]
    return "\n".join([*lines, "", *found["notes"]])


def _weighed(members: dict[str, float]) -> str:
    return ", ".join(f"{name} {units.written(weight)}" for name, weight in members.items())


def _behind(targets: int) -> str:
    return "no other target" if targets == 1 else f"{targets - 1} more, in this order"


def _target(rung: Rung, wire: str) -> dict[str, Any]:
    provider = rung.provider
    if wire in EMBEDDINGS:
        is_native = wire == embeddings.name or provider.type == "gemini"
        spoken = wire if is_native else embeddings.name
    else:
        spoken = ways.spoken(wire, rung)
        is_native = provider.relay == "native" and spoken in ("any", wire)
    return {
        "provider": provider.name,
        "model": rung.model,
        "format": wire if spoken == "any" else spoken,
        "lane": "native" if is_native else "translated",
        "endpoint": provider.url,
        "accounts": [WHOSE[provider.auth]]
        if provider.auth in WHOSE
        else [account.label for account in provider.accounts if account.label is not None],
    }


def _weights(alias: Alias, snapshot: Snapshot) -> dict[str, dict[str, float]]:
    """Of each group that draws by weight, from `alias` down: its members' weights."""
    found: dict[str, dict[str, float]] = {}
    if alias.select == "weighted":
        found[alias.name] = {member.name: member.weight for member in alias.members}
    for member in alias.members:
        if member.alias is not None:
            found |= _weights(snapshot.aliases[member.alias], snapshot)
    return found


def _caller(snapshot: Snapshot, name: str | None, incoming: Incoming) -> Caller:
    """Who asks: a client by its name, else whoever the headers say.

    Errors: Unauthorized, as its client would get it; CommandError where there is no such client.
    """
    keys = Keys(snapshot)
    if name is None:
        return keys.identify(incoming)
    clients: dict[str, Client] = {client.name: client for client in snapshot.callers if client.revoked_ms is None}
    if name not in clients:
        known = f"clients: {', '.join(clients)}" if clients else "there are none"
        raise CommandError(f"--client: no client is called {name!r}; {known}")
    return Caller(clients[name], keys.login(incoming))


def _pairs(headers: Sequence[str]) -> list[tuple[str, str]]:
    pairs = []
    for header in headers:
        name, colon, value = header.partition(":")
        if not colon or not name.strip():
            raise UsageError(f"--header {header!r}: expected 'Name: value'")
        pairs.append((name.strip().lower(), value.strip()))
    return pairs


def _read(path: str, limit: int) -> bytes:
    """The request's body. Errors: TooLarge over `limits.body`."""
    try:
        if path == "-":
            body = sys.stdin.buffer.read(limit + 1)
        else:
            with open(path, "rb") as file:
                body = file.read(limit + 1)
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror or type(error).__name__}") from None
    if len(body) > limit:
        raise TooLarge(f"the request body is over the limit of {limit} bytes (`limits.body`)")
    return body
