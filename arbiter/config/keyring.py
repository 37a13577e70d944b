"""Client keys that `arbiter keys` makes: a file in the data directory, beside `clients` of the configuration.

It holds hashes, never a key. Whoever changes it holds its lock and puts a whole new file in its place, so that readers
need none. A revoked key stays in it: who sends it is told so.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from arbiter.config import units
from arbiter.config.snapshot import Client
from arbiter.config.source import ConfigError

FILE = "keys.json"
MAX_BYTES = 16 << 20
ID_DIGITS = 10
PREFIX = "arb-"
"""What every key of ours begins with."""


class Key(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One key; moments are ISO 8601 in UTC. `id` tells it from others of its client, and says nothing of the key."""

    id: str
    name: str
    key_hash: str
    created: str
    allow: list[str]
    expires: str | None = None
    revoked: str | None = None
    agent: str | None = None
    group: str | None = None

    def client(self) -> Client:
        """Who it lets in."""
        return Client(
            self.name,
            self.key_hash.removeprefix("sha256:"),
            self.agent,
            tuple(self.allow),
            self.group,
            _ms(self.expires),
            _ms(self.revoked),
        )


class _File(msgspec.Struct, forbid_unknown_fields=True):
    keys: list[Key]


def path_in(data_dir: Path) -> Path:
    """Where the keys of a data directory are."""
    return data_dir / FILE


def read(path: Path) -> list[Key]:
    """The keys, oldest first; none where there is no file. Errors: ConfigError."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return []
    except NotADirectoryError:
        return []
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror or type(error).__name__}", file=str(path)) from None
    if len(raw) > MAX_BYTES:
        raise ConfigError("is over 16 MiB; these are no keys", file=str(path))
    try:
        keys = msgspec.json.decode(raw, type=_File).keys
        for key in keys:
            _check(key)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise ConfigError(f"is no list of client keys: {error}", file=str(path)) from None
    return keys


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Nobody else changes the keys within. Errors: ConfigError where the data directory cannot be written."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror or type(error).__name__}", file=str(path)) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def write(path: Path, keys: Sequence[Key]) -> None:
    """Put `keys` in the place of those there are: all of them, or nothing happened. Within `held`.

    Errors: ConfigError.
    """
    text = json.dumps({"keys": [msgspec.structs.asdict(key) for key in keys]}, indent=2, ensure_ascii=False) + "\n"
    new = path.with_suffix(".new")
    try:
        descriptor = os.open(new, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)
            file.write(text.encode())
            file.flush()
            os.fsync(descriptor)
        new.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror or type(error).__name__}", file=str(path)) from None


def _check(key: Key) -> None:
    """Errors: ValueError for what would let in nobody, or everybody."""
    digest = key.key_hash.removeprefix("sha256:")
    if digest == key.key_hash or len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
        raise ValueError(f"{key.id}: key_hash is to be sha256: and 64 hexadecimal digits")
    for name, moment in (("expires", key.expires), ("revoked", key.revoked)):
        if moment is not None and units.moment_ms(moment) is None:
            raise ValueError(f"{key.id}: {name} is no moment like 2026-12-31T18:00:00Z")
    if not key.allow:
        raise ValueError(f"{key.id}: an empty `allow` allows nothing")


def _ms(moment: str | None) -> int | None:
    return None if moment is None else units.moment_ms(moment)
