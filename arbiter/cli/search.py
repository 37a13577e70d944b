"""`arbiter search`: where words were said, from the store. The gateway need not be running."""

from __future__ import annotations

import argparse

import msgspec

from arbiter.cli import CommandError, moments, options
from arbiter.cli.table import TRACE_COLUMNS, Column, render, soft, trace
from arbiter.ledger.questions import search
from arbiter.ledger.questions.search import Filters, Hit


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = options.add(
        commands,
        "search",
        run,
        help="find words in what was captured",
        description="Find words in captured content, titles of sessions, notes and names of tools, the best matches "
        "first. All of the words must be there; 'two words' in quotation marks stand side by side, and word* is how a "
        "word begins. Needs `search.index`. Times are local.",
        json="one JSON object",
    )
    command.add_argument("words", metavar="WORDS", nargs="+", help="what to look for")
    most = search.DEFAULT_LIMIT
    command.add_argument(
        "--limit",
        type=options.whole(1, search.MAX_LIMIT),
        default=most,
        metavar="N",
        help=f"at most N (default: {most})",
    )
    options.add_since(command)
    options.add_session(command)
    options.add_store(command)


def run(arguments: argparse.Namespace) -> int:
    words = options.text(" ".join(arguments.words)) or ""
    filters = Filters(q=words, since_ms=options.since_ms(arguments), limit=arguments.limit)
    with options.reading(arguments) as store:
        filters = msgspec.structs.replace(filters, session=options.session(store, arguments))
        found = store.read(lambda database: search.find(database, filters))
    if found.state == "off":
        raise CommandError("there is no index to search: set `search.index: true`, and reload the gateway")
    if arguments.json:
        options.print_json(search.as_json(found))
        return 0
    if found.hits:
        head = (Column(f"time ({moments.zone()})"), trace(), soft("session", spare=1), "what", soft("text", least=20))
        print(render(head, map(_row, found.hits)), end="")
        if not found.is_all:
            print("There are more: narrow the search, or ask for more with --limit.")
    else:
        print(f"Nothing{moments.since(filters.since_ms)} matches.")
    if found.state == "building":
        print("The index is still being built: what was stored before it may be missing yet.")
    return 0


def _row(hit: Hit) -> tuple[object, ...]:
    at = None if hit.at_ms is None else moments.second(hit.at_ms)
    trace = None if hit.trace is None else hit.trace[:TRACE_COLUMNS]
    return (at, trace, hit.session, hit.kind, hit.text)
