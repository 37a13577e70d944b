"""Embeddings: vectors as the provider sent them, one row, and everything else as for any other call (SPEC 6.4)."""

from __future__ import annotations

import asyncio
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.fakes.client import ask, run
from tests.fakes.gateway import ADMIN, until
from tests.fakes.origin import Origin, answer
from tests.fakes.wires import JSON, MESSAGES, UPSTREAM_KEY, Front
from tests.flow.conftest import MakeFront
from tests.flow.test_capture import captured, conversation, on_disk, storage

PATH = "/v1/embeddings"
FLOATS = (
    b'{ "object":"list","model":"served-v3",\n "data":[{"object":"embedding","index":0,"embedding":[1.0,-2.50e-3,0]},'
    b'{"index":1,"object":"embedding","embedding":[ 0.1, 2, 3]}],"usage":{"prompt_tokens":20,"total_tokens":20},"x":1 }'
)
BASE64 = b'{"object":"list","data":[{"object":"embedding","index":0,"embedding":"AACAPwAAAEA="}],"model":"served-v3"}'
INPUT = ["the first text", "and the second one"]


def asked(model: str = "chat-model", **members: Any) -> dict[str, Any]:
    return {"model": model, "input": INPUT, **members}


@pytest.mark.parametrize(("body", "encoding"), [(FLOATS, "float"), (BASE64, "base64")])
def test_vectors_come_back_byte_for_byte(front: Front, body: bytes, encoding: str) -> None:
    """No float is read and written again, and what the client asked goes out as it was spelled."""
    written = b'{"encoding_format":"%b", "input" : ["a", 1.50], "dimensions":256, "model":"chat-model","mine":{}}'

    async def main() -> None:
        async with Origin(answer(body, headers=[JSON]), port=front.upstream) as origin:
            found = await ask(front.port, PATH, written % encoding.encode())
            (request,) = origin.requests
        assert (found.status, found.body) == (200, body)
        assert (request.target, request.body.count(b"1.50")) == (PATH, 1)
        assert json.loads(request.body) == json.loads(written % encoding.encode())
        assert request.header("authorization") == f"Bearer {UPSTREAM_KEY}"
        assert found.header("x-arbiter-fidelity") == "verbatim"

    run(main)


def test_one_call_has_one_row_with_what_the_provider_counted(front: Front) -> None:
    """Its price is not known here: that is no cost at all, and not a cost of nothing."""

    async def main() -> None:
        async with Origin(answer(FLOATS, headers=[JSON]), port=front.upstream):
            found = await ask(front.port, PATH, asked(stream=True), headers=[("x-arbiter-session-id", "my-session")])
        row = front.row(found.trace_id)
        told = {name: row[name] for name in ("endpoint", "format_in", "outcome", "stream", "affinity_key", "cost_pd")}
        assert told == {
            "endpoint": "embeddings",
            "format_in": "embeddings",
            "outcome": "ok",
            "stream": 0,
            "affinity_key": None,
            "cost_pd": None,
        }
        assert (row["session"], row["turn_index"], row["model"]) == ("my-session", None, "served-v3")
        (attempt,) = row["attempts"]
        assert (attempt["input_tokens"], attempt["usage_source"]) == (20, "provider")
        assert (attempt["cost_pd"], attempt["cost_source"]) == (None, "unpriced")
        assert (attempt["lane"], attempt["format_out"], attempt["input_chain"]) == ("native", "embeddings", None)
        assert found.header("x-arbiter-cost-usd") is None

    run(main)


def test_its_tokens_cost_what_the_catalog_says(make_front: MakeFront) -> None:
    """A model of embeddings has a price for input only, and that is enough."""
    front = make_front(models=[{"model": "chat/chat-model", "input_usd_per_mtok": 0.02}])

    async def main() -> None:
        async with Origin(answer(FLOATS, headers=[JSON]), port=front.upstream):
            found = await ask(front.port, PATH, asked())
        assert Decimal(found.header("x-arbiter-cost-usd") or 0) == Decimal("0.0000004")
        (attempt,) = front.row(found.trace_id)["attempts"]
        assert (attempt["cost_pd"], attempt["cost_source"]) == (400_000, "model_config")

    run(main)


def test_what_nobody_counted_is_estimated(front: Front) -> None:
    """In a column of its own."""

    async def main() -> None:
        async with Origin(answer(BASE64, headers=[JSON]), port=front.upstream):
            found = await ask(front.port, PATH, asked())
        (attempt,) = front.row(found.trace_id)["attempts"]
        assert (attempt["input_tokens"], attempt["usage_source"]) == (None, "estimated")
        assert 6 <= attempt["estimated_input_tokens"] <= 20

    run(main)


def test_an_alias_rotates_keys_and_falls_back_as_for_any_call(make_front: MakeFront) -> None:
    """A key that is limited, a target that fails: the next one answers, under its own name for the model."""
    front = make_front(
        provider={"key": None, "keys": ["one", "two"]}, aliases={"embed": {"group": ["chat/chat-model", "echo"]}}
    )
    limited = answer(b"{}", status="429 Too Many Requests", headers=[JSON, ("retry-after", "1")])

    async def main() -> None:
        async with Origin(scripts=[limited, answer(FLOATS, headers=[JSON])], port=front.upstream) as origin:
            found = await ask(front.port, PATH, asked("embed"))
            assert (found.body, found.header("x-arbiter-attempts")) == (FLOATS, "2")
            assert len({request.header("authorization") for request in origin.requests}) == 2
            assert [json.loads(request.body)["model"] for request in origin.requests] == ["chat-model"] * 2
        front.forget()
        broken = answer(b'{"error":{"message":"broken"}}', status="500 Internal Server Error", headers=[JSON])
        async with Origin(broken, port=front.upstream):
            found = await ask(front.port, PATH, asked("embed"))
        assert (found.status, len(found.json["data"]), found.header("x-arbiter-provider")) == (200, 2, "echo")
        assert [one["why"] for one in front.row(found.trace_id)["attempts"]] == ["first", "fallback"]

    run(main)


