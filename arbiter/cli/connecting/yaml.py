"""YAML, edited in place: PyYAML says where things stand, and only those bytes change.

Block style and flow style are told apart where something is added; in block style a new entry gets lines of its own
below the last one, whose comment stays with it.
"""

from __future__ import annotations

import json
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from arbiter.cli.connecting.tree import Broken, Misfit, Named, Place, Step, index, nested

Block = MappingNode | SequenceNode

WIDE = 1 << 20  # PyYAML would fold what is longer


def parse(text: str) -> Any:
    """The value. A text without one is None. Errors: Broken."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise Broken(_said(error)) from None
    except (RecursionError, ValueError, TypeError) as error:
        raise Broken(str(error) or "it is nested too deeply") from None


def put(text: str, place: Place, value: Any) -> str:
    """`text` with `value` at the place. Errors: Broken, Misfit."""
    node = _compose(text)
    newline = "\r\n" if "\r\n" in text else "\n"
    if node is None:
        lead = text if not text or text.endswith("\n") else text + newline
        return lead + _block(nested(place, value), "", newline) + newline
    for depth, step in enumerate(place):
        below = _child(node, step)
        parent, rest = _known(node), place[depth + 1 :]
        if below is None:
            return _insert(text, parent, step, nested(rest, value), newline)
        if not rest or _is_null(below):  # null: as good as missing
            return _replace(text, parent, below, nested(rest, value), newline)
        node = below
    raise AssertionError("a place has steps")


def drop(text: str, place: Place) -> str:
    """`text` without what stands at the place, which must."""
    above, node = None, _known(_compose(text))
    for step in place[:-1]:
        above, node = node, _known(_child(node, step))
    number = _number(node, place[-1])
    assert number is not None
    start, end = _span(node, number, text)
    if len(node.value) == 1 and above is not None:  # a block of nothing would be null
        return _replace(text, above, node, {} if isinstance(node, MappingNode) else [], "\n")
    if node.flow_style:
        if number + 1 < len(node.value):
            return text[:start] + text[_span(node, number + 1, text)[0] :]
        return text[: _span(node, number - 1, text)[1] if number else start] + text[end:]
    start = text.rfind("\n", 0, start) + 1
    rest = text[_line_end(text, end) :]
    return text[:start] + (rest[2:] if rest.startswith("\r\n") else rest[1:])


# ------------------------------------------------------------------------------------------------------------- edits


def _insert(text: str, node: Block, step: Step, value: Any, newline: str) -> str:
    if node.flow_style:
        entry = json.dumps(value, ensure_ascii=False)
        if isinstance(step, str):
            entry = f"{json.dumps(step, ensure_ascii=False)}: {entry}"
        if not node.value:
            at = node.start_mark.index + 1
            return text[:at] + entry + text[at:]
        at = _span(node, len(node.value) - 1, text)[1]
        return text[:at] + ", " + entry + text[at:]
    indent: str = " " * node.start_mark.column
    at = _line_end(text, _end(node, text))
    entry = indent + _block([value] if isinstance(step, Named) else {step: value}, indent, newline)
    return text[:at] + newline + entry + text[at:]


def _replace(text: str, parent: Block, node: Node, value: Any, newline: str) -> str:
    """`value` in the place of `node`: of a key, where `parent` is a mapping, or of a list's element."""
    start, end = int(node.start_mark.index), _end(node, text)
    if parent.flow_style:
        lead = " " if text[start - 1] == ":" else ""
        return text[:start] + lead + json.dumps(value, ensure_ascii=False) + text[end:]
    if isinstance(parent, SequenceNode):
        return text[:start] + _block(value, " " * node.start_mark.column, newline) + text[end:]
    key = next(key for key, below in parent.value if below is node)
    start = text.index(":", key.end_mark.index) + 1
    if not isinstance(value, dict | list) or not value:
        return text[:start] + " " + _block(value, "", newline) + text[end:]
    indent: str = " " * (key.start_mark.column + 2)
    if end == node.start_mark.index:  # nothing stands there: a comment beside the key stays
        start = end = _line_end(text, end)
    return text[:start] + newline + indent + _block(value, indent, newline) + text[end:]


def _block(value: Any, indent: str, newline: str) -> str:
    """`value` in block style, its lines after the first indented."""
    written = yaml.safe_dump(value, default_flow_style=False, allow_unicode=True, sort_keys=False, width=WIDE)
    return str(written).removesuffix("\n").removesuffix("\n...").replace("\n", newline + indent)


# ------------------------------------------------------------------------------------------------------------ places


def _known(node: Node | None) -> Block:
    """What a step was found to lead from."""
    assert isinstance(node, Block)
    return node


def _child(node: Node, step: Step) -> Node | None:
    number = _number(node, step)
    if number is None:
        return None
    found: Node = node.value[number] if isinstance(node, SequenceNode) else node.value[number][1]
    return found


def _number(node: Node, step: Step) -> int | None:
    if isinstance(step, Named):
        if not isinstance(node, SequenceNode):
            raise Misfit("a list is expected")
        names = [
            {key.value: below.value for key, below in item.value if isinstance(below, ScalarNode)}
            if isinstance(item, MappingNode)
            else None
            for item in node.value
        ]
        return index(names, step)
    if not isinstance(node, MappingNode):
        raise Misfit("a mapping is expected")
    # Of a key that stands twice, every reader takes the last.
    return next((n for n in reversed(range(len(node.value))) if node.value[n][0].value == step), None)


def _span(node: Node, number: int, text: str) -> tuple[int, int]:
    """From where to where the entry stands; a list's element in block style without its dash."""
    entry = node.value[number]
    first, last = entry if isinstance(node, MappingNode) else (entry, entry)
    return first.start_mark.index, _end(last, text)


def _end(node: Node, text: str) -> int:
    """Where `node` ends; PyYAML's own mark of a block lies behind the comments and blank lines that follow it."""
    if isinstance(node, MappingNode | SequenceNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(last[1] if isinstance(node, MappingNode) else last, text)
    end: int = node.end_mark.index
    if isinstance(node, ScalarNode) and node.style in ("|", ">"):
        end = len(text[:end].rstrip())
    return end


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    if end < 0:
        return len(text)
    return end - 1 if text[end - 1] == "\r" else end


def _is_null(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.tag == "tag:yaml.org,2002:null"


def _compose(text: str) -> Node | None:
    parse(text)
    found: Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    if found is None or (_is_null(found) and not found.value):
        return None
    return found


def _said(error: yaml.YAMLError) -> str:
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    return f"line {mark.line + 1}: {problem}" if mark is not None and problem else str(error).splitlines()[0]
