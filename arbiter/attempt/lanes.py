"""The two lanes: what a rung is sent, and how its answer comes back in the client's own format.

Native, where the upstream speaks as the client does: bytes that need no change are not changed. Translated, where it
does not, or where the provider's `relay` is `rebuild`: the request and its answer pass through the neutral model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Protocol, cast

import msgspec
from msgspec import Raw

from arbiter import inputs
from arbiter.accounting import facts, usage
from arbiter.accounting.facts import Facts
from arbiter.attempt.ask import Ask
from arbiter.attempt.claudes import claude_of
from arbiter.clock import monotonic, now_ms
from arbiter.errors import ArbiterError, Garbled, PartUnsupported, ProtocolUnsupported
from arbiter.fold import collect, unfold
from arbiter.model import NOT_KEPT_ITEM, Answer, Event, Thinking, ToolCall
from arbiter.pieces import Body
from arbiter.routing.plan import Rung
from arbiter.routing.undeclared import betas_of
from arbiter.state.base import State
from arbiter.wire import (
    bedrock_converse,
    bound_responses,
    chat_thoughts,
    dialects,
    embeddings,
    faults,
    gemini_embeddings,
    gemini_names,
    native,
    native_marks,
    unsealed,
)
from arbiter.wire.converse_marks import as_marks
from arbiter.wire.converse_models import is_known
from arbiter.wire.course import Course
from arbiter.wire.dialects import Changes, dialect_of
from arbiter.wire.disguises import unmasked
from arbiter.wire.format import EMBEDDINGS, FORMATS, UPSTREAMS, Asked, Upstream, Writer
from arbiter.wire.messages_models import abilities_of
from arbiter.wire.native_stream import NativeStream
from arbiter.wire.openai_models import Dialect, dialect
from arbiter.wire.openai_servers import taken
from arbiter.wire.places import place_of
from arbiter.wire.responses_errors import failed_after
from arbiter.wire.restored import lost
from arbiter.wire.sealer import Sealer, may_seal
from arbiter.wire.translated import Heard, TranslatedStream, size_of
from arbiter.wire.vault import Origin, home_of

EVENTS = "text/event-stream"
_SLICE_BYTES = 128 << 10


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


def holds_up(ask: Ask, rung: Rung, *, lacks: bool = False, moved: bool = False) -> bool:
    """Whether to `choose` would hold up everybody else on the loop: where a long request is read, and not only sent."""
    if ask.is_of_stored or not ask.is_long:
        return False
    if ask.format.name in EMBEDDINGS:
        return ask.format.name != embeddings.name
    if ask.seems_sealed or not _is_native(ask, rung, spoken(ask.format.name, rung, lacks=lacks)):
        return True
    if ask.format.name == native.CHAT:
        return moved or chat_thoughts.may_hold(ask.opened.members)
    return ask.format.name == native.MESSAGES and native_marks.sets(rung.target)


def choose(ask: Ask, rung: Rung, account: str = "", *, lacks: bool = False, moved: bool = False) -> Lane:
    """The lane for this request to this rung, on the account of that label; `lacks`: there is no endpoint for Responses
    behind its base URL; `moved`: others have answered in the conversation, too.

    Errors: BadRequest and ProtocolUnsupported where the request cannot be told to the upstream.
    """
    if ask.is_of_stored:
        return StoredLane(ask, rung)
    if not (lacks or ask.opened.edits) and _way(ask, rung).is_native:
        return NativeLane(ask, rung, moved=moved)
    provider = rung.provider
    if ask.format.name in EMBEDDINGS:
        is_googles = provider.type == "gemini"
        if rung.wire not in _EMBEDDERS and not is_googles:
            raise ProtocolUnsupported(f"the provider {provider.name!r} has no embeddings")
        is_native = is_googles or ask.format.name == embeddings.name
        return NativeLane(ask, rung) if is_native else EmbeddingsLane(ask, rung)
    wire = spoken(ask.format.name, rung, lacks=lacks)
    if ask.opened.edits and wire == native.RESPONSES:
        ask = ask.edited(bound_responses.without_bare_thoughts(ask.opened.members), ())
    if _is_native(ask, rung, wire):
        return NativeLane(ask, rung, moved=moved)
    if ask.is_bound_to_format:
        what = "count tokens" if ask.counts_tokens else f"answer {ask.path}, which is forwarded as it is or not at all"
        raise ProtocolUnsupported(f"the provider {provider.name!r} cannot {what}")
    return TranslatedLane(ask, rung, wire, account, moved=moved)


class _Way(msgspec.Struct, frozen=True):
    """What is so for every request of a format at a path to one rung, where it is known to have what it is asked for.

    `changes` says whether the dialect has anything to change in a body, `respells` whether chat's reasoning may have to
    be spelled otherwise though nobody else answered. `targets` are those of a request without a query, by whether it
    streams.
    """

    is_native: bool
    is_chat: bool
    is_sent_as_it_came: bool
    sets_marks: bool
    spoken_by: dialects.Dialect
    changes: bool
    respells: bool
    targets: dict[bool, str]


_WAYS = 32  # of a rung: some paths name something of the client's


def _way(ask: Ask, rung: Rung) -> _Way:
    key = ask.format.name, ask.path
    known = rung.ways.get(key)
    if known is None:
        if len(rung.ways) >= _WAYS:
            rung.ways.clear()
        known = rung.ways[key] = _worked_out(ask, rung)
    return cast(_Way, known)


def _worked_out(ask: Ask, rung: Rung) -> _Way:
    name, provider = ask.format.name, rung.provider
    spoken_by, takes_logins = dialect_of(provider), provider.takes_logins
    is_chat = name == native.CHAT and not takes_logins
    return _Way(
        name not in EMBEDDINGS and _is_native(ask, rung, spoken(name, rung)),
        is_chat,
        takes_logins,
        native_marks.sets(rung.target),
        spoken_by,
        type(spoken_by).changes is not dialects.Dialect.changes,
        is_chat and taken(_telling(rung, native.CHAT), rung.target.server).spells != "the maker's",
        {},
    )


def _is_native(ask: Ask, rung: Rung, wire: str) -> bool:
    return wire in (ask.format.name, "any") and (rung.provider.relay == "native" or ask.is_bound_to_format)


def spoken(asked: str, rung: Rung, *, lacks: bool = False) -> str:
    """The format in which `rung` is asked for what a client asked in the format `asked`: its own; where a provider has
    both of OpenAI's, that of a client who speaks one of them, as far as it really has it (SPEC 6.1)."""
    provider = rung.provider
    if rung.api is not None or rung.wire != native.CHAT or asked == native.CHAT:
        return rung.wire
    if asked != native.RESPONSES:
        return native.RESPONSES if provider.api == "responses" else rung.wire
    if provider.takes_logins:
        return native.RESPONSES  # what came with a login goes out as it came, or not at all
    if provider.responses_api == "auto":
        has_them = (bool(provider.accounts[0].key) or provider.oauth is not None) and not lacks
    else:
        has_them = provider.responses_api == "native"
    return native.RESPONSES if has_them else rung.wire


