"""`arbiter search`: where words were said, from the store. The gateway need not be running."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

import msgspec

from arbiter.cli import CommandError, UsageError, moments, options
from arbiter.cli.table import TRACE_COLUMNS, Column, number, render, soft, trace
from arbiter.cli.tell import ask
from arbiter.config.load import Source
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
        "word begins. Needs `search.index`. With --meaning also what is said in other words: the running gateway has "
        "`search.embed.alias` make a vector of the words. Times are local.",
        json="one JSON object",
    )
    command.add_argument("words", metavar="WORDS", nargs="+", help="what to look for")
    command.add_argument(
        "--meaning", action="store_true", help="find what means the same, the nearest first, in whatever words"
    )
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
    if arguments.meaning and (found := _by_meaning(arguments, filters)) is not None:
        return _tell_near(found, filters, arguments.json)
    return _by_words(arguments, filters)


def _by_words(arguments: argparse.Namespace, filters: Filters) -> int:
    with options.reading(arguments) as store:
        filters = msgspec.structs.replace(filters, session=options.session(store, arguments))
        found = store.read(lambda database: search.find(database, filters))
    if found.state == "off":
        raise CommandError(
            "there is no index to search: set `search.index: true`, and reload the gateway"
            + (f"; {UNCAPTURED}" if _is_uncaptured(arguments) else "")
        )
    if arguments.json:
        options.print_json(search.as_json(found))
        return 0
    if found.hits:
        print(render(_head(), map(_row, found.hits)), end="")
        if not found.is_all:
            print("There are more: narrow the search, or ask for more with --limit.")
    else:
        print(f"Nothing{moments.since(filters.since_ms)} matches.")
    if _is_uncaptured(arguments):
        print(f"Titles, notes and names of tools were searched alone: {UNCAPTURED}.")
    if found.state == "building":
        print("The index is still being built: what was stored before it may be missing yet.")
    return 0


UNCAPTURED = "what is said is not kept; with `storage: { capture: { content: true } }` it is from then on"


def _is_uncaptured(arguments: argparse.Namespace) -> bool:
    """Whether the configuration keeps nothing of what is said; a store that was named by itself does not say."""
    if arguments.db is not None:
        return False
    return not Source(arguments.config, dict(os.environ)).local("storage").storage.capture.content


def _by_meaning(arguments: argparse.Namespace, filters: Filters) -> dict[str, Any] | None:
    """What the running gateway finds; None, and said so, where it does not search by meaning.

    Errors: CommandError where it cannot.
    """
    if arguments.db is not None:
        raise UsageError("--meaning asks the running gateway: name its configuration with --config, not a store (--db)")
    if not filters.q.strip():
        raise UsageError("--meaning: WORDS say nothing")
    local = Source(arguments.config, dict(os.environ)).local("search")
    if local.search.embed is None:
        _tell_instead("`search.embed.alias` is not set")
        return None
    asked = {"meaning": filters.q, "limit": str(filters.limit)}
    if filters.since_ms is not None:
        asked["since"] = str(filters.since_ms)
    if arguments.session is not None:
        with options.reading(arguments) as store:
            asked["session"] = options.session(store, arguments) or ""
    answered = ask(local.data_dir, "/admin/api/search", asked)
    if answered is None:
        raise CommandError(f"no gateway runs on {local.data_dir}, to make a vector; leave --meaning out for words")
    status, told = answered
    if told.get("reason") == "meaning_off":
        _tell_instead("the running gateway does not know of `search.embed.alias`: reload it")
        return None
    if status != 200:
        raise CommandError(f"{told.get('detail', f'the gateway answered {status}')}; leave --meaning out for words")
    found: dict[str, Any] = told
    return found


def _tell_instead(why: str) -> None:
    print(f"Not searched by meaning: {why}. These are the words themselves.", file=sys.stderr)


def _tell_near(found: dict[str, Any], filters: Filters, is_json: bool) -> int:
    if is_json:
        options.print_json(found)
        return 0
    if found["hits"]:
        head = (number("score"), *_head())
        print(render(head, [_near(one) for one in found["hits"]]), end="")
    else:
        print(f"Nothing{moments.since(filters.since_ms)} means that.")
    if found["waiting"] or found["index"] == "building":
        print(f"{found['waiting']:,} more texts wait for their vectors, and are not found yet.")
    return 0


def _near(found: dict[str, Any]) -> tuple[object, ...]:
    score = found.pop("score")
    return (f"{score:.2f}", *_row(msgspec.convert(found, Hit)))


def _head() -> tuple[Column, ...]:
    when, what = Column(f"time ({moments.zone()})"), Column("what")
    return (when, trace(), soft("session", spare=1), what, soft("text", least=20))


def _row(hit: Hit) -> tuple[object, ...]:
    at = None if hit.at_ms is None else moments.second(hit.at_ms)
    trace = None if hit.trace is None else hit.trace[:TRACE_COLUMNS]
    return (at, trace, hit.session, hit.kind, hit.text)
