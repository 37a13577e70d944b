"""`arbiter reconcile`: stored costs set by a provider's own bill, or by what OpenRouter says of its answers."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from arbiter import clock
from arbiter.cli import CommandError, UsageError, options
from arbiter.cli.table import Column, number, render, soft
from arbiter.config.load import Source
from arbiter.config.snapshot import Provider
from arbiter.control import show
from arbiter.ledger import audit, openrouter, reconciling
from arbiter.ledger.reconciling import BadBill, Share

DEFAULT_SINCE = "7d"
HEAD = (
    Column("day"),
    soft("provider"),
    soft("model"),
    number("bill"),
    number("rows"),
    number("before"),
    number("unpriced", spare=1),
    Column("what"),
)
MOST_BYTES = 64 << 20


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = options.add(
        commands,
        "reconcile",
        run,
        help="set stored costs by a provider's bill",
        description="Spread a provider's daily bill (CSV or JSON: date, model, usd) over that day's rows of the model, "
        "by tokens; or, with --openrouter, ask OpenRouter what answers without a known cost did cost. Nothing changes "
        "without --apply. Days are UTC.",
        json="one JSON object",
    )
    command.add_argument("file", metavar="FILE", type=Path, nargs="?", help="the bill; days are UTC")
    command.add_argument("--provider", metavar="NAME", help="whose bill it is, where its lines do not say")
    command.add_argument("--openrouter", action="store_true", help="ask OpenRouter, for at most 50 answers")
    options.add_since(command, DEFAULT_SINCE)
    command.add_argument("--apply", action="store_true", help="do it; without it, tell what would be done")
    options.add_store(command)


def run(arguments: argparse.Namespace) -> int:
    if arguments.openrouter == (arguments.file is not None):
        raise UsageError("name a bill, or --openrouter")
    return _ask(arguments) if arguments.openrouter else _spread(arguments)


# --------------------------------------------------------------------------------------------------------- a bill


def _spread(arguments: argparse.Namespace) -> int:
    path: Path = arguments.file
    try:
        raw = path.read_bytes()
        if len(raw) > MOST_BYTES:
            raise CommandError(f"{path} is over {MOST_BYTES >> 20} MiB; that is no bill")
        lines = reconciling.parse(raw, arguments.provider)
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}") from error
    except BadBill as error:
        raise CommandError(f"{path}: {error}") from error
    name = path.name.encode("utf-8", "replace").decode()  # a file may have a name that no column holds
    opened = options.writing(arguments) if arguments.apply else options.reading(arguments)
    with opened as store:
        change = store.change if arguments.apply else store.read
        shares = reconciling.spread(
            lines,
            change,
            label=f"bill {name}",
            dry_run=not arguments.apply,
            progress=lambda done: _progress(f"{done} of {len(lines)} lines"),
        )
        if arguments.apply:
            details = {"lines": len(lines), "rows": sum(share.rows for share in shares)}
            store.change(lambda db: audit.record(db, clock.now_ms(), audit.CLI, "reconcile", name, details))
    if arguments.json:
        options.print_json(_as_json(shares, applied=arguments.apply))
    else:
        print("\n".join(_told(shares, applied=arguments.apply)))
    return 0


def _told(shares: Sequence[Share], *, applied: bool) -> Iterator[str]:
    would = "spread" if applied else "to be spread"
    rows = []
    for share in shares:
        line = share.line
        what = "no rows" if not share.rows else "done before" if share.is_done else would
        before = show.usd(share.before_pd) if share.rows else None
        counts = (show.count(share.rows), before, show.count(share.unpriced) if share.unpriced else None)
        rows.append((line.day.isoformat(), line.provider, line.model, show.usd(line.pd), *counts, what))
    yield _clear() + render(HEAD, rows).rstrip()
    placed = [share for share in shares if share.rows]
    lost = sum(share.line.pd for share in shares if not share.rows)
    money, had = sum(share.line.pd for share in placed), sum(share.before_pd for share in placed)
    count = show.count(sum(share.rows for share in placed))
    yield (
        f"\n{show.usd(money)} over {count} rows, which had {show.usd(had)}"
        + (f"; of {show.usd(lost)} there are no rows" if lost else "")
        + ("." if applied else ". Nothing was changed: --apply does it.")
    )


def _as_json(shares: Sequence[Share], *, applied: bool) -> dict[str, object]:
    return {
        "applied": applied,
        "lines": [
            {
                **msgspec.to_builtins(share.line),
                "usd": share.line.pd / 10**12,
                **{name: getattr(share, name) for name in ("rows", "before_pd", "unpriced", "is_done")},
            }
            for share in shares
        ],
    }


# ----------------------------------------------------------------------------------------------------- OpenRouter


def _ask(arguments: argparse.Namespace) -> int:
    providers = _asked_providers(Source(arguments.config, dict(os.environ)))
    if not providers:
        raise CommandError("no provider of the configuration is OpenRouter (https://openrouter.ai/api/v1)")
    since_ms = options.since_ms(arguments) or 0
    opened = options.writing(arguments) if arguments.apply else options.reading(arguments)
    with opened as store:
        rows = store.read(lambda db: openrouter.waiting(db, providers, since_ms))
        outcome = openrouter.Outcome(rows=len(rows))
        if arguments.apply:
            outcome = openrouter.look_up(
                rows, providers, store.change, lambda done: _progress(f"{done.asked} of {done.rows} answers")
            )
            details = {"asked": outcome.asked, "found": outcome.found}
            store.change(lambda db: audit.record(db, clock.now_ms(), audit.CLI, "reconcile", "openrouter", details))
    if arguments.json:
        options.print_json({"applied": arguments.apply, **msgspec.structs.asdict(outcome)})
    else:
        print(_clear() + _asked(outcome, applied=arguments.apply))
    return 0


def _asked_providers(source: Source) -> dict[str, Provider]:
    """Those that are OpenRouter, with their keys; nobody else's are wanted."""
    names = [name for name, one in source.keyless("providers").providers.items() if openrouter.is_openrouter(one)]
    known = source.keyless("providers", asked=names).providers if names else {}
    return {name: known[name] for name in names}


def _asked(outcome: openrouter.Outcome, *, applied: bool) -> str:
    waiting = f"{show.counted(outcome.rows, 'answer')} of OpenRouter without a known cost"
    if not applied:
        return f"{waiting}. Nothing was asked: --apply does it."
    parts = [
        f"{waiting}; of {show.count(outcome.asked)} it was asked for, of {show.count(outcome.found)} found: "
        f"{show.usd(outcome.found_pd)}",
        f"{show.count(outcome.unknown)} are unknown there, or not known yet" if outcome.unknown else "",
        f"{show.count(outcome.failed)} got no answer" if outcome.failed else "",
        f"stopped: {outcome.stopped}" if outcome.stopped else "",
    ]
    return "; ".join(filter(None, parts)) + "."


def _progress(told: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{told}\x1b[K", end="", file=sys.stderr, flush=True)


def _clear() -> str:
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    return ""
