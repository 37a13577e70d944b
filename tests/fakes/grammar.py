"""What a client may be sent: the grammar of each format's stream, judged from its bytes alone.

Written from the vendors' documents and SPEC 2.6-2.7, not from our writers; it shares no code with them.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

FINISH_REASONS = {"stop", "length", "tool_calls", "content_filter"}
STOP_REASONS = {
    *("end_turn", "stop_sequence", "max_tokens", "model_context_window_exceeded", "tool_use", "refusal", "pause_turn"),
}


class Told(NamedTuple):
    """What a stream told its client, put together as an agent would."""

    ending: str  # "complete", "error", or "open" where it just ends
    blocks: list[tuple[str, str]]  # in order: kind, text (of a call: name, id and arguments)
    finish: str | None
    usage: dict[str, Any] | None


def frames(stream: bytes) -> list[tuple[str, str]]:
    """Split canonical SSE into (event name, data). Anything but `event:`, `data:` and blank lines is a fault."""
    text = stream.decode()
    assert not text or text.endswith("\n\n"), "the last event has no blank line"
    found = []
    for block in text.split("\n\n")[:-1]:
        name, data = "", []
        for line in block.split("\n"):
            field, colon, value = line.partition(": ")
            assert colon and field in ("event", "data"), f"not canonical SSE: {line!r}"
            if field == "event":
                assert not name and not data
                name = value
            else:
                data.append(value)
        assert len(data) == 1
        found.append((name, data[0]))
    return found


def strict(data: str) -> Any:
    """Decode JSON as the strictest client would: no repeated names, no NaN, no half of a surrogate pair."""

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len({name for name, _ in pairs}) == len(pairs), "a member is there twice"
        return dict(pairs)

    value = json.loads(data, object_pairs_hook=members, parse_constant=_refuse)
    json.dumps(value, ensure_ascii=False).encode()
    return value


def _refuse(word: str) -> None:
    raise AssertionError(f"{word} is no JSON")


def chat(stream: bytes, *, include_usage: bool = True) -> Told:
    """Judge an OpenAI Chat stream. Errors: AssertionError."""
    events = frames(stream)
    ending, finish, usage = "open", None, None
    constant: tuple[Any, ...] | None = None
    blocks: list[tuple[str, str]] = []
    calls: dict[int, list[str]] = {}
    opened = False
    for name, data in events:
        assert name == "" and ending == "open", "something follows the end"
        if data == "[DONE]":
            assert finish is not None, "[DONE] without a finish reason"
            ending = "complete"
            continue
        chunk = strict(data)
        if "error" in chunk:
            error = chunk["error"]
            assert isinstance(error["message"], str) and isinstance(error["type"], str)
            ending = "error"
            continue
        assert chunk["object"] == "chat.completion.chunk"
        same = (chunk["id"], chunk["created"], chunk["model"])
        assert constant in (None, same), "id, created and model are the same in every chunk"
        assert isinstance(same[0], str) and isinstance(same[1], int) and isinstance(same[2], str)
        constant = same
        assert usage is None, "a chunk follows the usage"
        if not chunk["choices"]:
            assert finish is not None and include_usage, "a usage chunk that nobody asked for, or before the finish"
            usage = chunk["usage"]
            for member in ("prompt_tokens", "completion_tokens", "total_tokens"):
                assert isinstance(usage[member], int)
            continue
        assert "usage" not in chunk
        (choice,) = chunk["choices"]
        assert choice["index"] == 0 and finish is None, "a delta follows the finish reason"
        delta = choice["delta"]
        assert ("role" in delta) != opened, "the first chunk has the role, and no other"
        opened = True
        assert delta.get("role", "assistant") == "assistant"
        for member in ("content", "reasoning_content", "reasoning", "refusal"):
            if delta.get(member):
                add(blocks, member, delta[member])
        for call in delta.get("tool_calls", ()):
            index, function = call["index"], call["function"]
            if "id" in call:
                assert index == len(calls), "calls are numbered without gaps, and open once"
                assert call["type"] == "function" and isinstance(function["name"], str)
                calls[index] = [function["name"], call["id"], function["arguments"]]
            else:
                assert index in calls and set(function) == {"arguments"}, "a slice of a call that never opened"
                calls[index][2] += function["arguments"]
        if choice["finish_reason"] is not None:
            finish = choice["finish_reason"]
            assert finish in FINISH_REASONS and delta == {}
    assert ending != "complete" or opened
    if ending == "complete":
        assert all(call[2] for call in calls.values()), "a call without arguments"
        assert len({call[1] for call in calls.values()}) == len(calls), "two calls share an id"
        assert (finish == "tool_calls") <= bool(calls)
    blocks += [("call", json.dumps(call)) for call in calls.values()]
    return Told(ending, blocks, finish, usage)


_DELTAS = {
    "text": {"text_delta": "text"},
    "thinking": {"thinking_delta": "thinking", "signature_delta": "signature"},
    "tool_use": {"input_json_delta": "partial_json"},
    "redacted_thinking": {},
}


def messages(stream: bytes) -> Told:
    """Judge an Anthropic Messages stream. Errors: AssertionError."""
    ending, finish, usage = "open", None, None
    started = False
    index, block = -1, ""  # the latest block, and its type while it is open
    signed = False
    blocks: list[tuple[str, str]] = []
    ids: list[str] = []
    for name, data in frames(stream):
        assert ending == "open", "something follows the end"
        event = strict(data)
        kind = event["type"]
        assert kind == name, "the event's name is its type"
        if kind == "error":
            assert isinstance(event["error"]["type"], str) and isinstance(event["error"]["message"], str)
            ending = "error"
            continue
        assert (kind == "message_start") != started, "one start, before everything else"
        if kind == "message_start":
            started = True
            message = event["message"]
            assert message["type"] == "message" and message["role"] == "assistant" and message["content"] == []
            assert message["stop_reason"] is None and message["id"].startswith("msg_")
            assert isinstance(message["usage"]["input_tokens"], int)
        elif kind == "content_block_start":
            assert not block and finish is None, "one block at a time, and none after the stop reason"
            index += 1
            assert event["index"] == index, "block indexes have no gaps"
            start = event["content_block"]
            block, signed = start["type"], False
            if block == "tool_use":
                assert start["input"] == {} and start["id"] and start["id"] not in ids
                ids.append(start["id"])
                blocks.append(("call", json.dumps([start["name"], start["id"]])))
            elif block == "redacted_thinking":
                blocks.append((block, start["data"]))
            else:
                assert start[block] == ""
                blocks.append((block, ""))
            assert block in _DELTAS
        elif kind == "content_block_delta":
            assert block and event["index"] == index
            delta = event["delta"]
            text = delta[_DELTAS[block][delta["type"]]]
            assert isinstance(text, str)
            assert not signed, "a delta follows the signature"
            signed = delta["type"] == "signature_delta"
            before = blocks[-1][1]
            if block == "tool_use":
                call = json.loads(before)
                blocks[-1] = "call", json.dumps([*call[:2], "".join(call[2:]) + text])
            elif not signed:
                blocks[-1] = block, before + text
        elif kind == "content_block_stop":
            assert block and event["index"] == index
            assert block != "text" or blocks[-1][1], "an empty block of text cannot be sent back"
            block = ""
        elif kind == "message_delta":
            assert not block and finish is None
            finish, usage = event["delta"]["stop_reason"], event["usage"]
            assert finish in STOP_REASONS and isinstance(usage["output_tokens"], int)
        elif kind == "message_stop":
            assert finish is not None, "message_stop without a stop reason"
            ending = "complete"
        else:
            raise AssertionError(f"an unknown event: {kind}")
    if ending == "complete":
        assert (finish == "tool_use") <= bool(ids)
    blocks = [
        (kind, json.dumps([*json.loads(text), "{}"]) if kind == "call" and len(json.loads(text)) == 2 else text)
        for kind, text in blocks
    ]
    return Told(ending, blocks, finish, usage)


def add(blocks: list[tuple[str, str]], kind: str, text: str) -> None:
    if blocks and blocks[-1][0] == kind:
        blocks[-1] = kind, blocks[-1][1] + text
    else:
        blocks.append((kind, text))


JUDGES = {"openai-chat": chat, "anthropic-messages": messages}
