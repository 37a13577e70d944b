"""The schema told to people and editors: every key with its type, default and meaning, and a JSON Schema.

`docs/config.md` holds the tables between its markers, and a test holds them to the schema:
`python -m arbiter.config.reference docs/config.md` writes them anew.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from arbiter.config import units
from arbiter.config.decode import unwrap
from arbiter.config.schema import Config

_REFERENCE = {"type": "string", "pattern": r"\$\{"}  # ${VAR} may stand for any single value
_MARKED = re.compile(r"(<!-- keys: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Key:
    """One key as it may be written. `path` has `<name>` for names the operator chooses and `[]` for list items."""

    path: str
    type: str
    default: str  # "" where there is none, "required" where it must be written
    text: str

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]


def keys(type_: inspect.Type | None = None, prefix: str = "") -> Iterator[Key]:
    """Every key, depth first, in the order of the schema."""
    struct = type_ or inspect.type_info(Config)
    assert isinstance(struct, inspect.StructType)
    for field in struct.fields:
        path = f"{prefix}{field.encode_name}"
        inner, extra = unwrap(field.type)
        yield Key(path, _type(inner, extra), _default(field, extra), _text(field.type))
        for step, below in _below(inner):
            yield from keys(below, f"{path}{step}.")


def _below(type_: inspect.Type) -> Iterator[tuple[str, inspect.StructType]]:
    match unwrap(type_)[0]:
        case inspect.StructType() as struct:
            yield "", struct
        case inspect.ListType() as items:
            yield from ((f"[]{step}", struct) for step, struct in _below(items.item_type))
        case inspect.DictType() as values:
            yield from ((f".<name>{step}", struct) for step, struct in _below(values.value_type))
        case inspect.UnionType() as union:
            for member in union.types:
                yield from _below(member)


def _type(type_: inspect.Type, extra: dict[str, Any]) -> str:
    type_, inner_extra = unwrap(type_)
    extra = {**inner_extra, **extra}
    match type_:
        case inspect.UnionType():
            members = [member for member in type_.types if not isinstance(unwrap(member)[0], inspect.NoneType)]
            return " or ".join(_type(member, {}) for member in members)
        case inspect.LiteralType():
            return ", ".join(f"`{value}`" for value in type_.values)
        case inspect.ListType():
            return f"list of {_type(type_.item_type, {})}".replace("string", "strings").replace("mapping", "mappings")
        case inspect.DictType():
            return "mapping"
        case inspect.StructType():
            return "mapping"
        case inspect.IntType() if "kind" not in extra:
            return "number"
        case inspect.BoolType():
            return "`true`, `false`"
        case _:
            return str(extra.get("kind", "string"))


def _default(field: inspect.Field, extra: dict[str, Any]) -> str:
    if field.required:
        return "required"
    value = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    if isinstance(value, msgspec.Struct) or value is None or value in ("", [], {}):
        return ""
    return f"`{_written(value, extra.get('kind'))}`"


def _written(value: Any, kind: str | None) -> str:
    """A default as it would stand in the file."""
    if kind == "duration":
        return units.duration(value)
    if kind == "size":
        return units.size(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        items = ", ".join('"*"' if item == "*" else str(item) for item in value)  # a bare * is an alias in YAML
        return f"[{items}]"
    return str(value)


def _text(type_: inspect.Type) -> str:
    while isinstance(type_, inspect.Metadata):
        if text := (type_.extra_json_schema or {}).get("description"):
            return str(text)
        type_ = type_.type
    return ""


# ------------------------------------------------------------------------------------------------ docs/config.md


def table(section: str) -> str:
    """The keys directly below `section` (`server`, `providers.<name>.timeouts`; `top` for the top) as Markdown."""
    prefix = "" if section == "top" else f"{section}."
    rows = ["| key | type | default | meaning |", "| --- | --- | --- | --- |"]
    for key in keys():
        if key.path.startswith(prefix) and "." not in key.path[len(prefix) :].replace(".<name>", ""):
            rows.append(f"| `{key.path}` | {key.type} | {key.default or '–'} | {key.text} |")
    return "\n".join(rows) + "\n"


def filled(document: str) -> str:
    """`document` with every table between `<!-- keys: SECTION -->` and `<!-- end -->` written anew."""
    return _MARKED.sub(lambda match: f"{match[1]}{table(match[2])}{match[3]}", document)


# --------------------------------------------------------------------------------------------------- JSON Schema


def json_schema() -> dict[str, Any]:
    """A JSON Schema (2020-12) of the file, for editors. `<<` and empty sections are left out."""
    schema = _patched(msgspec.json.schema(Config))
    assert isinstance(schema, dict)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "arbiter.yaml",
        "description": "The configuration of Arbiter.",
        **schema,
    }


def _patched(node: Any) -> Any:
    """The generated schema with what stands in the file in place of what the Structs hold."""
    if isinstance(node, list):
        return [_patched(item) for item in node]
    if not isinstance(node, dict):
        return node
    node = {key: _patched(value) for key, value in node.items()}
    unit = node.pop("x-unit", None)
    if unit == "number":
        number = {"type": "number", "exclusiveMinimum": 0}
        return {"anyOf": [number, {"type": "string", "pattern": units.NUMBER}, _REFERENCE]}
    if unit == "price":
        return {"anyOf": [{"type": "string", "pattern": units.PRICE}, {"type": "number", "minimum": 0}, _REFERENCE]}
    if unit == "moment":
        kept = {key: node[key] for key in ("description", "default") if key in node}
        return {**kept, "anyOf": [{"type": "string", "pattern": units.MOMENT}, _REFERENCE]}
    if unit in ("duration", "size"):
        write = units.duration if unit == "duration" else units.size
        if "default" in node and node["default"] is not None:
            node["default"] = write(node["default"])
        kept = {key: node[key] for key in ("description", "default") if key in node}
        pattern = units.DURATION if unit == "duration" else units.SIZE
        number = {"const": 0} if unit == "duration" else {"type": "integer", "minimum": 0}
        return {**kept, "anyOf": [{"type": "string", "pattern": pattern}, number, _REFERENCE]}
    if node.get("type") in ("integer", "boolean") or "enum" in node:
        kept = {key: node.pop(key) for key in ("description", "default") if key in node}
        return {**kept, "anyOf": [node, _REFERENCE]}
    return node


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(filled(path.read_text("utf-8")), "utf-8")
