"""How sums of bytes and tokens are kept (`accounting.densities` says what for). Pure, as `measures` is."""

from __future__ import annotations

KEPT_BYTES = 4 << 20
"""Older text gives way to newer: a model, or an agent, is another one after an update."""
KEPT_MS = 30 * 86_400_000
MOST = 4096
"""Pairs of targets and clients. A client may call itself anything; what comes beyond is not kept."""
READ_EVERY_S = 5.0


def added(old: tuple[float, float], new: tuple[float, float]) -> tuple[float, float]:
    """Both sums together, scaled down to `KEPT_BYTES`."""
    text, tokens = old[0] + new[0], old[1] + new[1]
    scale = min(1.0, KEPT_BYTES / text) if text > 0 else 1.0
    return text * scale, tokens * scale
