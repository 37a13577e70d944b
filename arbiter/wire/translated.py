"""The translated lane: the client's format is not the upstream's, so everything passes through the neutral model.

A stream is moved event by event. The upstream's carrier splits the bytes into events and moves the plain deltas, which
are nearly all of them, as raw JSON strings into what the writer gave it as moulds; every other event is read into
neutral events and written anew. After each of those the writer may stand elsewhere (another block is open, the model
has finished), so the moulds are set again.
"""

from __future__ import annotations

import msgspec

from arbiter.errors import ArbiterError, Garbled, InStreamError
from arbiter.model import (
    CallDelta,
    CallStarted,
    Ended,
    Event,
    Failed,
    RefusalDelta,
    Started,
    TextDelta,
    ThinkingDelta,
    Usage,
    UsageReported,
)
from arbiter.wire.course import COMPLETE, CUT, FAILED, OPEN, OPENING_BYTES
from arbiter.wire.disguises import Disguises, Unmasking
from arbiter.wire.format import Reader, Writer
from arbiter.wire.sealer import Sealer


class Heard:
    """What the events of a stream said about it, as far as it came; moved deltas are not among them.

    Bytes are of UTF-8 text after JSON unescaping.
    """

    __slots__ = ("_is_output_counted", "argument_bytes", "model", "response_id", "text_bytes", "thinking_bytes",
                 "tool_names", "usage")  # fmt: skip

    def __init__(self) -> None:
        self.response_id: str | None = None
        self.model: str | None = None
        self.usage: Usage | None = None
        self._is_output_counted = False
        self.text_bytes = 0
        self.thinking_bytes = 0
        self.argument_bytes = 0
        self.tool_names: list[str] = []

    def take(self, event: Event) -> None:
        if type(event) is TextDelta or type(event) is RefusalDelta:
            self.text_bytes += size_of(event.text)
        elif type(event) is ThinkingDelta:
            self.thinking_bytes += size_of(event.text)
        elif type(event) is CallDelta:
            self.argument_bytes += size_of(event.arguments)
        elif type(event) is CallStarted:
            self.tool_names.append(event.name)
        elif type(event) is Started:
            self.response_id, self.model = event.id, event.model
            self._count(event.usage)
        elif type(event) is UsageReported:
            self._count(event.usage)
            self._is_output_counted = self._is_output_counted or event.usage.output is not None

    def counted(self, *, is_cut: bool) -> Usage | None:
        """The usage of what was heard: of a stream that was cut, no output that was but announced."""
        if is_cut and self.usage is not None and not self._is_output_counted:
            return self.usage.announced()
        return self.usage

    def _count(self, usage: Usage | None) -> None:
        if usage is not None:
            self.usage = usage if self.usage is None else self.usage.merged(usage)


