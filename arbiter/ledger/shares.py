"""The recorder's stage that counts, for `/metrics`, which client used which model, and what that cost.

Workers count neither: their numbers are kept in the way of a request, and who asked for what multiplies them. Here it
costs no request anything. A label holds a name of the configuration, or `other`: no text that a caller chooses.
"""

from __future__ import annotations

from collections.abc import Callable

from arbiter.config.snapshot import Snapshot
from arbiter.ledger.recorder import Batch
from arbiter.ledger.store import Readable
from arbiter.metrics import TOKENS, Labels, Metrics

OTHER = "other"
MOST_SHARES = 1000
"""Clients times models, of those that were seen together; whoever comes later is `other`."""


class Shares:
    """A `Stage`. `metrics` are the control process's own."""

    def __init__(self, snapshot: Callable[[], Snapshot], metrics: Metrics) -> None:
        self._snapshot = snapshot
        self._metrics = metrics
        self._of: Snapshot | None = None
        self._clients: frozenset[str] = frozenset()
        self._models: dict[tuple[str, str], str] = {}
        self._known: set[Labels] = set()

    def take(self, batch: Batch, store: Readable) -> None:
        """There is nothing to fill in."""

    def stored(self, batch: Batch) -> None:
        sums: dict[tuple[str | None, str, str | None, str], list[int]] = {}
        for row in batch.attempts:
            told = row.client, row.provider, row.model_asked, row.outcome
            summed = sums.get(told)
            if summed is None:
                summed = sums[told] = [0] * (2 + len(TOKENS))
            summed[0] += 1
            summed[1] += row.cost_pd or 0
            summed[2] += row.input_tokens or 0
            summed[3] += row.cached_tokens or 0
            summed[4] += row.cache_write_tokens or 0
            summed[5] += row.output_tokens or 0
        count = self._metrics.count
        for (client, provider, model, outcome), (attempts, cost_pd, *used) in sums.items():
            share = self._share(client or "", provider, model or "")
            count("arbiter_share_attempts_total", (*share, outcome), attempts)
            for kind, tokens in zip(TOKENS, used, strict=True):
                if tokens:
                    count("arbiter_share_tokens_total", (*share, kind), tokens)
            if cost_pd:
                count("arbiter_share_cost_usd_total", share, cost_pd / 10**12)

    def forget(self) -> None:
        """There is nothing to forget."""

    def _share(self, client: str, provider: str, asked: str) -> Labels:
        """The client, the provider and the model of attempts, as far as the configuration names them."""
        snapshot = self._snapshot()
        if snapshot is not self._of:
            self._of, self._clients = snapshot, frozenset(snapshot.client_names)
            self._models = {
                (provider.name, model.upstream): model.id
                for provider in snapshot.providers.values()
                for model in provider.models
            }
        if client and client not in self._clients:
            client = OTHER
        model = self._models.get((provider, asked), OTHER)
        share = client, provider if provider in snapshot.providers else OTHER, model
        if share not in self._known:
            if len(self._known) >= MOST_SHARES:
                return OTHER, OTHER, OTHER
            self._known.add(share)
        return share
