"""What clients send, good and bad: every path, every encoding, every fault told in the caller's own format."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import socket
import zlib
from contextlib import suppress
from typing import Any

import brotli
import pytest
import zstandard

from tests.fakes.client import Answer, Caller, Ending, ask, exchange, request, run
from tests.fakes.gateway import fds, rss, until
from tests.fakes.origin import Origin, answer, chunk
from tests.fakes.wires import CHAT, JSON, MESSAGES, UPSTREAM_KEY, WIRES, Front, Wire, sse

each_wire = pytest.mark.parametrize("wire", WIRES, ids=str)
GOOGLES = [mount + version for mount in ("", "/gemini", "/v1") for version in ("/v1beta", "/v1alpha", "/v1")]
PREFIXES = ["", "/v1", "/openai/v1", "/anthropic", "/anthropic/v1", "/v1/v1"]


def reply(wire: Wire) -> bytes:
    return answer(wire.answer(), headers=[JSON])


def refused(front: Front, wire: Wire, found: Answer, status: int, kind: str, names: str) -> None:
    """`found` is a refusal in the format of `wire`, and exactly one row, without an attempt, says the same."""
    assert (found.status, found.ending) == (status, Ending.CLEAN)
    assert names in wire.complaint(found), found.body
    assert found.header("x-arbiter-error-source") == "gateway"
    row = front.row(found.trace_id)
    assert row["id"] == found.header("x-arbiter-request-id")
    assert (row["status"], row["outcome"], row["error_class"]) == (status, "error", kind)
    assert row["attempts"] == []


# --- what passes ------------------------------------------------------------------------------------------------------


def test_every_mount_prefix_reaches_its_endpoint(front: Front) -> None:
    """Some base URLs end in /v1, some do not, and some clients add it once more (SPEC 1.1)."""

    async def main() -> None:
        for wire, path in ((CHAT, "/chat/completions"), (MESSAGES, "/messages"), (MESSAGES, "/messages/count_tokens")):
            async with Origin(reply(wire), port=front.upstream) as origin:
                for prefix in PREFIXES:
                    found = await ask(front.port, f"{prefix}{path}?beta=true", wire.ask())
                    assert (found.status, found.body) == (200, wire.answer()), prefix
                targets = {seen.target for seen in origin.requests}
                assert targets == {f"/v1{path}?beta=true"}
        for prefix in PREFIXES:
            listed = await ask(front.port, f"{prefix}/models", method="GET")
            assert {"chat-model", "messages-model", "echo"} <= {model["id"] for model in listed.json["data"]}

    run(main)


@each_wire
def test_a_request_reaches_its_upstream_with_every_other_byte_as_it_was(front: Front, wire: Wire) -> None:
    """Members that nobody knows, odd numbers and odd spacing pass; the caller's key does not, and ours goes instead."""

    async def main() -> None:
        body = wire.ask(unknown={"a": None})
        text = json.dumps(body)[:-1] + ', "odd":  [1.10, 1e5,\n"\\u00e9\\/"], "big": 123456789012345678901234567890}'
        headers = [
            ("authorization", "Bearer sk-of-the-caller"),
            ("x-api-key", "sk-of-the-caller"),
            ("anthropic-beta", "one,Two-2026"),
            ("Anthropic-Version", "2024-01-01"),
            ("openai-beta", "assistants=v2"),
            ("x-forwarded-for", "1.2.3.4"),
            ("te", "trailers"),
            ("x-trace-id", "mine"),
        ]
        async with Origin(reply(wire), port=front.upstream) as origin:
            found = await exchange(front.port, request(wire.path, text.encode(), headers=headers))
            seen = origin.requests[0]
        assert found.status == 200
        assert found.header("x-arbiter-fidelity") == "verbatim"
        for part in (b'"odd":[1.10, 1e5,\n"\\u00e9\\/"]', b'"big":123456789012345678901234567890', b'{"a": null}'):
            assert part in seen.body, seen.body
        assert json.loads(seen.body) == json.loads(text)
        assert b"of-the-caller" not in seen.head
        is_openai = wire is not MESSAGES
        key = seen.header("authorization") if is_openai else seen.header("x-api-key")
        assert key == (f"Bearer {UPSTREAM_KEY}" if is_openai else UPSTREAM_KEY)
        if is_openai:
            assert seen.header("openai-beta") == "assistants=v2"
        else:
            assert (seen.header("anthropic-beta"), seen.header("anthropic-version")) == ("one,Two-2026", "2024-01-01")
        assert seen.header("x-forwarded-for") is None and seen.header("te") is None
        row = front.row(found.trace_id)
        assert (row["client_trace_id"], row["fidelity"]) == ("mine", "verbatim")
        assert found.trace_id != "mine"

    run(main)


