"""`arbiter sessions`: the conversations of clients, the latest alive first, from the store."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import msgspec

from arbiter.cli import moments, options
from arbiter.cli.table import Column, filled, number, render, soft
from arbiter.control import show
from arbiter.ledger.questions import sessions
from arbiter.ledger.questions.sessions import Filters, Summary, Totals
from arbiter.ledger.sqlstore import SqlStore

DEFAULT_ROWS = 20
MOST_ROWS = 100_000


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = options.add(
        commands,
        "sessions",
        run,
        help="list conversations",
        description="List sessions, the latest alive first. Times are local. `in` is all input, `hit` the part of it "
        "that came from a cache, `lost` the tokens that should have and did not.",
        json="a JSON array",
    )
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


NOBODYS = "Whose they are is told by keys, one for each client: `arbiter keys new NAME`."
WHENCE = (
    "A request belongs to a session where its agent names one (Claude Code, Codex, opencode and others do), or the "
    "header X-Arbiter-Session-Id does; `arbiter requests` has all."
)


def run(arguments: argparse.Namespace) -> int:
    filters = Filters(
        since_ms=options.since_ms(arguments),
        agent=arguments.agent,
        client=arguments.client,
        label=options.label(arguments),
    )
    with options.reading(arguments) as store:
        taken = _take(store, filters, arguments.limit + 1)
        found = taken[: arguments.limit]
    if arguments.json:
        options.print_json([sessions.summary_json(one) for one in found])
    elif found:
        print(table(found), end="")
        if len(taken) > len(found):
            print(options.MORE)
        if any(one.totals.is_approximate for one in found):
            print(show.APPROXIMATE)
        if not any(one.session.client for one in found):
            print(NOBODYS)
    else:
        is_filtered = filters != Filters(since_ms=filters.since_ms)
        print(options.none("session", filters.since_ms, is_filtered))
        if not is_filtered:
            print(WHENCE)
    return 0


def table(found: Sequence[Summary]) -> str:
    """The sessions as a table; a column in which nothing stands is left out, but for the first."""
    head = (
        soft("session", least=20),
        soft("title", spare=2),
        soft("agent", spare=4),
        soft("client", spare=3),
        number("turns", spare=6),
        number("requests", spare=8),
        number("in"),
        number("hit"),
        number("out"),
        number("cost"),
        number("lost", spare=5),
        Column(f"last alive ({moments.zone()})"),
        Column("state", spare=7),
    )
    return render(*filled(head, map(_row, found)))


def cost(totals: Totals) -> str | None:
    """What is known of the cost, and whether that is all of it, and all that is known."""
    if not totals.cost_pd and (totals.cost_pd is None or totals.subscription):
        return "unpriced" if totals.unpriced else "subscription" if totals.subscription else None
    return f"{'≥' if totals.unpriced else ''}{'~' if totals.cost_approximate else ''}{show.usd(totals.cost_pd)}"


def hit(totals: Totals) -> str | None:
    return None if totals.hit_rate is None else show.percent(totals.hit_rate)


def _row(one: Summary) -> tuple[object, ...]:
    row, totals = one.session, one.totals
    about = "~" if totals.is_approximate else ""
    tokens = [
        None if count is None else about + show.thousands(count) for count in (totals.all_input, totals.all_output)
    ]
    return (
        row.session,
        row.title,
        row.agent,
        row.client,
        row.turns,
        row.requests,
        tokens[0],
        hit(totals),
        tokens[1],
        cost(totals),
        None if totals.lost_tokens is None else show.thousands(totals.lost_tokens),
        None if row.last_ms is None else moments.minute(row.last_ms),
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
