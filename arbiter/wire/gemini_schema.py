"""Schemas of Gemini's older kind, a part of OpenAPI's, as JSON Schema: raw JSON in, raw JSON out.

`parameters` and `responseSchema` have types in capitals, `nullable`, and numbers as text (`"minItems": "1"`), as
protocol buffers write 64 bits. `parametersJsonSchema` and `responseJsonSchema` are JSON Schema already and pass as they
are.
"""

from __future__ import annotations

from typing import Any

import msgspec

from arbiter.wire.json import encode

_BY_NAME = ("properties", "defs", "$defs")
_IN_LIST = ("anyOf", "any_of", "prefixItems")
_COUNTS = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")
_OWN = ("nullable", "propertyOrdering", "example")  # without a meaning in JSON Schema
_MOST = 20_000  # steps


def json_schema(schema: bytes) -> bytes:
    """Return a schema of OpenAPI's kind as JSON Schema. What is none already passes as it came."""
    try:
        whole = msgspec.json.decode(schema)
    except (msgspec.DecodeError, RecursionError):
        return schema
    found: list[Any] = [whole]
    for _ in range(_MOST):
        if not found:
            break
        one = found.pop()
        if not isinstance(one, dict):
            continue
        _mend(one)
        for name in _BY_NAME:
            named = one.get(name)
            found += named.values() if isinstance(named, dict) else ()
        for name in _IN_LIST:
            listed = one.get(name)
            found += listed if isinstance(listed, list) else ()
        found += (one[name] for name in ("items", "additionalProperties") if name in one)
    return encode(whole)


def _mend(one: dict[str, Any]) -> None:
    kind = one.get("type")
    if isinstance(kind, str):
        one["type"] = kind.lower()
        if kind == "TYPE_UNSPECIFIED":
            del one["type"]
        elif one.get("nullable") is True:
            one["type"] = [one["type"], "null"]
    for name in _COUNTS:
        count = one.get(name)
        if isinstance(count, str) and count.isascii() and count.isdecimal():
            one[name] = int(count)
    if isinstance(one.get("example"), list | dict | str | int | float):
        one["examples"] = [one["example"]]
    for name in _OWN:
        one.pop(name, None)
