"""Gemini answers, outwards: `Answer` -> the unary body; finish reasons, usage and parts, as streams have them."""

from __future__ import annotations

from typing import Any

from arbiter import _speedups
from arbiter.model import STOP, Answer, Finish, Refusal, SealedThinking, Text, Thinking, ToolCall, Usage
from arbiter.wire.answers import mended, usage_reader
from arbiter.wire.gemini_sealed import signature_of
from arbiter.wire.gemini_turns import arguments_of
from arbiter.wire.json import NO_MEMBERS, Members, encode
from arbiter.wire.signatures import googles

FINISH_IN = {
    "STOP": Finish.STOP,
    "MAX_TOKENS": Finish.LENGTH,
    **dict.fromkeys(
        ("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY",
         "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "ESCALATION", "MODEL_ARMOR", "JAILBREAK"),
        Finish.CONTENT_FILTER,
    ),
}  # fmt: skip
"""The words of `finishReason`, and of `promptFeedback.blockReason`."""

BROKEN = ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE", "MISSING_THOUGHT_SIGNATURE")
"""Reasons that are failures: what the model wrote could not be read, and is not there."""

_FINISH_OUT = {
    Finish.LENGTH: "MAX_TOKENS",
    Finish.CONTEXT_WINDOW: "MAX_TOKENS",
    Finish.CONTENT_FILTER: "SAFETY",
}


def finish_of(word: str, has_calls: bool) -> Finish:
    """Return what a finish reason means: a model that called has no word of its own for that."""
    return mended(FINISH_IN.get(word, STOP), has_calls)


def finish_out(finish: Finish) -> str:
    return _FINISH_OUT.get(finish, "STOP")


read_usage = usage_reader(_speedups.usage.gemini)


def write_usage(usage: Usage | None) -> dict[str, Any]:
    """Return usage as this format counts: the prompt includes what was cached, thoughts stand beside what was said."""
    usage = usage or Usage()
    prompt, output = usage.all_input() or 0, usage.output or 0
    thoughts = min(usage.reasoning or 0, output)
    built: dict[str, Any] = {"promptTokenCount": prompt, "candidatesTokenCount": output - thoughts}
    built["totalTokenCount"] = usage.total if usage.total is not None else prompt + output
    if usage.cache_read is not None:
        built["cachedContentTokenCount"] = usage.cache_read
    if usage.reasoning is not None:
        built["thoughtsTokenCount"] = thoughts
    return built


def call_part(id: str, name: str, arguments: str, signature: str | None) -> dict[str, Any]:
    part: dict[str, Any] = {"functionCall": {"id": id, "name": name, "args": arguments_of(arguments)}}
    if signature is not None:
        part["thoughtSignature"] = signature
    return part


def candidate(parts: list[Any], finish: Finish | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"content": {"parts": parts, "role": "model"}}
    if finish is not None:
        found["finishReason"] = finish_out(finish)
    return {**found, "index": 0}


def write_answer(answer: Answer, trace_id: str, model: str, created_s: int, *, asked: Members = NO_MEMBERS) -> bytes:
    """Return the unary body for a client; `model` stands in where the upstream named none.

    Its id is the trace's (SPEC 1.4), so it is never used twice.
    """
    parts: list[Any] = []
    signature: str | None = None
    for part in answer.parts:
        if type(part) is Text or type(part) is Refusal:
            parts.append({"text": part.text})
        elif type(part) is Thinking:
            if part.text:
                parts.append({"text": part.text, "thought": True})
            signature = googles(part.signature) or signature
        elif type(part) is SealedThinking:
            signature = signature_of(part.item, part.call_id)
        elif type(part) is ToolCall:
            parts.append(call_part(part.id, part.name, part.arguments, signature))
            signature = None
    if signature is not None:
        parts.append({"text": "", "thoughtSignature": signature})
    body = {
        "candidates": [candidate(parts, answer.finish or STOP)],
        "usageMetadata": write_usage(answer.usage),
        "modelVersion": answer.model or model,
        "responseId": trace_id,
    }
    return encode(body)
