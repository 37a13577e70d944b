"""Counting tokens: the target's own count where it has one, else an estimate that says so and learns (SPEC 1.1)."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from tests.fakes.client import Answer, ask, run
from tests.fakes.gateway import ADMIN, until
from tests.fakes.origin import SILENCE, Origin, Peer, Request, answer
from tests.fakes.wires import CHAT, JSON, MESSAGES, RESPONSES, WIRES, Front, Wire
from tests.flow.conftest import MakeFront

PATH = "/v1/messages/count_tokens?beta=true"
TEXT = "The quick brown fox jumps over the lazy dog. " * 400
COUNTED = answer(b'{"input_tokens": 42}', headers=[JSON])


def body(model: str = CHAT.model, text: str = TEXT, **members: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}], **members}


async def count(front: Front, model: str = CHAT.model, **members: Any) -> Answer:
    return await ask(front.port, PATH, body(model, **members))


async def estimate(front: Front, model: str = CHAT.model, **members: Any) -> int:
    found = await count(front, model, **members)
    assert found.status == 200 and found.header("x-arbiter-estimate") is not None, found.body
    assert set(found.json) == {"input_tokens"}
    return int(found.json["input_tokens"])


def test_who_cannot_count_is_not_asked_and_the_estimate_says_what_it_is(make_front: MakeFront) -> None:
    """A header marks it, and its row says for whom it is; no attempt was made."""
    front = make_front(limits={"answer": "62MiB"})

    async def main() -> None:
        async with Origin(COUNTED, port=front.upstream) as origin:
            found = await count(front)
            assert origin.requests == []
        assert found.header("x-arbiter-estimate") == "unsupported"
        assert (found.header("x-arbiter-provider"), found.header("x-arbiter-attempts")) == ("chat", "0")
        assert found.json["input_tokens"] == pytest.approx(len(TEXT) / 4, rel=0.02)
        row = front.row(found.trace_id)
        assert (row["endpoint"], row["outcome"], row["status"], row["attempts"]) == ("count_tokens", "ok", 200, [])
        assert (row["provider"], row["model"]) == ("chat", CHAT.model)
        assert "tokens estimated: unsupported" in row["rationale"]

    run(main)


def test_a_real_count_is_passed_on_and_unmarked(front: Front) -> None:
    async def main() -> None:
        async with Origin(COUNTED, port=front.upstream) as origin:
            found = await count(front, MESSAGES.model)
            assert (found.body, found.header("x-arbiter-estimate")) == (b'{"input_tokens": 42}', None)
            assert origin.requests[0].target == PATH

    run(main)


def test_everything_that_a_model_reads_is_counted(front: Front) -> None:
    """Tools, their results, thinking and images; base64 is not read as text."""
    png = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 1000, 750) + bytes(30_000)
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(png).decode()}
    parts = {
        "tool_result": {"type": "tool_result", "tool_use_id": "t", "content": TEXT},
        "thinking": {"type": "thinking", "thinking": TEXT, "signature": "s" * 4000},
        "image": {"type": "image", "source": source},
        "tool_use": {"type": "tool_use", "id": "t", "name": "n", "input": {"text": TEXT}},
    }

    async def main() -> None:
        alone = await estimate(front, text="hello")
        text = await estimate(front) - alone
        for name, part in parts.items():
            messages = [{"role": "user", "content": [part, {"type": "text", "text": "hello"}]}]
            more = await estimate(front, messages=messages) - alone
            assert more == pytest.approx(1000 if name == "image" else text, rel=0.08), name
        tool = {"name": "n", "description": TEXT, "input_schema": {"type": "object"}}
        assert await estimate(front, text="hello", tools=[tool]) - alone == pytest.approx(text, rel=0.05)
        assert await estimate(front, text="hello", system=TEXT) - alone == pytest.approx(text, rel=0.05)

    run(main)


@pytest.mark.parametrize("wire", WIRES, ids=str)
def test_estimates_learn_from_what_is_reported(make_front: MakeFront, wire: Wire) -> None:
    """Per model and client, whatever format the answer came in: the next estimate is what was reported."""
    front = make_front(limits={"answer": f"{70 + WIRES.index(wire)}MiB"})
    usage = {
        CHAT: {"prompt_tokens": 9000, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 8000}},
        MESSAGES: {"input_tokens": 900, "cache_read_input_tokens": 8000, "cache_creation_input_tokens": 100},
        RESPONSES: {"input_tokens": 9000, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 8000}},
    }[wire]
    told = answer(json.dumps({**json.loads(wire.answer()), "usage": usage}).encode(), headers=[JSON])
    broken = answer(b"{}", status="503 Service Unavailable", headers=[JSON])

    async def main() -> None:
        async with Origin(broken, port=front.upstream) as origin:
            before = await estimate(front, wire.model)
            assert before == pytest.approx(len(TEXT) / 4, rel=0.02)
            origin.answer_with(told)
            if wire is RESPONSES:  # nobody else is answered in them
                found = await ask(front.port, wire.path, wire.ask(TEXT))
            else:
                found = await ask(front.port, MESSAGES.path, body(wire.model, max_tokens=9))
            assert found.status == 200
            origin.answer_with(broken)
            assert await estimate(front, wire.model) == pytest.approx(9000, rel=0.02)
            assert await estimate(front, "messages/messages-model" if wire is CHAT else CHAT.model) == before

    run(main)


def test_every_worker_knows_what_one_of_them_learned_and_after_a_restart_too(tmp_path: Path) -> None:
    """Nobody waits for it: within some seconds."""
    usage = {"prompt_tokens": 9000, "completion_tokens": 3}
    told = answer(json.dumps({**json.loads(CHAT.answer()), "usage": usage}).encode(), headers=[JSON])
    with Front(tmp_path, gateway={"workers": 2}) as front:

        async def learn() -> None:
            async with Origin(told, port=front.upstream):
                assert (await ask(front.port, CHAT.path, body())).status == 200

        async def counts() -> set[int]:
            return {await estimate(front) for _ in range(12)}

        def all_know() -> bool:
            found: set[int] = set()

            async def main() -> None:
                found.update(await counts())

            run(main)
            return min(found) > 8500

        run(learn)
        until(all_know, "both workers to know")
        front.stop()
        front.start()
        until(all_know, "it to be known after a restart")


def test_a_server_without_the_endpoint_is_asked_once(make_front: MakeFront) -> None:
    """Many that speak Anthropic's format lack it. A 404 about the model is none of that, and passes as it came."""
    front = make_front(limits={"answer": "63MiB"})
    unknown = b'{"type":"error","error":{"type":"not_found_error","message":"model: messages-model"}}'

    async def main() -> None:
        async with Origin(answer(unknown, status="404 Not Found", headers=[JSON]), port=front.upstream) as origin:
            found = await count(front, MESSAGES.model)
            assert (found.status, found.body, found.header("x-arbiter-estimate")) == (404, unknown, None)
            origin.answer_with(answer(b'{"detail":"Not Found"}', status="404 Not Found", headers=[JSON]))
            for asked in (2, 2):
                found = await count(front, MESSAGES.model)
                assert (found.status, found.header("x-arbiter-estimate")) == (200, "unsupported")
                assert len(origin.requests) == asked

    run(main)


