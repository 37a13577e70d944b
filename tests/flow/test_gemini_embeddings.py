"""Google's embeddings through a whole gateway: `:embedContent` and `:batchEmbedContents` (SPEC 6.4, 6.6a)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.genai import Client, types
from google.genai.errors import ClientError

from tests.fakes.client import ask, run
from tests.fakes.origin import Origin, answer
from tests.fakes.wires import CHAT, GEMINI, JSON, MESSAGES, UPSTREAM_KEY, Front
from tests.flow.conftest import MakeFront
from tests.flow.test_capture import captured, conversation, on_disk, storage

ONE = b'{ "embedding": {"values": [1.0,-2.50e-3,0]}, "usageMetadata": {"promptTokenCount": 5} }'
SEVERAL = b'{"embeddings":[{"values":[1.0,2]},{"values":[ 0.10, 3]}]}'
OPENAIS = (
    b'{"object":"list","data":[{"index":1,"object":"embedding","embedding":[3.50, 4e-1]},'
    b'{"object":"embedding","index":0,"embedding":[1.0,-2.50e-3]}],"model":"served","usage":{"prompt_tokens":20}}'
)


@pytest.fixture
def genai(front: Front) -> Iterator[Client]:
    options = types.HttpOptions(base_url=front.url, timeout=20_000)
    with Client(api_key="nobody's", vertexai=False, http_options=options) as client:
        yield client


def at(model: str, *, batch: bool = False) -> str:
    return f"/v1beta/models/{model}:{'batchEmbedContents' if batch else 'embedContent'}"


def content(*texts: str) -> dict[str, Any]:
    return {"content": {"parts": [{"text": text} for text in texts]}}


def batch(*texts: str, model: str = GEMINI.model, **members: Any) -> dict[str, Any]:
    return {"requests": [{"model": f"models/{model}", **content(text), **members} for text in texts]}


def test_google_is_asked_as_it_came_and_answers_byte_for_byte(front: Front) -> None:
    """Under the gateway's key; one row, with what Google counted and a model of embeddings' no output."""

    async def main() -> None:
        body = {**content("a"), "taskType": "RETRIEVAL_QUERY", "mine": [1.50]}
        async with Origin(answer(ONE, headers=[JSON]), port=front.upstream) as origin:
            found = await ask(front.port, at(GEMINI.model), body)
            (sent,) = origin.requests
        assert (found.status, found.body) == (200, ONE)
        assert (sent.target, json.loads(sent.body)) == ("/v1beta/models/gemini-model:embedContent", body)
        assert sent.header("x-goog-api-key") == UPSTREAM_KEY and sent.header("authorization") is None
        assert found.header("x-arbiter-fidelity") == "verbatim"
        row = front.row(found.trace_id)
        told = ("endpoint", "format_in", "outcome", "stream", "affinity_key", "cost_pd")
        assert [row[name] for name in told] == ["embeddings", "google-embeddings", "ok", 0, None, None]
        (attempt,) = row["attempts"]
        assert (attempt["input_tokens"], attempt["output_tokens"], attempt["usage_source"]) == (5, 0, "provider")
        assert (attempt["lane"], attempt["format_out"], attempt["input_chain"]) == ("native", "google-embeddings", None)

    run(main)


def test_several_are_for_the_model_that_the_path_leads_to(make_front: MakeFront) -> None:
    """Each inner request names a model, and Google wants that of the path: behind an alias that is another name, and a
    client cannot have one by it that it did not ask for."""
    front = make_front(aliases={"embed": {"group": [f"{GEMINI.name}/{GEMINI.model}"]}})

    async def main() -> None:
        async with Origin(answer(SEVERAL, headers=[JSON]), port=front.upstream) as origin:
            for model, inner in (("embed", "embed"), (GEMINI.model, GEMINI.model), ("embed", "another")):
                found = await ask(front.port, at(model, batch=True), batch("a", "b", model=inner))
                assert (found.status, found.body) == (200, SEVERAL)
                told = found.header("x-arbiter-fidelity")
                assert told == ("verbatim" if inner == GEMINI.model else "$.model,$.requests.model")
            for sent in origin.requests:
                assert sent.target == "/v1beta/models/gemini-model:batchEmbedContents"
                assert json.loads(sent.body) == batch("a", "b")
        (attempt,) = front.row(found.trace_id)["attempts"]
        assert (attempt["input_tokens"], attempt["usage_source"]) == (None, "estimated")
        assert attempt["estimated_input_tokens"] > 0
        found = await ask(front.port, at("embed", batch=True), {"requests": ["a"]})
        assert found.status == 400 and found.json["error"]["message"].startswith("requests: ")

    run(main)


def test_a_count_behind_an_alias_is_for_its_model_too(make_front: MakeFront) -> None:
    front = make_front(aliases={"mine": {"group": [f"{GEMINI.name}/{GEMINI.model}"]}})

    async def main() -> None:
        async with Origin(answer(b'{"totalTokens":4}', headers=[JSON]), port=front.upstream) as origin:
            inner = {"model": "models/mine", **GEMINI.ask()}
            found = await ask(front.port, "/v1beta/models/mine:countTokens", {"generateContentRequest": inner})
            told = json.loads(origin.requests[0].body)["generateContentRequest"]
        assert found.status == 200 and told == {**inner, "model": "models/gemini-model"}

    run(main)


def test_a_provider_of_openais_is_asked_as_openai_is(front: Front) -> None:
    """Numbers keep their spelling, vectors the order that their index says, and the tokens are told in Google's
    words."""

    async def main() -> None:
        async with Origin(answer(OPENAIS, headers=[JSON]), port=front.upstream) as origin:
            body = batch("a", "b", model=CHAT.model, outputDimensionality=2, taskType="RETRIEVAL_DOCUMENT")
            found = await ask(front.port, at(CHAT.model, batch=True), body)
            (sent,) = origin.requests
        assert found.body == (
            b'{"embeddings":[{"values":[1.0,-2.50e-3]},{"values":[3.50, 4e-1]}],'
            b'"usageMetadata":{"promptTokenCount":20,"totalTokenCount":20}}'
        )
        told = {"model": CHAT.model, "input": ["a", "b"], "dimensions": 2}
        assert (sent.target, json.loads(sent.body)) == ("/v1/embeddings", told)
        assert sent.header("authorization") == f"Bearer {UPSTREAM_KEY}"
        assert found.header("x-arbiter-fidelity") == "translated"
        (attempt,) = front.row(found.trace_id)["attempts"]
        assert (attempt["input_tokens"], attempt["lane"], attempt["format_out"]) == (20, "translated", "embeddings")
        one = b'{"data":[{"embedding":[1]}]}'
        async with Origin(answer(one, headers=[JSON]), port=front.upstream) as origin:
            found = await ask(front.port, at(CHAT.model), {**content("a", "b"), "output_dimensionality": 1})
            assert (found.status, found.body) == (200, b'{"embedding":{"values":[1]}}')
            assert json.loads(origin.requests[0].body) == {"model": CHAT.model, "input": "a\nb", "dimensions": 1}

    run(main)


def test_what_cannot_be_asked_elsewhere_is_refused_before_anybody_is(front: Front) -> None:
    """In Google's shape, naming the place."""
    picture = {"content": {"parts": [{"text": "a"}, {"inlineData": {"mimeType": "image/png", "data": "AA=="}}]}}
    mixed = {"requests": [{**content("a"), "outputDimensionality": width} for width in (1, 2)]}

    async def main() -> None:
        async with Origin(answer(OPENAIS, headers=[JSON]), port=front.upstream) as origin:
            for model, body, several, place in (
                (CHAT.model, picture, False, "content.parts[1]: "),
                (CHAT.model, {"requests": [picture]}, True, "requests[0].content.parts[1]: "),
                (CHAT.model, mixed, True, "requests: "),
                (CHAT.model, {"requests": []}, True, "requests: "),
                (CHAT.model, {}, False, "content: "),
                (CHAT.model, {"requests": [{"content": 7}]}, True, "requests[0].content: "),
                (MESSAGES.model, content("a"), False, "the provider "),
            ):
                found = await ask(front.port, at(model, batch=several), body)
                error = found.json["error"]
                assert (found.status, error["code"], error["status"]) == (400, 400, "INVALID_ARGUMENT"), body
                assert error["message"].startswith(place), error
            assert not origin.requests

    run(main)


