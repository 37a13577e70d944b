"""`arbiter check`: read the configuration as `serve` would, and show what it comes to."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from arbiter.attempt import patience
from arbiter.cli import options
from arbiter.cli.departures import departures
from arbiter.cli.price_table import price_table
from arbiter.cli.table import Column, number, render, render_told, soft
from arbiter.config import units
from arbiter.config.aliases import targets
from arbiter.config.load import ConfigError, Source, config_path
from arbiter.config.rates import Rate
from arbiter.config.redacted import redacted
from arbiter.config.snapshot import APIS, Alias, Member, Model, Provider, Snapshot
from arbiter.ledger.tariffs import known_apart
from arbiter.routing import undeclared
from arbiter.state import login_file

SPARE = {"cap": 4, "base": 3, "before fallback": 2, "accepted timeout": 1}


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "check",
        help="validate the configuration and show what it comes to",
        description="Validate the configuration; print the effective routing table with groups and fallbacks, "
        "timeouts, retries, the longest waits that these come to, what differs from the defaults, prices, limits and "
        "warnings. Exit code 0: valid, 1: not valid. Nothing is contacted, no plugin is "
        "imported.",
        allow_abbrev=False,
    )
    options.add_config(command)
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.add_argument("--schema", action="store_true", help="print the JSON Schema of arbiter.yaml, for editors")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.schema:
        from arbiter.config.reference import json_schema

        print(json.dumps(json_schema(), indent=2, ensure_ascii=False))
        return 0
    source = Source(arguments.config, dict(os.environ), look_up=known_apart)
    file = str(config_path(source.path, source.env))
    try:
        snapshot = source.load()
    except ConfigError as error:
        if not arguments.json:
            raise
        problem = {"file": error.file, "line": error.line, "path": error.path, "message": error.message.strip()}
        options.print_json({"ok": False, "error": problem})
        return 1
    if arguments.json:
        options.print_json({"ok": True, "file": file, **report(snapshot)})
    else:
        print(text(snapshot, file), end="")
    return 0


@dataclass(frozen=True, slots=True)
class Asked:
    """A name that clients may ask for, and the targets that may serve it, in the listed order."""

    name: str
    targets: tuple[Member, ...]

    def providers(self, snapshot: Snapshot) -> list[Provider]:
        return [snapshot.providers[member.provider or ""] for member in self.targets]


def asked_for(snapshot: Snapshot) -> Iterator[Asked]:
    """Every name, with what it falls back to: what a client names explicitly only where the file says so."""
    routing, aliases = snapshot.routing, snapshot.aliases
    explicit = routing.fallback if routing.explicit_fallback else ()
    for name, (provider, model) in snapshot.models.items():
        yield Asked(name, tuple(targets((Member(provider.name, model.id), *explicit), aliases)))
    for name, alias in aliases.items():
        if name not in snapshot.models:  # a declared model wins
            yield Asked(name, tuple(targets((*alias.members, *routing.fallback), aliases)))
    families: dict[str, Provider] = {}
    for provider in snapshot.providers.values():
        if provider.auto_models:
            families.setdefault(undeclared.SHOWN[provider.type], provider)  # of several the first is asked
    for family, provider in families.items():
        yield Asked(f"({family})", tuple(targets((Member(provider.name, "(the same name)"), *explicit), aliases)))
    if routing.default_provider is not None:
        other = Member(routing.default_provider, "(the same name)")
        yield Asked("(any other)", tuple(targets((other, *explicit), aliases)))


def report(snapshot: Snapshot) -> dict[str, Any]:
    """What the configuration comes to, for programs."""
    return {
        "epoch": snapshot.epoch,
        "warnings": _warnings(snapshot),
        "models": [
            {"model": name, "provider": provider.name, "upstream": model.upstream}
            for name, (provider, model) in snapshot.models.items()
        ],
        "aliases": [
            {
                "alias": name,
                "select": alias.select if alias.is_group else None,
                "members": [member.name for member in alias.members],
                "targets": [member.name for member in targets(alias.members, snapshot.aliases)],
            }
            for name, alias in snapshot.aliases.items()
        ],
        "waits": [
            {
                "asked_for": asked.name,
                "targets": [member.name for member in asked.targets],
                **{
                    kind: {"seconds": wait.seconds, "reason": wait.reason}
                    for kind, wait in _waits(asked.providers(snapshot)).items()
                },
            }
            for asked in asked_for(snapshot)
        ],
        "config": redacted(snapshot),
    }


def text(snapshot: Snapshot, file: str) -> str:
    """The same for people."""
    server = snapshot.server
    where = f"unix:{server.socket}" if server.socket else f"{server.bind}:{server.port}"
    parts = [
        f"{file} is valid (epoch {snapshot.epoch})\n",
        f"\nListens on {where}, with {_count(server.workers, 'worker')}. "
        f"auth.mode is {snapshot.auth.mode}, with {_count(len(snapshot.client_names), 'client')}.\n"
        f"Rows go to {snapshot.storage.shown}, state is in {snapshot.state_dir}.\n",
        _models(snapshot),
        _groups(snapshot),
        _providers(snapshot),
        _longest(snapshot),
        _set_apart(snapshot),
        _catalog(snapshot),
        _limits(snapshot),
    ]
    if warnings := _warnings(snapshot):
        parts.append("\nWarnings\n" + "".join(f"  {warning}\n" for warning in warnings))
    return "".join(parts)


def _warnings(snapshot: Snapshot) -> list[str]:
    """What is doubtful in the file, what is wrong with the logins that it needs, and who is hardly ever asked."""
    faults = login_file.faults(snapshot.logins, snapshot.data_dir, snapshot.fingerprint_key)
    return [*snapshot.warnings, *faults, *_unlisted(snapshot)]


def _unlisted(snapshot: Snapshot) -> Iterator[str]:
    """Providers of which no name is listed: they serve, and a newcomer does not find out by what."""
    named = {member.provider for alias in snapshot.aliases.values() for member in alias.members}
    named |= {member.provider for member in snapshot.routing.fallback} | {snapshot.routing.default_provider}
    for provider in snapshot.providers.values():
        if not (provider.models or provider.auto_models or provider.name in named):
            yield (
                f"providers.{provider.name}: without `models`, an alias or routing.default_provider it is asked for "
                f"{provider.name}/MODEL alone, and GET /models lists nothing of it"
            )


def _models(snapshot: Snapshot) -> str:
    """Every name that stands for one model."""
    names: list[tuple[str | None, ...]] = [
        (name, p.name, _wire(p, m), m.upstream, "") for name, (p, m) in snapshot.models.items()
    ]
    for name, alias in snapshot.aliases.items():
        if name in snapshot.models:
            continue
        only, *others = targets(alias.members, snapshot.aliases)
        if not others and not alias.is_group:
            provider = snapshot.providers[only.provider or ""]
            model = provider.model(only.model)
            names.append(
                (
                    name,
                    provider.name,
                    _wire(provider, model),
                    model.upstream if model else only.model,
                    f"alias of {only.name}",
                )
            )
    for provider in snapshot.providers.values():
        if provider.auto_models:
            shown = undeclared.SHOWN[provider.type]
            names.append((f"({shown})", provider.name, provider.wire, "the same name", "auto_models"))
    if snapshot.routing.default_provider:
        default = snapshot.providers[snapshot.routing.default_provider]
        names.append(("(any other)", default.name, default.wire, "the same name", "routing.default_provider"))
    head = (soft("asked for"), soft("provider"), Column("format", spare=1), soft("sent as"), soft("why", spare=2))
    columns = len(head) if any(row[-1] for row in names) else len(head) - 1
    return "\nModels\n" + render(head[:columns], [row[:columns] for row in names])


def _wire(provider: Provider, model: Model | None) -> str:
    if model is None:
        return provider.wire
    return APIS[model.api] if model.api is not None else provider.wire_of(model.upstream)


def _groups(snapshot: Snapshot) -> str:
    """Every alias that stands for several, as a tree, and what is tried after them."""
    lines = []
    for name, alias in snapshot.aliases.items():
        ends = list(targets(alias.members, snapshot.aliases))
        if name != alias.name or name in snapshot.models or (not alias.is_group and len(ends) == 1):
            continue
        also = f", also {alias.advertise_as}" if alias.advertise_as not in (None, name) else ""
        lines.append(f"{name}{also}: {_selected(alias)}")
        lines += _branches(alias, snapshot, "  ")
    title = "Groups (the members that were not selected are the fallbacks)"
    shown = f"\n{title}\n" + "".join(f"{line}\n" for line in lines)
    parts = [shown] if lines else []
    if fallback := snapshot.routing.fallback:
        whom = "every model" if snapshot.routing.explicit_fallback else "aliases; not for a model that a client names"
        order = " → ".join(member.name for member in targets(fallback, snapshot.aliases))
        parts.append(f"\nFallbacks, for {whom}\n{order}\n")
    return "".join(parts)


def _selected(alias: Alias) -> str:
    return f"{alias.select} of" if alias.is_group else "stands for"


def _branches(alias: Alias, snapshot: Snapshot, indent: str) -> Iterator[str]:
    for member in alias.members:
        weight = f" (weight {units.written(member.weight)})" if alias.select == "weighted" else ""
        if member.alias is None:
            yield f"{indent}{member.name}{weight}"
        else:
            nested = snapshot.aliases[member.alias]
            yield f"{indent}{member.name}{weight}: {_selected(nested)}"
            yield from _branches(nested, snapshot, indent + "  ")


def _providers(snapshot: Snapshot) -> str:
    providers = snapshot.providers.values()
    phases = [phase for phase, _ in next(iter(providers)).budgets.items()]
    timeouts = render(
        (
            soft("provider"),
            Column("type", spare=1),
            soft("endpoint", spare=2),
            soft("key"),
            *map(number, phases),
        ),
        [
            (
                provider.name,
                provider.type,
                f"{provider.url} (HTTP/2)" if provider.endpoint.http2 else provider.url,
                _keys(provider),
                *(units.duration(budget) if budget else None for _, budget in provider.budgets.items()),
            )
            for provider in providers
        ],
    )
    head = (
        "attempts",
        "budget",
        "base",
        "cap",
        "before fallback",
        "accepted timeout",
        "a minute",
        "a day",
        "pinned for",
    )
    retries = render(
        (soft("provider"), *(number(name, spare=SPARE.get(name, 0)) for name in head)),
        [
            (
                provider.name,
                provider.retry.attempts,
                units.duration(provider.retry.budget_s),
                units.duration(provider.retry.base_s),
                units.duration(provider.retry.cap_s),
                provider.retry.before_fallback,
                provider.retry.accepted_timeout,
                provider.request_limits.per_minute or None,
                provider.request_limits.per_day or None,
                units.duration(provider.pin_ttl_s) if provider.pin_ttl_s else None,
            )
            for provider in providers
        ],
    )
    return (
        f"\nProviders and timeouts (- is off)\n{timeouts}"
        f"\nRetries, request limits, and how long a conversation stays (- is none)\n{retries}"
    )


def _keys(provider: Provider) -> str:
    if provider.oauth is not None:
        return "a login"
    if provider.service is not None:
        return "a service account"
    if provider.takes_logins:
        return "the caller's"
    labels = [account.label for account in provider.accounts if account.label is not None]
    if labels:
        return ", ".join(labels)
    return "yes" if provider.accounts[0].key else "no"


def _waits(providers: list[Provider]) -> dict[str, patience.Wait]:
    return {
        "unary": patience.unary(providers),
        "stream": patience.stream(providers),
        "unaccepted": patience.unaccepted(providers),
    }


def _longest(snapshot: Snapshot) -> str:
    """What timeouts, retries and fallbacks add up to. Names with the same targets' providers share a row."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for asked in asked_for(snapshot):
        alike.setdefault(tuple(provider.name for provider in asked.providers(snapshot)), []).append(asked.name)
    rows: list[tuple[object, ...]] = []
    for order, names in alike.items():
        waits = _waits([snapshot.providers[name] for name in order])
        for kind, what in (("unary", "an answer that is not streamed"), ("stream", "a stream's first event")):
            wait = waits[kind]
            lead = (_listed(names), len(order)) if kind == "unary" else ("", "")
            if wait.seconds is not None:
                rows.append((*lead, what, _seconds(wait.seconds), f"mostly {wait.reason}"))
                continue
            rows.append((*lead, what, "no limit", wait.reason))
            before = waits["unaccepted"]
            if kind == "stream" and before.seconds is not None:
                rows.append(("", "", "  while no headers come", _seconds(before.seconds), f"mostly {before.reason}"))
    if not rows:
        return ""
    return "\nLongest waits, retries and fallbacks included (docs/timeouts.md)\n" + render_told(
        (
            soft("asked for", least=12),
            number("targets", spare=1),
            Column("waiting for"),
            number("at most"),
            Column("because"),
        ),
        rows,
    )


