"""The eight names of a wire format, and the formats there are.

    parse_request  build_request     a request: JSON members <-> Request
    reader         writer            a stream:  upstream bytes -> events -> client bytes
    parse_answer   write_answer      a unary answer: JSON <-> Answer
    parse_error    write_error       a failure: upstream status and body -> UpstreamStatus; any error -> client answer

A request also has its `path` (of the endpoint, below the format's base) and `disguised` (the tools that this format
cannot take as they are, by the name that is sent); a stream has `write_error_event`, `parse_error_event` and
`keepalive`. Who writes an answer is handed the members of the client's request in `asked`, for a format that repeats
them.

Each module spells its own format and knows no other; they meet in `model`. (Bedrock's Converse, which no client speaks
to us, is Anthropic's Messages in other words, and is written as such: it lacks the names that a client's format has.)
Embeddings are no conversation, and have no place in `model`: their modules have no more than what a `Wire` is, and
Google's says itself what OpenAI is asked in its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from arbiter.errors import ArbiterError, InStreamError, UpstreamStatus
from arbiter.model import Answer, Event, Request, Target
from arbiter.wire import (
    anthropic_messages,
    bedrock_converse,
    embeddings,
    gemini_embeddings,
    google_gemini,
    openai_chat,
    openai_responses,
)
from arbiter.wire.disguises import Disguises
from arbiter.wire.json import Members
from arbiter.wire.moulds import Carrier, Moulds


class Reader(Protocol):
    """Reads one upstream stream."""

    frames: Carrier
    finish_word: str | None  # why the model stopped, in the upstream's own word
    keeps: bool  # does it ask for the arguments that are moved past it?

    def read(self, name: bytes, payload: bytes) -> list[Event]:
        """Return the events of one frame; the last is `Failed` where the upstream failed, or broke its format."""

    def finish(self) -> list[Event]:
        """Return what the end of the bytes means: `Ended`, or `Failed` where the answer was not whole."""

    def closing(self) -> list[Event]:
        """Return what ends a stream whose model has finished, where the bytes break off behind that."""

    def feed(self, data: bytes) -> list[Event]:
        """Return the events that `data` completed, none of them moved. Any cut of the stream gives the same events."""

    def place_of(self, call: int) -> int:
        """The upstream's index of the slices of call number `call`; -1 where they cannot be told by it."""

    def carried(self, arguments: str) -> None:
        """Be told of arguments that were moved to the place asked for last."""


class Writer(Protocol):
    """Writes one client stream. Its output is canonical SSE; a slice may be empty."""

    def write(self, event: Event) -> bytes:
        """Return the bytes for `event`. Errors: Garbled where the event breaks the order (SPEC 2.6)."""

    def moulds(self) -> Moulds:
        """Return what may be moved past the writer until the next `write`."""

    def carried(self, arguments: str) -> None:
        """Be told of arguments of the open call that were moved past the writer."""


class Asked(Protocol):
    """A format as far as a call in it is sent: where it is served, and what comes back of what failed."""

    @property
    def name(self) -> str: ...

    @property
    def path(self) -> str: ...

    def parse_error(self, status: int, headers: Sequence[tuple[str, str]], body: bytes) -> UpstreamStatus: ...


class Wire(Asked, Protocol):
    """A format as far as it is relayed: what clients of it are told of errors, and while nothing comes."""

    @property
    def keepalive(self) -> bytes: ...

    def write_error(self, error: ArbiterError, trace_id: str) -> tuple[int, list[tuple[str, str]], bytes]: ...

    def write_error_event(self, error: ArbiterError, trace_id: str) -> bytes: ...


class Upstream(Asked, Protocol):
    """One wire format that requests are translated to, and answers from."""

    def build_request(self, request: Request, target: Target = ...) -> bytes: ...

    def disguised(self, request: Request) -> Disguises: ...

    def reader(self, limit: int = ...) -> Reader: ...

    def parse_answer(self, body: bytes) -> Answer: ...

    def parse_error_event(self, payload: bytes) -> InStreamError: ...


class Format(Wire, Upstream, Protocol):
    """One wire format that others are translated from and to. The modules themselves implement this."""

    def parse_request(self, members: Members) -> Request: ...

    def writer(
        self, trace_id: str, model: str, created_s: int, *, include_usage: bool = True, asked: Members = ...
    ) -> Writer: ...

    def write_answer(
        self, answer: Answer, trace_id: str, model: str, created_s: int, *, asked: Members = ...
    ) -> bytes: ...


FORMATS: dict[str, Format] = {
    openai_chat.name: openai_chat,
    anthropic_messages.name: anthropic_messages,
    openai_responses.name: openai_responses,
    google_gemini.name: google_gemini,
}
UPSTREAMS: dict[str, Upstream] = {**FORMATS, bedrock_converse.name: bedrock_converse}
WIRES: dict[str, Wire] = {**FORMATS, embeddings.name: embeddings, gemini_embeddings.name: gemini_embeddings}
EMBEDDINGS = frozenset((embeddings.name, gemini_embeddings.name))
"""The formats of embeddings."""
