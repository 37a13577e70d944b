"""What it costs to learn what a whole answer says of itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import ModuleType

import pytest

Twin = Callable[[str], ModuleType]
TEXT = "Some words that a model may say,\nand some more. " * 16
ANSWERS = {
    "chat": {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": TEXT}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 250, "completion_tokens": 200, "total_tokens": 450},
    },
    "messages": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": TEXT}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 250, "output_tokens": 200},
    },
    "responses": {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "model": "m",
        "output": [{"type": "message", "id": "msg_1", "content": [{"type": "output_text", "text": TEXT}]}],
        "usage": {"input_tokens": 250, "output_tokens": 200, "total_tokens": 450},
    },
}


@pytest.mark.parametrize("format", ANSWERS)
def test_answer(twin: Twin, measure: Callable[..., None], format: str) -> None:
    read = getattr(twin("answers"), format)
    body = json.dumps(ANSWERS[format], separators=(",", ":")).encode()
    measure(lambda: read(body), units=1)
