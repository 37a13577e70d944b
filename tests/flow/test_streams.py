"""Streams through a whole gateway: what reaches the client, how it ends, and what the row says of it."""

from __future__ import annotations

import asyncio
import json
import zlib

import pytest

from tests.fakes.circles import FOUND
from tests.fakes.client import WAIT_S, Answer, Caller, Ending, ask, exchange, request, run
from tests.fakes.gateway import until
from tests.fakes.origin import CLOSE, LAST_CHUNK, RESET, Origin, Peer, Request, Steps, chunk, chunked_head
from tests.fakes.wires import CHAT, EVENT_STREAM, JSON, MESSAGES, WIRES, Front, Wire, begun, sse, sse_head

each_wire = pytest.mark.parametrize("wire", WIRES, ids=str)


async def streamed(front: Front, wire: Wire, script: Steps, **members: object) -> Answer:
    """One streamed request against `script`, and all of its answer."""
    async with Origin(script, port=front.upstream):
        return await ask(front.port, wire.path, wire.ask(stream=True, **members))


@each_wire
def test_a_stream_arrives_byte_for_byte_and_its_row_says_what_it_was(front: Front, wire: Wire) -> None:
    """Nothing is added or lost where the client asked for usage itself, and every fact stands in the row."""

    async def main() -> None:
        events = wire.events("Hel", "lo ", "✓")
        usage = {"stream_options": {"include_usage": True}} if wire is CHAT else {}
        answer = await streamed(front, wire, sse(*events, headers=[("x-request-id", "up-1")]), **usage)
        assert (answer.status, answer.ending) == (200, Ending.CLEAN)
        assert answer.body == b"".join(events)
        assert wire.text(answer.body) == "Hello ✓"
        for name, value in {
            "x-arbiter-provider": wire.name,
            "x-arbiter-model": wire.model,
            "x-arbiter-attempts": "1",
            "x-arbiter-fidelity": "verbatim",
            "x-request-id": "up-1",
            "x-accel-buffering": "no",
            "cache-control": "no-cache",
            "content-type": "text/event-stream",
        }.items():
            assert answer.header(name) == value, name
        row = front.row(answer.trace_id)
        assert row["id"] == answer.header("x-arbiter-request-id")
        assert (row["outcome"], row["status"], row["stream"], row["error_class"]) == ("ok", 200, 1, None)
        assert (row["provider"], row["model"], row["model_asked"]) == (wire.name, "served", wire.model)
        assert row["bytes_out"] == len(answer.body)
        (attempt,) = row["attempts"]
        assert (attempt["input_tokens"], attempt["output_tokens"]) == (7, 3)
        assert attempt["usage_source"] == "provider"
        assert attempt["finish_reason"] in ("stop", "end_turn", "completed")
        assert attempt["upstream_request_id"] == "up-1"
        assert attempt["output_bytes"] == len("Hello ✓".encode())

    run(main)


def test_usage_is_asked_for_and_taken_out_again_for_a_client_that_did_not_ask(front: Front) -> None:
    """The synthetic usage chunk is ours: it fills the row, and the client never sees it."""

    async def main() -> None:
        events = CHAT.events("hi")
        async with Origin(sse(*events), port=front.upstream) as origin:
            answer = await ask(front.port, CHAT.path, CHAT.ask(stream=True, stream_options={"keep": [1, 2.0]}))
            sent = json.loads(origin.requests[0].body)
        assert sent["stream_options"] == {"keep": [1, 2.0], "include_usage": True}
        assert answer.body == b"".join(event for event in events if b"prompt_tokens" not in event)
        assert answer.header("x-arbiter-fidelity") == "$.stream_options.include_usage"
        assert front.row(answer.trace_id)["attempts"][0]["total_tokens"] == 10

    run(main)


def test_usage_on_a_chunk_with_content_stays(front: Front) -> None:
    """Removed means the whole synthetic event: what the client would have got anyway is left alone (SPEC 2.5)."""

    async def main() -> None:
        events = CHAT.events("hi", usage=False)
        riding = json.loads(events[1][6:])
        riding["usage"] = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
        events[1] = b"data: " + json.dumps(riding).encode() + b"\n\n"
        answer = await streamed(front, CHAT, sse(*events))
        assert answer.body == b"".join(events)
        assert front.row(answer.trace_id)["attempts"][0]["output_tokens"] == 3

    run(main)


# --- framing ----------------------------------------------------------------------------------------------------------


