"""`arbiter prices`: what models cost and where that comes from; price lists imported, fetched, and checked for age."""

from __future__ import annotations

import argparse
import datetime
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from arbiter import clock
from arbiter.accounting.price_formats import BadPrices
from arbiter.accounting.tariff import Quote, Tariff
from arbiter.cli import FAILED, CommandError, options
from arbiter.cli.price_table import price_table
from arbiter.config import units
from arbiter.config.address import data_dir
from arbiter.config.decode import nearest
from arbiter.config.load import PRICED, NoConfig, Source
from arbiter.config.pricing import STORED
from arbiter.config.rates import FEES, Pricing, Rate
from arbiter.config.snapshot import Snapshot
from arbiter.control import show
from arbiter.ledger import fetch, price_fetch, price_files
from arbiter.ledger.price_files import Stored
from arbiter.ledger.tariffs import tariff

DAY_S = 86_400
UNLISTED = "A row of `models` in the configuration sets a price; `arbiter prices refresh` fetches newer lists."
VENDORLESS = (
    "A row of `models` in the configuration sets a price; `priced_as` at the provider says which vendor's prices hold "
    "for it, and its list is asked then."
)
"""What gives a price to a model that no list has, and to one for which none is asked: no newer list helps that one."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "prices",
        help="show what models cost; import, fetch and check price lists",
        description="Prices of models.",
        allow_abbrev=False,
    )
    verbs = command.add_subparsers(dest="verb", metavar="VERB", required=True, title="verbs")
    showing = options.add(
        verbs,
        "show",
        run_show,
        help="show what models cost",
        description="Show what the declared models cost now, or one of them, and where each price comes from.",
        json="a JSON array",
    )
    showing.add_argument("model", metavar="MODEL", nargs="?", help="provider/model, or a declared model")
    showing.add_argument("--tier", metavar="NAME", help="as served in this service tier: flex, priority, batch, …")
    taking = options.add(
        verbs,
        "import",
        run_import,
        help="take prices from a file",
        description="Take prices from a file of LiteLLM's format, of models.dev's or of genai-prices', and ask it "
        "before the release's own list from now on. A running gateway takes it up within half a minute.",
        json="one JSON object",
    )
    taking.add_argument("file", metavar="FILE", type=Path, help="the list, as JSON")
    refresh = options.add(
        verbs,
        "refresh",
        run_refresh,
        help="fetch newer prices",
        description="Fetch a price list, from where prices.refresh_url says or from URL, and ask it before the "
        "release's own list from now on. If it is none, what was there stays.",
        json="one JSON object",
    )
    refresh.add_argument("url", metavar="URL", nargs="?", help="where from (default: prices.refresh_url)")
    check = options.add(
        verbs,
        "check",
        run_check,
        help="fail when prices are out of date",
        description="Exit with 1 when the price list cannot be read, or is older than prices.max_age; name the "
        "declared models that have no price.",
        json="one JSON object",
    )
    for verb in (showing, taking, refresh, check):
        options.add_config(verb)


# ---------------------------------------------------------------------------------------------------------- show


@dataclass(frozen=True, slots=True)
class Shown:
    """One model's price; `name` is provider/model."""

    name: str
    quote: Quote | None
    vendor: str | None

    @property
    def source(self) -> str:
        if self.quote is not None:
            return self.quote.label
        return "nobody knows" + ("" if self.vendor else ": no price list is asked for this provider")

    def as_json(self) -> dict[str, Any]:
        quote = self.quote
        return {
            "model": self.name,
            "source": quote.source if quote is not None else "unpriced",
            "price": quote.label if quote is not None else None,
            "rate": _rate_json(quote.rate) if quote is not None else None,
        }


def run_show(arguments: argparse.Namespace) -> int:
    snapshot = _snapshot(arguments)
    prices = tariff(snapshot.pricing, snapshot.providers)
    wanted = list(_wanted(snapshot, arguments.model))
    shown = [_shown(prices, provider, model, name, arguments.tier) for provider, model, name in wanted]
    if arguments.json:
        options.print_json([one.as_json() for one in shown])
        return 0
    if not shown:
        print("No model is declared; name one: arbiter prices show PROVIDER/MODEL")
        return 0
    print("USD per million tokens (- is unknown)")
    print(price_table((one.name, one.quote.rate if one.quote is not None else Rate()) for one in shown))
    width = max(len(one.name) for one in shown)
    print("\n".join(f"{one.name:<{width}}  {one.source}" for one in shown))
    _advise(one.vendor for one in shown if one.quote is None)
    return 0


def _advise(vendors: Iterable[str | None]) -> None:
    """What gives prices to models of which none is known, by whose lists are asked for them."""
    asked = {vendor is not None for vendor in vendors}
    if True in asked:
        print(UNLISTED)
    if False in asked:
        print(VENDORLESS)


