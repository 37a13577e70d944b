"""Clients of OpenAI's Responses on upstreams of other formats, and the reverse, through a whole gateway."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.fakes import grammar
from tests.fakes.client import Answer, Ending, ask, run
from tests.fakes.gateway import Gateway, free_port
from tests.fakes.origin import Origin, Steps, answer
from tests.fakes.wires import CHAT, JSON, MESSAGES, Wire, begun, sse

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
PATH = "/v1/responses"
PATCH = {"type": "custom", "name": "apply_patch", "description": "Edits files."}
GROUP = {
    "type": "namespace",
    "name": "agents",
    "description": "d",
    "tools": [{"type": "function", "name": "close", "parameters": {"type": "object"}, "strict": False}],
}
on_each = pytest.mark.parametrize("theirs", [CHAT, MESSAGES], ids=str)
of_each = pytest.mark.parametrize("ours", [CHAT, MESSAGES], ids=str)


class Rig(Gateway):
    """A gateway with one provider per API at `upstream`."""

    def __init__(self, folder: Any) -> None:
        self.upstream = free_port()
        at = f"http://127.0.0.1:{self.upstream}"
        more = {"key": "sk-upstream", "retry": {"attempts": 1}}
        providers = {
            "chat": {
                "type": "openai",
                "endpoint": f"{at}/v1",
                "models": ["chat-model"],
                "responses_api": "transcode",
                **more,
            },
            "messages": {"type": "anthropic", "endpoint": at, "models": ["messages-model"], **more},
            "responses": {
                "type": "openai",
                "endpoint": f"{at}/v1",
                "models": [{"id": "resp-model", "api": "responses"}],
                **more,
            },
        }
        super().__init__({"providers": providers}, folder)

    async def crossed(self, path: str, script: Steps, body: dict[str, Any]) -> tuple[Answer, Any]:
        """One request; its answer, and what the upstream got, None where it was not asked."""
        async with Origin(script, port=self.upstream) as origin:
            found = await ask(self.port, path, body)
        return found, origin.requests[0] if origin.requests else None


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with Rig(tmp_path_factory.mktemp("rig")) as gateway:
        yield gateway


def asked(theirs: Wire, **members: Any) -> dict[str, Any]:
    return {"model": theirs.model, "input": "hello", **members}


def told(found: Answer) -> list[dict[str, Any]]:
    """The events of a stream, each as the vendor's own types take it."""
    events = [json.loads(data) for _, data in grammar.frames(found.body)]
    for event in events:
        EVENT.validate_python(event)
    return events


@on_each
def test_a_stream_crosses_event_by_event_and_its_row_says_what_it_was(rig: Rig, theirs: Wire) -> None:
    async def main() -> None:
        script = sse(*theirs.events("Hel", "lo ", '✓ \\u00e9 "q"\n'))
        found, sent = await rig.crossed(PATH, script, asked(theirs, stream=True, instructions="Be terse"))
        assert (found.status, found.ending) == (200, Ending.CLEAN)
        assert grammar.responses(found.body).blocks == [("output_text", 'Hello ✓ \\u00e9 "q"\n')]
        events = told(found)
        deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
        assert deltas == ["Hel", "lo ", '✓ \\u00e9 "q"\n']
        response = events[-1]["response"]
        assert (response["id"], response["model"]) == (f"resp_{found.trace_id}", "served")
        assert response["instructions"] == "Be terse" and response["usage"]["output_tokens"] == 3
        assert sent.target == theirs.upstream_path
        assert found.header("x-arbiter-fidelity") == "translated"
        row = rig.row(found.trace_id)
        (attempt,) = row["attempts"]
        assert (row["outcome"], row["format_in"], row["endpoint"]) == ("ok", "openai-responses", "responses")
        assert (attempt["lane"], attempt["input_tokens"], attempt["output_tokens"]) == ("translated", 7, 3)
        assert attempt["output_bytes"] == len('Hello ✓ \\u00e9 "q"\n'.encode())

    run(main)


@on_each
@pytest.mark.parametrize("stream", [False, True], ids=["unary", "stream"])
def test_an_answer_in_one_piece_crosses(rig: Rig, theirs: Wire, stream: bool) -> None:
    """As a response, or as the stream that was asked for."""

    async def main() -> None:
        body = asked(theirs, stream=stream, temperature=0.5)
        found, sent = await rig.crossed(PATH, answer(theirs.answer("hällo"), headers=[JSON]), body)
        assert found.status == 200
        if stream:
            assert grammar.responses(found.body).blocks == [("output_text", "hällo")]
        else:
            response = Response.model_validate_json(found.body)
            assert response.output_text == "hällo" and response.id == f"resp_{found.trace_id}"
            assert response.temperature == 0.5 and response.usage is not None and response.usage.input_tokens == 7
        assert json.loads(sent.body)["temperature"] == 0.5

    run(main)


