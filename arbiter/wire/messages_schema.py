"""JSON schemas as Anthropic Messages takes them: raw JSON in, raw JSON out, only ever added to.

Numbers and the order of members stay as they came; what needs nothing keeps its bytes.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from arbiter.wire.json import encode

_MEMBERS = msgspec.json.Decoder(dict[str, Raw])
_ITEMS = msgspec.json.Decoder(list[Raw])
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
    if schema[:1] != b"{":
        return schema
    members = _MEMBERS.decode(schema)
    found: dict[str, Raw] = {}
    for name, raw in members.items():
        value = bytes(raw)
        if name in _BY_NAME and value[:1] == b"{":
            value = _each(value)
        elif name in _IN_LIST and value[:1] == b"[":
            items = _ITEMS.decode(value)
            inner = [Raw(closed(bytes(item))) for item in items]
            value = value if list(map(bytes, inner)) == list(map(bytes, items)) else encode(inner)
        elif name in _ITSELF:
            value = closed(value)
        found[name] = Raw(value)
    if bytes(members.get("type", b"")) == b'"object"' and "additionalProperties" not in members:
        found["additionalProperties"] = Raw(b"false")
    return (
        schema
        if {n: bytes(v) for n, v in found.items()} == {n: bytes(v) for n, v in members.items()}
        else encode(found)
    )


def _each(named: bytes) -> bytes:
    members = _MEMBERS.decode(named)
    found = {name: closed(bytes(raw)) for name, raw in members.items()}
    if all(found[name] == bytes(raw) for name, raw in members.items()):
        return named
    return encode({name: Raw(value) for name, value in found.items()})
