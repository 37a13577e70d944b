"""How long a provider asked us to stay away, in every spelling that providers have (SPEC 4.4).

The most exact word wins, and only where it says nothing that can be read is the next one asked:

    1. retry-after-ms                              milliseconds; the vendors' own clients prefer it, too
    2. retry-after                                 seconds or an HTTP date, meant for exactly this request
    3. x-codex-{primary,secondary}-*               a window of a login, where it is used up
       anthropic-ratelimit-unified-*               the same, where its status is `rejected`
    4. anthropic-ratelimit-<what>-reset            a window of a key, where nothing of it remains
       x-ratelimit-reset[-<what>], ratelimit-reset
    5. the body: Google's RetryInfo, Codex's `resets_in_seconds`, the headers that OpenRouter tells in there
    6. prose, on a 429 only: "try again in 1m2.5s"

A reset header stands on every answer, so by itself it asks for nothing. It counts where its own `remaining` is 0. Of
several such windows the one that opens last counts, as each of them would refuse us. Where no window says how much
remains, but the status is 429, one of them must be it, nobody knows which, and the one that opens first counts: whoever
is told a wait does not ask before its end, so a guess must not be long.

A wait of over seven days is taken for a mistake (a date in another calendar, milliseconds for seconds): no provider has
a longer window, and an account would be gone for weeks. So are numbers that are none. Neither is an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from arbiter import moments
from arbiter._speedups import nesting

MAX_WAIT_S = 7 * 86_400.0

_MAX_BODY = 64 << 10
"""Bytes of a body in which we look for a wait."""
_LONG_S = 1e9
"""From here on a number is none of seconds."""

_PROSE = re.compile(rf"(?:try again|retry) (?:in|after) ({moments.SPAN.pattern})", moments.ANY_CASE)
_LIMITS = re.compile(r"(?:x-)?ratelimit-reset(-.+)?")
_ANTHROPIC = re.compile(r"anthropic-ratelimit-(?!unified)(.+)-reset")

_decode = msgspec.json.Decoder().decode


def wait_s(status: int, headers: Sequence[tuple[str, str]], body: bytes, now_ms: int) -> float | None:
    """Return for how long the provider asked us to stay away; None where it did not say.

    Units: seconds, at least 0 and at most `MAX_WAIT_S`; `now_ms` is wall time since 1970.
    Shapes: only an answer with an error status asks for anything. Names of headers in any case.
    Errors: none, whatever is in there.
    """
    if status < 400:
        return None
    fields: dict[str, str] = {}
    for name, value in headers:
        fields.setdefault(name.lower(), value)
    found = _of_headers(status, fields, now_ms)
    return found if found is not None else _of_body(status, body, now_ms)


def retry_after_s(value: str, now_ms: int) -> float | None:
    """Return the seconds of a `Retry-After`, however many: a number, a duration or a date. None where it is neither.

    Units: seconds; 0 for a negative number and for what is over.
    Source: RFC 9110, sections 5.6.7 and 10.2.3.
    """
    text = moments.trimmed(value)
    found = moments.seconds(text)
    if found is None:
        moment = moments.http_date_s(text, now_ms)
        found = moment - now_ms / 1000 if moment is not None else None
    return max(0.0, found) if found is not None and found < _LONG_S else None


def _of_headers(status: int, fields: Mapping[str, str], now_ms: int) -> float | None:
    told_ms = fields.get("retry-after-ms")
    if told_ms is not None:
        number = moments.number(moments.trimmed(told_ms))
        found = _bounded(number / 1000 if number is not None else None)
        if found is not None:
            return found
    told = fields.get("retry-after")
    if told is not None:
        found = _bounded(retry_after_s(told, now_ms))
        if found is not None:
            return found
    spent = [_codex_s(fields, window, now_ms) for window in ("primary", "secondary")]
    spent.append(_unified_s(fields, now_ms))
    found = max((wait for wait in spent if wait is not None), default=None)
    return found if found is not None else _windows_s(status, fields, now_ms)


def _codex_s(fields: Mapping[str, str], window: str, now_ms: int) -> float | None:
    used = moments.number(moments.trimmed(fields.get(f"x-codex-{window}-used-percent", "")))
    if used is None or used < 100:
        return None
    # The span first: it does not depend on whose clock is right.
    found = _bounded(moments.number(moments.trimmed(fields.get(f"x-codex-{window}-reset-after-seconds", ""))))
    return found if found is not None else _until_s(fields.get(f"x-codex-{window}-reset-at"), now_ms)


def _unified_s(fields: Mapping[str, str], now_ms: int) -> float | None:
    if fields.get("anthropic-ratelimit-unified-status", "").strip().lower() != "rejected":
        return None
    return _until_s(fields.get("anthropic-ratelimit-unified-reset"), now_ms)


def _windows_s(status: int, fields: Mapping[str, str], now_ms: int) -> float | None:
    """Return the wait that the windows of a key ask for: the module's docstring says which of them counts."""
    spent: list[float] = []
    unknown: list[float] = []
    for name, value in fields.items():
        remaining = _remaining_name(name)
        if remaining is None:
            continue
        wait = _until_s(value, now_ms)
        if wait is None:
            continue
        left = fields.get(remaining)
        if left is None:
            unknown.append(wait)
        elif (number := moments.number(moments.trimmed(left))) is not None and number <= 0:
            spent.append(wait)
    if spent:
        return max(spent)
    return min(unknown) if unknown and status == 429 else None


