"""`arbiter cost`: what was spent, and how far the sums can be trusted. The gateway need not be running."""

from __future__ import annotations

import argparse
import datetime
import os
from collections.abc import Iterator, Sequence

import msgspec

from arbiter import clock
from arbiter.cli import moments, options
from arbiter.cli.table import Column, number, render, soft
from arbiter.config.load import Source
from arbiter.config.rates import Prepaid
from arbiter.control import show
from arbiter.ledger.questions import cost
from arbiter.ledger.questions.cost import Left, Report, Spent


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
        yield f"{_sum(total)} for {show.counted(total.requests, 'request')}{since}{open}."
        yield "\n" + _table(found, filters).rstrip()
        if total.is_approximate:
            yield show.APPROXIMATE
        if found.more:
            yield f"{show.counted(found.more, 'row')} more: --limit N shows N of them"
        yield "\n" + _sources(total)
        if total.unpriced:
            yield UNPRICED
    for left in found.prepaid:
        yield _left(left)


def _sum(spent: Spent) -> str:
    """The dollars of each kind, never in one sum."""
    known = (
        spent.attempts - spent.unpriced - spent.estimated - spent.sources.get("subscription", cost.Source()).attempts
    )
    parts = [_metered(spent)] if known or spent.metered_pd else []
    if spent.estimated:
        parts.append(f"~{show.usd(spent.estimated_pd)} by estimated tokens")
    if spent.equivalent_pd:
        parts.append(f"a subscription's calls ({show.usd(spent.equivalent_pd)} at list prices)")
    return " and ".join(parts) or ("An unknown sum" if spent.unpriced else "Nothing")


def _metered(spent: Spent) -> str:
    return f"{'~' if spent.partial_priced else ''}{show.usd(spent.metered_pd)}"


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
        "in": _tokens(spent, spent.all_input, "input_tokens"),
        "cached": _tokens(spent, spent.cached_tokens, "cached_tokens"),
        "written": _tokens(spent, spent.cache_write_tokens, "cache_write_tokens"),
        "out": _tokens(spent, spent.all_output, "output_tokens"),
        "cost": _metered(spent) if spent.metered else None,
        "estimated": f"~{show.usd(spent.estimated_pd)}" if spent.estimated else None,
        "at list prices": show.usd(spent.equivalent_pd) if spent.equivalent_pd else None,
        "unpriced": show.count(spent.unpriced) if spent.unpriced else None,
        "free": show.count(spent.free) if spent.free else None,
    }
    return (name, *(cells[column.head] for column in head[1:]))


def _tokens(spent: Spent, count: int | None, field: str) -> str | None:
    """A count, and whether that is all of it; None where nobody reported any."""
    if count is None:
        return None
    return f"{'≥' if field in spent.unreported else ''}{'~' if spent.is_approximate else ''}{show.thousands(count)}"


def _sources(total: Spent) -> str:
    """Where the prices came from, by their share of the money, or of the attempts where there is none."""
    whole = total.metered_pd + total.estimated_pd
    told = []
    for name, source in sorted(total.sources.items(), key=lambda one: (-one[1].cost_pd, -one[1].attempts)):
        money = f"{'~' if source.approximate else ''}{show.usd(source.cost_pd)}"
        share = f"{money}, {show.percent(source.cost_pd / whole)} of it, " if whole and source.cost_pd else ""
        told.append(f"{name} ({share}{show.counted(source.attempts, 'attempt')})")
    return f"Prices: {'; '.join(told)}." if told else "No attempt reported what it used."


def _left(left: Left) -> str:
    whose = left.provider if left.account is None else f"{left.provider} ({left.account})"
    unknown = f", less {show.counted(left.unpriced, 'attempt')} without a price" if left.unpriced else ""
    money = f"{'~' if left.approximate else ''}{show.usd(abs(left.left_pd))}"
    verb = "left" if left.left_pd >= 0 else "spent beyond the"
    since = datetime.datetime.fromtimestamp(left.since_ms / 1000, datetime.UTC).date().isoformat()
    return f"Prepaid, {whose}: {money} {verb} of {show.usd(left.balance_pd)} since {since}{unknown}."
