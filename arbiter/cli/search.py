"""`arbiter search`: where words were said, from the store. The gateway need not be running."""

from __future__ import annotations

import argparse

import msgspec

from arbiter.cli import CommandError, options
from arbiter.cli.table import local, render
from arbiter.ledger.questions import search
from arbiter.ledger.questions.search import Filters, Hit

HEAD = ("time", "trace", "session", "what", "text")
MOST_COLUMNS = 118
TRACE_COLUMNS = 12  # as `arbiter requests` shows it


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "search",
        help="find words in what was captured",
        description="Find words in captured content, titles of sessions, notes and names of tools, the best matches "
        "first. All of the words must be there; 'two words' in quotation marks stand side by side, and word* is how a "
        "word begins. Needs `search.index`.",
        allow_abbrev=False,
    )
    command.add_argument("words", metavar="WORDS", nargs="+", help="what to look for")
    command.add_argument("--json", action="store_true", help="print one JSON object")
    most = search.DEFAULT_LIMIT
    command.add_argument(
        "--limit",
        type=options.whole(1, search.MAX_LIMIT),
        default=most,
        metavar="N",
        help=f"at most N (default: {most})",
    )
    options.add_since(command)
    command.add_argument("--session", metavar="ID", help="only in this session")
    options.add_store(command)
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    text = " ".join(arguments.words).encode("utf-8", "replace").decode()
    session = arguments.session.encode("utf-8", "replace").decode() if arguments.session else None
    filters = Filters(q=text, since_ms=options.since_ms(arguments), session=session, limit=arguments.limit)
    with options.reading(arguments) as store:
        found = store.read(lambda database: search.find(database, filters))
    if found.state == "off":
        raise CommandError("there is no index to search: set `search.index: true`, and reload the gateway")
    if arguments.json:
        print(msgspec.json.encode(search.as_json(found)).decode())
        return 0
    if found.hits:
        print(render(HEAD, map(_row, found.hits), MOST_COLUMNS, "text session"), end="")
        if not found.is_all:
            print("there are more: narrow the search, or ask for more with --limit")
    else:
        print("nothing matches")
    if found.state == "building":
        print("the index is still being built: what was stored before it may be missing yet")
    return 0


def _row(hit: Hit) -> tuple[object, ...]:
    at = None if hit.at_ms is None else local(hit.at_ms).strftime("%m-%d %H:%M:%S")
    trace = None if hit.trace is None else hit.trace[:TRACE_COLUMNS]
    return (at, trace, hit.session, hit.kind, hit.text)
