"""YAML nodes into the Structs of `schema`: every fault named with its path, its line and what to write instead.

The Structs decide; this only walks them. A decoder remembers the line of every path it read, so that whoever finds a
fault later (an alias that points nowhere) can name the line too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, NoReturn, TypeVar

import msgspec
import yaml
from msgspec import inspect

from arbiter.config import units
from arbiter.config.sections import Section
from arbiter.config.source import ConfigError, Node, compose, expand

MAX_NODES = 200_000
STAND_IN = "withheld"
"""How what stands in for a secret begins, where nobody is asked with it."""

_S = TypeVar("_S", bound=Section)
_INT = re.compile(r"[+-]?[0-9]{1,18}")
_PLAIN_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._/-]{0,60}")
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BARE = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]*")
_SHOWABLE = re.compile(r"[\x20-\x7e]{0,60}")
_TAG = "tag:yaml.org,2002:"
_UNITS: dict[str, tuple[Callable[[str], float | None], Callable[[Any], str], float, str]] = {
    # How a kind is read and written, the most it may be, and what was expected where it is none.
    "duration": (units.duration_s, units.duration, units.LONGEST_S, "a duration like 15s, 250ms, 5m or 0"),
    "size": (units.size_bytes, units.size, units.LARGEST_BYTES, "a size like 64KiB, 32MiB or a number of bytes"),
    "price": (units.price_pd, units.price, units.HIGHEST_PD, "USD per million tokens like 1.25 (at most six decimals)"),
    "moment": (units.moment_ms, units.moment, units.LATEST_MS, "a moment like 2026-12-31T18:00:00Z"),
    "number": (units.number, units.written, units.LARGEST_NUMBER, "a number above 0 like 2 or 0.5"),
}
_KINDS = {"null": "nothing", "bool": "true/false", "int": "a number", "float": "a number", "timestamp": "a date"}


def join(path: str, key: str | int) -> str:
    """`path` one step further: `providers.openai`, `models[2]`, `aliases."odd name"`."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    if not _PLAIN_KEY.fullmatch(key):
        key = '"' + key.encode("unicode_escape").decode().replace('"', '\\"')[:60] + '"'
    return f"{path}.{key}" if path else key


