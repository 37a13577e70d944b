"""The ledger's end of one request: its attempts opened before they are sent, closed when they end, the request settled.

The ladder and the spine write here and nowhere else, so that each attempt and each request has exactly one row.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Protocol

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from arbiter._speedups import rows
from arbiter.accounting import ratelimits
from arbiter.accounting.facts import Facts
from arbiter.clock import monotonic_ns, now_ms
from arbiter.config.snapshot import Account
from arbiter.errors import ArbiterError, ClientGone, ErrorClass, TimedOut, Unavailable, UpstreamError
from arbiter.ledger.prompt import Prompt
from arbiter.ledger.redaction import Redactor
from arbiter.ledger.row import AttemptRow, RequestRow
from arbiter.log import Blotter
from arbiter.metrics import Metrics
from arbiter.model import Usage
from arbiter.routing.plan import Rung, explained
from arbiter.upstream.exchange import Answering
from arbiter.wire.headers import REQUEST_IDS

MESSAGE_BYTES = 2048  # SPEC 7.2
WORD_CHARS = 256  # of an id or a name that the upstream chose
TOOL_NAMES = 256

_redact = Redactor()  # by shapes and names; what is ours the request's blotter knows


_move_request = rows.Moves(
    RequestRow,
    AttemptRow,
    {
        "id": "request_id", "trace_id": "trace_id", "attempts": "number", "config_epoch": "config_epoch",
        "client": "client", "session": "session", "request_kind": "request_kind",
    },
)  # fmt: skip


@functools.lru_cache(1024)
def _blank(provider: str, wire: str, url: str, account: str | None, model: str, lane: str, why: str) -> AttemptRow:
    """What the rows of all attempts at one target have in common."""
    return AttemptRow(
        id="",
        request_id="",
        trace_id="",
        number=0,
        provider=provider,
        endpoint=f"{wire}:{url}",
        account=account,
        model_asked=told(model),
        format_out=wire,
        lane=lane,
        started_ms=0,
        why=why,
    )


class Pen(Protocol):
    """What writes rows down (`ledger.journal`)."""

    def open(self, request: RequestRow, attempt: AttemptRow) -> None: ...

    def close(self, attempt: AttemptRow) -> None: ...

    def settle(self, request: RequestRow) -> None: ...


class Attempt(msgspec.Struct, eq=False):
    """One open attempt. It is closed exactly once; closing it again does nothing."""

    _book: Book
    row: AttemptRow
    _prompt: Prompt | None
    sent_ns: int
    answered_ns: int
    is_open: bool = True

    def sent(self) -> None:
        """The request is on its way: there is time now to look at what it says."""
        self._book.has_sent = True
        if self._prompt is not None:
            self._prompt.begin()

    def answered(self, exchange: Answering) -> None:
        """The response head is here."""
        row = self.row
        row.status = exchange.status
        row.reused_connection = exchange.reused
        row.queue_us, row.connect_us, row.headers_us = exchange.queue_us, exchange.connect_us, exchange.headers_us
        for name in REQUEST_IDS:
            if request_id := exchange.header(name):
                row.upstream_request_id = _word(request_id, self._book.blot)
                break
        row.rate_limits = ratelimits.snapshot(exchange.headers, self._book.blot)

    def whole(self) -> None:
        """The whole answer is here."""
        self.answered_ns = monotonic_ns()

    def waited_us(self, first_event_ns: int) -> int:
        """How long we waited for what the client gets first: the first event of a stream, or the whole answer."""
        return self._since_sent_us(first_event_ns or self.answered_ns)

    def _since_sent_us(self, at_ns: int) -> int:
        return (at_ns - self.sent_ns) // 1000

    def close(self, facts: Facts | None, error: ArbiterError | None) -> None:
        """The attempt ended: with an answer, or with `error` (and what was metered until then)."""
        if not self.is_open:
            return
        self.is_open = False
        row = self.row
        row.finished_ms = now_ms()
        row.total_us = self._since_sent_us(monotonic_ns())
        if facts is not None:
            _take(row, facts, self._book.blot)
            if error is None and facts.is_speechless:
                row.empty_completion = True
                self._book.say_empty(row.provider)
            if facts.first_event_ns:
                row.first_event_us = self._since_sent_us(facts.first_event_ns)
                row.last_event_us = self._since_sent_us(facts.last_event_ns)
        if error is None:
            row.outcome = "ok"
            fault = facts.protocol_fault or facts.error if facts is not None else None
            if fault is not None:
                # It went on all the same, so it is no failed attempt; but what happened is on record.
                row.error_class, row.message = ErrorClass.UPSTREAM_PROTOCOL.value, fault
            elif row.empty_completion and row.why == "nudge":
                row.error_class = ErrorClass.UPSTREAM_ERROR.value
                row.message = "the model said nothing again, also when it was asked once more"
        else:
            # Where the client left, or this gateway had to stop, the provider did not fail.
            row.outcome = "cancelled" if isinstance(error, (ClientGone, Unavailable)) else "error"
            row.error_class = error.code.value
            row.message = clipped(self._book.blot(str(error)))
            if isinstance(error, UpstreamError) and error.wait_s is not None:
                row.retry_after_ms = round(error.wait_s * 1000)
            if isinstance(error, TimedOut):
                row.timeout_phase, row.timeout_wait_ms = error.phase, round(error.waited_s * 1000)
        self._book.note(row, self._prompt)


class Book:
    """All attempts of one request, and the request's own row."""

    __slots__ = ("_is_over", "_metrics", "_pen", "_unsent", "_untold", "blot", "conversation", "has_sent", "prompt",
                 "request", "waited_us")  # fmt: skip

    def __init__(self, pen: Pen, metrics: Metrics, request: RequestRow, blot: Blotter) -> None:
        self._pen = pen
        self.blot = blot
        self._metrics = metrics
        self.has_sent = False  # any of its attempts
        self.waited_us = 0  # for attempts that are over, and on purpose between two
        self.request = request
        self.prompt: Prompt | None = None  # where it is to be told of
        self._unsent: list[tuple[AttemptRow, Prompt]] = []
        self._untold = 0  # complete, but for their prompts, which are being read
        self._is_over = False
        self.conversation: str | None = None

    def open(
        self,
        rung: Rung,
        account: Account,
        wire: str,
        lane: str,
        fidelity: str,
        *,
        why: str = "first",
        wait_us: int | None = None,
        edited: Mapping[str, Raw] | None = None,
        marked: bytes | None = None,
    ) -> Attempt:
        """Write down that `rung` is about to be tried on `account`. Once this returns the attempt cannot be lost."""
        request, provider = self.request, rung.provider
        request.attempts += 1
        self.waited_us += wait_us or 0
        self.serves(rung, fidelity)
        row = replace(
            _blank(provider.name, wire, rung.url, account.label, rung.model, lane, why),
            id=f"{request.id}-{request.attempts}",
            started_ms=now_ms(),
            wait_us=wait_us,
            conversation=self.conversation,
        )
        _move_request(request, row)
        self._pen.open(request, row)
        prompt, now_ns = self.prompt, monotonic_ns()
        return Attempt(self, row, prompt.sent(edited, marked) if prompt is not None else None, now_ns, now_ns)

    def note(self, row: AttemptRow, prompt: Prompt | None = None) -> None:
        """One attempt is complete, but for what `prompt` has to tell."""
        if prompt is None or prompt.tells_now(row):
            self._pen.close(row)
        elif prompt.is_begun:
            self._tell(row, prompt)
        else:
            # It never got as far as the upstream, and the next one may be waiting to be sent: that goes first.
            self._unsent.append((row, prompt))
        total_us = row.total_us
        if total_us is not None:
            self.waited_us += total_us
        self._metrics.attempted(
            (row.provider, row.outcome, row.error_class, row.timeout_phase),
            total_us,
            (row.input_tokens, row.cached_tokens, row.cache_write_tokens, row.output_tokens),
        )

    def serves(self, rung: Rung, fidelity: str) -> None:
        """It is `rung`'s answer that the client gets."""
        request = self.request
        request.provider, request.model, request.fidelity = rung.provider.name, told(rung.model), fidelity

    def warn(self, what: str) -> None:
        """One more thing that the caller should know."""
        request = self.request
        request.warning = what if request.warning is None else f"{request.warning} | {what}"

    def explain(self, passed: Mapping[str, str]) -> None:
        """Why some targets or accounts were not asked, or not in their turn."""
        if passed:
            self.request.rationale = clipped(explained(self.request.rationale or "", passed))

    def say_empty(self, provider: str) -> None:
        """An answer ended well and said nothing (SPEC 4.7)."""
        self._metrics.count("arbiter_empty_completions_total", (provider,))

    def settle(self) -> None:
        """The request is over and its row complete. It is written down behind its attempts, which may come later."""
        for row, prompt in self._unsent:
            self._tell(row, prompt)
        self._is_over = True
        if not self._untold:
            self._pen.settle(self.request)

    def _tell(self, row: AttemptRow, prompt: Prompt) -> None:
        # Until it is handed over the attempt stays open in the journal: a worker killed now leaves it `interrupted`.
        self._untold += 1
        prompt.tell(row, self._told)

    def _told(self, row: AttemptRow) -> None:
        self._untold -= 1
        self._pen.close(row)
        if self._is_over and not self._untold:
            self._pen.settle(self.request)


