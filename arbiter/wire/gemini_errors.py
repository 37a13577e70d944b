"""Gemini's errors: every class of SPEC 4.8 as a client of this format knows it, in the shape of google.rpc.Status."""

from __future__ import annotations

from arbiter.errors import ArbiterError, ErrorClass
from arbiter.wire import faults
from arbiter.wire.faults import status_of
from arbiter.wire.json import encode

ERROR_TYPES: dict[ErrorClass, str] = {
    ErrorClass.BAD_REQUEST: "INVALID_ARGUMENT",
    ErrorClass.UNAUTHORIZED: "UNAUTHENTICATED",
    ErrorClass.FORBIDDEN: "PERMISSION_DENIED",
    ErrorClass.NOT_FOUND: "NOT_FOUND",
    ErrorClass.TOO_LARGE: "INVALID_ARGUMENT",
    ErrorClass.RATE_LIMITED_TRANSIENT: "RESOURCE_EXHAUSTED",
    ErrorClass.QUOTA_EXHAUSTED: "RESOURCE_EXHAUSTED",
    ErrorClass.CONTEXT_LENGTH: "INVALID_ARGUMENT",
    ErrorClass.CONTENT_POLICY: "INVALID_ARGUMENT",
    ErrorClass.OVERLOADED: "UNAVAILABLE",
    ErrorClass.UPSTREAM_ERROR: "INTERNAL",
    ErrorClass.UPSTREAM_PROTOCOL: "INTERNAL",
    ErrorClass.PROTOCOL_UNSUPPORTED: "INVALID_ARGUMENT",
    ErrorClass.TIMEOUT_UNARY: "DEADLINE_EXCEEDED",
    ErrorClass.TIMEOUT_QUEUE: "DEADLINE_EXCEEDED",
    ErrorClass.TIMEOUT_CONNECT: "DEADLINE_EXCEEDED",
    ErrorClass.TIMEOUT_HEADERS: "DEADLINE_EXCEEDED",
    ErrorClass.TIMEOUT_FIRST_EVENT: "DEADLINE_EXCEEDED",
    ErrorClass.TIMEOUT_IDLE: "DEADLINE_EXCEEDED",
    ErrorClass.TIMEOUT_TOTAL: "DEADLINE_EXCEEDED",
    ErrorClass.TRANSPORT: "UNAVAILABLE",
    ErrorClass.CLIENT_DISCONNECTED: "CANCELLED",
    ErrorClass.REFUSED_BY_RULE: "PERMISSION_DENIED",
    ErrorClass.GUARDRAIL_BLOCKED: "PERMISSION_DENIED",
    ErrorClass.BUDGET_EXCEEDED: "RESOURCE_EXHAUSTED",
    ErrorClass.NO_ROUTE: "NOT_FOUND",
    ErrorClass.CONFIG: "INTERNAL",
    ErrorClass.INTERNAL: "INTERNAL",
}
"""`error.status` by class. Google has few; `reason` in its details is the class itself, or what is more exact."""

_INFO = "type.googleapis.com/google.rpc.ErrorInfo"
_RETRY = "type.googleapis.com/google.rpc.RetryInfo"


def write_error(error: ArbiterError, trace_id: str) -> tuple[int, list[tuple[str, str]], bytes]:
    """Return status, headers and body that tell a client of this format about `error`, before anything was sent."""
    status = status_of(error)
    headers = [("content-type", "application/json"), *error.headers]
    faults.add_retry_after(headers, status, error)
    wait = next((value for name, value in headers if name.lower() == "retry-after"), None)
    return status, headers, encode(body_of(error, trace_id, wait))


def write_error_event(error: ArbiterError, trace_id: str) -> bytes:
    """Return the event that ends a stream which failed."""
    return b"data: " + encode(body_of(error, trace_id, None)) + b"\n\n"


def body_of(error: ArbiterError, trace_id: str, wait: str | None) -> dict[str, object]:
    """Return the body; `wait` is what `retry-after` says, which clients of this format read in here."""
    metadata = {"trace_id": trace_id}
    if error.param is not None:
        metadata["field"] = error.param
    reason = (error.word or error.code).upper()
    info: dict[str, object] = {"@type": _INFO, "reason": reason, "domain": "arbiter", "metadata": metadata}
    details = [info]
    if wait is not None and wait.isdecimal():
        details.append({"@type": _RETRY, "retryDelay": f"{wait}s"})
    word = ERROR_TYPES[error.code]
    return {"error": {"code": status_of(error), "message": str(error), "status": word, "details": details}}
