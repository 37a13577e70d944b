"""JSON's door: one encoder, and decoding that blames the right place of the caller's body."""

from __future__ import annotations

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
        raise refused(error, prefix) from error
