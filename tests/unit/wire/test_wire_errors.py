"""Errors in both formats: what an upstream meant, and what a client is told."""

from __future__ import annotations

import json

import pytest

from arbiter.errors import (
    ArbiterError,
    ConfigFault,
    ErrorClass,
    InStreamError,
    NoRoute,
    TimedOut,
    Unavailable,
    UpstreamStatus,
)
from arbiter.wire import anthropic_messages, faults, openai_chat
from arbiter.wire.format import FORMATS, Format

BOTH = pytest.mark.parametrize("wire", FORMATS.values(), ids=list(FORMATS))
C = ErrorClass


def of_class(code: ErrorClass) -> ArbiterError:
    error = ArbiterError("why")
    error.code = code
    return error


@pytest.mark.parametrize("module", [openai_chat, anthropic_messages], ids=["chat", "messages"])
def test_every_class_has_a_spelling(module: object) -> None:
    """SPEC 4.8 is closed, and each format has one table for it."""
    assert set(module.ERROR_TYPES) == set(ErrorClass)  # type: ignore[attr-defined]


@pytest.mark.parametrize("code", ErrorClass, ids=str)
def test_an_error_of_ours_has_the_shape_of_the_clients_format(code: ErrorClass) -> None:
    """SPEC 1.3: formats are never mixed; our own errors carry their class as a stable code."""
    status, headers, body = openai_chat.write_error(of_class(code), "T")
    assert json.loads(body) == {
        "error": {"message": "why", "type": openai_chat.ERROR_TYPES[code], "param": None, "code": code.value}
    }
    assert dict(headers)["content-type"] == "application/json" and 400 <= status <= 599
    status, headers, body = anthropic_messages.write_error(of_class(code), "T")
    assert json.loads(body) == {
        "type": "error",
        "error": {"type": anthropic_messages.ERROR_TYPES[code], "message": "why", "code": code.value},
        "request_id": "T",
    }


def test_a_busy_upstream_is_503_here_and_529_there() -> None:
    """SPEC 4.8; and an answer of ours that asks to come back says when (a bare one is fatal to Codex)."""
    for error in (Unavailable("busy"), UpstreamStatus(C.OVERLOADED, 529, b"", (), "busy")):
        assert openai_chat.write_error(error, "T")[0] == 503
        assert anthropic_messages.write_error(error, "T")[0] == 529
    assert ("retry-after", "1") in openai_chat.write_error(Unavailable("busy"), "T")[1]
    headers = anthropic_messages.write_error(Unavailable("draining", retry_after_s=7), "T")[1]
    assert [value for name, value in headers if name == "retry-after"] == ["7"]


@BOTH
def test_headers_and_param_of_an_error_reach_the_client(wire: Format) -> None:
    assert ("x-should-retry", "false") in wire.write_error(ConfigFault("no key"), "T")[1]
    body = json.loads(openai_chat.write_error(NoRoute("no such model", param="model"), "T")[2])
    assert body["error"]["param"] == "model"


def test_an_error_event_ends_a_stream_without_a_terminal_event() -> None:
    """SPEC 2.7: no client can mistake a cut for an end."""
    error = TimedOut("idle", 3.0)
    chat = openai_chat.write_error_event(error, "T")
    assert chat.startswith(b'data: {"error":{"message":"the upstream stopped streaming for 3.0 s"')
    assert chat.endswith(b'"code":"timeout_idle"}}\n\n') and chat.count(b"\n\n") == 1
    messages = anthropic_messages.write_error_event(error, "T")
    assert messages.startswith(b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error"')
    assert messages.count(b"\n\n") == 1


def test_another_formats_failure_is_spelt_as_the_vendor_would() -> None:
    """Codex compacts at `context_length_exceeded`; it would not know our class for it."""
    error = anthropic_messages.parse_error(400, [], b'{"type":"error","error":{"message":"prompt is too long: 9 > 8"}}')
    body = json.loads(openai_chat.write_error(error, "T")[2])["error"]
    assert body["code"] == "context_length_exceeded" and body["message"] == "prompt is too long: 9 > 8"
    payment = openai_chat.parse_error(402, [], b"{}")
    assert json.loads(anthropic_messages.write_error(payment, "T")[2])["error"]["type"] == "billing_error"


def openai_error(message: str = "why", kind: str | None = None, code: object = None) -> bytes:
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}}).encode()


