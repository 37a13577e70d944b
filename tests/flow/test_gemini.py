"""Google's format through a whole gateway: its clients on every upstream, and every client on its upstream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from google.genai import Client, types
from google.genai.errors import ClientError, ServerError

from tests.fakes.client import Ending, ask, run
from tests.fakes.origin import LAST_CHUNK, Origin, answer, chunk
from tests.fakes.wires import CHAT, GEMINI, JSON, MESSAGES, RESPONSES, UPSTREAM_KEY, WIRES, Front, Wire, sse, sse_head
from tests.flow.conftest import MakeFront

EACH = pytest.mark.parametrize("wire", WIRES, ids=str)
CALL = [{"functionCall": {"name": "f", "args": {"a": 1}}, "thoughtSignature": "c2ln"}]


@pytest.fixture
def genai(front: Front) -> Iterator[Client]:
    options = types.HttpOptions(base_url=front.url, timeout=20_000)
    with Client(api_key="nobody's", vertexai=False, http_options=options) as client:
        yield client


# --- Native -----------------------------------------------------------------------------------------------------------


def test_a_stream_is_relayed_byte_for_byte(front: Front) -> None:
    """To Google's own path, under the gateway's key; the row has what the last chunk said of usage."""

    async def main() -> None:
        events = GEMINI.events("Hel", "lo ✓")
        async with Origin(sse(*events), port=front.upstream) as origin:
            found = await ask(front.port, GEMINI.at(stream=True, query="alt=sse&key=client-key"), GEMINI.ask())
            (sent,) = origin.requests
        assert (found.status, found.ending, found.body) == (200, Ending.CLEAN, b"".join(events))
        assert found.header("x-arbiter-fidelity") == "verbatim"
        assert sent.target == "/v1beta/models/gemini-model:streamGenerateContent?alt=sse"
        assert sent.header("x-goog-api-key") == UPSTREAM_KEY and sent.header("authorization") is None
        assert json.loads(sent.body) == GEMINI.ask()
        row = front.row(found.trace_id)
        assert (row["format_in"], row["endpoint"]) == ("google-gemini", "gemini")
        assert (row["stream"], row["model"]) == (1, "served")
        (attempt,) = row["attempts"]
        assert (attempt["input_tokens"], attempt["output_tokens"], attempt["usage_source"]) == (7, 3, "provider")
        assert (attempt["lane"], attempt["format_out"], attempt["finish_reason"]) == ("native", "google-gemini", "STOP")
        assert attempt["input_chain"] is not None and attempt["inputs"] == 1
        assert row["repairs"] is None and "client-key" not in front.log

    run(main)


def test_a_whole_answer_is_relayed(front: Front) -> None:
    async def main() -> None:
        body = GEMINI.answer("hällo")
        async with Origin(answer(body, headers=[JSON]), port=front.upstream) as origin:
            found = await ask(front.port, "/v1/models/gemini-model:generateContent", GEMINI.ask())
        assert (found.status, found.body) == (200, body)
        assert origin.requests[0].target == "/v1beta/models/gemini-model:generateContent"
        (attempt,) = front.row(found.trace_id)["attempts"]
        assert (attempt["input_tokens"], attempt["output_tokens"]) == (7, 3)

    run(main)


@pytest.mark.parametrize("model", [GEMINI.model, CHAT.model])
def test_a_stream_without_alt_is_an_array(front: Front, model: str) -> None:
    """As Google's is: each event an element, whatever the upstream's format."""

    async def main() -> None:
        wire = GEMINI if model == GEMINI.model else CHAT
        async with Origin(sse(*wire.events("Hel", "lo")), port=front.upstream) as origin:
            found = await ask(front.port, GEMINI.at(model, stream=True, query=""), GEMINI.ask())
        assert (found.status, found.ending) == (200, Ending.CLEAN)
        assert found.header("content-type") == "application/json; charset=UTF-8"
        said = [part["text"] for one in found.json for part in one["candidates"][0]["content"]["parts"]]
        assert "".join(said) == "Hello" and found.json[-1]["candidates"][0]["finishReason"] == "STOP"
        assert origin.requests[0].target.endswith("alt=sse" if wire is GEMINI else "completions")

    run(main)


def test_an_array_that_fails_ends_with_the_error(front: Front) -> None:
    async def main() -> None:
        path = GEMINI.at(stream=True, query="")
        script = sse_head() + chunk(GEMINI.events("Hel")[0]) + chunk(GEMINI.error_event("busy")) + LAST_CHUNK
        async with Origin(script, port=front.upstream):
            found = await ask(front.port, path, GEMINI.ask())
        assert found.ending is not Ending.CLEAN
        assert json.loads(found.body + b"]")[-1]["error"]["status"] == "UNAVAILABLE"
        refused = answer(b'{"error":{"code":400,"message":"no","status":"INVALID_ARGUMENT"}}', status="400 Bad Request")
        async with Origin(refused, port=front.upstream):
            found = await ask(front.port, path, GEMINI.ask())
        assert (found.status, found.json[0]["error"]["message"]) == (400, "no")

    run(main)


def test_an_upstreams_error_passes_as_it_came_and_its_wait_is_kept(make_front: MakeFront) -> None:
    """`RetryInfo` says for how long the key rests: the next request is told so, and asks nobody."""
    front = make_front(provider={"retry": {"attempts": 1}}, limits={"answer": "61MiB"})
    detail = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34s"}
    error = {"code": 429, "message": "Quota exceeded", "status": "RESOURCE_EXHAUSTED", "details": [detail]}
    body = json.dumps({"error": error}).encode()

    async def main() -> None:
        async with Origin(answer(body, status="429 Too Many Requests", headers=[JSON]), port=front.upstream) as origin:
            found = await ask(front.port, GEMINI.at(), GEMINI.ask())
            assert (found.status, found.body) == (429, body)
            assert front.row(found.trace_id)["error_class"] == "rate_limited_transient"
            found = await ask(front.port, GEMINI.at(), GEMINI.ask())
            assert len(origin.requests) == 1
        assert found.status == 429 and 30 <= int(found.header("retry-after") or 0) <= 34
        told = found.json["error"]
        assert told["status"] == "RESOURCE_EXHAUSTED"
        assert told["details"][1]["retryDelay"] == f"{found.header('retry-after')}s"

    run(main)


@pytest.mark.parametrize(
    ("status", "error", "code"),
    [
        (
            "400 Bad Request",
            {"message": "The input token count (1091639) exceeds the maximum number of tokens allowed (1048576)."},
            "context_length",
        ),
        (
            "400 Bad Request",
            {"message": "API key not valid.", "details": [{"reason": "API_KEY_INVALID", "domain": "googleapis.com"}]},
            "config",
        ),
        (
            "429 Too Many Requests",
            {"message": "q", "details": [{"violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel"}]}]},
            "quota_exhausted",
        ),
        ("503 Service Unavailable", {"message": "overloaded", "status": "UNAVAILABLE"}, "overloaded"),
        ("404 Not Found", {"message": "models/x is not found", "status": "NOT_FOUND"}, "not_found"),
    ],
)
def test_what_google_means_by_an_error(front: Front, status: str, error: dict[str, Any], code: str) -> None:
    async def main() -> None:
        script = answer(json.dumps([{"error": error}]).encode(), status=status, headers=[JSON])
        async with Origin(script, port=front.upstream):
            found = await ask(front.port, CHAT.path, CHAT.ask(model=GEMINI.model))
        assert front.row(found.trace_id)["error_class"] == code
        front.forget()

    run(main)


# --- Translated -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", [CHAT, MESSAGES], ids=str)
def test_geminis_clients_are_served_by_every_upstream(front: Front, wire: Wire) -> None:
    async def main() -> None:
        async with Origin(sse(*wire.events("Hel", "lo ✓")), port=front.upstream) as origin:
            found = await ask(front.port, GEMINI.at(wire.model, stream=True), GEMINI.ask())
        assert (found.status, found.ending, GEMINI.text(found.body)) == (200, Ending.CLEAN, "Hello ✓")
        assert found.header("content-type") == "text/event-stream"
        assert origin.requests[0].target == wire.upstream_path
        last = json.loads(found.events[-1][1])
        assert last["candidates"][0]["finishReason"] == "STOP" and last["modelVersion"] == "served"
        assert last["usageMetadata"]["promptTokenCount"] == 7 and last["responseId"] == found.trace_id
        row = front.row(found.trace_id)
        assert (row["format_in"], row["fidelity"], row["provider"]) == ("google-gemini", "translated", wire.name)
        async with Origin(answer(wire.answer("whole"), headers=[JSON]), port=front.upstream):
            found = await ask(front.port, GEMINI.at(wire.model), GEMINI.ask())
        assert found.json["candidates"][0]["content"]["parts"] == [{"text": "whole"}]

    run(main)


@EACH
def test_every_client_is_served_by_google(front: Front, wire: Wire) -> None:
    async def main() -> None:
        async with Origin(sse(*GEMINI.events("Hel", "lo ✓")), port=front.upstream) as origin:
            found = await ask(front.port, wire.path, wire.ask(model=GEMINI.model, stream=True))
            (sent,) = origin.requests
        assert (found.status, found.ending, wire.text(found.body)) == (200, Ending.CLEAN, "Hello ✓")
        assert wire.terminal in found.body
        assert sent.target == "/v1beta/models/gemini-model:streamGenerateContent?alt=sse"
        assert sent.header("x-goog-api-key") == UPSTREAM_KEY
        assert json.loads(sent.body)["contents"] == [{"role": "user", "parts": [{"text": "hello"}]}]
        (attempt,) = front.row(found.trace_id)["attempts"]
        assert (attempt["input_tokens"], attempt["output_tokens"], attempt["finish_reason"]) == (7, 3, "STOP")
        async with Origin(answer(GEMINI.answer("whole"), headers=[JSON]), port=front.upstream) as origin:
            found = await ask(front.port, wire.path, wire.ask(model=GEMINI.model))
            assert origin.requests[0].target == "/v1beta/models/gemini-model:generateContent"
        assert found.status == 200 and b"whole" in found.body

    run(main)


def test_a_signature_goes_to_a_client_of_messages_and_comes_back_as_it_was(front: Front) -> None:
    """On the call that it came with; and a client that lost it sends Google's own word for that."""

    async def main() -> None:
        tools = [{"name": "f", "input_schema": {"type": "object"}}]
        body = MESSAGES.ask(model="gemini-3-pro", tools=tools)
        script = sse(GEMINI._chunk([{"text": "Hm", "thought": True}]), GEMINI._chunk(CALL, "STOP"))
        async with Origin(script, port=front.upstream):
            found = await ask(front.port, MESSAGES.path, {**body, "stream": True})
        said = [json.loads(data) for _, data in found.events]
        signed = next(
            one["delta"]["signature"] for one in said if one.get("delta", {}).get("type") == "signature_delta"
        )
        used = next(one["content_block"] for one in said if one.get("content_block", {}).get("type") == "tool_use")
        thought = {"type": "thinking", "thinking": "Hm", "signature": signed}
        call = {"type": "tool_use", "id": used["id"], "name": "f", "input": {"a": 1}}
        result = {"type": "tool_result", "tool_use_id": used["id"], "content": "done"}
        for blocks, signature in (([thought, call], "c2ln"), ([call], "skip_thought_signature_validator")):
            turns = [{"role": "assistant", "content": blocks}, {"role": "user", "content": [result]}]
            async with Origin(answer(GEMINI.answer(), headers=[JSON]), port=front.upstream) as origin:
                await ask(front.port, MESSAGES.path, {**body, "messages": [*body["messages"], *turns]})
                contents = json.loads(origin.requests[0].body)["contents"]
            part = contents[1]["parts"][-1]
            assert part["functionCall"] == {"id": used["id"], "name": "f", "args": {"a": 1}}
            assert part["thoughtSignature"] == signature
            response = contents[2]["parts"][0]["functionResponse"]
            assert (response["name"], response["response"]) == ("f", {"output": "done"})

    run(main)