def test_what_one_worker_found_missing_no_worker_asks_for(tmp_path: Path) -> None:
    """It is of the server, and so of everybody who would ask it."""
    lacks = answer(b'{"detail":"Not Found"}', status="404 Not Found", headers=[JSON])
    with Front(tmp_path, gateway={"workers": 2}) as front:

        async def main() -> None:
            async with Origin(lacks, port=front.upstream) as origin:
                for _ in range(12):
                    found = await count(front, MESSAGES.model)
                    assert (found.status, found.header("x-arbiter-estimate")) == (200, "unsupported")
                assert len(origin.requests) == 1

        run(main)


@pytest.mark.parametrize(
    "script",
    [
        answer(b"{}", status="429 Too Many Requests", headers=[JSON, ("retry-after", "60")]),
        answer(b"{}", status="529 Overloaded", headers=[JSON]),
        answer(b"<html>", status="502 Bad Gateway"),
    ],
    ids=["429", "529", "502"],
)
def test_what_keeps_a_target_from_counting_keeps_nobody_from_an_answer(front: Front, script: bytes) -> None:
    """It is asked once, and an account that may not count now may generate: its providers count the two apart."""

    async def main() -> None:
        async with Origin(script, port=front.upstream) as origin:
            found = await count(front, MESSAGES.model)
            assert (found.status, found.header("x-arbiter-estimate")) == (200, "unavailable")
            assert len(origin.requests) == 1
            row = front.row(found.trace_id)
            assert (row["outcome"], len(row["attempts"]), row["attempts"][0]["outcome"]) == ("ok", 1, "error")
            origin.answer_with(answer(MESSAGES.answer(), headers=[JSON]))
            assert (await ask(front.port, MESSAGES.path, MESSAGES.ask())).status == 200

    run(main)