@each_wire
@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
def test_every_cut_of_every_line_ending_arrives_as_one_stream(front: Front, wire: Wire, ending: bytes) -> None:
    """However the upstream's bytes are cut, within a line ending too, the client reads the same bytes."""

    async def main() -> None:
        whole = b"".join(wire.events("é", usage=False)[-4:]).replace(b"\n", ending)
        whole = b": a comment" + ending + ending + whole
        scripts: list[Steps] = [
            sse_head() + chunk(whole[:cut]) + chunk(whole[cut:]) + LAST_CHUNK for cut in range(1, len(whole))
        ]
        # Two pushes need two reads: the second half goes out only once the first was flushed.
        split: list[Steps] = [
            [sse_head() + chunk(whole[:cut]), 0.005, chunk(whole[cut:]) + LAST_CHUNK] for cut in range(1, len(whole), 3)
        ]
        data = request(wire.path, wire.ask(stream=True))
        for batch in (scripts, split):
            async with Origin(scripts=batch, port=front.upstream) as origin:
                lanes = [lane(front, data, len(batch) // 8 + 1) for _ in range(8)]
                for answer in [answer for answers in await asyncio.gather(*lanes) for answer in answers]:
                    assert (answer.status, answer.ending) == (200, Ending.CLEAN)
                    assert answer.body == whole
                assert len(origin.requests) >= len(batch)

    run(main)


async def lane(front: Front, data: bytes, count: int) -> list[Answer]:
    return [await exchange(front.port, data) for _ in range(count)]


@pytest.mark.parametrize("wire", [CHAT, MESSAGES], ids=str)
def test_a_stream_without_its_terminal_event_is_completed_where_the_finish_reason_was_seen(
    front: Front, wire: Wire
) -> None:
    """A declared repair: some servers just stop after the finish reason. The row names it."""

    async def main() -> None:
        events = wire.events("hi", usage=False)[:-1]
        answer = await streamed(front, wire, sse(*events))
        assert answer.ending is Ending.CLEAN
        assert answer.body.startswith(b"".join(events))
        assert wire.terminal in answer.body
        row = front.row(answer.trace_id)
        assert (row["outcome"], json.loads(row["repairs"])) == ("ok", ["terminal_event"])

    run(main)


def test_parallel_calls_at_one_index_get_indices_of_their_own(front: Front) -> None:
    """A declared repair: Ollama and others send every parallel call at index 0."""

    async def main() -> None:
        def call(name: str) -> bytes:
            calls = [
                {"index": 0, "id": f"call_{name}", "type": "function", "function": {"name": name, "arguments": "{}"}}
            ]
            return CHAT._chunk([{"index": 0, "delta": {"tool_calls": calls}, "finish_reason": None}])  # type: ignore[attr-defined]

        end = CHAT._chunk([{"index": 0, "delta": {}, "finish_reason": "tool_calls"}])  # type: ignore[attr-defined]
        answer = await streamed(front, CHAT, sse(call("a"), call("b"), end, b"data: [DONE]\n\n"))
        found = [
            json.loads(data)["choices"][0]["delta"]["tool_calls"][0]
            for _, data in answer.events
            if 'tool_calls"' in data and "call_" in data
        ]
        assert [(entry["index"], entry["id"]) for entry in found] == [(0, "call_a"), (1, "call_b")]
        row = front.row(answer.trace_id)
        assert json.loads(row["repairs"]) == ["tool_indices"]
        assert json.loads(row["attempts"][0]["tool_names"]) == ["a", "b"]

    run(main)


@each_wire
def test_a_compressed_stream_is_decoded_event_by_event(front: Front, wire: Wire) -> None:
    """The upstream was asked for identity; what comes compressed anyway is never relayed as garbage."""

    async def main() -> None:
        packer = zlib.compressobj(wbits=31)
        events = wire.events("one", "two", usage=False)
        pieces = [packer.compress(event) + packer.flush(zlib.Z_SYNC_FLUSH) for event in events] + [packer.flush()]
        script = sse_head(("content-encoding", "gzip")) + b"".join(map(chunk, pieces)) + LAST_CHUNK
        async with Origin(script, port=front.upstream) as origin:
            answer = await ask(
                front.port, wire.path, wire.ask(stream=True), headers=[("accept-encoding", "gzip, br, zstd")]
            )
            assert origin.requests[0].header("accept-encoding") == "identity"
        assert answer.body == b"".join(events)
        assert answer.header("content-encoding") is None

    run(main)


@each_wire
def test_a_stream_without_chunks_that_ends_with_its_connection_is_whole(front: Front, wire: Wire) -> None:
    """HTTP/1.0 servers end a body by closing; the terminal event is what tells whole from cut."""

    async def main() -> None:
        head = b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
        events = wire.events("hi", usage=False)
        answer = await streamed(front, wire, [head + b"".join(events), CLOSE])
        assert (answer.ending, answer.body) == (Ending.CLEAN, b"".join(events))
        answer = await streamed(front, wire, [head + b"".join(wire.opening("hi")), CLOSE])
        assert answer.ending is Ending.CUT
        assert wire.told(answer)

    run(main)


# --- failures ---------------------------------------------------------------------------------------------------------


@each_wire
@pytest.mark.parametrize("end", [CLOSE, RESET, LAST_CHUNK, b"oops, no chunk\r\n"], ids=["fin", "reset", "last", "junk"])
def test_a_stream_that_dies_is_told_and_never_ends_cleanly(front: Front, wire: Wire, end: Steps) -> None:
    """The client gets an error event in its own format, no terminal event, and no final chunk (SPEC 2.7)."""

    async def main() -> None:
        events = wire.opening("some", "thing")
        answer = await streamed(front, wire, [begun(*events), 0.02, end])
        assert answer.status == 200
        assert answer.body.startswith(b"".join(events))
        assert wire.told(answer)
        assert wire.terminal not in answer.body
        assert answer.ending is Ending.CUT
        row = front.row(answer.trace_id)
        kind = "upstream_protocol" if isinstance(end, bytes) and end != LAST_CHUNK else "transport"
        assert (row["outcome"], row["error_class"], row["status"]) == ("error", kind, 200)
        (attempt,) = row["attempts"]
        assert (attempt["outcome"], attempt["error_class"], attempt["status"]) == ("error", kind, 200)

    run(main)


@each_wire
@pytest.mark.parametrize("end", [CLOSE, RESET, LAST_CHUNK], ids=["fin", "reset", "last"])
@pytest.mark.parametrize("said", [b"", b": hello\n\n", b"data: {"], ids=["nothing", "comment", "half"])
def test_a_stream_that_dies_before_its_first_event_gets_a_proper_status(
    front: Front, wire: Wire, end: Steps, said: bytes
) -> None:
    """Until the first event nothing is committed: the client gets 502, not a 200 that ends oddly."""

    async def main() -> None:
        answer = await streamed(front, wire, [sse_head() + (chunk(said) if said else b""), 0.02, end])
        assert (answer.status, answer.ending) == (502, Ending.CLEAN)
        assert wire.complaint(answer)
        assert answer.header("x-arbiter-error-source") == "upstream"
        row = front.row(answer.trace_id)
        assert (row["outcome"], row["error_class"], row["status"]) == ("error", "transport", 502)

    run(main)


@each_wire
def test_an_error_event_before_any_output_becomes_an_http_status(front: Front, wire: Wire) -> None:
    """Some upstreams put an error inside a 200; as long as nothing was sent the client gets a real status."""

    async def main() -> None:
        answer = await streamed(front, wire, sse(wire.error_event("the model fell over")))
        assert answer.status == 502
        assert "the model fell over" in wire.complaint(answer)
        row = front.row(answer.trace_id)
        assert (row["outcome"], row["error_class"]) == ("error", "upstream_error")

    run(main)


@each_wire
def test_an_error_event_after_output_passes_as_it_came_and_nothing_follows_it(front: Front, wire: Wire) -> None:
    """Clients match on the upstream's own words; a terminal event after them is taken out (SPEC 2.1)."""

    async def main() -> None:
        events = [*wire.opening("some"), wire.error_event("out of memory")]
        answer = await streamed(front, wire, sse(*events, wire.events()[-1]))
        assert answer.body == b"".join(events)
        assert answer.ending is Ending.CUT
        row = front.row(answer.trace_id)
        assert (row["outcome"], row["error_class"], row["message"]) == ("error", "upstream_error", "out of memory")

    run(main)


@each_wire
def test_an_error_event_without_its_blank_line_is_told_once(front: Front, wire: Wire) -> None:
    """The end of the stream completes it; it is the upstream's last word, and ours are not added."""

    async def main() -> None:
        opening, failure = wire.opening("some"), wire.error_event("out of memory")
        answer = await streamed(front, wire, sse(*opening, failure[:-1]))
        assert answer.body == b"".join(opening) + failure
        assert answer.ending is Ending.CUT
        row = front.row(answer.trace_id)
        assert (row["error_class"], row["message"]) == ("upstream_error", "out of memory")

    run(main)


@each_wire
def test_bytes_that_are_no_event_stream_are_never_passed_on(front: Front, wire: Wire) -> None:
    """Invalid UTF-8 in an event is a protocol error of the upstream (SPEC 2.10): told, and not repeated."""

    async def main() -> None:
        bad = b'data: {"x":"\xff\xfe"}\n\n'
        answer = await streamed(front, wire, sse(bad))
        assert answer.status == 502
        assert front.row(answer.trace_id)["error_class"] == "upstream_protocol"
        events = wire.opening("fine")
        answer = await streamed(front, wire, sse(*events, bad))
        assert answer.body.startswith(b"".join(events))
        assert b"\xff" not in answer.body
        assert wire.told(answer)
        assert answer.ending is Ending.CUT
        assert front.row(answer.trace_id)["error_class"] == "upstream_protocol"

    run(main)


@each_wire
def test_an_unary_answer_to_a_streamed_request_is_passed_on_whole(front: Front, wire: Wire) -> None:
    """A server that cannot stream answers in JSON; that is an answer, and not a stream cut short."""

    async def main() -> None:
        body = wire.answer("all at once")
        head = chunked_head(headers=[JSON])
        answer = await streamed(front, wire, head + chunk(body) + LAST_CHUNK)
        assert (answer.status, answer.body) == (200, body)
        assert answer.header("content-type") == "application/json"
        row = front.row(answer.trace_id)
        assert (row["outcome"], row["attempts"][0]["output_tokens"]) == ("ok", 3)

    run(main)


@each_wire
def test_two_hundred_failed_streams_are_two_hundred_error_events_and_no_clean_end(front: Front, wire: Wire) -> None:
    """The error event leaves before the connection is shut down, every time (ARCHITECTURE §2)."""

    async def main() -> None:
        events = wire.opening("a", "b", "c")
        data = request(wire.path, wire.ask(stream=True))
        async with Origin([begun(*events), CLOSE], port=front.upstream):
            lanes = await asyncio.gather(*(lane(front, data, 20) for _ in range(10)))
        answers = [answer for answers in lanes for answer in answers]
        assert len(answers) == 200
        assert [answer.ending for answer in answers].count(Ending.CUT) == 200
        assert all(wire.told(answer) for answer in answers)
        assert len({answer.trace_id for answer in answers}) == 200

    run(main)


@pytest.mark.parametrize("how", ["event", "abort", "both"])
def test_stream_failure_chooses_how_a_stream_fails(make_front, how: str) -> None:
    """`event`: told, and ended cleanly. `abort`: cut without a word. `both`: told, then cut."""
    front = make_front(server={"stream_failure": how})

    async def main() -> None:
        for wire in WIRES:
            events = wire.opening("some", "thing")
            for script in ([begun(*events), 0.01, CLOSE], sse(*events, wire.error_event("broken"))):
                answer = await streamed(front, wire, script)
                assert answer.ending is (Ending.CLEAN if how == "event" else Ending.CUT)
                assert (wire.told(answer) is None) is (how == "abort")
                assert wire.terminal not in answer.body
                assert answer.body.startswith(b"".join(events))

    run(main)


def endings(wire: Wire) -> dict[str, tuple[Steps, bool]]:
    """How an answer may end: the upstream's script, and whether it is a stream's."""
    whole, half = sse(*wire.events("hi")), begun(*wire.opening("hi"))
    return {
        "a whole stream": (whole, True),
        "no terminal event": (sse(*wire.events("hi")[:-1]), True),
        "cut": ([half, CLOSE], True),
        "cut before its first event": ([sse_head(), CLOSE], True),
        "reset": ([half, RESET], True),
        "junk": (half + b"junk\r\n", True),
        "an error event": (sse(*wire.opening("hi"), wire.error_event("no")), True),
        "an error event at once": (sse(wire.error_event("no")), True),
        "bad bytes": (sse(*wire.opening("hi"), b"data: \xff\n\n"), True),
        "refused": (b"HTTP/1.1 500 X\r\ncontent-length: 2\r\n\r\n{}", True),
        "a unary answer": (
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
            False,
        ),
        "not HTTP": ([b"hello\r\n\r\n", CLOSE], False),
        "closed at once": ([CLOSE], False),
        "unary, cut": ([b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}", CLOSE], False),
    }


def test_without_a_garbage_collector_every_ending_still_closes_the_client(make_front) -> None:
    """A response ends when its transport object is freed: a reference cycle would leave the client hanging. Nor does
    anything else of a request wait for the collector: with many streams at once it comes rarely, and memory grows."""
    front = make_front(plugins=[{"use": "tests.fakes.circles:Circles"}])

    async def leave(wire: Wire) -> None:
        """In mid-stream, and while nothing has come yet."""
        for words in (begun(*wire.opening("hi")), b""):
            left = asyncio.Event()

            async def script(peer: Peer, _: Request, words: bytes = words, left: asyncio.Event = left) -> None:
                await peer.send(words)
                await peer.gone()
                left.set()

            async with Origin(script, port=front.upstream) as origin, await Caller.connect(front.port) as caller:
                await caller.send(request(wire.path, wire.ask(stream=True)))
                await origin.until(lambda origin=origin: bool(origin.requests))
                if words:
                    await caller.until_seen(b"hi")
                caller.leave()
                await asyncio.wait_for(left.wait(), WAIT_S)

    async def main() -> None:
        for wire, theirs in [*((wire, wire) for wire in WIRES), (CHAT, MESSAGES), (MESSAGES, CHAT)]:
            for what, (script, stream) in endings(theirs).items():
                async with Origin(script, port=front.upstream):
                    # `connection: close`: the client sees the end of the connection, not only that of the answer
                    asked = wire.ask(stream=stream) | {"model": theirs.model}
                    answer = await ask(front.port, wire.path, asked, headers=[("connection", "close")])
                    assert answer.ending in (Ending.CLEAN, Ending.CUT), what
            await leave(wire)
        async with Origin(b"HTTP/1.1 503 X\r\ncontent-length: 2\r\n\r\n{}", port=front.upstream):
            counted = await ask(front.port, f"{MESSAGES.path}/count_tokens", MESSAGES.ask())
        assert counted.header("x-arbiter-estimate") == "unavailable"
        untold = [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}]}]
        assert (await ask(front.port, CHAT.path, CHAT.ask(messages=untold) | {"model": MESSAGES.model})).status == 400

    run(main)
    until(lambda: front.in_flight() == 0)
    front.stop()
    assert json.loads((front.data / FOUND).read_text()) == {}