def test_nothing_comes_between_the_events_of_a_silent_stream(make_front: MakeFront) -> None:
    """No comment: Google's SDKs fail on one. The client's head comes all the same."""
    front = make_front(server={"keepalive": "100ms", "commit_after": "100ms"})

    async def main() -> None:
        path = GEMINI.at("echo", stream=True)
        found = await ask(front.port, path, GEMINI.ask("hi\n/echo delay 900ms\n/echo text there"))
        assert found.status == 200
        assert all(line.startswith(b"data: ") for line in found.body.split(b"\n") if line.strip())
        assert GEMINI.text(found.body) == "there"

    run(main)


def test_the_sdk_reads_a_stream_of_a_server_that_sends_comments(front: Front, genai: Client) -> None:
    """By itself it fails on the first of them."""

    async def main() -> None:
        first, *rest = GEMINI.events("Hel", "lo")
        async with Origin(sse(b": hi\n\n", first, b": ping\n\n", *rest), port=front.upstream):
            ask_it = lambda: list(genai.models.generate_content_stream(model=GEMINI.model, contents="hi"))  # noqa: E731
            chunks = await asyncio.to_thread(ask_it)
        assert "".join(chunk.text or "" for chunk in chunks) == "Hello"

    run(main)


# --- Who may, and what there is ---------------------------------------------------------------------------------------

