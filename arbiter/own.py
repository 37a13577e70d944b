"""Requests of the gateway's own (SPEC 7.1: of another kind than `client`): how control asks a worker for one, and how
the worker knows it.

They come in by the front door, as anybody's do, so that they are routed, tried, recorded and priced alike. What makes
them ours is a key that each run of the gateway makes for itself, and keeps in its private directory.
"""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

GATEWAY: Final = "(gateway)"
"""Whose they are, in rows and reports. No client's name has brackets in it."""

KEY_HEADER: Final = "x-arbiter-own-key"
_KIND, _REQUEST_KIND, _ABOUT = "x-arbiter-own-kind", "x-arbiter-own-request-kind", "x-arbiter-own-about"
_FILE = "own-key"


class Own(NamedTuple):
    """What one is for, as its row tells it. `about` is the id of the session that it is about."""

    kind: str
    request_kind: str | None = None
    about: str | None = None


def make_key(run_dir: Path) -> None:
    """Make the key of a run."""
    descriptor = os.open(run_dir / _FILE, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(secrets.token_hex(32))


def key_of(run_dir: Path) -> str:
    """The key of a run; empty where it has none, which fits nobody."""
    try:
        return (run_dir / _FILE).read_text("ascii")
    except OSError:
        return ""


def headers(own: Own, key: str) -> dict[str, str]:
    """What tells a worker of the run with this `key` that a request is ours."""
    told = {_KIND: own.kind, _REQUEST_KIND: own.request_kind, _ABOUT: own.about}
    return {KEY_HEADER: key, **{name: quote(value, safe="") for name, value in told.items() if value is not None}}


def told(fields: Mapping[str, str], key: str) -> Own | None:
    """What a request with these headers is, if it is ours; None for everybody's else, whatever they say."""
    sent = fields.get(KEY_HEADER)
    if sent is None or not key or not hmac.compare_digest(sent.encode("utf-8", "replace"), key.encode()):
        return None
    kind, request_kind, about = (fields.get(name) for name in (_KIND, _REQUEST_KIND, _ABOUT))
    return Own(unquote(kind or "probe"), _unquoted(request_kind), _unquoted(about))


def _unquoted(value: str | None) -> str | None:
    return None if value is None else unquote(value)
