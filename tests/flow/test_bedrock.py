"""Amazon Bedrock through a whole gateway: a runtime that is as strict as AWS's about signatures, bodies and frames."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.bedrock import ACCESS_ID, BEARER, REGION, SECRET, STREAM_TYPE, TOKEN, Bedrock
from tests.fakes.client import Ending, ask, run
from tests.fakes.eventstream import chunk as framed
from tests.fakes.eventstream import exception, stream
from tests.fakes.gateway import Gateway, free_port, until
from tests.fakes.origin import CLOSE, LAST_CHUNK, Peer, Request, answer, chunk, chunked_head
from tests.fakes.wires import CHAT, JSON, MESSAGES, RESPONSES, WIRES, Wire

CLAUDE, NOVA = "eu.anthropic.claude-sonnet-4-5-20250929-v1:0", "eu.amazon.nova-pro-v1:0"
ARN = f"arn:aws:bedrock:{REGION}:123456789012:application-inference-profile/abc123"
CACHED = {"cacheReadInputTokens": 40, "cacheWriteInputTokens": 10}
USAGE = {"inputTokens": 4, "outputTokens": 3, "totalTokens": 57, **CACHED}
each_client = pytest.mark.parametrize("ours", WIRES, ids=str)


class Cloud(Gateway):
    """Providers of type bedrock, all at `upstream`; `spare` is one of Anthropic's own format at `elsewhere`."""

    def __init__(self, folder: Path) -> None:
        self.upstream = free_port()
        at = {"type": "bedrock", "region": REGION, "endpoint": f"http://127.0.0.1:{self.upstream}"}
        once = {"retry": {"attempts": 1}}
        signing = {"access_key_id": ACCESS_ID, "secret_access_key": SECRET, "session_token": TOKEN}
        arn = {"id": "profile", "upstream": ARN, "api": "messages"}
        claude = {"id": "claude", "upstream": CLAUDE, "api": "converse"}
        providers = {
            "signs": {**at, **once, **signing, "models": [CLAUDE, NOVA, arn, claude]},
            "shows": {**at, **once, "key": BEARER, "models": [{"id": "by-key", "upstream": CLAUDE}]},
            "wrong": {**at, **once, **signing, "secret_access_key": "x", "models": [{"id": "wrong", "upstream": NOVA}]},
            "fast": {**at, **once, **signing, "models": [{"id": "first", "upstream": NOVA}]},
            "echo": {"type": "echo", "models": ["echo"]},
        }
        aliases = {"either": {"group": ["fast/first", "echo/echo"]}}
        super().__init__({"providers": providers, "aliases": aliases}, folder)


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with Cloud(tmp_path_factory.mktemp("cloud")) as gateway:
        yield gateway


@pytest.fixture(autouse=True)
def _forget(cloud: Cloud) -> Iterator[None]:
    yield
    cloud.get("/admin/cooldowns/clear", method="POST", headers={"authorization": "Bearer admin-token-of-the-tests"})


def converse(*texts: str, end: bool = True) -> bytes:
    events: list[Any] = [{"messageStart": {"role": "assistant"}}]
    events += [{"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": text}}} for text in texts]
    if end:
        events += [{"contentBlockStop": {"contentBlockIndex": 0}}, {"messageStop": {"stopReason": "end_turn"}}]
        events.append({"metadata": {"usage": USAGE, "metrics": {"latencyMs": 1}}})
    return stream("\n".join(map(json.dumps, events)))


def anthropic(*texts: str) -> bytes:
    """The events of Anthropic's format, each in a frame."""
    lines = [line for event in MESSAGES.events(*texts) for line in event.split(b"\n") if line.startswith(b"data:")]
    return b"".join(framed(line.removeprefix(b"data:").strip()) for line in lines)


def streamed(data: bytes, size: int = 50) -> bytes:
    """A whole streamed answer in pieces that mind no frame."""
    pieces = [data[i : i + size] for i in range(0, len(data), size)]
    return chunked_head(headers=[STREAM_TYPE]) + b"".join(map(chunk, pieces)) + LAST_CHUNK


