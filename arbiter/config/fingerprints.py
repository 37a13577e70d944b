"""The key that fingerprints of other people's credentials are made with.

A fingerprint tells one login from another in rows, logs and state, and says nothing of it to whoever lacks this key.
The key is 32 random bytes in a file of the data directory, made by `arbiter serve` when it is first needed. Where no
file can be kept it lives as long as the process that made it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
from pathlib import Path

from arbiter.config.source import ConfigError

FILE = "fingerprint.key"
KEY_BYTES = 32


def key(data_dir: Path, *, make: bool) -> bytes:
    """The key in `data_dir`; `make` one where there is none, else one of this process's own.

    Errors: ConfigError for a file that is there and cannot be read, or holds something else: with another key every
    login would be a stranger.
    """
    path = data_dir / FILE
    found = _read(path)
    if found is None and make:
        with contextlib.suppress(OSError):
            _create(path)
            found = _read(path)
    return found if found is not None else _of_this_process()


def _read(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            found = file.read(KEY_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror or type(error).__name__}", file=str(path)) from None
    if len(found) != KEY_BYTES:
        raise ConfigError(
            f"is not the {KEY_BYTES} bytes of a fingerprint key; restore it, or remove it", file=str(path)
        )
    return found


def _create(path: Path) -> None:
    """Put a new key there, whole or not at all; whoever was first wins."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_name(f"{FILE}.{os.getpid()}")
    try:
        descriptor = os.open(new, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(descriptor)
        with contextlib.suppress(FileExistsError):
            os.link(new, path)
    finally:
        new.unlink(missing_ok=True)


@functools.cache
def _of_this_process() -> bytes:
    return secrets.token_bytes(KEY_BYTES)