def test_what_is_wrong_with_a_count_is_told(front: Front) -> None:
    """With the request, or with our key: neither is a reason to guess."""

    async def main() -> None:
        for messages in ([], None, "hello"):
            found = await count(front, messages=messages)
            assert found.status == 400 and "messages" in MESSAGES.complaint(found)
        refusal = b'{"type":"error","error":{"type":"invalid_request_error","message":"tools.0: bad"}}'
        async with Origin(answer(refusal, status="400 Bad Request", headers=[JSON]), port=front.upstream) as origin:
            found = await count(front, MESSAGES.model)
            assert (found.status, found.body) == (400, refusal)
            origin.answer_with(answer(b"{}", status="401 Unauthorized", headers=[JSON]))
            found = await count(front, MESSAGES.model)
            assert (found.status, found.header("x-arbiter-estimate")) == (502, None)
        found = await count(front, "nobody's")
        assert found.status == 404

    run(main)


def test_a_paused_provider_is_not_asked_to_count(front: Front) -> None:
    async def main() -> None:
        assert front.get("/admin/pause?provider=messages", method="POST", headers=ADMIN).status == 200
        try:
            async with Origin(COUNTED, port=front.upstream) as origin:
                assert await estimate(front, MESSAGES.model) > 4000
                assert origin.requests == []
        finally:
            front.get("/admin/resume?provider=messages", method="POST", headers=ADMIN)

    run(main)


def test_a_burst_takes_nothing_from_a_generation(make_front: MakeFront) -> None:
    """Claude Code's screen of its context: fourteen counts at once, while the provider may be asked once a minute, over
    four connections, and takes its time to count."""
    front = make_front(provider={"connections": {"max": 4}, "limits": {"requests_per_minute": 1}})
    release = asyncio.Event()

    async def serve(peer: Peer, request: Request) -> None:
        if "count_tokens" in request.target:
            await release.wait()
            await peer.send(COUNTED)
        else:
            await peer.send(answer(MESSAGES.answer(), headers=[JSON]))

    async def main() -> None:
        async with Origin(serve, port=front.upstream) as origin:
            counts = [asyncio.create_task(count(front, MESSAGES.model, text=TEXT * n)) for n in range(1, 15)]
            await origin.until(lambda: len(origin.requests) == 2, "half of the connections")
            found = await ask(front.port, MESSAGES.path, MESSAGES.ask())
            assert found.status == 200
            await origin.until(lambda: sum(one.done() for one in counts) == 12, "those that found no room")
            release.set()
            answers = await asyncio.gather(*counts)
        assert [one.status for one in answers] == [200] * 14
        told = [one.header("x-arbiter-estimate") for one in answers]
        assert sorted(told, key=str) == [None] * 2 + ["busy"] * 12
        assert (await ask(front.port, MESSAGES.path, MESSAGES.ask())).status == 429

    run(main)


def test_a_count_that_takes_long_is_estimated(make_front: MakeFront) -> None:
    """Not tried again: somebody waits for a screen."""
    front = make_front(provider={"timeouts": {"unary": "300ms"}, "retry": {"attempts": 5}})

    async def main() -> None:
        async with Origin([SILENCE], port=front.upstream) as origin:
            found = await count(front, MESSAGES.model)
            assert (found.header("x-arbiter-estimate"), len(origin.requests)) == ("unavailable", 1)

    run(main)


def test_anthropics_sdk_counts_on_any_target(front: Front) -> None:
    """Typed, with tools, images, thinking and results; the header is there for who looks."""
    with anthropic.Anthropic(base_url=front.url, api_key="nobody's", max_retries=0, timeout=20) as client:
        raw = client.messages.with_raw_response.count_tokens(
            model=CHAT.model,
            system="be brief",
            tools=[{"name": "n", "input_schema": {"type": "object"}}],
            thinking={"type": "enabled", "budget_tokens": 2048},
            messages=[
                {"role": "user", "content": "look"},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "n", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "3 degrees"}]},
            ],
        )
        assert raw.headers["x-arbiter-estimate"] == "unsupported"
        counted = raw.parse()
        type(counted).model_validate(counted.model_dump(), strict=True)
        assert 20 < counted.input_tokens < 200


def test_a_count_under_way_is_no_load(make_front: MakeFront) -> None:
    """`least_busy` draws among equals by conversation: the turn goes where its count still waits."""
    front = make_front(aliases={"idle": {"group": ["messages/messages-model", "echo"], "select": "least_busy"}})
    release = asyncio.Event()

    async def serve(peer: Peer, request: Request) -> None:
        if "count_tokens" in request.target:
            await release.wait()
            await peer.send(COUNTED)
        else:
            await peer.send(answer(MESSAGES.answer(), headers=[JSON]))

    async def main() -> None:
        async with Origin(serve, port=front.upstream) as origin:
            for number in range(64):
                text = f"{TEXT} {number}"
                waiting = asyncio.create_task(count(front, "idle", text=text))
                await origin.until(lambda: bool(origin.requests) or waiting.done(), "the count")  # noqa: B023
                if origin.requests:
                    break
            found = await ask(front.port, MESSAGES.path, body("idle", text, max_tokens=9))
            assert found.header("x-arbiter-provider") == "messages"
            release.set()
            assert (await waiting).body == b'{"input_tokens": 42}'

    run(main)