@each_client
@pytest.mark.parametrize("size", [1, 50, 10_000])
@pytest.mark.parametrize("model", [NOVA, CLAUDE, "profile", "by-key"])
def test_a_stream_is_signed_unframed_and_told_as_the_client_knows_it(
    cloud: Cloud, ours: Wire, model: str, size: int
) -> None:
    """Through Converse or as Claude's own, however the frames are cut; the row has what was cached."""

    async def main() -> None:
        is_claude = model != NOVA
        data = anthropic("Hel", "lo ✓") if is_claude else converse("Hel", "lo ✓")
        async with Bedrock(streamed(data, size), port=cloud.upstream) as bedrock:
            found = await ask(cloud.port, ours.path, ours.ask(stream=True, model=model))
        assert bedrock.refusals == [] and (found.status, found.ending) == (200, Ending.CLEAN)
        assert ours.text(found.body) == "Hello ✓" and ours.terminal in found.body
        assert found.header("content-type") == "text/event-stream"
        (call,) = bedrock.calls
        assert call.operation == ("invoke-with-response-stream" if is_claude else "converse-stream")
        assert call.model == {"profile": ARN, "by-key": CLAUDE}.get(model, model)
        (attempt,) = await asyncio.to_thread(until, lambda: cloud.row(found.trace_id)["attempts"], "its row")
        assert attempt["lane"] == ("native" if is_claude and ours is MESSAGES else "translated")
        if not is_claude:
            assert (attempt["input_tokens"], attempt["cached_tokens"], attempt["cache_write_tokens"]) == (4, 40, 10)
        assert attempt["output_tokens"] == 3 and attempt["usage_source"] == "provider"

    run(main)


@each_client
@pytest.mark.parametrize("model", [NOVA, CLAUDE])
def test_a_whole_answer_is_told_as_the_client_knows_it(cloud: Cloud, ours: Wire, model: str) -> None:
    async def main() -> None:
        output = {"message": {"role": "assistant", "content": [{"text": "hello"}]}}
        told = {"output": output, "stopReason": "end_turn", "usage": USAGE, "metrics": {"latencyMs": 1}}
        body = json.dumps(told).encode() if model == NOVA else MESSAGES.answer("hello")
        headers = [JSON, ("x-amzn-requestid", "aws-1")]
        async with Bedrock(answer(body, headers=headers), port=cloud.upstream) as bedrock:
            found = await ask(cloud.port, ours.path, ours.ask(model=model))
        assert bedrock.refusals == [] and found.status == 200 and b"hello" in found.body
        assert bedrock.calls[0].operation == ("converse" if model == NOVA else "invoke")
        assert found.header("x-amzn-requestid") == "aws-1"
        (attempt,) = await asyncio.to_thread(until, lambda: cloud.row(found.trace_id)["attempts"], "its row")
        assert (attempt["output_tokens"], attempt["upstream_request_id"]) == (3, "aws-1")

    run(main)


def test_a_member_stays_behind_with_the_feature_that_it_needs(cloud: Cloud) -> None:
    """Bedrock refuses a feature that it does not know, and a member without its feature. What it knows stays."""
    binding = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    body = {
        **{"model": CLAUDE, "max_tokens": 99, "stream": True, "messages": [{"role": "user", "content": "look"}]},
        **{"thinking": binding, "fallbacks": "default", "diagnostics": {"previous_message_id": None}},
        "output_config": {"effort": "high", "task_budget": {"type": "tokens", "total": 20000}},
    }
    told = "server-side-fallback-2026-07-01,thinking-binding-controls-2026-08-01,cache-diagnosis-2026-04-07"
    headers = [("anthropic-beta", f"{told},task-budgets-2026-03-13"), ("anthropic-version", "2023-06-01")]

    async def main() -> None:
        async with Bedrock(streamed(anthropic("ok")), port=cloud.upstream) as bedrock:
            found = await ask(cloud.port, "/v1/messages?beta=true", body, headers=headers)
        assert bedrock.refusals == [] and MESSAGES.text(found.body) == "ok"
        sent = bedrock.calls[0].body
        assert sent["anthropic_beta"] == ["thinking-binding-controls-2026-08-01"] and sent["thinking"] == binding
        assert sent["output_config"] == {"effort": "high"} and not {"fallbacks", "diagnostics"} & sent.keys()
        left = {"$.fallbacks", "$.diagnostics", "$.output_config.task_budget"}
        assert left <= set((found.header("x-arbiter-fidelity") or "").split(","))

    run(main)


