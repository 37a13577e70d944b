"""`arbiter cost`: what was spent, and how far the sums can be trusted. The gateway need not be running."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence

import msgspec

from arbiter import clock
from arbiter.cli import moments, options
from arbiter.cli.table import Column, number, render, soft
from arbiter.config.load import Source
from arbiter.config.rates import Prepaid
from arbiter.control import reports, show
from arbiter.ledger.questions import cost
from arbiter.ledger.questions.cost import Report, Spent


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = options.add(
        commands,
        "cost",
        run,
        help="show what was spent",
        description="Show what was spent, by model, provider, client, session, agent or day, with the tokens it was "
        "spent on, how many attempts have no known cost, and where the prices came from. What our own estimates come "
        "to stands apart, as does what a subscription's calls would have cost. `in` is all input, `cached` and "
        "`written` are the parts of it that were read from a cache and written to one. Days are "
        "UTC, other times local.",
        json="one JSON object",
    )
    options.add_since(command, cost.DEFAULT_SINCE)
    command.add_argument("--by", choices=cost.GROUPS, default="model", help="what to split by (default: model)")
    for name, what in (
        ("provider", "this provider"),
        ("model", "this model, by its provider's name for it"),
        ("client", "this client"),
        ("agent", "this agent"),
    ):
        command.add_argument(f"--{name}", metavar="NAME", help=f"only {what}")
    options.add_session(command)
    command.add_argument(
        "--limit", metavar="N", default=str(cost.DEFAULT_LIMIT), help=f"the first N (default: {cost.DEFAULT_LIMIT})"
    )
    options.add_store(command)


UNPRICED = (
    "Without a price: `arbiter prices check` names the declared models that have none, a row of `models` or `arbiter "
    "prices refresh` gives them one, and `arbiter reprice` prices what was asked before."
)


def run(arguments: argparse.Namespace) -> int:
    with options.parameters():
        filters = cost.parse(options.asked(arguments, cost.PARAMETERS), clock.now_ms())
    with options.reading(arguments) as store:
        filters = msgspec.structs.replace(filters, session=options.session(store, arguments))
        prepaid = _prepaid(arguments)
        found = store.read(lambda database: cost.report(database, filters, prepaid))
    if arguments.json:
        options.print_json(cost.as_json(found, filters))
    else:
        print("\n".join(_told(found, filters)))
    return 0


def _prepaid(arguments: argparse.Namespace) -> tuple[Prepaid, ...]:
    """What the configuration says was paid in advance; a store that was named by itself has none."""
    if arguments.db is not None:
        return ()
    return Source(arguments.config, dict(os.environ)).local("prices").prepaid


def _told(found: Report, filters: cost.Filters) -> Iterator[str]:
    since = moments.since(filters.since_ms)
    total = found.total
    if not total.attempts:
        yield f"Nothing was asked of a provider{since}."
    else:
        verb = "has" if total.unpriced == 1 else "have"
        open = f"; {show.counted(total.unpriced, 'attempt')} {verb} no price" if total.unpriced else ""
        yield f"{reports.spent(total)} for {show.counted(total.requests, 'request')}{since}{open}."
        yield "\n" + _table(found, filters).rstrip()
        if total.is_approximate:
            yield show.APPROXIMATE
        if found.more:
            yield f"{show.counted(found.more, 'row')} more: --limit N shows N of them"
        yield "\n" + reports.sources(total)
        if total.unpriced:
            yield UNPRICED
    for left in found.prepaid:
        yield reports.left(left)


def _table(found: Report, filters: cost.Filters) -> str:
    total = found.total
    optional = {
        "estimated": total.estimated > 0,
        "at list prices": total.equivalent_pd > 0,
        "unpriced": total.unpriced > 0,
        "free": total.free > 0,
    }
    head = [
        soft(filters.by, least=20),
        number("requests"),
        number("failed", spare=1),
        number("in"),
        number("cached", spare=3),
        number("written", spare=4),
        number("out"),
        number("cost"),
        *(number(name, spare=5 if name == "free" else 0) for name, is_shown in optional.items() if is_shown),
    ]
    rows = [_row(group, group.name, head) for group in found.groups]
    if len(found.groups) > 1 or found.more:
        rows.append(_row(total, "all", head))
    return render(head, rows)


def _row(spent: Spent, name: str | None, head: Sequence[Column]) -> tuple[object, ...]:
    cells: dict[str, object] = {
        "requests": show.count(spent.requests),
        "failed": show.count(spent.failed) if spent.failed else None,
        "in": reports.used(spent, spent.all_input, "input_tokens"),
        "cached": reports.used(spent, spent.cached_tokens, "cached_tokens"),
        "written": reports.used(spent, spent.cache_write_tokens, "cache_write_tokens"),
        "out": reports.used(spent, spent.all_output, "output_tokens"),
        "cost": reports.metered(spent) if spent.metered else None,
        "estimated": f"~{show.usd(spent.estimated_pd)}" if spent.estimated else None,
        "at list prices": show.usd(spent.equivalent_pd) if spent.equivalent_pd else None,
        "unpriced": show.count(spent.unpriced) if spent.unpriced else None,
        "free": show.count(spent.free) if spent.free else None,
    }
    return (name, *(cells[column.head] for column in head[1:]))
