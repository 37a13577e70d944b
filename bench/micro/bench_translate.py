"""What it costs to bring a request, an answer or a stream into the other format, beside all that both lanes do."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import ModuleType
from typing import Any

import msgspec
import pytest

from arbiter.wire import anthropic_messages, chat_reader, messages_reader, native, openai_chat
from arbiter.wire.course import Ending
from arbiter.wire.format import Format
from arbiter.wire.translated import TranslatedStream
from bench.micro import streams

Twin = Callable[[str], ModuleType]

CODE = 'def f(x):\n    return {"a": [x, \'y\'], "b": "…"}  # some code, as agents quote it\n'
SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string", "description": "The absolute path"}, "limit": {"type": "number"}},
    "required": ["path"],
    "additionalProperties": False,
}
TOOLS = 16
CALL_BYTES = 2600
"""One call of a tool with its result, about."""


def messages_body(size: int) -> bytes:
    """What Claude Code sends: two blocks of instructions, its tools, and turns of calls with their results."""
    mark = {"cache_control": {"type": "ephemeral"}}
    turns: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "Why does this test fail?"}]}]
    for n in range(size // CALL_BYTES):
        id = f"toolu_{n:020d}"
        call = {"type": "tool_use", "id": id, "name": "tool_1", "input": {"path": f"/src/{n}.py", "limit": 2000}}
        turns.append({"role": "assistant", "content": [{"type": "text", "text": "Let me look."}, call]})
        result = {"type": "tool_result", "tool_use_id": id, "content": [{"type": "text", "text": CODE * 28}]}
        turns.append({"role": "user", "content": [result]})
    system = [
        {"type": "text", "text": "You are Claude Code.", **mark},
        {"type": "text", "text": "Be careful. " * 40, **mark},
    ]
    body: dict[str, Any] = {"model": "asked", "max_tokens": 32000, "system": system, "messages": turns, "stream": True}
    if size > 10_000:
        described = {"description": "Reads a file. " * 40, "input_schema": SCHEMA}
        body["tools"] = [{"name": f"tool_{n}", **described} for n in range(TOOLS)]
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def chat_body(size: int) -> bytes:
    """The same conversation from an agent that speaks OpenAI Chat."""
    turns: list[Any] = [
        {"role": "system", "content": "Be careful. " * 40},
        {"role": "user", "content": "Why does this test fail?"},
    ]
    for n in range(size // CALL_BYTES):
        id, arguments = f"call_{n:020d}", json.dumps({"path": f"/src/{n}.py", "limit": 2000})
        call = {"id": id, "type": "function", "function": {"name": "tool_1", "arguments": arguments}}
        turns.append({"role": "assistant", "content": "Let me look.", "tool_calls": [call]})
        turns.append({"role": "tool", "tool_call_id": id, "content": CODE * 28})
    body: dict[str, Any] = {"model": "asked", "max_tokens": 32000, "messages": turns, "stream": True}
    if size > 10_000:
        described = {"description": "Reads a file. " * 40, "parameters": SCHEMA}
        body["tools"] = [{"type": "function", "function": {"name": f"tool_{n}", **described}} for n in range(TOOLS)]
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


CROSSINGS: dict[str, tuple[Format, Format, Callable[[int], bytes], str]] = {
    "Messages on Chat": (anthropic_messages, openai_chat, messages_body, "gpt-4o"),
    "Chat on Messages": (openai_chat, anthropic_messages, chat_body, "claude-sonnet-4-5"),
}


@pytest.mark.parametrize("kb", [1, 30, 200, 1000])
@pytest.mark.parametrize("crossing", CROSSINGS)
def test_request(benchmark: Any, crossing: str, kb: int) -> None:
    """From members one level deep, which the native lane has as well, to the body for the upstream."""
    client, upstream, body, model = CROSSINGS[crossing]
    data = body(kb * 1000)
    members = native.open_body(data).members

    def translate() -> bytes:
        request = msgspec.structs.replace(client.parse_request(members), model=model)
        upstream.disguised(request)
        return upstream.build_request(request)

    told = json.loads(translate())
    assert told["model"] == model
    assert len(told["messages"]) > 2 * (kb * 1000 // CALL_BYTES)
    benchmark(translate)


TEXT = "The quick brown fox jumps over the lazy dog. " * 16
ANSWERS = {
    "Messages on Chat": {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1741570283,
        "model": "gpt-4o",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": TEXT}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 250, "completion_tokens": 60, "total_tokens": 310},
    },
    "Chat on Messages": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "content": [{"type": "text", "text": TEXT}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 250, "output_tokens": 60},
    },
}


@pytest.mark.parametrize("crossing", CROSSINGS)
def test_answer(benchmark: Any, crossing: str) -> None:
    client, upstream, _, model = CROSSINGS[crossing]
    data = json.dumps(ANSWERS[crossing], separators=(",", ":")).encode()

    def translate() -> bytes:
        return client.write_answer(upstream.parse_answer(data), "trace", model, 0)

    assert TEXT.encode() in translate()
    benchmark(translate)


@pytest.mark.parametrize("per_read", [1, 50])
@pytest.mark.parametrize(
    "kind", ["CHAT", "CHAT_REASONING", "CHAT_ARGUMENTS", "MESSAGES", "MESSAGES_REASONING", "MESSAGES_ARGUMENTS"]
)
def test_stream(
    twin: Twin, measure: Callable[..., None], monkeypatch: pytest.MonkeyPatch, kind: str, per_read: int
) -> None:
    """From the first event to the last, what opens and closes it included."""
    monkeypatch.setattr(chat_reader, "carry", twin("carry"))
    monkeypatch.setattr(messages_reader, "carry", twin("carry"))
    is_chat = kind.startswith("CHAT")
    upstream, client = (openai_chat, anthropic_messages) if is_chat else (anthropic_messages, openai_chat)
    reads = streams.whole(kind, per_read)

    def run() -> TranslatedStream:
        stream = TranslatedStream(upstream.reader(), client.writer("trace", "model", 0), {})
        for read in reads:
            stream.feed(read)
        return stream

    assert run().ending is Ending.COMPLETE
    assert run().events > 192
    measure(run, units=run().events)