def may_lack(asked: str, rung: Rung) -> bool:
    """Whether it is to be found out if there is an endpoint for Responses: it is tried, and chat is there in its
    place."""
    is_open = asked == native.RESPONSES and rung.api is None and rung.wire == native.CHAT
    return is_open and rung.provider.responses_api == "auto" and not rung.provider.takes_logins


def is_lacking(state: State, rung: Rung) -> bool:
    """Whether somebody found out lately that there is no endpoint for Responses behind its base URL."""
    return state.standing().lacking.get(rung.url, 0.0) > monotonic()


def counts_tokens(asked: str, rung: Rung, *, lacks: bool = False) -> bool:
    """Whether it may be asked to count: whoever has the format `asked` is asked as that vendor's clients ask it."""
    return dialect_of(rung.provider).counts(asked) and spoken(asked, rung, lacks=lacks) in (asked, "any")


def _target(rung: Rung, format: Asked, ask: Ask, path: str, query: str = "") -> str:
    dialect = dialect_of(rung.provider)
    return dialect.target(rung.provider, format.name, path, rung.model, stream=ask.stream, query=query)


_EMBEDDERS = (native.CHAT, native.RESPONSES, "any")
"""Who has embeddings: they stand beside OpenAI's other APIs, on every server of that vendor's formats. Google has them
in OpenAI's format too, besides its own."""


class NativeLane:
    """Nothing is changed that need not be."""

    name = "native"
    kind: str | None = None
    __slots__ = ("_ask", "_drop_usage", "_rung", "_sets_marks", "_way", "body", "edited", "fidelity", "format",
                 "left_out")  # fmt: skip

    def __init__(self, ask: Ask, rung: Rung, *, moved: bool = False) -> None:
        self._way = way = _way(ask, rung)
        self.left_out = 0
        if ask.seems_sealed:
            handed, telling = ask.handed_along(), _telling(rung, ask.format.name)
            stripped = unsealed.unsealed(ask.format.name, ask.opened.members, handed, telling)
            if stripped.changed:
                ask = ask.edited(stripped.members, stripped.changed)
                told = ask.format.name == native.CHAT and dialect(telling).wants_reasoning
                self.left_out = 0 if told else handed.count
        if way.respells or (moved and way.is_chat):
            takes = taken(_telling(rung, native.CHAT), rung.target.server, moved=moved)
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
            return _target(self._rung, self.format, ask, ask.path, ask.incoming.told_query)
        targets = self._way.targets
        target = targets.get(ask.stream)
        if target is None:
            target = targets[ask.stream] = _target(self._rung, self.format, ask, ask.path)
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
        found = _READ[self.format.name](body)
        # As in a stream that begins with one: the 200 was too early, and nobody has seen it yet.
        return Whole(body, found, error=faults.in_stream(body) if found.error is not None else None)


