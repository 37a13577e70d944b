"""Upstreams that refuse, err, or talk nonsense: what the client is told, and what the row says."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest

from tests.fakes.client import Answer, Ending, ask, run
from tests.fakes.origin import CLOSE, LAST_CHUNK, RESET, Origin, Steps, answer, chunk, chunked_head
from tests.fakes.wires import CHAT, JSON, MESSAGES, UPSTREAM_KEY, WIRES, Front, Wire, sse

each_wire = pytest.mark.parametrize("wire", WIRES, ids=str)
each_way = pytest.mark.parametrize("stream", [False, True], ids=["unary", "stream"])


async def asked(front: Front, wire: Wire, script: Steps, *, stream: bool = False) -> Answer:
    async with Origin(script, port=front.upstream):
        return await ask(front.port, wire.path, wire.ask(stream=stream))


def told(front: Front, wire: Wire, found: Answer, status: int, kind: str, *, row_status: int | None = None) -> str:
    """`found` is an error in the format of `wire`, and the row agrees; returns its message."""
    assert (found.status, found.ending) == (status, Ending.CLEAN), found.body
    row = front.row(found.trace_id)
    assert (row["status"], row["outcome"], row["error_class"]) == (status, "error", kind)
    (attempt,) = row["attempts"]
    assert (attempt["outcome"], attempt["error_class"]) == ("error", kind)
    assert found.header("x-arbiter-error-source") == "upstream"
    assert found.header("x-arbiter-provider") == wire.name
    return wire.complaint(found)


ERRORS = [
    ("400 Bad Request", "bad_request", b'{"error": {"message":"no such field \\u2713", "type":"x", "extra":[1,2]}}'),
    ("400 Bad Request", "context_length", b'{"error":{"message":"too long","code":"context_length_exceeded"}}'),
    ("404 Not Found", "not_found", b'{"type":"error","error":{"type":"not_found_error","message":"model: x"}}'),
    ("413 Too Large", "too_large", b'{"error":{"message":"large"}}'),
    ("422 Unprocessable", "bad_request", b'{"detail":[{"loc":["body"],"msg":"oh"}]}'),
    ("429 Too Many", "rate_limited_transient", b'{"error":{"message":"slow down","type":"rate_limit_error"}}\n'),
    ("429 Too Many", "quota_exhausted", b'{"error":{"message":"pay","code":"insufficient_quota"}}'),
    ("500 Oh", "upstream_error", b'{"error":{"message":"bug"}}'),
    ("503 Busy", "overloaded", b'{"error":{"message":"busy"}}'),
    ("529 Busy", "overloaded", b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'),
]  # fmt: skip


@each_wire
@each_way
@pytest.mark.parametrize(("status", "kind", "body"), ERRORS, ids=[f"{case[0][:3]}-{case[1]}" for case in ERRORS])
def test_an_upstreams_error_passes_byte_for_byte(
    front: Front, wire: Wire, stream: bool, status: str, kind: str, body: bytes
) -> None:
    """Clients match on the wording, so status and body are the upstream's, and so are its rate-limit headers."""
    headers = [
        JSON,
        ("retry-after", "7"),
        ("x-ratelimit-remaining-tokens", "12"),
        ("anthropic-ratelimit-requests-reset", "2030-01-01T00:00:00Z"),
        ("x-some-quota-left", "1"),
        ("request-id", "req_9"),
        ("x-should-retry", "true"),
        ("set-cookie", "a=b"),
        ("x-internal-host", "10.0.0.7"),
        ("server", "secret/1.0"),
    ]

    async def main() -> None:
        found = await asked(front, wire, answer(body, status=status, headers=headers), stream=stream)
        assert (found.status, found.body) == (int(status[:3]), body)
        for name, value in headers[:7]:
            assert found.header(name) == value, name
        assert found.header("set-cookie") is None and found.header("x-internal-host") is None
        assert found.header("server") != "secret/1.0"
        assert found.header("x-arbiter-error-source") == "upstream"
        row = front.row(found.trace_id)
        assert (row["status"], row["outcome"], row["error_class"]) == (found.status, "error", kind)
        assert row["attempts"][0]["status"] == found.status
        assert row["attempts"][0]["upstream_request_id"] == "req_9"

    run(main)


