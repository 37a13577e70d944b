"""Calls of conversations as rows, with the prefix identity that SPEC 7.4 gives them, for tests that need no gateway."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from arbiter.ledger.losses import Call
from arbiter.ledger.row import AttemptRow, RequestRow
from tests.fakes.rows import request_row

BEGAN_MS = 1_790_000_000_000
MINUTE_MS = 60_000


def digits(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def chain(head: str, inputs: Sequence[str]) -> list[str]:
    """The kept positions of a history; an input that begins with "a" is the model's own."""
    link, links = digits(head), []
    for one in inputs:
        link = digits(link, one)
        links.append(link)
    count = len(inputs)
    starts = [at for at in range(count) if inputs[at].startswith("a") and not (at and inputs[at - 1].startswith("a"))]
    kept = {at for at in range(1, count + 1) if at % 16 == 0 or at > count - 4} | {at for at in starts[-4:] if at}
    return [f"{at}:{links[at - 1]}" for at in sorted(kept)]


def identity(inputs: Sequence[str], system: str = "You are an agent.", tools: str = "read, write") -> dict[str, Any]:
    return {
        "head_hash": hashlib.sha256((system + tools).encode()).hexdigest(),
        "system_hash": digits(system),
        "tools_hash": digits(tools),
        "inputs": len(inputs),
        "input_chain": chain(system + tools, inputs),
    }


def turns(count: int, of: str = "") -> list[str]:
    """A history of `count` inputs: the user's, the model's, and so on."""
    return [f"{'au'[at % 2 == 0]}{of}{at}" for at in range(count)]


_FIELDS: dict[str, Any] = {
    "provider": "anthropic",
    "format_out": "anthropic-messages",
    "model_asked": "claude-sonnet-4-5",
    "model_served": "claude-sonnet-4-5-20250929",
    "client": "ci",
    "session": "s1",
    "conversation": "c" * 32,
    "cache_marks": ["system:1@5m", "message:8.0@5m"],
}


def call(minutes: float, inputs: Sequence[str], **fields: Any) -> Call:
    """A call that began so many minutes into the day, and took six seconds. What it read, wrote and sent is said."""
    began = BEGAN_MS + round(minutes * MINUTE_MS)
    heads = {name: fields.pop(name) for name in ("system", "tools") if name in fields}
    values = {"id": f"a{minutes:g}", "started_ms": began, "finished_ms": began + 6000}
    return Call(**(_FIELDS | values | identity(inputs, **heads) | fields))


def attempt(minutes: float, inputs: Sequence[str], **fields: Any) -> AttemptRow:
    """The same as a row."""
    one = call(minutes, inputs, **fields)
    values = {name: getattr(one, name) for name in Call.__struct_fields__}
    return AttemptRow(
        **values,
        request_id=f"r-{one.id}",
        trace_id=f"t-{one.id}",
        number=1,
        endpoint="anthropic-messages:http://127.0.0.1:9",
        outcome="ok",
        output_tokens=100,
        usage_source="provider",
    )


def request_of(row: AttemptRow) -> RequestRow:
    """The request that this attempt served."""
    return request_row(
        id=row.request_id,
        received_ms=row.started_ms,
        finished_ms=row.finished_ms,
        client=row.client,
        session=row.session,
        request_kind=row.request_kind,
    )
