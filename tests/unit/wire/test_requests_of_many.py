"""Requests that hold a great many of something small: built in one pass, in nobody's quadratic time."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from msgspec import Raw

from arbiter.model import Message, OutputShape, Request, Target, Text, Thinking, Tool, ToolCall, ToolChoice, ToolResult
from arbiter.wire import anthropic_messages as messages
from arbiter.wire import openai_chat as chat
from arbiter.wire.messages_blocks import input_of
from arbiter.wire.messages_schema import MAX_VALUES, closed
from arbiter.wire.openai_schema import MAX_STRICT_BYTES, is_strict

MANY = 30_000
"""What took a step for each pair would take a minute or more."""


def build(*said: Message, **members: Any) -> Any:
    members.setdefault("model", "claude-sonnet-4-5")
    return json.loads(messages.build_request(Request(messages=said, **members), Target(prompt_cache="off")))


def calls(*ids: str) -> Message:
    return Message("assistant", tuple(ToolCall(one, "f", "{}") for one in ids))


def results(*ids: str) -> list[Message]:
    return [Message("tool", (ToolResult(one, f"{n}"),)) for n, one in enumerate(ids)]


def test_many_calls_of_one_id_are_numbered() -> None:
    """Some servers call everything `call_0`."""
    built = build(Message("user", "Go"), calls("x_3", *["x"] * MANY))["messages"]
    sent = [block["id"] for block in built[1]["content"]]
    assert len(set(sent)) == MANY + 1
    assert sent[:5] == ["x_3", "x", "x_2", "x_4", "x_5"] and sent[-1] == f"x_{MANY + 1}"
    assert [block["tool_use_id"] for block in built[2]["content"]] == sent


def test_many_results_find_their_calls() -> None:
    """In whatever order they come; of one id, the first result is the first call's."""
    ids = [f"c{n}" for n in range(MANY)]
    built = build(Message("user", "Go"), calls(*ids, "c0"), *results(*reversed(ids), "c0"))["messages"]
    found = {block["tool_use_id"]: block["content"] for block in built[2]["content"]}
    assert list(found) == [*ids, "c0_2"]
    assert found["c0"] == f"{MANY - 1}" and found["c0_2"] == f"{MANY}" and found[f"c{MANY - 1}"] == "0"


def test_many_results_without_a_call_are_told() -> None:
    ids = [f"c{n}" for n in range(MANY)]
    built = build(Message("user", "Go"), calls(*ids), *results(*["z"] * MANY))["messages"]
    assert len(built[2]["content"]) == 3 * MANY
    assert built[2]["content"][-1] == {"type": "text", "text": f"{MANY - 1}"}


def test_many_tools_may_be_allowed() -> None:
    names = [f"f{n}" for n in range(MANY)]
    choice = ToolChoice("auto", allowed=tuple(names[1:]))
    built = build(Message("user", "Go"), tools=tuple(map(Tool, names)), tool_choice=choice)
    assert [tool["name"] for tool in built["tools"]] == names[1:]


def test_many_thoughts_of_one_turn_are_one() -> None:
    said = Message("assistant", (*(Thinking(f"{n},") for n in range(MANY)), Text("Ok.")))
    built = json.loads(chat.build_request(Request(model="some-model", messages=(Message("user", "Go"), said))))
    assert built["messages"][1]["reasoning_content"] == "".join(f"{n}," for n in range(MANY))


def strict(count: int) -> dict[str, Any]:
    names = [f"p{n}" for n in range(count)]
    kind = {"type": "string"}
    return {
        "type": "object",
        "properties": dict.fromkeys(names, kind),
        "required": names,
        "additionalProperties": False,
    }


def test_a_schema_of_many_properties_is_looked_at_once() -> None:
    """One that is too large for OpenAI in any case is not looked at."""
    assert is_strict(json.dumps(strict(15_000)).encode())
    assert not is_strict(json.dumps({**strict(1), "description": "x" * MAX_STRICT_BYTES}).encode())


