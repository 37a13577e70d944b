"""JSON Schemas as OpenAI wants them. Their bytes stay, but for members that are put in front."""

from __future__ import annotations

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


def whole_schema(schema: bytes) -> bytes:
    """Return the schema of a tool's arguments with the `type` and `properties` that OpenAI wants of it."""
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


def is_strict(schema: bytes) -> bool:
    """Whether OpenAI would take the schema as a strict one: closed objects, nothing optional, nothing unusual."""
    return _is_strict(msgspec.json.decode(schema))


def _is_strict(schema: Any) -> bool:
    if not isinstance(schema, dict) or not schema.keys() <= _KNOWN:
        return False
    kinds, properties = schema.get("type", ()), schema.get("properties", {})
    choices, required = schema.get("anyOf", []), schema.get("required", [])
    if not (isinstance(properties, dict) and isinstance(choices, list) and isinstance(required, list)):
        return False
    if kinds == "object" or "object" in kinds or "properties" in schema:
        optional = [name for name in properties if name not in required]
        if optional or schema.get("additionalProperties") is not False:
            return False
    elif schema.keys().isdisjoint(("type", "anyOf", "enum", "const")):
        return False
    inner = [*properties.values(), *choices, *([schema["items"]] if "items" in schema else ())]
    return all(_is_strict(one) for one in inner)
