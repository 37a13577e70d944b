"""Clients of one format on upstreams of the other, through a whole gateway: no agent can tell, and the row can."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from arbiter.wire.json import LONG_BYTES
from tests.fakes.client import Answer, Caller, Ending, ask, request, run
from tests.fakes.origin import CLOSE, LAST_CHUNK, RESET, Origin, Steps, answer, chunk, chunked_head
from tests.fakes.wires import CHAT, EVENT_STREAM, JSON, MESSAGES, Front, Wire, sse, sse_head

CROSSINGS = [(CHAT, MESSAGES), (MESSAGES, CHAT)]
each_crossing = pytest.mark.parametrize(("ours", "theirs"), CROSSINGS, ids=["chat-on-messages", "messages-on-chat"])


async def crossed(front: Front, ours: Wire, theirs: Wire, script: Steps, **members: Any) -> tuple[Answer, Any]:
    """One request of a client of `ours` to a model of `theirs`; its answer, and the request as the upstream got it."""
    async with Origin(script, port=front.upstream) as origin:
        found = await ask(front.port, ours.path, ours.ask(**{"model": theirs.model, **members}))
    return found, origin.requests[0] if origin.requests else None


@each_crossing
def test_a_stream_crosses_event_by_event_and_its_row_says_what_it_was(front: Front, ours: Wire, theirs: Wire) -> None:
    """The client reads its own format, under an id of ours and the model that served; every fact is in the row."""

    async def main() -> None:
        usage = {"stream_options": {"include_usage": True}} if ours is CHAT else {}
        script = sse(*theirs.events("Hel", "lo ", '✓ \\u00e9 "q"\n'), headers=[("x-request-id", "up-1")])
        found, sent = await crossed(front, ours, theirs, script, stream=True, **usage)
        assert (found.status, found.ending) == (200, Ending.CLEAN)
        assert ours.text(found.body) == 'Hello ✓ \\u00e9 "q"\n'
        assert ours.terminal in found.body
        assert sent.target == theirs.upstream_path
        assert found.header("content-type") == "text/event-stream"
        assert found.header("x-arbiter-fidelity") == "translated"
        assert found.header("x-arbiter-provider") == theirs.name
        assert found.header("x-request-id") == "up-1"
        assert f"{'chatcmpl-' if ours is CHAT else 'msg_'}{found.trace_id}".encode() in found.body
        assert b'"model":"served"' in found.body
        row = front.row(found.trace_id)
        assert (row["outcome"], row["status"], row["stream"], row["error_class"]) == ("ok", 200, 1, None)
        assert (row["format_in"], row["provider"], row["fidelity"]) == (
            "openai-chat" if ours is CHAT else "anthropic-messages",
            theirs.name,
            "translated",
        )
        (attempt,) = row["attempts"]
        assert (attempt["input_tokens"], attempt["output_tokens"], attempt["usage_source"]) == (7, 3, "provider")
        assert (attempt["lane"], attempt["format_out"]) == (
            "translated",
            "openai-chat" if theirs is CHAT else "anthropic-messages",
        )
        assert attempt["finish_reason"] == ("end_turn" if theirs is MESSAGES else "stop")
        assert attempt["output_bytes"] == len('Hello ✓ \\u00e9 "q"\n'.encode())
        assert attempt["upstream_request_id"] == "up-1"

    run(main)


@each_crossing
def test_a_whole_answer_crosses(front: Front, ours: Wire, theirs: Wire) -> None:
    """Text, model, usage and finish arrive as the client's own format tells them; nothing of the request is lost."""

    async def main() -> None:
        script = answer(theirs.answer("hällo"), headers=[JSON])
        found, sent = await crossed(front, ours, theirs, script, temperature=0.5)
        assert (found.status, found.header("content-type")) == (200, "application/json")
        body = found.json
        if ours is CHAT:
            assert body["id"] == f"chatcmpl-{found.trace_id}"
            assert body["choices"][0]["message"]["content"] == "hällo"
            assert body["choices"][0]["finish_reason"] == "stop"
            assert (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == (7, 3)
        else:
            assert body["id"] == f"msg_{found.trace_id}"
            assert [(block["type"], block["text"]) for block in body["content"]] == [("text", "hällo")]
            assert body["stop_reason"] == "end_turn"
            assert (body["usage"]["input_tokens"], body["usage"]["output_tokens"]) == (7, 3)
        assert body["model"] == "served"
        asked = json.loads(sent.body)
        assert (asked["model"], asked["temperature"]) == (theirs.model, 0.5)
        assert "stream" not in asked and "stream_options" not in asked
        (attempt,) = front.row(found.trace_id)["attempts"]
        assert (attempt["input_tokens"], attempt["output_tokens"], attempt["usage_source"]) == (7, 3, "provider")

    run(main)


@each_crossing
def test_usage_is_asked_for_and_told_as_the_clients_format_does(front: Front, ours: Wire, theirs: Wire) -> None:
    """A chat client that did not ask for usage gets none; the upstream is always asked (SPEC 2.5)."""

    async def main() -> None:
        found, sent = await crossed(front, ours, theirs, sse(*theirs.events("hi")), stream=True)
        asked = json.loads(sent.body)
        assert asked["stream"] is True
        if theirs is CHAT:
            assert asked["stream_options"] == {"include_usage": True}
            assert b'"output_tokens":3' in found.body
        else:
            assert "stream_options" not in asked
            assert b"usage" not in found.body

    run(main)


@each_crossing
@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (400, "tools.0.name: too odd", "invalid_request_error"),
        (429, "slow down", "rate_limit_error"),
        (404, "no such model", {"openai": "invalid_request_error", "anthropic": "not_found_error"}),
        (500, "boom", {"openai": "server_error", "anthropic": "api_error"}),
    ],
)
def test_an_upstreams_error_is_told_in_the_clients_shape(
    front: Front, ours: Wire, theirs: Wire, status: int, message: str, kind: Any
) -> None:
    """The upstream's message and status stay; shape and type are the client's own (FEATURES D.2)."""

    async def main() -> None:
        error = {"message": message, "type": "whatever", "code": None}
        body = {"error": error} if theirs is CHAT else {"type": "error", "error": error}
        script = answer(json.dumps(body).encode(), status=status, headers=[JSON, ("retry-after", "7")])
        for stream in (False, True):
            found, _ = await crossed(front, ours, theirs, script, stream=stream)
            assert found.status == status
            assert ours.complaint(found) == message
            wanted = kind if isinstance(kind, str) else kind["openai" if ours is CHAT else "anthropic"]
            assert found.json["error"]["type"] == wanted
            assert found.header("retry-after") == "7"
            assert found.header("x-arbiter-error-source") == "upstream"
            assert found.header("x-arbiter-fidelity") == "translated"
            assert front.row(found.trace_id)["fidelity"] == "translated"
            front.forget()  # what a 429 asks for

    run(main)