KEY = "sk-arb-gemini-client"


def test_a_key_comes_in_googles_ways(make_front: MakeFront) -> None:
    """As its header or in the query; a stranger's refusal has Google's shape."""
    import hashlib

    digest = "sha256:" + hashlib.sha256(KEY.encode()).hexdigest()
    front = make_front(auth={"mode": "require"}, clients=[{"name": "cli", "key_hash": digest}])

    async def main() -> None:
        for path, headers in (
            (GEMINI.at("echo"), [("x-goog-api-key", KEY)]),
            (f"{GEMINI.at('echo')}?key={KEY}", []),
            (f"{GEMINI.at('echo')}?key=sk-arb%2Dgemini-client", []),
        ):
            found = await ask(front.port, path, GEMINI.ask(), headers=headers)
            assert found.status == 200, found.body
            assert front.row(found.trace_id)["client"] == "cli"
        found = await ask(front.port, GEMINI.at("echo"), GEMINI.ask())
        assert found.status == 401 and "x-goog-api-key" in GEMINI.complaint(found)
        assert found.json["error"]["status"] == "UNAUTHENTICATED"
        found = await ask(front.port, f"/v1beta/models?key={KEY}", method="GET")
        assert found.status == 200
        found = await ask(front.port, "/v1beta/models", method="GET")
        assert (found.status, found.json["error"]["status"]) == (401, "UNAUTHENTICATED")

    run(main)
    assert KEY not in front.log


