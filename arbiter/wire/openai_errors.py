"""OpenAI's errors, of both of its formats: every class of SPEC 4.8 as a client of them knows it."""

from __future__ import annotations

from arbiter.errors import ArbiterError, ErrorClass, InStreamError, UpstreamStatus
from arbiter.wire import faults
from arbiter.wire.faults import status_of
from arbiter.wire.json import encode

ERROR_TYPES: dict[ErrorClass, str] = {
    ErrorClass.BAD_REQUEST: "invalid_request_error",
    ErrorClass.UNAUTHORIZED: "authentication_error",
    ErrorClass.FORBIDDEN: "permission_error",
    ErrorClass.NOT_FOUND: "invalid_request_error",
    ErrorClass.TOO_LARGE: "invalid_request_error",
    ErrorClass.RATE_LIMITED_TRANSIENT: "rate_limit_error",
    ErrorClass.QUOTA_EXHAUSTED: "insufficient_quota",
    ErrorClass.CONTEXT_LENGTH: "invalid_request_error",
    ErrorClass.CONTENT_POLICY: "invalid_request_error",
    ErrorClass.OVERLOADED: "server_error",
    ErrorClass.UPSTREAM_ERROR: "server_error",
    ErrorClass.UPSTREAM_PROTOCOL: "server_error",
    ErrorClass.PROTOCOL_UNSUPPORTED: "invalid_request_error",
    ErrorClass.TIMEOUT_UNARY: "server_error",
    ErrorClass.TIMEOUT_QUEUE: "server_error",
    ErrorClass.TIMEOUT_CONNECT: "server_error",
    ErrorClass.TIMEOUT_HEADERS: "server_error",
    ErrorClass.TIMEOUT_FIRST_EVENT: "server_error",
    ErrorClass.TIMEOUT_IDLE: "server_error",
    ErrorClass.TIMEOUT_TOTAL: "server_error",
    ErrorClass.TRANSPORT: "server_error",
    ErrorClass.CLIENT_DISCONNECTED: "invalid_request_error",
    ErrorClass.REFUSED_BY_RULE: "permission_error",
    ErrorClass.GUARDRAIL_BLOCKED: "permission_error",
    ErrorClass.BUDGET_EXCEEDED: "insufficient_quota",
    ErrorClass.NO_ROUTE: "invalid_request_error",
    ErrorClass.CONFIG: "server_error",
    ErrorClass.INTERNAL: "server_error",
}
"""`error.type` by class. The vendor has few types; `error.code` is what tells failures apart."""

UPSTREAM_CODES: dict[ErrorClass, str] = {
    ErrorClass.RATE_LIMITED_TRANSIENT: "rate_limit_exceeded",
    ErrorClass.QUOTA_EXHAUSTED: "insufficient_quota",
    ErrorClass.CONTEXT_LENGTH: "context_length_exceeded",
    ErrorClass.CONTENT_POLICY: "content_policy_violation",
}
"""`error.code` where another format's upstream failed, as OpenAI spells it: Codex compacts at `context_length_exceeded`
and stops at `insufficient_quota`. Every other class, and every error of our own, has the class itself as its code."""


def code_of(error: ArbiterError) -> str:
    """Return `error.code`."""
    code: str = error.word or error.code
    return UPSTREAM_CODES.get(error.code, code) if isinstance(error, UpstreamStatus | InStreamError) else code


def write_error(error: ArbiterError, trace_id: str) -> tuple[int, list[tuple[str, str]], bytes]:
    """Return status, headers and body that tell a client about `error`, before anything was sent."""
    status = status_of(error)
    headers = [("content-type", "application/json"), *error.headers]
    faults.add_retry_after(headers, status, error)
    return status, headers, encode(body_of(error))


def body_of(error: ArbiterError) -> dict[str, object]:
    inner = {"message": str(error), "type": ERROR_TYPES[error.code], "param": error.param, "code": code_of(error)}
    return {"error": inner}