def size_of(text: str) -> int:
    """Bytes of UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


class TranslatedStream:
    """One upstream stream on its way to a client of another format (`wire.course.Course`).

    `disguises` are the tools that the upstream knows in another shape than the client. A `sealer` hands the reasoning
    along for which the client's format has no place.
    """

    opening_bytes = OPENING_BYTES
    __slots__ = ("_error", "_frames", "_is_silent", "_reader", "_sealer", "_unmasking", "_writer", "ending",
                 "finish_inferred", "heard", "is_bare", "last_words", "protocol_fault", "repairs")  # fmt: skip

    def __init__(self, reader: Reader, writer: Writer, disguises: Disguises, sealer: Sealer | None = None) -> None:
        self.ending = OPEN
        self.finish_inferred = False
        self.is_bare = False
        self._is_silent = True
        self.protocol_fault: str | None = None  # what breaks the rules here ends the stream
        self.repairs: list[str] = []
        self.last_words = b""  # the upstream's own words would be none to this client
        self._reader = reader
        self._frames = reader.frames
        self._writer = writer
        self._unmasking = Unmasking(disguises) if disguises else None
        self._sealer = sealer
        self.heard = Heard()
        self._error: ArbiterError | None = None

    @property
    def events(self) -> int:
        return self._frames.events

    @property
    def has_event(self) -> bool:
        return self._frames.events > 0 or self.ending is not OPEN

    @property
    def has_finished(self) -> bool:
        return self._reader.finish_word is not None

    @property
    def finish_word(self) -> str | None:
        """Why the model stopped, in the upstream's own word."""
        return self._reader.finish_word

    @property
    def has_begun(self) -> bool:
        return self.has_spoken or bool(self.thinking_bytes) or self.has_finished

    @property
    def has_spoken(self) -> bool:
        return bool(self.output_bytes or self.heard.tool_names)

    @property
    def thinking_bytes(self) -> int:
        return self.heard.thinking_bytes + self._frames.thinking_bytes

    @property
    def output_bytes(self) -> int:
        """Text and call arguments, the moved deltas included."""
        heard, frames = self.heard, self._frames
        return heard.text_bytes + heard.argument_bytes + frames.text_bytes + frames.argument_bytes

    def fault(self) -> ArbiterError | None:
        return self._error

    def feed(self, data: bytes) -> bytes:
        if self.ending is not OPEN:
            return b""
        out: list[bytes] = []
        frames = self._frames
        try:
            frames.open(data)
            while (frame := frames.next()) is not None:
                self._take_moved(out)
                if not self._pass(self._reader.read(*frame), out):
                    return b"".join(out)
                self._aim()
        except Garbled as fault:
            self._stop(fault)
        self._take_moved(out)  # also to keep no more of them than one read brings
        return b"".join(out)

    def end(self, error: ArbiterError | None) -> bytes:
        if self.ending is not OPEN:
            return b""
        out: list[bytes] = []
        self._tell()
        try:
            if error is None:
                self._pass(self._reader.finish(), out)
            elif self.has_finished:
                # What broke off was only the goodbye. (An event without its blank line may be half of one.)
                self._pass(self._reader.closing(), out)
        except Garbled as fault:
            self._stop(fault)
        if self.ending is OPEN:
            self.ending = CUT
        return b"".join(out)

    def failed(self, error: ArbiterError) -> bytes:
        """Return how the client is told that its stream failed with `error`, behind what it was told so far."""
        return self._writer.write(Failed(error))

    def _pass(self, events: list[Event], out: list[bytes]) -> bool:
        """Write `events`; say whether the stream is still open.

        Errors: Garbled where the upstream broke the order of events (SPEC 2.6).
        """
        for event in events:
            if type(event) is Failed:
                self._stop(event.error)
                return False
            self._is_silent = False
            for told in self._unmasking.take(event) if self._unmasking is not None else (event,):
                for handed in self._sealer.take(told) if self._sealer is not None else (told,):
                    self.heard.take(handed)
                    out.append(self._writer.write(handed))
            if type(event) is Ended:
                self.finish_inferred = event.inferred
                self.ending = COMPLETE
                return False
        return True

    def _take_moved(self, out: list[bytes]) -> None:
        moved = self._frames.take()
        out.append(moved)
        if self._sealer is not None:
            self._sealer.moved(moved)
        self._tell()

    def _tell(self) -> None:
        """Let both sides know of the arguments that were moved past them."""
        kept = self._frames.kept()
        if kept:
            arguments = _decode_str(b'"' + kept + b'"')
            self._reader.carried(arguments)
            self._writer.carried(arguments)

    def _aim(self) -> None:
        frames, moulds = self._frames, self._writer.moulds()
        if self._sealer is not None:
            moulds = self._sealer.narrowed(moulds)
        is_seen = self._unmasking is not None and self._unmasking.changes(moulds.call)
        place = self._reader.place_of(moulds.call) if moulds.arguments is not None and not is_seen else -1
        frames.aim(
            moulds.text,
            moulds.reasoning_content,
            moulds.reasoning,
            moulds.arguments if place >= 0 else None,
            place,
            moulds.keep or self._reader.keeps,
        )

    def _stop(self, error: ArbiterError) -> None:
        self._error = error
        self.is_bare = self._is_silent
        self.ending = FAILED if isinstance(error, InStreamError) else CUT


_decode_str = msgspec.json.Decoder(str).decode