def _wanted(snapshot: Snapshot, model: str | None) -> Iterator[tuple[str, str, str]]:
    """Provider, the name it is sent, and how we name it."""
    if model is None:
        for provider in snapshot.providers.values():
            yield from ((provider.name, one.upstream, f"{provider.name}/{one.id}") for one in provider.models)
        return
    name, slash, rest = model.partition("/")
    if slash and name in snapshot.providers:
        declared = snapshot.providers[name].model(rest)
        yield name, declared.upstream if declared is not None else rest, model
    elif model in snapshot.models:
        known, one = snapshot.models[model]
        yield known.name, one.upstream, f"{known.name}/{one.id}"
    else:
        owners = ", ".join(snapshot.providers)
        # Some vendors' names have a slash of their own: what stands before it need not be meant as a provider.
        no_owner = f', and "{name}" no provider' if slash else ""
        raise CommandError(
            f'"{model}" is no declared model{no_owner}{nearest(model, snapshot.models)}; '
            f"of any other say whose it is, as PROVIDER/MODEL; the providers: {owners}"
        )


def _shown(prices: Tariff, provider: str, model: str, name: str, tier: str | None) -> Shown:
    return Shown(name, prices.find(provider, (model,), clock.now_ms(), tier), prices.vendor(provider))


def _rate_json(rate: Rate) -> dict[str, Any]:
    """USD per million tokens."""
    shown: dict[str, Any] = {f"{name}_usd_per_mtok": pd and pd / 10**6 for name, pd in rate.items() if pd is not None}
    shown |= {f"{name}_usd": pd / 10**12 for name in FEES if (pd := getattr(rate, name)) is not None}
    if rate.tiers:
        shown["tiers"] = [{"above_input_tokens": above, **_rate_json(tier)} for above, tier in reversed(rate.tiers)]
    return shown


# --------------------------------------------------------------------------------------------- import and refresh


def run_import(arguments: argparse.Namespace) -> int:
    path: Path = arguments.file
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}") from error
    pricing = _pricing(arguments)
    try:
        kept = price_files.keep(pricing.stored, raw, str(path))
    except BadPrices as error:
        raise CommandError(f"{path}: {error}") from error
    return _kept(kept, pricing, as_json=arguments.json)


def run_refresh(arguments: argparse.Namespace) -> int:
    pricing = _pricing(arguments)
    url = arguments.url or pricing.refresh_url
    try:
        kept = price_fetch.refresh(pricing.stored, url)
    except (fetch.Unfetched, BadPrices) as error:
        raise CommandError(f"no newer prices: {error}") from error
    return _kept(kept, pricing, as_json=arguments.json)


def _kept(kept: Stored, pricing: Pricing, *, as_json: bool) -> int:
    if as_json:
        options.print_json({**_list_json(kept), "file": str(pricing.stored)})
        return 0
    print(f"{kept.entries:,} models ({kept.format}, sha256 {kept.sha256[:12]}) are in {pricing.stored}")
    if pricing.source is not None:
        print(f"but the configuration asks {pricing.source} in their place (prices.source)")
    return 0


def _list_json(kept: Stored) -> dict[str, Any]:
    return {name: getattr(kept, name) for name in ("format", "origin", "fetched_ms", "sha256", "entries")}


# --------------------------------------------------------------------------------------------------------- check


def run_check(arguments: argparse.Namespace) -> int:
    snapshot = _snapshot(arguments)
    pricing = snapshot.pricing
    try:
        name, of_ms = price_files.age(pricing)
    except BadPrices as error:
        raise CommandError(str(error)) from error
    age_s = max(0, clock.now_ms() - of_ms) // 1000
    is_stale = bool(pricing.max_age_s) and age_s > pricing.max_age_s
    prices = tariff(pricing, snapshot.providers)
    shown = [_shown(prices, provider, model, name, None) for provider, model, name in _wanted(snapshot, None)]
    unknown = [one for one in shown if one.quote is None]
    if arguments.json:
        found = {"ok": not is_stale, "list": name, "of_ms": of_ms, "age_s": age_s, "max_age_s": pricing.max_age_s}
        options.print_json({**found, "unpriced": [one.name for one in unknown]})
        return FAILED if is_stale else 0
    day = datetime.datetime.fromtimestamp(of_ms / 1000, datetime.UTC).date().isoformat()
    age, most = show.counted(age_s // DAY_S, "day"), units.duration(pricing.max_age_s)
    print(f"{name}: of {day}, {age} old; prices.max_age is {most}")
    if unknown:
        print(f"no price is known of {', '.join(one.name for one in unknown)}")
        _advise(one.vendor for one in unknown)
    if is_stale:
        raise CommandError("the price list is out of date: arbiter prices refresh, or a newer release")
    return 0


def _snapshot(arguments: argparse.Namespace) -> Snapshot:
    return Source(arguments.config, dict(os.environ)).keyless(*PRICED)


def _pricing(arguments: argparse.Namespace) -> Pricing:
    """The configuration's; without one the data directory is known all the same."""
    try:
        return _snapshot(arguments).pricing
    except NoConfig:
        return replace(Pricing(), stored=data_dir(dict(os.environ)) / STORED)