def test_an_agents_loop_is_a_body_that_bedrock_takes(cloud: Cloud) -> None:
    """Instructions, calls, results, thinking and betas of Claude Code's kind, to both of Bedrock's formats."""
    tools = [{"name": "ls", "description": "Lists.", "input_schema": {"type": "object", "properties": {}}}]
    messages = [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "a"}]},
    ]
    betas = "claude-code-20250219,interleaved-thinking-2025-05-14"
    headers = [("anthropic-beta", betas), ("anthropic-version", "2023-06-01")]
    asked = {"max_tokens": 99, "stream": True, "system": "s", "tools": tools, "messages": messages}

    async def main() -> None:
        for model, data in ((CLAUDE, anthropic("ok")), (NOVA, converse("ok"))):
            body = {"model": model, **asked}
            async with Bedrock(streamed(data), port=cloud.upstream) as bedrock:
                found = await ask(cloud.port, "/v1/messages?beta=true", body, headers=headers)
            assert bedrock.refusals == [] and MESSAGES.text(found.body) == "ok"
            sent = bedrock.calls[0].body
            if model == CLAUDE:
                assert sent["anthropic_beta"] == ["interleaved-thinking-2025-05-14"] and sent["tools"] == tools
                assert found.header("x-arbiter-fidelity") == "$.model,$.stream,$.anthropic_version,$.anthropic_beta"
            else:
                assert sent["toolConfig"]["tools"][0]["toolSpec"]["name"] == "ls"

    run(main)


@pytest.mark.parametrize(("model", "marks"), [(NOVA, ["system:0@5m", "message:0.1@5m"]), ("claude", None)])
def test_what_is_marked_for_the_cache_is_in_the_row(cloud: Cloud, model: str, marks: list[str] | None) -> None:
    """Arbiter's own marks, which stand in Converse behind what they mark, under the names that they have elsewhere."""

    async def main() -> None:
        tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
        texts = [{"type": "text", "text": text} for text in ("a", "b")]
        messages = [{"role": "system", "content": "s"}, {"role": "user", "content": texts}]
        asked = {"model": model, "stream": True, "tools": tools, "messages": messages}
        async with Bedrock(streamed(converse("ok")), port=cloud.upstream) as bedrock:
            found = await ask(cloud.port, CHAT.path, asked)
        assert bedrock.refusals == []
        (attempt,) = await asyncio.to_thread(until, lambda: cloud.row(found.trace_id)["attempts"], "its row")
        expected = marks or ["tools:0@5m", "system:0@5m", "message:0.1@5m"]
        assert json.loads(attempt["cache_marks"]) == expected

    run(main)


@each_client
def test_a_signature_that_is_wrong_is_a_fault_of_the_configuration(cloud: Cloud, ours: Wire) -> None:
    """SPEC 4.8: nobody is asked to log in; and the fake does refuse, so the other tests prove something."""

    async def main() -> None:
        async with Bedrock(streamed(converse("no")), port=cloud.upstream) as bedrock:
            found = await ask(cloud.port, ours.path, ours.ask(model="wrong"))
        assert bedrock.calls == [] and len(bedrock.refusals) == 1
        assert "signature we calculated does not match" in bedrock.refusals[0]
        assert found.status == 502 and cloud.row(found.trace_id)["error_class"] == "config"

    run(main)