@each_wire
@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "identity", "GZIP"])
@pytest.mark.parametrize("chunks", [False, True], ids=["length", "chunks"])
def test_a_body_may_come_in_any_encoding(front: Front, wire: Wire, encoding: str, chunks: bool) -> None:
    """Codex sends zstd; whatever it was, the upstream gets plain JSON (SPEC 1.6)."""

    async def main() -> None:
        body = wire.ask("x" * 5000)
        plain = json.dumps(body).encode()
        packed = {
            "gzip": gzip.compress,
            "deflate": zlib.compress,
            "br": brotli.compress,
            "zstd": zstandard.ZstdCompressor().compress,
            "identity": bytes,
        }[encoding.lower()](plain)
        headers = [("content-encoding", encoding)]
        if chunks:
            headers.append(("transfer-encoding", "chunked"))
            packed = b"".join(chunk(packed[at : at + 50]) for at in range(0, len(packed), 50)) + b"0\r\n\r\n"
        async with Origin(reply(wire), port=front.upstream) as origin:
            found = await exchange(front.port, request(wire.path, packed, headers=headers))
            assert json.loads(origin.requests[0].body) == body
            assert origin.requests[0].header("content-encoding") is None
        assert found.status == 200

    run(main)


@each_wire
def test_a_body_of_twelve_megabytes_is_ordinary(front: Front, wire: Wire) -> None:
    """Agents send images and whole repositories; the limit is 32 MiB."""

    async def main() -> None:
        body = wire.ask("A" * (12 << 20))
        async with Origin(reply(wire), port=front.upstream) as origin:
            for extra in ([], [("transfer-encoding", "chunked")]):
                data = json.dumps(body).encode()
                sent = chunk(data) + b"0\r\n\r\n" if extra else data
                found = await exchange(front.port, request(wire.path, sent, headers=extra))
                assert found.status == 200
                assert json.loads(origin.requests[-1].body) == body
        assert front.row(found.trace_id)["bytes_in"] == len(data)

    run(main)


@each_wire
def test_of_duplicate_model_keys_only_the_one_that_was_judged_goes_out(front: Front, wire: Wire) -> None:
    """Two parsers may read two different models out of one body: that would be a way around every policy."""

    async def main() -> None:
        rest = json.dumps(wire.ask())[1:]
        async with Origin(reply(wire), port=front.upstream) as origin:
            found = await exchange(front.port, request(wire.path, b'{"model":"forbidden",' + rest.encode()))
            assert found.status == 200
            sent = origin.requests[0].body
            assert sent.count(b'"model"') == 1
            assert json.loads(sent)["model"] == wire.model
        first = json.dumps(wire.ask())[:-1] + ',"model":"nobody-serves-this"}'
        refused(front, wire, await exchange(front.port, request(wire.path, first.encode())), 404, "no_route", "nobody")

    run(main)


@each_wire
def test_the_row_keeps_what_the_upstream_said_of_its_limits(front: Front, wire: Wire) -> None:
    """Verbatim (SPEC 9.8), and nothing else of its head; also where it refuses."""
    kept = {"x-ratelimit-remaining-tokens": "7", "anthropic-ratelimit-unified-5h-utilization": "0.42"}
    headers = [JSON, *kept.items(), ("X-Codex-Turn-State", "secret")]

    async def main() -> None:
        async with Origin(answer(wire.answer(), headers=headers), port=front.upstream):
            found = await ask(front.port, wire.path, wire.ask())
        assert json.loads(front.row(found.trace_id)["attempts"][-1]["rate_limits"]) == kept
        refusal = answer(wire.answer(), status="400 Bad Request", headers=[*headers, ("Retry-After", "3")])
        async with Origin(refusal, port=front.upstream):
            found = await ask(front.port, wire.path, wire.ask())
        assert json.loads(front.row(found.trace_id)["attempts"][-1]["rate_limits"]) == kept | {"retry-after": "3"}

    run(main)


def test_ten_thousand_requests_on_one_connection_leave_nothing_behind(front: Front) -> None:
    """Keep-alive costs nothing: no memory, no descriptor, whatever was said before."""

    async def main() -> None:
        async with Origin(reply(CHAT), port=front.upstream):
            data = request(CHAT.path, CHAT.ask())
            async with await Caller.connect(front.port) as caller:
                for _ in range(1000):
                    await caller.exchange(data)
                worker = front.worker
                memory, open_files = rss(worker), fds(worker)
                for _ in range(10_000):
                    found = await caller.exchange(data)
                assert found.status == 200
                grown = rss(worker) - memory
                print(f"10,000 requests, {grown / 1024:.0f} KB more")
                assert fds(worker) <= open_files
                assert grown < 4 << 20

    run(main)


