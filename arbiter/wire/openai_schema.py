"""JSON Schemas as OpenAI wants them. Their bytes stay, but for members that are put in front."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Raw

from arbiter.wire.json import ABSENT

_KNOWN = frozenset(
    (
        "type",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "enum",
        "const",
        "anyOf",
        "title",
        "description",
    )
)


class _Schema(msgspec.Struct):
    type: Raw = ABSENT
    properties: Raw = ABSENT


_SCHEMA = msgspec.json.Decoder(_Schema)
_SEEN = re.compile(
    rb'\{(?:"(?:\$schema|title|description)":"[^"\\]*+",)*+"type":"object",'
    rb'(?:"additionalProperties":(?:true|false),|"required":\[(?:"[^"\\]*+",?+)*+\],)*+"properties":\{'
)
"""How nearly all of them begin: both are there, and there is no need to look at the rest."""


def whole_schema(schema: bytes) -> bytes:
    """Return the schema of a tool's arguments with the `type` and `properties` that OpenAI wants of it."""
    if _SEEN.match(schema) is not None:
        return schema
    try:
        found = _SCHEMA.decode(schema)
    except msgspec.ValidationError:  # no object at all: the upstream will say so
        return schema
    front = b"" if bytes(found.type) else b'"type":"object",'
    if not bytes(found.properties) and bytes(found.type) in (b"", b'"object"'):
        front += b'"properties":{},'
    rest = schema.lstrip()[1:].lstrip()
    if not front:
        return schema
    return b"{" + (front[:-1] if rest.startswith(b"}") else front) + rest


MAX_STRICT_BYTES = 1 << 20
"""OpenAI takes 5,000 properties and 120,000 characters of names at most. Nobody needs to look at more."""


def is_strict(schema: bytes) -> bool:
    """Whether OpenAI would take the schema as a strict one: closed objects, nothing optional, nothing unusual."""
    if len(schema) > MAX_STRICT_BYTES:
        return False
    try:
        return _is_strict(msgspec.json.decode(schema))
    except (msgspec.DecodeError, RecursionError):  # a number that no double holds, or too deep to look at
        return False


def _is_strict(schema: Any) -> bool:
    if not isinstance(schema, dict) or not schema.keys() <= _KNOWN:
        return False
    kinds, properties = schema.get("type", []), schema.get("properties", {})
    kinds = [kinds] if isinstance(kinds, str) else kinds
    choices, required = schema.get("anyOf", []), schema.get("required", [])
    if not (isinstance(properties, dict) and isinstance(choices, list) and isinstance(required, list)):
        return False
    if not (isinstance(kinds, list) and all(isinstance(kind, str) for kind in kinds)):
        return False
    if "object" in kinds or "properties" in schema:
        sure = {name for name in required if isinstance(name, str)}
        if not properties.keys() <= sure or schema.get("additionalProperties") is not False:
            return False
    elif schema.keys().isdisjoint(("type", "anyOf", "enum", "const")):
        return False
    inner = [*properties.values(), *choices, *([schema["items"]] if "items" in schema else ())]
    return all(_is_strict(one) for one in inner)