def _listed(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:2])} and {len(names) - 2} more"


def _seconds(seconds: float) -> str:
    return f"{round(seconds, 3):.10g}s"


def _set_apart(snapshot: Snapshot) -> str:
    rows = list(departures(snapshot))
    return "\nWhat differs from the defaults\n" + render((soft("where"), "key", soft("value")), rows) if rows else ""


def _catalog(snapshot: Snapshot) -> str:
    prices: list[tuple[str, Rate]] = []
    facts: list[tuple[object, ...]] = []
    for name, rate in snapshot.rates():
        prices.append((name, rate))
    for name, _, card in snapshot.catalog():
        if card is not None:
            latency = card.latency_ms_p50
            modalities = ", ".join(card.input_modalities) if card.input_modalities is not None else None
            facts.append((name, card.max_input, None if latency is None else units.written(latency), modalities))
    parts = []
    if prices:
        parts.append("\nPrices, USD per million tokens (- is unknown)\n" + price_table(prices))
    if facts:
        head = (soft("model"), number("input tokens"), number("ms to first token", spare=1), soft("takes in"))
        parts.append("\nWhat is known of models (- is unknown)\n" + render(head, facts))
    return "".join(parts)


def _limits(snapshot: Snapshot) -> str:
    limits = snapshot.limits
    sizes: Iterable[str] = ("body", "headers", "event", "answer", "stream_buffer")
    rows = [(name, units.size(getattr(limits, name))) for name in sizes]
    rows += [("slow_sender", units.duration(limits.slow_sender_s)), ("json_depth", str(limits.json_depth))]
    return "\nLimits\n" + render(("limit", number("value")), rows)


def _count(number: int, what: str) -> str:
    return f"1 {what}" if number == 1 else f"{number or 'no'} {what}s"
