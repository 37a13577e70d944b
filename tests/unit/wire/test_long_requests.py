"""Long requests are decoded and encoded in several calls: what comes of it is the same."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from arbiter.errors import BadRequest
from arbiter.model import Target
from arbiter.wire import json as door
from arbiter.wire import native
from arbiter.wire.format import FORMATS, UPSTREAMS

CHAT, MESSAGES = "openai-chat", "anthropic-messages"
WORDS = 'if a == "b":\n\treturn ["…", {}] \\ ' * 20


def body(wire: str, turns: int) -> dict[str, Any]:
    """A conversation with calls and results."""
    made: list[dict[str, Any]] = []
    for n in range(turns):
        ident = f"call_{n:08d}"
        if wire == CHAT:
            call = {"id": ident, "type": "function", "function": {"name": "read", "arguments": '{"path":"x"}'}}
            made.append({"role": "user", "content": WORDS if n % 3 else [{"type": "text", "text": WORDS}]})
            made.append({"role": "assistant", "content": None, "tool_calls": [call]})
            made.append({"role": "tool", "tool_call_id": ident, "content": WORDS})
        else:
            call = {"type": "tool_use", "id": ident, "name": "read", "input": {"path": "x"}}
            made.append({"role": "user", "content": WORDS if n % 3 else [{"type": "text", "text": WORDS}]})
            made.append({"role": "assistant", "content": [{"type": "text", "text": "Look."}, call]})
            made.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": ident, "content": WORDS}]})
    return {"model": "m", "max_tokens": 9, "messages": made}


def members(asked: dict[str, Any], **dumped: Any) -> dict[str, Raw]:
    return native.open_body(json.dumps(asked, **dumped).encode()).members


@pytest.mark.parametrize("dumped", [{}, {"indent": 1}, {"ensure_ascii": False, "separators": (",", ":")}])
@pytest.mark.parametrize("slice_bytes", [1, 700, 5_000, 1 << 40])
@pytest.mark.parametrize("wire", [CHAT, MESSAGES])
def test_a_long_request_is_read_alike_in_slices(monkeypatch, wire: str, slice_bytes: int, dumped: dict[str, Any]):
    asked = members(body(wire, 40), **dumped)
    in_one_call = FORMATS[wire].parse_request(asked)
    monkeypatch.setattr(door, "LONG_BYTES", 1000)
    monkeypatch.setattr(door, "SLICE_BYTES", slice_bytes)
    assert FORMATS[wire].parse_request(asked) == in_one_call


@pytest.mark.parametrize("theirs", ["openai-chat", "anthropic-messages", "openai-responses", "google-gemini"])
def test_a_long_request_is_written_alike_entry_by_entry(monkeypatch, theirs: str):
    request = msgspec.structs.replace(FORMATS[MESSAGES].parse_request(members(body(MESSAGES, 40))), model="m")
    entry_by_entry = UPSTREAMS[theirs].build_request(request, Target())
    monkeypatch.setattr(door, "_MANY", 1 << 40)
    assert UPSTREAMS[theirs].build_request(request, Target()) == entry_by_entry


@pytest.mark.parametrize("wire", [CHAT, MESSAGES])
@pytest.mark.parametrize("fault", [{"role": "user", "content": 5}, {"role": 5, "content": ""}, "no message", 7])
def test_a_fault_in_a_long_request_is_named_by_its_place(monkeypatch, wire: str, fault: Any):
    asked = body(wire, 40)
    asked["messages"][77] = fault
    with pytest.raises(BadRequest) as in_one_call:
        FORMATS[wire].parse_request(members(asked))
    monkeypatch.setattr(door, "LONG_BYTES", 1000)
    monkeypatch.setattr(door, "SLICE_BYTES", 5_000)
    with pytest.raises(BadRequest) as in_slices:
        FORMATS[wire].parse_request(members(asked))
    assert str(in_slices.value) == str(in_one_call.value) and "messages[77]" in str(in_slices.value)


@pytest.mark.parametrize("messages", [b"[]", b"[ ]", b'"text"', b"null", b"{}", b"5", b"[1]", b"[[]]"])
@pytest.mark.parametrize("wire", [CHAT, MESSAGES])
def test_what_is_no_conversation_is_judged_alike(monkeypatch, wire: str, messages: bytes):
    asked = {"model": Raw(b'"m"'), "max_tokens": Raw(b"9"), "messages": Raw(messages)}

    def judged() -> object:
        try:
            return FORMATS[wire].parse_request(asked)
        except BadRequest as error:
            return str(error)

    in_one_call = judged()
    monkeypatch.setattr(door, "LONG_BYTES", 0)
    assert judged() == in_one_call