@each_crossing
@pytest.mark.parametrize("how", ["error event", "cut", "reset", "garbage", "output after the finish"])
def test_a_stream_that_fails_is_told_so_and_never_ends_cleanly(
    front: Front, ours: Wire, theirs: Wire, how: str
) -> None:
    """What had come stays; an error event in the client's format follows, and no terminal event (SPEC 2.7)."""

    async def main() -> None:
        words = [chunk(event) for event in theirs.opening("Hel", "lo")]
        script: Steps
        if how == "error event":
            script = [sse_head(), *words, chunk(theirs.error_event("Overloaded, sorry")), LAST_CHUNK]
        elif how == "cut":
            script = [sse_head(), *words, LAST_CHUNK]
        elif how == "reset":
            script = [sse_head(), *words, 0.3, RESET]
        elif how == "garbage":
            script = [sse_head(), *words, chunk(b"data: {not json\n\n"), LAST_CHUNK]
        else:
            late = theirs.opening("late")[-1]
            at = len(theirs.events("x")) - (2 if theirs is CHAT else 1)
            script = [sse_head(), *map(chunk, [*theirs.events("Hel", "lo")[: at + 1], late]), LAST_CHUNK]
        found, _ = await crossed(front, ours, theirs, script, stream=True)
        assert found.status == 200
        assert ours.text(found.body) == "Hello"
        told = ours.told(found)
        assert told, found.body
        if how == "error event":
            assert told == "Overloaded, sorry"
        assert ours.terminal not in found.body
        assert found.ending is Ending.CUT
        row = front.row(found.trace_id)
        assert row["outcome"] == "error"
        assert row["error_class"] in ("upstream_error", "transport", "upstream_protocol")
        if how in ("garbage", "output after the finish"):
            assert row["error_class"] == "upstream_protocol"

    run(main)


@each_crossing
def test_an_error_as_the_first_event_still_has_a_status(front: Front, ours: Wire, theirs: Wire) -> None:
    """Nothing was sent yet, so the failure is an HTTP answer in the client's format (SPEC 2.12)."""

    async def main() -> None:
        script = [sse_head(), chunk(theirs.error_event("not today")), LAST_CHUNK]
        found, _ = await crossed(front, ours, theirs, script, stream=True)
        assert found.status == 502
        assert ours.complaint(found) == "not today"

    run(main)


