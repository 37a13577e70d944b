"""Moments as the console shows them: local."""

from __future__ import annotations

import datetime


def local(at_ms: int) -> datetime.datetime:
    """The local moment; the first or the last of the calendar for what lies beyond it."""
    try:
        return datetime.datetime.fromtimestamp(at_ms / 1000)
    except (ValueError, OverflowError, OSError):
        return datetime.datetime.min if at_ms < 0 else datetime.datetime.max


def second(at_ms: int) -> str:
    """A local moment to the second; the year where it is another than ours."""
    return _moment(at_ms, "%m-%d %H:%M:%S")


def minute(at_ms: int) -> str:
    """The same to the minute."""
    return _moment(at_ms, "%m-%d %H:%M")


def since(at_ms: int | None) -> str:
    """` since 2026-11-30 21:41 CET`; nothing where it is since ever."""
    return "" if at_ms is None else f" since {local(at_ms).isoformat(' ', 'minutes')} {zone(at_ms)}"


def zone(at_ms: int | None = None) -> str:
    """What the local time is called, at that moment or now: `CET`, `UTC`, `+0330`."""
    moment = datetime.datetime.now() if at_ms is None else local(at_ms)
    try:
        return moment.astimezone().tzname() or "local time"
    except (ValueError, OverflowError, OSError):  # the ends of the calendar
        return "local time"


def _moment(at_ms: int, written: str) -> str:
    moment = local(at_ms)
    is_this_year = moment.year == datetime.datetime.now().year
    return moment.strftime(written if is_this_year else f"%Y-{written}")
