"""What the gateway says of itself in the headers of an answer (docs/headers.md)."""

from __future__ import annotations

from functools import lru_cache

from arbiter.accounting.tariff import charged_pd
from arbiter.attempt.live import Live
from arbiter.config import units
from arbiter.config.snapshot import Snapshot
from arbiter.ledger.row import RequestRow
from arbiter.routing.plan import Rung
from arbiter.wire.headers import Pairs, visible

STREAM_HEADERS: Pairs = [("x-accel-buffering", "no"), ("cache-control", "no-cache")]
"""So that nobody on the way holds a stream back."""


def own_headers(row: RequestRow, rung: Rung) -> Pairs:
    """Which request it was, and who served it."""
    own = [("x-arbiter-warning", visible(row.warning))] if row.warning is not None else []
    if row.session is not None:
        own.append(("x-arbiter-session-id", visible(row.session)))
    return [
        *own,
        ("x-arbiter-trace-id", row.trace_id),
        ("x-arbiter-request-id", row.id),
        *_served(rung.provider.name, rung.model, row.attempts, row.fidelity),
    ]


@lru_cache(1024)
def _served(provider: str, model: str, attempts: int, fidelity: str | None) -> tuple[tuple[str, str], ...]:
    return (
        ("x-arbiter-provider", visible(provider)),
        ("x-arbiter-model", visible(model)),
        ("x-arbiter-attempts", str(attempts)),
        ("x-arbiter-fidelity", visible(fidelity or "")),
    )


_THOUSANDTHS = tuple([f"{number:03}" for number in range(1000)])


def timing(gateway_us: int, upstream_us: int) -> tuple[str, str]:
    """The header that says how long we took, and how long the upstream did, in milliseconds."""
    ours, theirs = _THOUSANDTHS[gateway_us % 1000], _THOUSANDTHS[upstream_us % 1000]
    return "server-timing", f"gateway;dur={gateway_us // 1000}.{ours}, upstream;dur={upstream_us // 1000}.{theirs}"


def cost(snapshot: Snapshot, live: Live) -> Pairs:
    """What a whole answer cost, in USD, where that is certain before its row is priced."""
    usage = live.facts.usage if live.facts is not None else None
    if usage is None:
        return []
    pd = charged_pd(usage, live.rung.provider, live.rung.model, snapshot.pricing.overrides)
    return [("x-arbiter-cost-usd", units.usd(pd))] if pd is not None else []
