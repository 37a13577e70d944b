"""How numbers and names are written for people. Unknown is a dash, never a zero."""

from __future__ import annotations

import datetime

DASH = "–"


def duration(us: int | None) -> str:
    """Microseconds as `0.4 ms`, `85 ms`, `1.23 s`, `12.3 s`, `4 min 5 s`: three digits tell enough."""
    if us is None:
        return DASH
    if us < 9_950:
        return f"{us / 1000:.1f} ms"
    if us < 999_500:
        return f"{us / 1000:.0f} ms"
    seconds = us / 1_000_000
    if seconds < 120:
        return f"{seconds:.2f} s" if seconds < 9.995 else f"{seconds:.1f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60} s"


def count(value: int | None) -> str:
    """A number with its thousands apart."""
    return DASH if value is None else f"{value:,}"


def size(value: int | None) -> str:
    """Bytes as `512 B`, `4.0 KiB`, `1.2 MiB`."""
    if value is None:
        return DASH
    if value < 1024:
        return f"{value} B"
    if value < 1 << 20:
        return f"{value / 1024:.1f} KiB"
    return f"{value / (1 << 20):.1f} MiB"


def clock(ms: int) -> str:
    """Unix milliseconds as a UTC time of day; the browser turns it into its own."""
    return _moment(ms).strftime("%H:%M:%S")


def iso(ms: int) -> str:
    """Unix milliseconds as ISO 8601, for machines."""
    return _moment(ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def text(value: object) -> str:
    """Anything else."""
    return DASH if value is None or value == "" else str(value)


def _moment(ms: int) -> datetime.datetime:
    try:
        return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.datetime.fromtimestamp(0, datetime.UTC)
