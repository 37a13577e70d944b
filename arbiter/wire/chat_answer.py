"""OpenAI Chat answers: the unary body <-> `model.Answer`; finish reasons and usage, which the streams share."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from arbiter import _speedups
from arbiter.errors import BadRequest, Garbled
from arbiter.model import Answer, Finish, Part, Refusal, Text, Thinking, ToolCall, Usage
from arbiter.wire import faults
from arbiter.wire.chat_build import build_call
from arbiter.wire.chat_parse import REASONING, parse_call, parse_part, spoken_reasoning
from arbiter.wire.json import ABSENT, encode, present

FINISH_IN = {
    "stop": Finish.STOP,
    "length": Finish.LENGTH,
    "tool_calls": Finish.TOOL_CALLS,
    "function_call": Finish.TOOL_CALLS,
    "content_filter": Finish.CONTENT_FILTER,
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


class _Said(msgspec.Struct):
    content: str | list[Raw] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: Raw = ABSENT
    tool_calls: list[Raw] | None = None


class _Choice(msgspec.Struct):
    message: _Said
    index: int = 0
    finish_reason: str | None = None
    logprobs: Raw = ABSENT


class _Body(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    choices: list[_Choice] | None = None
    usage: Raw = ABSENT
    error: Raw = ABSENT


_BODY = msgspec.json.Decoder(_Body)


def finish_of(word: str, has_calls: bool) -> Finish:
    """Return what a finish reason means. A server that called and says `stop` meant the calls, and the reverse."""
    finish = FINISH_IN.get(word, Finish.STOP)
    if has_calls and finish is Finish.STOP:
        return Finish.TOOL_CALLS
    if not has_calls and finish is Finish.TOOL_CALLS:
        return Finish.STOP
    return finish


def read_usage(raw: bytes | None) -> Usage | None:
    """Return a usage object in neutral counts, None where it is none."""
    found = _speedups.usage.chat(raw) if raw is not None else None
    return Usage(*found) if found is not None else None


def write_usage(usage: Usage) -> dict[str, Any]:
    """Return usage as this format counts: the prompt includes what was cached. A number it demands is 0 if unknown."""
    prompt, output = usage.all_input(), usage.output
    total = usage.total if usage.total is not None else (prompt or 0) + (output or 0)
    built: dict[str, Any] = {"prompt_tokens": prompt or 0, "completion_tokens": output or 0, "total_tokens": total}
    prompt_details = {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write}
    if usage.cache_read is not None or usage.cache_write is not None:
        built["prompt_tokens_details"] = {k: v for k, v in prompt_details.items() if v is not None}
    if usage.reasoning is not None:
        built["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning}
    return built


def parse_answer(body: bytes) -> Answer:
    """Return the upstream's unary answer.

    Errors: Garbled where it is none of this format; InStreamError where a 200 holds an error object.
    """
    try:
        found = _BODY.decode(body)
        if not found.choices:
            if present(found.error) is not None:
                raise faults.in_stream(body)
            raise Garbled("the upstream's answer has no choices")
        choice = found.choices[0]
        parts = tuple(_parts(choice.message))
    except (BadRequest, msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise Garbled(f"the upstream's answer is no chat completion: {error}") from error
    logprobs = present(choice.logprobs)
    return Answer(
        id=found.id or None,
        model=found.model or None,
        parts=parts,
        finish=finish_of(choice.finish_reason or "stop", any(isinstance(part, ToolCall) for part in parts)),
        usage=read_usage(present(found.usage)),
        logprobs=(logprobs,) if logprobs is not None else (),
    )


def _parts(said: _Said) -> list[Part]:
    parts: list[Part] = []
    spelling, reasoning = spoken_reasoning(said.reasoning_content, said.reasoning)
    if reasoning:
        parts.append(Thinking(reasoning, spelling=spelling))
    if isinstance(said.content, str):
        parts += [Text(said.content)] if said.content else []
    elif said.content is not None:
        parts += [parse_part(raw, "choices[0].message.content.") for raw in said.content]
    if said.refusal:
        parts.append(Refusal(said.refusal))
    return parts + [parse_call(raw, "choices[0].message.tool_calls.") for raw in said.tool_calls or ()]


def write_answer(answer: Answer, trace_id: str, model: str, created_s: int) -> bytes:
    """Return the unary body for a client. Its id is built from `trace_id` (SPEC 1.4), so it is never used twice."""
    message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
    text = answer.text()
    refusal = "".join(part.text for part in answer.parts if isinstance(part, Refusal))
    calls = [build_call(part) for part in answer.parts if isinstance(part, ToolCall)]
    if text or not (calls or refusal):
        message["content"] = text
    if refusal:
        message["refusal"] = refusal
    for part in answer.parts:
        if isinstance(part, Thinking):
            spelling = part.spelling or REASONING
            message[spelling] = message.get(spelling, "") + part.text
    if calls:
        message["tool_calls"] = calls
    body: dict[str, Any] = {
        "id": f"chatcmpl-{trace_id}",
        "object": "chat.completion",
        "created": created_s,
        "model": model,
        "choices": [
            {
                "index": 0,
                "message": message,
                "logprobs": _joined(answer.logprobs),
                "finish_reason": FINISH_OUT[answer.finish or Finish.STOP],
            }
        ],
    }
    if answer.usage is not None:
        body["usage"] = write_usage(answer.usage)
    return encode(body)


class _Logprobs(msgspec.Struct):
    content: list[Raw] | None = None
    refusal: list[Raw] | None = None


_LOGPROBS = msgspec.json.Decoder(_Logprobs)


def _joined(slices: tuple[bytes, ...]) -> Any:
    """Return the log probabilities of all slices of a stream as one object."""
    if not slices:
        return None
    if len(slices) == 1:
        return Raw(slices[0])
    found = [_LOGPROBS.decode(one) for one in slices]
    content = [raw for one in found for raw in one.content or ()]
    refusal = [raw for one in found for raw in one.refusal or ()]
    return {"content": content or None, "refusal": refusal or None}
