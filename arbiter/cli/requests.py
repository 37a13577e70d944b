"""`arbiter requests`: what was asked, newest first, from the store. The gateway need not be running."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

import msgspec

from arbiter.cli import UsageError, moments, one_content, one_request, options
from arbiter.cli.table import TRACE_COLUMNS, Column, number, render, soft, trace
from arbiter.control import show
from arbiter.ledger import query
from arbiter.ledger.query import Entry, Filters
from arbiter.ledger.questions import content
from arbiter.ledger.questions.content import Content
from arbiter.ledger.sqlstore import SqlStore
from arbiter.ledger.store import Readable

DEFAULT_ROWS = 20
MOST_ROWS = 100_000


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = options.add(
        commands,
        "requests",
        run,
        help="list recorded requests",
        description="List recorded requests, newest first. Times are local; ms and ttft (time to the first byte sent "
        "to the client) are milliseconds; tokens and cost are added up over a request's attempts. `in` is all input, "
        "`cached` and `written` are the parts of it that were read from the provider's cache and written to it. With "
        "--trace, a single request is shown with its attempts.",
        json="a JSON array, with each request's attempts",
    )
    command.add_argument(
        "--trace",
        metavar="ID",
        help="only what this id means: a trace id, the gateway's or the client's own, a request's or an attempt's; "
        f"{query.MIN_PREFIX} characters do",
    )
    command.add_argument(
        "--limit", type=options.whole(1, MOST_ROWS), default=DEFAULT_ROWS, metavar="N", help="at most N (default: 20)"
    )
    command.add_argument("--errors", action="store_true", help="only those that failed or were interrupted")
    command.add_argument(
        "--content",
        action="store_true",
        help="with --trace: also what was asked and answered, where `storage.capture` has kept it",
    )
    options.add_since(command)
    options.add_session(command)
    command.add_argument("--affinity-key", metavar="KEY", help="only this conversation, also where it tells no session")
    options.add_label(command)
    command.add_argument(
        "--kind",
        choices=(*query.KINDS, query.ALL),
        help="only these: what clients asked (the default, except with --trace), or what the gateway itself did",
    )
    options.add_store(command)


def run(arguments: argparse.Namespace) -> int:
    trace = options.text(arguments.trace)
    if arguments.content and trace is None:
        raise UsageError("--content needs --trace: it shows one request's")
    filters = Filters(
        trace=trace,
        errors=arguments.errors,
        since_ms=options.since_ms(arguments),
        affinity_key=options.text(arguments.affinity_key),
        label=options.label(arguments),
        kind=query.kind(arguments.kind, trace),
    )
    with options.reading(arguments) as store:
        filters = msgspec.structs.replace(filters, session=options.session(store, arguments))
        found = _take(store, filters, arguments.limit + 1)  # one more tells whether what is shown is all
        entries = found[: arguments.limit]
        contents = _contents(store, entries) if arguments.content else {}
    if arguments.json:
        options.print_json([_as_json(entry, contents) for entry in entries])
    elif trace is not None and len(found) == 1:
        print(one_request.tell(entries[0]), end="")
        if arguments.content:
            kept = contents[entries[0].request.id]
            print("\nNothing of its content is kept.\n" if kept.is_empty else one_content.tell(kept), end="")
    elif entries:
        print(render(_head(), map(_row, entries)), end="")
        if len(found) > len(entries):
            print(options.MORE)
        if any(entry.is_approximate for entry in entries):
            print(show.APPROXIMATE)
    elif trace is not None and len(trace) < query.MIN_PREFIX:
        print(f"No request matches; the beginning of an id needs at least {query.MIN_PREFIX} characters.")
    else:
        asked = filters != Filters(since_ms=filters.since_ms, kind=query.kind(None, None))
        print(options.none("request", filters.since_ms, asked))
    return 0


def _contents(store: SqlStore, entries: list[Entry]) -> dict[str, Content]:
    ids = [entry.request.id for entry in entries]
    return store.read(lambda database: {one: content.content(database, one) for one in ids})


def _as_json(entry: Entry, contents: Mapping[str, Content]) -> dict[str, Any]:
    shown = query.as_json(entry, attempts=True)
    kept = contents.get(entry.request.id)
    return shown if kept is None else shown | content.as_json(entry.request.id, kept)


def _take(store: Readable, filters: Filters, limit: int) -> list[Entry]:
    entries: list[Entry] = []
    before = None
    while len(entries) < limit:
        count = min(query.MAX_LIMIT, limit - len(entries))
        page = store.requests(msgspec.structs.replace(filters, limit=count, before=before))
        entries += page.entries
        if page.next is None:
            break
        before = query.read_cursor(page.next)
    return entries


def _head() -> tuple[Column, ...]:
    return (
        Column(f"time ({moments.zone()})"),
        trace(),
        soft("client", spare=4),
        soft("model", least=12),
        soft("provider", spare=6),
        soft("status", least=10),
        number("ms", spare=1),
        number("ttft", spare=7),
        number("in"),
        number("cached", spare=2),
        number("written", spare=5),
        number("out"),
        number("cost"),
    )


def _row(entry: Entry) -> tuple[object, ...]:
    request = entry.request
    return (
        moments.second(request.received_ms),
        request.trace_id[:TRACE_COLUMNS],
        request.client,
        request.model_asked,
        request.provider,
        show.status(request),
        _ms(request.total_us),
        _ms(request.first_byte_us),
        *counts(entry),
    )


def counts(entry: Entry) -> tuple[str | None, ...]:
    """All input, the parts of it that came from a cache and went into one, the output, and what they cost."""
    tokens = entry.all_input, *(entry.about(name) for name in ("cached_tokens", "cache_write_tokens", "output_tokens"))
    about = "~" if entry.is_approximate else ""
    return (*(None if count is None else f"{about}{count}" for count in tokens), _cost(entry))


def _cost(entry: Entry) -> str | None:
    pd = entry.request.cost_pd
    if not pd and (entry.is_unpriced or entry.is_subscription):
        return "unpriced" if entry.is_unpriced else "subscription"
    if pd is None:
        return None
    return f"~{show.usd(pd)}" if entry.is_cost_approximate else show.usd(pd)


def _ms(us: int | None) -> str | None:
    if us is None:
        return None
    return "<0.1" if us < 50 else f"{us / 1000:.1f}" if us < 99_950 else f"{us / 1000:.0f}"
