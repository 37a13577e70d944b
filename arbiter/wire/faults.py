"""What an upstream meant by an error: one reading for every dialect.

A server that speaks OpenAI's format may sit behind Anthropic's proxy, a CDN or FastAPI, so its errors come in any
shape: `{"error": {...}}` of either vendor, `{"error": "text"}`, `{"detail": ...}`, `{"message": ...}`, a web page,
plain text, nothing. From each we take the class (SPEC 4.8) and one line for people; the body itself stays as it came.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

import msgspec

from arbiter._speedups import nesting, reduce
from arbiter.errors import ArbiterError, ErrorClass, InStreamError, UpstreamStatus

MAX_MESSAGE = 2048
"""Characters of an upstream's message that we keep. llama-cpp-python puts whole stack traces in there."""

MAX_HEAD = 4 * MAX_MESSAGE
"""Bytes at the beginning of a body that is no JSON in which we look for a message, or for the title of a page."""

MAX_TITLE = 200
_MOST_DETAILS = 20

_BY_STATUS = {
    401: ErrorClass.UNAUTHORIZED,
    402: ErrorClass.QUOTA_EXHAUSTED,
    403: ErrorClass.FORBIDDEN,
    404: ErrorClass.NOT_FOUND,
    413: ErrorClass.TOO_LARGE,
    424: ErrorClass.UPSTREAM_ERROR,  # Bedrock: the model itself failed
    429: ErrorClass.RATE_LIMITED_TRANSIENT,
    498: ErrorClass.OVERLOADED,  # Groq: no room in the tier
    503: ErrorClass.OVERLOADED,
    529: ErrorClass.OVERLOADED,
}

# The vendors' own words, in `code` or `type`. They tell more than the status does.
_BY_WORD = {
    "insufficient_quota": ErrorClass.QUOTA_EXHAUSTED,
    "billing_hard_limit_reached": ErrorClass.QUOTA_EXHAUSTED,
    "billing_not_active": ErrorClass.QUOTA_EXHAUSTED,
    "billing_error": ErrorClass.QUOTA_EXHAUSTED,
    "usage_limit_reached": ErrorClass.QUOTA_EXHAUSTED,
    "exceeded_current_quota_error": ErrorClass.QUOTA_EXHAUSTED,  # Moonshot
    "servicequotaexceededexception": ErrorClass.QUOTA_EXHAUSTED,  # Bedrock
    "1113": ErrorClass.QUOTA_EXHAUSTED,  # z.ai has numbers: no balance, a day's calls, a plan's window, no plan
    "1304": ErrorClass.QUOTA_EXHAUSTED,
    "1308": ErrorClass.QUOTA_EXHAUSTED,
    "1309": ErrorClass.QUOTA_EXHAUSTED,
    "1310": ErrorClass.QUOTA_EXHAUSTED,
    "context_length_exceeded": ErrorClass.CONTEXT_LENGTH,
    "exceed_context_size_error": ErrorClass.CONTEXT_LENGTH,
    "string_above_max_length": ErrorClass.CONTEXT_LENGTH,
    "1261": ErrorClass.CONTEXT_LENGTH,
    "1301": ErrorClass.CONTENT_POLICY,
    "content_filter": ErrorClass.CONTENT_POLICY,
    "content_policy": ErrorClass.CONTENT_POLICY,
    "content_policy_violation": ErrorClass.CONTENT_POLICY,
    "responsibleaipolicyviolation": ErrorClass.CONTENT_POLICY,
    "overloaded_error": ErrorClass.OVERLOADED,
    "overloaded": ErrorClass.OVERLOADED,
    "engine_overloaded": ErrorClass.OVERLOADED,
    "engine_overloaded_error": ErrorClass.OVERLOADED,  # Moonshot, with a 429
    "1312": ErrorClass.OVERLOADED,
    "modelnotreadyexception": ErrorClass.OVERLOADED,  # Bedrock, with a 429
    "serviceunavailableexception": ErrorClass.OVERLOADED,
    "throttlingexception": ErrorClass.RATE_LIMITED_TRANSIENT,
    "modelerrorexception": ErrorClass.UPSTREAM_ERROR,
    "modelstreamerrorexception": ErrorClass.UPSTREAM_ERROR,
    "modeltimeoutexception": ErrorClass.UPSTREAM_ERROR,
    "expiredtokenexception": ErrorClass.UNAUTHORIZED,
    "unrecognizedclientexception": ErrorClass.UNAUTHORIZED,
    "invalidsignatureexception": ErrorClass.UNAUTHORIZED,
    "incompletesignatureexception": ErrorClass.UNAUTHORIZED,
    "server_is_overloaded": ErrorClass.OVERLOADED,
    "slow_down": ErrorClass.OVERLOADED,
    # Google's reasons, in the details of an error whose status tells less.
    "api_key_invalid": ErrorClass.UNAUTHORIZED,
    "quota_per_day": ErrorClass.QUOTA_EXHAUSTED,
}

