"""Rows as the gateway would write them, for tests that care about the ledger and not about the gateway."""

from __future__ import annotations

from typing import Any

from arbiter.ledger import records
from arbiter.ledger.row import AttemptRow, RequestRow

BEGAN_MS = 1_790_000_000_000


def request_row(number: int = 1, **fields: Any) -> RequestRow:
    """A request that went well. `number` makes it unique and sets its time: one per second."""
    values: dict[str, Any] = {
        "id": f"r{number:08d}",
        "trace_id": f"{number:032x}",
        "endpoint": "chat",
        "format_in": "openai-chat",
        "stream": True,
        "received_ms": BEGAN_MS + 1000 * number,
        "finished_ms": BEGAN_MS + 1000 * number + 900,
        "total_us": 900_000,
        "overhead_us": 180,
        "first_byte_us": 120_000,
        "client": "ci",
        "model_asked": "swift",
        "provider": "openai",
        "model": "gpt-5.2",
        "attempts": 1,
        "outcome": "ok",
        "status": 200,
    }
    return RequestRow(**(values | fields))


def attempt_row(request: RequestRow, number: int = 1, **fields: Any) -> AttemptRow:
    """An attempt that served `request`."""
    values: dict[str, Any] = {
        "id": f"{request.id}-{number}",
        "request_id": request.id,
        "trace_id": request.trace_id,
        "number": number,
        "provider": "openai",
        "endpoint": "openai-chat:http://127.0.0.1:9911/v1",
        "model_asked": "gpt-5.2",
        "format_out": "openai-chat",
        "started_ms": request.received_ms,
        "finished_ms": request.received_ms + 890,
        "queue_us": 0,
        "connect_us": 15_000,
        "headers_us": 80_000,
        "first_event_us": 119_000,
        "last_event_us": 880_000,
        "total_us": 890_000,
        "outcome": "ok",
        "status": 200,
        "input_tokens": 1200,
        "cached_tokens": 800,
        "output_tokens": 64,
        "total_tokens": 2064,
        "usage_source": "provider",
        "events": 70,
        "finish_reason": "stop",
    }
    return AttemptRow(**(values | fields))


def decoded(record: bytes) -> records.Row:
    """The row that a record of the journal holds. Errors: records.Unreadable."""
    requests, attempts, unreadable = records.decode_rows((record,))
    for _, error in unreadable:
        raise error
    (row,) = (*requests, *attempts)
    return row
