"""Where an attempt's time went, as stretches on a line. Pure: rows in, numbers out."""

from __future__ import annotations

from dataclasses import dataclass

from arbiter.ledger.query import Entry
from arbiter.ledger.row import AttemptRow

# A connection that was free at once was not waited for.
NO_QUEUE_US = 50

PHASES = {
    "queue": "waited for a free connection",
    "connect": "connected",
    "headers": "waited for the response",
    "first_event": "waited for the first event",
    "stream": "streamed",
    "body": "received the answer",
    "rest": "ended",
    "lost": "until it failed",
}


@dataclass(frozen=True, slots=True)
class Stretch:
    """One phase of an attempt. Units: microseconds since the attempt began, and percent of the request's whole time."""

    phase: str
    start_us: int
    end_us: int
    left: float
    width: float

    @property
    def took_us(self) -> int:
        return self.end_us - self.start_us

    @property
    def label(self) -> str:
        return PHASES[self.phase]


def whole_us(entry: Entry) -> int:
    """The length of the line: the request's own time, or as far as its attempts reach."""
    reach = [entry.request.total_us or 0]
    for attempt in entry.attempts:
        reach += [_offset_us(entry, attempt) + until for _, until in _moments(attempt)]
    return max(1, *reach)


def stretches(entry: Entry, attempt: AttemptRow) -> list[Stretch]:
    """The phases of one attempt of `entry`, in order, without gaps and without those that took no time."""
    whole, offset = whole_us(entry), _offset_us(entry, attempt)
    found: list[Stretch] = []
    at = 0
    for phase, until in _moments(attempt):
        if until > at:
            found.append(Stretch(phase, at, until, 100 * (offset + at) / whole, 100 * (until - at) / whole))
            at = until
    return found


def _moments(attempt: AttemptRow) -> list[tuple[str, int]]:
    """Each phase with the moment it ended. Queue, connect and headers are stored as durations, the rest as moments."""
    moments = []
    at = 0
    for phase, took in (("queue", attempt.queue_us), ("connect", attempt.connect_us), ("headers", attempt.headers_us)):
        if took is not None and not (phase == "queue" and took < NO_QUEUE_US):
            at += took
            moments.append((phase, at))
    if attempt.first_event_us is not None:
        moments.append(("first_event", attempt.first_event_us))
        if attempt.last_event_us is not None:
            moments.append(("stream", attempt.last_event_us))
    if attempt.total_us is not None:
        if attempt.outcome != "ok":
            moments.append(("lost", attempt.total_us))
        elif attempt.first_event_us is not None:
            moments.append(("rest", attempt.total_us))
        else:
            moments.append(("body", attempt.total_us))
    return moments


def _offset_us(entry: Entry, attempt: AttemptRow) -> int:
    """When the attempt began, within its request.

    Beginnings are stored in whole milliseconds of a clock that may step, lengths in microseconds of one that does not:
    where they disagree, the lengths are right.
    """
    offset = max(0, attempt.started_ms - entry.request.received_ms) * 1000
    if entry.request.total_us is not None and attempt.total_us is not None:
        offset = min(offset, max(0, entry.request.total_us - attempt.total_us))
    return offset
