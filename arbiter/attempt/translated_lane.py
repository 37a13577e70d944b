"""The translated lane: the upstream speaks otherwise, or is to get everything built anew (`relay: rebuild`)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import cast

import msgspec
from msgspec import Raw

from arbiter import inputs
from arbiter.accounting import usage
from arbiter.accounting.facts import Facts
from arbiter.attempt.ask import Ask
from arbiter.attempt.claudes import claude_of
from arbiter.attempt.lane import EVENTS, READ, Whole
from arbiter.attempt.ways import target_of, telling_name
from arbiter.clock import now_ms
from arbiter.errors import ArbiterError, PartUnsupported, ProtocolUnsupported
from arbiter.fold import collect, unfold
from arbiter.model import NOT_KEPT_ITEM, Answer, Event, Thinking, ToolCall
from arbiter.routing.plan import Rung
from arbiter.routing.undeclared import betas_of
from arbiter.wire import bedrock_converse, bound_responses, dialects, native
from arbiter.wire.converse_marks import as_marks
from arbiter.wire.course import Course
from arbiter.wire.dialects import Changes, dialect_of
from arbiter.wire.disguises import unmasked
from arbiter.wire.format import FORMATS, UPSTREAMS, Upstream, Writer
from arbiter.wire.openai_models import Dialect
from arbiter.wire.openai_servers import taken
from arbiter.wire.places import place_of
from arbiter.wire.restored import lost
from arbiter.wire.sealer import Sealer, may_seal
from arbiter.wire.translated import Heard, TranslatedStream, size_of
from arbiter.wire.vault import Origin, home_of

_SLICE_BYTES = 128 << 10

_UNSEALED = {
    *((name, name) for name in FORMATS if name != native.RESPONSES),  # whose items get ids of the gateway's
    (native.MESSAGES, native.GEMINI),  # whose signatures pass as they are (`wire.signatures`)
    (native.MESSAGES, bedrock_converse.name),  # the same
}
"""Between which formats, the client's first, no reasoning is sealed."""


class _Way(msgspec.Struct, frozen=True):
    """What is so for every request that one rung is asked in one format: the name that tells what the model takes, and
    what that is where it is a chat's; who signs there; the dialect, where it changes bodies. `targets` are by whether
    the answer streams."""

    telling: str
    takes: Dialect | None
    home: bytes
    claude: str
    changing: dialects.Dialect | None
    targets: dict[bool, str]


def _way_of(rung: Rung, format: Upstream) -> _Way:
    """Worked out for the first request, and kept with the rung."""
    key = ("translated", format.name)
    known = rung.ways.get(key)
    if known is None:
        telling, spoken_by = telling_name(rung, format.name), dialect_of(rung.provider)
        known = rung.ways[key] = _Way(
            telling,
            taken(telling, rung.target.server) if format.name == native.CHAT else None,
            home_of(rung.url),
            claude_of(rung) or "",
            spoken_by if type(spoken_by).changes is not dialects.Dialect.changes else None,
            {},
        )
    return cast(_Way, known)


