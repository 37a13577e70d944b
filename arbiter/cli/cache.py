"""`arbiter cache`: what prompt caches saved, and why they were missed. The gateway need not be running."""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Iterator
from typing import Any

import msgspec

from arbiter import clock
from arbiter.cli import UsageError, options
from arbiter.cli.table import local, render
from arbiter.control import show
from arbiter.ledger import losses
from arbiter.ledger.query import BadParameter
from arbiter.ledger.questions import cache
from arbiter.ledger.questions.cache import Cause, Group, Lost, Report, Tokens

MOST_COLUMNS = 118
TRACE_COLUMNS = 12

CAUSES = ("cause", "calls", "lost", "cost", "what it means")
LARGEST = ("time", "trace", "session", "model", "cause", "lost", "where", "cost")


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "cache",
        help="show what prompt caches saved and lost",
        description="Show how much of what was sent was read from the providers' prompt caches, what was lost of them "
        "and why, and the largest losses. The causes that come first have no explanation in what was sent.",
        allow_abbrev=False,
    )
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.add_argument("--session", metavar="ID", help="only this session, over its whole life")
    options.add_since(command, cache.DEFAULT_SINCE)
    command.set_defaults(since=None)  # a session is told from its beginning
    command.add_argument("--provider", metavar="NAME", help="only this provider")
    command.add_argument("--model", metavar="NAME", help="only this model, by its provider's name for it")
    command.add_argument("--cause", choices=losses.CAUSES, metavar="CAUSE", help="only this cause among the largest")
    command.add_argument("--by", choices=cache.GROUPS, help="split by provider, model, session or client")
    command.add_argument(
        "--limit", metavar="N", default=str(cache.DEFAULT_LIMIT), help=f"the N largest losses, {cache.DEFAULT_LIMIT}"
    )
    options.add_store(command)
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    named = {name: getattr(arguments, name) for name in cache.PARAMETERS}
    asked = {name: value.encode("utf-8", "replace").decode() for name, value in named.items() if value is not None}
    try:
        filters = cache.parse(asked, clock.now_ms())
    except BadParameter as error:
        raise UsageError(f"--{error}") from error
    with options.reading(arguments) as store:
        found = store.read(lambda database: cache.report(database, filters))
    if arguments.json:
        print(msgspec.json.encode(cache.as_json(found, filters)).decode())
    else:
        print("\n".join(_told(found, filters)))
    return 0


def _told(found: Report, filters: cache.Filters) -> Iterator[str]:
    when = "" if filters.since_ms is None else f" since {_time(filters.since_ms)}"
    if not found.tokens.calls and not found.causes:
        yield f"No call told what it read from a cache{when}."
        return
    yield f"{_rate(found.tokens)}{when}."
    yield _summary(found.causes)
    if found.causes:
        yield "\n" + render(CAUSES, [_cause(cause) for cause in found.causes], MOST_COLUMNS, CAUSES[-1]).rstrip()
    if found.groups is not None:
        head = (filters.by or "", "calls", "read", "of", "hit rate", "lost", "for a reason", "cost")
        yield "\n" + render(head, [_group(group) for group in found.groups], MOST_COLUMNS, head[0]).rstrip()
    if found.largest:
        yield "\nThe largest losses"
        yield render(LARGEST, [_lost(lost) for lost in found.largest], MOST_COLUMNS, "session model").rstrip()
        yield "One of them in full: arbiter requests --trace TRACE"


def _rate(tokens: Tokens) -> str:
    rate = tokens.hit_rate
    told = "Nothing was sent" if rate is None else f"Hit rate {percent(rate)}"
    read, sent = show.thousands(tokens.cached_tokens), show.thousands(tokens.sent)
    calls = "1 call" if tokens.calls == 1 else f"{tokens.calls:,} calls"
    return f"{told}: {read} of {sent} input tokens came from a cache, in {calls}"


def _summary(causes: list[Cause]) -> str:
    alarms = [cause for cause in causes if not cause.is_explained]
    explained = [cause for cause in causes if cause.is_explained]
    told = [", ".join(f"{show.thousands(cause.lost_tokens)} {cause.cause}" for cause in alarms) + _for(alarms)]
    if not alarms:
        told = ["nothing was lost without a reason"]
    if explained:
        lost = show.thousands(sum(cause.lost_tokens for cause in explained))
        told.append(f"{lost} lost for a reason{_for(explained)}")
    whole = "; ".join(told) + "."
    return whole[:1].upper() + whole[1:]


def _for(causes: list[Cause]) -> str:
    cost = _cost(causes)
    return "" if cost is None else f" ({cost})"


def _cost(causes: list[Cause]) -> str | None:
    """What is known of it; `+ ?` where some of it is not."""
    known = [cause.lost_pd for cause in causes if cause.lost_pd is not None]
    if not known:
        return "unpriced" if causes else None
    return show.usd(sum(known)) + (" + ?" if any(cause.unpriced for cause in causes) else "")


def _cause(cause: Cause) -> tuple[Any, ...]:
    meaning = show.LOSSES.get(cause.cause, "")
    return (cause.cause, f"{cause.calls:,}", show.thousands(cause.lost_tokens), _cost([cause]), meaning)


def _group(group: Group) -> tuple[Any, ...]:
    tokens = group.tokens
    lost = [sum(cause.lost_tokens for cause in group.causes if cause.is_explained is kind) for kind in (False, True)]
    return (
        group.name,
        f"{tokens.calls:,}",
        show.thousands(tokens.cached_tokens),
        show.thousands(tokens.sent),
        None if tokens.hit_rate is None else percent(tokens.hit_rate),
        *(show.thousands(count) if count else None for count in lost),
        _cost(group.causes),
    )


def _lost(lost: Lost) -> tuple[Any, ...]:
    return (
        _time(lost.started_ms),
        lost.trace_id[:TRACE_COLUMNS],
        lost.session,
        lost.model,
        lost.cause,
        show.thousands(lost.lost_tokens),
        lost.within,
        "unpriced" if lost.lost_pd is None else show.usd(lost.lost_pd),
    )


def percent(rate: float) -> str:
    """A share as `87 %`, `99.6 %`; never 100 where something is missing."""
    return f"{rate * 100:.0f} %" if rate in (0, 1) or 0.1 <= rate < 0.985 else f"{min(rate * 100, 99.9):.1f} %"


def _time(ms: int) -> str:
    moment = local(ms)
    is_this_year = moment.year == datetime.datetime.now().year
    return moment.strftime("%m-%d %H:%M:%S" if is_this_year else "%Y-%m-%d %H:%M:%S")
