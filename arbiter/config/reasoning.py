"""Deployment keys: what reasoning is sealed with that clients hand along (SPEC 6.6), and where they are kept.

The configuration or the environment holds them where several gateways answer for one another. Else a file in the data
directory does, which the first start makes: one key a line, the first seals, all of them open.
"""

from __future__ import annotations

import base64
import binascii
import functools
import os
import secrets
from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec import field

from arbiter.config.sections import Secret, Section, doc, instead
from arbiter.config.source import ConfigError, Fail, read_secret, variable

if TYPE_CHECKING:
    from arbiter.config.address import Fault

FILE = "reasoning.keys"
VARIABLE = "ARBITER_REASONING_KEY"
KEY_BYTES = 32
MOST_KEYS = 16

_NO_KEY = "expected 32 bytes in base64, as `arbiter keys deployment new` prints them"


class Reasoning(Section):
    hints = instead("keys", "key", "deployment_key", "deployment_keys")

    keys: Annotated[
        list[Secret],
        doc(
            "Deployment keys, as `arbiter keys deployment new` prints them: what reasoning is sealed with that a "
            "client of another format hands along. The first seals, all of them open. Gateways that answer for one "
            f"another need the same. Default: the environment variable `{VARIABLE}` (several with blanks between "
            f"them), else `{FILE}` in the data directory, which the first start makes."
        ),
    ] = field(default_factory=list)
    key_file: Annotated[str | None, doc("A file that holds them in place of `keys`, one a line.")] = None


def configured(written: Reasoning, base: Path, env: Mapping[str, str], error: Fault) -> tuple[bytes, ...]:
    """The keys that the configuration or the environment gives; none where the data directory's count.

    Errors: what `error(path, message)` makes; none shows a key.
    """
    place = "reasoning.keys"
    if written.key_file is not None:
        here = "reasoning.key_file"
        if written.keys:
            raise error(here, "give either keys or key_file")
        text = read_secret(base / written.key_file, "key_file", partial(error, here))
        return decoded(text.split(), partial(error, here))
    if written.keys:
        return decoded(written.keys, partial(error, place))
    text = variable(VARIABLE, env, partial(error, place)) or ""
    return decoded(text.split(), lambda message: ConfigError(f"{VARIABLE}: {message}"))


def path_in(data_dir: Path) -> Path:
    return data_dir / FILE


def new() -> bytes:
    return secrets.token_bytes(KEY_BYTES)


@functools.cache
def of_this_process() -> bytes:
    """The key of a gateway that keeps nothing: it lives as long as its supervisor, which hands it to the workers."""
    return new()


def spelled(key: bytes) -> str:
    """A key as files and people have it."""
    return base64.urlsafe_b64encode(key).decode().rstrip("=")


def fingerprint(key: bytes) -> str:
    """What tells a key from others, and nothing of it."""
    return sha256(b"arbiter deployment key\0" + key).hexdigest()[:16]


def read(path: Path) -> tuple[bytes, ...]:
    """The keys of a file, none where there is no file. Errors: ConfigError."""

    def fail(message: str) -> ConfigError:
        return ConfigError(message, file=str(path))

    if not path.exists():
        return ()
    return decoded(read_secret(path, FILE, fail).split(), fail)


def write(path: Path, keys: Sequence[bytes]) -> None:
    """Put `keys` in the place of those there are, for the owner's eyes only: all of them, or nothing happened.

    Errors: ConfigError.
    """
    new_path = path.with_suffix(".new")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(new_path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write("".join(f"{spelled(key)}\n" for key in keys).encode())
            file.flush()
            os.fsync(file.fileno())
        new_path.replace(path)
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror or type(error).__name__}", file=str(path)) from None


def decoded(texts: Sequence[str], fail: Fail) -> tuple[bytes, ...]:
    """Keys as `spelled` made them. Errors: what `fail` makes; it shows none."""
    keys: list[bytes] = []
    for text in texts:
        try:
            key = base64.b64decode(text.strip().encode("ascii") + b"=", altchars=b"-_", validate=True)
        except (binascii.Error, UnicodeEncodeError):
            raise fail(_NO_KEY) from None
        if len(key) != KEY_BYTES:
            raise fail(_NO_KEY)
        if key in keys:
            raise fail("the same key twice")
        keys.append(key)
    if len(keys) > MOST_KEYS:
        raise fail(f"more than {MOST_KEYS} keys; drop those whose conversations are over")
    return tuple(keys)