# Only without a status (an error inside a stream) do these words say what the status would have.
_INSTEAD_OF_STATUS = {
    "rate_limit_error": ErrorClass.RATE_LIMITED_TRANSIENT,
    "rate_limit_exceeded": ErrorClass.RATE_LIMITED_TRANSIENT,
    "authentication_error": ErrorClass.UNAUTHORIZED,
    "permission_error": ErrorClass.FORBIDDEN,
    "not_found_error": ErrorClass.NOT_FOUND,
    "request_too_large": ErrorClass.TOO_LARGE,
    "invalid_request_error": ErrorClass.BAD_REQUEST,
    "validationexception": ErrorClass.BAD_REQUEST,
    "invalid_prompt": ErrorClass.CONTENT_POLICY,
    "resource_exhausted": ErrorClass.RATE_LIMITED_TRANSIENT,
    "unavailable": ErrorClass.OVERLOADED,
    "unauthenticated": ErrorClass.UNAUTHORIZED,
    "permission_denied": ErrorClass.FORBIDDEN,
    "not_found": ErrorClass.NOT_FOUND,
    "invalid_argument": ErrorClass.BAD_REQUEST,
}

# What a status says in place of an upstream that answered 200 before it failed (SPEC 4.8).
_STATUS = {
    ErrorClass.BAD_REQUEST: 400,
    ErrorClass.NOT_FOUND: 404,
    ErrorClass.TOO_LARGE: 413,
    ErrorClass.RATE_LIMITED_TRANSIENT: 429,
    ErrorClass.QUOTA_EXHAUSTED: 429,
    ErrorClass.CONTEXT_LENGTH: 400,
    ErrorClass.CONTENT_POLICY: 400,
    ErrorClass.OVERLOADED: 503,
}

# Anthropic, vLLM and others name an overlong prompt in their prose alone: so do Moonshot, xAI, Together, Bedrock.
_TOO_LONG = re.compile(
    r"prompt is too long|maximum context length|exceeds? the (?:available )?context|context (?:window|length) exceeded"
    r"|input length and `?max_tokens`? exceed|exceeded model token limit|maximum prompt length|context length is only"
    r"|less than the context length|input is too long for requested model|input token count.{0,40} exceeds",
    re.IGNORECASE,
)
# And so is an account that has nothing left named by Anthropic (a 400), xAI (a 429 or 403) and Together.
_SPENT = re.compile(
    r"credit balance is too low|used all available credits|does(?:n't| not) have any credits|insufficient balance",
    re.IGNORECASE,
)
_SPENT_STATUS = (400, 402, 403, 429)
_PAGE = re.compile(rb"\A\s*(?:<!doctype\s+html|<html|<\?xml|<head|<body)", re.IGNORECASE)


class _Inner(msgspec.Struct):
    message: object = None
    type: object = None
    code: object = None
    status: object = None


class _Outer(msgspec.Struct):
    error: object = None
    detail: object = None
    message: object = None
    type: object = None
    code: object = None
    response: object = None  # OpenAI's `response.failed` has the error in there


def read(status: int, headers: Sequence[tuple[str, str]], body: bytes) -> UpstreamStatus:
    """Return the error of an answer with an error status.

    Shapes: `body` and `headers` are kept as they came; the message is one line, without markup, of at most
    2,048 characters.
    """
    message, words = _read_json(body)
    if message is None:
        message = _read_text(status, headers, body)
    lowered = tuple((name.lower(), value) for name, value in headers)
    kind = next((value for name, value in lowered if name == "x-amzn-errortype"), "")
    if kind:  # Bedrock's bodies hold a message and nothing else: `ThrottlingException:http://...`
        words = [kind.partition(":")[0].lower(), *words]
    code = _classify(status, words, message)
    return UpstreamStatus(code, status, body, lowered, message)


