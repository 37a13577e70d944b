"""Anthropic Messages answers: the unary body <-> `model.Answer`; stop reasons and usage, which the streams share."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from arbiter import _speedups
from arbiter.errors import BadRequest, Garbled
from arbiter.model import Answer, Finish, Opaque, Part, RedactedThinking, Refusal, Text, Thinking, ToolCall, Usage
from arbiter.wire import faults
from arbiter.wire.json import ABSENT, encode, present
from arbiter.wire.messages_parse import FORMAT, parse_block

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


class _Body(msgspec.Struct):
    type: str | None = None
    id: str | None = None
    model: str | None = None
    content: list[Raw] | None = None
    stop_reason: str | None = None
    stop_sequence: str | None = None
    usage: Raw = ABSENT
    error: Raw = ABSENT


_BODY = msgspec.json.Decoder(_Body)
_MEMBERS = msgspec.json.Decoder(dict[str, Raw])


def finish_of(word: str, has_calls: bool) -> Finish:
    """Return what a stop reason means. A server that called and says `end_turn` meant the calls, and the reverse."""
    finish = FINISH_IN.get(word, Finish.STOP)
    if has_calls and finish is Finish.STOP:
        return Finish.TOOL_CALLS
    if not has_calls and finish is Finish.TOOL_CALLS:
        return Finish.STOP
    return finish


def read_usage(raw: bytes | None) -> Usage | None:
    """Return a usage object in neutral counts, None where it is none."""
    found = _speedups.usage.messages(raw) if raw is not None else None
    return Usage(*found) if found is not None else None


def write_usage(usage: Usage | None) -> dict[str, Any]:
    """Return usage as this format counts: cached input beside the rest. A number it demands is 0 if unknown."""
    usage = usage or Usage()
    built: dict[str, Any] = {"input_tokens": usage.input or 0}
    if usage.cache_write is not None:
        built["cache_creation_input_tokens"] = usage.cache_write
    if usage.cache_read is not None:
        built["cache_read_input_tokens"] = usage.cache_read
    if usage.cache_write_5m is not None or usage.cache_write_1h is not None:
        built["cache_creation"] = {
            "ephemeral_5m_input_tokens": usage.cache_write_5m or 0,
            "ephemeral_1h_input_tokens": usage.cache_write_1h or 0,
        }
    built["output_tokens"] = usage.output or 0
    if usage.reasoning is not None:
        built["output_tokens_details"] = {"thinking_tokens": usage.reasoning}
    return built


def parse_answer(body: bytes) -> Answer:
    """Return the upstream's unary answer.

    Errors: Garbled where it is none of this format; InStreamError where a 200 holds an error object.
    """
    try:
        found = _BODY.decode(body)
        if found.content is None:
            if present(found.error) is not None:
                raise faults.in_stream(body)
            raise Garbled("the upstream's answer has no content")
        parts = tuple(part for i, raw in enumerate(found.content) if (part := _part(raw, i)) is not None)
    except (BadRequest, msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise Garbled(f"the upstream's answer is no message: {error}") from error
    return Answer(
        id=found.id or None,
        model=found.model or None,
        parts=parts,
        finish=finish_of(found.stop_reason or "end_turn", any(isinstance(part, ToolCall) for part in parts)),
        stop_sequence=found.stop_sequence,
        usage=read_usage(present(found.usage)),
    )


def _part(raw: Raw, index: int) -> Part | None:
    part = parse_block(raw, f"content[{index}].")
    return None if isinstance(part, Text) and not part.text else part


def write_answer(answer: Answer, trace_id: str, model: str, created_s: int) -> bytes:
    """Return the unary body for a client. Its id is built from `trace_id` (SPEC 1.4), so it is never used twice."""
    content: list[Any] = []
    for part in answer.parts:
        if isinstance(part, Text | Refusal):
            if part.text:
                content.append({"type": "text", "text": part.text})
        elif isinstance(part, Thinking):
            content.append({"type": "thinking", "thinking": part.text, "signature": part.signature or ""})
        elif isinstance(part, RedactedThinking):
            content.append({"type": "redacted_thinking", "data": part.data})
        elif isinstance(part, ToolCall):
            content.append({"type": "tool_use", "id": part.id, "name": part.name, "input": _input(part.arguments)})
        elif isinstance(part, Opaque) and part.format == FORMAT:
            content.append(Raw(part.raw))
    return encode(
        {
            "id": f"msg_{trace_id}",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": content,
            "stop_reason": FINISH_OUT[answer.finish or Finish.STOP],
            "stop_sequence": answer.stop_sequence,
            "usage": write_usage(answer.usage),
        }
    )


def _input(arguments: str) -> Any:
    """Return call arguments as an object. Those of a model that was cut off are none; they stay readable."""
    try:
        _MEMBERS.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        return {"invalid_arguments": arguments}
    return Raw(arguments.encode())
