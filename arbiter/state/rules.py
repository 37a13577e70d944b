"""The rules by which state changes: pure functions, so that every implementation gives the same answers.

Each takes what is there (None: nothing) and the time, and returns what is to be there; None where nothing changes.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from arbiter.state.base import Breaker, Cooldown

# One failure in a hundred is weather, and several requests may meet one connection reset at the same moment; five in
# a row with no answer between them is an outage.
BREAKER_FAILURES = 5
BREAKER_FIRST_S = 1.0
BREAKER_LONGEST_S = 60.0
# A probe that neither fails nor is answered (its worker was killed) must not keep the breaker open for ever.
PROBE_S = 30.0
# Failures this far apart are not "in a row", whatever was or was not asked in between.
BREAKER_FORGOTTEN_S = 600.0

# A pin or an artefact is extended once this much of its life has passed: a conversation in full swing writes once a
# minute, and a short life is still extended twenty times.
EXTEND_AFTER_S = 60.0
EXTEND_AFTER_SHARE = 1 / 20

MINUTE_MS = 60_000
DAY_MS = 86_400_000


class Count(msgspec.Struct, array_like=True, frozen=True):
    """Requests of one name in a minute and in a day of UTC, each known by its number since 1970."""

    minute: int
    in_minute: int
    day: int
    in_day: int


def cooled(old: Cooldown | None, now: float, wait_s: float, is_told: bool, is_quota: bool) -> Cooldown | None:
    """A cooldown after another answer that asks for one.

    Of two told waits, and of two guesses, the later end holds. A told wait takes the place of a guess, even of a
    longer one: the provider knows. A guess never touches a told wait.
    """
    if not wait_s > 0:
        return None
    until = now + wait_s
    if old is not None and old.until > now:
        if old.is_told and not is_told:
            return None
        if old.is_told == is_told and old.until >= until:
            return None
    return Cooldown(until, is_told, is_quota)


def failed(old: Breaker | None, now: float) -> Breaker | None:
    """A breaker after a transport failure. What fails while it is open was under way before, and says nothing new."""
    if old is None or is_forgotten(old, now):
        return Breaker(1, failed_at=now)
    if old.open_until > now:
        return None
    if old.failures + 1 < BREAKER_FAILURES:
        return replace(old, failures=old.failures + 1, failed_at=now)
    # The exponent is bounded before the power is: an outage may last for days.
    wait_s = min(BREAKER_FIRST_S * 2 ** min(old.openings, 16), BREAKER_LONGEST_S)
    return Breaker(old.failures + 1, now + wait_s, old.openings + 1, failed_at=now)


def probed(old: Breaker | None, now: float) -> tuple[bool, Breaker | None]:
    """May this request try the provider, and the breaker with its lease where there is one to note."""
    if old is None or old.openings == 0:
        return True, None
    if max(old.open_until, old.probe_until) > now:
        return False, None
    return True, replace(old, probe_until=now + PROBE_S)


def released(old: Breaker | None) -> Breaker | None:
    """A breaker whose probe came to nothing, because its client left: the next request is the probe."""
    return replace(old, probe_until=0.0) if old is not None and old.probe_until else None


def is_forgotten(breaker: Breaker, now: float) -> bool:
    return max(breaker.failed_at, breaker.open_until, breaker.probe_until) + BREAKER_FORGOTTEN_S <= now


def is_due(expires_ms: int, now_ms: int, ttl_s: float) -> bool:
    """Whether it is worth a write to let something live for `ttl_s` from now. So is a clear change of its life."""
    return abs(now_ms + ttl_s * 1000 - expires_ms) > min(EXTEND_AFTER_S, ttl_s * EXTEND_AFTER_SHARE) * 1000


def counted(old: Count | None, now_ms: int, per_minute: int, per_day: int) -> tuple[float, Count | None]:
    """Seconds until a request is allowed (0: now), and the count with it in where it is."""
    minute, day = now_ms // MINUTE_MS, now_ms // DAY_MS
    in_minute = old.in_minute if old is not None and old.minute == minute else 0
    in_day = old.in_day if old is not None and old.day == day else 0
    if per_day and in_day >= per_day:
        return ((day + 1) * DAY_MS - now_ms) / 1000, None
    if per_minute and in_minute >= per_minute:
        return ((minute + 1) * MINUTE_MS - now_ms) / 1000, None
    return 0.0, Count(minute, in_minute + 1, day, in_day + 1)
