"""OpenAI Chat answers, outwards: `Answer` -> the unary body; finish reasons and usage, as streams have them."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from arbiter import _speedups
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
from arbiter.wire.chat_messages import build_call
from arbiter.wire.chat_parse import REASONING
from arbiter.wire.chat_proofs import Gathered
from arbiter.wire.json import NO_MEMBERS, Members, encode

FINISH_IN = {
    "stop": Finish.STOP,
    "length": Finish.LENGTH,
    "tool_calls": Finish.TOOL_CALLS,
    "content_filter": Finish.CONTENT_FILTER,
    # Other servers' words.
    "function_call": Finish.TOOL_CALLS,  # before there were tools
    "tool_use": Finish.TOOL_CALLS,
    "max_tokens": Finish.LENGTH,
    "model_length": Finish.CONTEXT_WINDOW,  # Mistral
    "safety": Finish.CONTENT_FILTER,  # Gemini's, where its façade lets them through
    "recitation": Finish.CONTENT_FILTER,
    "prohibited_content": Finish.CONTENT_FILTER,
    "refusal": Finish.CONTENT_FILTER,
}
FINISH_OUT = {
    Finish.STOP: "stop",
    Finish.STOP_SEQUENCE: "stop",
    Finish.LENGTH: "length",
    Finish.CONTEXT_WINDOW: "length",
    Finish.TOOL_CALLS: "tool_calls",
    Finish.CONTENT_FILTER: "content_filter",
    Finish.PAUSE: "stop",
}


def finish_of(word: str, has_calls: bool) -> Finish:
    """Return what a finish reason means."""
    # Gemini's façade adds the reason: "content_filter: PROHIBITED_CONTENT".
    return mended(FINISH_IN.get(word) or FINISH_IN.get(word.lower().partition(":")[0], STOP), has_calls)


read_usage = usage_reader(_speedups.usage.chat)


def write_usage(usage: Usage) -> dict[str, Any]:
    """Return usage as this format counts: the prompt includes what was cached. A number it demands is 0 if unknown.

    The tier is left out, since the vendors' tiers are different things; and what it cost has no name in this format.
    """
    prompt, output = usage.all_input(), usage.output
    total = usage.total if usage.total is not None else (prompt or 0) + (output or 0)
    built: dict[str, Any] = {"prompt_tokens": prompt or 0, "completion_tokens": output or 0, "total_tokens": total}
    details: dict[str, int] = {}
    if usage.cache_read is not None:
        details["cached_tokens"] = usage.cache_read
    if usage.cache_write is not None:
        details["cache_write_tokens"] = usage.cache_write
    if usage.audio_input is not None:
        details["audio_tokens"] = usage.audio_input
    if details:
        built["prompt_tokens_details"] = details
    details = {}
    if usage.reasoning is not None:
        details["reasoning_tokens"] = usage.reasoning
    if usage.audio_output is not None:
        details["audio_tokens"] = usage.audio_output
    if details:
        built["completion_tokens_details"] = details
    return built


def reasoning_detail(item: str, call_id: str | None, index: int) -> dict[str, Any]:
    """Return sealed reasoning as OpenRouter has what is encrypted; its id is that of the call that it is for."""
    return {"type": "reasoning.encrypted", "data": item, "id": call_id, "index": index}


def write_answer(answer: Answer, trace_id: str, model: str, created_s: int, *, asked: Members = NO_MEMBERS) -> bytes:
    """Return the unary body for a client; `model` stands in where the upstream named none.

    Its id is built from `trace_id` (SPEC 1.4), so it is never used twice.
    """
    message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
    texts: list[str] = []
    refusals: list[str] = []
    sealed: list[SealedThinking] = []
    calls: list[Any] = []
    proofs: list[str] = []  # of the message
    proof: str | None = None  # of the next call
    for part in answer.parts:
        if type(part) is ToolCall:
            calls.append(build_call(part, proof))
            proof = None
        elif type(part) is Text:
            texts.append(part.text)
        elif type(part) is Refusal:
            refusals.append(part.text)
        elif type(part) is SealedThinking:
            sealed.append(part)
        elif type(part) is RedactedThinking and part.place == "message":
            proofs.append(part.data)
        elif type(part) is RedactedThinking and part.place == "call":
            proof = part.data
    text, refusal = "".join(texts), "".join(refusals)
    if text or not (calls or refusal):
        message["content"] = text
    if refusal:
        message["refusal"] = refusal
    for part in answer.parts:
        if type(part) is Thinking and part.text:
            spelling = part.spelling or REASONING
            message[spelling] = message.get(spelling, "") + part.text
    if proofs:
        message.update(Gathered(proofs).members())
    if sealed:
        message["reasoning_details"] = [reasoning_detail(one.item, one.call_id, i) for i, one in enumerate(sealed)]
    if calls:
        message["tool_calls"] = calls
    body: dict[str, Any] = {
        "id": f"chatcmpl-{trace_id}",
        "object": "chat.completion",
        "created": created_s,
        "model": answer.model or model,
        "choices": [
            {
                "index": 0,
                "message": message,
                "logprobs": _joined(answer.logprobs),
                "finish_reason": FINISH_OUT[answer.finish or STOP],
            }
        ],
    }
    if answer.usage is not None and answer.usage.is_stated:
        body["usage"] = write_usage(answer.usage)
    return encode(body)


class Logprobs(msgspec.Struct):
    content: list[Raw] | None = None
    refusal: list[Raw] | None = None


LOGPROBS = msgspec.json.Decoder(Logprobs)


def _joined(slices: tuple[bytes, ...]) -> Any:
    """Return the log probabilities of all slices of a stream as one object."""
    if not slices:
        return None
    if len(slices) == 1:
        return Raw(slices[0])
    found = [LOGPROBS.decode(one) for one in slices]
    content = [raw for one in found for raw in one.content or ()]
    refusal = [raw for one in found for raw in one.refusal or ()]
    return {"content": content or None, "refusal": refusal or None}
