"""Spans and moments as providers write them in headers and bodies: seconds, `1m2.5s`, HTTP dates, RFC 3339, epochs.

Nothing here raises: text that is no time is None.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime

_MAX_CHARS = 64
"""Of a value; the longest date in use has 37."""
_EPOCH_S, _EPOCH_MS = 1e9, 1e12
"""From here on a number is no longer seconds to wait but a moment (2001), in seconds or in milliseconds."""

_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?|[+-]?\.[0-9]+")
_UNIT = (
    r"([0-9]+(?:\.[0-9]+)?) ?"
    r"(milliseconds?|ms|us|µs|ns|seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d)(?![a-z])"
)
ANY_CASE = re.ASCII | re.IGNORECASE  # of letters that are ours: a long s is none
SPAN = re.compile(rf"(?:{_UNIT})+", ANY_CASE)
_PART = re.compile(_UNIT, ANY_CASE)
_UNITS_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_TIME = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"
_HTTP_DATES = tuple(
    re.compile(form, ANY_CASE)
    for form in (
        rf"[a-z]{{3}}, (?P<day>[0-9]{{2}}) (?P<month>[a-z]{{3}}) (?P<year>[0-9]{{4}}) {_TIME} (?:GMT|UTC)",
        rf"[a-z]{{6,9}}, (?P<day>[0-9]{{2}})-(?P<month>[a-z]{{3}})-(?P<year>[0-9]{{2}}) {_TIME} (?:GMT|UTC)",
        rf"[a-z]{{3}} (?P<month>[a-z]{{3}}) (?P<day>[ 0-9][0-9]) {_TIME} (?P<year>[0-9]{{4}})",
    )
)
_RFC3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?(?:[Zz]|[+-][0-9]{2}:[0-9]{2})?"
)


def until_s(value: str, now_ms: int) -> float | None:
    """Return how long it is until a window opens: a span, or a moment in one of the ways to write one.

    Units: seconds, negative for what is over; `now_ms` is wall time since 1970.
    """
    text = trimmed(value)
    found = seconds(text)
    if found is not None and found >= _EPOCH_S:
        return (found / 1000 if found >= _EPOCH_MS else found) - now_ms / 1000
    if found is not None:
        return found
    moment = _rfc3339_s(text)
    if moment is None:
        moment = http_date_s(text, now_ms)
    return moment - now_ms / 1000 if moment is not None else None


def trimmed(value: str) -> str:
    """Return `value` without the blanks around it; nothing where it is too long to be one of ours."""
    return value.strip() if len(value) <= _MAX_CHARS else ""


def seconds(text: str) -> float | None:
    """Return the seconds of a number or a duration."""
    found = number(text)
    return found if found is not None else span_s(text)


def number(text: str) -> float | None:
    """Return a number that is written in digits."""
    return float(text) if _NUMBER.fullmatch(text) else None


def span_s(text: str) -> float | None:
    """Return the seconds of a duration as Go writes it (`1h2m3.5s`, `20ms`), or in words."""
    if not SPAN.fullmatch(text):
        return None
    return sum(float(amount) * _unit_s(unit.lower()) for amount, unit in _PART.findall(text))


def _unit_s(unit: str) -> float:
    if unit.startswith("milli"):
        return 1e-3
    return _UNITS_S.get(unit) or _UNITS_S[unit[0]]


def http_date_s(text: str, now_ms: int) -> float | None:
    """Return the moment of a date in one of HTTP's three forms, the old ones too."""
    for form in _HTTP_DATES:
        found = form.fullmatch(text)
        if found is None:
            continue
        month, year = found["month"].lower(), int(found["year"])
        if month not in _MONTHS:
            return None
        if len(found["year"]) == 2:
            this_year = 1970 + now_ms // 31_556_952_000
            year += this_year // 100 * 100
            if year > this_year + 50:  # RFC 9110: that far ahead it was the last century
                year -= 100
        day, hour, minute = int(found["day"]), int(found["hour"]), int(found["minute"])
        second = min(int(found["second"]), 59)  # 60 is a leap second
        return _moment_s(datetime, year, _MONTHS.index(month) + 1, day, hour, minute, second)
    return None


def _rfc3339_s(text: str) -> float | None:
    if not _RFC3339.fullmatch(text):
        return None
    return _moment_s(datetime.fromisoformat, text.upper())


def _moment_s(make: Callable[..., datetime], *said: str | int) -> float | None:
    try:
        moment = make(*said)
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
