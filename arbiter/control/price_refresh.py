"""Newer prices, fetched now and then, and when an attempt has none: only where `prices.refresh` asks for it.

One thread does it all. A list that was fetched is kept once it is known to be one, and the last good one stays
otherwise. A model that has no price wakes the thread: it fetches, unless it did so just now, and prices those rows
anew. A model that is missing in a new list too is left alone for a day. A list that somebody else put there is taken
up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from arbiter import clock
from arbiter.accounting.price_formats import BadPrices
from arbiter.accounting.tariff import is_listed
from arbiter.chore import Chore
from arbiter.config.rates import Pricing
from arbiter.config.snapshot import Snapshot
from arbiter.ledger import fetch, price_fetch, price_files
from arbiter.ledger.repricing import Window, reprice
from arbiter.ledger.row import AttemptRow
from arbiter.ledger.store import Changer, StoreDown
from arbiter.ledger.tariffs import Tariffs, tariff
from arbiter.lines import Prices
from arbiter.log import Log

BACK_OFF_S = 900.0  # after a fetch that failed, and between two for models without a price
FORGET_MISSING_S = 86_400.0
LOOK_EVERY_S = 30.0
STOP_WITHIN_S = 5.0
MOST_MISSING = 4096

_log = Log(__name__)

Model = tuple[str, str]
"""A provider, and a model by its provider's name for it."""


class Kept(NamedTuple):
    """What there is to tell of the list that is kept."""

    origin: str
    entries: int
    fetched_ms: int


