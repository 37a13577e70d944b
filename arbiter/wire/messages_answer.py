"""Anthropic Messages answers, outwards: `Answer` -> the unary body; stop reasons and usage, as streams have them."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from arbiter import _speedups
from arbiter._speedups import nesting
from arbiter.model import (
    STOP,
    Answer,
    Finish,
    RedactedThinking,
    Refusal,
    SealedThinking,
    Text,
    Thinking,
    ToolCall,
    Usage,
)
from arbiter.wire.answers import mended, usage_reader
from arbiter.wire.json import NO_MEMBERS, Members, encode
from arbiter.wire.vault import UNSIGNED

FINISH_IN = {
    "end_turn": Finish.STOP,
    "stop_sequence": Finish.STOP_SEQUENCE,
    "max_tokens": Finish.LENGTH,
    "model_context_window_exceeded": Finish.CONTEXT_WINDOW,
    "tool_use": Finish.TOOL_CALLS,
    "refusal": Finish.CONTENT_FILTER,
    "pause_turn": Finish.PAUSE,
}
FINISH_OUT = {finish: word for word, finish in FINISH_IN.items()}

WRAP = '{"invalid_arguments":"', '"}'
"""What stands around call arguments that are no object, to make them the text inside of one."""

_MEMBERS = msgspec.json.Decoder(dict[str, Raw])


def finish_of(word: str, has_calls: bool) -> Finish:
    """Return what a stop reason means."""
    return mended(FINISH_IN.get(word, STOP), has_calls)


read_usage = usage_reader(_speedups.usage.messages)


def write_usage(usage: Usage | None) -> dict[str, Any]:
    """Return usage as this format counts: cached input beside the rest. A number it demands is 0 if unknown.

    This is the usage at the end of a stream, which has all members that the vendor's always has.
    """
    usage = usage or Usage()
    built: dict[str, Any] = {
        "input_tokens": usage.input or 0,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "output_tokens": usage.output or 0,
        "output_tokens_details": {"thinking_tokens": usage.reasoning} if usage.reasoning is not None else None,
        "server_tool_use": None,
    }
    if usage.cache_write_5m is not None or usage.cache_write_1h is not None:
        built["cache_creation"] = {
            "ephemeral_5m_input_tokens": usage.cache_write_5m or 0,
            "ephemeral_1h_input_tokens": usage.cache_write_1h or 0,
        }
    return built


def write_message(answer: Answer, trace_id: str, model: str, content: list[Any], reason: str | None) -> dict[str, Any]:
    """Return a message, which an answer is and a stream begins with. What no other format tells is null."""
    usage = write_usage(answer.usage)
    usage.setdefault("cache_creation", None)
    usage["service_tier"] = usage["inference_geo"] = None
    return {
        "id": f"msg_{trace_id}",
        "type": "message",
        "role": "assistant",
        "model": answer.model or model,
        "content": content,
        "stop_reason": reason,
        "stop_sequence": answer.stop_sequence,
        "stop_details": None,
        "container": None,
        "usage": usage,
    }


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text, "citations": None}


def call_block(id: str, name: str, input: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": input, "caller": {"type": "direct"}}


def write_answer(answer: Answer, trace_id: str, model: str, created_s: int, *, asked: Members = NO_MEMBERS) -> bytes:
    """Return the unary body for a client; `model` stands in where the upstream named none.

    Its id is built from `trace_id` (SPEC 1.4), so it is never used twice. An answer that says nothing has an empty
    content, as the vendor's own have: a block of empty text would be refused when the client sends it back.
    """
    content: list[Any] = []
    for part in answer.parts:
        if type(part) is Text or type(part) is Refusal:
            if part.text:
                content.append(text_block(part.text))
        elif type(part) is Thinking:
            if part.text or part.signature:
                content.append({"type": "thinking", "thinking": part.text, "signature": part.signature or UNSIGNED})
        elif type(part) is RedactedThinking and part.place == "block":
            content.append({"type": "redacted_thinking", "data": part.data})
        elif type(part) is SealedThinking:
            content.append({"type": "redacted_thinking", "data": part.item})
        elif type(part) is ToolCall:
            content.append(call_block(part.id, part.name, _input(part.arguments)))
    return encode(write_message(answer, trace_id, model, content, FINISH_OUT[answer.finish or STOP]))


def _input(arguments: str) -> Any:
    """Return call arguments as an object. Those of a model that was cut off are none; they stay readable."""
    if not arguments.strip():
        return {}
    text = nesting.whole(arguments.encode())
    try:
        _MEMBERS.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return Raw(WRAP[0].encode() + encode(arguments)[1:-1] + WRAP[1].encode())
    return Raw(text)
