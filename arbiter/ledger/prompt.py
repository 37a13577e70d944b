"""The prompt of one request, as the rows of its attempts tell of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Raw

from arbiter._speedups import nesting
from arbiter.ledger import sample
from arbiter.ledger.row import AttemptRow
from arbiter.log import Log

if TYPE_CHECKING:
    from arbiter.ledger.prefix import Prefix, Prefixes, Reading

_CONVERSATIONS = ("messages", "input")
_log = Log(__name__)


class Prompt:
    """One request's prompt, as its attempts send it. It is read once, and they share what was found."""

    __slots__ = ("_prefixes", "_reading", "members")

    def __init__(self, prefixes: Prefixes, members: Mapping[str, Raw]) -> None:
        self.members = members
        self._prefixes = prefixes
        self._reading = prefixes.read(members)

    def sent(self, edited: Mapping[str, Raw] | None, marked: bytes | None) -> Prompt:
        """What one attempt sends of it: with the members `edited`, with marks of our own in the body `marked`."""
        if edited is None and marked is None:
            return self
        return _Altered(self._prefixes, self._reading, self.members, edited, marked)

    @property
    def is_begun(self) -> bool:
        """Whether it went out, in this attempt or in another."""
        return self._reading.is_begun

    def begin(self) -> None:
        """It is on its way: read it while the upstream thinks."""
        self._reading.begin()

    def tell(self, row: AttemptRow) -> None:
        """Complete the row of an attempt that is over. What cannot be told stays None, and is no reason to fail."""
        try:
            if row.usage_source != "provider" and _may_have_cost(row):
                row.sample, row.sample_of_bytes = sample.of(self.members)
            prefix = self._reading.prefix()
            if prefix is not None:
                self._tell(row, prefix)
        except Exception as bug:
            _log.error("a row goes without its prompt", trace_id=row.trace_id, error=bug)

    def _tell(self, row: AttemptRow, prefix: Prefix) -> None:
        row.head_hash, row.system_hash, row.tools_hash = prefix.head_hash, prefix.system_hash, prefix.tools_hash
        row.inputs, row.input_chain = prefix.inputs, prefix.input_chain
        row.effort, row.settings_hash, row.tools_offered = prefix.effort, prefix.settings_hash, prefix.tools_offered
        row.cache_marks = prefix.cache_marks
        if row.number == 1:
            row.tools_sample = prefix.tools_sample


class _Altered(Prompt):
    """A prompt that is not sent as the client wrote it. Rows tell of both."""

    __slots__ = ("_edited", "_marks", "_projection")

    def __init__(
        self,
        prefixes: Prefixes,
        reading: Reading,
        members: Mapping[str, Raw],
        edited: Mapping[str, Raw] | None,
        marked: bytes | None,
    ) -> None:
        self.members = members
        self._prefixes = prefixes
        self._reading = reading
        self._edited = edited
        self._projection = prefixes.read(edited) if edited is not None else None
        self._marks = prefixes.read_marks(marked) if marked is not None else None

    def begin(self) -> None:
        super().begin()
        for reading in (self._projection, self._marks):
            if reading is not None:
                reading.begin()

    def _tell(self, row: AttemptRow, prefix: Prefix) -> None:
        super()._tell(row, prefix)
        if self._marks is not None:
            ours = self._marks.prefix()
            row.cache_marks = ours.cache_marks if ours is not None else None
        if self._edited is not None and self._projection is not None:
            projection = self._projection.prefix()
            row.replaced = replaced(self.members, self._edited)
            row.projection_hash = projection.last if projection is not None else None


def _may_have_cost(row: AttemptRow) -> bool:
    """Whether the upstream may have worked on the request: it did not refuse it, and was not out of reach."""
    if row.status is not None:
        return row.status < 300
    return row.outcome == "cancelled" or row.timeout_phase in ("headers", "unary", "first_event", "total")


def replaced(before: Mapping[str, Raw], after: Mapping[str, Raw]) -> int:
    """How many inputs of `before` do not stand in `after`, as they are spelled."""
    if all(before.get(name) == after.get(name) for name in _CONVERSATIONS):
        return 0
    return (Counter(_inputs(before)) - Counter(_inputs(after))).total()


def _inputs(members: Mapping[str, Raw]) -> list[bytes]:
    raw = bytes(members.get("messages", members.get("input", b"")))
    if raw[:1] == b'"':
        return [b'{"role":"user","content":%b}' % raw]  # of Responses: one message of the user's
    start, found = 1, []
    for end in nesting.cuts(raw, len(raw)):
        found.append(raw[start:end].strip())
        start = end + 1
    return found