@each_wire
def test_requests_sent_together_are_answered_in_turn(front: Front, wire: Wire) -> None:
    """Pipelined requests wait for one another; none is taken for a client that says too much and leaves."""

    async def main() -> None:
        events = wire.events("first")
        async with Origin(scripts=[[0.3, sse(*events)], reply(wire), reply(wire)], port=front.upstream):
            async with await Caller.connect(front.port) as caller:
                asks = [request(wire.path, wire.ask(stream=stream)) for stream in (True, False, False)]
                await caller.send(b"".join(asks))
                assert wire.text((await caller.whole()).body) == "first"
                for _ in range(2):
                    assert (await caller.whole()).body == wire.answer()

    run(main)


@each_wire
def test_a_client_may_wait_to_be_asked_for_its_body(front: Front, wire: Wire) -> None:
    """`Expect: 100-continue`: asked for where it is wanted, refused where it is not."""

    async def main() -> None:
        expects = [("expect", "100-continue")]
        data = json.dumps(wire.ask()).encode()
        async with Origin(reply(wire), port=front.upstream), await Caller.connect(front.port) as caller:
            await caller.send(request(wire.path, b"", headers=expects, length=len(data)))
            assert await caller.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            assert (await caller.exchange(data)).body == wire.answer()
        async with await Caller.connect(front.port) as caller:
            found = await caller.exchange(request(wire.path, b"", headers=expects, length=40 << 20))
            refused(front, wire, found, 413, "too_large", "limit")

    run(main)


@each_wire
def test_a_client_of_http_1_0_gets_its_stream(front: Front, wire: Wire) -> None:
    """Without chunks, up to the end of the connection."""

    async def main() -> None:
        events = wire.events("old", usage=False)
        data = request(wire.path, wire.ask(stream=True)).replace(b"HTTP/1.1", b"HTTP/1.0", 1)
        async with Origin(sse(*events), port=front.upstream), await Caller.connect(front.port) as caller:
            await caller.send(data)
            head, _, body = (await asyncio.wait_for(caller.reader.read(-1), 20)).partition(b"\r\n\r\n")
        assert b"transfer-encoding" not in head.lower()
        assert body == b"".join(events)

    run(main)


# --- what is refused --------------------------------------------------------------------------------------------------

BAD_BODIES: list[tuple[str, bytes, str]] = [
    ("empty", b"", "JSON"),
    ("no JSON", b"hello", "JSON"),
    ("half", b'{"model":"chat-model","messages":[', "JSON"),
    ("an array", b"[]", "object"),
    ("null", b"null", "object"),
    ("no model", b"{}", "model"),
    ("model null", b'{"model":null}', "model"),
    ("model a number", b'{"model":7}', "model"),
    ("model empty", b'{"model":""}', "model"),
    ("stream a word", b'{"model":"chat-model","stream":"yes"}', "stream"),
    ("bad UTF-8", b'{"model":"chat-\xff"}', "UTF-8"),
    ("bad UTF-8 unread", b'{"model":"chat-model","x":"\xff"}', "not valid UTF-8 (byte 27)"),
    ("half a pair", rb'{"model":"\ud800"}', "`model` holds half of a surrogate pair"),
    (
        "wide",
        b'{"model":"chat-model"' + b"".join(b',"%d":1' % n for n in range(100_000)) + b"}",
        "more than 1,024 members",
    ),
    ("deep", b'{"model":"chat-model","x":' + b"[" * 300 + b"]" * 300 + b"}", "deep"),
    ("very deep", b'{"model":"chat-model","x":' + b"[" * 100_000, "deep"),
]


@each_wire
@pytest.mark.parametrize(("body", "names"), [case[1:] for case in BAD_BODIES], ids=[case[0] for case in BAD_BODIES])
def test_a_malformed_body_is_a_400_that_names_the_fault(front: Front, wire: Wire, body: bytes, names: str) -> None:
    """In the caller's format, without repeating what was sent, and with a row like any other (SPEC 14.2)."""

    async def main() -> None:
        refused(front, wire, await exchange(front.port, request(wire.path, body)), 400, "bad_request", names)

    run(main)


