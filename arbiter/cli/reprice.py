"""`arbiter reprice`: stored requests priced anew, by today's configuration. The gateway may be running."""

from __future__ import annotations

import argparse
import os
import sys

import msgspec

from arbiter import clock
from arbiter.cli import UsageError, options
from arbiter.config.load import PRICED, Source
from arbiter.control import show
from arbiter.ledger import audit
from arbiter.ledger.repricing import Outcome, Window, reprice
from arbiter.ledger.tariffs import tariff


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = options.add(
        commands,
        "reprice",
        run,
        help="price stored requests anew",
        description="Price stored requests anew, from their stored tokens and the prices that held when they ended, by "
        "the configuration and price list as they are now. Costs that did not come from prices are kept: the "
        "provider's own figures, shares of a bill, subscriptions; and those of providers that are no longer "
        "in the configuration.",
        json="one JSON object",
    )
    options.add_since(command, more=" (required)")
    command.add_argument("--until", metavar="WHEN", help="only until then (default: now)")
    command.add_argument("--provider", metavar="NAME", help="only attempts at this provider")
    command.add_argument("--model", metavar="NAME", help="only this model, by its provider's name for it")
    command.add_argument("--unpriced", action="store_true", help="only attempts without a price")
    command.add_argument("--dry-run", action="store_true", help="change nothing; tell what would change")
    options.add_store(command)


def run(arguments: argparse.Namespace) -> int:
    since_ms = options.since_ms(arguments)
    if since_ms is None:
        raise UsageError("reprice from when on? --since 7d, or --since 2026-01-01")
    now_ms = clock.now_ms()
    until_ms = now_ms + 1 if arguments.until is None else options.moment_ms("until", arguments.until)
    snapshot = Source(arguments.config, dict(os.environ)).keyless(*PRICED)
    window = Window(
        since_ms=since_ms,
        until_ms=until_ms,
        provider=arguments.provider,
        model=arguments.model,
        unpriced=arguments.unpriced,
    )
    prices = tariff(snapshot.pricing, snapshot.providers)
    opened = options.reading(arguments) if arguments.dry_run else options.writing(arguments)
    with opened as store:
        change = store.read if arguments.dry_run else store.change
        outcome = reprice(window, prices, change, dry_run=arguments.dry_run, progress=_progress)
        if not arguments.dry_run:
            details = {"since_ms": since_ms, "changed": outcome.changed}
            store.change(lambda db: audit.record(db, clock.now_ms(), audit.CLI, "reprice", None, details))
    if arguments.json:
        options.print_json({"dry_run": arguments.dry_run, **msgspec.structs.asdict(outcome)})
    else:
        print(_told(outcome, dry_run=arguments.dry_run))
    return 0


def _progress(outcome: Outcome) -> None:
    if sys.stderr.isatty():
        told = f"{show.count(outcome.requests)} requests, {show.count(outcome.changed)} attempts changed"
        print(f"\r{told}\x1b[K", end="", file=sys.stderr, flush=True)


def _told(outcome: Outcome, *, dry_run: bool) -> str:
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    looked = f"{show.counted(outcome.requests, 'request')} with {show.counted(outcome.attempts, 'attempt')}"
    kept = (
        f"{show.count(outcome.kept)} kept: a cost that is no matter of prices" if outcome.kept else "",
        f"{show.count(outcome.unconfigured)} kept: provider not configured" if outcome.unconfigured else "",
    )
    if not outcome.changed:
        return "; ".join(filter(None, (f"Nothing changes in {looked}", *kept))) + "."
    would = "would change" if dry_run else "changed"
    parts = [
        f"{show.count(outcome.changed)} {would}, from {show.usd(outcome.before_pd)} to {show.usd(outcome.after_pd)}",
        f"{show.count(outcome.priced)} had no cost" if outcome.priced else "",
        f"{show.count(outcome.lost_price)} have none any more" if outcome.lost_price else "",
        *kept,
    ]
    return f"Of {looked}, {'; '.join(filter(None, parts))}."
