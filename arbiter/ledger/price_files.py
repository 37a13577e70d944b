"""The price list that was imported or fetched: one file in the data directory, replaced whole, or not at all."""

from __future__ import annotations

import datetime
import hashlib
import os
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from arbiter import clock
from arbiter.accounting.listed import PriceList
from arbiter.accounting.price_formats import BadPrices, parse
from arbiter.config import spoken
from arbiter.config.rates import Pricing
from arbiter.config.units import LATEST_MS
from arbiter.log import Log

MAX_BYTES = 64 << 20

_log = Log(__name__)


class Stored(msgspec.Struct, kw_only=True):
    """The file: which list it is, and the list as it came. `origin` is a path, or an address without credentials."""

    format: str
    origin: str
    fetched_ms: Annotated[int, Meta(ge=0, le=LATEST_MS)]
    sha256: str
    entries: int
    list: msgspec.Raw

    @property
    def name(self) -> str:
        day = datetime.datetime.fromtimestamp(self.fetched_ms / 1000, datetime.UTC).date()
        return f"of {day.isoformat()} {self.sha256[:8]}"


def stored(path: Path) -> Stored | None:
    """What is kept, unread; None where there is nothing. Errors: BadPrices."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadPrices(f"{path} cannot be read: {error.strerror}") from error
    try:
        return msgspec.json.decode(raw, type=Stored)
    except msgspec.DecodeError as error:
        raise BadPrices(f"{path} is damaged: {error}") from error


def stamp(path: Path) -> tuple[int, int] | None:
    """Changes whenever another list is kept; None while there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino


def keep(path: Path, raw: bytes, origin: str) -> Stored:
    """Put a list in the place of the one that is kept, if it is one. Errors: BadPrices; the old one stays then."""
    if len(raw) > MAX_BYTES:
        raise BadPrices(f"it is over {MAX_BYTES >> 20} MiB; that is no price list")
    name, prices = parse(raw, "")
    kept = Stored(
        format=name,
        origin=origin,
        fetched_ms=clock.now_ms(),
        sha256=hashlib.sha256(raw).hexdigest(),
        entries=len(prices),
        list=msgspec.Raw(raw.strip()),
    )
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = path.with_name(f"{path.name}.{os.getpid()}.new")
        try:
            new.write_bytes(msgspec.json.encode(kept))
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)
    except OSError as error:
        raise BadPrices(f"{path} cannot be written: {error.strerror}") from error
    return kept


def age(pricing: Pricing) -> tuple[str, int]:
    """The list that is asked first, and how new it is at least, in Unix milliseconds. Errors: BadPrices."""
    if pricing.source is not None:
        prices = _read(pricing.source)
        return prices.name, int(pricing.source.stat().st_mtime * 1000)
    kept = stored(pricing.stored)
    if kept is not None:
        parse(bytes(kept.list), kept.name)
        return f"{kept.format} from {kept.origin}", kept.fetched_ms
    from arbiter.accounting import genai

    now = datetime.datetime.fromtimestamp(clock.now_ms() / 1000, datetime.UTC)
    # It bears no date of its own: what it says of the past, as far as this release's own knowledge goes, it knew then.
    newest = genai.packaged().newest(min(now.date(), spoken.AS_OF)) or datetime.date(1970, 1, 1)
    return genai.packaged().name, int(
        datetime.datetime.combine(newest, datetime.time(), datetime.UTC).timestamp() * 1000
    )


def load(pricing: Pricing) -> list[PriceList]:
    """The lists to ask, the first one first. One that cannot be read is missing, and the log says why."""
    found: list[PriceList] = []
    try:
        found += [_read(pricing.source)] if pricing.source is not None else _kept(pricing.stored)
    except BadPrices as error:
        _log.error(f"no prices of a list: {error}")
    return found if pricing.source is not None else [*found, packaged()]


def _kept(path: Path) -> list[PriceList]:
    found = stored(path)
    return [parse(bytes(found.list), found.name)[1]] if found is not None else []


def _read(path: Path) -> PriceList:
    try:
        return parse(path.read_bytes(), path.name)[1]
    except OSError as error:
        raise BadPrices(f"{path} cannot be read: {error.strerror}") from error
    except BadPrices as error:
        raise BadPrices(f"{path}: {error}") from error


def packaged() -> PriceList:
    """The list that comes with the release."""
    from arbiter.accounting import genai

    return genai.packaged()