MOST_NAMED = 40  # a provider has so many keys; more would be no help


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean "…"?`, or the few names there are, or nothing."""
    names = sorted(known)
    if (close := closest(word, names)) is not None:
        return f'; did you mean "{close}"?'
    return f"; valid here: {', '.join(names)}" if 0 < len(names) <= MOST_NAMED else ""


def closest(word: str, known: Iterable[str]) -> str | None:
    """The name that `word` is a misspelling of, if it is one."""
    import difflib

    close = difflib.get_close_matches(word.lower()[:80], sorted(known), n=1, cutoff=0.6)
    return close[0] if close else None


class Decoder:
    """Reads one file. `lines` maps each path it met to its line; `bare` are the paths whose values are a variable's
    name behind a `$`, which means nothing here. `only`: the sections to read; the others stay as by default. `keyless`:
    a secret whose variable is not set is stood in for, but for those of the providers that are `asked`."""

    def __init__(
        self,
        file: str,
        env: Mapping[str, str],
        only: frozenset[str] | None = None,
        *,
        keyless: bool = False,
        asked: Iterable[str] = (),
    ) -> None:
        self.file = file
        self.keyless = keyless
        self.asked = frozenset(asked)
        self._of_asked = tuple([join("providers", name) + "." for name in self.asked])
        self._only = only
        self.env = env
        self.lines: dict[str, int] = {}
        self.bare: list[str] = []
        self._nodes = 0

    def read(self, text: str, type_: type[_S]) -> _S | None:
        """The value of `text`, or None when there is nothing in it. Errors: ConfigError."""
        root = compose(text, self.file)
        if root is None or _is_null(root):
            return None
        value = self._value(root, inspect.type_info(type_), "")
        assert isinstance(value, type_)
        return value

    def error(self, path: str, message: str) -> ConfigError:
        """The error to raise for `path`, with the line of the nearest thing that stands in the file."""
        place = path
        while place and place not in self.lines:
            cut = max(place.rfind("."), place.rfind("["))
            place = place[:cut] if cut > 0 else ""
        line = self.lines.get(place) if place or not path else None  # the file's first line says nothing
        return ConfigError(message, path, line, self.file)

    def _value(self, node: Node, type_: inspect.Type, path: str) -> Any:
        self._nodes += 1
        self.lines[path] = node.start_mark.line + 1
        if self._nodes > MAX_NODES:  # a few nested anchors can stand for a billion values
            raise self.error(path, "the file expands to too many values; use fewer anchors")
        inner, extra = unwrap(type_)
        match inner:
            case inspect.StructType():
                return self._struct(node, inner, path)
            case inspect.DictType():
                pairs = self._pairs(node, path, "a mapping of names")
                return {key: self._value(value, inner.value_type, join(path, key)) for key, _, value in pairs}
            case inspect.ListType():
                if not isinstance(node, yaml.SequenceNode):
                    raise self.error(path, f"expected a list, got {_kind(node)}{_listed(node, inner.item_type)}")
                return [self._value(item, inner.item_type, join(path, i)) for i, item in enumerate(node.value)]
            case inspect.UnionType():
                return self._union(node, inner, extra, path)
            case _:
                return self._scalar(node, inner, extra, path)

    def _struct(self, node: Node, type_: inspect.StructType, path: str) -> Section:
        fields = {field.encode_name: field for field in type_.fields}
        not_built: frozenset[str] = getattr(type_.cls, "not_built", frozenset())
        hints: dict[str, str] = getattr(type_.cls, "hints", {})
        values: dict[str, Any] = {}
        for key, mark, item in self._pairs(node, path, "a mapping"):
            here = join(path, key)
            if not path and self._only is not None and key not in self._only:
                continue
            if key not in fields:
                self.lines[here] = mark.line + 1
                if key in hints:
                    raise self.error(here, hints[key])
                if key in not_built:
                    raise self.error(here, "not built yet; remove it")
                raise self.error(here, f"unknown key{_elsewhere(key, path) or nearest(key, fields)}")
            field = fields[key]
            if _is_null(item) and not field.required and _is_container(field.type):
                continue  # `clients:` with all its lines commented out
            values[field.name] = self._value(item, field.type, here)
        for field in type_.fields:
            if field.required and field.name not in values:
                # A planned shape (an alias that is a group) fails on its own key above, not here.
                raise self.error(path, f'"{field.encode_name}" is missing')
        section = type_.cls(**values)
        assert isinstance(section, Section)
        return section

    def _pairs(self, node: Node, path: str, expected: str) -> list[tuple[str, yaml.Mark, Node]]:
        if not isinstance(node, yaml.MappingNode) or node.tag != f"{_TAG}map":
            self._mismatch(node, path, expected)
        return self._merged(node, path, frozenset())

    def _merged(self, node: yaml.MappingNode, path: str, above: frozenset[int]) -> list[tuple[str, yaml.Mark, Node]]:
        """The pairs of a mapping, `<<` applied: what the mapping says itself wins over what it takes in."""
        own: dict[str, tuple[yaml.Mark, Node]] = {}
        taken: list[yaml.MappingNode] = []
        for key_node, item in node.value:
            self._nodes += 1
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise ConfigError("a key that is not a plain word", path, line, self.file)
            if key_node.tag == f"{_TAG}merge":
                sources = item.value if isinstance(item, yaml.SequenceNode) else [item]
                for source in sources:
                    if not isinstance(source, yaml.MappingNode) or id(source) in above or source is node:
                        raise ConfigError("<< takes a mapping or a list of mappings", path, line, self.file)
                taken += sources
                continue
            key = key_node.value
            if key in own:
                first = own[key][0].line + 1
                raise ConfigError(f"given twice (first on line {first})", join(path, key), line, self.file)
            own[key] = (key_node.start_mark, item)
        for source in taken:
            if self._nodes > MAX_NODES:
                raise ConfigError("the file expands to too many values", path, node.start_mark.line + 1, self.file)
            for key, mark, item in self._merged(source, path, above | {id(node)}):
                own.setdefault(key, (mark, item))
        return [(key, mark, item) for key, (mark, item) in own.items()]

    def _union(self, node: Node, type_: inspect.UnionType, extra: dict[str, Any], path: str) -> Any:
        members = [unwrap(member) for member in type_.types]
        if any(isinstance(inner, inspect.NoneType) for inner, _ in members):
            if _is_null(node):
                return None
            members = [member for member in members if not isinstance(member[0], inspect.NoneType)]
        if isinstance(node, yaml.MappingNode):
            for inner, _ in members:
                if isinstance(inner, inspect.StructType):
                    return self._struct(node, inner, path)
        scalars = [member for member in members if not isinstance(member[0], inspect.StructType)]
        if isinstance(node, yaml.ScalarNode) and len(scalars) > 1:
            for inner, _ in scalars:
                if isinstance(inner, inspect.LiteralType) and node.value in inner.values:
                    return node.value
            words = [str(v) for inner, _ in scalars if isinstance(inner, inspect.LiteralType) for v in inner.values]
            scalars = [member for member in scalars if not isinstance(member[0], inspect.LiteralType)]
            return self._scalar(node, scalars[0][0], {**extra, **scalars[0][1], "or": words}, path)
        if len(members) > len(scalars) and not isinstance(node, yaml.ScalarNode):
            self._mismatch(node, path, "a name or a mapping")
        return self._scalar(node, scalars[0][0], {**extra, **scalars[0][1]}, path)

    def _scalar(self, node: Node, type_: inspect.Type, extra: dict[str, Any], path: str) -> Any:
        expected = _expected(type_, extra)
        if not isinstance(node, yaml.ScalarNode):
            self._mismatch(node, path, expected)
        kind = node.tag.removeprefix(_TAG) if node.tag.startswith(_TAG) else "tag"
        if kind not in {"str", "value", "merge", *_KINDS}:
            raise self.error(path, f"expected {expected}, got a value with a tag (!…); put quotes around it")
        if _BARE.fullmatch(node.value):
            self.bare.append(path)
        try:
            text = expand(node.value, self.env, lambda message: self.error(path, message), extra.get("unset", ""))
        except ConfigError:
            if not (self.keyless and extra.get("secret")) or path.startswith(self._of_asked):
                raise
            text = f"{STAND_IN}-{len(self.lines)}"
        expanded = text != node.value
        # A value that came from a variable, or that is a secret by its place, is never repeated in a message.
        shown = "a value" if expanded or extra.get("secret") else _KINDS.get(kind) or _show(text)
        if kind == "null" and not expanded and not isinstance(type_, inspect.LiteralType):
            shown = "nothing"
        elif isinstance(type_, inspect.LiteralType):
            if text in type_.values:
                return text
            if text in extra.get("not_built", ()):
                raise self.error(path, f'"{text}" is not built yet; {expected} is')
            shown = "a value" if expanded else _show(text)
            meant = extra.get("meant", {}).get(text.lower()) or closest(text, map(str, type_.values))
            # A variable's value is not repeated, and what it is close to would tell of it.
            if meant is not None and not expanded:
                shown += f'; did you mean "{meant}"?'
        elif "kind" in extra:
            read, write, most, _ = _UNITS[extra["kind"]]
            number = read(text)
            if number is not None:
                return self._bounded(number, type_, path, write, most)
            shown = shown if expanded else _show(text)
        elif isinstance(type_, inspect.IntType):
            if (kind == "int" or expanded) and _INT.fullmatch(text):
                return self._bounded(int(text), type_, path, str, None)
            shown = shown if expanded else _show(text)
        elif isinstance(type_, inspect.BoolType):
            if (kind == "bool" or expanded) and text.lower() in {"true", "false"}:
                return text.lower() == "true"
            shown = shown if expanded else _show(text)
        elif isinstance(type_, inspect.StrType):
            # `models: [on]` or `key: 123`: YAML would hand out something else than what stands there.
            if kind in {"str", "value", "merge"} or expanded:
                return text
            shown += "; put quotes around it"
        raise self.error(path, f"expected {expected}, got {shown}")

    def _bounded(
        self, number: float, type_: inspect.Type, path: str, write: Callable[[Any], str], most: float | None
    ) -> float:
        low, high = getattr(type_, "ge", None), getattr(type_, "le", None)
        if high is None:
            high = most
        if low is not None and number < low:
            raise self.error(path, f"must be at least {write(low)}")
        if high is not None and number > high:
            raise self.error(path, f"must be at most {write(high)}")
        return number

    def _mismatch(self, node: Node, path: str, expected: str) -> NoReturn:
        raise self.error(path, f"expected {expected}, got {_kind(node)}")


def unwrap(type_: inspect.Type) -> tuple[inspect.Type, dict[str, Any]]:
    """The type within its metadata, and what the metadata says beside constraints."""
    extra: dict[str, Any] = {}
    while isinstance(type_, inspect.Metadata):
        extra = {**(type_.extra or {}), **extra}
        type_ = type_.type
    return type_, extra


def _expected(type_: inspect.Type, extra: dict[str, Any]) -> str:
    if isinstance(type_, inspect.LiteralType):
        words = [f'"{value}"' for value in type_.values]
        return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
    words = [f'"{value}"' for value in extra.get("or", ())]
    if "kind" in extra:
        words.append(_UNITS[extra["kind"]][3])
    elif isinstance(type_, inspect.IntType):
        words.append("a whole number")
    elif isinstance(type_, inspect.BoolType):
        words.append("true or false")
    else:
        words.append("a string")
    return " or ".join(words)


def _kind(node: Node) -> str:
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    return _KINDS.get(node.tag.removeprefix(_TAG), "a string")


def _listed(node: Node, item_type: inspect.Type) -> str:
    """A hint for the one name that stands where a list of names belongs."""
    takes = item_type.types if isinstance(item_type, inspect.UnionType) else (item_type,)
    # The one that stands there may be a secret: it is not repeated.
    named = any(isinstance(inner, inspect.StrType) and not extra.get("secret") for inner, extra in map(unwrap, takes))
    if not named or not isinstance(node, yaml.ScalarNode) or not _PLAIN_NAME.fullmatch(node.value):
        return ""
    return f"; write [{node.value}]"


def _show(text: str) -> str:
    return f'"{text}"' if _SHOWABLE.fullmatch(text) else "something else"


def _is_null(node: Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == f"{_TAG}null"


def _is_container(type_: inspect.Type) -> bool:
    inner, _ = unwrap(type_)
    return isinstance(inner, (inspect.StructType, inspect.DictType, inspect.ListType))


@cache
def _sections() -> dict[str, tuple[str, ...]]:
    """Where each key of the file's fixed sections belongs: `bind` → (`server`,)."""
    from arbiter.config.schema import Config

    found: dict[str, tuple[str, ...]] = {}
    for section in msgspec.structs.fields(Config):
        inner, _ = unwrap(inspect.type_info(section.type))
        if isinstance(inner, inspect.StructType):
            for field in inner.fields:
                found[field.encode_name] = (*found.get(field.encode_name, ()), section.encode_name)
    return found


def _elsewhere(key: str, path: str) -> str:
    """A hint for a key that is right, and in the wrong place (only at the top: there it is the likely mistake)."""
    homes = _sections().get(key, ()) if not path else ()
    return f'; it belongs under "{homes[0]}"' if len(homes) == 1 else ""
