"""What a lane is: one request on its way to one rung, and its answer on the way back in the client's own format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec
from msgspec import Raw

from arbiter.accounting import facts
from arbiter.accounting.facts import Facts
from arbiter.errors import ArbiterError
from arbiter.pieces import Body
from arbiter.wire import embeddings, gemini_embeddings, native
from arbiter.wire.course import Course
from arbiter.wire.format import Asked

EVENTS = "text/event-stream"

READ = {
    native.CHAT: facts.of_chat_answer,
    native.MESSAGES: facts.of_messages_answer,
    native.RESPONSES: facts.of_responses_answer,
    native.GEMINI: facts.of_gemini_answer,
    embeddings.name: facts.of_embeddings_answer,
    gemini_embeddings.name: facts.of_google_embeddings_answer,
}
"""What a whole answer says of itself, by its format."""


class Whole(msgspec.Struct, frozen=True):
    """An answer that came in one piece, as the client gets it, or the `error` that it turned out to be.

    `kind` is its media type, None where it is as the upstream said.
    """

    body: bytes
    facts: Facts | None
    kind: str | None = None
    error: ArbiterError | None = None


class Lane(Protocol):
    """One request on its way to one rung."""

    name: str
    kind: str | None  # the media type of its streams, None where it is as the upstream says
    fidelity: str
    edited: Mapping[str, Raw] | None
    """The members of the request where they are no longer those that the client sent."""
    left_out: int
    """How many items, or messages, of reasoning that the client handed along the upstream could not be given."""

    @property
    def body(self) -> Body:
        """What goes upstream."""

    @property
    def format(self) -> Asked:
        """The upstream's."""

    def marked(self) -> bytes | None:
        """A body of Anthropic's for its cache marks: those that are sent. None where they are the client's."""

    def target(self) -> str:
        """The request target, query string included."""

    def course(self) -> Course:
        """What takes the upstream's stream to the client."""

    def failed(self, course: Course, error: ArbiterError) -> bytes:
        """How a client is told that its stream failed, which has come as far as `course`."""

    def last_words(self, course: Course) -> bytes:
        """The error with which the upstream itself ended the stream, as it is still to be sent; b"" where there is none
        for this client."""

    def facts(self, course: Course, first_event_ns: int, last_event_ns: int) -> Facts:
        """What the stream said about itself, as far as it came."""

    def let_go(self) -> None:
        """The request is not sent again, and its answer is a stream that began: hold what that needs, and no more."""

    async def whole(self, body: bytes, kind: str) -> Whole:
        """Take an answer that came in one piece, of media type `kind`.

        Errors: Garbled where it is none; and what it says where it is an error in spite of its 200.
        """
