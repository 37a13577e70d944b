"""Responses streams that fail in the middle: their end belongs to what the client has seen of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes import grammar
from tests.fakes.client import Answer, ask, run
from tests.fakes.origin import CLOSE, Origin, chunk
from tests.fakes.wires import CHAT, RESPONSES, Front, Wire, begun

TOOLS = [{"type": "function", "name": "ls", "description": "Lists files.", "parameters": {"type": "object"}}]


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    with Front(tmp_path_factory.mktemp("broken")) as made:
        yield made


def numbered(*, model: str = "served") -> list[bytes]:
    """A stream as OpenAI sends it, as far as its first words."""
    response = {"id": "resp_up", "object": "response", "created_at": 1700000001, "model": model, "output": []}
    item = {"id": "msg_up", "type": "message", "status": "in_progress", "role": "assistant", "content": []}
    part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    at: dict[str, Any] = {"item_id": "msg_up", "output_index": 0, "content_index": 0}
    said: list[dict[str, Any]] = [
        {"type": "response.created", "response": {**response, "status": "in_progress"}},
        {"type": "response.in_progress", "response": {**response, "status": "in_progress"}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.content_part.added", **at, "part": part},
        {"type": "response.output_text.delta", **at, "delta": 'Hel "sequence_number":99', "logprobs": []},
    ]
    return [
        f"event: {one['type']}\ndata: {json.dumps({**one, 'sequence_number': number})}\n\n".encode()
        for number, one in enumerate(said)
    ]


def told(answer: Answer) -> list[dict[str, Any]]:
    return [json.loads(data) for _, data in answer.events]


async def broken(front: Front, script: Any, wire: Wire) -> Answer:
    async with Origin(script, port=front.upstream):
        body = RESPONSES.ask(stream=True, tools=TOOLS, instructions="Be terse.") | {"model": wire.model}
        found = await ask(front.port, "/v1/responses", body)
    front.forget()
    return found


@pytest.mark.parametrize("whole", [True, False], ids=["one read", "many reads"])
def test_a_relayed_stream_ends_under_its_own_id_and_number(front: Front, whole: bool) -> None:
    """SPEC 6.1, 6.2: the failed response is the one that began, and no number comes twice."""

    async def main() -> None:
        events = numbered()
        later = [] if whole else [piece for one in events[1:] for piece in (0.02, chunk(one))]
        found = await broken(front, [begun(*events[: len(events) if whole else 1]), *later, CLOSE], RESPONSES)
        assert found.status == 200
        events_told = told(found)
        assert [event["sequence_number"] for event in events_told] == list(range(len(events) + 2))
        assert [event["type"] for event in events_told[-2:]] == ["error", "response.failed"]
        response = events_told[-1]["response"]
        assert (response["id"], response["model"], response["created_at"]) == ("resp_up", "served", 1700000001)
        assert (response["status"], response["error"]["code"]) == ("failed", "server_error")
        assert response["instructions"] == "Be terse." and response["tools"][0]["name"] == "ls"

    run(main)


def test_an_upstreams_own_error_is_followed_by_the_response_that_failed(front: Front) -> None:
    """SDKs raise the one; agents read the other, which is dropped or missing behind the first."""
    error = {"type": "error", "code": "rate_limit_exceeded", "message": "slow down", "param": None}

    async def main() -> None:
        events = numbered()
        last = f"event: error\ndata: {json.dumps({**error, 'sequence_number': len(events)})}\n\n".encode()
        found = await broken(front, begun(*events, last), RESPONSES)
        events_told = told(found)
        assert events_told[-2] == {**error, "sequence_number": len(events)}
        assert [event["sequence_number"] for event in events_told] == list(range(len(events) + 2))
        response = events_told[-1]["response"]
        assert (events_told[-1]["type"], response["id"]) == ("response.failed", "resp_up")
        assert response["error"] == {"code": "rate_limit_exceeded", "message": "slow down"}

    run(main)


def test_a_response_that_failed_passes_as_it_came(front: Front) -> None:
    failed = {"id": "resp_up", "status": "failed", "error": {"code": "server_error", "message": "it died"}}
    event = {"type": "response.failed", "sequence_number": 5, "response": failed}

    async def main() -> None:
        last = f"event: response.failed\ndata: {json.dumps(event)}\n\n".encode()
        found = await broken(front, begun(*numbered(), last), RESPONSES)
        assert told(found)[-1] == event and len(found.events) == 6

    run(main)


def test_a_stream_without_numbers_is_counted(front: Front) -> None:
    """llama.cpp sends none; its client was told of so many events."""

    async def main() -> None:
        found = await broken(front, [begun(*RESPONSES.opening("Hel")), CLOSE], RESPONSES)
        *before, error, failed = told(found)
        assert (error["sequence_number"], failed["sequence_number"]) == (len(before), len(before) + 1)
        assert failed["response"]["id"] == "resp_1"

    run(main)


def test_a_translated_stream_ends_as_it_began(front: Front) -> None:
    """The writer that told the beginning tells the end, with the items that were whole."""

    async def main() -> None:
        found = await broken(front, [begun(*CHAT.opening("Hel")), CLOSE], CHAT)
        assert grammar.responses(found.body).ending == "error"
        events = told(found)
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
        assert events[-1]["response"]["id"] == events[0]["response"]["id"]
        assert events[-1]["response"]["tools"] == [{**TOOLS[0], "strict": True}]

    run(main)
