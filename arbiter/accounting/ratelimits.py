"""What a provider says of its limits on every answer: a copy of those headers, and what they mean.

The copy is taken when an answer arrives and kept with its attempt; it is read only when somebody asks. Nothing is added
to what the provider said: a limit that it did not name is unknown, and so is what is left after a window's end.

Source: FEATURES D.3; OpenAI, Azure, Groq, xAI (`x-ratelimit-limit-requests`), Cerebras (`…-requests-day`), Mistral
(`…-req-minute`), Fireworks (`…-tokens-prompt`), Together and OpenRouter (`x-ratelimit-limit`), the IETF's drafts
(`ratelimit-limit`), Anthropic (`anthropic-ratelimit-requests-limit`, and `…-unified-5h-utilization` of a subscription),
ChatGPT's subscriptions (`x-codex-primary-used-percent`, also per model: `x-codex-NAME-primary-…`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

from arbiter import moments
from arbiter._speedups import h1

MAX_HEADERS = 48
"""Of one answer; the longest list in use, a subscription's with limits per model, has some 30."""
MAX_CHARS = 256
"""Of a name, and of a value."""

_PREFIXES = ("retry-after", "x-ratelimit-", "ratelimit", "anthropic-ratelimit-", "x-codex-")
_STATE = ("x-codex-turn-", "x-codex-window-")  # what a conversation carries, and no limit

_REMEMBERED = 1024
_told: dict[str, bool] = {}  # what was decided per header name; upstreams use few

_PLAIN = re.compile(r"(?:x-)?ratelimit(?:bysize)?-(limit|remaining|reset)(?:-(.+))?")
_ANTHROPIC = re.compile(r"anthropic-ratelimit-(?!unified-)(.+)-(limit|remaining|reset)")
_UNIFIED = re.compile(r"anthropic-ratelimit-unified-(?:(.+)-)?(utilization|reset|status)")
_CODEX = re.compile(r"x-codex-(?:(.+)-)?(primary|secondary)-(used-percent|window-minutes|reset-at|reset-after-seconds)")
_PER = re.compile(r"(.+)-(second|minute|hour|day|month)")
_KINDS = {"req": "requests", "tokens-prompt": "input-tokens", "tokens-generated": "output-tokens", "": "requests"}
_SPANS = re.compile(r"([0-9]{1,3})([mhd])(?:[-_].*)?")
_SPAN_MINUTES = {"m": 1, "h": 60, "d": 1440}


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """What may be used of one thing until its window ends."""

    kind: str  # requests | tokens | input-tokens | output-tokens, or the provider's own word
    per: str | None = None  # second | minute | hour | day | month, where it says so
    limit: int | None = None
    remaining: int | None = None
    resets_ms: int | None = None

    @property
    def headroom(self) -> float | None:
        """Which part of it is left."""
        if self.limit is None or self.remaining is None or self.limit <= 0:
            return None
        return min(max(self.remaining / self.limit, 0.0), 1.0)


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a subscription's window is used up."""

    window: str  # the provider's name of it: 5h, 7d, primary, secondary, ...
    minutes: int | None = None  # how long it is
    used: float | None = None  # from 0 to 1, or more where the provider says so
    resets_ms: int | None = None
    status: str | None = None  # the provider's own word


class Told(msgspec.Struct, frozen=True):
    """All of one answer."""

    limits: list[Limit]
    quotas: list[Quota]


def snapshot(headers: Sequence[tuple[str, str]], blot: Callable[[str], str] | None = None) -> dict[str, str] | None:
    """Return the headers that speak of limits, as they came; None where none does.

    Shapes: names are in lower case; of a name that comes twice the first value counts. At most `MAX_HEADERS`.
    """
    found, _ = h1.chosen(headers, _told, _tells)
    if not found:
        return None
    kept = dict(found)
    text = "".join(kept.values())
    if len(kept) == len(found) <= MAX_HEADERS and len(text) <= MAX_CHARS and (blot is None or blot(text) is text):
        return kept  # nearly always: numbers and spans, each of them once
    kept = {}
    for name, value in found:
        if name not in kept and len(kept) < MAX_HEADERS:
            kept[name] = (blot(value) if blot is not None else value)[:MAX_CHARS]
    return kept


