"""`arbiter cache`: what prompt caches saved, and why they were missed. The gateway need not be running."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import msgspec

from arbiter import clock
from arbiter.cli import moments, options
from arbiter.cli.table import TRACE_COLUMNS, Column, number, render, soft, trace
from arbiter.control import reports, show
from arbiter.ledger import losses
from arbiter.ledger.questions import cache
from arbiter.ledger.questions.cache import Cause, Group, Lost, Report

CAUSES = (Column("cause"), number("calls"), number("lost"), number("cost"), soft("what it means"))


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = options.add(
        commands,
        "cache",
        run,
        help="show what prompt caches saved and lost",
        description="Show how much of what was sent was read from the providers' prompt caches, what was lost of them "
        "and why, and the largest losses. The causes that come first have no explanation in what was sent. `in` is all "
        "input, `cached` the part of it that was read from a cache, `lost` what should have been and was not, in "
        "tokens. Times are local.",
        json="one JSON object",
    )
    options.add_session(command, ", over its whole life")
    options.add_since(command, cache.DEFAULT_SINCE)
    command.set_defaults(since=None)  # a session is told from its beginning
    command.add_argument("--provider", metavar="NAME", help="only this provider")
    command.add_argument("--model", metavar="NAME", help="only this model, by its provider's name for it")
    command.add_argument("--cause", choices=losses.CAUSES, metavar="CAUSE", help="only this cause among the largest")
    command.add_argument("--by", choices=cache.GROUPS, help="split by provider, model, session or client")
    command.add_argument(
        "--limit",
        metavar="N",
        default=str(cache.DEFAULT_LIMIT),
        help=f"the N largest losses (default: {cache.DEFAULT_LIMIT})",
    )
    options.add_store(command)


def run(arguments: argparse.Namespace) -> int:
    with options.parameters():
        filters = cache.parse(options.asked(arguments, cache.PARAMETERS), clock.now_ms())
    with options.reading(arguments) as store:
        filters = msgspec.structs.replace(filters, session=options.session(store, arguments))
        found = store.read(lambda database: cache.report(database, filters))
    if arguments.json:
        options.print_json(cache.as_json(found, filters))
    else:
        print("\n".join(_told(found, filters)))
    return 0


def _told(found: Report, filters: cache.Filters) -> Iterator[str]:
    when = moments.since(filters.since_ms)
    if not found.tokens.calls and not found.causes:
        yield f"No call told what it read from a cache{when}."
        return
    yield f"{reports.rate(found.tokens)}{when}."
    yield reports.summary(found.causes)
    if found.causes:
        yield "\n" + render(CAUSES, map(_cause, found.causes)).rstrip()
    if found.groups is not None:
        heads = ("calls", "in", "cached", "hit", "lost", "for a reason", "cost")
        head = (soft(filters.by or "", least=20), *map(number, heads))
        yield "\n" + render(head, map(_group, found.groups)).rstrip()
    if found.largest:
        yield "\nThe largest losses"
        head = (
            Column(f"time ({moments.zone()})"),
            trace(),
            soft("session", spare=2),
            soft("model", spare=1),
            Column("cause"),
            number("lost"),
            soft("where"),
            number("cost"),
        )
        yield render(head, map(_lost, found.largest)).rstrip()
        yield "One of them in full: arbiter requests --trace TRACE"


def _cause(cause: Cause) -> tuple[object, ...]:
    meaning = show.LOSSES.get(cause.cause, "")
    return (cause.cause, f"{cause.calls:,}", show.thousands(cause.lost_tokens), reports.lost_cost([cause]), meaning)


def _group(group: Group) -> tuple[object, ...]:
    tokens = group.tokens
    lost = [sum(cause.lost_tokens for cause in group.causes if cause.is_explained is kind) for kind in (False, True)]
    return (
        group.name,
        f"{tokens.calls:,}",
        show.thousands(tokens.sent),
        show.thousands(tokens.cached_tokens),
        None if tokens.hit_rate is None else show.percent(tokens.hit_rate),
        *(show.thousands(count) if count else None for count in lost),
        reports.lost_cost(group.causes),
    )


def _lost(lost: Lost) -> tuple[object, ...]:
    return (
        moments.second(lost.started_ms),
        lost.trace_id[:TRACE_COLUMNS],
        lost.session,
        lost.model,
        lost.cause,
        show.thousands(lost.lost_tokens),
        lost.within,
        "unpriced" if lost.lost_pd is None else show.usd(lost.lost_pd),
    )
