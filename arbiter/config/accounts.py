"""The keys of a provider: one, a pool of them, or none."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from arbiter.config import schema
from arbiter.config.address import Fault
from arbiter.config.decode import join
from arbiter.config.snapshot import Account
from arbiter.config.source import read_secret
from arbiter.config.words import check_name, check_secret


def accounts(written: schema.Provider, path: str, base: Path, error: Fault, *, has_pool: bool) -> tuple[Account, ...]:
    """A provider's accounts, in the file's order; one without a key where none was given.

    `has_pool`: `keys` stands in the file, be it empty. Errors: what `error(path, message)` makes; none shows a key.
    """
    if not has_pool:
        return (Account(None, _key(written.key, written.key_file, path, base, error)),)
    here = join(path, "keys")
    for option in ("key", "key_file"):
        if getattr(written, option) is not None:
            raise error(here, f"give either {option} or keys")
    if not written.keys:
        raise error(here, "an empty pool; list at least one key, or remove it")
    found: list[Account] = []
    for index, entry in enumerate(written.keys):
        place = join(here, index)
        label: str | None = None
        if isinstance(entry, str):
            key = _key(entry, None, place, base, error)
        else:
            label = entry.label
            if entry.key is None and entry.key_file is None:
                raise error(place, '"key" or "key_file" is missing')
            key = _key(entry.key, entry.key_file, place, base, error)
        if label is None:
            label = f"key-{index + 1}"
        else:
            check_name(label, partial(error, join(place, "label")))
        if not key:
            raise error(place, "this key is empty; set it, or remove it from the pool")
        for other in found:
            if other.label == label:
                raise error(place, f'the label "{label}" is used twice; give every key a label of its own')
            if other.key == key:
                raise error(place, f'the same key as "{other.label}"; a pool of it would rest as one')
        found.append(Account(label, key))
    return tuple(found)


def _key(key: str | None, key_file: str | None, path: str, base: Path, error: Fault) -> str:
    if key is not None and key_file is not None:
        raise error(join(path, "key_file"), "give either key or key_file")
    option, secret = "key", (key or "").strip()
    if key_file is not None:
        option = "key_file"
        secret = read_secret(base / key_file, option, partial(error, join(path, option)))
    check_secret(secret, partial(error, join(path, option)))
    return secret
