"""The prompt of one request, as the rows of its attempts tell of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from msgspec import Raw

from arbiter._speedups import rows
from arbiter.ledger import sample
from arbiter.ledger.prefix import Prefix, Prefixes, Reading
from arbiter.ledger.row import AttemptRow

_move_prefix = rows.Moves(
    Prefix,
    AttemptRow,
    {
        name: name
        for name in (
            "head_hash", "system_hash", "tools_hash", "inputs", "input_chain", "effort", "settings_hash",
            "tools_offered", "cache_marks",
        )
    },
)  # fmt: skip


class Prompt:
    """One request's prompt, as its attempts send it. It is read once, and they share what was found."""

    __slots__ = ("_members", "_prefixes", "_reading", "_readings", "_sample")

    def __init__(self, prefixes: Prefixes, members: Mapping[str, Raw]) -> None:
        self._members = members
        self._prefixes = prefixes
        self._reading = reading = Reading(prefixes, members)
        self._readings: tuple[Reading, ...] = (reading,)
        self._sample: tuple[bytes | None, int] | None = None  # once the members are let go of

    def sent(self, edited: Mapping[str, Raw] | None, marked: bytes | None) -> Prompt:
        """What one attempt sends of it: with the members `edited`, with marks of our own in the body `marked`."""
        if edited is None and marked is None:
            return self
        return _Altered(self, self._prefixes, self._reading, edited, marked)

    def let_go(self) -> None:
        """It is not sent again: hold no more of it than may still be told, which is at most `sample.MAX_BYTES`."""
        self._sample, self._members = self.sample(), {}

    def sample(self) -> tuple[bytes | None, int]:
        """A sample of its text, and of how many bytes (`ledger.sample`)."""
        return self._sample if self._sample is not None else sample.of(self._members)

    @property
    def is_begun(self) -> bool:
        """Whether it went out, in this attempt or in another."""
        return self._reading.is_begun

    def begin(self) -> None:
        """It is on its way: read it while the upstream thinks."""
        self._reading.begin()

    def tells_now(self, row: AttemptRow) -> bool:
        """Complete the row of an attempt that is over, as `tell` does, where nothing has to be waited for."""
        for reading in self._readings:
            if not reading.is_over:
                return False
        self._complete(row)
        return True

    def tell(self, row: AttemptRow, then: Callable[[AttemptRow], None]) -> None:
        """Complete the row of an attempt that is over, and hand it to `then`: now, or once what was sent is hashed.

        What cannot be told stays None, and is no reason to fail.
        """
        for reading in self._readings:
            if not reading.is_over and not reading.is_ready(partial(self.tell, row, then)):
                return
        self._complete(row)
        then(row)

    def _complete(self, row: AttemptRow) -> None:
        try:
            if row.usage_source != "provider" and _may_have_cost(row):
                row.sample, row.sample_of_bytes = self.sample()
            prefix = self._reading.prefix
            if prefix is not None:
                self._tell(row, prefix)
        except Exception as bug:
            self._prefixes.untold.error(bug, trace_id=row.trace_id)

    def _tell(self, row: AttemptRow, prefix: Prefix) -> None:
        _move_prefix(prefix, row)
        if row.number == 1:
            row.tools_sample = prefix.tools_sample


class Apart(Prompt):
    """What is asked apart from any conversation (embeddings): no cache will know it again."""

    __slots__ = ()

    def __init__(self, members: Mapping[str, Raw]) -> None:
        self._members = members
        self._sample = None

    def sent(self, edited: Mapping[str, Raw] | None, marked: bytes | None) -> Prompt:
        return self

    @property
    def is_begun(self) -> bool:
        return True

    def begin(self) -> None:
        """There is nothing to read."""

    def tells_now(self, row: AttemptRow) -> bool:
        return False

    def tell(self, row: AttemptRow, then: Callable[[AttemptRow], None]) -> None:
        if row.usage_source != "provider" and _may_have_cost(row):
            row.sample, row.sample_of_bytes = self.sample()
        then(row)


class _Altered(Prompt):
    """A prompt that is not sent as the client wrote it. Rows tell of both."""

    __slots__ = ("_is_marked_anew", "_marks", "_original", "_projection")

    def __init__(
        self,
        original: Prompt,
        prefixes: Prefixes,
        reading: Reading,
        edited: Mapping[str, Raw] | None,
        marked: bytes | None,
    ) -> None:
        self._original = original
        self._prefixes = prefixes
        self._reading = reading
        self._projection = prefixes.reading(edited, before=original._members) if edited is not None else None
        self._is_marked_anew = marked is not None
        self._marks = prefixes.reading_of_marks(marked) if marked is not None else None
        ours = (self._projection, self._marks)
        self._readings = (reading, *(one for one in ours if one is not None))

    def sample(self) -> tuple[bytes | None, int]:
        return self._original.sample()

    def begin(self) -> None:
        for reading in self._readings:
            reading.begin()

    def _tell(self, row: AttemptRow, prefix: Prefix) -> None:
        super()._tell(row, prefix)
        if self._marks is not None:
            ours = self._marks.prefix
            row.cache_marks = ours.cache_marks if ours is not None else None
        elif self._is_marked_anew:
            row.cache_marks = []
        if self._projection is not None and (projection := self._projection.prefix) is not None:
            row.replaced, row.projection_hash = projection.replaced, projection.last


def _may_have_cost(row: AttemptRow) -> bool:
    """Whether the upstream may have worked on the request: it did not refuse it, and was not out of reach."""
    if row.status is not None:
        return row.status < 300
    return row.outcome == "cancelled" or row.timeout_phase in ("headers", "unary", "first_event", "total")