def _remaining_name(name: str) -> str | None:
    """Return the name of the header that says how much remains of the window that `name` is the reset of."""
    if _LIMITS.fullmatch(name):
        return name.replace("ratelimit-reset", "ratelimit-remaining", 1)
    if _ANTHROPIC.fullmatch(name):
        return name.removesuffix("reset") + "remaining"
    return None


def _of_body(status: int, body: bytes, now_ms: int) -> float | None:
    if not body or len(body) > _MAX_BODY:
        return None
    found = _of_error(status, _error_of(body), now_ms)
    if found is not None or status != 429:
        return found
    prose = _PROSE.search(body.decode("utf-8", "replace"))
    return _bounded(moments.span_s(prose[1])) if prose is not None else None


def _error_of(body: bytes) -> dict[str, Any]:
    """Return the `error` object of a JSON body; an empty one where there is none."""
    if body.lstrip()[:1] not in (b"{", b"["):
        return {}
    try:
        outer = _decode(nesting.whole(body))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return {}
    if isinstance(outer, list):  # Google's, for a call that streams
        outer = outer[0] if outer else None
    inner = outer.get("error") if isinstance(outer, dict) else None
    return inner if isinstance(inner, dict) else {}


def _of_error(status: int, error: dict[str, Any], now_ms: int) -> float | None:
    details = error.get("details")
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict) and isinstance(detail.get("retryDelay"), str):
            found = _bounded(moments.seconds(moments.trimmed(detail["retryDelay"])))
            if found is not None:
                return found
    for name, read in (("resets_in_seconds", _plain), ("resets_at", _until_s)):
        value = error.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15:
            found = read(str(value), now_ms)
            if found is not None:
                return found
    metadata = error.get("metadata")
    told = metadata.get("headers") if isinstance(metadata, dict) else None
    if not isinstance(told, dict):
        return None
    return _of_headers(status, {name.lower(): value for name, value in told.items() if isinstance(value, str)}, now_ms)


def _plain(value: str, now_ms: int) -> float | None:
    return _bounded(moments.number(moments.trimmed(value)))


def _until_s(value: str | None, now_ms: int) -> float | None:
    return _bounded(moments.until_s(value, now_ms)) if value is not None else None


def _bounded(seconds: float | None) -> float | None:
    return max(0.0, seconds) if seconds is not None and seconds <= MAX_WAIT_S else None