def test_the_list_of_models_is_googles(genai: Client) -> None:
    names = [model.name for model in genai.models.list(config={"page_size": 2})]
    assert {"models/echo", "models/gemini-model", "models/chat-model"} <= set(names)
    one = genai.models.get(model="echo")
    assert one.name == "models/echo" and "generateContent" in (one.supported_actions or [])
    with pytest.raises(ClientError) as caught:
        genai.models.get(model="nobodys")
    assert (caught.value.code, caught.value.status) == (404, "NOT_FOUND")


# --- The SDK ----------------------------------------------------------------------------------------------------------


def test_the_sdk_generates_and_streams(genai: Client) -> None:
    """Against the echo provider: text, usage and a call, typed and whole."""
    found = genai.models.generate_content(model="echo", contents="hello there")
    assert found.text == "hello there" and found.usage_metadata is not None
    assert found.usage_metadata.candidates_token_count == 2
    declared = types.FunctionDeclaration(name="f", parameters_json_schema={"type": "object"})
    config = types.GenerateContentConfig(
        tools=[types.Tool(function_declarations=[declared])], system_instruction="Be brief."
    )
    said = 'x\n/echo text Let me see.\n/echo tool f {"city":"Oslo ✓"}\n/echo tool f {"city":"Bergen"}'
    chunks = list(genai.models.generate_content_stream(model="echo", contents=said, config=config))
    assert "".join(chunk.text or "" for chunk in chunks if not chunk.function_calls) == "Let me see."
    calls = [call for chunk in chunks for call in chunk.function_calls or ()]
    assert [call.args for call in calls] == [{"city": "Oslo ✓"}, {"city": "Bergen"}]
    assert len({call.id for call in calls}) == 2


