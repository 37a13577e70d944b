"""`arbiter limits`: what providers said of their limits, from the store. The gateway need not be running."""

from __future__ import annotations

import argparse

from arbiter import clock
from arbiter.cli import moments, options
from arbiter.cli.table import Column, number, render, soft
from arbiter.control import show
from arbiter.ledger.questions import limits
from arbiter.ledger.questions.limits import Answer, Headroom, Refusals, Wait, Window

WHOSE = (soft("provider"), soft("account", spare=3))
PROJECTION = "* a projection: what comes if it goes on as it went. Everything else is the provider's own word."


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = options.add(
        commands,
        "limits",
        run,
        help="show what providers said of their limits",
        description="Show what providers said of their limits: what is left of them, how often they refused a request "
        "(429), how long they asked to be left alone, and the windows of subscriptions. Times are local.",
        json="one JSON object",
    )
    command.add_argument("--provider", metavar="NAME", help="only this provider")
    options.add_since(command, "24h")
    options.add_store(command)


def run(arguments: argparse.Namespace) -> int:
    now_ms = clock.now_ms()
    asked = limits.Asked(since_ms=options.since_ms(arguments) or 0, now_ms=now_ms, provider=arguments.provider)
    with options.reading(arguments) as store:
        answer = store.read(lambda database: limits.ask(database, asked))
    if arguments.json:
        options.print_json(answer)
    else:
        print(_told(answer, now_ms), end="")
    return 0


def _told(answer: Answer, now_ms: int) -> str:
    parts = (
        _headroom(answer.headroom, now_ms),
        _windows(answer.windows, now_ms),
        _refusals(answer.refusals, now_ms),
        _waits(answer.waits, now_ms),
    )
    nothing = f"No provider said anything of a limit{moments.since(answer.since_ms)}.\n"
    return "\n".join(part for part in parts if part) or nothing


def _headroom(found: list[Headroom], now_ms: int) -> str:
    if not found:
        return ""
    head = (
        *WHOSE,
        soft("model"),
        "of",
        number("limit", spare=2),
        number("remaining"),
        number("left"),
        _at("resets"),
        _at("said", spare=1),
    )
    rows = [
        (
            one.provider,
            one.account,
            one.model,
            one.kind + (f" per {one.per}" if one.per else ""),
            None if one.limit is None else show.count(one.limit),
            "reset since" if one.is_over else None if one.remaining is None else show.count(one.remaining),
            None if one.is_over else _part(one.headroom),
            _time(one.resets_ms, now_ms),
            _time(one.at_ms, now_ms),
        )
        for one in found
    ]
    return "What is left, by the last word of each:\n\n" + render(head, rows)


def _windows(found: list[Window], now_ms: int) -> str:
    if not found:
        return ""
    head = (
        *WHOSE,
        soft("window"),
        number("used"),
        number("left"),
        _at("resets"),
        soft("status", spare=2),
        number("per hour", spare=1),
        number("at reset *"),
        Column("full *"),
    )
    rows = [_window(one, now_ms) for one in found]
    return f"Windows of subscriptions:\n\n{render(head, rows)}{PROJECTION}\n"


def _window(one: Window, now_ms: int) -> tuple[object, ...]:
    ahead = one.projection
    return (
        one.provider,
        one.account,
        one.window,
        "reset since" if one.is_over else _part(one.used),
        None if one.is_over else _part(one.headroom),
        _time(one.resets_ms, now_ms),
        one.status,
        _part(one.burn_per_hour),
        _part(ahead.used_at_reset) if ahead is not None else None,
        _time(ahead.full_ms, now_ms) if ahead is not None else None,
    )


def _refusals(found: list[Refusals], now_ms: int) -> str:
    if not found:
        return ""
    head = (*WHOSE, soft("model"), soft("why"), number("times"), _at("last"))
    rows = [
        (one.provider, one.account, one.model, one.subtype, show.count(one.count), _time(one.last_ms, now_ms))
        for one in found
    ]
    return "Refused with 429:\n\n" + render(head, rows)


def _waits(found: list[Wait], now_ms: int) -> str:
    if not found:
        return ""
    head = (*WHOSE, number("times"), number("in all"), _at("until"))
    rows = [
        (
            one.provider,
            one.account,
            show.count(one.times),
            show.duration(one.blocked_ms * 1000),
            _time(one.until_ms, now_ms),
        )
        for one in found
    ]
    return "Asked to be left alone:\n\n" + render(head, rows)


def _at(head: str, spare: int = 0) -> Column:
    return Column(f"{head} ({moments.zone()})", spare=spare)


def _part(value: float | None) -> str | None:
    return None if value is None else f"{value * 100:.1f}%".replace(".0%", "%")


def _time(ms: int | None, now_ms: int) -> str | None:
    """The time of day; with its date where that is another day."""
    if ms is None:
        return None
    moment, now = map(moments.local, (ms, now_ms))
    return moment.strftime("%H:%M:%S" if moment.date() == now.date() else "%m-%d %H:%M")
