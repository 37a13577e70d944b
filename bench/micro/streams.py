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


def _block_delta(delta: dict[str, Any]) -> bytes:
    return b"event: content_block_delta\n" + _data({"type": "content_block_delta", "index": 0, "delta": delta})


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
LARGE = _chunk({"content": "QUJD" * (1 << 19)})
"""One event of 2 MB."""


def joined(events: list[bytes], count: int) -> list[bytes]:
    """The same events, `count` to a read."""
    return [b"".join(events[at : at + count]) for at in range(0, len(events), count)]


def sliced(event: bytes, size: int = 65536) -> list[bytes]:
    """One event in reads of `size` bytes."""
    return [event[at : at + size] for at in range(0, len(event), size)]
