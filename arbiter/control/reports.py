"""What was spent and what prompt caches lost, in words: for commands and for pages."""

from __future__ import annotations

import datetime

from arbiter.control import show
from arbiter.ledger.questions.cache import Cause, Tokens
from arbiter.ledger.questions.cost import Left, Source, Spent

# ---------------------------------------------------------------------------------------------------------- money


def spent(spent: Spent) -> str:
    """The dollars of each kind, never in one sum."""
    known = spent.attempts - spent.unpriced - spent.estimated - spent.sources.get("subscription", Source()).attempts
    parts = [metered(spent)] if known or spent.metered_pd else []
    if spent.estimated:
        parts.append(f"~{show.usd(spent.estimated_pd)} by estimated tokens")
    if spent.equivalent_pd:
        parts.append(f"a subscription's calls ({show.usd(spent.equivalent_pd)} at list prices)")
    return " and ".join(parts) or ("An unknown sum" if spent.unpriced else "Nothing")


def metered(spent: Spent) -> str:
    return f"{'~' if spent.partial_priced else ''}{show.usd(spent.metered_pd)}"


def used(spent: Spent, count: int | None, field: str) -> str | None:
    """A count, and whether that is all of it; None where nobody reported any."""
    if count is None:
        return None
    return f"{'≥' if field in spent.unreported else ''}{'~' if spent.is_approximate else ''}{show.thousands(count)}"


def is_at_least(total: Spent) -> bool:
    """Whether any of the counts that are shown of it is one that not every attempt reported."""
    counts = {
        "input_tokens": total.all_input,
        "cached_tokens": total.cached_tokens,
        "cache_write_tokens": total.cache_write_tokens,
        "output_tokens": total.all_output,
    }
    return any(count is not None and field in total.unreported for field, count in counts.items())


def sources(total: Spent) -> str:
    """Where the prices came from, by their share of the money, or of the attempts where there is none."""
    whole = total.metered_pd + total.estimated_pd
    told = []
    for name, source in sorted(total.sources.items(), key=lambda one: (-one[1].cost_pd, -one[1].attempts)):
        money = f"{'~' if source.approximate else ''}{show.usd(source.cost_pd)}"
        share = f"{money}, {show.percent(source.cost_pd / whole)} of it, " if whole and source.cost_pd else ""
        told.append(f"{name} ({share}{show.counted(source.attempts, 'attempt')})")
    return f"Prices: {'; '.join(told)}." if told else "No attempt reported what it used."


def left(left: Left) -> str:
    whose = left.provider if left.account is None else f"{left.provider} ({left.account})"
    unknown = f", less {show.counted(left.unpriced, 'attempt')} without a price" if left.unpriced else ""
    money = f"{'~' if left.approximate else ''}{show.usd(abs(left.left_pd))}"
    verb = "left" if left.left_pd >= 0 else "spent beyond the"
    since = datetime.datetime.fromtimestamp(left.since_ms / 1000, datetime.UTC).date().isoformat()
    return f"Prepaid, {whose}: {money} {verb} of {show.usd(left.balance_pd)} since {since}{unknown}."


# ------------------------------------------------------------------------------------------------------- caches


def rate(tokens: Tokens) -> str:
    rate = tokens.hit_rate
    told = "Nothing was sent" if rate is None else f"Hit rate {show.percent(rate)}"
    read, sent = show.thousands(tokens.cached_tokens), show.thousands(tokens.sent)
    calls = show.counted(tokens.calls, "call")
    return f"{told}: {read} of {sent} input tokens came from a cache, in {calls}"


def summary(causes: list[Cause]) -> str:
    if not causes:
        return "Nothing was lost."
    alarms = [cause for cause in causes if not cause.is_explained]
    explained = [cause for cause in causes if cause.is_explained]
    told = [", ".join(f"{show.thousands(cause.lost_tokens)} {cause.cause}" for cause in alarms) + _for(alarms)]
    if not alarms:
        told = ["nothing was lost without a reason"]
    if explained:
        lost = show.thousands(sum(cause.lost_tokens for cause in explained))
        told.append(f"{lost} lost for a reason{_for(explained)}")
    whole = "; ".join(told) + "."
    return whole[:1].upper() + whole[1:]


def _for(causes: list[Cause]) -> str:
    cost = lost_cost(causes)
    return "" if cost is None else f" ({cost})"


def lost_cost(causes: list[Cause]) -> str | None:
    """What is known of it; `+ ?` where some of it is not."""
    known = [cause.lost_pd for cause in causes if cause.lost_pd is not None]
    if not known:
        return "unpriced" if causes else None
    return show.usd(sum(known)) + (" + ?" if any(cause.unpriced for cause in causes) else "")
