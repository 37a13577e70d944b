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
    free: set[int] = set()
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
            kind, member = ("custom", "input") if "custom" in call else ("function", "arguments")
            index, called = call["index"], call[kind]
            if "id" in call:
                assert index == len(calls), "calls are numbered without gaps, and open once"
                assert call["type"] == kind and isinstance(called["name"], str)
                calls[index] = [called["name"], call["id"], called[member]]
                free |= {index} if kind == "custom" else set()
            else:
                assert index in calls and set(called) == {member}, "a slice of a call that never opened"
                assert (index in free) == (kind == "custom"), "a call is of one kind"
                calls[index][2] += called[member]
        if choice["finish_reason"] is not None:
            finish = choice["finish_reason"]
            assert finish in FINISH_REASONS and delta == {}
    assert ending != "complete" or opened
    if ending == "complete":
        assert all(call[2] or index in free for index, call in calls.items()), "a call without arguments"
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


_PARTS = {  # by the type of a part: the member with its text, and how its events begin
    "output_text": ("text", "response.output_text", "content_part"),
    "refusal": ("refusal", "response.refusal", "content_part"),
    "summary_text": ("text", "response.reasoning_summary_text", "reasoning_summary_part"),
}
_INPUTS = {
    "function_call": ("arguments", "response.function_call_arguments"),
    "custom_tool_call": ("input", "response.custom_tool_call_input"),
}


class _Item:
    """One item of a response while it comes: what it began as, its finished parts, and the part that is open."""

    def __init__(self, item: dict[str, Any]) -> None:
        self.item = item
        self.said = ""
        self.parts: list[dict[str, Any]] = []
        self.part: dict[str, Any] | None = None
        self.is_said = False  # its arguments, or the text of the open part, ended
        self.whole: dict[str, Any] | None = None

    def begin(self, event: dict[str, Any]) -> None:
        assert self.part is None and not self.is_said
        self.part, self.said = event["part"], ""
        member, _, kind = _PARTS[event["part"]["type"]]
        assert event["part"][member] == "" and event["type"] == f"response.{kind}.added"
        self.check(event)

    def check(self, event: dict[str, Any]) -> None:
        assert event["item_id"] == self.item["id"] and self.whole is None
        if self.part is not None:
            index = "summary_index" if self.part["type"] == "summary_text" else "content_index"
            assert event[index] == len(self.parts)

    def take(self, event: dict[str, Any]) -> None:
        self.check(event)
        if self.part is not None:
            member, stem, kind = _PARTS[self.part["type"]]
        else:
            member, stem = _INPUTS[self.item["type"]]
            kind = ""
        if event["type"] == f"{stem}.delta":
            assert (event["delta"] or event["logprobs"]) and not self.is_said
            self.said += event["delta"]
        elif event["type"] == f"{stem}.done":
            assert event[member] == self.said and not self.is_said
            self.is_said = True
        else:
            assert event["type"] == f"response.{kind}.done" and self.is_said and self.part is not None
            assert event["part"][member] == self.said
            self.parts.append(event["part"])
            self.part, self.is_said = None, False

    def end(self, whole: dict[str, Any]) -> None:
        assert self.whole is None and self.part is None
        assert {**self.item, "status": 0} | {"content": 0, "summary": 0, "arguments": 0, "input": 0} == {
            **whole,
            "status": 0,
        } | {"content": 0, "summary": 0, "arguments": 0, "input": 0}
        if self.item["type"] in _INPUTS:
            assert self.is_said and whole[_INPUTS[self.item["type"]][0]] == self.said
        else:
            assert self.parts and whole["content" if self.item["type"] == "message" else "summary"] == self.parts
        self.whole = whole

    def blocks(self) -> list[tuple[str, str]]:
        kind = self.item["type"]
        if kind in _INPUTS:
            named = [self.item.get("namespace"), self.item["name"], self.item["call_id"]]
            return [(kind, json.dumps([*named, self.said]))]
        parts = [*self.parts, *([] if self.part is None else [{**self.part, "text": self.said, "refusal": self.said}])]
        return [(part["type"], part[_PARTS[part["type"]][0]]) for part in parts]