_READ = {
    native.CHAT: facts.of_chat_answer,
    native.MESSAGES: facts.of_messages_answer,
    native.RESPONSES: facts.of_responses_answer,
    native.GEMINI: facts.of_gemini_answer,
    embeddings.name: facts.of_embeddings_answer,
    gemini_embeddings.name: facts.of_google_embeddings_answer,
}


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
        return _target(self._rung, self.format, self._ask, self.format.path)

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


_UNSEALED = {
    *((name, name) for name in FORMATS if name != native.RESPONSES),  # whose items get ids of the gateway's
    (native.MESSAGES, native.GEMINI),  # whose signatures pass as they are (`wire.signatures`)
    (native.MESSAGES, bedrock_converse.name),  # the same
}
"""Between which formats, the client's first, no reasoning is sealed."""


def _telling(rung: Rung, wire: str) -> str:
    """The name by which a builder knows what the model takes: the operator's, where the provider's does not say."""
    if rung.known_as is None or not dialect_of(rung.provider).names_its_own or _says(wire, rung.model):
        return rung.model
    return rung.known_as if _says(wire, rung.known_as) else rung.model


def _says(wire: str, model: str) -> bool:
    if wire == native.MESSAGES:
        return abilities_of(model) is not None
    return dialect(model).known if wire in FORMATS else is_known(model)


class TranslatedLane:
    """The request is built anew in the upstream's format, the answer in the client's."""

    name = "translated"
    kind: str | None = EVENTS
    format: Upstream
    __slots__ = (
        "_ask",
        "_disguises",
        "_model",
        "_origin",
        "_ours",
        "_rung",
        "_telling",
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
        self._origin = Origin(self.format.name, home_of(rung.url), account, rung.model, claude_of(rung) or "")
        self._telling = _telling(rung, self.format.name)
        takes = self._takes()
        asked, self.left_out = ask.request(), 0
        if ask.seems_sealed:
            takes_text = takes is None or takes.reasoning is not None
            asked, self.left_out = ask.handed_along().told_to(self._origin, takes_text=takes_text)
        self.left_out += lost(asked, self.format.name, takes)
        request = msgspec.structs.replace(
            asked,
            model=self._telling,
            stream=ask.stream,
            include_usage=ask.stream,  # SPEC 2.5; the writer knows what the client asked for
        )
        try:
            changes = dialect_of(rung.provider).changes(self.format.name, ask.incoming.fields, betas_of(ask.window))
            target = msgspec.structs.replace(rung.target, moved=True) if moved else rung.target
            body = self.format.build_request(request, target)
            if self._telling != rung.model and self.format.name in FORMATS:
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
        return _target(self._rung, self.format, self._ask, self.format.path)

    def course(self) -> TranslatedStream:
        reader = self.format.reader(self._ask.limits.event)
        return TranslatedStream(reader, self._writer(), self._disguises, self._sealer())

    def _sealer(self) -> Sealer | None:
        """What hands the reasoning along, where the client would bring it back and the upstream take it again."""
        ask = self._ask
        if ask.vault is None or (self._ours.name, self.format.name) in _UNSEALED:
            return None
        takes = self._takes()
        if takes is not None and takes.reasoning is None and not takes.signs:
            return None
        return Sealer(ask.vault, self._origin, ask.client)

    def _takes(self) -> Dialect | None:
        """What the server takes where it is one of OpenAI Chat; else None."""
        return taken(self._telling, self._rung.target.server) if self.format.name == native.CHAT else None

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
            found = _READ[self.format.name](body) if self.format.name in _READ else None
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
    return Facts(
        response_id=heard.response_id,
        model=heard.model,
        finish=finish_word,
        usage=heard.usage,
        usage_source=usage.source(heard.usage, finished=finish_word is not None),
        thinking_bytes=heard.thinking_bytes,
        output_bytes=heard.text_bytes + heard.argument_bytes,
        tool_names=tuple(heard.tool_names),
    )