def _tells(name: str) -> bool:
    """Whether a header of this name speaks of limits."""
    tells = name.startswith(_PREFIXES) and len(name) <= MAX_CHARS and not name.startswith(_STATE)
    if len(_told) < _REMEMBERED:
        _told[name] = tells
    return tells


def read(kept: Mapping[str, str], at_ms: int) -> Told:
    """Return what a snapshot means. `at_ms` is when the answer came: spans count from there.

    Errors: none, whatever is in there; what cannot be read is unknown.
    """
    limits: dict[tuple[str, str | None], dict[str, int]] = {}
    quotas: dict[str, dict[str, str]] = {}
    for name, value in kept.items():
        if found := _PLAIN.fullmatch(name):
            _take(limits, found[2] or "", found[1], value, at_ms)
        elif found := _ANTHROPIC.fullmatch(name):
            _take(limits, found[1], found[2], value, at_ms)
        elif found := _UNIFIED.fullmatch(name):
            quotas.setdefault(found[1] or "", {})[found[2]] = value
        elif found := _CODEX.fullmatch(name):
            window = f"{found[1]}-{found[2]}" if found[1] else found[2]
            quotas.setdefault(window, {})[found[3]] = value
    # Without a window of its own it only repeats which of the others counts.
    quotas.pop("", None)
    return Told(
        [Limit(kind=kind, per=per, **said) for (kind, per), said in limits.items()],
        [quota for window, said in quotas.items() if (quota := _quota(window, said, at_ms)) is not None],
    )


def _take(
    limits: dict[tuple[str, str | None], dict[str, int]], subject: str, part: str, value: str, at_ms: int
) -> None:
    span = _PER.fullmatch(subject)
    kind, per = (span[1], span[2]) if span is not None else (subject, None)
    number = _moment(value, at_ms) if part == "reset" else _whole(value)
    if number is not None:
        said = limits.setdefault((_KINDS.get(kind, kind), per), {})
        said.setdefault("resets_ms" if part == "reset" else part, number)


def _quota(window: str, said: Mapping[str, str], at_ms: int) -> Quota | None:
    """None where it says nothing of how much is used: an `overage-status` is no window."""
    if "utilization" in said:
        span = _SPANS.fullmatch(window)
        minutes = int(span[1]) * _SPAN_MINUTES[span[2]] if span is not None else None
        used, resets_ms = _number(said["utilization"]), _moment(said.get("reset"), at_ms)
    elif "used-percent" in said:
        percent = _number(said["used-percent"])
        minutes = _whole(said.get("window-minutes"))
        used = percent / 100 if percent is not None else None
        # The span first: it does not depend on whose clock is right.
        resets_ms = _moment(said.get("reset-after-seconds"), at_ms)
        resets_ms = _moment(said.get("reset-at"), at_ms) if resets_ms is None else resets_ms
    else:
        return None
    return Quota(window=window, minutes=minutes, used=used, resets_ms=resets_ms, status=said.get("status"))


def _number(value: str | None) -> float | None:
    found = moments.number(moments.trimmed(value)) if value is not None else None
    return found if found is not None and 0 <= found < 1e15 else None


def _whole(value: str | None) -> int | None:
    """A whole number; of the drafts' `100, 100;w=60` the first."""
    found = _number(value.partition(",")[0].partition(";")[0]) if value is not None else None
    return int(found) if found is not None else None


def _moment(value: str | None, at_ms: int) -> int | None:
    """When a window opens again. A moment more than a year away is none."""
    left_s = moments.until_s(value, at_ms) if value is not None else None
    return at_ms + round(left_s * 1000) if left_s is not None and abs(left_s) < 366 * 86_400 else None