@each_wire
def test_half_an_emoji_reaches_the_upstream_as_it_came(front: Front, wire: Wire) -> None:
    """The escape of half a surrogate pair is JSON, and what is not read is not judged (SPEC 2.1)."""

    async def main() -> None:
        body = json.dumps(wire.ask("cut off: HALF")).replace("HALF", r"\ud83c").encode()
        async with Origin(reply(wire), port=front.upstream) as origin:
            found = await exchange(front.port, request(wire.path, body))
        assert found.status == 200
        assert rb'"cut off: \ud83c"' in origin.requests[0].body

    run(main)


def test_stream_options_of_a_wrong_type_are_named(front: Front) -> None:
    """The member that we must edit is the one that we must understand."""

    async def main() -> None:
        body = CHAT.ask(stream=True, stream_options="all")
        refused(front, CHAT, await ask(front.port, CHAT.path, body), 400, "bad_request", "stream_options")

    run(main)


@each_wire
@pytest.mark.parametrize(
    ("encoding", "body"),
    [("lzma", b"{}"), ("gzip", b"{}"), ("br", b"\xff\xff\xff"), ("zstd", gzip.compress(b"{}")), ("gzip, gzip", b"{}")],
)
def test_an_encoding_that_is_unknown_or_untrue_is_a_400(front: Front, wire: Wire, encoding: str, body: bytes) -> None:
    """It names the encoding, and the encodings that there are."""

    async def main() -> None:
        data = request(wire.path, body, headers=[("content-encoding", encoding)])
        refused(front, wire, await exchange(front.port, data), 400, "bad_request", encoding.split(",")[0])

    run(main)


@each_wire
def test_a_body_over_the_limit_is_refused_unread(front: Front, wire: Wire) -> None:
    """A declared length is enough: not one byte of it needs to be there."""

    async def main() -> None:
        for length in (33 << 20, 10**18):
            found = await exchange(front.port, request(wire.path, b"", length=length))
            refused(front, wire, found, 413, "too_large", "limit")

    run(main)


def poured(front: Front, head: bytes) -> Answer:
    """What comes back while 64 MB of chunks follow `head`, as far as they are taken.

    A plain socket: whoever is refused in the middle of its sending must still look for the reason.
    """
    megabyte = chunk(b" " * (1 << 20))
    with socket.create_connection(("127.0.0.1", front.port), timeout=20) as sock:
        with suppress(ConnectionError):
            sock.sendall(head)
            for _ in range(64):
                sock.sendall(megabyte)
        data = b""
        with suppress(ConnectionError):
            while b"\r\n\r\n" not in data or len(data.partition(b"\r\n\r\n")[2]) < length_in(data):
                piece = sock.recv(65536)
                if not piece:
                    break
                data += piece
    lines, _, body = data.partition(b"\r\n\r\n")
    fields = [line.partition(": ") for line in lines.decode().split("\r\n")[1:]]
    return Answer(int(data[9:12]), [(name.lower(), value) for name, _, value in fields], body, Ending.CLEAN)


def length_in(head: bytes) -> int:
    return int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])


@each_wire
def test_a_body_without_a_length_is_counted(front: Front, wire: Wire) -> None:
    """Chunks are read until the limit and no further; what a small body unpacks to counts as well."""

    async def main() -> None:
        found = await asyncio.to_thread(
            poured, front, request(wire.path, b"", headers=[("transfer-encoding", "chunked")])
        )
        refused(front, wire, found, 413, "too_large", "limit")
        bomb = gzip.compress(b" " * (64 << 20), compresslevel=1)
        data = request(wire.path, bomb, headers=[("content-encoding", "gzip")])
        refused(front, wire, await exchange(front.port, data), 413, "too_large", "limit")

    run(main)


@pytest.mark.parametrize("first", ["content-length", "transfer-encoding"])
def test_a_length_beside_chunks_does_not_lift_the_limit(front: Front, first: str) -> None:
    """With both, the chunks are what counts (RFC 9112, 6.3), and their sum is what is counted."""

    async def main() -> None:
        headers = [("content-length", "10"), ("transfer-encoding", "chunked")]
        if first == "transfer-encoding":
            headers.reverse()
        small = chunk(json.dumps(CHAT.ask()).encode()) + b"0\r\n\r\n"
        async with Origin(reply(CHAT), port=front.upstream):
            found = await exchange(front.port, request(CHAT.path, small, headers=headers))
            assert found.status in (200, 400)
        memory = rss(front.worker)
        found = await asyncio.to_thread(poured, front, request(CHAT.path, b"", headers=headers))
        assert found.status in (400, 413)
        assert rss(front.worker) - memory < 48 << 20

    run(main)


