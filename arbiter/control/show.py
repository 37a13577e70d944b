"""How numbers and names are written for people. Unknown is a dash, never a zero."""

from __future__ import annotations

import datetime

from arbiter.ledger.row import AttemptRow, RequestRow

DASH = "–"

APPROXIMATE = "~ estimated, or counted only until the stream was cut"
AT_LEAST = "≥ at least: not every attempt reported its own"

PINS = {
    "new": "new: its next turn goes where this one went",
    "kept": "kept: served where the turn before it was",
    "moved": "moved: its next turn goes where this one went",
}
"""What became of a conversation's pin, by `RequestRow.affinity`."""

WHY = {
    "retry": "retry: the same target again",
    "key": "key: another key of the pool",
    "fallback": "fallback: another target",
    "nudge": "nudge: the answer before it said nothing",
}
"""Why an attempt was made, by `AttemptRow.why`; the first one needs no reason."""

LOSSES = {
    "below_minimum": "too short for the model's cache",
    "model": "another model answered",
    "account": "another provider or key, which has a cache of its own",
    "compaction": "the agent had compacted its context, or the provider had",
    "tools": "other tool schemas, and they begin the prompt",
    "system": "other instructions",
    "effort": "the model was asked to think more, or less",
    "settings": "the model was asked to answer in another way",
    "rewrite": "the gateway's own guardrails changed the history in another way",
    "rewind": "somebody went back in the conversation",
    "idle": "the cache was not used for as long as it is kept",
    "marks": "no cache mark reached what was cached",
    "cleared": "the provider cleared other parts of the history than before, as it was asked to",
    "thinking": "the provider dropped the model's thoughts of the turn before",
    "drift": "the history was sent once more, and differs",
    "cold_predecessor": "the call before had not read anything either",
    "miss": "nothing differs: the provider forgot",
    "undetermined": "nothing explains it, and there is nothing to compare",
}
"""Why a call read less from the cache than the one before it had left there, by `AttemptRow.cache_verdict`."""


def duration(us: int | None) -> str:
    """Microseconds as `< 0.1 ms`, `0.4 ms`, `85 ms`, `1.23 s`, `12.3 s`, `4 min 5 s`, `2 h 5 min`: enough digits."""
    if us is None:
        return DASH
    if us < 50:
        return "< 0.1 ms"
    if us < 9_950:
        return f"{us / 1000:.1f} ms"
    if us < 999_500:
        return f"{us / 1000:.0f} ms"
    seconds = us / 1_000_000
    if seconds < 120:
        return f"{seconds:.2f} s" if seconds < 9.995 else f"{seconds:.1f} s"
    if seconds < 7200:
        return f"{int(seconds) // 60} min {int(seconds) % 60} s"
    return f"{int(seconds) // 3600:,} h {int(seconds) // 60 % 60} min"


def count(value: int | None) -> str:
    """A number with its thousands apart."""
    return DASH if value is None else f"{value:,}"


def counted(number: int, what: str) -> str:
    """`1 call`, `1,204 calls`."""
    return f"1 {what}" if number == 1 else f"{number:,} {what}s"


def thousands(value: int | None) -> str:
    """A number as people say it: `840`, `8.2k`, `34k`, `1.2M`."""
    if value is None:
        return DASH
    if value < 1000:
        return str(value)
    for unit, name in ((1000, "k"), (1_000_000, "M")):
        scaled = value / unit
        if scaled < 9.95:
            return f"{scaled:.1f}".removesuffix(".0") + name
        if scaled < 999.5:
            return f"{scaled:.0f}{name}"
    return f"{value / 1_000_000:,.0f}M"


def percent(part: float) -> str:
    """A share as `87%`, `99.6%`; never 100 where something is missing, or 0 where something is there."""
    if part in (0, 1) or 0.1 <= part < 0.985:
        return f"{part * 100:.0f}%"
    return f"{min(part * 100, 99.9):.1f}%" if part >= 0.0005 else "<0.1%"


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


def day(ms: int) -> str:
    """Unix milliseconds as a UTC day and time; the browser turns it into its own."""
    return _moment(ms).strftime("%Y-%m-%d %H:%M")


