"""The native lane: the upstream speaks as the client does, and nothing is changed that need not be.

So do those go whose requests are no conversations: embeddings, and the answers that a provider keeps.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Raw

from arbiter.accounting import facts
from arbiter.accounting.facts import Facts
from arbiter.attempt.ask import Ask
from arbiter.attempt.lane import READ, Whole
from arbiter.attempt.ways import target_of, telling_name, way_of
from arbiter.errors import ArbiterError, Garbled
from arbiter.routing.plan import Rung
from arbiter.routing.undeclared import betas_of
from arbiter.wire import chat_thoughts, embeddings, faults, gemini_embeddings, gemini_names, native, unsealed
from arbiter.wire.course import Course
from arbiter.wire.dialects import dialect_of
from arbiter.wire.native_stream import NativeStream
from arbiter.wire.openai_models import dialect
from arbiter.wire.openai_servers import taken
from arbiter.wire.responses_errors import failed_after


class NativeLane:
    """Nothing is changed that need not be."""

    name = "native"
    kind: str | None = None
    __slots__ = ("_ask", "_drop_usage", "_rung", "_sets_marks", "_way", "body", "edited", "fidelity", "format",
                 "left_out")  # fmt: skip

    def __init__(self, ask: Ask, rung: Rung, *, moved: bool = False) -> None:
        self._way = way = way_of(ask, rung)
        self.left_out = 0
        if ask.seems_sealed:
            handed, telling = ask.handed_along(), telling_name(rung, ask.format.name)
            stripped = unsealed.unsealed(ask.format.name, ask.opened.members, handed, telling)
            if stripped.changed:
                ask = ask.edited(stripped.members, stripped.changed)
                told = ask.format.name == native.CHAT and dialect(telling).wants_reasoning
                self.left_out = 0 if told else handed.count
        if way.respells or (moved and way.is_chat):
            takes = taken(telling_name(rung, native.CHAT), rung.target.server, moved=moved)
            stripped, left_out = chat_thoughts.respelled(ask.opened.members, takes, moved=moved)
            if stripped.changed:
                ask = ask.edited(stripped.members, stripped.changed)
                self.left_out = self.left_out or left_out
        self.edited: Mapping[str, Raw] | None = ask.opened.members if ask.edits else None
        self._ask = ask
        self._rung = rung
        self.format = ask.format
        # To whom a login goes, its request goes as it came, with the window that stands in the model's name.
        asks_usage = ask.stream and not way.is_sent_as_it_came
        model = rung.model + ask.window if way.is_sent_as_it_came else rung.model
        changes = None
        if way.changes:
            betas = betas_of(ask.window)
            changes = way.spoken_by.changes(ask.format.name, ask.incoming.fields, betas, counts=ask.counts_tokens)
        spliced = native.splice(ask.opened, ask.format.name, model, rung.target, asks_usage=asks_usage, changes=changes)
        self.body = spliced.body
        if ask.counts_tokens:
            self.body = way.spoken_by.to_count(ask.format.name, bytes(spliced.body))
        self.fidelity = native.fidelity(ask.edits + spliced.changed)
        self._sets_marks = way.sets_marks
        self._drop_usage = spliced.asked_usage

    def marked(self) -> bytes | None:
        return bytes(self.body) if self._sets_marks else None

    def target(self) -> str:
        ask = self._ask
        if ask.incoming.query or ask.is_of_stored:
            return target_of(self._rung, self.format, ask, ask.path, ask.incoming.told_query)
        targets = self._way.targets
        target = targets.get(ask.stream)
        if target is None:
            target = targets[ask.stream] = target_of(self._rung, self.format, ask, ask.path)
        return target

    def course(self) -> NativeStream:
        return NativeStream(self.format.name, drop_usage=self._drop_usage, limit=self._ask.limits.event)

    def failed(self, course: Course, error: ArbiterError) -> bytes:
        ask = self._ask
        if self.format.name != native.RESPONSES:
            return self.format.write_error_event(error, ask.trace_id)
        assert isinstance(course, NativeStream)
        return failed_after(error, ask.trace_id, course.begun(), ask.opened.told)

    def last_words(self, course: Course) -> bytes:
        assert isinstance(course, NativeStream)
        said, error = course.last_words, course.fault()
        if not said or error is None or self.format.name != native.RESPONSES or course.is_failed_response:
            return said
        # Agents read the response that failed; what some send before it, and others in its place, only SDKs raise.
        ask = self._ask
        return said + failed_after(error, ask.trace_id, course.begun(), ask.opened.told, is_told=True)

    def facts(self, course: Course, first_event_ns: int, last_event_ns: int) -> Facts:
        assert isinstance(course, NativeStream)
        found = facts.of_stream(
            course.tap,
            first_event_ns=first_event_ns,
            last_event_ns=last_event_ns,
            finish_inferred=course.finish_inferred,
            protocol_fault=course.protocol_fault,
        )
        if found.finish is None and self._ask.is_background and course.failure is None:
            return msgspec.structs.replace(found, finish=facts.UNFINISHED[1])  # it goes on without us
        return found

    def let_go(self) -> None:
        self._ask.let_go()
        self.body, self.edited = b"", None

    async def whole(self, body: bytes, kind: str) -> Whole:
        if self._ask.counts_tokens:
            return Whole(dialect_of(self._rung.provider).counted(self.format.name, body), None)
        found = READ[self.format.name](body)
        # As in a stream that begins with one: the 200 was too early, and nobody has seen it yet.
        return Whole(body, found, error=faults.in_stream(body) if found.error is not None else None)


class EmbeddingsLane(NativeLane):
    """Google's embeddings, asked as OpenAI's."""

    name = "translated"
    __slots__ = ("_count", "_is_batch")

    def __init__(self, ask: Ask, rung: Rung) -> None:
        self._ask = ask
        self._rung = rung
        self.format = embeddings
        self._is_batch = ask.path == gemini_names.BATCH_PATH
        body = gemini_embeddings.to_openai(ask.opened.members, rung.model, is_batch=self._is_batch)
        self._count = gemini_embeddings.counts_of(ask.opened.members)
        changes = dialect_of(rung.provider).changes(self.format.name, ask.incoming.fields)
        self.body = changes.in_body(body) if changes is not None else body
        self.fidelity = "translated"
        self._sets_marks = False
        self.edited = None
        self.left_out = 0
        self._drop_usage = False

    def target(self) -> str:
        return target_of(self._rung, self.format, self._ask, self.format.path)

    async def whole(self, body: bytes, kind: str) -> Whole:
        found = await super().whole(body, kind)
        if found.error is not None:
            return found
        told = gemini_embeddings.from_openai(body, self._count, is_batch=self._is_batch)
        return Whole(told, found.facts, "application/json")


class StoredLane(NativeLane):
    """An answer that the provider keeps is asked for, or done away with. It was paid for when it was made; what was
    made in the background is when it is first seen whole."""

    __slots__ = ("_is_claimed",)

    def __init__(self, ask: Ask, rung: Rung) -> None:
        self._is_claimed: bool | None = None
        self._ask = ask
        self._rung = rung
        self.format = ask.format
        self.body = b""
        self.fidelity = "verbatim"
        self._sets_marks = False
        self.edited = None
        self.left_out = 0
        self._drop_usage = False

    def facts(self, course: Course, first_event_ns: int, last_event_ns: int) -> Facts:
        found = super().facts(course, first_event_ns, last_event_ns)
        if self._is_owed(found):
            return found
        return Facts(
            response_id=found.response_id,
            model=found.model,
            finish=found.finish,
            events=found.events,
            first_event_ns=first_event_ns,
            last_event_ns=last_event_ns,
        )

    async def whole(self, body: bytes, kind: str) -> Whole:
        try:
            found = facts.of_responses_answer(body)
        except Garbled:
            return Whole(body, None)
        return Whole(body, found if self._is_owed(found) else None)

    def _is_owed(self, found: Facts) -> bool:
        """Whether these are the tokens of an answer that nobody has counted yet. Of several who see it, one counts."""
        if found.usage is None or not found.usage.is_stated or found.finish is None or found.finish in facts.UNFINISHED:
            return False
        if self._is_claimed is None:
            self._is_claimed = self._ask.claim()
        return self._is_claimed
