"""Events of the shapes and sizes that providers stream today."""

from __future__ import annotations

import json
from typing import Any

WORDS = ["", "The", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog,", "then", "it", "rests:", "très"]


def _data(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def _chunk(delta: dict[str, Any]) -> bytes:
    return _data(
        {
            "id": "chatcmpl-B9MHDbslfkBeAs8l4bebGdFOJ6PeG",
            "object": "chat.completion.chunk",
            "created": 1741570283,
            "model": "gpt-4.1-2025-04-14",
            "service_tier": "default",
            "system_fingerprint": "fp_fc9f1d7035",
            "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}],
            "usage": None,
            "obfuscation": "xYz0ABcd12",
        }
    )


def _event(type: str, **members: Any) -> bytes:
    return f"event: {type}\n".encode() + _data({"type": type, **members})


def _block_delta(delta: dict[str, Any]) -> bytes:
    return _event("content_block_delta", index=0, delta=delta)


def _cycled(events: list[bytes]) -> list[bytes]:
    return (events * 64)[:64]


CHAT = _cycled([_chunk({"content": f" {word}"}) for word in WORDS])
CHAT_ARGUMENTS = _cycled(
    [_chunk({"tool_calls": [{"index": 0, "function": {"arguments": f'{word}\\":\\"'}}]}) for word in WORDS]
)
MESSAGES = _cycled([_block_delta({"type": "text_delta", "text": f" {word} and"}) for word in WORDS])
MESSAGES_ARGUMENTS = _cycled(
    [_block_delta({"type": "input_json_delta", "partial_json": f'{{"{word}": "\n'}) for word in WORDS]
)
GEMINI = _cycled(
    [
        _data(
            {
                "candidates": [{"content": {"parts": [{"text": f" {word} and more"}], "role": "model"}, "index": 0}],
                "usageMetadata": {
                    "promptTokenCount": 1014,
                    "candidatesTokenCount": 12,
                    "totalTokenCount": 1026,
                    "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 1014}],
                },
                "modelVersion": "gemini-2.5-flash",
                "responseId": "KZ0saP6bBd2PmtkPwYqUmAE",
            }
        )
        for word in WORDS
    ]
)
CHAT_REASONING = _cycled([_chunk({"reasoning_content": f" {word}"}) for word in WORDS])
MESSAGES_REASONING = _cycled([_block_delta({"type": "thinking_delta", "thinking": f" {word} and"}) for word in WORDS])
LARGE = _chunk({"content": "QUJD" * (1 << 19)})
"""One event of 2 MB."""


_FIRST_SLICE = '{"path": "'
_CHAT_CALL = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "run", "arguments": ""}}
_CHAT_SLICE = _chunk({"tool_calls": [{"index": 0, "function": {"arguments": _FIRST_SLICE}}]})
_MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude",
    "content": [],
    "stop_reason": None,
}
_OPENING = {
    "CHAT": _chunk({"role": "assistant", "content": ""}),
    "CHAT_REASONING": _chunk({"role": "assistant", "content": ""}),
    "CHAT_ARGUMENTS": _chunk({"role": "assistant", "tool_calls": [_CHAT_CALL]}) + _CHAT_SLICE,
    "MESSAGES": _event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
    "MESSAGES_REASONING": _event("content_block_start", index=0, content_block={"type": "thinking", "thinking": ""}),
    "MESSAGES_ARGUMENTS": _event(
        "content_block_start", index=0, content_block={"type": "tool_use", "id": "toolu_1", "name": "run", "input": {}}
    )
    + _block_delta({"type": "input_json_delta", "partial_json": _FIRST_SLICE}),
}
_ENDING = {
    "CHAT": _chunk({}).replace(b'"finish_reason":null', b'"finish_reason":"stop"')
    + _data({"id": "chatcmpl-1", "choices": [], "usage": {"prompt_tokens": 250, "completion_tokens": 200}})
    + b"data: [DONE]\n\n",
    "MESSAGES": _event("content_block_stop", index=0)
    + _event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 200})
    + _event("message_stop"),
}


def whole(kind: str, per_read: int) -> list[bytes]:
    """A stream from its first event to its last: 192 deltas of `kind`, `per_read` to a read."""
    format = kind.partition("_")[0]
    start = _event("message_start", message=_MESSAGE) if format == "MESSAGES" else b""
    return [start + _OPENING[kind], *joined(globals()[kind] * 3, per_read), _ENDING[format]]


def joined(events: list[bytes], count: int) -> list[bytes]:
    """The same events, `count` to a read."""
    return [b"".join(events[at : at + count]) for at in range(0, len(events), count)]


def sliced(event: bytes, size: int = 65536) -> list[bytes]:
    """One event in reads of `size` bytes."""
    return [event[at : at + size] for at in range(0, len(event), size)]