@pytest.mark.parametrize("body", [OPENAIS, b'{"data":[{"embedding":"AAAA"}]}', b"{}", b"<html>"])
def test_an_answer_of_something_else_is_the_upstreams_fault(front: Front, body: bytes) -> None:
    """Two vectors to one text, packed ones that nobody asked for, none, and what is no JSON."""

    async def main() -> None:
        async with Origin(answer(body, headers=[JSON]), port=front.upstream):
            found = await ask(front.port, at(CHAT.model), content("a"))
        assert (found.status, found.json["error"]["status"]) == (502, "INTERNAL"), found.body
        (attempt,) = front.row(found.trace_id)["attempts"]
        assert attempt["error_class"] == "upstream_protocol"

    run(main)


def test_errors_have_googles_shape(front: Front) -> None:
    """Its own as they came, those of others in its words."""
    theirs = b'{"error":{"code":400,"message":"too long","status":"INVALID_ARGUMENT"}}'
    others = b'{"error":{"message":"too long","type":"invalid_request_error","param":"input","code":null}}'

    async def main() -> None:
        async with Origin(answer(theirs, status="400 Bad Request", headers=[JSON]), port=front.upstream):
            found = await ask(front.port, at(GEMINI.model), content("a"))
            assert (found.status, found.body) == (400, theirs)
        async with Origin(answer(others, status="400 Bad Request", headers=[JSON]), port=front.upstream):
            found = await ask(front.port, at(CHAT.model), content("a"))
            assert (found.status, found.json["error"]["status"]) == (400, "INVALID_ARGUMENT")
            assert found.json["error"]["message"] == "too long"
        found = await ask(front.port, at("nobodys"), content("a"))
        assert (found.status, found.json["error"]["status"]) == (404, "NOT_FOUND")
        found = await ask(front.port, "/v1beta/models/echo:asyncBatchEmbedContent", content("a"))
        assert (found.status, found.json["error"]["status"]) == (404, "NOT_FOUND")

    run(main)