@each_wire
@pytest.mark.parametrize("value", ["2.5", "Wed, 21 Oct 2015 07:28:00 GMT", "soon"])
def test_retry_after_leaves_as_whole_seconds(front: Front, wire: Wire, value: str) -> None:
    """Claude Code reads nothing else (SPEC 1.4)."""

    async def main() -> None:
        found = await asked(front, wire, answer(b"{}", status="429 X", headers=[JSON, ("retry-after", value)]))
        assert found.header("retry-after") == {"2.5": "3", "soon": "1"}.get(value, "0")

    run(main)


@each_wire
@pytest.mark.parametrize(
    ("body", "wait"),
    [
        (b'{"error":{"message":"slow down"}}', "1"),
        (b'{"error":{"message":"pay","code":"insufficient_quota"}}', None),
    ],
    ids=["transient", "quota"],
)
def test_a_passing_429_never_leaves_bare(front: Front, wire: Wire, body: bytes, wait: str | None) -> None:
    """New Codex stops for good at a 429 that does not say when; a used-up quota is no matter of seconds."""

    async def main() -> None:
        found = await asked(front, wire, answer(body, status="429 X", headers=[JSON]))
        assert (found.status, found.body, found.header("retry-after")) == (429, body, wait)

    run(main)


@each_wire
@each_way
@pytest.mark.parametrize("status", ["401 Unauthorized", "403 Forbidden"])
def test_a_refusal_of_our_key_is_our_configurations_fault(front: Front, wire: Wire, stream: bool, status: str) -> None:
    """The user must not be asked to log in, nor the request be repeated, and the key is not repeated either."""

    async def main() -> None:
        body = json.dumps({"error": {"message": "Incorrect API key provided", "type": "authentication_error"}}).encode()
        found = await asked(front, wire, answer(body, status=status, headers=[JSON]), stream=stream)
        assert "Incorrect API key provided" in told(front, wire, found, 502, "config")
        assert found.header("x-should-retry") == "false"
        assert UPSTREAM_KEY.encode() not in found.body
        assert front.row(found.trace_id)["attempts"][0]["status"] == int(status[:3])

    run(main)


PAGES = [
    (b"<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>", "text/html"),
    (b"<html><script>alert(1)</script></html>", "application/json"),
    (b"upstream connect error or disconnect/reset before headers", "text/plain"),
    (b"", "text/html"),
]


@each_wire
@each_way
@pytest.mark.parametrize(("page", "kind"), PAGES, ids=["page", "lying page", "text", "empty"])
def test_a_page_never_reaches_the_client(front: Front, wire: Wire, stream: bool, page: bytes, kind: str) -> None:
    """Proxies on the way answer in HTML or plain text; the client gets its own format, with the status."""

    async def main() -> None:
        script = answer(page, status="502 Bad Gateway", headers=[("content-type", kind), ("retry-after", "3")])
        found = await asked(front, wire, script, stream=stream)
        message = told(front, wire, found, 502, "upstream_error")
        assert message and "<" not in message
        assert found.header("retry-after") == "3"

    run(main)


@each_wire
@each_way
def test_a_page_with_status_200_is_no_answer(front: Front, wire: Wire, stream: bool) -> None:
    """A captive portal or a wrong base URL answers 200 and a page: that is told as what it is."""

    async def main() -> None:
        found = await asked(front, wire, answer(PAGES[0][0], headers=[("content-type", "text/html")]), stream=stream)
        message = told(front, wire, found, 502, "upstream_protocol")
        assert "<" not in message

    run(main)