@pytest.mark.parametrize("lane", ["native", "translated"])
@pytest.mark.parametrize("wire", [CHAT, MESSAGES], ids=str)
@pytest.mark.parametrize(
    ("kind", "message", "status", "chat", "messages"),
    [
        ("rate_limit_error", "slow down", 429, "rate_limit_exceeded", "rate_limit_error"),
        ("insufficient_quota", "pay first", 429, "insufficient_quota", "rate_limit_error"),
        ("context_length_exceeded", "too long", 400, "context_length_exceeded", "invalid_request_error"),
        ("invalid_request_error", "odd", 400, "bad_request", "invalid_request_error"),
        ("not_found_error", "no such model", 404, "not_found", "not_found_error"),
        ("authentication_error", "bad key", 502, "config", "api_error"),
        ("overloaded_error", "busy", 503, "overloaded", "overloaded_error"),
    ],
)
def test_an_error_that_opens_a_stream_has_the_status_of_its_class(
    front: Front, wire: Wire, lane: str, kind: str, message: str, status: int, chat: str, messages: str
) -> None:
    """The upstream said 200 too early; its client need not be told so (SPEC 2.12, 4.8)."""
    theirs = wire if lane == "native" else MESSAGES if wire is CHAT else CHAT

    async def main() -> None:
        error = {"type": kind, "message": message, "code": kind}
        event = {"error": error} if theirs is CHAT else {"type": "error", "error": error}
        name = b"" if theirs is CHAT else b"event: error\n"
        failed = name + b"data: %b\n\n" % json.dumps(event).encode()
        # A ping before it and the terminal event behind it, in the same read, make it no answer that began.
        ping = b": hello\n\n" if theirs is CHAT else theirs.keepalive
        script = [sse_head(), chunk(ping + failed + theirs.events()[-1]), LAST_CHUNK]
        found, _ = await crossed(front, wire, theirs, script, stream=True)
        assert wire.complaint(found) == message
        if wire is CHAT:
            assert (found.status, found.json["error"]["code"]) == (status, chat)
        else:
            assert found.status == (529 if status == 503 else status)
            assert found.json["error"] == {"type": messages, "message": message}
        assert (found.header("retry-after") is not None) is (status in (429, 503))

    run(main)


@each_crossing
@pytest.mark.parametrize("label", ["text/plain; charset=utf-8", None])
def test_a_translated_stream_is_labelled_as_one(front: Front, ours: Wire, theirs: Wire, label: str | None) -> None:
    """It is our stream, whatever the upstream called its own."""

    async def main() -> None:
        head = chunked_head(headers=[("content-type", label)] if label else [])
        script = head + b"".join(map(chunk, theirs.events("hi"))) + LAST_CHUNK
        found, _ = await crossed(front, ours, theirs, script, stream=True)
        assert found.header("content-type") == "text/event-stream"
        assert ours.text(found.body) == "hi"

    run(main)


@each_crossing
def test_a_finish_followed_by_any_end_is_an_end(front: Front, ours: Wire, theirs: Wire) -> None:
    """Without its goodbye, and even with the connection reset after it, the answer was whole (SPEC 2.7)."""

    async def main() -> None:
        events = theirs.events("all", usage=theirs is MESSAGES)[:-1]
        for script in ([sse_head(), *map(chunk, events), LAST_CHUNK], [sse_head(), *map(chunk, events), 0.3, RESET]):
            found, _ = await crossed(front, ours, theirs, script, stream=True)
            assert found.ending is Ending.CLEAN
            assert ours.terminal in found.body
            assert front.row(found.trace_id)["outcome"] == "ok"

    run(main)


@each_crossing
def test_an_upstream_that_answers_whole_still_gives_a_stream(front: Front, ours: Wire, theirs: Wire) -> None:
    """A client that asked for a stream gets one, whatever the upstream made of it; and the other way round."""

    async def main() -> None:
        script = answer(theirs.answer("in one piece"), headers=[JSON])
        found, _ = await crossed(front, ours, theirs, script, stream=True)
        assert (found.status, found.header("content-type")) == (200, "text/event-stream")
        assert ours.text(found.body) == "in one piece"
        assert ours.terminal in found.body
        script = answer(b"".join(theirs.events("in ", "pieces")), headers=[EVENT_STREAM])
        found, _ = await crossed(front, ours, theirs, script)
        assert (found.status, found.header("content-type")) == (200, "application/json")
        said = found.json["choices"][0]["message"]["content"] if ours is CHAT else found.json["content"][0]["text"]
        assert said == "in pieces"
        assert front.row(found.trace_id)["attempts"][0]["output_tokens"] == 3

    run(main)


