"""What one may ask the store for: filters and pages, as the admin API and the command line spell them."""

from __future__ import annotations

import base64
import binascii
import datetime
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from arbiter.accounting.prices import STATED
from arbiter.ledger import schema
from arbiter.ledger.row import AttemptRow, RequestRow

MAX_LIMIT = 500
DEFAULT_LIMIT = 50
MIN_PREFIX = 8  # characters of an id that may stand for it

PARAMETERS = (
    "trace",
    "provider",
    "client",
    "status",
    "errors",
    "since",
    "session",
    "affinity_key",
    "label",
    "kind",
    "limit",
    "cursor",
)
KINDS = ("client", "classifier", "summary", "embedding", "replay", "probe")
"""Of rows: what clients asked, and what the gateway did by itself."""
ALL = "all"

_DURATION = re.compile(r"(\d{1,9})(ms|s|m|h|d|w)")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_MAX_MS = 1 << 53


_STORED = {row: [column.name for column in schema.columns(row)] for row in (RequestRow, AttemptRow)}


APPROXIMATE = "a.usage_source IN ('partial', 'estimated')"
APPROXIMATE_COST = f"{APPROXIMATE} AND a.cost_pd IS NOT NULL AND COALESCE(a.cost_source, '') NOT IN {STATED}"
"""Of attempts `a`: what `AttemptRow.is_approximate` and `is_cost_approximate` say of one."""


class BadParameter(ValueError):
    """A parameter that cannot be used; `name` says which."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """Which requests; None asks for all. `before` is where the page before this one ended: (received_ms, id)."""

    trace: str | None = None  # ours or the client's, the request's own id or an attempt's; whole, or MIN_PREFIX of it
    provider: str | None = None  # of any attempt, also a failed one
    client: str | None = None
    status: int | None = None  # what the client got
    errors: bool = False  # only requests that failed: outcome error or interrupted
    since_ms: int | None = None
    session: str | None = None
    affinity_key: str | None = None  # of the conversation, also where no session was told
    label: tuple[str, str] | None = None  # that its caller gave it, by name and value
    kind: str | None = None
    limit: int = DEFAULT_LIMIT
    before: tuple[int, str] | None = None


class Entry(msgspec.Struct, frozen=True):
    """One request with its attempts, the first try first."""

    request: RequestRow
    attempts: list[AttemptRow]

    def total(self, field: str) -> int | None:
        """A count added up over the attempts that reported it; None when none did."""
        reported = [value for value in (getattr(attempt, field) for attempt in self.attempts) if value is not None]
        return sum(reported) if reported else None

    def about(self, field: str) -> int | None:
        """The same, with our estimate where an attempt has no report; `is_approximate` says that there may be one."""
        counts = [(getattr(one, field), getattr(one, f"estimated_{field}", None)) for one in self.attempts]
        known = [count for told, estimate in counts if (count := estimate if told is None else told) is not None]
        return sum(known) if known else None

    @property
    def all_input(self) -> int | None:
        """What was sent, from a cache or not, in the same way."""
        known = [count for one in self.attempts if (count := one.all_input) is not None]
        return sum(known) if known else None

    @property
    def is_subscription(self) -> bool:
        """Whether it cost nothing because a subscription served it."""
        return not self.request.cost_pd and any(one.cost_source == "subscription" for one in self.attempts)

    @property
    def equivalent_pd(self) -> int | None:
        """What that would have cost otherwise; None where nobody knows."""
        return self.total("equivalent_pd")

    @property
    def is_unpriced(self) -> bool:
        """Whether tokens were used, and nobody knows for how much."""
        return self.request.cost_pd is None and any(
            attempt.usage_source != "missing" and attempt.cost_source != "subscription" for attempt in self.attempts
        )

    @property
    def is_approximate(self) -> bool:
        """Whether a total holds counts of a stream that ended before the provider's last word, or an estimate."""
        return any(attempt.is_approximate for attempt in self.attempts)

    @property
    def is_cost_approximate(self) -> bool:
        """Whether what it cost was worked out from such a total."""
        return any(attempt.is_cost_approximate for attempt in self.attempts)


class Page(msgspec.Struct, frozen=True):
    """Requests, newest first. `next` is the cursor of the page after this one; None on the last."""

    entries: list[Entry]
    next: str | None


