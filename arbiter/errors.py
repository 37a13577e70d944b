"""Every error we raise: whose fault it is, which status it gets, and whether another try may help.

`ErrorClass` is the closed list of SPEC 4.8. Rows, logs, metrics and docs use its values; `wire/` spells each one
the way its own format does.
"""

from __future__ import annotations

import enum

Headers = tuple[tuple[str, str], ...]

_STOP: Headers = (("x-should-retry", "false"),)  # SPEC 1.4: what must not be asked again says so


class ErrorClass(enum.StrEnum):
    """How a request or an attempt can fail. Closed: a new failure is one of these or a change to the SPEC."""

    BAD_REQUEST = "bad_request"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    TOO_LARGE = "too_large"
    RATE_LIMITED_TRANSIENT = "rate_limited_transient"
    QUOTA_EXHAUSTED = "quota_exhausted"
    CONTEXT_LENGTH = "context_length"
    CONTENT_POLICY = "content_policy"
    OVERLOADED = "overloaded"
    UPSTREAM_ERROR = "upstream_error"
    UPSTREAM_PROTOCOL = "upstream_protocol"
    PROTOCOL_UNSUPPORTED = "protocol_unsupported"
    TIMEOUT_UNARY = "timeout_unary"
    TIMEOUT_QUEUE = "timeout_queue"
    TIMEOUT_CONNECT = "timeout_connect"
    TIMEOUT_HEADERS = "timeout_headers"
    TIMEOUT_FIRST_EVENT = "timeout_first_event"
    TIMEOUT_IDLE = "timeout_idle"
    TIMEOUT_TOTAL = "timeout_total"
    TRANSPORT = "transport"
    CLIENT_DISCONNECTED = "client_disconnected"
    REFUSED_BY_RULE = "refused_by_rule"
    GUARDRAIL_BLOCKED = "guardrail_blocked"
    BUDGET_EXCEEDED = "budget_exceeded"
    NO_ROUTE = "no_route"
    CONFIG = "config"
    INTERNAL = "internal"


class Retry(enum.Enum):
    """What may help after a failed attempt (SPEC 4.1, 4.4 to 4.6)."""

    NEVER = "never"  # the request itself is at fault, or the configuration
    SAME = "same"  # the same target again; then another one
    KEY = "key"  # another account of the same provider; then another target
    NEXT = "next"  # another target only
    LARGER = "larger"  # a target with a larger context window only


class ArbiterError(Exception):
    """One failed request or attempt.

    `str(error)` is for people and may reach the client. `headers` go onto the client's answer; `param` names the
    member of the request at fault, where there is one.
    """

    code: ErrorClass = ErrorClass.INTERNAL
    word: str | None = None  # what clients are told as `code`, where that is more exact than the class
    status: int = 500
    source: str = "gateway"
    retry: Retry = Retry.NEVER

    def __init__(self, message: str, *, headers: Headers = (), param: str | None = None) -> None:
        super().__init__(message)
        self.headers = headers
        self.param = param


def let_go(error: BaseException) -> None:
    """Forget where an error came from that is handled now, and so did those that it came of.

    The frames of its traceback hold the request, and often what holds the error: a circle, which would be there until
    the collector comes.
    """
    one: BaseException | None = error
    while one is not None:
        one.__traceback__ = None
        one = one.__context__


class ClientError(ArbiterError):
    """The caller's: another try would fail alike."""

    code, status = ErrorClass.BAD_REQUEST, 400


class BadRequest(ClientError):
    """The body or a header is not what the endpoint takes."""


class InvalidReasoning(BadRequest):
    """Reasoning that was handed along is damaged, somebody else's, or stands beside what it was not said with.

    `part` is the neutral part that it stands in, where that is known.
    """

    word = "invalid_reasoning_content"

    def __init__(self, message: str, *, param: str | None = None, part: object = None) -> None:
        super().__init__(message, param=param)
        self.part = part


class Unauthorized(ClientError):
    """No key, or one that is not ours."""

    code, status = ErrorClass.UNAUTHORIZED, 401


class Forbidden(ClientError):
    """A known key that may not do this."""

    code, status = ErrorClass.FORBIDDEN, 403


class NotFound(ClientError):
    """There is no such thing."""

    code, status = ErrorClass.NOT_FOUND, 404


class WrongMethod(ClientError):
    """The path is one of ours, and is asked in another way; `allow` names the methods that it has."""

    status = 405

    def __init__(self, message: str, allow: str) -> None:
        super().__init__(message, headers=(("allow", allow),))


class NoRoute(ClientError):
    """No provider serves the model that was asked for."""

    code, status = ErrorClass.NO_ROUTE, 404


class TooLarge(ClientError):
    """The body or the header block is over its limit."""

    code, status = ErrorClass.TOO_LARGE, 413


class HeadersTooLarge(TooLarge):
    """The header block is over `limits.headers`."""

    status = 431


class SlowSender(ClientError):
    """The request body did not arrive within `limits.slow_sender`."""

    status = 408


class ProtocolUnsupported(ClientError):
    """The target cannot speak what this request needs (SPEC 4.8: 400, terminal)."""

    code = ErrorClass.PROTOCOL_UNSUPPORTED


class PartUnsupported(ProtocolUnsupported):
    """The target has no place for `part`, a neutral part of a message."""

    def __init__(self, message: str, part: object) -> None:
        super().__init__(message)
        self.part = part


class ClientGone(ClientError):
    """The caller hung up; nobody reads the answer, the row does."""

    code, status = ErrorClass.CLIENT_DISCONNECTED, 499


class UpstreamError(ArbiterError):
    """Theirs: the next rung may do better, as long as nothing reached the client."""

    code, status = ErrorClass.UPSTREAM_ERROR, 502
    retry = Retry.NEXT
    source = "upstream"  # who says so (SPEC 1.4)
    wait_s: float | None = None  # how long the provider asked us to stay away