@each_crossing
def test_bytes_cross_as_they_come(front: Front, ours: Wire, theirs: Wire) -> None:
    """An upstream's word reaches the client before the next one is said: nothing is held back (SPEC 2.2)."""

    async def main() -> None:
        go_on = asyncio.Event()
        events = theirs.events("first", "second")
        at = next(i for i, event in enumerate(events) if b"first" in event) + 1

        async def script(peer: Any, _: Any) -> None:
            await peer.send(sse_head() + b"".join(map(chunk, events[:at])))
            await go_on.wait()
            await peer.send(b"".join(map(chunk, events[at:])) + LAST_CHUNK)

        async with Origin(script, port=front.upstream), await Caller.connect(front.port) as caller:
            await caller.send(request(ours.path, ours.ask(stream=True, model=theirs.model)))
            await caller.head()
            seen = b""
            while b"first" not in seen:
                piece = await caller.piece()
                assert piece, seen
                seen += piece
            assert b"second" not in seen
            go_on.set()
            found = await caller.whole()
            assert found.ending is Ending.CLEAN

    run(main)


@each_crossing
def test_a_request_that_cannot_be_told_is_refused_before_anyone_is_asked(
    front: Front, ours: Wire, theirs: Wire
) -> None:
    """A 400 in the client's own format names what could not cross; there is a row, and no attempt."""

    async def main() -> None:
        messages = [{"role": "user", "content": [UNTOLD[ours]]}]
        async with Origin(CLOSE, port=front.upstream) as origin:
            found = await ask(front.port, ours.path, ours.ask(model=theirs.model, messages=messages))
        assert not origin.requests
        assert found.status == 400
        assert "cannot" in ours.complaint(found)
        row = front.row(found.trace_id)
        assert (row["error_class"], row["attempts"]) == ("protocol_unsupported", [])

    run(main)


