"""What a block says to people, whatever format it came in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from arbiter.ledger import blocks
from arbiter.ledger.blocks_text import said
from arbiter.ledger.redaction import Redactor
from arbiter.wire import native

VECTORS = Path(__file__).parents[2] / "vectors"
ATTACHED = {"attachment": {"name": "a.png", "media_type": "image/png", "bytes": 12, "sha256": "ab" * 32}}


@pytest.mark.parametrize(
    ("value", "texts"),
    [
        ({"role": "user", "content": "a"}, [("user", "a")]),
        ({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}]},
         [("user", "a"), ("user", "b")]),
        ({"role": "tool", "tool_call_id": "c", "content": "done"}, [("result", "done")]),
        ({"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "run", "arguments": '{"a":1}'}}]},
         [("thinking", "hm"), ("call run", '{"a":1}')]),
        ({"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "redacted_thinking", "data": "x"},
            {"type": "tool_use", "id": "t", "name": "run", "input": {"a": 1}}]},
         [("thinking", "hm"), ("thinking", "[redacted thinking]"), ("call run", '{\n  "a": 1\n}')]),
        ({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [
            {"type": "text", "text": "out"}, {"type": "image", "source": {"type": "base64", "data": ATTACHED}}]}]},
         [("result", "out"), ("result", "[a.png, image/png, 12 bytes, sha256 abababababab]")]),
        ({"type": "function_call", "name": "run", "arguments": "{}", "call_id": "c"}, [("call run", "{}")]),
        ({"type": "function_call_output", "call_id": "c", "output": "done"}, [("result", "done")]),
        ({"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}, [("thinking", "hm")]),
        ({"type": "reasoning", "summary": [], "encrypted_content": "x"},
         [("thinking", "[only its provider can read it]")]),
        ({"role": "assistant", "content": [{"type": "withheld", "was": "thinking", "sha256": "ab", "why": "a secret"}]},
         [("thinking", "[withheld: a secret]")]),
        ("a bare string", [("user", "a bare string")]),
        ([{"role": "assistant", "content": "one"}, {"role": "assistant", "content": "two"}],
         [("assistant", "one"), ("assistant", "two")]),
    ],
)  # fmt: skip
def test_messages_say_who_said_what(value, texts):
    assert said("message", value) == texts


def test_the_other_kinds():
    assert said("system", {"type": "text", "text": "be brief"}) == [("system", "be brief")]
    assert said("system", "be brief") == [("system", "be brief")]
    tools = [{"name": "a", "description": "does a"}, {"type": "function", "function": {"name": "b"}}]
    assert said("tools", tools) == [("tool a", "does a"), ("tool b", "")]
    assert said("parameters", {"model": "m"}) == [("parameters", '{\n  "model": "m"\n}')]


@pytest.mark.parametrize("odd", [None, 1, [], {}, "x", [None], {"role": 1}, {"role": "user", "content": [1, None, {}]}])
@pytest.mark.parametrize("kind", ["message", "answer", "system", "tools", "parameters"])
def test_whatever_it_is_there_is_something_to_show(kind: str, odd: Any) -> None:
    assert all(isinstance(one.text, str) and isinstance(one.label, str) for one in said(kind, odd))


@pytest.mark.parametrize("path", sorted((VECTORS / "sessions").glob("*.json")), ids=lambda path: path.stem)
def test_real_conversations_are_words_and_not_json(path: Path) -> None:
    """Nothing that agents send in their messages falls back to the JSON it came as."""
    for request in json.loads(path.read_text())["requests"]:
        body = {"model": "m", **request["body"]}
        for kind, raw in blocks.split(native.open_body(json.dumps(body).encode()).members):
            value = json.loads(blocks.made(raw, Redactor()).text)
            if kind == "message":
                assert said(kind, value), value
                assert all(one.label in ("user", "assistant", "system", "developer", "result", "thinking") or
                           one.label.startswith("call ") for one in said(kind, value))  # fmt: skip