class Unreachable(UpstreamError):
    """No connection, or the connection broke before the answer was whole."""

    code = ErrorClass.TRANSPORT
    retry = Retry.SAME


class Untrusted(Unreachable):
    """The upstream's certificate cannot be trusted: a fault of the configuration (or somebody in between). The next try
    would meet it again."""

    code = ErrorClass.CONFIG
    retry = Retry.NEXT


class Cut(Unreachable):
    """The answer ended before it was whole: a lost connection, or a stream without its terminal event."""


class Garbled(UpstreamError):
    """What came is not HTTP, not SSE, not the format it claims to be, or over a bound."""

    code = ErrorClass.UPSTREAM_PROTOCOL


class InStreamError(UpstreamError):
    """The upstream reported a failure inside a 200 stream. `code` and what it gives may be set by who read it."""

    def classify(self, code: ErrorClass, status: int | None = None) -> None:
        """Say what kind of failure it was, and with which status a client that got nothing yet is told."""
        self.code = code
        self.retry = _retry_of(code)
        if status is not None:
            self.status = status


class TimedOut(UpstreamError):
    """One phase of an attempt took longer than its budget: `phase` is a name of SPEC 3.3, `waited_s` the wait."""

    status = 504
    retry = Retry.SAME

    def __init__(self, phase: str, waited_s: float, message: str | None = None) -> None:
        super().__init__(message or f"the upstream {_PHASES[phase]} {waited_s:.1f} s")
        self.phase = phase
        self.waited_s = waited_s
        if phase == "queue":
            self.source = "gateway"  # nobody was asked
        self.code = ErrorClass(f"timeout_{phase}")


_PHASES = {
    "queue": "was not asked: no connection to it was free (`connections.max`) for",
    "connect": "could not be connected to for",
    "headers": "sent no response headers for",
    "first_event": "produced nothing after accepting the request for",
    "idle": "stopped streaming for",
    "unary": "did not finish its answer within",
    "total": "did not finish its stream within",
}


class UpstreamStatus(UpstreamError):
    """The upstream answered with an error status. Its body reaches a client of the same `format` unmodified.

    `upstream_headers` are lower-case names with their values, as received.
    """

    format = ""  # the wire format that the upstream was spoken to in

    def __init__(self, code: ErrorClass, status: int, body: bytes, upstream_headers: Headers, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.retry = _retry_of(code, status)
        self.body = body
        self.upstream_headers = upstream_headers


class KeyRefused(UpstreamError):
    """The upstream refused the gateway's own key: a fault of the configuration, told apart from an outage.

    Another key of the pool may be good; another target is not asked, lest the fault go unnoticed.
    """

    code = ErrorClass.CONFIG
    retry = Retry.KEY

    def __init__(self, message: str, *, told: int = 0) -> None:
        super().__init__(message, headers=_STOP)
        self.on: object = None  # the account, where that may be had anew
        self.told = told  # the status that the upstream refused it with; 0 where it was not asked


class ConfigFault(ArbiterError):
    """The operator's configuration does not work. Tried once, and told apart from an upstream outage."""

    code, status = ErrorClass.CONFIG, 500

    def __init__(self, message: str) -> None:
        super().__init__(message, headers=_STOP)


class Resting(UpstreamError):
    """Whoever could serve this has asked us to wait, and was not contacted (SPEC 4.4)."""

    code, status = ErrorClass.RATE_LIMITED_TRANSIENT, 429
    retry = Retry.NEVER
    source = "gateway"

    def __init__(self, message: str, wait_s: float, *, is_quota: bool = False) -> None:
        super().__init__(message, headers=(("retry-after", str(whole_seconds(wait_s))),))
        if is_quota:
            self.code = ErrorClass.QUOTA_EXHAUSTED


class Paused(ArbiterError):
    """An operator has stopped this traffic (SPEC 12.4a)."""

    code, status = ErrorClass.REFUSED_BY_RULE, 503

    def __init__(self, message: str) -> None:
        super().__init__(message, headers=(*_STOP, ("retry-after", "60")))


class Unavailable(ArbiterError):
    """This gateway cannot take the request now (draining, or full); another try may land better."""

    code, status = ErrorClass.OVERLOADED, 503

    def __init__(self, message: str, retry_after_s: int = 1) -> None:
        # A 503 without retry-after is fatal to some agents (SPEC 2.7).
        super().__init__(message, headers=(("retry-after", str(retry_after_s)),))


class InternalError(ArbiterError):
    """Ours. The test-suite treats one as a bug."""


# SPEC 4.1: what may go away by itself within seconds. A plain 500 is a bug of theirs, and the next try meets it again.
_PASSING = frozenset((408, 502, 503, 504, *range(520, 525), 529))


def _retry_of(code: ErrorClass, status: int = 0) -> Retry:
    """What may help after an upstream said `code`, with `status` or (0) inside a stream."""
    if status == 429 or code in (ErrorClass.RATE_LIMITED_TRANSIENT, ErrorClass.QUOTA_EXHAUSTED, ErrorClass.CONFIG):
        return Retry.KEY
    if code is ErrorClass.CONTEXT_LENGTH:
        return Retry.LARGER
    if status in _PASSING or (not status and code is ErrorClass.OVERLOADED):
        return Retry.SAME
    if status >= 500 or code in (ErrorClass.UPSTREAM_ERROR, ErrorClass.OVERLOADED):
        return Retry.NEXT
    return Retry.NEVER


def whole_seconds(wait_s: float) -> int:
    """A wait as `retry-after` has it: whole seconds, rounded up, at least one."""
    return max(1, -int(-wait_s // 1))