@each_wire
def test_a_slow_sender_is_refused_in_time(make_front: Any, wire: Wire) -> None:
    """Its own deadline ends a request body that trickles in (408)."""
    front = make_front(limits={"slow_sender": "400ms"})

    async def main() -> None:
        for headers in ([], [("transfer-encoding", "chunked")]):
            async with await Caller.connect(front.port) as caller:
                start = chunk(b'{"model":') if headers else b'{"model":'
                await caller.send(request(wire.path, b"", headers=headers, length=1000) + start)
                refused(front, wire, await caller.whole(), 408, "bad_request", "0.4")
        await asyncio.to_thread(until, lambda: front.in_flight() == 0, "the end of each")

    run(main)


def test_zero_lets_a_sender_take_its_time(make_front: Any) -> None:
    """`slow_sender: 0` is off."""
    front = make_front(limits={"slow_sender": 0})

    async def main() -> None:
        data = request(CHAT.path, CHAT.ask())
        async with Origin(reply(CHAT), port=front.upstream), await Caller.connect(front.port) as caller:
            await caller.send(data[:-5])
            await asyncio.sleep(0.3)
            assert (await caller.exchange(data[-5:])).status == 200

    run(main)


@each_wire
@pytest.mark.parametrize("chunks", [False, True], ids=["length", "chunks"])
@pytest.mark.parametrize("how", ["leave", "reset", "half_close"])
def test_an_upload_that_breaks_off_is_one_row_and_no_attempt(front: Front, wire: Wire, how: str, chunks: bool) -> None:
    """Half a body is nobody's request: it never reaches an upstream."""

    async def main() -> None:
        body = json.dumps(wire.ask(f"{how} {chunks}")).encode()
        headers = [("user-agent", f"broken {wire} {how} {chunks}"), *([("transfer-encoding", "chunked")] * chunks)]
        start = request(wire.path, b"", headers=headers, length=len(body))
        async with Origin(reply(wire), port=front.upstream) as origin:
            async with await Caller.connect(front.port) as caller:
                await caller.send(start + (b"%x\r\n" % len(body) if chunks else b"") + body[:-5])
                await asyncio.sleep(0.02)  # so that the gateway has begun to read; it must hold without, too
                getattr(caller, how)()
                (row,) = await asyncio.to_thread(
                    until, lambda: front.select("SELECT * FROM requests WHERE user_agent = ?", headers[0][1]), "the row"
                )
            assert (row["status"], row["outcome"], row["error_class"]) == (499, "cancelled", "client_disconnected")
            assert row["attempts"] == 0
            assert origin.requests == []

    run(main)