def test_the_sdk_raises_what_went_wrong(genai: Client) -> None:
    with pytest.raises(ClientError) as caught:
        genai.models.generate_content(model="nobodys", contents="hi")
    assert (caught.value.code, caught.value.status) == (404, "NOT_FOUND")
    with pytest.raises(ServerError) as failed:
        list(genai.models.generate_content_stream(model="echo", contents="hi\n/echo error 503 overloaded"))
    assert (failed.value.code, failed.value.status) == (503, "UNAVAILABLE")


@pytest.mark.parametrize("model", ["echo", CHAT.model])
def test_the_sdk_counts(genai: Client, model: str) -> None:
    """Counted where the target can, else estimated."""
    found = genai.models.count_tokens(model=model, contents="The quick brown fox jumps over the lazy dog. " * 50)
    assert found.total_tokens is not None and 200 <= found.total_tokens <= 1200


def test_a_real_count_is_googles_own(front: Front, genai: Client) -> None:
    async def main() -> None:
        async with Origin(answer(b'{"totalTokens": 42}', headers=[JSON]), port=front.upstream) as origin:
            path = "/v1beta/models/gemini-model:countTokens"
            asked = {"generateContentRequest": {"model": "models/gemini-model", **GEMINI.ask()}}
            found = await ask(front.port, path, asked)
            assert origin.requests[0].target == path and json.loads(origin.requests[0].body) == asked
        assert (found.body, found.header("x-arbiter-estimate")) == (b'{"totalTokens": 42}', None)

    run(main)


def test_what_only_google_keeps_is_refused_elsewhere(front: Front) -> None:
    async def main() -> None:
        for model in (CHAT.model, RESPONSES.model):
            body = GEMINI.ask(cachedContent="cachedContents/x")
            found = await ask(front.port, GEMINI.at(model), body)
            assert found.status == 400 and GEMINI.complaint(found).startswith("cachedContent: ")

    run(main)


def test_clients_of_openais_embeddings_are_served_by_google(front: Front) -> None:
    async def main() -> None:
        body = b'{"object":"list","data":[{"object":"embedding","index":0,"embedding":[1.0]}],"model":"gemini-model"}'
        async with Origin(answer(body, headers=[JSON]), port=front.upstream) as origin:
            found = await ask(front.port, "/v1/embeddings", {"model": GEMINI.model, "input": "a"})
            (sent,) = origin.requests
        assert (found.status, found.body) == (200, body)
        assert (sent.target, json.loads(sent.body)) == (
            "/v1beta/openai/embeddings",
            {"model": "gemini-model", "input": "a"},
        )
        assert sent.header("authorization") == f"Bearer {UPSTREAM_KEY}" and sent.header("x-goog-api-key") is None
        refusal = (
            b'[{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT","details":[{"@type":'
            b'"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID","domain":"googleapis.com"}]}}]'
        )
        async with Origin(answer(refusal, status="400 Bad Request", headers=[JSON]), port=front.upstream):
            found = await ask(front.port, "/v1/embeddings", {"model": GEMINI.model, "input": "a"})
        assert found.status == 502, found.body

    run(main)
