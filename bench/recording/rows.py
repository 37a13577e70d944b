"""Rows as a turn of a coding agent leaves them, every column filled that such a turn fills."""

from __future__ import annotations

from arbiter.ledger.row import AttemptRow, RequestRow

BEGAN_MS = 1_790_000_000_000
SESSIONS = 50
EPOCH = "392012ba04a6"


def _hash(number: int) -> str:
    return f"{(number + 1) * 0x9E3779B97F4A7C15F39CC0605CEDC835 % (1 << 128):032x}"


def request(number: int) -> RequestRow:
    """A request as it is when its first attempt is opened."""
    session = number % SESSIONS
    return RequestRow(
        id=f"{BEGAN_MS + number:012x}{number * 0x9E3779B97F4A7C15 % (1 << 80):020x}",
        trace_id=f"{BEGAN_MS + number >> 10 & 0xFFF:03x}{_hash(number)[:29]}",
        endpoint="messages",
        format_in="anthropic-messages",
        stream=True,
        received_ms=BEGAN_MS + number,
        client="team-a",
        agent="claude-code",
        session=f"{_hash(session + SESSIONS)[:8]}-4f6e-9a51-8c7c-0c7f{session:08d}",
        request_kind="main",
        model_asked="claude-sonnet-4-5",
        rationale="model claude-sonnet-4-5 -> anthropic/claude-sonnet-4-5",
        config_epoch=EPOCH,
        provider="anthropic",
        model="claude-sonnet-4-5",
        attempts=1,
        bytes_in=92_160,
        user_agent="claude-cli/2.0.14 (external, cli)",
        affinity_key=_hash(session),
        affinity="kept",
    )


def attempt(request: RequestRow) -> AttemptRow:
    """Its attempt, as it is opened."""
    return AttemptRow(
        id=f"{request.id}-1",
        request_id=request.id,
        trace_id=request.trace_id,
        number=1,
        provider="anthropic",
        endpoint="anthropic-messages:https://api.anthropic.com/v1",
        model_asked="claude-sonnet-4-5",
        format_out="anthropic-messages",
        config_epoch=EPOCH,
        started_ms=request.received_ms + 1,
        pricing_available=True,
        client=request.client,
        session=request.session,
        request_kind=request.request_kind,
        conversation=request.affinity_key,
    )


def end(request: RequestRow, attempt: AttemptRow) -> None:
    """Both are over, and well."""
    turn = request.received_ms % 40 + 1
    request.finished_ms, request.total_us = request.received_ms + 4_000, 4_000_000
    request.overhead_us, request.first_byte_us = 180, 900_000
    request.outcome, request.status, request.fidelity, request.bytes_out = "ok", 200, "verbatim", 8_192
    attempt.finished_ms, attempt.total_us = request.finished_ms, 3_999_000
    attempt.queue_us, attempt.headers_us, attempt.reused_connection = 3, 850_000, True
    attempt.first_event_us, attempt.last_event_us, attempt.events = 899_000, 3_998_000, 140
    attempt.outcome, attempt.status = "ok", 200
    attempt.input_tokens, attempt.cached_tokens, attempt.output_tokens = 12, 21_000 + 900 * turn, 420
    attempt.cache_write_tokens = attempt.cache_write_5m_tokens = 900
    attempt.usage_source, attempt.total_tokens = "provider", 22_332 + 900 * turn
    attempt.response_id, attempt.model_served = "msg_01XFDUDYJgAACzvnptvVoYEL", "claude-sonnet-4-5-20250929"
    attempt.upstream_request_id = "req_011CSHoEeqs5C35K2UUqR7Fy"
    attempt.thinking_bytes, attempt.output_bytes, attempt.finish_reason = 900, 2_400, "tool_use"
    attempt.tool_names = ["Read"]
    attempt.head_hash, attempt.system_hash, attempt.tools_hash = "ab" * 32, "0123456789ab", "ba9876543210"
    attempt.inputs, attempt.effort = 2 * turn, "high"
    attempt.cache_marks = ["tools:5m", "system:5m", f"{2 * turn - 1}:5m"]
    first = max(0, 2 * turn - 8)
    attempt.input_chain = [f"{place}:{place * 0x9E3779B97F:012x}"[:18] for place in range(first, 2 * turn)]
    attempt.service_tier, attempt.tools_offered = "standard", 17
    attempt.rate_limits = {
        "anthropic-ratelimit-unified-status": "allowed",
        "anthropic-ratelimit-unified-5h-utilization": "0.31",
        "anthropic-ratelimit-unified-7d-utilization": "0.12",
        "anthropic-ratelimit-unified-reset": "1790003600",
    }
