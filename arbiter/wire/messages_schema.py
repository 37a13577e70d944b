"""JSON schemas as Anthropic Messages takes them: raw JSON in, raw JSON out, only ever added to.

Numbers and the order of members stay as they came; what needs nothing keeps its bytes.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
from msgspec import Raw

from arbiter._speedups import nesting
from arbiter.wire.json import encode

MAX_VALUES = 20_000
"""A schema of more values passes as it came. Anthropic refuses far smaller ones as too complex; OpenAI knows 5,000
properties at most."""

_MEMBERS = msgspec.json.Decoder(dict[str, Raw])
_BY_NAME = ("properties", "$defs", "definitions")
_IN_LIST = ("anyOf", "oneOf", "allOf", "prefixItems")
_ITSELF = ("items", "not")
_NULL = b"null"
_EMPTY = b'{"type":"object","properties":{}}'


def argument_schema(parameters: bytes | None) -> bytes:
    """Return the schema of a tool's arguments, which must say that it is one of an object."""
    if parameters is None:
        return _EMPTY
    if parameters[:1] != b"{":
        return parameters
    members = _MEMBERS.decode(parameters)
    if bytes(members.get("type", _NULL)) != _NULL:
        return parameters
    members.pop("type", None)
    return encode({"type": "object", **members})


def closed(schema: bytes) -> bytes:
    """Return a schema that output is held to: here each object must say that it has no other members.

    OpenAI's strict schemas say so anyway; without it the request would be refused.
    """
    if schema[:1] != b"{" or _may_hold(schema) > MAX_VALUES:
        return schema
    try:
        # The one decoder that hands out numbers as they are written.
        whole = json.loads(schema, parse_int=_as_written, parse_float=_as_written)
    except (ValueError, RecursionError):
        return schema
    changed = False
    found: list[Any] = [whole]
    while found:
        one = found.pop()
        if not isinstance(one, dict):
            continue
        for name in _BY_NAME:
            named = one.get(name)
            found += named.values() if isinstance(named, dict) else ()
        for name in _IN_LIST:
            listed = one.get(name)
            found += listed if isinstance(listed, list) else ()
        found += (one[name] for name in _ITSELF if name in one)
        kinds = one.get("type")
        is_object = "object" in kinds if isinstance(kinds, list) else kinds == "object"
        if is_object and "additionalProperties" not in one:
            one["additionalProperties"] = False
            changed = True
    return encode(whole) if changed else schema


def _may_hold(schema: bytes) -> int:
    """Return how many values are in `schema` at most: each stands behind a comma, or first behind a bracket."""
    return schema.count(b"{") + schema.count(b"[") + nesting.commas(schema)


def _as_written(number: str) -> Raw:
    return Raw(number.encode())