def once(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Query parameters as a map. Errors: BadParameter for one given twice, which nobody should guess at."""
    found: dict[str, str] = {}
    for name, value in pairs:
        if name in found:
            raise BadParameter(name, "given more than once")
        found[name] = value
    return found


def only(params: Mapping[str, str], known: Sequence[str]) -> None:
    """Errors: BadParameter for one that there is not, and which there are."""
    for name in params:
        if name not in known:
            raise BadParameter(name[:80], f"no such parameter; there are {', '.join(known)}")


def limited(params: Mapping[str, str], default: int, most: int) -> int:
    """How many are asked for. Errors: BadParameter."""
    return integer("limit", params["limit"], 1, most) if "limit" in params else default


def parse(params: Mapping[str, str], now_ms: int) -> Filters:
    """Filters from query parameters.

    Errors: BadParameter naming the parameter, also for one that does not exist.
    """
    only(params, PARAMETERS)
    limit = limited(params, DEFAULT_LIMIT, MAX_LIMIT)
    return Filters(
        trace=text("trace", params),
        provider=text("provider", params),
        client=text("client", params),
        status=integer("status", params["status"], 100, 599) if "status" in params else None,
        errors=_flag("errors", params["errors"]) if "errors" in params else False,
        since_ms=since(params["since"], now_ms) if "since" in params else None,
        session=text("session", params),
        affinity_key=text("affinity_key", params),
        label=label(params["label"]) if "label" in params else None,
        kind=kind(params.get("kind"), params.get("trace")),
        limit=limit,
        before=read_cursor(params["cursor"]) if "cursor" in params else None,
    )


def since(text: str, now_ms: int, *, zone: datetime.tzinfo | None = datetime.UTC) -> int:
    """The moment meant by `90s`, `15m`, `1h`, `7d`, `2w` (ago), by Unix milliseconds, or by an ISO 8601 time.

    Units: Unix milliseconds, now and in the answer. A time without a zone is in `zone`, the one in which
    whoever asks is told times; None is the machine's own.
    Errors: BadParameter.
    """
    duration = _DURATION.fullmatch(text)
    if duration:
        return max(0, now_ms - int(duration[1]) * _UNIT_MS[duration[2]])
    if text.isascii() and text.isdigit() and 12 <= len(text) <= 16 and int(text) <= _MAX_MS:
        return int(text)
    try:
        # A "+" that came unescaped in a query string is a space by now.
        moment = datetime.datetime.fromisoformat(re.sub(r" (\d\d:?\d\d)$", r"+\1", text))
    except ValueError:
        raise BadParameter(
            "since", f"{text[:40]!r} is no duration like 15m, 1h or 7d, no Unix time in ms and no ISO 8601 time"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone)
    try:
        return int(moment.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):  # at the ends of the calendar no zone is known, and none matters
        return int(moment.replace(tzinfo=datetime.UTC).timestamp() * 1000)


def kind(text: str | None, trace: str | None) -> str | None:
    """The kind of rows meant; None for all. Where nobody says, those of clients, unless one `trace` is looked for.

    Errors: BadParameter.
    """
    if text is None:
        return KINDS[0] if trace is None else None
    if text not in (*KINDS, ALL):
        raise BadParameter("kind", f"{text[:40]!r} is none of {', '.join((*KINDS, ALL))}")
    return None if text == ALL else text


def label(text: str) -> tuple[str, str]:
    """The label meant by `issue=12`. Errors: BadParameter."""
    name, equals, value = text.partition("=")
    if not (name and equals and value) or '"' in name or len(text) > 400:
        raise BadParameter("label", "a name and a value, like issue=12")
    return name, value


def label_text(label: tuple[str, str]) -> str:
    """How a label stands in the column `labels`, where nothing else reads so: quotes within values are escaped."""
    name, value = (msgspec.json.encode(part).decode() for part in label)
    return f"{name}:{value}"


def write_cursor(request: RequestRow) -> str:
    """The opaque word for "after this request"."""
    return base64.urlsafe_b64encode(f"{request.received_ms}:{request.id}".encode()).decode().rstrip("=")


def read_cursor(text: str) -> tuple[int, str]:
    """What `write_cursor` wrote. Errors: BadParameter."""
    try:
        plain = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True).decode()
        received, colon, request_id = plain.partition(":")
        if not (colon and request_id and received.isascii() and received.isdigit() and int(received) <= _MAX_MS):
            raise ValueError
    except (ValueError, binascii.Error):
        raise BadParameter("cursor", "this is no cursor that a page ended with") from None
    return int(received), request_id


def text(name: str, params: Mapping[str, str]) -> str | None:
    """A word that a column is to hold; None where it was not given. Errors: BadParameter."""
    value = params.get(name)
    if value is not None and (not value or len(value) > 256):
        raise BadParameter(name, "between 1 and 256 characters")
    return value


def integer(name: str, text: str, low: int, high: int) -> int:
    """A whole number within bounds. Errors: BadParameter."""
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and low <= int(text) <= high):
        raise BadParameter(name, f"a whole number from {low} to {high}")
    return int(text)


def _flag(name: str, text: str) -> bool:
    if text in ("1", "true"):
        return True
    if text in ("0", "false"):
        return False
    raise BadParameter(name, "true or false")


TOTALS = (
    "input_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "output_tokens",
    "reasoning_tokens",
    "total_tokens",
)
"""Counts of the attempts that a request adds up."""


def as_json(entry: Entry, *, attempts: bool) -> dict[str, Any]:
    """One request as the admin API and `arbiter requests --json` show it.

    Shapes: the row's fields, and `cost_usd` beside `cost_pd`; then `TOTALS`, added up over its attempts, null where no
    attempt reported any, and whether they are approximate; with `attempts`, the attempts' fields under `attempt_rows`.
    """
    shown = _fields(entry.request)
    shown |= {field: entry.total(field) for field in TOTALS}
    shown["is_approximate"] = entry.is_approximate
    if attempts:
        shown["attempt_rows"] = [_fields(attempt) for attempt in entry.attempts]
    return shown


def _fields(row: RequestRow | AttemptRow) -> dict[str, Any]:
    # A program that shows money has its dollars; one that adds it up takes the integers.
    shown = {name: getattr(row, name) for name in _STORED[type(row)]}
    return shown | {"cost_usd": None if row.cost_pd is None else row.cost_pd / 10**12}
