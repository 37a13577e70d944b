"""`arbiter limits`: what providers said of their limits, from the store. The gateway need not be running."""

from __future__ import annotations

import argparse
import datetime

import msgspec

from arbiter import clock
from arbiter.cli import options
from arbiter.cli.table import local, render
from arbiter.ledger.questions import limits
from arbiter.ledger.questions.limits import Answer, Headroom, Refusals, Wait, Window

COLUMNS = 118
PROJECTION = "* a projection: what comes if it goes on as it went. Everything else is the provider's own word."


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "limits",
        help="show what providers said of their limits",
        description="Show what providers said of their limits: what is left of them, how often they refused a request "
        "(429), how long they asked to be left alone, and the windows of subscriptions. Times are local.",
        allow_abbrev=False,
    )
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.add_argument("--provider", metavar="NAME", help="only this provider")
    options.add_since(command, "24h")
    options.add_store(command)
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    now_ms = clock.now_ms()
    asked = limits.Asked(since_ms=options.since_ms(arguments) or 0, now_ms=now_ms, provider=arguments.provider)
    with options.reading(arguments) as store:
        answer = store.read(lambda database: limits.ask(database, asked))
    if arguments.json:
        print(msgspec.json.encode(answer).decode())
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
    return "\n".join(part for part in parts if part) or "no provider said anything of a limit\n"


def _headroom(found: list[Headroom], now_ms: int) -> str:
    if not found:
        return ""
    head = ("provider", "account", "model", "of", "limit", "remaining", "left", "resets", "said")
    rows = [
        (
            one.provider,
            one.account,
            one.model,
            one.kind + (f" per {one.per}" if one.per else ""),
            one.limit,
            "reset since" if one.is_over else one.remaining,
            None if one.is_over else _part(one.headroom),
            _time(one.resets_ms, now_ms),
            _time(one.at_ms, now_ms),
        )
        for one in found
    ]
    return "What is left, by the last word of each:\n\n" + render(head, rows, COLUMNS, "account model")


def _windows(found: list[Window], now_ms: int) -> str:
    if not found:
        return ""
    head = ("provider", "account", "window", "used", "left", "resets", "status", "per hour", "at reset *", "full *")
    rows = [_window(one, now_ms) for one in found]
    return f"Windows of subscriptions:\n\n{render(head, rows, COLUMNS, 'account')}{PROJECTION}\n"


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
    head = ("provider", "account", "model", "why", "times", "last")
    rows = [(one.provider, one.account, one.model, one.subtype, one.count, _time(one.last_ms, now_ms)) for one in found]
    return "Refused with 429:\n\n" + render(head, rows, COLUMNS, "account model")


def _waits(found: list[Wait], now_ms: int) -> str:
    if not found:
        return ""
    head = ("provider", "account", "times", "in all", "until")
    rows = [(one.provider, one.account, one.times, _span(one.blocked_ms), _time(one.until_ms, now_ms)) for one in found]
    return "Asked to be left alone:\n\n" + render(head, rows, COLUMNS, "account")


def _part(value: float | None) -> str | None:
    return None if value is None else f"{value * 100:.1f}%".replace(".0%", "%")


def _span(ms: int) -> str:
    return str(datetime.timedelta(seconds=round(ms / 1000)))


def _time(ms: int | None, now_ms: int) -> str | None:
    """The time of day; with its date where that is another day."""
    if ms is None:
        return None
    moment, now = map(local, (ms, now_ms))
    return moment.strftime("%H:%M:%S" if moment.date() == now.date() else "%m-%d %H:%M")
