"""OpenAI Responses errors: every class of SPEC 4.8 as a client of this format knows it.

Before a stream they are what a chat's are. In one, the vendor sends an `error` event, which SDKs raise, and then the
response that failed, which agents read: Codex compacts at `context_length_exceeded` there.
"""

from __future__ import annotations

import msgspec

from arbiter.errors import ArbiterError, ErrorClass
from arbiter.wire.course import Begun
from arbiter.wire.json import NO_MEMBERS, Members, encode
from arbiter.wire.openai_errors import code_of
from arbiter.wire.responses_answer import Head

FAILED_CODES: dict[ErrorClass, str] = {
    ErrorClass.BAD_REQUEST: "invalid_prompt",
    ErrorClass.TOO_LARGE: "invalid_prompt",
    ErrorClass.CONTENT_POLICY: "invalid_prompt",
    ErrorClass.PROTOCOL_UNSUPPORTED: "invalid_prompt",
    ErrorClass.REFUSED_BY_RULE: "invalid_prompt",
    ErrorClass.GUARDRAIL_BLOCKED: "invalid_prompt",
    ErrorClass.CONTEXT_LENGTH: "context_length_exceeded",
    ErrorClass.RATE_LIMITED_TRANSIENT: "rate_limit_exceeded",
    ErrorClass.QUOTA_EXHAUSTED: "insufficient_quota",
    ErrorClass.BUDGET_EXCEEDED: "insufficient_quota",
}
"""`response.error.code` by class, in the words that agents know: they ask again after `server_error`, which is every
other class, and stop after most of these."""


def write_error_event(error: ArbiterError, trace_id: str) -> bytes:
    """Return the events that end a stream which failed. No `response.completed` follows them (SPEC 2.7)."""
    return failed_events(error, Head(trace_id, "", 0, NO_MEMBERS), b"", 0)


def failed_after(error: ArbiterError, trace_id: str, begun: Begun, asked: Members, *, is_told: bool = False) -> bytes:
    """Return those events for a stream that passed by unread, as far as `begun`. `is_told`: its upstream has sent the
    first of them."""
    model = begun.model or ""
    try:
        head = Head(trace_id, model, begun.created_s or 0, asked, id=begun.id)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):  # what was asked here nobody has read either
        head = Head(trace_id, model, begun.created_s or 0, NO_MEMBERS, id=begun.id)
    both = failed_events(error, head, b"", begun.next_number - is_told)
    return both[both.index(b"\n\n") + 2 :] if is_told else both


def failed_events(error: ArbiterError, head: Head, output: bytes, number: int) -> bytes:
    """Return those events for a response that came as far as `output`; the first of them has this `number`."""
    message = str(error)
    told = {"type": "error", "code": code_of(error), "message": message, "param": error.param}
    first = encode({**told, "sequence_number": number})
    why = {"code": FAILED_CODES.get(error.code, "server_error"), "message": message}
    response = head.build("failed", output, error=why)
    second = b'{"type":"response.failed","sequence_number":%d,"response":%b}' % (number + 1, response)
    return b"event: error\ndata: %b\n\nevent: response.failed\ndata: %b\n\n" % (first, second)