def nested(depth: int, inner: dict[str, Any]) -> dict[str, Any]:
    for _ in range(depth):
        inner = {"type": "object", "properties": {"a": inner}}
    return inner


def test_a_deep_schema_is_closed_in_one_walk() -> None:
    """Its text is not decoded again at each level, of which there are as many as a body may have."""
    raw = json.dumps(nested(90, {"type": ["object", "null"], "description": "x" * 5_000_000})).encode()
    assert closed(raw).count(b'"additionalProperties":false') == 91


def test_a_schema_that_nobody_could_compile_passes_as_it_came() -> None:
    """Of too many values, or too deep for the decoder."""
    wide = b'{"type":"object","enum":[%b0]}' % (b"0," * (MAX_VALUES + 1))
    deep = b'{"type":"object","not":' * 100_000 + b"{}" + b"}" * 100_000
    assert closed(wide) is wide and closed(deep) is deep
    assert not is_strict(deep)


def test_values_of_a_schema_count_also_where_no_commas_stand_between_them() -> None:
    """A few properties may be many values, one in the other."""
    inside = b'{"items":' * 90 + b"{}" + b"}" * 90
    few, many = (
        b'{"type":"object","properties":{%b}}' % b",".join(b'"p%d":%b' % (n, inside) for n in range(count))
        for count in (100, 250)
    )
    assert closed(few) == few[:-1] + b',"additionalProperties":false}'
    assert closed(many) is many


def test_call_arguments_are_looked_at_without_a_value_for_each_of_theirs() -> None:
    """A million objects in them take no memory but that of their text, and no time but that of reading it."""
    arguments = '{"a":[%s1]}' % ("{}," * 1_000_000)
    tracemalloc.start()
    try:
        assert input_of(arguments) == Raw(arguments.encode())
        assert tracemalloc.get_traced_memory()[1] < 3 * len(arguments)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("number", ["1e999", "-0", "1.50", "123456789012345678901234567890", "1" * 5000])
def test_numbers_of_a_schema_are_nobodys_fault(number: str) -> None:
    """They keep their digits where the schema is closed, and fail nothing where it is looked at."""
    raw = b'{"type":"object","minimum":%b}' % number.encode()
    assert closed(raw) == raw[:-1] + b',"additionalProperties":false}'
    assert not is_strict(raw)


@pytest.mark.parametrize("kind", [None, 5, True, {}, [None], [{}]])
@pytest.mark.parametrize("deeper", [False, True])
def test_a_type_that_is_none_goes_to_the_upstream_as_it_is(kind: Any, deeper: bool) -> None:
    """It says what is wrong with the schema."""
    schema: dict[str, Any] = {"type": kind}
    if deeper:
        schema = {**strict(0), "properties": {"a": schema}, "required": ["a"]}
    raw = json.dumps(schema, separators=(",", ":")).encode()
    shape = OutputShape("json_schema", raw)
    body = chat.build_request(Request(model="gpt-5.2", messages=(Message("user", "Go"),), output=shape))
    assert raw in body and b'"strict":true' not in body
    assert closed(raw) == raw


def test_many_turns_of_the_assistant_are_one_to_a_chat() -> None:
    said = [calls(f"c{n}") for n in range(MANY)]
    answered = results(*(f"c{n}" for n in reversed(range(MANY))))
    request = Request(model="some-model", messages=(Message("user", "Go"), *said, *answered, *results("c0")))
    built = json.loads(chat.build_request(request))["messages"]
    assert len(built) == MANY + 3 and len(built[1]["tool_calls"]) == MANY


def test_many_calls_of_one_id_are_numbered_for_a_chat() -> None:
    request = Request(
        model="some-model", messages=(Message("user", "Go"), calls(*["x"] * MANY), *results(*["x"] * MANY))
    )
    built = json.loads(chat.build_request(request))["messages"]
    assert len({call["id"] for call in built[1]["tool_calls"]}) == MANY
    assert [one["tool_call_id"] for one in built[2:5]] == ["x", "x_2", "x_3"]
