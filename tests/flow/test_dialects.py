"""Types of provider that stand around a format in their own way, through a whole gateway over real sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.client import ask, run
from tests.fakes.gateway import Gateway, free_port, until
from tests.fakes.origin import Origin, answer
from tests.fakes.wires import CHAT, JSON, MESSAGES, sse

KEY = "sk-the-key-of-the-upstream"
PROCESSING = b": OPENROUTER PROCESSING\n\n"


class Clouds(Gateway):
    """One provider per type, all at `upstream`."""

    def __init__(self, folder: Path) -> None:
        self.upstream = free_port()
        at = f"http://127.0.0.1:{self.upstream}"
        more = {"key": KEY, "retry": {"attempts": 1}}
        providers = {
            "azure": {**more, "type": "azure", "endpoint": at, "models": ["deployed"]},
            "dated": {**more, "type": "azure", "endpoint": at, "api_version": "2024-10-21", "models": ["old"]},
            "router": {**more, "type": "openrouter", "endpoint": f"{at}/api/v1", "models": ["a/b"]},
        }
        super().__init__({"providers": providers}, folder)


@pytest.fixture(scope="module")
def clouds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clouds]:
    with Clouds(tmp_path_factory.mktemp("clouds")) as gateway:
        yield gateway


def chunk(**members: Any) -> bytes:
    base = {"id": "gen-1", "object": "chat.completion.chunk", "created": 1, "model": "a/b", "provider": "P"}
    return b"data: " + json.dumps({**base, **members}).encode() + b"\n\n"


def delta(finish: str | None = None, **said: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": said, "finish_reason": finish, "native_finish_reason": finish}]}


@pytest.mark.parametrize("ours", [CHAT, MESSAGES], ids=str)
@pytest.mark.parametrize(
    ("model", "target"),
    [
        ("deployed", "/openai/v1/chat/completions"),
        ("old", "/openai/deployments/old/chat/completions?api-version=2024-10-21"),
    ],
)
def test_azure_is_asked_where_it_listens(clouds: Clouds, ours: Any, model: str, target: str) -> None:
    """Its first chunk tells of the filter and of nothing else; the client gets a whole stream all the same."""

    async def main() -> None:
        filtered = [{"prompt_index": 0, "content_filter_results": {"hate": {"filtered": False}}}]
        script = sse(
            chunk(choices=[], id="", model="", prompt_filter_results=filtered),
            chunk(**delta(role="assistant", content="Hi")),
            chunk(**delta("stop")),
            chunk(choices=[], usage={"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}),
            b"data: [DONE]\n\n",
        )
        async with Origin(script, port=clouds.upstream) as origin:
            found = await ask(clouds.port, ours.path, ours.ask(stream=True, model=model))
        (sent,) = origin.requests
        assert (sent.target, sent.header("api-key"), sent.header("authorization")) == (target, KEY, None)
        assert ours.text(found.body) == "Hi" and ours.terminal in found.body
        (attempt,) = await asyncio.to_thread(until, lambda: clouds.row(found.trace_id)["attempts"], "its row")
        assert (attempt["input_tokens"], attempt["output_tokens"]) == (7, 3)

    run(main)


def test_what_azures_filter_refuses_is_the_prompts_fault(clouds: Clouds) -> None:
    """SPEC 4.8: told as such to a client of either format, and not tried again."""
    error = {"message": "filtered", "type": None, "param": "prompt", "code": "content_filter", "status": 400}
    body = json.dumps({"error": {**error, "innererror": {"code": "ResponsibleAIPolicyViolation"}}}).encode()

    async def main() -> None:
        async with Origin(answer(body, status=400, headers=[JSON]), port=clouds.upstream) as origin:
            for wire in (CHAT, MESSAGES):
                found = await ask(clouds.port, wire.path, wire.ask(model="deployed"))
                assert (found.status, wire.complaint(found)) == (400, "filtered")
                row = clouds.row(found.trace_id)
                assert row["error_class"] == "content_policy"
        assert len(origin.requests) == 2

    run(main)


@pytest.mark.parametrize("ours", [CHAT, MESSAGES], ids=str)
def test_openrouters_own_figure_is_what_the_answer_cost(clouds: Clouds, ours: Any) -> None:
    """SPEC 6.6a, 9.4: asked for, read to the picodollar; comments between events reach nobody as anything else."""

    async def main() -> None:
        usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10, "cost": 0.00014, "is_byok": False}
        script = sse(
            PROCESSING,
            PROCESSING,
            chunk(**delta(role="assistant", content="", reasoning="Hm.")),
            chunk(**delta(content="Hi")),
            chunk(**delta("stop", content="")),
            chunk(**delta("stop", content=""), usage={**usage, "cost_details": {"upstream_inference_cost": None}}),
            b"data: [DONE]\n\n",
        )
        app = [("http-referer", "https://app.test"), ("x-title", "App")]
        async with Origin(script, port=clouds.upstream) as origin:
            found = await ask(clouds.port, ours.path, ours.ask(stream=True, model="a/b"), headers=app)
        (sent,) = origin.requests
        assert json.loads(sent.body)["usage"] == {"include": True}
        assert (sent.header("http-referer"), sent.header("x-title")) == ("https://app.test", "App")
        assert (sent.target, sent.header("authorization")) == ("/api/v1/chat/completions", f"Bearer {KEY}")
        assert found.body.count(b'"Hi"') == found.body.count(b"Hm.") == 1 and ours.terminal in found.body
        (attempt,) = await asyncio.to_thread(until, lambda: clouds.row(found.trace_id)["attempts"], "its row")
        assert (attempt["provider_cost_pd"], attempt["cost_source"]) == (140_000_000, "provider")

    run(main)


@pytest.mark.parametrize("ours", [CHAT, MESSAGES], ids=str)
def test_an_error_in_openrouters_stream_is_told_as_the_clients_own(clouds: Clouds, ours: Any) -> None:
    """Its 200 was too early: the provider behind it broke off, and says so in a chunk with a finish reason."""

    async def main() -> None:
        error = {"code": 502, "message": "Provider returned error", "metadata": {"raw": "it fell over"}}
        broken = chunk(error=error, **delta("error", content=""))
        script = sse(PROCESSING, chunk(**delta(role="assistant", content="Hi")), broken)
        async with Origin(script, port=clouds.upstream):
            found = await ask(clouds.port, ours.path, ours.ask(stream=True, model="a/b"))
        assert ours.told(found) and "Provider returned error" in str(ours.told(found))
        assert ours.terminal not in found.body

    run(main)