# --- OpenAI's own count -----------------------------------------------------------------------------------------------


OWN = "/v1/responses/input_tokens"
OWN_COUNT = b'{"object": "response.input_tokens", "input_tokens": 42}'


def test_responses_are_counted_by_who_has_them(front: Front) -> None:
    """The body as it came but for its model; the answer passes as it came."""

    async def main() -> None:
        async with Origin(answer(OWN_COUNT, headers=[JSON]), port=front.upstream) as origin:
            asked = {"model": RESPONSES.model, "input": "hello", "personality": "friendly", "truncation": "auto"}
            found = await ask(front.port, OWN, asked)
            assert (found.status, found.body, found.header("x-arbiter-estimate")) == (200, OWN_COUNT, None)
            (sent,) = origin.requests
            assert (sent.target, json.loads(sent.body)) == (OWN, asked)
            counted = openai.OpenAI(base_url=f"http://127.0.0.1:{front.port}/v1", api_key="x", max_retries=0)
            sdk = counted.responses.input_tokens.count
            told = await asyncio.to_thread(sdk, model=RESPONSES.model, input="hello")
            assert (told.object, told.input_tokens) == ("response.input_tokens", 42)
        row = front.row(found.trace_id)
        (attempt,) = row["attempts"]
        assert (row["endpoint"], row["format_in"], attempt["input_tokens"]) == (
            "count_tokens",
            "openai-responses",
            None,
        )

    run(main)


@pytest.mark.parametrize("wire", [CHAT, MESSAGES], ids=str)
def test_others_are_estimated_in_openais_shape(front: Front, wire: Wire) -> None:
    async def main() -> None:
        async with Origin(COUNTED, port=front.upstream) as origin:
            items = [{"role": "user", "content": [{"type": "input_text", "text": TEXT}]}]
            found = await ask(front.port, OWN, {"model": wire.model, "input": items})
            assert (found.status, found.header("x-arbiter-estimate")) == (200, "unsupported")
            assert found.json["object"] == "response.input_tokens"
            assert found.json["input_tokens"] == pytest.approx(len(TEXT) / 4, rel=0.03)
            text = await ask(front.port, OWN, {"model": wire.model, "input": TEXT, "instructions": TEXT})
            assert text.json["input_tokens"] == pytest.approx(len(TEXT) / 2, rel=0.03)
            for bad in ({}, {"input": []}, {"input": ""}, {"input": 7}):
                refused = await ask(front.port, OWN, {"model": wire.model, **bad})
                assert (refused.status, refused.json["error"]["param"]) == (400, "input")
            referring = {"model": wire.model, "input": "go on", "previous_response_id": "resp_0"}
            refused = await ask(front.port, OWN, referring)
            assert (refused.status, refused.json["error"]["param"]) == (400, "previous_response_id")
            assert origin.requests == []

    run(main)


def test_a_server_without_openais_count_is_remembered(make_front: MakeFront) -> None:
    """A 404 of the path is the path's; one of what the request refers to passes as it came."""
    front = make_front(limits={"answer": "75MiB"})
    about = {"message": "Previous response with id 'resp_0' not found.", "param": "previous_response_id", "code": None}

    async def main() -> None:
        missing = answer(json.dumps({"error": about}).encode(), status="404 Not Found", headers=[JSON])
        asked = {"model": RESPONSES.model, "input": TEXT}
        async with Origin(missing, port=front.upstream) as origin:
            found = await ask(front.port, OWN, {**asked, "previous_response_id": "resp_0"})
            assert (found.status, found.json["error"]) == (404, about)
            origin.answer_with(answer(b'{"detail":"Not Found"}', status="404 Not Found", headers=[JSON]))
            for _ in range(2):
                found = await ask(front.port, OWN, asked)
                assert (found.status, found.header("x-arbiter-estimate")) == (200, "unsupported")
            assert len(origin.requests) == 2
            origin.answer_with(answer(RESPONSES.answer(), headers=[JSON]))
            assert (await ask(front.port, RESPONSES.path, RESPONSES.ask())).status == 200, (
                "it has Responses all the same"
            )

    run(main)
