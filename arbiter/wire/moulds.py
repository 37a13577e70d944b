"""What a carrier is given, so that plain deltas need not pass through the neutral model.

A plain delta is one JSON string: of text, of reasoning, of call arguments. A client's delta is the same string between
two constant pieces. So a writer that stands inside a block hands out those pieces, and the carrier that splits the
upstream's bytes puts the string between them, escapes and all, as it came.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

Mould = tuple[bytes, bytes] | None
"""What stands before and behind a raw JSON string to make it a delta of the client's; None where none may follow."""


class Moulds(NamedTuple):
    """Which plain deltas a writer could take right now without having seen them, and how they would look.

    `call` is the number of the call that `arguments` are for, -1 for none; with `keep` the writer wants to be told of
    them afterwards.
    """

    text: Mould = None
    reasoning_content: Mould = None
    reasoning: Mould = None
    arguments: Mould = None
    call: int = -1
    keep: bool = False


NO_MOULDS = Moulds()


class Carrier(Protocol):
    """Splits one upstream stream into events, and moves plain deltas into moulds (`_speedups.carry`)."""

    events: int
    text_bytes: int
    thinking_bytes: int
    argument_bytes: int

    def open(self, data: bytes) -> None: ...

    def end(self) -> None: ...

    def next(self) -> tuple[bytes, bytes] | None: ...

    def take(self) -> bytes: ...

    def kept(self) -> bytes: ...

    def aim(
        self, text: Mould, reasoning_content: Mould, reasoning: Mould, arguments: Mould, place: int, keep: bool
    ) -> None: ...
