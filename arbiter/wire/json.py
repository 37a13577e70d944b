"""JSON's door: one encoder, and decoding that blames the right place of the caller's body."""

from __future__ import annotations

import json
from typing import TypeVar

import msgspec

from arbiter.errors import BadRequest

encode = msgspec.json.Encoder().encode
"""Compact UTF-8 JSON; members in the order in which they were put."""

ABSENT = msgspec.Raw()
"""The default of a member that stays raw. (msgspec reads `Raw | None` as if only null were allowed.)"""

T = TypeVar("T")


def present(raw: msgspec.Raw) -> bytes | None:
    """Return a raw member as bytes; absent and `null` are the same to us."""
    value = bytes(raw)
    return None if value in (b"", b"null") else value


def refused(error: Exception, prefix: str = "") -> BadRequest:
    """Return the 400 for a body that msgspec would not take, naming the path of the fault (SPEC 14.2)."""
    if isinstance(error, RecursionError):
        return BadRequest("the request body is nested too deeply")
    text, _, path = str(error).partition(" - at `")
    place = prefix + path.rstrip("`").removeprefix("$").lstrip(".") if path else prefix
    place = place.rstrip(".")
    return BadRequest(f"{place}: {text}" if place else text, param=place or None)


def decode(decoder: msgspec.json.Decoder[T], raw: bytes | msgspec.Raw, prefix: str = "") -> T:
    """Decode what the caller sent; `prefix` says where in the body `raw` was.

    Errors: BadRequest.
    """
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        place = None if isinstance(error, msgspec.ValidationError) else _broken_text(raw)
        if place is None:
            raise refused(error, prefix) from error
        path = (prefix + place).rstrip(".")
        text = "expected Unicode text, got bytes that are no UTF-8 or half of a surrogate pair"
        raise BadRequest(f"{path}: {text}", param=path) from error


def _broken_text(raw: bytes | msgspec.Raw) -> str | None:
    """Return the path of the first text in `raw` that is no Unicode; None where something else is wrong."""
    try:
        whole = json.loads(bytes(raw).decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        return None
    waiting: list[tuple[str, object]] = [("", whole)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
            return path
        if isinstance(value, dict):
            if any("\ud800" <= letter <= "\udfff" for name in value for letter in name):
                return path
            waiting += reversed([(f"{path}.{name}".lstrip("."), one) for name, one in value.items()])
        elif isinstance(value, list):
            waiting += reversed([(f"{path}[{i}]", one) for i, one in enumerate(value)])
    return None
