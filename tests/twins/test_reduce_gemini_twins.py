"""What each chunk of a Gemini stream means to the side reducer, on both sides."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from tests.twins.streams import Story, compact

SPENT = {"promptTokenCount": 9, "candidatesTokenCount": 4, "thoughtsTokenCount": 3, "totalTokenCount": 16}


def chunk(*parts: dict[str, Any], reason: str | None = None, usage: Any = None, **members: Any) -> str:
    candidate: dict[str, Any] = {"content": {"parts": list(parts), "role": "model"}}
    if reason is not None:
        candidate["finishReason"] = reason
    told: dict[str, Any] = {"candidates": [{**candidate, "index": 0}], **members}
    if usage is not None:
        told["usageMetadata"] = usage
    return f"data: {compact({**told, 'modelVersion': 'm-1', 'responseId': 'r-1'})}\r\n\r\n"


STREAM = "".join(
    [
        chunk({"text": "Hm", "thought": True}, usage={"promptTokenCount": 9}),
        chunk({"text": "Grüße 🌍"}, {"text": "!"}),
        chunk({"functionCall": {"name": "ls", "args": {"path": "/"}}, "thoughtSignature": "AAAA"}),
        chunk({"text": ""}, reason="STOP", usage=SPENT),
    ]
)


def test_a_gemini_stream_is_told(reduce: ModuleType) -> None:
    """Usage is the last chunk's; nothing ends the stream, and no mark bars its way."""
    story = Story(reduce, "GeminiTap", STREAM)
    assert story.kinds == ["FINISH"]
    assert story.facts == {
        "boundary": len(STREAM.encode()),
        "offset": len(STREAM.encode()),
        "events": 4,
        "pings": 0,
        "text_bytes": len("Grüße 🌍!".encode()),
        "thinking_bytes": 2,
        "argument_bytes": len('{"path":"/"}'),
        "finish": b"STOP",
        "finished": True,
        "done": False,
        "errored": False,
        "tool_names": [b"ls"],
        "response_id": b"r-1",
        "model": b"m-1",
        "usage": compact(SPENT).encode(),
    }


@pytest.mark.parametrize(
    ("events", "expected", "finish"),
    [
        ([chunk({"text": "a"}, reason="STOP"), chunk({"text": "b"}, reason="MAX_TOKENS")], ["FINISH"], b"MAX_TOKENS"),
        ([chunk({"text": "a"}, reason="FINISH_REASON_UNSPECIFIED")], [], None),
        (['data: {"promptFeedback":{"blockReason":"SAFETY"}}\n\n'], ["FINISH"], b"SAFETY"),
        ([chunk({"text": "a"}), 'data: {"error":{"code":503,"message":"x"}}\n\n'], ["ERROR"], None),
        (['data: {"usageMetadata":{"promptTokenCount":1}}\n\n'], [], None),
        (['data: {"modelStatus":{}}\n\n', "data: [DONE]\n\n", "data: 7\n\n"], ["FOREIGN"] * 3, None),
        (["data: {]\n\n"], ["MALFORMED"], None),
    ],
)
def test_what_a_chunk_means(reduce: ModuleType, events: list[str], expected: list[str], finish: bytes | None) -> None:
    story = Story(reduce, "GeminiTap", "".join(events))
    assert (story.kinds, story.facts["finish"]) == (expected, finish)
