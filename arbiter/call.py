"""One thing asked of us, before it was understood: where it came in, what it goes on with, and its row."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Raw

from arbiter import ids
from arbiter.attempt.auto_models import AutoModels
from arbiter.attempt.client_end import Overheard, Room
from arbiter.attempt.counting import Counting
from arbiter.attempt.ladder import Around, Doors
from arbiter.attempt.live import StreamRelay
from arbiter.clock import monotonic_ns, now_ms
from arbiter.config.snapshot import Snapshot
from arbiter.ledger.book import told, told_once
from arbiter.ledger.capture import Capture
from arbiter.ledger.journal import Journal, NullJournal
from arbiter.ledger.prefix import Prefixes
from arbiter.ledger.row import RequestRow
from arbiter.metrics import Metrics
from arbiter.own import Own
from arbiter.routing.plan import Caller
from arbiter.routing.router import Router
from arbiter.sessions.affinity import Affinity
from arbiter.wire.format import Wire
from arbiter.wire.gemini_names import Addressed
from arbiter.wire.headers import Incoming


@dataclass(slots=True)
class Services:
    """What one worker has for its requests. A reload replaces the first four; a call keeps those it began with."""

    snapshot: Snapshot
    router: Router
    affinity: Affinity
    doors: Doors
    journal: Journal | NullJournal
    metrics: Metrics
    around: Around
    prefixes: Prefixes | None = None  # None: nothing is recorded
    capture: Capture | None = None  # None: nothing is kept of what is asked and answered
    room: Room = field(default_factory=Room)  # for answers under way that are to be kept
    counting: Counting = field(default_factory=Counting)
    auto_models: AutoModels = field(default_factory=AutoModels)
    control: Path | None = None  # its socket; None where nothing is recorded
    draining: bool = False  # whoever got in before the door closed is still served
    in_flight: int = 0
    waiting: dict[Call, asyncio.Task[None] | None] = field(default_factory=dict)  # for the beginning of their answer
    streams: set[StreamRelay] = field(default_factory=set)
    is_over: bool = False  # the drain's time is up: what is cancelled now, we cancelled


class Door(Protocol):
    """Where a request came in, and what is asked of it there."""

    @property
    def incoming(self) -> Incoming: ...

    @property
    def method(self) -> str: ...

    @property
    def own(self) -> Own | None:
        """What it is for, where it is the gateway's own."""

    def identify(self) -> Caller:
        """Who asks."""

    def read_body(self) -> Awaitable[bytes]:
        """What is asked, whole."""


class Call(msgspec.Struct, eq=False):
    """One thing asked of us, before it was understood. Whatever is reloaded meanwhile, it goes on with what it began
    with."""

    arrived_ns: int
    services: Services
    snapshot: Snapshot
    router: Router
    affinity: Affinity
    doors: Doors
    endpoint: str  # "chat", "messages", "count_tokens", "responses", "compact", "embeddings", …
    path: str  # of the endpoint, below the mount prefix
    format: Wire
    door: Door
    incoming: Incoming
    method: str
    own: Own | None  # it is the gateway's own
    addressed: Addressed | None  # what the path says, where a format says it there
    row: RequestRow
    task: asyncio.Task[None] | None
    members: Mapping[str, Raw] | None = None  # of the body, once it was opened
    secrets: tuple[str, ...] = ()  # that the caller brought for somebody else
    answer: Overheard | None = None  # where it holds the title of a conversation
    stream: StreamRelay | None = None  # which the client has seen something of


def call_of(
    services: Services, endpoint: str, path: str, wire: Wire, door: Door, addressed: Addressed | None = None
) -> Call:
    """A call that came in at `door`; its row has begun."""
    arrived_ns, received_ms = monotonic_ns(), now_ms()
    snapshot, incoming, own = services.snapshot, door.incoming, door.own
    id, trace_id = ids.of_request(received_ms)
    row = RequestRow(
        id=id,
        trace_id=trace_id,
        endpoint=endpoint,
        format_in=wire.name,
        received_ms=received_ms,
        config_epoch=snapshot.epoch,
    )
    if (agent := incoming.user_agent) is not None:
        row.user_agent = told(agent) or None
    if (traced := incoming.client_trace_id) is not None:
        row.client_trace_id = told_once(traced) or None
    if own is not None:
        row.kind, row.request_kind, row.about = own
    return Call(
        arrived_ns,
        services,
        snapshot,
        services.router,
        services.affinity,
        services.doors,
        endpoint,
        path,
        wire,
        door,
        incoming,
        door.method,
        own,
        addressed,
        row,
        asyncio.current_task(),
    )
