"""Servers that give two parallel calls one id: both are told, and each has its own result, also in another format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.fakes.client import ask, run
from tests.fakes.gateway import Gateway, free_port
from tests.fakes.origin import Origin, answer
from tests.fakes.wires import CHAT, JSON, RESPONSES, Front

CALLS = [
    {"id": "call_1", "type": "function", "function": {"name": name, "arguments": json.dumps({"of": name})}}
    for name in ("first", "second")
]


def test_both_calls_of_a_whole_answer_reach_a_client_of_another_format(front: Front) -> None:
    """In a stream they are told apart by their index; a whole answer has them as a list, mostly without."""
    message = {"role": "assistant", "content": None, "tool_calls": CALLS}
    told = {**json.loads(CHAT.answer()), "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}

    async def main() -> None:
        async with Origin(answer(json.dumps(told).encode(), headers=[JSON]), port=front.upstream):
            found = await ask(front.port, RESPONSES.path, {**RESPONSES.ask(), "model": CHAT.model})
        calls = [item for item in found.json["output"] if item["type"] == "function_call"]
        assert [(call["name"], json.loads(call["arguments"])) for call in calls] == [
            ("first", {"of": "first"}),
            ("second", {"of": "second"}),
        ]
        assert len({call["call_id"] for call in calls}) == 2

    run(main)


def test_each_result_finds_its_call_at_an_upstream_of_responses(tmp_path: Path) -> None:
    """They go by their order, and what nobody answered says so; a later turn may use the id again."""
    talk: list[dict[str, Any]] = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": CALLS},
        {"role": "tool", "tool_call_id": "call_1", "content": "of the first"},
        {"role": "tool", "tool_call_id": "call_1", "content": "of the second"},
        {"role": "assistant", "content": None, "tool_calls": CALLS},
        {"role": "tool", "tool_call_id": "call_1", "content": "again"},
        {"role": "user", "content": "and now?"},
    ]

    async def main() -> None:
        async with Origin(answer(RESPONSES.answer(), headers=[JSON]), port=port) as origin:
            found = await ask(gateway.port, CHAT.path, CHAT.ask(model="by-responses", messages=talk))
            sent = json.loads(origin.requests[0].body)["input"]
        assert found.status == 200
        called = [item["call_id"] for item in sent if item.get("type") == "function_call"]
        results = [(one["call_id"], one["output"]) for one in sent if one.get("type") == "function_call_output"]
        assert called == ["call_1", "call_1_2"] * 2
        assert results[:2] == [("call_1", "of the first"), ("call_1_2", "of the second")]
        assert sorted(id for id, _ in results[2:]) == ["call_1", "call_1_2"]
        assert dict(results[2:])["call_1"] == "again"

    port = free_port()
    models = [{"id": "by-responses", "api": "responses"}]
    provider = {"type": "openai", "endpoint": f"http://127.0.0.1:{port}/v1", "key": "sk-1", "models": models}
    with Gateway({"providers": {"openai": provider}}, tmp_path) as gateway:
        run(main)