@each_wire
@pytest.mark.parametrize("rest", [b"ZZ\r\n", b"5\r\nabcdefg\r\n", b"5\r\nab", b"0\r\n", b""])
@pytest.mark.parametrize("pieces", [1, 3])
def test_chunks_that_break_off_behind_whole_json_are_no_request(
    front: Front, wire: Wire, rest: bytes, pieces: int
) -> None:
    """The server's iterator ends on a fault as at the end, but the last chunk did not come: something was missing."""

    async def main() -> None:
        body = json.dumps(wire.ask()).encode()
        agent = f"broken off {wire} {rest!r} {pieces}"
        headers = [("user-agent", agent), ("transfer-encoding", "chunked")]
        async with Origin(reply(wire), port=front.upstream) as origin, await Caller.connect(front.port) as caller:
            await caller.send(request(wire.path, b"", headers=headers))
            step = -(-len(body) // pieces)
            for at in range(0, len(body), step):
                await caller.send(chunk(body[at : at + step]))
            await caller.send(rest)
            caller.half_close()
            (row,) = await asyncio.to_thread(
                until, lambda: front.select("SELECT * FROM requests WHERE user_agent = ?", agent), "the row"
            )
            assert (row["status"], row["outcome"], row["error_class"]) == (499, "cancelled", "client_disconnected")
            assert row["attempts"] == 0
            assert origin.requests == []

    run(main)


@each_wire
def test_chunks_of_every_size_and_pace_are_a_request(front: Front, wire: Wire) -> None:
    """As `fetch` streams them: in one write, in many, the last one late, with extensions, over a kept connection."""

    async def main() -> None:
        async with Origin(reply(wire), port=front.upstream) as origin, await Caller.connect(front.port) as caller:
            for size, apart in ((1, False), (7, True), (1 << 16, False), (1 << 16, True)):
                body = wire.ask("x" * (400 if size < 100 else 200_000))
                data = json.dumps(body).encode()
                sent = [chunk(data[at : at + size]) for at in range(0, len(data), size)]
                sent[0] = sent[0].replace(b"\r\n", b";name=value\r\n", 1)
                sent.append(b"0\r\n\r\n")
                head = request(wire.path, b"", headers=[("transfer-encoding", "chunked")])
                for piece in [head, *sent] if apart else [head + b"".join(sent)]:
                    await caller.send(piece)
                    await asyncio.sleep(0.001 if apart else 0)
                assert (await caller.whole()).status == 200
                assert json.loads(origin.requests[-1].body) == body

    run(main)


@each_wire
def test_the_echo_provider_takes_directives_from_headers(front: Front, wire: Wire) -> None:
    """docs/echo.md: `x-echo: DIRECTIVE`, or `x-echo-NAME: VALUE`."""

    async def main() -> None:
        body = {**wire.ask(), "model": "echo"}
        found = await ask(front.port, wire.path, body, headers=[("x-echo", "text told by a header")])
        assert (found.status, b"told by a header" in found.body) == (200, True)
        assert (await ask(front.port, wire.path, body, headers=[("x-echo-error", "418 tea")])).status == 418

    run(main)


@each_wire
def test_headers_over_the_limit_are_a_431(front: Front, wire: Wire) -> None:
    """64 KiB of headers are enough for anybody; counted by us, since the server takes more."""

    async def main() -> None:
        found = await ask(front.port, wire.path, wire.ask(), headers=[("x-long", "a" * (65 << 10))])
        refused(front, wire, found, 431, "too_large", "headers")
        async with Origin(reply(wire), port=front.upstream):
            found = await ask(front.port, wire.path, wire.ask(), headers=[("x-long", "a" * (62 << 10))])
            assert found.status == 200

    run(main)


@each_wire
def test_an_unknown_model_is_a_404_that_names_it(front: Front, wire: Wire) -> None:
    """And where nothing serves it, nothing is asked."""

    async def main() -> None:
        found = await ask(front.port, wire.path, {**wire.ask(), "model": "gpt-99"})
        refused(front, wire, found, 404, "no_route", "gpt-99")

    run(main)


def test_a_wrong_method_names_the_right_one_and_an_unknown_path_is_json(front: Front) -> None:
    """Never plain text, never a page, on a client's path (SPEC 1.2)."""

    async def main() -> None:
        for prefix in PREFIXES:
            for path, method, allow in (
                ("/chat/completions", "GET", "POST"),
                ("/messages", "DELETE", "POST"),
                ("/messages/count_tokens", "PUT", "POST"),
                ("/models", "POST", "GET, HEAD"),
            ):
                found = await ask(front.port, prefix + path, method=method)
                assert (found.status, found.header("allow")) == (405, allow)
                assert (found.json["code"], found.json["detail"]) == (405, "Method Not Allowed")
                is_told = prefix or path != "/models"
                assert ("error" in found.json) == bool(is_told), prefix + path
                assert found.header("content-type") == "application/json"
                assert len(found.trace_id or "") == 32
        for path in ("/nothing", "/chat/completions/", "/engines", "/V1/models", "/%00"):
            for method in ("GET", "POST"):
                found = await ask(front.port, path, method=method)
                assert (found.status, found.json) == (404, {"code": 404, "detail": "Not Found"}), path
                assert found.header("content-type") == "application/json"
                assert len(found.trace_id or "") == 32

    run(main)


def test_legacy_completions_are_refused_with_what_to_ask_instead(front: Front) -> None:
    """Whoever asks one is told of an endpoint that is there, in the words of its format."""

    async def main() -> None:
        for path, headers, instead in (
            ("/v1/completions", [], "/v1/chat/completions"),
            ("/completions", [], "/chat/completions"),
            ("/openai/v1/completions", [], "/openai/v1/chat/completions"),
            ("/v1/complete", [("anthropic-version", "2023-06-01")], "/v1/messages"),
            ("/anthropic/v1/complete", [], "/anthropic/v1/messages"),
        ):
            found = await ask(front.port, path, method="POST", headers=headers)
            assert (found.status, found.json["code"], found.json["detail"]) == (404, 404, "Not Found"), path
            assert found.json["error"]["message"] == f"legacy completions are not offered here; ask POST {instead}"
            assert (await ask(front.port, instead, method="GET")).status == 405  # it is there
        found = await ask(front.port, "/else/completions", method="POST")
        assert found.json == {"code": 404, "detail": "Not Found"}

    run(main)


def test_at_a_path_that_is_not_there_each_vendors_client_reads_an_error(front: Front) -> None:
    """In its own shape, as far as the path or a header tells whose it is, beside the members of SPEC 1.2."""
    anthropics, googles = [("anthropic-version", "2023-06-01")], [("x-goog-api-key", "k")]

    async def main() -> None:
        for path, headers, what in (
            ("/v1/engines", [], "openai"),
            ("/openai/v1/chat/completions/", [], "openai"),
            ("/v1/files", anthropics, "anthropic"),
            ("/files", anthropics, "anthropic"),
            ("/anthropic/v1/files", [], "anthropic"),
            ("/v1beta/cachedContents", [], "google"),
            ("/gemini/v1alpha/files?key=of-somebody", [], "google"),
            ("/v1/files", googles, "google"),
        ):
            for method in ("GET", "POST"):
                found = await ask(front.port, path, method=method, headers=headers)
                error = found.json["error"]
                assert (found.status, found.json["code"], found.json["detail"]) == (404, 404, "Not Found"), path
                assert error["message"] == "there is nothing at this path"
                told = {
                    "openai": (error.get("type"), error.get("code")) == ("invalid_request_error", "not_found"),
                    "anthropic": (found.json.get("type"), error.get("type")) == ("error", "not_found_error"),
                    "google": (error.get("status"), error.get("code")) == ("NOT_FOUND", 404),
                }
                assert told == {name: name == what for name in told}, (path, found.body)
                assert found.header("x-arbiter-error-source") == "gateway" and len(found.trace_id or "") == 32
        head = await ask(front.port, "/v1/engines", method="HEAD")
        assert (head.status, head.body) == (404, b"")
        wrong = await ask(front.port, "/v1/messages", method="GET")
        assert (wrong.status, wrong.json["type"]) == (405, "error")
        assert wrong.json["error"]["type"] == "invalid_request_error"

    run(main)


def test_a_vendors_own_paths_are_refused_in_its_own_words(front: Front) -> None:
    """Its clients read no other errors: below `/responses/` OpenAI's, on Gemini's models Google's."""

    async def main() -> None:
        for prefix in PREFIXES:
            for path, method, status, allow in (
                ("/responses/", "GET", 404, None),
                ("/responses/a/b/c", "GET", 404, None),
                ("/responses/resp_1/nothing", "POST", 404, None),
                (f"/responses/{'r' * 257}", "GET", 404, None),
                ("/responses/resp_1", "PUT", 405, "DELETE, GET"),
                ("/responses/resp_1/cancel", "GET", 405, "POST"),
                ("/responses/resp_1/input_items", "POST", 405, "GET"),
                ("/models/a-model", "POST", 405, "GET, HEAD"),
            ):
                found = await ask(front.port, prefix + path, method=method)
                error = found.json["error"]
                assert (found.status, found.header("allow")) == (status, allow), (path, found.body)
                assert error["type"] == "invalid_request_error" and error["message"]
                assert error["code"] == ("not_found" if status == 404 else "bad_request")
                assert found.header("x-arbiter-error-source") == "gateway" and len(found.trace_id or "") == 32
        for prefix in GOOGLES:
            own = prefix.endswith(("/v1beta", "/v1alpha"))
            headers = [] if own else [("x-goog-api-client", "google-genai-sdk/1")]
            for path, method, status, allow in (
                ("/models/m:generateContent", "GET", 405, "POST"),
                ("/models/m:streamGenerateContent?alt=sse&key=of-somebody", "PUT", 405, "POST"),
                ("/models/m:countTokens", "DELETE", 405, "POST"),
                ("/models/m:predict", "POST", 404, None),
                ("/models/m:predict", "DELETE", 405, "GET, HEAD"),
                ("/models/m", "POST", 405, "GET, HEAD"),
                ("/models/", "GET", 404, None),
                ("/models", "POST", 405, "GET, HEAD"),
            ):
                found = await ask(front.port, prefix + path, method=method, headers=headers)
                error = found.json["error"]
                assert (found.status, found.header("allow")) == (status, allow), (prefix, path, found.body)
                assert error["code"] == status and error["message"]
                assert error["status"] == ("NOT_FOUND" if status == 404 else "INVALID_ARGUMENT")
        # Nobody but Google's clients asks like this, whatever they say of themselves.
        found = await ask(front.port, "/v1/models/m:generateContent", method="GET")
        assert (found.status, found.json["error"]["status"]) == (405, "INVALID_ARGUMENT")
        head = await ask(front.port, "/v1/responses/resp_1", method="HEAD")
        assert (head.status, head.header("allow"), head.body) == (405, "DELETE, GET", b"")

    run(main)


def test_a_websocket_is_sent_to_http_at_once(front: Front) -> None:
    """Codex asks for one first, and any other refusal costs it seconds of retries."""

    async def main() -> None:
        upgrade = [("connection", "upgrade"), ("upgrade", "websocket")]
        found = await ask(front.port, "/v1/responses", method="GET", headers=upgrade)
        assert found.status == 426

    run(main)


def test_a_head_has_the_headers_of_its_get_and_no_body(front: Front) -> None:
    """Claude Code asks `HEAD /` before anything else, wherever its base URL points."""

    async def main() -> None:
        for path in ("/", *(prefix for prefix in PREFIXES if prefix), "/v1/", "/v1/models", "/health"):
            async with await Caller.connect(front.port) as caller:
                for _ in range(2):  # on one connection: a body that was sent would break the second
                    found = await caller.exchange(request(path, method="HEAD"))
                    assert (found.status, found.body) == (200, b""), path
                    assert found.trace_id
        for path, status in (("/nothing", 404), ("/v1/messages", 405)):
            found = await ask(front.port, path, method="HEAD")
            assert (found.status, found.body) == (status, b"")

    run(main)


@each_wire
def test_a_missing_or_wrong_key_is_a_401_in_the_callers_format(make_front: Any, wire: Wire) -> None:
    """`auth.mode: require`: the refusal says where a key goes and repeats none; the right one is taken there."""
    digest = hashlib.sha256(b"arb-right").hexdigest()
    clients = [{"name": "ci", "key_hash": f"sha256:{digest}", "agent": "codex", "allow": [wire.model]}]
    front = make_front(auth={"mode": "require"}, clients=clients)

    async def main() -> None:
        async with Origin(reply(wire), port=front.upstream) as origin:
            for headers in ([], [("authorization", "Bearer arb-wrong")], [("x-api-key", "arb-wrong")]):
                found = await ask(front.port, wire.path, wire.ask(), headers=headers)
                refused(front, wire, found, 401, "unauthorized", "key")
                assert b"arb-wrong" not in found.body
                assert all(name in found.body for name in (b"`Authorization: Bearer", b"`x-api-key", b"`X-Arbiter-Key"))
            assert origin.requests == []
            for headers in ([("authorization", "Bearer arb-right")], [("x-api-key", "arb-right")]):
                found = await ask(front.port, wire.path, wire.ask(), headers=headers)
                assert found.status == 200
                row = front.row(found.trace_id)
                assert (row["client"], row["agent"]) == ("ci", "codex")
            assert b"arb-right" not in b"".join(seen.head for seen in origin.requests)
            found = await ask(front.port, wire.path, {**wire.ask(), "model": "echo"}, headers=headers)
            refused(front, wire, found, 403, "forbidden", "echo")

    run(main)


def test_every_answer_of_every_kind_has_a_trace_id_and_ids_never_repeat(front: Front) -> None:
    """A model call's id is that of its row, and an answer without a row has one all the same (SPEC 1.4)."""

    async def main() -> None:
        scripts = [reply(CHAT), sse(*CHAT.events("hi")), answer(status="500 X")]
        async with Origin(scripts=scripts, port=front.upstream):
            answers = [await ask(front.port, CHAT.path, CHAT.ask(stream=stream)) for stream in (False, True, False)]
        health = ("/health", "/health/live", "/health/ready")
        for path in ("/", *health, "/metrics", "/v1/models", "/admin/ui/", "/admin/api/state", "/x"):
            answers.append(await ask(front.port, path, method="GET"))
        ids = [found.trace_id or "" for found in answers]
        assert [len(trace_id) for trace_id in ids] == [32] * len(answers)
        assert len(set(ids)) == len(ids)

    run(main)


def test_what_the_server_itself_refuses_does_not_hurt_the_worker(front: Front) -> None:
    """A malformed head and too many header fields end where they began."""

    async def main() -> None:
        for data, status in (
            (b"NONSENSE\r\n\r\n", 400),
            (b"GET / HTTP/9.9\r\n\r\n", 400),
            (request("/health", method="GET", headers=[(f"x-{n}", "1") for n in range(150)]), 431),
            (b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n", 400),
            (b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: ten\r\n\r\n", 400),
        ):
            async with await Caller.connect(front.port) as caller:
                await caller.send(data)
                assert (await caller.head()).status == status, data[:60]
        assert (await ask(front.port, "/health", method="GET")).status == 200

    run(main)


def test_a_configuration_of_two_workers_serves_and_counts_alike(make_front: Any) -> None:
    """Rows come from every worker, and metrics are added up over them."""
    front = make_front(gateway={"workers": 2})

    async def main() -> None:
        async with Origin(reply(CHAT), port=front.upstream):
            answers = [await ask(front.port, CHAT.path, CHAT.ask()) for _ in range(40)]
        rows = front.until_settled(40)
        assert {row["trace_id"] for row in rows} == {found.trace_id for found in answers}
        until(lambda: front.metric("arbiter_requests_total") == 40, "the counts of both workers")

    run(main)