def anthropic_error(kind: str, message: str = "why") -> bytes:
    return json.dumps({"type": "error", "error": {"type": kind, "message": message}, "request_id": "r"}).encode()


@pytest.mark.parametrize(
    ("status", "body", "code", "message"),
    [
        (400, openai_error(), C.BAD_REQUEST, "why"),
        (400, openai_error("x", "invalid_request_error", "context_length_exceeded"), C.CONTEXT_LENGTH, "x"),
        (400, openai_error("x", "exceed_context_size_error", 400), C.CONTEXT_LENGTH, "x"),
        (
            400,
            anthropic_error("invalid_request_error", "prompt is too long: 210000 tokens"),
            C.CONTEXT_LENGTH,
            "prompt is",
        ),
        (400, openai_error("This model's maximum context length is 8192 tokens."), C.CONTEXT_LENGTH, "This model's"),
        (500, openai_error("the request exceeds the available context size"), C.CONTEXT_LENGTH, "the request"),
        (400, openai_error("x", None, "content_filter"), C.CONTENT_POLICY, "x"),
        (400, openai_error("x", None, "content_policy_violation"), C.CONTENT_POLICY, "x"),
        (
            400,
            b'{"error":{"message":"x","code":"bad","innererror":{"code":"ResponsibleAIPolicyViolation"}}}',
            C.CONTENT_POLICY,
            "x",
        ),
        (401, anthropic_error("authentication_error"), C.UNAUTHORIZED, "why"),
        (402, anthropic_error("billing_error"), C.QUOTA_EXHAUSTED, "why"),
        (403, openai_error(), C.FORBIDDEN, "why"),
        (404, b'{"detail":"Not Found"}', C.NOT_FOUND, "Not Found"),
        (404, openai_error("x", "NotFoundError", 404), C.NOT_FOUND, "x"),
        (413, b"", C.TOO_LARGE, "the upstream answered 413 without saying why"),
        (
            422,
            b'{"detail":[{"loc":["body","model"],"msg":"field required"}]}',
            C.BAD_REQUEST,
            "body.model: field required",
        ),
        (429, openai_error("x", "rate_limit_error", "rate_limit_exceeded"), C.RATE_LIMITED_TRANSIENT, "x"),
        (429, openai_error("x", "insufficient_quota", "insufficient_quota"), C.QUOTA_EXHAUSTED, "x"),
        (500, anthropic_error("api_error"), C.UPSTREAM_ERROR, "why"),
        (502, b'{"error":"bad gateway"}', C.UPSTREAM_ERROR, "bad gateway"),
        (503, b"upstream connect error\nor disconnect", C.OVERLOADED, "upstream connect error or disconnect"),
        (529, anthropic_error("overloaded_error"), C.OVERLOADED, "why"),
        (500, b'"just a string"', C.UPSTREAM_ERROR, "just a string"),
        (500, b"[1,2]", C.UPSTREAM_ERROR, "the upstream answered 500 with a body that is no error message"),
        (500, b"\xff\xfe\x00", C.UPSTREAM_ERROR, ""),
        (418, b"{}", C.BAD_REQUEST, "the upstream answered 418 with a body that is no error message"),
    ],
)
@BOTH
def test_an_upstreams_error_is_understood(
    wire: Format, status: int, body: bytes, code: ErrorClass, message: str
) -> None:
    """Whatever dialect it comes in: the class, one line for people, and the body as it came (SPEC 4.4, 4.8)."""
    error = wire.parse_error(status, [("Retry-After", "3")], body)
    assert (error.code, error.status, error.body) == (code, status, body)
    assert str(error).startswith(message) and "\n" not in str(error)
    assert error.upstream_headers == (("retry-after", "3"),)


