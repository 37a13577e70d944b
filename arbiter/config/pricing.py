"""The section `prices`: where prices come from beside the rows of `models`, and those that go over all others."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from arbiter.config import price_schema
from arbiter.config.address import Fault
from arbiter.config.catalog import fees
from arbiter.config.decode import join, nearest
from arbiter.config.rates import TOKEN_PRICES, Override, Prepaid, Pricing, Rate, rounded
from arbiter.config.snapshot import Provider
from arbiter.config.words import check_secret

GENAI = "genai-prices"
STORED = "prices.json"


class Sources:
    """Reads the section. Errors: what `error(path, message)` makes."""

    def __init__(self, error: Fault, base: Path, data: Path) -> None:
        self._error = error
        self._base = base
        self._data = data

    def pricing(self, written: price_schema.PriceSources, providers: Mapping[str, Provider]) -> Pricing:
        if not written.source:
            raise self._error("prices.source", f"expected {GENAI} or a file")
        self._check_url(written.refresh_url)
        refresh_s = 0.0 if isinstance(written.refresh, str) else written.refresh
        if 0 < refresh_s < 60:
            raise self._error("prices.refresh", "prices do not change that often; 60s is the least")
        return Pricing(
            stored=self._data / STORED,
            source=None if written.source == GENAI else self._base / written.source,
            refresh_s=refresh_s,
            refresh_url=written.refresh_url,
            max_age_s=written.max_age_s,
            overrides=tuple(self._override(number, row) for number, row in enumerate(written.overrides, 1)),
            prepaid=tuple(self._prepaid(index, row, providers) for index, row in enumerate(written.prepaid)),
        )

    def _check_url(self, url: str) -> None:
        fail = partial(self._error, "prices.refresh_url")
        check_secret(url, fail)
        try:
            parts = urlsplit(url)
            is_whole = bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_whole = False
        if not is_whole:
            raise fail("this is no address")
        if "@" in parts.netloc:
            raise fail("a user and a password are not sent; a token may stand in the query: https://host/path?token=…")
        if parts.scheme != "https" and not (parts.scheme == "http" and _is_loopback(parts.hostname or "")):
            raise fail("expected https://…, or http:// on loopback")

    def _override(self, number: int, row: price_schema.Override) -> Override:
        here = join("prices.overrides", number - 1)
        fx = row.fx_rate_to_usd
        if row.currency != "USD" and not fx:
            raise self._error(here, f"prices in {row.currency} need fx_rate_to_usd: how many USD one {row.currency} is")
        if row.currency == "USD" and fx is not None:
            raise self._error(join(here, "fx_rate_to_usd"), "a rate of USD to USD; name the currency, or remove it")
        discount = row.discount_percent or 0
        if discount > 100 * 10**6:
            raise self._error(join(here, "discount_percent"), "more than everything")
        written = Rate(**{name: getattr(row, f"{name}_pd") for name in TOKEN_PRICES}, **fees(row))
        if written == Rate() and not discount:
            raise self._error(
                here,
                "overrides nothing; a price (…_per_mtok, request_fee, web_search_fee) or discount_percent is needed",
            )
        if row.from_ms is not None and row.until_ms is not None and row.until_ms <= row.from_ms:
            raise self._error(join(here, "until"), "ends before it begins")
        return Override(
            number=number,
            provider=row.provider,
            model=row.model,
            service_tier=row.service_tier,
            from_ms=row.from_ms,
            until_ms=row.until_ms,
            prices=written.each(lambda _, pd: pd if pd is None or fx is None else rounded(pd * fx, 10**6)),
            keep=10**6 - rounded(discount, 100),
        )

    def _prepaid(self, index: int, row: price_schema.Prepaid, providers: Mapping[str, Provider]) -> Prepaid:
        here = join("prices.prepaid", index)
        provider = providers.get(row.provider)
        if provider is None:
            raise self._error(join(here, "provider"), f'no provider "{row.provider}"{nearest(row.provider, providers)}')
        labels = [account.label for account in provider.accounts if account.label is not None]
        if row.account is not None and row.account not in labels:
            raise self._error(
                join(here, "account"), f'{row.provider} has no key "{row.account}"{nearest(row.account, labels)}'
            )
        return prepaid(row)


def prepaid(row: price_schema.Prepaid) -> Prepaid:
    """What was paid in advance; whether there is such a provider is not looked at."""
    return Prepaid(row.provider, row.account, row.balance_micro * 10**6, row.since_ms)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