def test_whoever_has_no_embeddings_is_passed_over(make_front: MakeFront) -> None:
    """Nobody was asked, so nothing is lost: the next target of the alias answers, and the row says who was left out."""
    front = make_front(aliases={"embed": {"group": [f"{MESSAGES.name}/{MESSAGES.model}", "chat/chat-model"]}})

    async def main() -> None:
        async with Origin(answer(FLOATS, headers=[JSON]), port=front.upstream) as origin:
            found = await ask(front.port, PATH, asked("embed"))
        assert (found.status, found.body, len(origin.requests)) == (200, FLOATS, 1)
        row = front.row(found.trace_id)
        assert [one["why"] for one in row["attempts"]] == ["first"]
        assert f"{MESSAGES.name}/{MESSAGES.model} cannot be told it (" in row["rationale"]

    run(main)


def test_an_operators_pause_holds_them_back_too(front: Front) -> None:
    """Before anybody is contacted."""

    async def main() -> None:
        assert front.get("/admin/pause?provider=chat", method="POST", headers=ADMIN).status == 200
        try:
            async with Origin(answer(FLOATS, headers=[JSON]), port=front.upstream) as origin:
                found = await ask(front.port, PATH, asked())
            assert (found.status, found.json["error"]["code"], origin.requests) == (503, "refused_by_rule", [])
        finally:
            assert front.get("/admin/resume?provider=chat", method="POST", headers=ADMIN).status == 200

    run(main)


def test_errors_have_openais_shape(front: Front) -> None:
    """Ours as theirs; theirs as they came. Whoever has no embeddings is not asked for any."""

    async def main() -> None:
        refusal = b'{"error":{"message":"too long","type":"invalid_request_error","param":"input","code":null}}'
        async with Origin(answer(refusal, status="400 Bad Request", headers=[JSON]), port=front.upstream) as origin:
            found = await ask(front.port, PATH, asked())
            assert (found.status, found.body) == (400, refusal)
            for model, status, code in ((MESSAGES.model, 400, "protocol_unsupported"), ("nobody's", 404, "no_route")):
                found = await ask(front.port, PATH, asked(model))
                assert (found.status, found.json["error"]["code"]) == (status, code)
                assert set(found.json["error"]) == {"message", "type", "param", "code"}
            assert len(origin.requests) == 1
        async with Origin(answer(b"<html>", headers=[JSON]), port=front.upstream):
            found = await ask(front.port, PATH, asked())
        assert (found.status, found.json["error"]["code"]) == (502, "upstream_protocol")

    run(main)


def test_the_kept_copy_has_counts_and_no_vectors(tmp_path: Path) -> None:
    """Nor the texts that went in: a corpus on its way into an index is nobody's conversation."""
    with Front(tmp_path, storage=storage(tmp_path, content=True)) as gateway:
        traces = []

        async def main() -> None:
            async with Origin(answer(FLOATS, headers=[JSON]), port=gateway.upstream):
                traces.append((await ask(gateway.port, PATH, asked(user="me"))).trace_id)

        run(main)
        captured(gateway, 1)
        assert conversation(gateway, traces[0]) == [
            ("in", "parameters", {"model": "chat-model", "user": "me"}),
            (
                "out",
                "answer",
                {
                    "model": "served-v3",
                    "usage": {"prompt_tokens": 20, "total_tokens": 20},
                    "vectors": 2,
                    "width": 3,
                },
            ),
        ]
        assert b"-2.50e-3" not in on_disk(gateway) and b"second one" not in on_disk(gateway)


def test_openais_sdk_reads_them(front: Front) -> None:
    """It asks for base64 by itself and unpacks it; with `float` the numbers come as they are."""
    with openai.OpenAI(base_url=f"{front.url}/v1", api_key="nobody's", max_retries=0, timeout=20) as client:
        packed = client.embeddings.create(model="echo", input=INPUT, dimensions=16)
        plain = client.embeddings.create(model="echo", input=INPUT, dimensions=16, encoding_format="float")
        assert [len(one.embedding) for one in packed.data] == [16, 16]
        for one, other in zip(packed.data, plain.data, strict=True):
            assert one.embedding == pytest.approx(other.embedding, abs=1e-6)
        assert packed.data[0].embedding != packed.data[1].embedding
        assert packed.usage.prompt_tokens == packed.usage.total_tokens > 0
        type(packed).model_validate_json(packed.model_dump_json())
        with pytest.raises(openai.BadRequestError):
            client.embeddings.create(model="echo", input=[])


def test_many_vectors_pass_whole(front: Front) -> None:
    """Two thousand of them: more values than any answer that is read may have."""
    vector = "[" + ",".join(["0.0123456789"] * 256) + "]"
    data = ",".join(f'{{"object":"embedding","index":{n},"embedding":{vector}}}' for n in range(2048))
    usage = '"usage":{"prompt_tokens":5,"total_tokens":5}'
    body = f'{{"object":"list","data":[{data}],"model":"m",{usage}}}'.encode()

    async def main() -> None:
        async with Origin(answer(body, headers=[JSON]), port=front.upstream):
            found = await ask(front.port, PATH, asked())
        assert found.body == body
        (attempt,) = await asyncio.to_thread(until, lambda: front.row(found.trace_id)["attempts"], "its row")
        assert attempt["input_tokens"] == 5

    run(main)
