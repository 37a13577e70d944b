"""JSON as people write it into settings, with comments and trailing commas: read, and edited in place.

An edit changes the bytes of the member it is about and what separates that from its neighbours; everything else stays.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from arbiter.cli.connecting.tree import Broken, Misfit, Named, Place, Step, index, nested

_BLANK = re.compile(r"(?:[ \t\r\n\ufeff]|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_WORD = re.compile(r"[-+.\w]+")
_REST_OF_LINE = re.compile(r"[ \t]*(?=\r?\n)")
_INDENT = re.compile(r"\n([ \t]+)")


@dataclass(slots=True)
class Node:
    """A value and where it stands. `items` are its members or elements, each with the place of its key or itself."""

    start: int
    end: int
    value: Any
    items: list[Item] = field(default_factory=list)
    has_comma: bool = False  # after the last item


@dataclass(slots=True)
class Item:
    start: int
    key: str | None
    node: Node


def parse(text: str) -> Any:
    """The value. A text without one, blank or only of comments, is None. Errors: Broken."""
    node = _read(text)
    return None if node is None else node.value


def put(text: str, place: Place, value: Any) -> str:
    """`text` with `value` at the place. Errors: Broken, Misfit."""
    node = _read(text)
    style = _Style.of(text)
    if node is None:
        lead = text if not text.strip() or text.endswith("\n") else text + style.newline
        return (lead if lead.strip() else "") + style.write(nested(place, value), "") + style.newline
    for depth, step in enumerate(place):
        below = _child(node, step)
        if below is None:
            return _insert(text, node, step, nested(place[depth + 1 :], value), style)
        node = below
        if node.value is None and depth + 1 < len(place):  # null: as good as missing
            return _replace(text, node, nested(place[depth + 1 :], value), style)
    return _replace(text, node, value, style)


def drop(text: str, place: Place) -> str:
    """`text` without what stands at the place, which must; a key that stands twice goes twice."""
    node = _read(text)
    assert node is not None
    for step in place[:-1]:
        below = _child(node, step)
        assert below is not None
        node = below
    number = _number(node, place[-1])
    assert number is not None
    left = _remove(text, node, number)
    is_twice = isinstance(place[-1], str) and [item.key for item in node.items].count(place[-1]) > 1
    return drop(left, place) if is_twice else left


# ------------------------------------------------------------------------------------------------------------- edits


def _replace(text: str, node: Node, value: Any, style: _Style) -> str:
    return text[: node.start] + style.write(value, _line_indent(text, node.start)) + text[node.end :]


def _insert(text: str, node: Node, step: Step, value: Any, style: _Style) -> str:
    """As the last member of `node`, in a line of its own unless all of `node` stands in one."""
    outer = _line_indent(text, node.start)
    after = node.items[-1].node.end if node.items else node.start + 1
    tail = text[after : node.end - 1]
    kept = tail.rstrip(" \t\r\n")
    # What ends in a line comment must end with its line, too.
    in_line = bool(node.items) and "\n" not in text[node.start : node.end]
    inner = _item_indent(text, node) if node.items else outer + style.indent
    key = f"{json.dumps(step, ensure_ascii=False)}: " if isinstance(step, str) else ""
    if in_line:
        comma = "" if node.has_comma else ","
        member = key + json.dumps(value, ensure_ascii=False)
        return text[:after] + comma + kept + " " + member + tail[len(kept) :] + text[node.end - 1 :]
    comma = "," if node.items and not node.has_comma else ""
    ending = "," if node.has_comma else ""
    member = key + style.write(value, inner)
    closing = tail[len(kept) :] if node.items and "\n" in tail[len(kept) :] else style.newline + outer
    return text[:after] + comma + kept + style.newline + inner + member + ending + closing + text[node.end - 1 :]


def _remove(text: str, node: Node, number: int) -> str:
    item = node.items[number]
    start, end = item.start, item.node.end
    has_comma = number < len(node.items) - 1 or node.has_comma
    if has_comma:  # with what stands before it, which is the value's
        end = _blank(text, end) + 1
    left = text[:start].rstrip(" \t")
    right = _REST_OF_LINE.match(text, end)
    if left.endswith("\n") and right is not None:  # it had its lines for itself
        start, end = len(left) - (2 if left.endswith("\r\n") else 1), right.end()
    elif has_comma:
        end = len(text) - len(text[end:].lstrip(" \t"))
    elif not left.endswith("\n"):
        start = len(left)
    if number and not has_comma:
        comma = _blank(text, node.items[number - 1].node.end)
        return text[:comma] + text[comma + 1 : start] + text[end:]
    return text[:start] + text[end:]


def _child(node: Node, step: Step) -> Node | None:
    number = _number(node, step)
    return None if number is None else node.items[number].node


def _number(node: Node, step: Step) -> int | None:
    if isinstance(step, Named):
        if not isinstance(node.value, list):
            raise Misfit("a list is expected")
        return index(node.value, step)
    if not isinstance(node.value, dict):
        raise Misfit("a mapping is expected")
    # Of a key that stands twice, every reader takes the last.
    return next((n for n in reversed(range(len(node.items))) if node.items[n].key == step), None)


def _blank(text: str, at: int) -> int:
    """Where the next thing stands that is neither space nor comment."""
    found = _BLANK.match(text, at)
    assert found is not None
    return found.end()


# ------------------------------------------------------------------------------------------------------------- style


@dataclass(frozen=True, slots=True)
class _Style:
    """How the file is laid out: what one level is indented by, and how lines end."""

    indent: str
    newline: str

    @classmethod
    def of(cls, text: str) -> _Style:
        found = _INDENT.search(text)
        return cls(found[1] if found else "  ", "\r\n" if "\r\n" in text else "\n")

    def write(self, value: Any, outer: str) -> str:
        """`value` as it stands after its key, in lines that are indented by `outer`."""
        written = json.dumps(value, ensure_ascii=False, indent=self.indent)
        return written.replace("\n", self.newline + outer)


def _line_indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _item_indent(text: str, node: Node) -> str:
    """The indentation of the last item that begins a line, else one of its own below `node`."""
    for item in reversed(node.items):
        line = text[text.rfind("\n", 0, item.start) + 1 : item.start]
        if not line.strip(" \t"):
            return line
    return _line_indent(text, node.start) + _Style.of(text).indent


# ----------------------------------------------------------------------------------------------------------- reading


def _read(text: str) -> Node | None:
    reader = _Reader(text)
    start = _blank(text, 0)
    if start == len(text):
        return None
    try:
        node = reader.value(start)
    except RecursionError:
        raise Broken("it is nested too deeply") from None
    end = _blank(text, node.end)
    if end != len(text):
        raise reader.wrong(end, "nothing more is expected")
    return node


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text

    def wrong(self, at: int, what: str) -> Broken:
        line = self._text.count("\n", 0, at) + 1
        return Broken(f"line {line}: {what}")

    def value(self, at: int) -> Node:
        opening = self._text[at : at + 1]
        if opening == "{":
            return self._object(at)
        if opening == "[":
            return self._array(at)
        if opening == '"':
            return self._string(at)
        word = _WORD.match(self._text, at)
        if word is None:
            raise self.wrong(at, "a value is expected")
        try:
            return Node(at, word.end(), json.loads(word[0]))
        except ValueError:
            raise self.wrong(at, f"{word[0][:20]!r} is no value") from None

    def _string(self, at: int) -> Node:
        found = _STRING.match(self._text, at)
        if found is None:
            raise self.wrong(at, "a string in double quotes is expected")
        try:
            return Node(at, found.end(), json.loads(found[0]))
        except ValueError:
            raise self.wrong(at, "this is no string") from None

    def _object(self, at: int) -> Node:
        node = Node(at, at, {})
        for start in self._items(node, "}"):
            key = self._string(start)
            colon = _blank(self._text, key.end)
            if self._text[colon : colon + 1] != ":":
                raise self.wrong(colon, "a colon is expected")
            below = self.value(_blank(self._text, colon + 1))
            node.items.append(Item(start, key.value, below))
            node.value[key.value] = below.value
        return node

    def _array(self, at: int) -> Node:
        node = Node(at, at, [])
        for start in self._items(node, "]"):
            below = self.value(start)
            node.items.append(Item(start, None, below))
            node.value.append(below.value)
        return node

    def _items(self, node: Node, closing: str) -> Iterator[int]:
        """Where each item begins; whoever asks appends it to `node` before asking for the next."""
        at = _blank(self._text, node.start + 1)
        while self._text[at : at + 1] != closing:
            yield at
            at = _blank(self._text, node.items[-1].node.end)
            node.has_comma = self._text[at : at + 1] == ","
            if node.has_comma:
                at = _blank(self._text, at + 1)
            elif self._text[at : at + 1] != closing:
                raise self.wrong(at, f"a comma or {closing} is expected")
        node.end = at + 1
