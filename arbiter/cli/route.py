"""`arbiter route`: where a request would go, what comes behind that, and why. Nothing is contacted."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from arbiter.app.auth import Keys
from arbiter.attempt import lanes, logins
from arbiter.attempt.amounts import Amounts
from arbiter.cli import CommandError, UsageError, options
from arbiter.cli.table import number, plain, render, soft
from arbiter.config.load import Source
from arbiter.config.snapshot import Client, Snapshot
from arbiter.errors import ArbiterError, TooLarge
from arbiter.ledger.tariffs import known_apart
from arbiter.routing.plan import Asked, Caller, Login, Rung
from arbiter.routing.router import Router
from arbiter.sessions.affinity import Affinity
from arbiter.sessions.identity import identify
from arbiter.state.memory import Memory
from arbiter.wire import native
from arbiter.wire.headers import Incoming

FORMATS = {"chat": "openai-chat", "messages": "anthropic-messages", "responses": "openai-responses"}
_TOLD_BY = {"system": "messages", "input": "responses"}  # a member that only this endpoint's bodies have
HEAD = (number(""), soft("provider"), soft("sent as"), "format", "lane", soft("keys"))

LIVE = (
    "The state of a running gateway was not looked at. A pin puts its target first. A pause takes a provider out, and\n"
    "a cooldown that the provider named takes a key out; an open breaker or a cooldown by our guess only puts last.\n"
    "What is under way and what was measured decides `least_busy` and `fastest_measured`."
)
LOGIN = (
    "a target is sent its caller's own login, and none was given (--header 'Authorization: Bearer …'): without one it "
    "is left out, and where no other is left the answer is 401"
)
WHOSE = {"passthrough": "the caller's", "oauth": "a login"}
NOBODYS = Login(bytes(16), ())
UNDECLARED = "Nobody declared this model: before the first request for it, its provider is asked whether it has one."
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
    command.add_argument("--client", metavar="NAME", help="who asks: a name of `clients` (default: nobody we know)")
    command.add_argument(
        "--format",
        choices=tuple(FORMATS),
        help="the endpoint it is for (default: messages for a body with a `system` member, responses for one with "
        "`input`, else chat)",
    )
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
    snapshot = Source(arguments.config, dict(os.environ), look_up=known_apart).load()
    caller = _caller(snapshot, arguments.client)
    incoming = Incoming(_pairs(arguments.header))
    fields = incoming.fields
    caller = replace(caller, login=Keys(snapshot).login(incoming))
    try:
        body = _read(arguments.request, snapshot.limits.body)
        found = report(snapshot, caller, body, fields, arguments.format)
    except ArbiterError as error:
        if not arguments.json:
            raise CommandError(f"{error.status} {error.code.value}: {error}") from error
        refused = {"class": error.code.value, "status": error.status, "message": str(error)}
        options.print_json({"ok": False, "error": refused})
        return 1
    if arguments.json:
        options.print_json({"ok": True, **found})
    else:
        print(text(found))
    return 0


def report(
    snapshot: Snapshot, caller: Caller, body: bytes, fields: dict[str, str], format: str | None
) -> dict[str, Any]:
    """What becomes of a request, for programs. Errors: ArbiterError, as its client would get it."""
    opened = native.open_body(body, snapshot.limits.json_depth)
    told = (endpoint for member, endpoint in _TOLD_BY.items() if member in opened.members)
    wire = FORMATS[format or next(told, "chat")]
    session, parent, agent, kind, source = identify(fields, opened.members, caller.client, snapshot.sessions)
    affinity = Affinity(snapshot.affinity)
    found = affinity.slot(wire, opened.members, fields, session, caller.owner)
    is_pinned = found is not None and affinity.pins(kind)
    slot = found.key if found is not None and is_pinned else None
    amount = Amounts(Memory()).of(opened.members, "")
    asked = Asked(opened.model, caller, slot=slot, amount=amount)
    plan = Router(snapshot).plan(asked)
    lacks_login = caller.login is None and any(rung.provider.takes_logins for rung in plan.rungs)
    # Whoever tries out a request seldom has a login at hand: what becomes of it with one is the better answer.
    asking = replace(caller, login=NOBODYS) if lacks_login else caller
    plan = logins.admitted(plan, asking, wire, Memory())
    return {
        "model": opened.model,
        "format": wire,
        "client": caller.name,
        "targets": [_target(rung, wire) for rung in plan.rungs],
        "alias": plan.alias,
        "is_explicit": plan.is_explicit,
        "rationale": plan.rationale,
        "session": {"id": session, "parent": parent, "source": source},
        "agent": agent,
        "kind": kind,
        "affinity": {
            "key": found.key.hex() if found is not None else None,
            "source": found.source if found is not None else None,
            "pins": is_pinned,
        },
        "warnings": [
            *([plan.warning] if plan.warning else []),
            *([LOGIN] if lacks_login else []),
            *_warnings(snapshot, caller),
        ],
        "notes": [
            *([ALONE] if slot is None and len(plan.rungs) > 1 else []),
            *([UNDECLARED] if plan.is_auto else []),
            LIVE,
        ],
    }


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


def _behind(targets: int) -> str:
    return "no other target" if targets == 1 else f"{targets - 1} more, in this order"


def _target(rung: Rung, wire: str) -> dict[str, Any]:
    provider = rung.provider
    spoken = lanes.spoken(wire, rung)
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


def _warnings(snapshot: Snapshot, caller: Caller) -> Sequence[str]:
    if snapshot.auth.mode == "require" and caller.client is None:
        return ["auth.mode is require: without a key of `clients` the answer is 401"]
    return []


def _caller(snapshot: Snapshot, name: str | None) -> Caller:
    if name is None:
        return Caller()
    clients: dict[str, Client] = {client.name: client for client in snapshot.callers if client.revoked_ms is None}
    if name not in clients:
        known = f"clients: {', '.join(clients)}" if clients else "there are none"
        raise CommandError(f"--client: no client is called {name!r}; {known}")
    return Caller(clients[name])


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
