"""A stream of events folds into the answer that a unary call returns, and an answer unfolds into a stream of events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from arbiter.errors import Garbled
from arbiter.model import (
    STOP,
    Answer,
    CallDelta,
    CallStarted,
    Ended,
    Event,
    Failed,
    Finished,
    Part,
    RedactedThinking,
    Refusal,
    RefusalDelta,
    SealedThinking,
    Started,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ThinkingRedacted,
    ThinkingSealed,
    ThinkingSigned,
    ToolCall,
    UsageReported,
)
from arbiter.order import Order


class _Fold:
    """The parts of an answer under construction: slices of the same kind are one part, an empty one is none."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.logprobs: list[bytes] = []
        self._kind: tuple[type, str | None] | None = None  # of the part under construction; the spelling of reasoning
        self._texts: list[str] = []
        self._behind: list[Part] = []  # what came within that part, and stands behind it
        self._calls: dict[int, tuple[int, CallStarted, list[str]]] = {}  # with its place among the parts

    def add(self, event: Event) -> None:
        if type(event) is TextDelta or type(event) is ThinkingDelta or type(event) is RefusalDelta:
            kind = (type(event), event.spelling if type(event) is ThinkingDelta else None)
            if event.text:
                if kind != self._kind:
                    self.close()
                    self._kind = kind
                self._texts.append(event.text)
            if type(event) is TextDelta and event.logprobs is not None:
                self.logprobs.append(event.logprobs)
        elif type(event) is ThinkingSigned:
            if self._kind is None or self._kind[0] is not ThinkingDelta:
                self.close()
                self._kind = (ThinkingDelta, None)
            self.close(event.signature, event.item)
        elif type(event) is ThinkingRedacted:
            if event.place == "message":
                self._behind.append(RedactedThinking(event.data, event.place))
                return
            self.close()
            self.parts.append(RedactedThinking(event.data, event.place))
        elif type(event) is ThinkingSealed:
            self.close()
            self.parts.append(SealedThinking(event.item, event.call_id))
        elif type(event) is CallStarted:
            self.close()
            if event.index in self._calls:
                raise Garbled(f"the upstream opened tool call {event.index} twice")
            self._calls[event.index] = (len(self.parts), event, [])
            self.parts.append(ToolCall(event.id, event.name, "", is_free=event.is_free))
        elif type(event) is CallDelta:
            if event.index not in self._calls:
                raise Garbled(f"the upstream sent arguments for tool call {event.index}, which it never opened")
            self._calls[event.index][2].append(event.arguments)

    def close(self, signature: str = "", item: bytes | None = None) -> None:
        if self._kind is not None:
            (kind, spelling), text = self._kind, "".join(self._texts)
            self._kind = None
            self._texts.clear()
            if kind is TextDelta:
                self.parts.append(Text(text))
            elif kind is RefusalDelta:
                self.parts.append(Refusal(text))
            elif text or signature or item is not None:
                self.parts.append(Thinking(text, signature or None, spelling, item))
        if self._behind:
            self.parts += self._behind
            self._behind.clear()

    def whole(self) -> tuple[Part, ...]:
        self.close()
        for place, call, slices in self._calls.values():
            arguments = "".join(slices) or ("" if call.is_free else "{}")
            self.parts[place] = ToolCall(call.id, call.name, arguments, is_free=call.is_free)
        return tuple(self.parts)


def collect(events: Iterable[Event]) -> Answer:
    """Fold a finished stream into what a unary call returns; the ledger keeps the same value.

    Errors: the stream's own error where it failed; Garbled where it broke the order or never ended.
    """
    order = Order()
    answer = folded(event for event in events if order.admit(event))
    if not order.closed:
        raise Garbled("the stream never ended")
    return answer


def folded(events: Iterable[Event]) -> Answer:
    """As `collect`, of events that a reader has put in order already, to the end.

    Errors: the stream's own error where it failed.
    """
    fold = _Fold()
    start, usage, finished = Started(), None, Finished(STOP)
    for event in events:
        if type(event) is Started:
            start, usage = event, event.usage
        elif type(event) is UsageReported:
            usage = event.usage if usage is None else usage.merged(event.usage)
        elif type(event) is Finished:
            finished = event
        elif type(event) is Failed:
            raise event.error
        else:
            fold.add(event)
    return Answer(
        id=start.id,
        model=start.model,
        parts=fold.whole(),
        finish=finished.finish,
        stop_sequence=finished.stop_sequence,
        usage=usage,
        logprobs=tuple(fold.logprobs),
    )


def unfold(answer: Answer) -> Iterator[Event]:
    """Return the stream that folds into `answer`: for a client that wants one where the upstream gave none.

    Shapes: `collect(unfold(a)) == a` for every answer that `collect` or a format's `parse_answer` made.
    """
    yield Started(answer.id, answer.model)
    logprobs = iter(answer.logprobs)
    calls = 0
    for part in answer.parts:
        if isinstance(part, Text):
            yield TextDelta(part.text, next(logprobs, None))
        elif isinstance(part, Refusal):
            yield RefusalDelta(part.text)
        elif isinstance(part, Thinking):
            if part.text:
                yield ThinkingDelta(part.text, part.spelling)
            # An unsigned thought ends, too, where another one follows it.
            yield ThinkingSigned(part.signature or "", part.item)
        elif isinstance(part, RedactedThinking):
            yield ThinkingRedacted(part.data, part.place)
        elif isinstance(part, SealedThinking):
            yield ThinkingSealed(part.item, part.call_id)
        elif isinstance(part, ToolCall):
            yield CallStarted(calls, part.id, part.name, part.is_free)
            yield CallDelta(calls, part.arguments)
            calls += 1
    yield from (TextDelta("", one) for one in logprobs)
    yield Finished(answer.finish or STOP, answer.stop_sequence)
    if answer.usage is not None:
        yield UsageReported(answer.usage)
    yield Ended()