def iso(ms: int) -> str:
    """Unix milliseconds as ISO 8601, for machines."""
    return _moment(ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def later(us: int) -> str:
    """How long after the beginning; nothing for what began at once."""
    return "" if us < 50 else f"+{duration(us)}"


def status(row: RequestRow | AttemptRow) -> str:
    """How it ended, in two words at most: `200 ok`, `400 bad_request`, `499 cancelled`, `interrupted`."""
    word = row.error_class if row.outcome == "error" and row.error_class else row.outcome
    return f"{row.status} {word}" if row.status else word


def ended(attempt: AttemptRow) -> str:
    """How an attempt ended, and what else mattered about it: `429 rate_limited_transient, asked to wait 20.0 s`."""
    told = [status(attempt)]
    if attempt.empty_completion:
        told.append("an empty answer")
    if attempt.retry_after_ms is not None:
        told.append(f"asked to wait {duration(attempt.retry_after_ms * 1000)}")
    return ", ".join(told)


def target(attempt: AttemptRow) -> str:
    """Who was asked, with the key's label where the provider has several: `alpha`, `alpha:team-b`."""
    return attempt.provider if attempt.account is None else f"{attempt.provider}:{attempt.account}"


def why(attempt: AttemptRow) -> str | None:
    """Why an attempt was made, and how long it was held back on purpose; None for a first one that was not."""
    reason = WHY.get(attempt.why)
    if attempt.wait_us is None:
        return reason
    waited = f"after waiting {duration(attempt.wait_us)}"
    return waited if reason is None else f"{reason}, {waited}"


def pin(request: RequestRow) -> str | None:
    """What became of the conversation's pin."""
    return None if request.affinity is None else PINS.get(request.affinity, request.affinity)


def upstream(attempt: AttemptRow) -> str:
    """Where an attempt went; echo has no address after its colon."""
    return attempt.endpoint.rstrip(":")


def tokens(attempt: AttemptRow) -> str:
    """An attempt's counts in one line: `~` before those that are ours, or that a cut stream had come to."""
    if attempt.usage_source == "missing":
        return "not reported"
    output = attempt.estimated_output_tokens if attempt.output_tokens is None else attempt.output_tokens
    return sums(
        attempt.all_input,
        attempt.cached_tokens,
        attempt.cache_write_tokens,
        output,
        reasoning=attempt.reasoning_tokens,
        searches=attempt.web_searches,
        is_approximate=attempt.is_approximate,
    )


def sums(
    sent: int | None,
    cached: int | None,
    written: int | None,
    output: int | None,
    *,
    reasoning: int | None = None,
    searches: int | None = None,
    is_approximate: bool = False,
) -> str:
    """Counts as `2,200 in (800 cached, 200 written to the cache), 64 out (5 reasoning)`; parts in parentheses."""

    def told(number: int | None, word: str, *parts: str | None) -> str:
        known = ", ".join(part for part in parts if part is not None)
        about = "~" if is_approximate and number is not None else ""
        return f"{about}{count(number)} {word}" + (f" ({known})" if known else "")

    read = None if cached is None else f"{count(cached)} cached"
    put = f"{count(written)} written to the cache" if written else None
    thought = f"{count(reasoning)} reasoning" if reasoning else None
    asked = "" if not searches else ", 1 web search" if searches == 1 else f", {count(searches)} web searches"
    return f"{told(sent, 'in', read, put)}, {told(output, 'out', thought)}{asked}"


def pace(elapsed_ms: int | None, tokens_per_s: float | None) -> str | None:
    """How long attempts took that ended well, and how fast they wrote: `12.3 s, 40 tokens a second`."""
    if elapsed_ms is None:
        return None
    took = duration(elapsed_ms * 1000)
    if tokens_per_s is None:
        return took
    return f"{took}, {tokens_per_s:{',.0f' if tokens_per_s >= 100 else '.3g'}} tokens a second"


def usd(pd: int | None) -> str:
    """Picodollars as `$5.1045`, `$0.003532`, `$0.00000012`: four digits of what there is, and cents at least."""
    if pd is None:
        return DASH
    places = min(12, 4 + max(0, 12 - len(str(pd)))) if pd else 2
    whole, point, rest = f"{pd / 10**12:,.{places}f}".partition(".")
    return f"${whole}{point}{rest.rstrip('0'):0<2}"


def cost(row: AttemptRow) -> str:
    """What an attempt cost, or why nobody knows."""
    if row.cost_source == "subscription":
        worth = f", {usd(row.equivalent_pd)} at list prices" if row.equivalent_pd is not None else ""
        return f"a subscription's{worth}"
    if row.cost_pd is not None:
        return f"~{usd(row.cost_pd)}" if row.is_cost_approximate else usd(row.cost_pd)
    if row.usage_source == "missing":
        return DASH
    if not row.pricing_available:
        return "unpriced: no price of this model is known"
    unreported = [
        kind for kind, tokens in (("input", row.input_tokens), ("output", row.output_tokens)) if tokens is None
    ]
    if unreported:
        return f"unpriced: the provider did not report its {' and '.join(unreported)} tokens"
    used = (
        ("input", row.input_tokens),
        ("cached input", row.cached_tokens),
        ("cache writes", row.cache_write_tokens),
        ("output", row.output_tokens),
    )
    return f"unpriced: no price is known of one of {', '.join(kind for kind, tokens in used if tokens)}"


def loss(attempt: AttemptRow) -> str | None:
    """What was lost of a prompt cache, why, and for how much: `110k drift in message 7, $0.38: the history …`."""
    cause = attempt.cache_verdict
    if cause is None:
        return None
    told = f"{thousands(attempt.cache_lost_tokens)} {cause}"
    if attempt.cache_lost_in is not None and attempt.cache_lost_in != cause:
        told += f" in {attempt.cache_lost_in}"
    told += "" if attempt.cache_lost_pd is None else f", {usd(attempt.cache_lost_pd)}"
    return f"{told}: {LOSSES[cause]}" if cause in LOSSES else told


def text(value: object) -> str:
    """Anything else."""
    return DASH if value is None or value == "" else str(value)


def _moment(ms: int) -> datetime.datetime:
    try:
        return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.datetime.fromtimestamp(0, datetime.UTC)
