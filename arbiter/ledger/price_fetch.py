"""A price list fetched, for those who asked for that: the only module of prices that opens a connection."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from arbiter.ledger import fetch
from arbiter.ledger.price_files import MAX_BYTES, Stored, keep

FETCH_S = 60.0


def refresh(path: Path, url: str) -> Stored:
    """Fetch a list and keep it. Errors: Unfetched, BadPrices; what was kept before stays then."""
    origin = url.partition("?")[0]
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise fetch.Unfetched("this is no address") from error
    if not (parts.scheme in ("https", "http") and parts.hostname):
        raise fetch.Unfetched("expected https://host/path, or http")
    if "@" in parts.netloc:
        raise fetch.Unfetched("a user and a password are not sent; remove them from the address")
    found = fetch.get(url, timeout_s=FETCH_S, limit_bytes=MAX_BYTES)
    if found.status != 200:
        raise fetch.Unfetched(f"{origin} answers {found.status}")
    return keep(path, found.body, origin)
