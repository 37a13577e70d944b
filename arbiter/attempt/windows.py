"""Which targets a prompt is too long for, known before anybody is asked (SPEC 1.1, 4.6).

What is known of a prompt is an estimate. It keeps nobody from being asked unless it is sure: made with a density that
the target's own answers have taught, and beyond the window also at half of that (`amounts.Amount.surely_exceeds`).
Anything less sure is found out by asking: a provider refuses too long a prompt at once, and for nothing.
"""

from __future__ import annotations

from arbiter.attempt.ask import Ask
from arbiter.routing.plan import Plan
from arbiter.wire.format import EMBEDDINGS

_FITTED = frozenset(("truncation", "context_management", "transforms"))
"""Members by which a provider is asked to make the prompt fit: of Responses, of Messages and Responses, of OpenRouter's
chat."""


def too_small(plan: Plan, ask: Ask) -> dict[str, str]:
    """The targets of `plan` whose known window is sure to be too small, by name, and in words; none where that is true
    of every one of them."""
    amount = ask.amount
    if amount is None or plan.window or ask.format.name in EMBEDDINGS:
        return {}  # the window of embeddings is that of each text
    if not _FITTED.isdisjoint(ask.opened.members):
        return {}
    found = {
        rung.name: f"takes {rung.window} tokens, and the prompt is longer"
        for rung in plan.rungs
        if rung.window is not None and amount.surely_exceeds(rung.name, rung.window)
    }
    return found if len(found) < len(plan.rungs) else {}
