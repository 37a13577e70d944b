"""`arbiter requests`: what was asked, newest first, from the store. The gateway need not be running."""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Mapping
from typing import Any

import msgspec

from arbiter.cli import UsageError, one_content, one_request, options
from arbiter.cli.table import local, render
from arbiter.control import show
from arbiter.ledger import query
from arbiter.ledger.query import Entry, Filters
from arbiter.ledger.questions import content
from arbiter.ledger.questions.content import Content
from arbiter.ledger.sqlstore import SqlStore
from arbiter.ledger.store import Readable

DEFAULT_ROWS = 20
MOST_ROWS = 100_000

HEAD = ("time", "trace", "client", "model", "provider", "status", "ms", "ttft", "in", "cached", "out", "cost")
MOST_COLUMNS = 118
TRACE_COLUMNS = 12  # enough for `--trace`, and to be told apart


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "requests",
        help="list recorded requests",
        description="List recorded requests, newest first. Times are local; ms and ttft (time to the first byte sent "
        "to the client) are milliseconds; tokens and cost are added up over a request's attempts. With --trace, a "
        "single request is shown with its attempts.",
        allow_abbrev=False,
    )
    command.add_argument("--json", action="store_true", help="print a JSON array, with each request's attempts")
    command.add_argument(
        "--trace",
        metavar="ID",
        help=f"only this trace id, the gateway's or the client's own; {query.MIN_PREFIX} characters do",
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
    command.add_argument("--session", metavar="ID", help="only this session")
    command.add_argument("--affinity-key", metavar="KEY", help="only this conversation, also where it tells no session")
    options.add_label(command)
    command.add_argument(
        "--kind",
        choices=(*query.KINDS, query.ALL),
        help="only these: what clients asked (the default, but with --trace), or what the gateway itself did",
    )
    options.add_store(command)
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    trace = _text(arguments.trace)
    if arguments.content and trace is None:
        raise UsageError("--content needs --trace: it shows one request's")
    filters = Filters(
        trace=trace,
        errors=arguments.errors,
        since_ms=options.since_ms(arguments),
        session=_text(arguments.session),
        affinity_key=_text(arguments.affinity_key),
        label=options.label(arguments),
        kind=query.kind(arguments.kind, trace),
    )
    with options.reading(arguments) as store:
        found = _take(store, filters, arguments.limit + 1)  # one more tells whether what is shown is all
        entries = found[: arguments.limit]
        contents = _contents(store, entries) if arguments.content else {}
    if arguments.json:
        lines = [msgspec.json.encode(_as_json(entry, contents)).decode() for entry in entries]
        print("[" + ",\n ".join(lines) + "]")
    elif trace is not None and len(found) == 1:
        print(one_request.tell(entries[0]), end="")
        if arguments.content:
            kept = contents[entries[0].request.id]
            print("\nNothing of its content is kept.\n" if kept.is_empty else one_content.tell(kept), end="")
    elif entries:
        year = datetime.datetime.now().year
        print(
            render(HEAD, [_row(entry, year) for entry in entries], MOST_COLUMNS, "client model provider status"), end=""
        )
        if any(entry.is_partial for entry in entries):
            print(show.PARTIAL)
    elif trace is not None and len(trace) < query.MIN_PREFIX:
        print(f"no request matches; the beginning of a trace id needs at least {query.MIN_PREFIX} characters")
    else:
        print("no request matches" if filters != Filters(kind=filters.kind) else "no request yet")
    return 0


def _contents(store: SqlStore, entries: list[Entry]) -> dict[str, Content]:
    ids = [entry.request.id for entry in entries]
    return store.read(lambda database: {one: content.content(database, one) for one in ids})


def _as_json(entry: Entry, contents: Mapping[str, Content]) -> dict[str, Any]:
    shown = query.as_json(entry, attempts=True)
    kept = contents.get(entry.request.id)
    return shown if kept is None else shown | content.as_json(entry.request.id, kept)


def _text(word: str | None) -> str | None:
    """A word of the command line; what is no text in it cannot be in the store either."""
    return None if word is None else word.encode("utf-8", "replace").decode()


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


def _row(entry: Entry, year: int) -> tuple[Any, ...]:
    request = entry.request
    received = local(request.received_ms)
    return (
        received.strftime("%m-%d %H:%M:%S" if received.year == year else "%Y-%m-%d %H:%M:%S"),
        request.trace_id[:TRACE_COLUMNS],
        request.client,
        request.model_asked,
        request.provider,
        show.status(request),
        _ms(request.total_us),
        _ms(request.first_byte_us),
        *(_tokens(entry, field) for field in ("input_tokens", "cached_tokens", "output_tokens")),
        _cost(entry),
    )


def _tokens(entry: Entry, field: str) -> str | None:
    total = entry.about(field)
    return None if total is None else f"~{total}" if entry.is_partial else str(total)


def _cost(entry: Entry) -> str | None:
    pd = entry.request.cost_pd
    if pd is None:
        return "unpriced" if entry.is_unpriced else None
    return f"~{show.usd(pd)}" if entry.is_partial else show.usd(pd)


def _ms(us: int | None) -> str | None:
    if us is None:
        return None
    return "<0.1" if us < 50 else f"{us / 1000:.1f}" if us < 99_950 else f"{us / 1000:.0f}"