_move_facts = rows.Moves(
    Facts,
    AttemptRow,
    {
        "response_id": "response_id", "model": "model_served", "model_version": "model_version",
        "finish": "finish_reason", "finish_inferred": "finish_inferred", "events": "events",
        "thinking_bytes": "thinking_bytes", "output_bytes": "output_bytes", "usage_source": "usage_source",
        "cleared_tokens": "cleared_tokens", "compacted": "compacted",
    },
)  # fmt: skip
_move_usage = rows.Moves(
    Usage,
    AttemptRow,
    {
        "input": "input_tokens", "cache_read": "cached_tokens", "cache_write": "cache_write_tokens",
        "cache_write_5m": "cache_write_5m_tokens", "cache_write_1h": "cache_write_1h_tokens",
        "output": "output_tokens", "reasoning": "reasoning_tokens", "total": "total_tokens",
        "audio_input": "audio_input_tokens", "audio_output": "audio_output_tokens", "web_searches": "web_searches",
        "cost_pd": "provider_cost_pd", "service_tier": "service_tier",
    },
)  # fmt: skip


def _take(row: AttemptRow, facts: Facts, blot: Blotter) -> None:
    usage = facts.usage
    _move_facts(facts, row)
    if usage is not None:
        _move_usage(usage, row)
    # What an upstream chose is kept as long as it is what it claims to be: an id, a name. Nearly always it is.
    words = f"{row.response_id}\n{row.model_served}\n{row.model_version}\n{row.finish_reason}\n{row.service_tier}"
    if len(words) > WORD_CHARS or blot(words) is not words:
        row.response_id = _word(row.response_id, blot)
        row.model_served, row.model_version = _word(row.model_served, blot), _word(row.model_version, blot)
        row.finish_reason, row.service_tier = _word(row.finish_reason, blot), _word(row.service_tier, blot)
    if facts.tool_names:
        row.tool_names = [blot(name[:WORD_CHARS]) for name in facts.tool_names[:TOOL_NAMES]]


def _word(text: str | None, blot: Blotter) -> str | None:
    return blot(text[:WORD_CHARS]) if text is not None else None


@functools.lru_cache(4096)
def told(word: str) -> str:
    """What a caller wrote (a model's name, a user agent) without what looks like a credential: people mistake one
    setting for another. The same few come with nearly every request."""
    return _redact(word)


_is_number = re.compile(r"[0-9a-f-]*").fullmatch


def told_once(word: str) -> str:
    """The same of what comes once, as trace ids do."""
    return word if _is_number(word) else _redact(word)


def clipped(message: str) -> str:
    """A message short enough to be stored, without what looks like a credential: upstreams quote what they got."""
    message = _redact(message[: 2 * MESSAGE_BYTES])  # first: of a credential that was cut off a part would stay
    raw = message.encode("utf-8", "replace")
    return message if len(raw) <= MESSAGE_BYTES else raw[:MESSAGE_BYTES].decode("utf-8", "ignore")
