"""How an upstream stream stands, and what the relay asks of either lane's stream.

    OPEN --the upstream finished-->                   COMPLETE
    OPEN --an error event-->                          FAILED
    OPEN --any other end, or not the format at all--> CUT

That the client left is not the stream's to say: `attempt.live` ends it then.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple, Protocol

from arbiter.errors import ArbiterError

OPENING_BYTES = 8 << 10


class Ending(enum.Enum):
    """How an upstream stream stands."""

    OPEN = "open"
    COMPLETE = "complete"
    FAILED = "failed"  # the upstream sent an error event
    CUT = "cut"


# A member that is looked up in its class takes the interpreter as long as ten that are not.
OPEN: Final = Ending.OPEN
COMPLETE: Final = Ending.COMPLETE
FAILED: Final = Ending.FAILED
CUT: Final = Ending.CUT


class Begun(NamedTuple):
    """What a client was told of an answer that broke off, as far as its last words must agree with it."""

    id: str | None
    model: str | None
    created_s: int | None
    next_number: int  # of an event, where they are numbered


class Course(Protocol):
    """One upstream stream on its way to a client. After `ending` left OPEN, `feed` returns nothing."""

    ending: Ending
    repairs: list[str]  # what was mended on the way
    last_words: bytes  # the error event with which the upstream itself ended the stream; `feed` leaves it out
    finish_inferred: bool  # it ended without saying why
    is_bare: bool  # it failed, or turned out to be none, and said nothing before that
    opening_bytes: int  # what opens a stream, without saying anything yet, is less
    protocol_fault: str | None  # what broke the format's rules and was passed on all the same

    @property
    def events(self) -> int:
        """Events that arrived; comments and pings are none."""

    @property
    def has_event(self) -> bool:
        """Has anything but comments and pings arrived?"""

    @property
    def has_finished(self) -> bool:
        """Has the model said why it stopped? Then the answer is whole, and only usage and the end are due."""

    @property
    def has_begun(self) -> bool:
        """Has the model said or thought anything, or finished? What a stream opens with (a role, the start of a
        message or of a block) says nothing yet."""

    @property
    def has_spoken(self) -> bool:
        """Has the model said anything that a client would show or act on: text, or a call?"""

    def feed(self, data: bytes) -> bytes:
        """Take what the socket gave; return what may go to the client now."""

    def end(self, error: ArbiterError | None) -> bytes:
        """The upstream's side ended, by itself or by `error`; return what still goes to the client."""

    def fault(self) -> ArbiterError | None:
        """What the stream itself says kept it from being complete; None where it only ended."""
