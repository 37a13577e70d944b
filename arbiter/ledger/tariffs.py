"""The tariff of the day: that of the current configuration, with whatever price lists there are.

Loading lists takes a third of a second and some 30 MB, so it waits until somebody needs one; providers at addresses of
one's own never do.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
from collections.abc import Callable, Iterator, Mapping

from arbiter import clock
from arbiter.accounting.listed import PriceList
from arbiter.accounting.tariff import Tariff, is_listed
from arbiter.config.rates import Known, Pricing
from arbiter.config.snapshot import Provider, Snapshot
from arbiter.ledger import price_files
from arbiter.log import Log

LOOK_UP_S = 20.0

_log = Log(__name__)


class Lists:
    """The price lists of a configuration, the one to be asked first in front, loaded when first looked at."""

    def __init__(self, pricing: Pricing) -> None:
        self._pricing = pricing
        self._loaded: list[PriceList] | None = None

    def __iter__(self) -> Iterator[PriceList]:
        if self._loaded is None:
            self._loaded = price_files.load(self._pricing)
        return iter(self._loaded)


def vendor_at(url: str) -> str | None:
    """Whose API is at an address, by the release's own list."""
    from arbiter.accounting import genai

    return genai.packaged().vendor(url)


def tariff(pricing: Pricing, providers: Mapping[str, Provider]) -> Tariff:
    """The tariff of these providers."""
    return Tariff(pricing, providers, Lists(pricing), vendor_at)


class Tariffs:
    """Always the tariff of the snapshot that `snapshot` gives: call it."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot
        self._of: Snapshot | None = None
        self._tariff: Tariff | None = None

    def __call__(self) -> Tariff:
        snapshot = self._snapshot()
        if self._tariff is None or snapshot is not self._of:
            self._of, self._tariff = snapshot, tariff(snapshot.pricing, snapshot.providers)
        return self._tariff

    def renew(self) -> None:
        """There are other price lists."""
        self._of = None


def known(pricing: Pricing, providers: Mapping[str, Provider]) -> dict[str, dict[str, Known]]:
    """What each declared model costs now, and takes in, for `Source.look_up`."""
    prices, now_ms = tariff(pricing, providers), clock.now_ms()
    found = {
        name: {
            model.upstream: Known(
                prices.rate(name, model.upstream, now_ms), prices.window(name, model.upstream, now_ms)
            )
            for model in provider.models
        }
        for name, provider in providers.items()
        if provider.type != "echo"  # under any model name at all, it costs nothing
    }
    return {name: {model: one for model, one in models.items() if one != Known()} for name, models in found.items()}


def known_apart(pricing: Pricing, providers: Mapping[str, Provider]) -> dict[str, dict[str, Known]]:
    """As `known`, found by a process of its own: whoever forks workers keeps price lists out of their memory.

    Nothing is known where that process fails; the gateway serves without.
    """
    if not any(is_listed(provider) for provider in providers.values()):
        return known(pricing, providers)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            with open(writing, "wb") as pipe:
                pickle.dump(known(pricing, providers), pipe)
        finally:
            os._exit(0)
    os.close(writing)
    told = b""
    give_up = clock.monotonic() + LOOK_UP_S
    try:
        while select.select([reading], [], [], max(0.0, give_up - clock.monotonic()))[0]:
            part = os.read(reading, 1 << 16)
            if not part:
                break
            told += part
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
    try:
        found: dict[str, dict[str, Known]] = pickle.loads(told)
    except (EOFError, pickle.UnpicklingError):
        _log.warn("no prices were found for the declared models: the price list could not be read")
        return {}
    return found