def test_the_content_type_of_a_stream_is_its_upstreams(front: Front) -> None:
    """A label with a charset is passed on as it is."""

    async def main() -> None:
        head = chunked_head(headers=[(EVENT_STREAM[0], "text/event-stream; charset=utf-8")])
        events = MESSAGES.events("hi")
        answer = await streamed(front, MESSAGES, head + b"".join(map(chunk, events)) + LAST_CHUNK)
        assert answer.header("content-type") == "text/event-stream; charset=utf-8"

    run(main)


def tool_chunk(*calls: object, choice: object = 0) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": choice, "delta": {"tool_calls": calls}}]}).encode() + b"\n\n"


@pytest.mark.parametrize("odd", [7, {"id": 7}, {"id": "c", "index": [1]}, {"id": {}, "function": 1}, None], ids=str)
@pytest.mark.parametrize("choice", [0, [1], {}, "0"], ids=str)
def test_odd_calls_in_a_clash_end_like_any_stream(front: Front, odd: object, choice: object) -> None:
    """Values of another type than the format's cost no stream: it ends, and its row does too."""

    async def main() -> None:
        events = [
            tool_chunk({"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}),
            tool_chunk({"index": 0, "id": "b", "function": {"name": "f", "arguments": "{}"}}, odd),
            tool_chunk({"index": 0, "id": "b", "function": {"name": "f", "arguments": "{}"}}, odd, choice=choice),
            *CHAT.events("hi", usage=False)[-2:],
        ]
        answer = await streamed(front, CHAT, sse(*events))
        assert answer.ending is Ending.CLEAN
        assert CHAT.terminal in answer.body
        assert front.row(answer.trace_id)["outcome"] == "ok"

    run(main)


def test_a_stream_of_tool_calls_without_end_is_cut(front: Front) -> None:
    """A thousand calls are more than any answer has; beyond that the upstream is at fault, and the client is told."""

    async def main() -> None:
        calls = [tool_chunk({"index": n, "id": f"i{n}", "function": {"name": "f"}}) for n in range(1100)]
        answer = await streamed(front, CHAT, sse(*calls))
        assert "more than 1,024 tool calls" in (CHAT.told(answer) or "")
        assert CHAT.terminal not in answer.body
        assert answer.body.startswith(b"".join(calls[:1024]))
        assert front.row(answer.trace_id)["error_class"] == "upstream_protocol"

    run(main)