def test_free_text_and_groups_are_the_clients_own_again(rig: Rig) -> None:
    """Codex behind an Anthropic upstream: its patches are free text, its tools have their groups."""

    async def main() -> None:
        patch = '*** Begin Patch\n+"é"\n*** End Patch'
        slices = [json.dumps({"input": patch})[i : i + 7] for i in range(0, 60, 7)]
        events = [MESSAGES.events()[0]]
        for index, (name, parts) in enumerate((("apply_patch", slices), ("agents__close", ["{}"]))):
            block = {"type": "tool_use", "id": f"toolu_{index}", "name": name, "input": {}}
            events.append(_event("content_block_start", index=index, content_block=block))
            events += [
                _event("content_block_delta", index=index, delta={"type": "input_json_delta", "partial_json": one})
                for one in parts
            ]
            events.append(_event("content_block_stop", index=index))
        events += [_event("message_delta", delta={"stop_reason": "tool_use"}), _event("message_stop")]
        tools = [PATCH, GROUP, {"type": "web_search"}]
        found, sent = await rig.crossed(PATH, sse(*events), asked(MESSAGES, stream=True, tools=tools))
        output = told(found)[-1]["response"]["output"]
        assert [(item["type"], item["call_id"], item["name"]) for item in output] == [
            ("custom_tool_call", "toolu_0", "apply_patch"),
            ("function_call", "toolu_1", "close"),
        ]
        assert output[0]["input"] == patch and output[1]["namespace"] == "agents"
        assert [tool["name"] for tool in json.loads(sent.body)["tools"]] == ["apply_patch", "agents__close"]
        history = [
            {"role": "user", "content": "hello"},
            *output,
            {"type": "custom_tool_call_output", "call_id": "toolu_0", "output": "ok"},
            {"type": "function_call_output", "call_id": "toolu_1", "output": "ok"},
        ]
        script = answer(MESSAGES.answer(), headers=[JSON])
        found, sent = await rig.crossed(PATH, script, asked(MESSAGES, tools=tools, input=history))
        assert found.status == 200
        _, said, results = json.loads(sent.body)["messages"]
        assert [block["input"] for block in said["content"]] == [{"input": patch}, {}]
        assert [block["tool_use_id"] for block in results["content"]] == ["toolu_0", "toolu_1"]

    run(main)


def _event(kind: str, **members: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **members})}\n\n".encode()


@on_each
def test_a_stream_that_fails_is_a_response_that_failed(rig: Rig, theirs: Wire) -> None:
    """No client can mistake it for one that was completed (SPEC 2.7)."""

    async def main() -> None:
        script = begun(*theirs.opening("Hel"), theirs.error_event("the engine died"))
        found, _ = await rig.crossed(PATH, script, asked(theirs, stream=True))
        judged = grammar.responses(found.body)
        assert judged.ending == "error" and judged.blocks == [("output_text", "Hel")]
        events = told(found)
        assert events[-2]["message"] == "the engine died" == events[-1]["response"]["error"]["message"]
        assert found.ending is not Ending.CLEAN
        assert rig.row(found.trace_id)["outcome"] != "ok"

    run(main)


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"tools": [{"type": "code_interpreter"}]}, "tools[0]"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0]"),
        ({"input": []}, "input"),
    ],
)
def test_what_cannot_be_told_is_refused_with_its_place(rig: Rig, members: dict[str, Any], param: str) -> None:
    async def main() -> None:
        found, sent = await rig.crossed(PATH, answer(b"{}"), asked(CHAT, **members))
        assert found.status == 400 and sent is None
        error = found.json["error"]
        assert error["param"] == param and error["message"].startswith(param)
        if param == "previous_response_id":
            assert "responses_api: native" in error["message"]

    run(main)


# --- The reverse ------------------------------------------------------------------------------------------------------

MESSAGE = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
HEAD = {"id": "resp_1", "object": "response", "model": "served"}
USAGE = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}


def whole(text: str) -> dict[str, Any]:
    said = {**MESSAGE, "content": [{"type": "output_text", "text": text, "annotations": []}]}
    return {**HEAD, "status": "completed", "output": [said], "usage": USAGE}


@of_each
@pytest.mark.parametrize("stream", [False, True], ids=["unary", "stream"])
def test_clients_of_other_formats_have_a_responses_upstream(rig: Rig, ours: Wire, stream: bool) -> None:
    async def main() -> None:
        events = [
            _event("response.created", response={**HEAD, "status": "in_progress"}),
            _event("response.output_item.added", output_index=0, item={**MESSAGE, "content": []}),
            *(
                _event("response.output_text.delta", output_index=0, content_index=0, delta=one)
                for one in ("häl", "lo")
            ),
            _event("response.completed", response=whole("hällo")),
        ]
        script = sse(*events) if stream else answer(json.dumps(whole("hällo")).encode(), headers=[JSON])
        found, sent = await rig.crossed(ours.path, script, {**ours.ask(stream=stream), "model": "resp-model"})
        assert found.status == 200
        assert sent.target == "/v1/responses"
        body = json.loads(sent.body)
        assert body["store"] is False and body["input"] == [{"role": "user", "content": "hello"}]
        if stream:
            assert ours.text(found.body) == "hällo" and ours.terminal in found.body
        else:
            assert "hällo" in found.body.decode() and b"served" in found.body
        (attempt,) = rig.row(found.trace_id)["attempts"]
        assert (attempt["lane"], attempt["format_out"]) == ("translated", "openai-responses")
        assert (attempt["input_tokens"], attempt["output_tokens"], attempt["usage_source"]) == (7, 3, "provider")
        assert attempt["finish_reason"] == "completed"

    run(main)


@of_each
def test_a_response_that_failed_is_an_error_to_them(rig: Rig, ours: Wire) -> None:
    """Before anything was said it has the status that it would have had (rsp-007)."""

    async def main() -> None:
        error = {"code": "rate_limit_exceeded", "message": "Tokens per minute exceeded"}
        failed = {**HEAD, "status": "failed", "output": [], "error": error}
        script = sse(_event("response.created", response=HEAD), _event("response.failed", response=failed))
        found, _ = await rig.crossed(ours.path, script, {**ours.ask(stream=True), "model": "resp-model"})
        said = ours.complaint(found) if found.status != 200 else ours.told(found)
        assert said == "Tokens per minute exceeded"

    run(main)
