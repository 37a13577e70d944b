"""`arbiter check`: read the configuration as `serve` would, and show what it comes to."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from arbiter.cli import options
from arbiter.cli.table import render
from arbiter.config import units
from arbiter.config.load import ConfigError, Source, config_path
from arbiter.config.snapshot import Provider, Rate, Snapshot

_DEFAULTS = {field.name: field.default for field in fields(Provider)}


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "check",
        help="validate the configuration and show what it comes to",
        description="Validate the configuration; print the effective routing table, timeouts, what differs from the "
        "defaults, prices, limits and warnings. Exit code 0: valid, 1: not valid. Nothing is contacted, no plugin is "
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
    source = Source(arguments.config, dict(os.environ))
    file = str(config_path(source.path, source.env))
    try:
        snapshot = source.load()
    except ConfigError as error:
        if not arguments.json:
            raise
        problem = {"file": error.file, "line": error.line, "path": error.path, "message": error.message.strip()}
        print(json.dumps({"ok": False, "error": problem}, ensure_ascii=False))
        return 1
    if arguments.json:
        print(json.dumps({"ok": True, "file": file, **report(snapshot)}, ensure_ascii=False, indent=2))
    else:
        print(text(snapshot, file), end="")
    return 0


def report(snapshot: Snapshot) -> dict[str, Any]:
    """What the configuration comes to, for programs."""
    return {
        "epoch": snapshot.epoch,
        "warnings": list(snapshot.warnings),
        "models": [
            {"model": name, "provider": provider.name, "upstream": model.upstream}
            for name, (provider, model) in snapshot.models.items()
        ],
        "aliases": [
            {"alias": name, "members": [member.name for member in alias.members]}
            for name, alias in snapshot.aliases.items()
        ],
        "config": snapshot.redacted(),
    }


def text(snapshot: Snapshot, file: str) -> str:
    """The same for people."""
    server, limits = snapshot.server, snapshot.limits
    where = f"unix:{server.socket}" if server.socket else f"{server.bind}:{server.port}"
    parts = [f"{file} is valid (epoch {snapshot.epoch})\n"]
    parts.append(
        f"\nListens on {where}, with {_count(server.workers, 'worker')}. "
        f"auth.mode is {snapshot.auth.mode}, with {_count(len(snapshot.clients), 'client')}.\n"
        f"Rows go to {snapshot.storage.url}, state is in {snapshot.state_dir}.\n"
    )
    names: list[tuple[str | None, ...]] = [
        (name, p.name, p.wire, m.upstream, "") for name, (p, m) in snapshot.models.items()
    ]
    names += [
        (
            name,
            alias.members[0].provider,
            snapshot.providers[alias.members[0].provider or ""].wire,
            model.upstream if model else None,
            f"alias of {alias.members[0].name}",
        )
        for name, alias in snapshot.aliases.items()
        if name not in snapshot.models  # a declared model wins
        for model in [snapshot.providers[alias.members[0].provider or ""].model(alias.members[0].model)]
    ]
    if snapshot.routing.default_provider:
        default = snapshot.providers[snapshot.routing.default_provider]
        names.append(("(any other)", default.name, default.wire, "the same name", "routing.default_provider"))
    head = ("asked for", "provider", "format", "sent as", "why")
    columns = len(head) if any(row[-1] for row in names) else len(head) - 1
    parts.append("\nModels\n" + render(head[:columns], [row[:columns] for row in names]))
    phases = [phase for phase, _ in next(iter(snapshot.providers.values())).budgets.items()]
    parts.append(
        "\nProviders and timeouts (- is off)\n"
        + render(
            ("provider", "type", "endpoint", "key", *phases),
            [
                (
                    provider.name,
                    provider.type,
                    f"{provider.url} (HTTP/2)" if provider.endpoint.http2 else provider.url,
                    "yes" if provider.accounts[0].key else "no",
                    *(units.duration(budget) if budget else None for _, budget in provider.budgets.items()),
                )
                for provider in snapshot.providers.values()
            ],
        )
    )
    if set_apart := list(_set_apart(snapshot)):
        parts.append("\nWhat differs from the defaults\n" + render(("where", "key", "value"), set_apart))
    prices: list[tuple[str | None, ...]] = []
    for name, rate in snapshot.rates():
        for above, tier in ((0, rate), *reversed(rate.tiers)):
            shown = (None if pd is None else units.price(pd) for _, pd in tier.items())
            prices.append((f"{name}, input above {above}" if above else name, *shown))
    if prices:
        kinds = [name.replace("_", " ") for name, _ in Rate().items()]
        parts.append("\nPrices, USD per million tokens (- is unknown)\n" + render(("model", *kinds), prices))
    sizes = ("body", "headers", "event", "answer", "stream_buffer")
    rows = [(name, units.size(getattr(limits, name))) for name in sizes]
    rows += [("slow_sender", units.duration(limits.slow_sender_s)), ("json_depth", str(limits.json_depth))]
    parts.append("\nLimits\n" + render(("limit", "value"), rows))
    if snapshot.warnings:
        parts.append("\nWarnings\n" + "".join(f"  {warning}\n" for warning in snapshot.warnings))
    return "".join(parts)


def _set_apart(snapshot: Snapshot) -> Iterator[tuple[str, str, object]]:
    """What was chosen of how requests are sent: of a provider, or of its model."""
    for provider in snapshot.providers.values():
        for key in ("relay", "prompt_cache", "prompt_cache_ttl", "attribution"):
            if (value := getattr(provider, key)) != _DEFAULTS[key]:
                yield provider.name, key, value
        for model in provider.models:
            if model.max_output is not None:
                yield f"{provider.name}/{model.id}", "max_output_tokens", model.max_output


def _count(number: int, what: str) -> str:
    return f"1 {what}" if number == 1 else f"{number or 'no'} {what}s"
