"""The gateway that agents are pointed at: its address, and which models it tells of."""

from __future__ import annotations

import http.client
import ipaddress
import json
from typing import Any
from urllib.parse import urlsplit

from arbiter.cli import CommandError, UsageError
from arbiter.cli.connecting.aim import NAME, Known
from arbiter.config.words import check_identifier

WAIT_S = 5.0
MAX_BYTES = 16 << 20
_KINDS = ("text", "image", "file", "audio", "video")


class Unreachable(Exception):
    """Nobody answers there, or not as Arbiter does."""


def base_url(text: str) -> str:
    """The URL without `/v1` and slash at its end. Errors: UsageError."""
    if not text.isprintable() or not text.isascii() or any(char in text for char in " \"'\\?#@"):
        raise UsageError("--url: expected a base URL like http://127.0.0.1:8080, without credentials or query")
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        raise UsageError("--url: not a URL: its host or port cannot be read") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError("--url: expected http:// or https:// and a host, as in http://127.0.0.1:8080")
    return text.rstrip("/").removesuffix("/v1").rstrip("/")


def is_loopback(url: str) -> bool:
    """Whether it leads nowhere else than to this machine."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen_url(bind: str, port: int) -> str:
    """How a client of this machine reaches a gateway that listens there."""
    if bind == "localhost":
        return f"http://localhost:{port}"
    address = ipaddress.ip_address(bind)
    if address.is_unspecified:
        address = ipaddress.ip_address("127.0.0.1" if address.version == 4 else "::1")
    return f"http://{address}:{port}" if address.version == 4 else f"http://[{address}]:{port}"


def ask(url: str, key: str | None) -> tuple[Known, ...]:
    """The models that the gateway lists for this key, or without one.

    Errors: Unreachable; CommandError where it refuses the key, or wants one.
    """
    parts = urlsplit(f"{url}/v1/models")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=WAIT_S)
    try:
        connection.request("GET", parts.path, headers={"authorization": f"Bearer {key or NAME}"})
        answer = connection.getresponse()
        body = answer.read(MAX_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(str(error) or type(error).__name__) from None
    finally:
        connection.close()
    if answer.status in (401, 403):
        said = "refuses this key" if key is not None else "needs a key, and none was given"
        raise CommandError(
            f"the gateway at {url} {said}; name one that `arbiter keys new NAME` made, with --key or ARBITER_KEY"
        )
    if answer.status != 200:
        raise Unreachable(f"GET /v1/models is answered with {answer.status}")
    try:
        data = json.loads(body)["data"]
        return tuple(known for entry in data if (known := _known(entry)) is not None)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Unreachable("what it answers to GET /v1/models is no list of models") from None


def _known(entry: Any) -> Known | None:
    name, shown = entry["id"], entry.get("display_name")
    try:
        check_identifier(name, ValueError)
    except (ValueError, TypeError):
        return None
    takes = (entry.get("architecture") or {}).get("input_modalities")
    return Known(
        name,
        shown if isinstance(shown, str) and shown.isprintable() and shown else name,
        _tokens(entry.get("max_input_tokens")),
        _tokens(entry.get("max_tokens")),
        tuple(one for one in _KINDS if one in takes) if isinstance(takes, list) else None,
    )


def _tokens(number: Any) -> int | None:
    return number if type(number) is int and number > 0 else None
