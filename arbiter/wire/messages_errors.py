"""Anthropic Messages errors: every class of SPEC 4.8 as a client of this format knows it."""

from __future__ import annotations

from arbiter.errors import ArbiterError, ErrorClass, InStreamError, Retry, UpstreamStatus
from arbiter.wire import faults
from arbiter.wire.json import encode

ERROR_TYPES: dict[ErrorClass, str] = {
    ErrorClass.BAD_REQUEST: "invalid_request_error",
    ErrorClass.UNAUTHORIZED: "authentication_error",
    ErrorClass.FORBIDDEN: "permission_error",
    ErrorClass.NOT_FOUND: "not_found_error",
    ErrorClass.TOO_LARGE: "request_too_large",
    ErrorClass.RATE_LIMITED_TRANSIENT: "rate_limit_error",
    ErrorClass.QUOTA_EXHAUSTED: "rate_limit_error",
    ErrorClass.CONTEXT_LENGTH: "invalid_request_error",
    ErrorClass.CONTENT_POLICY: "invalid_request_error",
    ErrorClass.OVERLOADED: "overloaded_error",
    ErrorClass.UPSTREAM_ERROR: "api_error",
    ErrorClass.UPSTREAM_PROTOCOL: "api_error",
    ErrorClass.PROTOCOL_UNSUPPORTED: "invalid_request_error",
    ErrorClass.TIMEOUT_UNARY: "timeout_error",
    ErrorClass.TIMEOUT_QUEUE: "timeout_error",
    ErrorClass.TIMEOUT_CONNECT: "timeout_error",
    ErrorClass.TIMEOUT_HEADERS: "timeout_error",
    ErrorClass.TIMEOUT_FIRST_EVENT: "timeout_error",
    ErrorClass.TIMEOUT_IDLE: "timeout_error",
    ErrorClass.TIMEOUT_TOTAL: "timeout_error",
    ErrorClass.TRANSPORT: "api_error",
    ErrorClass.CLIENT_DISCONNECTED: "api_error",
    ErrorClass.REFUSED_BY_RULE: "permission_error",
    ErrorClass.GUARDRAIL_BLOCKED: "permission_error",
    ErrorClass.BUDGET_EXCEEDED: "rate_limit_error",
    ErrorClass.NO_ROUTE: "not_found_error",
    ErrorClass.CONFIG: "api_error",
    ErrorClass.INTERNAL: "api_error",
}
"""`error.type` by class."""

IN_STREAM_RETRY = "overloaded_error"
"""`error.type` of an event for a stream that broke off or fell silent. Agents try again after this one; opencode takes
an `api_error` in a stream for final."""


def status_of(error: ArbiterError) -> int:
    """Return the HTTP status for `error`: Anthropic's clients know a busy upstream as 529."""
    return 529 if error.code is ErrorClass.OVERLOADED else error.status


def write_error(error: ArbiterError, trace_id: str) -> tuple[int, list[tuple[str, str]], bytes]:
    """Return status, headers and body that tell a client of this format about `error`, before anything was sent."""
    status = status_of(error)
    headers = [("content-type", "application/json"), *error.headers]
    faults.add_retry_after(headers, status, error)
    return status, headers, encode(_body(error, trace_id, ERROR_TYPES[error.code]))


def write_error_event(error: ArbiterError, trace_id: str) -> bytes:
    """Return the event that ends a stream which failed. No `message_stop` follows it (SPEC 2.7).

    There is no status to judge by in here, only the type: where the same request may well succeed, it is the one that
    says so.
    """
    kind = IN_STREAM_RETRY if error.retry is Retry.SAME else ERROR_TYPES[error.code]
    return b"event: error\ndata: " + encode(_body(error, trace_id, kind)) + b"\n\n"


def _body(error: ArbiterError, trace_id: str, kind: str) -> dict[str, object]:
    if isinstance(error, UpstreamStatus) and error.status == 402:
        kind = "billing_error"
    inner: dict[str, object] = {"type": kind, "message": str(error)}
    if not isinstance(error, UpstreamStatus | InStreamError):
        inner["code"] = error.word or error.code  # the vendor has none; ours is the stable name of what went wrong
    return {"type": "error", "error": inner, "request_id": trace_id}