class TranslatedLane:
    """The request is built anew in the upstream's format, the answer in the client's."""

    name = "translated"
    kind: str | None = EVENTS
    format: Upstream
    __slots__ = (
        "_account",
        "_ask",
        "_disguises",
        "_model",
        "_ours",
        "_rung",
        "_way",
        "body",
        "edited",
        "fidelity",
        "format",
        "left_out",
    )  # fmt: skip

    def __init__(self, ask: Ask, rung: Rung, wire: str, account: str, *, moved: bool = False) -> None:
        self._ask = ask
        self._rung = rung
        self._model = rung.model
        self._ours = FORMATS[ask.format.name]
        self.format = self._ours if wire == "any" else UPSTREAMS[wire]
        self.fidelity = "rebuilt" if self.format is self._ours else "translated"
        self.edited: Mapping[str, Raw] | None = ask.opened.members if ask.edits else None
        self._account = account
        self._way = way = _way_of(rung, self.format)
        takes = way.takes
        asked, self.left_out = ask.request(), 0
        if ask.seems_sealed:
            takes_text = takes is None or takes.reasoning is not None
            asked, self.left_out = ask.handed_along().told_to(self._origin(), takes_text=takes_text)
        self.left_out += lost(asked, self.format.name, takes)
        request = msgspec.structs.replace(
            asked,
            model=way.telling,
            stream=ask.stream,
            include_usage=ask.stream,  # SPEC 2.5; the writer knows what the client asked for
        )
        try:
            changes = None
            if way.changing is not None:
                changes = way.changing.changes(self.format.name, ask.incoming.fields, betas_of(ask.window))
            target = msgspec.structs.replace(rung.target, moved=True) if moved else rung.target
            body = self.format.build_request(request, target)
            if way.telling != rung.model and self.format.name in FORMATS:
                body = Changes({"model": Raw(msgspec.json.encode(rung.model))}).in_body(body)
            self.body = changes.in_body(body) if changes is not None else body
            self._disguises = self.format.disguised(request)
        except PartUnsupported as error:
            place = place_of(error.part, ask.opened.members, self._ours.parse_request)
            what = NOT_KEPT_ITEM if bound_responses.is_only_named(error.part) else str(error)
            raise ProtocolUnsupported(f"{place}: {what}" if place else what, param=place) from error

    def marked(self) -> bytes:
        return as_marks(self.body) if self.format.name not in FORMATS else self.body

    def target(self) -> str:
        # The query string is the client's format's own (`?beta=true`).
        targets, stream = self._way.targets, self._ask.stream
        target = targets.get(stream)
        if target is None:
            target = targets[stream] = target_of(self._rung, self.format, self._ask, self.format.path)
        return target

    def course(self) -> TranslatedStream:
        reader = self.format.reader(self._ask.limits.event)
        return TranslatedStream(reader, self._writer(), self._disguises, self._sealer())

    def _sealer(self) -> Sealer | None:
        """What hands the reasoning along, where the client would bring it back and the upstream take it again."""
        ask = self._ask
        if ask.vault is None or (self._ours.name, self.format.name) in _UNSEALED:
            return None
        takes = self._way.takes
        if takes is not None and takes.reasoning is None and not takes.signs:
            return None
        return Sealer(ask.vault, self._origin(), ask.client)

    def _origin(self) -> Origin:
        way = self._way
        return Origin(self.format.name, way.home, self._account, self._rung.model, way.claude)

    def _writer(self) -> Writer:
        ask = self._ask
        return self._ours.writer(
            ask.trace_id,
            self._model,
            now_ms() // 1000,
            include_usage=ask.request().include_usage,
            asked=inputs.beside(ask.opened.told) if ask.format.name == native.RESPONSES else {},
        )

    def failed(self, course: Course, error: ArbiterError) -> bytes:
        assert isinstance(course, TranslatedStream)
        return course.failed(error)

    def last_words(self, course: Course) -> bytes:
        return b""  # the upstream's own would be none to this client

    def facts(self, course: Course, first_event_ns: int, last_event_ns: int) -> Facts:
        assert isinstance(course, TranslatedStream)
        return msgspec.structs.replace(
            _told(course.heard, course.finish_word),
            events=course.events,
            thinking_bytes=course.thinking_bytes,
            output_bytes=course.output_bytes,
            first_event_ns=first_event_ns,
            last_event_ns=last_event_ns,
            finish_inferred=course.finish_inferred,
        )

    def let_go(self) -> None:
        self._ask.let_go()
        self.body, self.edited = b"", None

    async def whole(self, body: bytes, kind: str) -> Whole:
        found: Facts | None
        if kind.startswith(EVENTS) or body[:16].lstrip().startswith((b"data:", b"event:")):
            events, found = await self._gathered(body)
            read = partial(collect, events)
        else:
            # Nobody is relayed in a format that no client speaks: what it says of itself is what it is read to say.
            found = READ[self.format.name](body) if self.format.name in READ else None
            read = partial(self.format.parse_answer, body)
        try:
            answer = read()
        except ArbiterError as error:
            return Whole(b"", found, error=error)
        found = found or _said(answer)
        answer = unmasked(answer, self._disguises)
        sealer = self._sealer() if may_seal(answer) else None
        if sealer is not None:
            answer = collect(handed for event in unfold(answer) for handed in sealer.take(event))
        ask = self._ask
        if ask.stream:
            writer = self._writer()
            return Whole(b"".join(map(writer.write, unfold(answer))), found, EVENTS)
        told = self._ours.write_answer(answer, ask.trace_id, self._model, now_ms() // 1000, asked=ask.opened.told)
        return Whole(told, found, "application/json")

    async def _gathered(self, body: bytes) -> tuple[list[Event], Facts]:
        """An answer that was sent as a stream although nobody asked for one, or that is not labelled as one."""
        reader = self.format.reader(self._ask.limits.event)
        heard = Heard()
        events: list[Event] = []
        for start in range(0, len(body), _SLICE_BYTES):
            events += reader.feed(body[start : start + _SLICE_BYTES])
            await asyncio.sleep(0)  # others have their turn: a long answer is many thousand events
        events += reader.finish()
        for event in events:
            heard.take(event)
        return events, _told(heard, reader.finish_word)


def _said(answer: Answer) -> Facts:
    parts = answer.parts
    calls = [part for part in parts if type(part) is ToolCall]
    return Facts(
        response_id=answer.id,
        model=answer.model,
        finish=answer.finish.value if answer.finish is not None else None,
        usage=answer.usage,
        usage_source=usage.source(answer.usage, finished=True),
        thinking_bytes=sum(size_of(part.text) for part in parts if type(part) is Thinking),
        output_bytes=size_of(answer.text()) + sum(size_of(call.arguments) for call in calls),
        tool_names=tuple(call.name for call in calls),
    )


def _told(heard: Heard, finish_word: str | None) -> Facts:
    counted = heard.counted(is_cut=finish_word is None)
    return Facts(
        response_id=heard.response_id,
        model=heard.model,
        finish=finish_word,
        usage=counted,
        usage_source=usage.source(counted, finished=finish_word is not None),
        thinking_bytes=heard.thinking_bytes,
        output_bytes=heard.text_bytes + heard.argument_bytes,
        tool_names=tuple(heard.tool_names),
    )