def responses(stream: bytes) -> Told:
    """Judge an OpenAI Responses stream. Errors: AssertionError."""
    ending, finish, usage = "open", None, None
    items: list[_Item] = []
    constant: Any = None
    failed = False
    for number, (name, data) in enumerate(frames(stream)):
        assert ending == "open", "something follows the end"
        event = strict(data)
        kind = event["type"]
        assert kind == name, "the event's name is its type"
        assert event["sequence_number"] == number or failed or kind == "error"
        assert not failed or kind == "response.failed", "nothing but the failed response follows an error"
        if kind == "error":
            assert isinstance(event["message"], str)
            failed = True
            continue
        if "response" in event:
            response = event["response"]
            same = {name: value for name, value in response.items() if name in ("id", "created_at", "model", "tools")}
            assert response["object"] == "response" and response["id"].startswith("resp_")
            if kind == "response.failed":
                assert response["status"] == "failed" and isinstance(response["error"]["code"], str)
                ending = "error"
                continue
            assert constant in (None, same)
            constant = same
        if number < 2:
            assert kind == ("response.created", "response.in_progress")[number]
            assert response["status"] == "in_progress" and response["output"] == [] and "usage" not in response
        elif kind in ("response.completed", "response.incomplete"):
            assert all(item.whole is not None for item in items), "an item that never ended"
            assert response["output"] == [item.whole for item in items]
            assert kind == f"response.{response['status']}"
            assert (response["incomplete_details"] is not None) == (kind == "response.incomplete")
            finish = response["status"] if kind == "response.completed" else response["incomplete_details"]["reason"]
            ending, usage = "complete", response.get("usage")
        elif kind == "response.output_item.added":
            item = event["item"]
            assert event["output_index"] == len(items), "items are numbered without gaps"
            assert item["id"] not in [one.item["id"] for one in items]
            items.append(_Item(item))
        elif kind == "response.output_item.done":
            items[event["output_index"]].end(event["item"])
        elif kind.endswith("_part.added"):
            items[event["output_index"]].begin(event)
        else:
            items[event["output_index"]].take(event)
    ids = [item.item["call_id"] for item in items if "call_id" in item.item]
    assert ending != "complete" or len(set(ids)) == len(ids), "two calls share an id"
    return Told(ending, [block for item in items for block in item.blocks()], finish, usage)


def gemini(stream: bytes) -> Told:
    """Judge a Gemini stream. Errors: AssertionError."""
    ending, finish, usage = "open", None, None
    constant: tuple[Any, ...] | None = None
    blocks: list[tuple[str, str]] = []
    for name, data in frames(stream):
        assert name == "" and ending == "open", "something follows the end"
        chunk = strict(data)
        if "error" in chunk:
            error = chunk["error"]
            assert isinstance(error["code"], int) and isinstance(error["message"], str)
            assert isinstance(error["status"], str) and isinstance(error["details"], list)
            ending = "error"
            continue
        same = (chunk["responseId"], chunk["modelVersion"])
        assert constant in (None, same) and all(isinstance(one, str) and one for one in same)
        constant = same
        (candidate,) = chunk["candidates"]
        assert candidate["index"] == 0 and candidate["content"]["role"] == "model"
        for part in candidate["content"]["parts"]:
            if "functionCall" in part:
                call = part["functionCall"]
                assert isinstance(call["args"], dict) and isinstance(call["name"], str) and call["id"]
                blocks.append(("call", f"{call['name']} {call['id']} {json.dumps(call['args'])}"))
            else:
                add(blocks, "thinking" if part.get("thought") else "text", part["text"])
        if "finishReason" in candidate:
            finish, usage, ending = candidate["finishReason"], chunk["usageMetadata"], "complete"
            assert finish in ("STOP", "MAX_TOKENS", "SAFETY")
            for member in ("promptTokenCount", "candidatesTokenCount", "totalTokenCount"):
                assert isinstance(usage[member], int)
        else:
            assert "usageMetadata" not in chunk
    return Told(ending, [block for block in blocks if block[1]], finish, usage)


JUDGES = {"openai-chat": chat, "anthropic-messages": messages, "openai-responses": responses, "google-gemini": gemini}
