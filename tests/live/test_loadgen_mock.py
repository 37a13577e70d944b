"""The mock upstream of the benchmarks as others meet it: plain HTTP clients, and a whole gateway in between."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from bench import tools
from tests.fakes.gateway import Gateway

pytestmark = pytest.mark.needs("cargo")

CHAT = "/v1/chat/completions"
PATHS = {
    "chat": CHAT,
    "messages": "/v1/messages",
    "responses": "/v1/responses",
    "gemini": "/v1beta/models/{model}:streamGenerateContent?alt=sse",
}


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with tools.mock("--answer", "s3-0") as (port, _):
        yield port


def post(port: int, path: str, body: Any, **options: Any) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("POST", path, body, **options)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def test_a_request_that_names_no_script_gets_what_it_asks_for(port: int) -> None:
    """A stream where it asks for one, JSON where not; and what is no endpoint is not found."""
    said = {"model": "gpt-4o", "messages": [{"role": "user", "content": "mark=00000007"}]}
    status, text = post(port, CHAT, json.dumps(said))
    assert status == 200 and json.loads(text)["choices"][0]["message"]["content"].startswith("mark=00000007 ")
    status, text = post(port, CHAT, json.dumps({**said, "stream": True}))
    assert status == 200 and text.count("00000007-00000") == 3 and text.endswith("data: [DONE]\n\n")
    assert post(port, "/nothing", "{}")[0] == 404
    assert post(port, "/health", "")[0] == 200


def test_embeddings_and_counts_are_answered(port: int) -> None:
    """What gateways ask besides."""
    assert json.loads(post(port, "/v1/embeddings", '{"model":"m","input":"x"}')[1])["data"][0]["embedding"]
    body = json.dumps({"model": "m", "messages": ["x" * 400]})
    assert json.loads(post(port, "/v1/messages/count_tokens", body)[1])["input_tokens"] >= 100
    assert json.loads(post(port, "/v1/responses/input_tokens", body)[1])["input_tokens"] >= 100
    assert json.loads(post(port, "/v1beta/models/m:countTokens", body)[1])["totalTokens"] >= 100


def test_requests_in_chunks_are_read_whole(port: int) -> None:
    """Some proxies send no length; the mark is found even where two chunks share it."""
    parts = [b'{"model":"s2-0","messages":[{"role":"user","content":"ma', b"rk=0000", b'0009"}]}']
    status, text = post(port, CHAT, iter(parts), encode_chunked=True, headers={"transfer-encoding": "chunked"})
    assert status == 200 and text.count("00000009-00000") == 2


def test_requests_that_do_not_wait_are_answered_in_order(port: int) -> None:
    """Two requests in one write, a stream and an answer of JSON, and the second cut in two."""
    first, second = (f'{{"model":"{script}","m":"mark={mark:08}"}}' for script, mark in (("s2-1", 1), ("u300", 2)))
    wire = "".join(
        f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n{body}" for body in (first, second)
    ).encode()
    with socket.create_connection(("127.0.0.1", port), timeout=10) as raw:
        raw.sendall(wire[:-30])
        raw.sendall(wire[-30:])
        got = b""
        while b'"completion_tokens":60' not in got:
            got += raw.recv(65536)
    assert got.count(b"HTTP/1.1 200 OK") == 2
    assert got.index(b"00000001-000001") < got.index(b"[DONE]") < got.index(b"mark=00000002")


@pytest.mark.parametrize("model", ["u1024", "s20-0", "s3-5", "u1024.head20", "status503"])
def test_a_client_that_closes_finds_the_end(port: int, model: str) -> None:
    """Many read an answer until its connection ends, once they have asked for that."""
    body = json.dumps({"model": model, "stream": model.startswith("s2") or model.startswith("s3"), "messages": []})
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: m\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=10) as raw:
        raw.sendall((head + body).encode())
        found = b"".join(iter(lambda: raw.recv(65536), b""))
    assert found.startswith(b"HTTP/1.1 503" if model == "status503" else b"HTTP/1.1 200")
    assert found.endswith(b"0\r\n\r\n" if b"chunked" in found else b"}")


def test_a_client_that_does_not_read_loses_nothing(port: int) -> None:
    """More than a socket holds, of a stream without pauses: the mock waits, serves others, and goes on."""
    body = '{"model":"s4000-0.x4000","m":"mark=00000003"}'
    with socket.create_connection(("127.0.0.1", port), timeout=10) as slow:
        slow.sendall(f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode())
        slow.recv(1)
        assert tools.load(f"http://127.0.0.1:{port}{CHAT}", "s50-0", "--requests", 20)["errors"] == 0
        tail = b""
        count = 0
        while not tail.endswith(b"0\r\n\r\n"):
            got = tail + slow.recv(1 << 20)
            count += got.count(b" token ") - tail.count(b" token ")
            tail = got[-16:]
    assert count == 4000


# ------------------------------------------------------------------------------------------- through a gateway

MODELS = ("u1024", "s20-0", "s10-0.r3", "s10-0.t3", "s12-1.r4.t5", "s5-0.x2000")
PROVIDERS = {
    "chat": ("openai", "/v1", "chat", "openai-chat"),
    "messages": ("anthropic", "/v1", "messages", "anthropic-messages"),
    "responses": ("openai", "/v1", "responses", "openai-responses"),
    "gemini": ("gemini", "/v1beta", None, "google-gemini"),
}


@pytest.fixture(scope="module")
def gateway(port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    providers = {
        name: {
            "type": type, "endpoint": f"http://127.0.0.1:{port}{path}", "key": "k",
            "models": [{"id": model} | ({"api": api} if api else {}) for model in MODELS],
        }
        for name, (type, path, api, _) in PROVIDERS.items()
    }  # fmt: skip
    with Gateway({"providers": providers}, tmp_path_factory.mktemp("gateway")) as one:
        yield one


@pytest.mark.parametrize("upstream", PROVIDERS)
@pytest.mark.parametrize("client", PATHS)
def test_every_event_comes_through_the_gateway_in_every_format(gateway: Gateway, client: str, upstream: str) -> None:
    """Text, reasoning and arguments, handed on or translated: none missing, none mixed, in order, counted, ended."""
    before = len(gateway.requests())
    for model in MODELS:
        path = PATHS[client] if model.startswith("s") else PATHS[client].replace(":stream", ":").partition("?")[0]
        path = path.replace(":Generate", ":generate")
        report = tools.load(
            f"http://127.0.0.1:{gateway.port}{path}", f"{upstream}/{model}",
            "--format", client, "--connections", 4, "--requests", 12, "--timeout", 20, "--tools", 2,
        )  # fmt: skip
        assert report["complaint"] == "", model
        assert report["requests"] == 12 and report["total_us"]["count"] == 12
    gateway.until_settled(before + 12 * len(MODELS))
    spoken = gateway.select("SELECT DISTINCT format_out FROM attempts WHERE provider = ?", upstream)
    assert spoken == [{"format_out": PROVIDERS[upstream][3]}]  # and not in a format that needs no translation