@each_client
@pytest.mark.parametrize("model", [NOVA, CLAUDE])
def test_an_exception_within_a_stream_is_an_error_in_the_clients_format(cloud: Cloud, ours: Wire, model: str) -> None:
    """No clean end follows it."""

    async def main() -> None:
        opening = converse("Hel", end=False) if model == NOVA else b"".join(map(framed, _opening()))
        slow = exception("throttlingException", b'{"message":"Too many tokens, please wait."}')
        async with Bedrock(streamed(opening + slow), port=cloud.upstream):
            found = await ask(cloud.port, ours.path, ours.ask(stream=True, model=model))
        assert found.status == 200 and ours.terminal not in found.body
        assert ours.told(found) == "Too many tokens, please wait."
        assert cloud.row(found.trace_id)["error_class"] == "rate_limited_transient"

    run(main)


def _opening() -> list[bytes]:
    lines = [line for event in MESSAGES.opening("Hel") for line in event.split(b"\n") if line.startswith(b"data:")]
    return [line.removeprefix(b"data:").strip() for line in lines]


@each_client
def test_a_damaged_frame_ends_the_answer_and_what_came_before_it_is_told(cloud: Cloud, ours: Wire) -> None:
    async def main() -> None:
        good, bad = converse("Hel", end=False), bytearray(converse("lo"))
        bad[-3] ^= 1
        async with Bedrock(streamed(good + bytes(bad)), port=cloud.upstream):
            found = await ask(cloud.port, ours.path, ours.ask(stream=True, model=NOVA))
        assert b"Hel" in found.body and ours.terminal not in found.body
        assert "checksum" in str(ours.told(found))
        assert cloud.row(found.trace_id)["error_class"] == "upstream_protocol"

    run(main)


@pytest.mark.parametrize(
    "script",
    [
        streamed(exception("throttlingException", b'{"message":"slow"}')),
        streamed(exception("internalServerException", b'{"message":"broke"}')),
        streamed(b"\xff\xff\xff\xff" + b"x" * 100),
        streamed(converse("Hel")[:100]),
        answer(
            b'{"message":"slow"}', status=429, headers=[JSON, ("x-amzn-errortype", "ThrottlingException:http://x/")]
        ),
        answer(b'{"message":"not ready"}', status=429, headers=[JSON, ("x-amzn-errortype", "ModelNotReadyException")]),
        answer(b'{"message":"busy"}', status=503, headers=[JSON, ("x-amzn-errortype", "ServiceUnavailableException")]),
        [chunked_head(headers=[STREAM_TYPE]), CLOSE],
    ],
    ids=["throttled", "broke", "no-frame", "cut", "429", "not-ready", "503", "empty"],
)
def test_what_fails_before_anything_was_said_goes_to_the_next_target(cloud: Cloud, script: Any) -> None:
    """SPEC 4.1: the client never knows."""

    async def main() -> None:
        async with Bedrock(script, port=cloud.upstream) as bedrock:
            found = await ask(cloud.port, CHAT.path, CHAT.ask(stream=True, model="either"))
        assert len(bedrock.calls) == 1 and bedrock.refusals == []
        assert found.status == 200 and CHAT.terminal in found.body
        assert found.header("x-arbiter-provider") == "echo"

    run(main)


def test_an_error_is_told_in_the_clients_format_and_not_in_bedrocks(cloud: Cloud) -> None:
    """Also to a client of Anthropic's, whose format Claude is asked in: Bedrock's own is a message and no more."""
    headers = [JSON, ("x-amzn-errortype", "ValidationException:http://internal.amazon.com/")]
    script = answer(b'{"message":"Input is too long for requested model."}', status=400, headers=headers)

    async def main() -> None:
        async with Bedrock(script, port=cloud.upstream):
            for wire in (MESSAGES, CHAT, RESPONSES):
                found = await ask(cloud.port, wire.path, wire.ask(model=CLAUDE))
                assert (found.status, wire.complaint(found)) == (400, "Input is too long for requested model.")
                assert cloud.row(found.trace_id)["error_class"] == "context_length"

    run(main)


COUNT = "/v1/messages/count_tokens"