class PriceRefresh:
    """Call `start` once, `missing` from the recorder, `stop` at the end. `changer` None: there are no rows.

    `tell` is told of prices whenever there is news of them; it says whether it took them.
    """

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        tariffs: Tariffs,
        changer: Changer | None,
        tell: Callable[[Prices], bool] = lambda _: True,
    ) -> None:
        self._snapshot = snapshot
        self._tariffs = tariffs
        self._changer = changer
        self._tell = tell
        self._told: Prices | None = None
        self._known: tuple[tuple[int, int] | None, Kept | None] = (None, None)  # by the file's stamp
        self._missing: dict[Model, int] = {}  # since when rows of it have no price
        self._given_up: dict[Model, float] = {}  # until when, on the monotonic clock
        self._tried_at: float | None = None
        self._tried_ms: int | None = None
        self._error: str | None = None
        self._stamp = price_files.stamp(snapshot().pricing.stored)
        self._lock = threading.Lock()
        self._chore = Chore("prices", self.look, every_s=LOOK_EVERY_S)

    def start(self) -> None:
        self._chore.start()

    def stop(self) -> None:
        self._chore.stop(STOP_WITHIN_S)

    def missing(self, rows: Iterable[AttemptRow]) -> None:
        """These attempts were stored without a price."""
        snapshot = self._snapshot()
        if not snapshot.pricing.refresh_s:
            return
        now = clock.monotonic()
        with self._lock:
            for row in rows:
                model = row.provider, row.model_asked or ""
                provider = snapshot.providers.get(row.provider)
                if provider is None or not is_listed(provider):
                    continue
                if self._given_up.get(model, 0.0) <= now and len(self._missing) < MOST_MISSING:
                    self._missing.setdefault(model, row.started_ms)
            is_wanted = bool(self._missing)
        if is_wanted:
            self._chore.wake()

    def describe(self) -> dict[str, Any]:
        """What the state tells of prices."""
        pricing = self._snapshot().pricing
        shown: dict[str, Any] = {
            "source": "genai-prices" if pricing.source is None else str(pricing.source),
            "refresh": pricing.refresh_s or None,
            "origin": None,
            "entries": None,
            "fetched_ms": None,
            "tried_ms": self._tried_ms,
            "error": self._error,
        }
        try:
            kept = self._kept(pricing)
        except BadPrices as error:
            return {**shown, "error": str(error)}
        if kept is not None:
            shown |= {"origin": kept.origin, "entries": kept.entries, "fetched_ms": kept.fetched_ms}
        return shown

    def look(self) -> None:
        """Fetch if it is time to, price anew what had no price, and tell of it. `start` has a thread do it; tests call
        it."""
        pricing = self._snapshot().pricing
        self._look(pricing)
        self._tell_of(pricing)

    # ------------------------------------------------------------------ inside

    def _look(self, pricing: Pricing) -> None:
        stamp = price_files.stamp(pricing.stored)
        if stamp != self._stamp:  # `arbiter prices import` was here
            self._stamp = stamp
            self._tariffs.renew()
        if not pricing.refresh_s or pricing.source is not None:
            return
        with self._lock:
            missing = dict(self._missing)
        if not self._is_due(pricing, is_wanted=bool(missing)) or not self._fetch(pricing):
            return
        self._stamp = price_files.stamp(pricing.stored)
        self._tariffs.renew()
        for model, since_ms in missing.items():
            self._reprice(model, since_ms)

    def _tell_of(self, pricing: Pricing) -> None:
        try:
            kept = self._kept(pricing)
        except BadPrices:
            kept = None
        news = Prices(
            fetched_ms=kept.fetched_ms if kept is not None else None,
            entries=kept.entries if kept is not None else None,
            tried_ms=self._tried_ms,
            outcome=None if self._tried_ms is None else "ok" if self._error is None else "failed",
        )
        if news != self._told and self._tell(news):
            self._told = news

    def _kept(self, pricing: Pricing) -> Kept | None:
        """The list that is kept, read again only where it is another one: it may be large. Errors: BadPrices."""
        stamp = price_files.stamp(pricing.stored)
        known, kept = self._known
        if stamp != known:
            found = price_files.stored(pricing.stored)
            kept = Kept(found.origin, found.entries, found.fetched_ms) if found is not None else None
            self._known = stamp, kept
        return kept

    def _is_due(self, pricing: Pricing, *, is_wanted: bool) -> bool:
        since_s = None if self._tried_at is None else clock.monotonic() - self._tried_at
        if since_s is not None and since_s < BACK_OFF_S:
            return False
        if is_wanted:
            return True
        try:
            kept = self._kept(pricing)
        except BadPrices:
            return True
        return kept is None or clock.now_ms() - kept.fetched_ms >= pricing.refresh_s * 1000

    def _fetch(self, pricing: Pricing) -> bool:
        self._tried_at, self._tried_ms = clock.monotonic(), clock.now_ms()
        try:
            kept = price_fetch.refresh(pricing.stored, pricing.refresh_url)
        except (fetch.Unfetched, BadPrices) as error:
            self._error = str(error)
            _log.warn(f"no newer prices: {error}", url=pricing.refresh_from)
            return False
        self._error = None
        _log.info("prices fetched", url=kept.origin, entries=kept.entries, sha256=kept.sha256)
        return True

    def _reprice(self, model: Model, since_ms: int) -> None:
        """Price anew the rows of a model that had no price; leave it alone for a day if it still has none."""
        snapshot = self._snapshot()
        prices = tariff(snapshot.pricing, snapshot.providers)
        with self._lock:
            self._missing.pop(model, None)
        if prices.find(model[0], (model[1],), clock.now_ms()) is None:
            with self._lock:
                if len(self._given_up) >= MOST_MISSING:
                    self._given_up.clear()
                self._given_up[model] = clock.monotonic() + FORGET_MISSING_S
            return
        if self._changer is None:
            return
        window = Window(
            since_ms=since_ms - 86_400_000,  # by a request's arrival, which may be long before its attempt
            until_ms=clock.now_ms() + 1,
            provider=model[0],
            model=model[1],
            unpriced=True,
        )
        try:
            done = reprice(window, prices, self._changer.change)
        except StoreDown as error:
            _log.warn(f"rows of a model that has a price now stay without: {error}")
            return
        _log.info("rows of a model that has a price now were priced anew", attempts=done.changed)
