"""What the gateway says of itself in the headers of an answer (docs/headers.md)."""

from __future__ import annotations

from arbiter.accounting.tariff import charged_pd
from arbiter.attempt.live import Live
from arbiter.config import units
from arbiter.config.snapshot import Snapshot
from arbiter.ledger.row import RequestRow
from arbiter.routing.plan import Rung
from arbiter.wire.headers import Pairs, visible


def own_headers(row: RequestRow, rung: Rung) -> Pairs:
    """Which request it was, and who served it."""
    own = [("x-arbiter-warning", visible(row.warning))] if row.warning is not None else []
    if row.session is not None:
        own.append(("x-arbiter-session-id", visible(row.session)))
    return [
        *own,
        ("x-arbiter-trace-id", row.trace_id),
        ("x-arbiter-request-id", row.id),
        ("x-arbiter-provider", visible(rung.provider.name)),
        ("x-arbiter-model", visible(rung.model)),
        ("x-arbiter-attempts", str(row.attempts)),
        ("x-arbiter-fidelity", visible(row.fidelity or "")),
    ]


def cost(snapshot: Snapshot, live: Live) -> Pairs:
    """What a whole answer cost, in USD, where that is certain before its row is priced."""
    usage = live.facts.usage if live.facts is not None else None
    if usage is None:
        return []
    pd = charged_pd(usage, live.rung.provider, live.rung.model, snapshot.pricing.overrides)
    return [("x-arbiter-cost-usd", units.usd(pd))] if pd is not None else []