@pytest.mark.parametrize(
    ("title", "said"),
    [(b"502", ""), (b"502: Bad Gateway", " (Bad Gateway)"), (b"5024", " (5024)"), (b"Error 502", " (Error 502)")],
)
def test_a_web_page_does_not_say_its_status_twice(title: bytes, said: str) -> None:
    error = faults.read(502, [], b"<html><title>" + title + b"</title></html>")
    assert str(error) == f"the upstream answered 502 with a web page{said}"


@pytest.mark.parametrize("kind", ["text/html; charset=utf-8", "application/octet-stream"])
def test_a_web_page_becomes_a_line_without_markup(kind: str) -> None:
    """A CDN's error page says nothing that an agent could read."""
    page = (
        b"<!DOCTYPE html><html><head><title>502 Bad &amp; &lt;b&gt;Gateway\n</title></head><body>edge-1</body></html>"
    )
    error = faults.read(502, [("content-type", kind)], page)
    assert str(error) == "the upstream answered 502 with a web page (Bad & bGateway)"
    assert error.code is C.UPSTREAM_ERROR


@pytest.mark.parametrize(
    ("page", "said"),
    [
        (b"<title" * 3_000_000, ""),
        (b"<html>" + b" " * 10_000_000 + b"<title>late</title>", ""),
        (b" " * 10_000_000, ""),
        (b"<html><title>" + b"x" * 10_000_000, f" ({'x' * 200})"),
        (b'<html><title lang="en">x', " (x)"),
        (b"<html><title>", ""),
    ],
)
def test_a_web_page_is_looked_at_no_further_than_its_beginning(page: bytes, said: str) -> None:
    """However long it is and whatever it repeats."""
    error = faults.read(500, [("content-type", "text/html")], page)
    assert str(error) == f"the upstream answered 500 with a web page{said}"


def test_an_error_of_any_size_is_read() -> None:
    """What is not told is not taken apart: words, values and places without end."""
    words = b'{"error":{"message":"why %b"}}' % (b"a " * 5_000_000)
    assert str(faults.in_stream(words)).startswith("why a a a")
    assert str(faults.in_stream(b'{"error":[%b0]}' % (b"0," * 5_000_000))).startswith("the upstream reported an error")
    detail = b'{"detail":[{"loc":[%b0],"msg":"m"}]}' % (b"0," * 50_000)
    assert str(faults.read(422, [], detail)) == "0." * 19 + "0: m"


def test_a_stack_trace_is_cut() -> None:
    """llama-cpp-python answers with its stack trace; 2 KiB of a line is more than anybody reads."""
    error = faults.read(500, [], openai_error("Traceback " + "x" * 100_000))
    assert len(str(error)) == faults.MAX_MESSAGE


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (b'{"error":{"message":"why","type":"overloaded","code":503}}', C.OVERLOADED),
        (anthropic_error("overloaded_error"), C.OVERLOADED),
        (anthropic_error("rate_limit_error"), C.RATE_LIMITED_TRANSIENT),
        (anthropic_error("api_error"), C.UPSTREAM_ERROR),
        (openai_error("why", "invalid_request_error"), C.BAD_REQUEST),
        (b'{"error":"why"}', C.UPSTREAM_ERROR),
    ],
)
@BOTH
def test_an_error_inside_a_stream_is_understood(wire: Format, payload: bytes, code: ErrorClass) -> None:
    """The status said 200, so the words have to tell."""
    error = wire.parse_error_event(payload)
    assert isinstance(error, InStreamError)
    assert (error.code, str(error)) == (code, "why")
    assert InStreamError("x").code is C.UPSTREAM_ERROR, "the class keeps its own code"


def test_half_an_emoji_does_not_cost_the_message() -> None:
    """Upstreams cut their messages to a length, too."""
    assert (
        str(faults.in_stream(rb'{"error":{"message":"too long \ud83d","type":"x"}}'))
        == "too long \N{REPLACEMENT CHARACTER}"
    )
