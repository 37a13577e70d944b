"""What is written down: one `RequestRow` per thing asked, one `AttemptRow` per upstream attempt (SPEC 7.1, 7.2).

Units: `_ms` of wall clock are Unix milliseconds; `_us` are microseconds of the monotonic clock since the attempt (or
the request) began. A count that nobody reported is None, never 0.

No row refers back to itself, so the garbage collector need not go through them (`gc=False`).
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from arbiter.accounting.prices import STATED

UNSTORED = Meta(extra={"stored": False})
"""A field that goes with its row as far as the recorder, who makes something else of it."""


class RequestRow(msgspec.Struct, array_like=True, kw_only=True, gc=False):
    """One thing asked of the gateway, refused ones too."""

    id: str
    trace_id: str
    client_trace_id: str | None = None
    kind: str = "client"  # client | classifier | summary | embedding | replay | probe
    endpoint: str  # the route: "chat", "messages", "count_tokens", ...
    format_in: str  # openai-chat | anthropic-messages | embeddings
    stream: bool = False
    received_ms: int
    finished_ms: int | None = None
    total_us: int | None = None  # arrival to settled
    overhead_us: int | None = None  # the gateway's own share of the time to the first byte
    first_byte_us: int | None = None  # arrival to the client's first byte of output
    client: str | None = None  # None: unattributed
    agent: str | None = None
    session: str | None = None
    parent_session: str | None = None
    request_kind: str | None = None
    labels: dict[str, str] | None = None
    model_asked: str | None = None
    alias: str | None = None
    rationale: str | None = None
    config_epoch: str = ""
    provider: str | None = None  # of the attempt that served it
    model: str | None = None
    attempts: int = 0
    outcome: str = "cancelled"  # ok | error | cancelled | interrupted
    error_class: str | None = None
    status: int | None = None  # what the client got; 499 when it left
    message: str | None = None  # at most 2 KiB, redacted
    fidelity: str | None = None  # verbatim | model-only | the changed JSON paths, comma-separated | translated
    repairs: list[str] | None = None
    bytes_in: int = 0
    bytes_out: int = 0
    user_agent: str | None = None
    cost_pd: int | None = None  # picodollars, of all attempts that metered something; None where one has no known cost
    affinity_key: str | None = None  # 32 hexadecimal digits; None: this conversation is never pinned
    affinity: str | None = None  # what became of its pin: new | kept | moved; None where there is none
    warning: str | None = None  # what the caller was told in X-Arbiter-Warning
    turn_index: int | None = None  # of the session's completed turns, from 1; None for failed and auxiliary calls
    compaction: str | None = None  # what made the agent compact: auto | manual | reactive, as it says
    follows_compaction: bool = False  # the agent says that its context was compacted just before
    client_group: str | None = None  # whom the client belongs to
    opener: str | None = None  # hash of the user's first text, where a conversation begins, or what a title is about
    about: str | None = None  # of a request of the gateway's own: the id of the session that it is about
    words: Annotated[list[str] | None, UNSTORED] = None  # a few of the user's, where somebody is asked for a title
    titled: Annotated[str | None, UNSTORED] = None  # what the agent's own request for a title was answered


class AttemptRow(msgspec.Struct, array_like=True, kw_only=True, gc=False):
    """One try at one upstream."""

    id: str
    request_id: str
    trace_id: str
    number: int  # 1 for the first
    provider: str
    endpoint: str  # "protocol:base URL", no secrets
    account: str | None = None  # the key's label, None where there is no pool
    model_asked: str | None = None  # the name sent upstream
    model_served: str | None = None  # the name the upstream reported
    format_out: str
    lane: str = "native"  # native | translated
    config_epoch: str = ""
    started_ms: int
    finished_ms: int | None = None
    queue_us: int | None = None
    connect_us: int | None = None  # None on a reused connection
    headers_us: int | None = None
    first_event_us: int | None = None
    last_event_us: int | None = None
    total_us: int | None = None
    outcome: str = "interrupted"  # until something truer is known: ok | error | cancelled
    error_class: str | None = None
    status: int | None = None  # the upstream's
    message: str | None = None
    timeout_phase: str | None = None
    timeout_wait_ms: int | None = None
    input_tokens: int | None = None  # without cache reads and writes
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    cache_write_5m_tokens: int | None = None
    cache_write_1h_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    total_tokens: int | None = None
    usage_source: str = "missing"  # provider | partial | estimated | missing
    cost_pd: int | None = None  # picodollars
    pricing_available: bool = False  # the model has a rate; what the call used of it may still have no price
    response_id: str | None = None
    model_version: str | None = None
    upstream_request_id: str | None = None
    events: int | None = None
    thinking_bytes: int | None = None
    output_bytes: int | None = None  # text and call arguments
    tool_names: list[str] | None = None  # called
    finish_reason: str | None = None  # the upstream's own word
    finish_inferred: bool = False
    reused_connection: bool = False
    cost_source: str | None = None  # where the price came from (`accounting.prices.CostSource`); None: none was needed
    why: str = "first"  # why it was made: first | retry | key | fallback | nudge
    wait_us: int | None = None  # of deliberate waiting before it was sent; None for the first
    retry_after_ms: int | None = None  # how long the provider asked us to stay away
    empty_completion: bool = False  # it ended well and said nothing: no text, no call
    client: str | None = None  # this and the next two as in the request, so that a question to attempts needs no join
    session: str | None = None
    request_kind: str | None = None
    conversation: str | None = None  # the affinity slot, 32 hexadecimal digits, also where nothing is pinned
    head_hash: str | None = None  # SHA-256 of instructions and tool schemas, canonical; 64 hexadecimal digits
    system_hash: str | None = None  # 12 hexadecimal digits of the instructions' alone
    tools_hash: str | None = None  # 12 hexadecimal digits of the tool schemas' alone
    inputs: int | None = None  # messages or items in the request
    effort: str | None = None  # how hard the model was asked to think, in the request's own words
    cache_marks: list[str] | None = None  # where the request asked to end a cached prefix, and for how long
    input_chain: list[str] | None = None  # "position:hash", 12 hexadecimal digits each
    replaced: int | None = None  # inputs that the gateway itself changed or took out
    projection_hash: str | None = None  # of what it made of them; 12 hexadecimal digits
    cache_verdict: str | None = None  # why less was read from the cache than was left there; None: no loss
    cache_lost_tokens: int | None = None
    cache_lost_pd: int | None = None  # what reading them would have saved, in picodollars
    cache_lost_at: int | None = None  # first kept position at which the chains differ
    cache_lost_in: str | None = None  # tools | system | message N
    cache_against: str | None = None  # id of the attempt it was compared with
    price: str | None = None  # which price it was: its source, version and model
    provider_cost_pd: int | None = None  # the provider's own figure
    service_tier: str | None = None  # as the provider reported it
    audio_input_tokens: int | None = None  # of the input
    audio_output_tokens: int | None = None  # of the output
    estimated_input_tokens: int | None = None  # ours, where nothing was reported
    estimated_output_tokens: int | None = None
    tools_offered: int | None = None
    tools_tokens: int | None = None  # estimated, of their schemas
    rate_limits: dict[str, str] | None = None  # the response's rate-limit and quota headers, verbatim
    sample: Annotated[bytes | None, UNSTORED] = None  # of the request's text, for an estimate
    sample_of_bytes: Annotated[int, UNSTORED] = 0  # of how much text that is a sample
    tools_sample: Annotated[bytes | None, UNSTORED] = None  # the tool schemas, if new to this worker
    equivalent_pd: int | None = None  # what a subscription's call would have cost, in picodollars
    settings_hash: str | None = None  # 12 hexadecimal digits of what else the request asked that reaches the prompt
    cost_asked_ms: int | None = None  # when the provider was last asked what it cost, and did not say
    cleared_tokens: int | None = None  # taken out of the prompt by the provider, as the request had asked
    web_searches: int | None = None  # that the provider ran itself
    compacted: bool = False  # the provider compacted the context: its answer stands for what came before it

    @property
    def all_input(self) -> int | None:
        """Tokens of the whole prompt, from a cache or not; our estimate where the provider did not report them."""
        if self.input_tokens is None:
            return self.estimated_input_tokens
        return self.input_tokens + (self.cached_tokens or 0) + (self.cache_write_tokens or 0)

    @property
    def is_approximate(self) -> bool:
        """Whether its counts are those of a stream that was cut, or estimates."""
        return self.usage_source in ("partial", "estimated")

    @property
    def is_cost_approximate(self) -> bool:
        """Whether its cost is by such counts."""
        return self.is_approximate and self.cost_pd is not None and self.cost_source not in STATED
