"""`arbiter sessions`: the conversations of clients, the latest alive first, from the store."""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Sequence
from typing import Any

import msgspec

from arbiter.cli import options
from arbiter.cli.table import local, render
from arbiter.control import show
from arbiter.ledger.questions import sessions
from arbiter.ledger.questions.sessions import Filters, Summary, Totals
from arbiter.ledger.sqlstore import SqlStore

DEFAULT_ROWS = 20
MOST_ROWS = 100_000
MOST_COLUMNS = 118
HEAD = (
    "session",
    "title",
    "agent",
    "client",
    "turns",
    "reqs",
    "in",
    "hit",
    "out",
    "cost",
    "lost",
    "last alive",
    "state",
)
_SOFT = "session title agent client"


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "sessions",
        help="list conversations",
        description="List sessions, the latest alive first. Times are local. `in` is all input, `hit` the part of it "
        "that came from a cache, `lost` the tokens that should have and did not.",
        allow_abbrev=False,
    )
    command.add_argument("--json", action="store_true", help="print a JSON array")
    command.add_argument("--agent", metavar="AGENT", help="only sessions of this agent: claude-code, codex, …")
    command.add_argument("--client", metavar="NAME", help="only sessions of this client")
    command.add_argument(
        "--limit",
        type=options.whole(1, MOST_ROWS),
        default=DEFAULT_ROWS,
        metavar="N",
        help="at most N (default: 20)",
    )
    options.add_since(command)
    options.add_label(command)
    options.add_store(command)
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    filters = Filters(
        since_ms=options.since_ms(arguments),
        agent=arguments.agent,
        client=arguments.client,
        label=options.label(arguments),
    )
    with options.reading(arguments) as store:
        found = _take(store, filters, arguments.limit)
    if arguments.json:
        print(json.dumps([sessions.summary_json(one) for one in found], ensure_ascii=False, indent=1))
    elif found:
        print(table(found), end="")
    else:
        print("no session matches" if filters != Filters() else "no session yet")
    return 0


def table(found: Sequence[Summary]) -> str:
    """The sessions as a table; a column in which nothing stands is left out, but for the first."""
    rows = [_row(one) for one in found]
    kept = [at for at in range(len(HEAD)) if not at or any(row[at] not in (None, "") for row in rows)]
    return render([HEAD[at] for at in kept], [[row[at] for at in kept] for row in rows], MOST_COLUMNS, _SOFT)


def when(at_ms: int | None) -> str | None:
    """A local moment; the year where it is another."""
    if at_ms is None:
        return None
    moment = local(at_ms)
    same = moment.year == datetime.datetime.now().year
    return moment.strftime("%m-%d %H:%M" if same else "%Y-%m-%d %H:%M")


def cost(totals: Totals) -> str | None:
    """What is known of the cost, and whether that is all of it."""
    if totals.cost_pd is None:
        return "unpriced" if totals.unpriced else None
    return f"≥{show.usd(totals.cost_pd)}" if totals.unpriced else show.usd(totals.cost_pd)


def hit(totals: Totals) -> str | None:
    return None if totals.hit_rate is None else f"{totals.hit_rate:.0%}"


def sent(totals: Totals) -> int | None:
    """All input, from wherever it came."""
    known = [count for count in (totals.input_tokens, totals.cached_tokens, totals.cache_write_tokens) if count]
    return sum(known) if known else totals.input_tokens


def _row(one: Summary) -> tuple[Any, ...]:
    row, totals = one.session, one.totals
    tokens = sent(totals)
    return (
        row.session,
        row.title,
        row.agent,
        row.client,
        row.turns,
        row.requests,
        None if tokens is None else show.thousands(tokens),
        hit(totals),
        None if totals.output_tokens is None else show.thousands(totals.output_tokens),
        cost(totals),
        None if totals.lost_tokens is None else show.thousands(totals.lost_tokens),
        when(row.last_ms),
        one.state,
    )


def _take(store: SqlStore, filters: Filters, limit: int) -> list[Summary]:
    found: list[Summary] = []
    while len(found) < limit:
        asked = msgspec.structs.replace(filters, limit=min(sessions.MAX_LIMIT, limit - len(found)))
        page = store.read(lambda db, asked=asked: sessions.listing(db, asked))  # type: ignore[misc]
        found += page.sessions
        if page.next is None:
            break
        last = page.sessions[-1].session
        filters = msgspec.structs.replace(filters, before=(last.last_ms or 0, last.id))
    return found
