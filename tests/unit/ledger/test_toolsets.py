"""The names in a set of tools, and what each costs, whatever format it was offered in."""

from __future__ import annotations

import json
from typing import Any

import pytest

from arbiter.ledger import toolsets

PLAIN = {"type": "object", "properties": {"path": {"type": "string"}}}
SETS: list[tuple[Any, list[str]]] = [
    ([{"type": "function", "function": {"name": "read", "parameters": PLAIN}}], ["read"]),
    ([{"type": "function", "name": "read", "parameters": PLAIN}, {"type": "web_search"}], ["read", "web_search"]),
    ([{"name": "read", "input_schema": PLAIN}], ["read"]),
    (
        [{"functionDeclarations": [{"name": "read", "parameters": PLAIN}, {"name": "write"}]}, {"googleSearch": {}}],
        ["read", "write", "googleSearch"],
    ),
    (
        [{"function_declarations": [{"name": "read"}]}, {"name": "functionDeclarations"}],
        ["read", "functionDeclarations"],
    ),
    ([{"functionDeclarations": "nonsense"}], ["functionDeclarations"]),
    ([{"functionDeclarations": []}], []),
    ([{}, 1], [""]),
    ({"functionDeclarations": []}, []),
]


@pytest.mark.parametrize(("tools", "names"), SETS)
def test_the_names_of_a_set(tools: Any, names: list[str]) -> None:
    schemas = json.dumps(tools).encode()
    row = toolsets.read("t", schemas, 1, 1, 0.25)
    assert list(row.names) == names
    assert row.tokens == round(len(schemas) / 4) and row.bytes == len(schemas)


def test_each_function_that_gemini_is_told_of_is_a_tool_with_its_own_cost() -> None:
    functions = [{"name": "read", "description": "x" * 400}, {"name": "write", "description": "x" * 40}]
    row = toolsets.read("t", json.dumps([{"functionDeclarations": functions}]).encode(), 1, 1, 0.25)
    assert (row.tools, row.names["read"] > 4 * row.names["write"] > 0) == (2, True)