def test_a_claude_is_counted_by_bedrock(cloud: Cloud) -> None:
    """By the bare name of its model, whatever profile it is asked under, and as the body that would be sent: that has
    to say how much may be written."""

    async def main() -> None:
        async with Bedrock(answer(b'{"inputTokens":42}', headers=[JSON]), port=cloud.upstream) as bedrock:
            asked = {name: value for name, value in MESSAGES.ask(model=CLAUDE).items() if name != "max_tokens"}
            found = await ask(cloud.port, COUNT + "?beta=true", asked)
            assert (found.status, found.body) == (200, b'{"input_tokens":42}')
            assert found.header("x-arbiter-estimate") is None
            thinking = {"thinking": {"type": "enabled", "budget_tokens": 2048}}
            assert (await ask(cloud.port, COUNT, {**asked, **thinking})).status == 200
            assert (await ask(cloud.port, COUNT, {**asked, "max_tokens": 7, "model": "by-key"})).status == 200
        assert [call.operation for call in bedrock.calls] == ["count-tokens"] * 3
        assert {call.model for call in bedrock.calls} == {CLAUDE.removeprefix("eu.")}
        assert [call.body["max_tokens"] for call in bedrock.calls] == [1, 2049, 7]
        assert bedrock.calls[0].body["messages"] == asked["messages"]
        (attempt,) = cloud.row(found.trace_id)["attempts"]
        assert (attempt["lane"], attempt["format_out"], attempt["outcome"]) == ("native", "anthropic-messages", "ok")
        async with Bedrock(answer(b"{}", headers=[JSON]), port=cloud.upstream):
            found = await ask(cloud.port, COUNT, asked)
            assert (found.status, found.header("x-arbiter-estimate")) == (200, "unavailable")

    run(main)


def test_tokens_are_estimated_where_bedrock_counts_none(tmp_path: Path) -> None:
    """Through Converse; of a model that it does not count, which is not asked about again, and others are; and on a key
    that may ask, but not count."""
    models = [CLAUDE, "anthropic.claude-3-haiku-20240307-v1:0", {"id": "claude", "upstream": CLAUDE, "api": "converse"}]
    port = free_port()
    provider = {"type": "bedrock", "region": REGION, "endpoint": f"http://127.0.0.1:{port}", "key": BEARER}
    said: list[bytes] = []
    script = [b""]

    async def play(peer: Peer, request: Request) -> None:
        said.append(request.target.encode())
        await peer.send(script[0])

    def refusal(status: int, kind: str, message: str) -> bytes:
        headers = [JSON, ("x-amzn-errortype", f"{kind}:http://internal.amazon.com/")]
        return answer(json.dumps({"message": message}).encode(), status=status, headers=headers)

    async def main() -> None:
        async with Bedrock(play, port=port):
            found = await ask(gateway.port, COUNT, MESSAGES.ask(model="claude"))
            assert (found.header("x-arbiter-estimate"), said) == ("unsupported", [])
            script[0] = refusal(400, "ValidationException", "The provided model doesn't support counting tokens.")
            for _ in range(2):
                found = await ask(gateway.port, COUNT, MESSAGES.ask(model=CLAUDE))
                assert (found.status, found.header("x-arbiter-estimate")) == (200, "unsupported")
            assert len(said) == 1 and found.json["input_tokens"] > 0
            script[0] = refusal(400, "ValidationException", "messages: at least one message is required")
            found = await ask(gateway.port, COUNT, MESSAGES.ask(model=models[1]))
            assert (found.status, found.json["error"]["type"]) == (400, "invalid_request_error")
            script[0] = refusal(403, "AccessDeniedException", "not authorized to perform: bedrock:CountTokens")
            for _ in range(2):
                found = await ask(gateway.port, COUNT, MESSAGES.ask(model=models[1]))
                assert (found.status, found.header("x-arbiter-estimate")) == (200, "unsupported")
            assert len(said) == 3
            script[0] = answer(MESSAGES.answer(), headers=[JSON])
            found = await ask(gateway.port, MESSAGES.path, MESSAGES.ask(model=models[1]))
            assert found.status == 200, "a key that may not count may still ask"

    with Gateway({"providers": {"aws": {**provider, "models": models}}}, tmp_path, workers=1) as gateway:
        run(main)