UNTOLD = {
    CHAT: {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
    MESSAGES: {"type": "container_upload", "file_id": "file_1"},
}
"""Parts that only their own format has a place for."""


@each_crossing
@pytest.mark.parametrize("stream", [False, True])
def test_what_one_target_cannot_be_told_goes_on_to_one_that_can(
    make_front: Any, ours: Wire, theirs: Wire, stream: bool
) -> None:
    """Nothing was sent, so nothing is lost; the row says who was passed over, and why."""
    both = {"group": [f"{theirs.name}/{theirs.model}", f"{ours.name}/{ours.model}"]}
    front = make_front(aliases={f"both-{ours.name}": both})

    async def main() -> None:
        messages = [{"role": "user", "content": [UNTOLD[ours]]}]
        script = sse(*ours.events("hi")) if stream else answer(ours.answer("hi"), headers=[JSON])
        async with Origin(script, port=front.upstream) as origin:
            body = ours.ask(model=f"both-{ours.name}", messages=messages, stream=stream)
            found = await ask(front.port, ours.path, body)
        assert (found.status, found.header("x-arbiter-provider")) == (200, ours.name)
        assert [one.target for one in origin.requests] == [ours.upstream_path]
        row = front.row(found.trace_id)
        assert [(one["provider"], one["why"]) for one in row["attempts"]] == [(ours.name, "first")]
        assert f"{theirs.name}/{theirs.model} cannot be told it (messages[0].content[0]: " in row["rationale"]

    run(main)


@each_crossing
def test_the_last_one_contacted_is_told_of_also_where_another_could_not_be_told(
    make_front: Any, ours: Wire, theirs: Wire
) -> None:
    """SPEC 4.8: the request was good for whoever got it, and a 400 would say that it is not."""
    both = {"group": [f"{ours.name}/{ours.model}", f"{theirs.name}/{theirs.model}"]}
    front = make_front(aliases={f"back-{ours.name}": both})

    async def main() -> None:
        messages = [{"role": "user", "content": [UNTOLD[ours]]}]
        down = answer(b'{"error":{"message":"boom"}}', status="500 Internal Server Error", headers=[JSON])
        async with Origin(down, port=front.upstream):
            found = await ask(front.port, ours.path, ours.ask(model=f"back-{ours.name}", messages=messages))
        assert found.status == 500
        row = front.row(found.trace_id)
        assert (row["error_class"], len(row["attempts"])) == ("upstream_error", 1)
        assert "cannot be told it (" in row["rationale"]

    run(main)


@pytest.mark.parametrize("size", [10, 2 * LONG_BYTES], ids=["short", "long"])
@each_crossing
def test_who_cannot_be_told_is_no_other_that_the_only_one_gives_way_to(
    make_front: Any, ours: Wire, theirs: Wire, size: int
) -> None:
    """SPEC 4.1: it is tried as often as if the plan named nobody else."""
    both = {"group": [f"{ours.name}/{ours.model}", f"{theirs.name}/{theirs.model}"]}
    retry = {"attempts": 3, "before_fallback": 1, "base": "1ms"}
    front = make_front(aliases={f"alone-{ours.name}": both}, provider={"retry": retry})

    async def main() -> None:
        messages = [{"role": "user", "content": [UNTOLD[ours], {"type": "text", "text": "x" * size}]}]
        down = answer(b'{"error":{"message":"busy"}}', status="503 Service Unavailable", headers=[JSON])
        async with Origin(down, port=front.upstream) as origin:
            found = await ask(front.port, ours.path, ours.ask(model=f"alone-{ours.name}", messages=messages))
        assert found.status in (503, 529) and len(origin.requests) == 3
        row = front.row(found.trace_id)
        assert [one["why"] for one in row["attempts"]] == ["first", "retry", "retry"]
        assert f"{theirs.name}/{theirs.model} cannot be told it (" in row["rationale"]
        assert row["error_class"] == "overloaded"

    run(main)


@each_crossing
def test_a_wrong_member_is_named_and_its_value_is_not_repeated(front: Front, ours: Wire, theirs: Wire) -> None:
    """What was expected where; never what was there instead (FEATURES A92)."""

    async def main() -> None:
        messages = [{"role": "user", "content": [{"type": "text", "text": 987654321}]}]
        found = await ask(front.port, ours.path, ours.ask(model=theirs.model, messages=messages))
        assert found.status == 400
        complaint = ours.complaint(found)
        assert "messages[0].content[0].text" in complaint and "str" in complaint and "int" in complaint
        assert "987654321" not in found.body.decode()

    run(main)


def test_a_query_string_is_the_clients_own(front: Front) -> None:
    """Claude Code's `?beta=true` means nothing to an OpenAI upstream."""

    async def main() -> None:
        async with Origin(sse(*CHAT.events("hi")), port=front.upstream) as origin:
            await ask(front.port, MESSAGES.path + "?beta=true", MESSAGES.ask(stream=True, model=CHAT.model))
        assert origin.requests[0].target == "/v1/chat/completions"

    run(main)


def test_the_clients_anthropic_headers_stay_here(front: Front) -> None:
    """An upstream gets its own format's headers and our key for it, in its own spelling."""

    async def main() -> None:
        headers = [("anthropic-version", "2023-06-01"), ("anthropic-beta", "x-1"), ("x-api-key", "theirs")]
        async with Origin(sse(*CHAT.events("hi")), port=front.upstream) as origin:
            await ask(front.port, MESSAGES.path, MESSAGES.ask(stream=True, model=CHAT.model), headers=headers)
        (sent,) = origin.requests
        assert {name.lower() for name, _ in sent.headers} & {
            "anthropic-version",
            "anthropic-beta",
            "x-api-key",
        } == set()
        assert (sent.header("authorization") or "").startswith("Bearer sk-the-key")

    run(main)


@pytest.mark.parametrize("wire", [CHAT, MESSAGES], ids=str)
def test_relay_rebuild_takes_the_neutral_path_between_equal_formats(make_front: Any, wire: Wire) -> None:
    """What the neutral model does not declare is left out, on purpose (SPEC 2.3)."""

    async def main() -> None:
        front = make_front(provider={"relay": "rebuild"})
        async with Origin(sse(*wire.events("hello")), port=front.upstream) as origin:
            found = await ask(front.port, wire.path, wire.ask(stream=True, invented=[1], temperature=0.25))
        sent = json.loads(origin.requests[0].body)
        assert "invented" not in sent and sent["temperature"] == 0.25
        assert found.header("x-arbiter-fidelity") == "rebuilt"
        assert wire.text(found.body) == "hello"
        assert found.ending is Ending.CLEAN
        async with Origin(answer(wire.answer("hello"), headers=[JSON]), port=front.upstream):
            whole = await ask(front.port, wire.path, wire.ask())
        assert whole.status == 200 and b"hello" in whole.body

    run(main)