def in_stream(payload: bytes) -> InStreamError:
    """Return the error that an event inside a 200 stream reports, or a 200 in place of an answer.

    Its status is the one that its class would have had, for a client to which nothing was sent yet.
    """
    message, words = _read_json(payload)
    status = next((int(word) for word in words if re.fullmatch(r"[45]\d\d", word)), 0)
    error = InStreamError(message or "the upstream reported an error inside its stream, without saying which")
    code = _classify(status, words, message or "")
    if code is ErrorClass.UPSTREAM_ERROR:
        code = next((_INSTEAD_OF_STATUS[w] for w in words if w in _INSTEAD_OF_STATUS), code)
    if code in (ErrorClass.UNAUTHORIZED, ErrorClass.FORBIDDEN):
        code = ErrorClass.CONFIG  # our key, not the caller's: nobody shall be asked to log in
    error.classify(code, _STATUS.get(code))
    return error


_OF_SOMETHING_ELSE = re.compile(
    r"model_not_found"
    r"|\b(?:model|item|response|conversation|deployment)\b.{0,200}\b(?:not (?:be )?found|does(?: not|n't) exist)",
    re.IGNORECASE,
)


def lacks_endpoint(error: UpstreamStatus) -> bool:
    """Return whether an error says that there is nothing at the path that was asked. That a model is missing, or what
    the request refers to, is a 404 as well."""
    if error.status != 404:
        return error.status in (405, 501)
    try:
        said = msgspec.json.decode(nesting.whole(error.body), type=_Outer).error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return True
    inner = said if isinstance(said, dict) else {}
    return inner.get("param") is None and not _OF_SOMETHING_ELSE.search(f"{inner.get('code')} {error}")


def _classify(status: int, words: Sequence[str], message: str) -> ErrorClass:
    for word in words:
        if word in _BY_WORD:
            return _BY_WORD[word]
    # Some say "maximum context length" in a 500; nobody means anything else by it.
    if status != 429 and _TOO_LONG.search(message):
        return ErrorClass.CONTEXT_LENGTH
    if status in _SPENT_STATUS and _SPENT.search(message):
        return ErrorClass.QUOTA_EXHAUSTED
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    return ErrorClass.BAD_REQUEST if 400 <= status < 500 else ErrorClass.UPSTREAM_ERROR


def _read_json(body: bytes) -> tuple[str | None, list[str]]:
    """Return the message and the machine-readable words of a JSON error body; (None, []) where it is none."""
    if len(body) > reduce.MAX_VALUES and nesting.commas(body) >= reduce.MAX_VALUES:
        return None, []  # objects for all of its values would take a hundred times its size
    try:
        # Half of a surrogate pair would cost the whole message; it becomes U+FFFD.
        found = msgspec.json.decode(nesting.whole(body), type=_Outer | str | list[_Outer])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None, []
    if isinstance(found, list):  # Google's, for a call that streams
        found = found[0] if found else _Outer()
    if isinstance(found, str):
        return (_one_line(found) or None), []
    outer: _Outer = found
    error = outer.error
    if error is None and isinstance(outer.response, dict):
        error = outer.response.get("error")
    inner = error if isinstance(error, dict) else {}
    words = [
        str(word).lower()
        for word in (inner.get("code"), inner.get("type"), inner.get("status"), outer.code, outer.type)
        if isinstance(word, str | int) and not isinstance(word, bool)
    ]
    words[:0] = _reasons(inner.get("details"))
    innererror = inner.get("innererror")
    if isinstance(innererror, dict) and isinstance(innererror.get("code"), str):
        words.insert(0, innererror["code"].lower())  # Azure hides the policy violation in there
    metadata = inner.get("metadata")
    if isinstance(metadata, dict):  # OpenRouter: what its moderation flagged, or what the server behind it said
        if "flagged_input" in metadata or "reasons" in metadata:
            words.insert(0, "content_policy_violation")
        raw = metadata.get("raw")
        if isinstance(raw, str) and (behind := _behind(raw, inner.get("message"))) is not None:
            return behind[0], words + behind[1]
    for text in (inner.get("message"), outer.error, outer.message, outer.detail):
        said = _say(text)
        if said:
            return said, words
    return None, words


