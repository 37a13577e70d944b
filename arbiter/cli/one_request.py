"""One request for the console, as the page opens it: what was asked, what came of it, and each attempt."""

from __future__ import annotations

from collections.abc import Iterator

from arbiter.cli import moments
from arbiter.cli.table import plain
from arbiter.control import show, timeline
from arbiter.ledger.query import Entry
from arbiter.ledger.row import AttemptRow, RequestRow

NAME_COLUMNS = 14

Fact = tuple[str, str | None]


def tell(entry: Entry) -> str:
    """The request and its attempts as lines of "name  value", ending with a line break; unknown things have no line."""
    request = entry.request
    lines = [f"{plain(request.model_asked or 'Request without a model')}: {show.status(request)}"]
    lines += _lines(_asked(request))
    for attempt in entry.attempts:
        lines += ["", f"Attempt {attempt.number}, {plain(show.target(attempt))}: {show.ended(attempt)}"]
        lines += _lines(_tried(entry, attempt))
    if not entry.attempts:
        lines += ["", "No upstream was tried."]
    return "\n".join(lines) + "\n"


def _asked(request: RequestRow) -> Iterator[Fact]:
    yield "message", request.message
    if request.outcome != "error":
        yield "error", request.error_class
    yield "warning", request.warning
    received = moments.local(request.received_ms).isoformat(" ", "milliseconds")
    yield "received", f"{received} {moments.zone(request.received_ms)}"
    took = show.duration(request.total_us)
    yield (
        "took",
        took if request.first_byte_us is None else f"{took}, first byte after {show.duration(request.first_byte_us)}",
    )
    yield "overhead", None if request.overhead_us is None else show.duration(request.overhead_us)
    yield "client", ", ".join(filter(None, (request.client or "unattributed", request.agent)))
    yield "asked for", f"{request.endpoint}, {'streamed' if request.stream else 'in one piece'}, {request.format_in}"
    yield "session", request.session
    yield "parent", request.parent_session
    yield "about", request.about
    yield "kind", request.request_kind
    yield "routed", request.rationale
    yield "pin", show.pin(request)
    yield "affinity key", request.affinity_key
    yield "request sent", request.fidelity
    yield "repaired", ", ".join(request.repairs or ()) or None
    yield "bytes", f"{show.size(request.bytes_in)} in, {show.size(request.bytes_out)} out"
    yield "labels", ", ".join(f"{name}={value}" for name, value in (request.labels or {}).items()) or None
    yield "trace", request.trace_id
    yield "client's", request.client_trace_id
    yield "request", request.id
    yield "from", request.user_agent


def _tried(entry: Entry, attempt: AttemptRow) -> Iterator[Fact]:
    yield "upstream", show.upstream(attempt)
    yield "message", attempt.message
    if attempt.outcome != "error":
        yield "error", attempt.error_class
    yield "why", show.why(attempt)
    phases = [f"{part.label} {show.duration(part.took_us)}" for part in timeline.stretches(entry, attempt)]
    yield "phases", ", ".join(phases) or "without timings: the process that ran it is gone"
    served = attempt.model_served if attempt.model_served != attempt.model_asked else None
    yield "model", f"{show.text(attempt.model_asked)}, served {served}" if served else attempt.model_asked
    counted = {"partial": " (counted until the stream was cut)", "estimated": " (estimated)"}
    yield "tokens", show.tokens(attempt) + counted.get(attempt.usage_source, "")
    yield "cost", None if attempt.usage_source == "missing" and attempt.cost_pd is None else show.cost(attempt)
    yield "price", attempt.price
    yield "lost cache", show.loss(attempt)
    yield "against", attempt.cache_against
    yield "stream", None if attempt.events is None else f"{show.count(attempt.events)} events"
    yield "finish", attempt.finish_reason and attempt.finish_reason + (" (inferred)" if attempt.finish_inferred else "")
    yield "tools", ", ".join(attempt.tool_names or ()) or None
    if attempt.timeout_phase is not None:
        waited = attempt.timeout_wait_ms
        yield "timed out", attempt.timeout_phase + ("" if waited is None else f" after {show.duration(waited * 1000)}")
    yield "provider's id", attempt.upstream_request_id


def _lines(facts: Iterator[Fact]) -> list[str]:
    return [f"  {name:<{NAME_COLUMNS}}{plain(value)}" for name, value in facts if value is not None]