@each_wire
@each_way
@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary", "308 Permanent", "304 Not Modified"])
def test_a_redirect_is_refused(front: Front, wire: Wire, stream: bool, status: str) -> None:
    """It would take the request, and the key, to a place that nobody configured (SPEC 14.4)."""

    async def main() -> None:
        async with Origin(answer(b"{}", headers=[JSON])) as elsewhere:
            script = f"HTTP/1.1 {status}\r\nlocation: {elsewhere.url}/v1/x\r\ncontent-length: 0\r\n\r\n".encode()
            found = await asked(front, wire, script, stream=stream)
            assert "redirect" in told(front, wire, found, 502, "upstream_protocol")
            assert found.header("location") is None
            assert elsewhere.peers == []

    run(main)


BROKEN: dict[str, tuple[Steps, str]] = {
    "not HTTP": ([b"SSH-2.0-OpenSSH\r\n\r\n", CLOSE], "upstream_protocol"),
    "two lengths": (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{} ", "upstream_protocol"),
    "a bad length": (b"HTTP/1.1 200 OK\r\ncontent-length: +2\r\n\r\n{}", "upstream_protocol"),
    "an unknown coding": (b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n{}", "upstream_protocol"),
    "a bad chunk": (chunked_head(headers=[JSON]) + b"zz\r\n{}\r\n", "upstream_protocol"),
    "a status that HTTP has not": (answer(b"{}", status="600 Oh", headers=[JSON]), "upstream_protocol"),
    "the last of three digits": (answer(b"{}", status="999 Oh", headers=[JSON]), "upstream_protocol"),
    "one below the first": (b"HTTP/1.1 099 Oh\r\ncontent-length: 2\r\n\r\n{}", "upstream_protocol"),
    "a huge head": (b"HTTP/1.1 200 OK\r\nx: " + b"a" * (300 << 10) + b"\r\n\r\n", "upstream_protocol"),
    "half a head": ([b"HTTP/1.1 200 OK\r\ncontent-", CLOSE], "transport"),
    "closed at once": ([CLOSE], "transport"),
    "reset at once": ([RESET], "transport"),
    "half an answer": ([answer(b'{"a', length=100, headers=[JSON]), CLOSE], "transport"),
    "a reset answer": ([answer(b'{"a', length=100, headers=[JSON]), 0.02, RESET], "transport"),
    "an unknown encoding": (answer(b"x", headers=[JSON, ("content-encoding", "lzma")]), "upstream_protocol"),
    "an untrue encoding": (answer(b"{}", headers=[JSON, ("content-encoding", "gzip")]), "upstream_protocol"),
}


@each_wire
@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_answer_is_a_502_that_says_how(front: Front, wire: Wire, what: str) -> None:
    """Whatever comes instead of an answer: one status, one error, one row; nothing of it is passed on."""
    script, kind = BROKEN[what]

    async def main() -> None:
        assert told(front, wire, await asked(front, wire, script), 502, kind)

    run(main)


@each_wire
@each_way
def test_nobody_listening_is_a_502(front: Front, wire: Wire, stream: bool) -> None:
    """A connection that is refused says so."""

    async def main() -> None:
        found = await ask(front.port, wire.path, wire.ask(stream=stream))  # no origin runs
        assert "reached" in told(front, wire, found, 502, "transport")

    run(main)


@each_wire
def test_an_answer_over_its_limit_is_given_up(make_front: Any, wire: Wire) -> None:
    """With a length or without: the gateway reads `limits.answer` bytes and no more."""
    front = make_front(limits={"answer": "64KiB"})

    async def main() -> None:
        large = wire.answer("x" * (70 << 10))
        for script in (answer(large, headers=[JSON]), chunked_head(headers=[JSON]) + chunk(large) + LAST_CHUNK):
            assert "longer" in told(front, wire, await asked(front, wire, script), 502, "upstream_protocol")
        small = answer(wire.answer("x" * (60 << 10)), headers=[JSON])
        assert (await asked(front, wire, small)).status == 200

    run(main)


@each_wire
def test_an_event_over_its_limit_is_given_up(make_front: Any, wire: Wire) -> None:
    """One event may be large, and not larger than `limits.event`."""
    front = make_front(limits={"event": "64KiB"})

    async def main() -> None:
        large = sse(*wire.opening("x" * (70 << 10)))
        found = await asked(front, wire, large, stream=True)
        assert found.status == 502 and wire.complaint(found)  # nothing was said before it
        assert front.row(found.trace_id)["error_class"] == "upstream_protocol"
        found = await asked(front, wire, sse(*wire.opening("some", "x" * (70 << 10))), stream=True)
        assert wire.told(found) and found.ending is Ending.CUT
        found = await asked(front, wire, sse(*wire.events("x" * (60 << 10))), stream=True)
        assert found.ending is Ending.CLEAN

    run(main)


@each_wire
@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_compressed_answer_is_decoded(front: Front, wire: Wire, encoding: str) -> None:
    """It was not asked for; it is unpacked all the same, and its label taken off."""

    async def main() -> None:
        packer = zlib.compressobj(wbits=31 if encoding == "gzip" else 15)
        packed = packer.compress(wire.answer("packed")) + packer.flush()
        found = await asked(front, wire, answer(packed, headers=[JSON, ("content-encoding", encoding)]))
        assert found.body == wire.answer("packed")
        assert found.header("content-encoding") is None
        refusal, headers = b'{"error":{"message":"no"}}', [JSON, ("content-encoding", "deflate")]
        found = await asked(front, wire, answer(zlib.compress(refusal), status="400 X", headers=headers))
        assert (found.status, found.body) == (400, refusal)

    run(main)


@each_wire
def test_an_unary_answer_arrives_byte_for_byte_with_its_facts(front: Front, wire: Wire) -> None:
    """Odd spacing and unknown members too; model and usage stand in the row."""

    async def main() -> None:
        body = wire.answer("héllo").replace(b'{"id"', b'{ "odd": [1.0, 1e3] ,\n"id"', 1)
        found = await asked(front, wire, answer(body, headers=[JSON]))
        assert (found.status, found.body) == (200, body)
        assert found.header("x-arbiter-model") == "served" or found.header("x-arbiter-model") == wire.model
        row = front.row(found.trace_id)
        assert (row["outcome"], row["model"], row["stream"]) == ("ok", "served", 0)
        attempt = row["attempts"][0]
        assert (attempt["input_tokens"], attempt["output_tokens"], attempt["usage_source"]) == (7, 3, "provider")

    run(main)


def test_count_tokens_is_relayed_and_has_a_row(front: Front) -> None:
    """It never consumes tokens of its own."""

    async def main() -> None:
        async with Origin(answer(b'{"input_tokens": 42}', headers=[JSON]), port=front.upstream) as origin:
            found = await ask(front.port, "/v1/messages/count_tokens", MESSAGES.ask())
            assert origin.requests[0].target == "/v1/messages/count_tokens"
        assert found.body == b'{"input_tokens": 42}'
        row = front.row(found.trace_id)
        assert (row["endpoint"], row["outcome"], row["attempts"][0]["input_tokens"]) == ("count_tokens", "ok", None)

    run(main)


def test_a_dead_idle_connection_costs_nothing_but_a_new_one(front: Front) -> None:
    """An upstream may close a kept connection at any time: the request goes out once more, unseen (SPEC 3.2)."""

    async def main() -> None:
        good = answer(CHAT.answer(), headers=[JSON])
        async with Origin(scripts=[good, [CLOSE], good], port=front.upstream) as origin:
            for _ in range(2):
                found = await ask(front.port, CHAT.path, CHAT.ask())
                assert found.status == 200
            assert len(origin.requests) == 3
            assert len(front.row(found.trace_id)["attempts"]) == 1

    run(main)


def test_a_provider_that_moved_away_is_told_apart_from_one_that_errs(make_front: Any) -> None:
    """The message names the place that could not be reached, and no secret."""
    front = make_front(provider={"proxy": "none"})

    async def main() -> None:
        found = await ask(front.port, CHAT.path, CHAT.ask())
        assert f"127.0.0.1:{front.upstream}" in CHAT.complaint(found)
        assert UPSTREAM_KEY not in front.log

    run(main)
