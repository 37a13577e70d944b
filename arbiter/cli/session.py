"""`arbiter session S`: one conversation, turn by turn, with those it started; ends it, names it, attaches notes."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from arbiter import clock
from arbiter.cli import CommandError, UsageError, moments, options
from arbiter.cli.requests import counts
from arbiter.cli.sessions import cost, hit
from arbiter.cli.table import TRACE_COLUMNS, Column, filled, number, plain, render, soft, trace
from arbiter.control import show
from arbiter.ledger import audit, names
from arbiter.ledger import sessions as kept
from arbiter.ledger.database import Database
from arbiter.ledger.query import Entry
from arbiter.ledger.questions import sessions
from arbiter.ledger.questions.sessions import Detail
from arbiter.ledger.session_rows import KINDS, SessionRow
from arbiter.ledger.sqlstore import SqlStore
from arbiter.sessions.naming import TITLE_CHARS, tidy

MOST_DEPTH = 8
NOTE_CHARS = 4096


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = options.add(
        commands,
        "session",
        run,
        help="show one conversation, end it, name it, or say something of it",
        description="Show one session: what it used, its notes, its requests in their order, and those it started, "
        "indented. S is its name, the beginning of it, or its id. Times are local; `in` is all input, `cached` and "
        "`written` are parts of it, `cache` says why less was read from the provider's cache than was left there.",
        json="one JSON object",
    )
    command.add_argument("session", metavar="S", help=f"the session; {sessions.MIN_PREFIX} characters of its name do")
    command.add_argument("--client", metavar="NAME", help="of this client, where several use the name")
    command.add_argument(
        "--limit",
        type=options.whole(1, sessions.MAX_LIMIT),
        default=sessions.DEFAULT_TURNS,
        metavar="N",
        help="the latest N requests of each session (default: 100)",
    )
    command.add_argument("--end", action="store_true", help="end it; a call that comes later opens it again")
    command.add_argument("--note", metavar="TEXT", help="attach a note to it")
    command.add_argument("--title", metavar="TEXT", help="call it so; nobody else gives it a title then")
    command.add_argument("--clear-title", action="store_true", help="take title and summary away; it stays without")
    options.add_store(command)


def run(arguments: argparse.Namespace) -> int:
    if arguments.title is not None and arguments.clear_title:
        raise UsageError("--title and --clear-title: one of them")
    if arguments.end or arguments.clear_title or arguments.note is not None or arguments.title is not None:
        with options.writing(arguments) as store:
            row = _meant(store, arguments)
            _change(store, row, arguments)
        return 0
    with options.reading(arguments) as store:
        row = _meant(store, arguments)
        if arguments.json:
            found = store.read(lambda db: sessions.detail(db, row.id, arguments.limit))
            if found is None:
                raise CommandError(f"the session {plain(row.id)!r} was deleted just now")
            options.print_json(sessions.detail_json(found))
        else:
            print("\n".join(store.read(lambda db: list(_tree(db, row.id, arguments.limit)))))
    return 0


def _meant(store: SqlStore, arguments: argparse.Namespace) -> SessionRow:
    name = options.text(arguments.session) or ""
    found = store.read(lambda db: sessions.named(db, name, arguments.client))
    if not found:
        short = f"; a beginning needs at least {sessions.MIN_PREFIX} characters"
        raise CommandError(f"there is no session {plain(name)!r}{short if len(name) < sessions.MIN_PREFIX else ''}")
    if len(found) > 1:
        listed = options.listed([f"{row.session} of {row.client or 'nobody known'}" for row in found])
        raise CommandError(f"several sessions are meant: {listed}; give more of it, or its --client")
    return found[0]


def _change(store: SqlStore, row: SessionRow, arguments: argparse.Namespace) -> None:
    now_ms = clock.now_ms()
    note: str | None = arguments.note.strip() if arguments.note is not None else None
    if note is not None and not 1 <= len(note) <= NOTE_CHARS:
        raise UsageError(f"--note: between 1 and {NOTE_CHARS} characters")
    title: str | None = tidy(arguments.title) if arguments.title is not None else None
    if title is not None and not 1 <= len(title) <= TITLE_CHARS:
        raise UsageError(f"--title: between 1 and {TITLE_CHARS} characters that can be seen")

    def work(db: Database) -> list[str]:
        done = []
        if title is not None:
            changed = names.by_operator(db, row.id, title, now_ms)
            done.append(_told_of(db, "title", row, now_ms, changed, "title changed", "that is its title already"))
        if arguments.clear_title:
            changed = names.clear(db, row.id, now_ms)
            done.append(_told_of(db, "clear_title", row, now_ms, changed, "title cleared", "it has none already"))
        if note is not None:
            kept.add_note(db, row.id, now_ms, audit.CLI, note)
            audit.record(db, now_ms, audit.CLI, "note", row.id)
            done.append("noted")
        if arguments.end:
            done.append(
                _told_of(db, "end", row, now_ms, kept.end(db, row.id, now_ms), "ended", "ended already"),
            )
        return done

    print(f"{plain(row.session)}: {', '.join(store.change(work))}")


def _told_of(db: Database, action: str, row: SessionRow, at_ms: int, changed: bool, done: str, nothing: str) -> str:
    """What to say of an action, which is written down where it changed something."""
    if changed:
        audit.record(db, at_ms, audit.CLI, action, row.id)
    return done if changed else nothing


def _tree(db: Database, key: str, limit: int) -> Iterator[str]:
    """The lines of a session, then those of the ones it started, further in. One that stands above is not repeated."""
    seen: set[str] = set()
    left = [(key, 0)]
    while left:
        at, depth = left.pop()
        if at in seen:
            continue
        seen.add(at)
        found = sessions.detail(db, at, limit)
        if found is None:
            continue
        if depth:
            yield ""
        yield from _told(found, "    " * depth)
        if depth < MOST_DEPTH:
            left += [(child.session.id, depth + 1) for child in reversed(found.children)]


def _told(found: Detail, indent: str) -> Iterator[str]:
    row = found.summary.session
    yield f"{indent}{plain(row.title or row.session)}: {_state(found)}"
    yield from (f"{indent}  {name:<12}{plain(value)}" for name, value in _facts(found) if value is not None)
    if found.notes:
        yield ""
        for note in found.notes:
            first, *more = note.text.splitlines() or [""]
            yield f"{indent}  note {moments.minute(note.at_ms)}, {plain(note.who)}: {plain(first)}"
            yield from (f"{indent}       {plain(line)}" for line in more)
    if found.turns:
        yield ""
        if found.has_more:
            yield f"{indent}  … earlier ones are left out; --limit shows up to {sessions.MAX_LIMIT}"
        yield from render(*filled(_head(), map(_line, found.turns)), indent=f"{indent}  ").splitlines()
        if any(entry.is_approximate for entry in found.turns):
            yield f"{indent}  {show.APPROXIMATE}"


def _state(found: Detail) -> str:
    state, ended_ms = found.summary.state, found.summary.session.ended_ms
    if ended_ms is None:
        return state
    return f"{'silent since' if state == 'idle' else 'ended by an operator'} {moments.minute(ended_ms)}"


def _facts(found: Detail) -> Iterator[tuple[str, str | None]]:
    row, totals = found.summary.session, found.summary.totals
    yield "about", row.summary
    yield "session", row.session if row.title else None
    yield "client", row.client
    yield "agent", row.agent
    yield "parent", row.parent
    if row.first_ms is not None and row.last_ms is not None:
        yield "from", f"{moments.minute(row.first_ms)} to {moments.minute(row.last_ms)} {moments.zone(row.last_ms)}"
    yield "turns", f"{row.turns} of {row.requests} requests" + (f", {row.failed} failed" if row.failed else "")
    yield "kinds", ", ".join(_kinds(row)) or None
    if totals.all_input is not None or totals.all_output is not None:
        yield (
            "tokens",
            show.sums(
                totals.all_input,
                totals.cached_tokens,
                totals.cache_write_tokens,
                totals.all_output,
                is_approximate=totals.is_approximate,
            ),
        )
    yield "cache", None if totals.hit_rate is None else f"{hit(totals)} of the input came from it"
    if totals.lost_tokens:
        price = f", {show.usd(totals.lost_pd)}" if totals.lost_pd is not None else ""
        yield "lost to it", f"{totals.lost_tokens:,} tokens{price}"
    yield "answering", show.pace(totals.elapsed_ms, totals.tokens_per_s)
    yield "cost", cost(totals)
    yield "title asked", _asked(found)


def _asked(found: Detail) -> str | None:
    """What the gateway's own questions about it came to."""
    if not found.own:
        return None
    known = [entry.request.cost_pd for entry in found.own if entry.request.cost_pd is not None]
    last = found.own[-1].request
    where = f"{last.error_class}, trace {last.trace_id[:TRACE_COLUMNS]}"
    ended = "" if last.outcome == "ok" else f", the latest in vain ({where})"
    count = len(found.own)
    often = "once" if count == 1 else f"{count}{'+' if count == sessions.MOST_OWN else ''} times"
    return often + (f", {show.usd(sum(known))}" if known else "") + ended


def _kinds(row: SessionRow) -> Iterator[str]:
    for kind, column in KINDS.items():
        if count := getattr(row, column):
            yield f"{count} {kind}"


def _head() -> tuple[Column, ...]:
    return (
        number("turn"),
        Column(f"time ({moments.zone()})"),
        soft("kind", spare=5),
        soft("model", spare=2, least=12),
        soft("status", least=10),
        number("in"),
        number("cached", spare=3),
        number("written", spare=4),
        number("out"),
        number("cost"),
        soft("cache", spare=1, least=13),
        trace(),
    )


def _line(entry: Entry) -> tuple[object, ...]:
    request = entry.request
    verdicts = [attempt.cache_verdict for attempt in entry.attempts if attempt.cache_verdict is not None]
    return (
        request.turn_index,
        moments.second(request.received_ms),
        request.request_kind,
        request.model or request.model_asked,
        show.status(request),
        *counts(entry),
        verdicts[-1] if verdicts else None,
        request.trace_id[:TRACE_COLUMNS],
    )
