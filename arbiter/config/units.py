"""Durations (`250ms`), sizes (`64KiB`), prices (`0.075`), numbers (`2.5`) and moments: from text, and back."""

from __future__ import annotations

import datetime
import re

_NUMBER = r"([0-9]{1,12}(?:\.[0-9]{1,6})?)"
DURATION = rf"^(?:0|{_NUMBER}(ms|s|m|h|d))$"
SIZE = rf"^(?:[0-9]{{1,15}}|{_NUMBER}(B|KB|MB|GB|KiB|MiB|GiB))$"
PRICE = r"^([0-9]{1,9})(?:\.([0-9]{1,6}))?$"

NUMBER = r"^[0-9]{1,9}(?:\.[0-9]{1,6})?$"

MOMENT = r"^\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?: ?(?:Z|[+-]\d\d:?\d\d))?)?$"

_duration = re.compile(DURATION)
_size = re.compile(SIZE)
_price = re.compile(PRICE)
_number = re.compile(NUMBER)
_moment = re.compile(MOMENT)
LONGEST_S = 366 * 86400.0  # beyond it timers overflow; write 0 for "no limit"
LARGEST_BYTES = 1 << 42
HIGHEST_PD = 10**11  # $100,000 per million tokens: whoever writes more meant another unit
HIGHEST_FEE_PD = HIGHEST_PD * 10**6  # for a request: as much as the dearest million tokens
LARGEST_NUMBER = 10.0**9
LATEST_MS = 253_402_300_799_999  # the last millisecond that ISO 8601 has four digits for
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def duration_s(text: str) -> float | None:
    """Seconds, or None where `text` is no duration. Only 0 may stand without a unit: 30 could mean anything."""
    match = _duration.match(text)
    if match is None or text.endswith("\n"):
        return None
    if match[1] is None:
        return 0.0
    exact = float(match[1]) * _SECONDS[match[2]]
    # Rounded to the microsecond, so that 250ms is 0.25 and not its neighbour; but never down to 0, which means "off".
    return max(round(exact, 6), 0.000001 if exact else 0.0)


def size_bytes(text: str) -> int | None:
    """Bytes, or None where `text` is no size. A bare number is bytes."""
    match = _size.match(text)
    if match is None or text.endswith("\n"):
        return None
    if match[1] is None:
        return int(text)
    return int(float(match[1]) * _BYTES[match[2]])


def price_pd(text: str) -> int | None:
    """Picodollars per token, or None where `text` is no price.

    Units: the text is USD per million tokens, so its sixth decimal is one picodollar per token, and nothing is rounded.
    """
    match = _price.match(text)
    if match is None or text.endswith("\n"):
        return None
    return int(match[1] + (match[2] or "").ljust(6, "0"))


def number(text: str) -> float | None:
    """A number above 0, or None where `text` is none."""
    if not _number.match(text) or text.endswith("\n"):
        return None
    return float(text) or None


def moment_ms(text: str, *, zone: datetime.tzinfo | None = datetime.UTC) -> int | None:
    """Unix milliseconds of an ISO 8601 moment, or None where `text` is none.

    Without a zone it is in `zone`; None is the machine's own. A file means the same on every machine: it is UTC there.
    """
    if not _moment.match(text) or text.endswith("\n"):
        return None
    try:
        moment = datetime.datetime.fromisoformat(text.replace(" +", "+").replace(" -", "-").replace(" Z", "Z"))
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=zone)
        return int(moment.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        return None


def duration(seconds: float) -> str:
    """The shortest way to write `seconds`; `duration_s` reads it back."""
    if seconds == 0:
        return "0"
    if seconds < 1 or seconds != int(seconds):
        return f"{seconds * 1000:.10g}ms"
    whole = int(seconds)
    # 120s stays 120s: seconds are what people compare; hours are worth the change of unit, and weeks again.
    if whole % 86_400 == 0 and whole > 7 * 86_400:
        return f"{whole // 86_400}d"
    return f"{whole // 3600}h" if whole % 3600 == 0 else f"{whole}s"


def size(count: int) -> str:
    """The shortest exact way to write `count` bytes; `size_bytes` reads it back."""
    for unit in ("GiB", "MiB", "KiB"):
        if count and count % _BYTES[unit] == 0:
            return f"{count // _BYTES[unit]}{unit}"
    return str(count)


def price(pd_per_token: int) -> str:
    """The shortest way to write a price in USD per million tokens; `price_pd` reads it back."""
    usd, rest = divmod(pd_per_token, 10**6)
    return f"{usd}.{rest:06}".rstrip("0").rstrip(".")


def usd(pd: int) -> str:
    """Picodollars in USD, exactly and without an exponent."""
    whole, rest = divmod(pd, 10**12)
    return f"{whole}.{rest:012}".rstrip("0").rstrip(".")


def written(number: float) -> str:
    """The shortest way to write a number; `number` reads it back."""
    return f"{number:.6f}".rstrip("0").rstrip(".")


def moment(at_ms: int) -> str:
    """A moment in UTC, to the second; `moment_ms` reads it back."""
    return datetime.datetime.fromtimestamp(at_ms // 1000, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
