"""AWS's event streams as server-sent events: a model's own stream, Bedrock's, and what breaks off in either."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from arbiter.model import Failed
from arbiter.wire import bedrock_converse
from arbiter.wire.dialects.unframing import Unframer
from arbiter.wire.format import FORMATS
from tests.fakes.eventstream import chunk, error, event, exception
from tests.fakes.vectors import CASES

CONVERSE, MESSAGES = "bedrock-converse", "anthropic-messages"
OF_ANTHROPIC = [case for case in CASES if case.parent.name == MESSAGES]
LIMIT = 1 << 20


def unframed(wire: str, *messages: bytes) -> tuple[str, str | None]:
    frames = Unframer(wire, LIMIT)
    out = b"".join(frames.feed(one) for one in messages).decode()
    return out, str(frames.fault) if frames.fault is not None else None


@pytest.mark.parametrize("case", OF_ANTHROPIC, ids=lambda case: case.name)
def test_claude_behind_bedrock_says_what_it_says_itself(case: Path) -> None:
    """Each real stream of Anthropic's format, put into chunks as Bedrock does, gives the same events, at any cut."""
    blocks = (case / "upstream.sse").read_bytes().replace(b"\r\n", b"\n").split(b"\n\n")
    lines = [line[5:].strip() for block in blocks for line in block.split(b"\n") if line[:5] == b"data:"]
    inner = [line for line in lines if line != b"[DONE]"]
    data = b"".join(map(chunk, inner))
    want = FORMATS[MESSAGES].reader()
    wanted = [str(one) for one in want.feed((case / "upstream.sse").read_bytes()) + want.finish()]
    for size in (len(data), 1, 7, 1000):
        frames, reader = Unframer(MESSAGES, LIMIT), FORMATS[MESSAGES].reader()
        events = []
        for start in range(0, len(data), size):
            events += reader.feed(frames.feed(data[start : start + size]))
        assert [str(one) for one in events + reader.finish()] == wanted and frames.fault is None


def test_a_chunk_is_its_event_under_its_own_name() -> None:
    """Line ends outside of strings would end the data; padding and kinds of events that nobody knows are no events."""
    inner = b'{\n "type": "content_block_delta",\r\n "delta": {"text": "a\\nb"}}'
    out, fault = unframed(MESSAGES, chunk(inner) + event("newKind", b"{}") + event("chunk", b'{"p":"abc"}'))
    line = '{  "type": "content_block_delta",   "delta": {"text": "a\\nb"}}'
    assert out == f"event: content_block_delta\ndata: {line}\n\n"
    assert fault is None


@pytest.mark.parametrize("kind", ["", "a b", "x\n\ndata: forged", "a" * 65])
def test_no_type_of_an_event_can_be_more_than_a_name(kind: str) -> None:
    out, fault = unframed(MESSAGES, chunk(json.dumps({"type": kind}).encode()))
    assert out.startswith("data: ") and out.count("\n") == 2 and fault is None


@pytest.mark.parametrize("name", ["", "a b", "x\nevent: forged", "a" * 65, "é"])
def test_no_name_of_a_converse_event_can_be_more_than_a_name(name: str) -> None:
    out, fault = unframed(CONVERSE, event("messageStart", b"{}") + event(name, b"{}") + event("messageStop", b"{}"))
    assert out == "event: messageStart\ndata: {}\n\n" and fault is not None and "without a name" in fault


@pytest.mark.parametrize("payload", [b"", b"{", b'{"bytes":1}', b'{"bytes":"!!"}', b"[]", b"\xff", b"[" * 100_000])
def test_a_chunk_that_holds_no_event_is_a_fault(payload: bytes) -> None:
    """Nothing behind it is read."""
    out, fault = unframed(MESSAGES, chunk(b'{"type":"ping"}') + event("chunk", payload), chunk(b'{"type":"ping"}'))
    assert out.count("data:") == 1 and fault is not None and "chunk" in fault


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("throttlingException", "rate_limit_error"),
        ("serviceUnavailableException", "overloaded_error"),
        ("validationException", "invalid_request_error"),
        ("internalServerException", "api_error"),
        ("modelTimeoutException", "api_error"),
        ("modelStreamErrorException", "api_error"),
        ("bad name\n", "api_error"),
    ],
)
def test_an_exception_is_an_error_of_anthropics_to_its_clients(name: str, kind: str) -> None:
    out, fault = unframed(MESSAGES, exception(name, b'{"message":"why"}'))
    told = {"type": "error", "error": {"type": kind, "message": "why"}}
    assert out == f"event: error\ndata: {json.dumps(told, separators=(',', ':'))}\n\n" and fault is None


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (exception("throttlingException", b'{"message":"slow\\ndown"}'), "slow down"),
        (exception("modelStreamErrorException", b'{"message":"a","originalMessage":"b"}'), "b"),
        (exception("internalServerException", b"{}"), "reported internalServerException"),
        (exception("internalServerException", b"{"), "reported internalServerException"),
        (exception("internalServerException", b""), "reported internalServerException"),
        (exception("internalServerException", b"plain"), "plain"),
        (exception("internalServerException", b"\xff\xfe"), "\ufffd\ufffd"),
        (error("InternalError", "it broke"), "it broke"),
        (error("", ""), "reported exception"),
    ],
)
def test_what_an_exception_says_is_read_whatever_it_is(message: bytes, words: str) -> None:
    out, _ = unframed(CONVERSE, message)
    reader = bedrock_converse.reader()
    (failed,) = reader.feed(out.encode())
    assert isinstance(failed, Failed) and words in str(failed.error)


def test_a_damaged_message_ends_the_stream_behind_what_came_before_it() -> None:
    good, bad = event("messageStart", b"{}"), bytearray(event("messageStop", b"{}"))
    bad[-1] ^= 1
    out, fault = unframed(CONVERSE, good + bytes(bad) + good, good)
    assert out == "event: messageStart\ndata: {}\n\n" and fault is not None and "checksum" in fault