def test_googles_sdk_reads_them(genai: Client) -> None:
    """One text or several, the widths that it asked for, and its own errors."""
    config = types.EmbedContentConfig(output_dimensionality=16, task_type="RETRIEVAL_QUERY")
    found = genai.models.embed_content(model="echo", contents=["the first", "and another"], config=config)
    assert found.embeddings is not None
    assert [len(one.values or ()) for one in found.embeddings] == [16, 16]
    assert found.embeddings[0].values != found.embeddings[1].values
    assert found.usage_metadata is not None and (found.usage_metadata.total_token_count or 0) > 0
    alone = genai.models.embed_content(model="echo", contents="the first")
    assert alone.embeddings is not None and len(alone.embeddings) == 1
    with pytest.raises(ClientError) as raised:
        genai.models.embed_content(model="nobodys", contents="a")
    assert (raised.value.code, raised.value.status) == (404, "NOT_FOUND")


def test_googles_sdk_reads_googles_own(front: Front, genai: Client) -> None:
    async def main() -> None:
        async with Origin(answer(SEVERAL, headers=[JSON]), port=front.upstream) as origin:
            embed = genai.models.embed_content
            found = await asyncio.to_thread(embed, model=GEMINI.model, contents=["a", "b"])
            (sent,) = origin.requests
        assert [one.values for one in found.embeddings or ()] == [[1.0, 2.0], [0.1, 3.0]]
        told = json.loads(sent.body)["requests"]
        assert {one["model"] for one in told} == {"models/gemini-model"}  # it makes one content of both for this name

    run(main)


def test_the_kept_copy_has_counts_and_no_vectors(tmp_path: Path) -> None:
    """Nor the texts that went in."""
    with Front(tmp_path, storage=storage(tmp_path, content=True)) as gateway:
        traces = []

        async def main() -> None:
            async with Origin(answer(ONE, headers=[JSON]), port=gateway.upstream):
                body = {**content("a secret text"), "title": "secret too", "taskType": "CLUSTERING"}
                traces.append((await ask(gateway.port, at(GEMINI.model), body)).trace_id)

        run(main)
        captured(gateway, 1)
        told = {"model": None, "usage": {"promptTokenCount": 5}, "vectors": 1, "width": 3}
        assert conversation(gateway, traces[0]) == [
            ("in", "parameters", {"model": GEMINI.model, "taskType": "CLUSTERING"}),
            ("out", "answer", told),
        ]
        assert b"-2.50e-3" not in on_disk(gateway) and b"secret t" not in on_disk(gateway)