def _behind(raw: str, message: object) -> tuple[str, list[str]] | None:
    """Return what an error in an error says: the server behind a router that itself says no more than that it failed.

    It is read once, however deep they are put into each other.
    """
    if len(raw) > MAX_HEAD:
        return None
    try:
        found = msgspec.json.decode(nesting.whole(raw.encode()), type=_Outer)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return (_one_line(f"{message}: {raw}"), []) if raw.strip() and isinstance(message, str) else None
    inner = found.error if isinstance(found.error, dict) else {}
    said = _say(inner.get("message")) or _say(found.error) or _say(found.message)
    words = [
        word.lower() for word in (inner.get("code"), inner.get("type"), found.code, found.type) if isinstance(word, str)
    ]
    return (_one_line(f"{message}: {said}"), words) if said else None


def _reasons(details: object) -> list[str]:
    """Return what Google's details tell beyond the status: a reason, and that it is a day's quota which is used up."""
    found: list[str] = []
    for detail in details[:_MOST_DETAILS] if isinstance(details, list) else ():
        if not isinstance(detail, dict):
            continue
        if isinstance(detail.get("reason"), str):
            found.append(detail["reason"].lower())
        violations = detail.get("violations")
        for one in violations[:_MOST_DETAILS] if isinstance(violations, list) else ():
            if isinstance(one, dict) and "PerDay" in str(one.get("quotaId")):
                found.append("quota_per_day")
    return found


def _say(value: object) -> str | None:
    """Return a member that should be text as text; FastAPI's `detail` is a list of faults with their places."""
    if isinstance(value, str):
        return _one_line(value) or None
    if isinstance(value, list):
        faults = []
        for item in value[:5]:
            if isinstance(item, dict) and isinstance(item.get("msg"), str):
                place = item.get("loc")
                path = ".".join(str(step) for step in place[:20]) if isinstance(place, list) else ""
                faults.append(f"{path}: {item['msg']}" if path else item["msg"])
        return _one_line("; ".join(faults)) or None
    return None


def _read_text(status: int, headers: Sequence[tuple[str, str]], body: bytes) -> str:
    """Return a line about a body that is no JSON error."""
    kind = next((value for name, value in headers if name.lower() == "content-type"), "").lower()
    if "html" in kind or _PAGE.match(body[:MAX_HEAD]):
        name = _one_line(html.unescape(_title(body[:MAX_HEAD]).decode("utf-8", "replace")))
        name = re.sub(rf"[<>]|\A{status}\b[\s:|-]*", "", name)  # many titles begin with the status
        return f"the upstream answered {status} with a web page" + (f" ({name})" if name else "")
    text = _one_line(body[:MAX_HEAD].decode("utf-8", "replace"))
    if not text:
        return f"the upstream answered {status} without saying why"
    if text[0] in "{[<":
        return f"the upstream answered {status} with a body that is no error message"
    return text


def _title(page: bytes) -> bytes:
    """Return the title of a web page, as far as it is short and free of markup; empty where there is none."""
    begin = page.lower().find(b"<title")
    begin = page.find(b">", begin) + 1 if begin >= 0 else 0
    return page[begin : begin + MAX_TITLE].partition(b"<")[0] if begin else b""


def _one_line(text: str) -> str:
    # What is cut off first is not taken apart: a message may be as long as an event.
    line = " ".join(text.lstrip()[:MAX_HEAD].split())
    return line if len(line) <= MAX_MESSAGE else line[: MAX_MESSAGE - 1] + "…"


def status_of(error: ArbiterError) -> int:
    """Return the HTTP status for `error`. Only Anthropic has a 529; for everybody else a busy upstream is a 503."""
    return 503 if error.code is ErrorClass.OVERLOADED else error.status


def add_retry_after(headers: list[tuple[str, str]], status: int, error: ArbiterError) -> None:
    """Give a 429, 503 or 529 of our own a `retry-after`; a bare one is fatal to some agents (SPEC 2.7).

    What an upstream advised travels with its own headers, which the gateway passes on.
    """
    if status not in (429, 503, 529) or isinstance(error, UpstreamStatus):
        return
    if not any(name.lower() == "retry-after" for name, _ in headers):
        headers.append(("retry-after", "1"))
