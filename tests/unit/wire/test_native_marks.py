"""Cache marks of a native request, where the operator took them over: replaced, and nothing else touched."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest

from arbiter.model import Target
from arbiter.wire.native import MESSAGES, open_body, splice

MARK = {"type": "ephemeral"}


def sent(body: dict[str, Any] | bytes, whose: Literal["auto", "client", "arbiter", "off"], **target: Any):
    raw = body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":")).encode()
    return splice(open_body(raw), MESSAGES, "m", Target(prompt_cache=whose, **target), stream=False)


def marks(body: bytes) -> list[str]:
    """The paths of all marks in `body`."""
    found: list[str] = []

    def walk(value: Any, path: str) -> None:
        if isinstance(value, dict):
            if "cache_control" in value:
                found.append(path)
            for name, inner in value.items():
                walk(inner, f"{path}.{name}")
        elif isinstance(value, list):
            for n, inner in enumerate(value):
                walk(inner, f"{path}[{n}]")

    walk(json.loads(body), "$")
    return found


WHOLE: dict[str, Any] = {
    "model": "m",
    "max_tokens": 9,
    "tools": [{"name": "a", "input_schema": {}, "cache_control": MARK}, {"name": "b", "input_schema": {"big": 1}}],
    "system": "Be kind.",
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": MARK}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "tool_use", "id": "t", "name": "a", "input": {"n": 1.50, "cache_control": "mine"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t",
                    "content": [{"type": "text", "text": "ok", "cache_control": MARK}],
                }
            ],
        },
    ],
}


@pytest.mark.parametrize("whose", ["auto", "client"])
def test_the_clients_marks_are_its_own(whose: Any) -> None:
    """By default a native request keeps every byte (SPEC 2.8)."""
    assert sent(WHOLE, whose).fidelity == "verbatim"


def test_arbiter_marks_the_last_tool_the_system_prompt_and_the_newest_message() -> None:
    """The client's own go, also those inside a tool result; a string that is marked becomes a block."""
    spliced = sent(WHOLE, "arbiter")
    assert marks(spliced.body) == [
        "$.tools[1]",
        "$.system[0]",
        "$.messages[1].content[1].input",  # an argument of that name is no mark, and stays
        "$.messages[2].content[0]",
    ]
    body = json.loads(spliced.body)
    assert body["system"] == [{"type": "text", "text": "Be kind.", "cache_control": MARK}]
    assert body["tools"][1]["cache_control"] == MARK
    assert spliced.fidelity == "$.tools,$.system,$.messages"


def test_off_takes_all_marks_out() -> None:
    """Strings stay strings: nothing needs a block."""
    body = sent(WHOLE, "off").body
    assert marks(body) == ["$.messages[1].content[1].input"]
    assert json.loads(body)["system"] == "Be kind."


def test_the_lifetime_is_the_operators() -> None:
    assert b'"cache_control":{"type":"ephemeral","ttl":"1h"}' in sent(WHOLE, "arbiter", prompt_cache_ttl="1h").body


def test_everything_but_the_marks_keeps_its_bytes() -> None:
    """Numbers, order and unknown members are the client's."""
    raw = (
        b'{"model":"m","messages":[{"role":"user","content":[{"x_new":[1.50,12345678901234567890],"type":"text",'
        b'"text":"\\u00e9\\ud83d\\ude00"}]}]}'
    )
    assert sent(raw, "off").body == raw
    assert sent(raw, "arbiter").body == raw.replace(b'ude00"', b'ude00","cache_control":{"type":"ephemeral"}')


def test_no_mark_sits_where_none_may() -> None:
    """Not on thinking, not on empty text, not on a trailing turn of the assistant's."""
    turns = [
        {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "text", "text": " "}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Once"}]},
    ]
    assert marks(sent({"model": "m", "messages": turns}, "arbiter").body) == ["$.messages[0].content[0]"]
    turns = [{"role": "user", "content": ""}, {"role": "user", "content": [{"type": "thinking", "thinking": "x"}]}]
    assert marks(sent({"model": "m", "messages": turns}, "arbiter").body) == []


@pytest.mark.parametrize(
    "members",
    ['"messages":3', '"messages":[3]', '"messages":[{"content":"x"}]', '"messages":[{"role":"user","content":[1]}]',
     '"system":[{"type":"text","text":3}],"messages":[]', '"x":1'],
)  # fmt: skip
def test_a_request_that_cannot_be_opened_goes_out_as_it_came(members: str) -> None:
    """The upstream says what is wrong with it, in words that its client knows."""
    raw = f'{{"model":"m",{members}}}'.encode()
    assert sent(raw, "arbiter").body == raw


def test_a_conversation_that_grew_keeps_its_beginning() -> None:
    """But for the marks, the bytes of turn n are the same in request n+1 (SPEC 2.4)."""
    turns = [{"role": role, "content": text} for role, text in (("user", "a"), ("assistant", "b"), ("user", "c"))]
    bodies = [sent({"model": "m", "messages": turns[:n]}, "arbiter").body for n in (1, 3)]
    short, long = (body.replace(b',"cache_control":{"type":"ephemeral"}', b"") for body in bodies)
    assert long.startswith(short.removesuffix(b"]}"))
