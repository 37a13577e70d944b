"""Streams of both formats to clients of both: however nasty the upstream, what the client gets is by the book."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbiter._speedups.py.sse import LIMIT_BYTES
from arbiter.errors import Garbled, InStreamError
from arbiter.fold import collect, unfold
from arbiter.model import (
    Answer,
    CallDelta,
    CallStarted,
    Ended,
    Event,
    Failed,
    Finish,
    Finished,
    RefusalDelta,
    Started,
    TextDelta,
    ThinkingDelta,
    ThinkingRedacted,
    ThinkingSigned,
    ToolCall,
    Usage,
    UsageReported,
)
from arbiter.wire.format import FORMATS, UPSTREAMS
from arbiter.wire.moulds import Carrier
from arbiter.wire.translated import TranslatedStream
from tests.fakes import grammar
from tests.fakes.vectors import CASES, read_by
from tests.unit.wire import neutral, upstreams

EACH = pytest.mark.parametrize("wire", list(FORMATS))
TO_EACH = pytest.mark.parametrize("client", list(FORMATS))
cuts = st.lists(st.integers(0, 400), max_size=6)


def pieces(data: bytes, at: list[int]) -> Iterator[bytes]:
    """`data`, cut at each of these offsets."""
    places = sorted({place % (len(data) + 1) for place in at})
    return (data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True))


def read(wire: str, data: bytes, at: list[int]) -> list[Event]:
    reader = UPSTREAMS[wire].reader()
    return [event for piece in pieces(data, at) for event in reader.feed(piece)] + reader.finish()


def written(client: str, events: list[Event]) -> bytes:
    writer = FORMATS[client].writer("T", "m", 1700000000)
    return b"".join(writer.write(event) for event in events)


@EACH
@given(data=st.data(), at=cuts)
def test_a_stream_means_what_its_server_meant(wire: str, data: st.DataObject, at: list[int]) -> None:
    """However it numbers, cuts, repeats and pads; and a unary body that means the same folds to the same answer."""
    stream = data.draw(upstreams.STREAMS[wire])
    assert collect(read(wire, stream.data, at)) == stream.answer
    assert compacted(FORMATS[wire].parse_answer(stream.body)) == compacted(stream.answer)


def compacted(answer: Answer) -> Answer:
    """`answer` with the arguments of its calls in one spelling: an object in a body has its server's own spaces."""
    parts = [
        msgspec.structs.replace(part, arguments=json.dumps(json.loads(part.arguments)))
        if isinstance(part, ToolCall) and not part.is_free
        else part
        for part in answer.parts
    ]
    return msgspec.structs.replace(answer, parts=tuple(parts))


@EACH
@TO_EACH
@given(data=st.data(), at=cuts)
def test_every_stream_is_by_the_clients_book(wire: str, client: str, data: st.DataObject, at: list[int]) -> None:
    """SPEC 2.6: one start, blocks one by one, each closed, one stop."""
    stream = data.draw(upstreams.STREAMS[wire])
    told = grammar.JUDGES[client](written(client, read(wire, stream.data, at)))
    assert told.ending == "complete"


@EACH
@TO_EACH
@given(data=st.data(), at=cuts, end=st.integers(0, 2000))
def test_a_stream_that_breaks_off_is_never_taken_for_whole(
    wire: str, client: str, data: st.DataObject, at: list[int], end: int
) -> None:
    """SPEC 2.7: wherever the bytes end. Only behind the finish reason it may be complete."""
    stream = data.draw(upstreams.STREAMS[wire])
    events = read(wire, stream.data[: end % (len(stream.data) + 1)], at)
    told = grammar.JUDGES[client](written(client, events))
    assert told.ending == ("complete" if isinstance(events[-1], Ended) else "error")
    assert isinstance(events[-1], Failed) or any(isinstance(event, Finished) for event in events)


SIDES = pytest.mark.parametrize("side", ["py", "c"])


def passing(side: str, wire: str, client: str, parts: Iterable[bytes]) -> tuple[grammar.Told, Carrier]:
    """What a client is told where plain deltas pass the neutral model by, and what carried them."""
    carry = importlib.import_module(f"arbiter._speedups.{side}.carry")
    reader = UPSTREAMS[wire].reader()
    carriers = {neutral.CHAT: carry.ChatCarrier, neutral.MESSAGES: carry.MessagesCarrier}
    if wire in carriers:  # of the others nothing is moved
        reader.frames = carriers[wire](LIMIT_BYTES)
    stream = TranslatedStream(reader, FORMATS[client].writer("T", "m", 1700000000), {})
    out = b"".join(stream.feed(part) for part in parts) + stream.end(None)
    return grammar.JUDGES[client](out), reader.frames


def check_same(fast: grammar.Told, slow: grammar.Told) -> None:
    """But for the error event, which the relay adds."""
    assert (fast.blocks, fast.finish, fast.usage) == (slow.blocks, slow.finish, slow.usage)
    assert (fast.ending == "complete") == (slow.ending == "complete")


@SIDES
@EACH
@TO_EACH
@given(data=st.data(), at=cuts, end=st.integers(0, 4000))
def test_deltas_that_pass_by_say_the_same(
    side: str, wire: str, client: str, data: st.DataObject, at: list[int], end: int
) -> None:
    """A delta moved as raw JSON tells the client what it would have told it had it been read and written."""
    stream = data.draw(upstreams.STREAMS[wire])
    whole = stream.data[:end] if end < len(stream.data) else stream.data
    slow = grammar.JUDGES[client](written(client, read(wire, whole, at)))
    check_same(passing(side, wire, client, pieces(whole, at))[0], slow)


@SIDES
@TO_EACH
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parent.name}/{case.name}")
def test_a_vectors_deltas_that_pass_by_say_the_same(side: str, client: str, case: Path) -> None:
    data, wire = read_by(case), case.parent.name
    slow = grammar.JUDGES[client](written(client, read(wire, data, [])))
    check_same(passing(side, wire, client, [data])[0], slow)
    check_same(passing(side, wire, client, [data[i : i + 1] for i in range(len(data))])[0], slow)


@SIDES
@pytest.mark.parametrize("client", [neutral.CHAT, neutral.MESSAGES])
@pytest.mark.parametrize("wire", [neutral.CHAT, neutral.MESSAGES])
def test_deltas_do_pass_by(side: str, client: str, wire: str) -> None:
    """Text, reasoning and arguments of an ordinary stream: all but what opens a block, or may end a call."""
    events: list[Event] = [Started("x", "m")]
    events += [
        ThinkingDelta("t"),
        ThinkingDelta("t"),
        ThinkingDelta("t"),
        TextDelta("x"),
        TextDelta("x"),
        TextDelta("x"),
    ]
    events += [CallStarted(0, "a", "f"), CallDelta(0, '{"x":'), CallDelta(0, "1"), CallDelta(0, "2"), CallDelta(0, "}")]
    data = written(wire, [*events, Finished(Finish.TOOL_CALLS), Ended()])
    frames = passing(side, wire, client, [data])[1]
    ends = wire == neutral.MESSAGES and client == neutral.CHAT  # nobody asks whether the call is whole
    most = 3 if client == neutral.CHAT else 2
    assert (frames.thinking_bytes, frames.text_bytes, frames.argument_bytes) == (most, most, 2 + ends)


def chat_stream(*calls: tuple[int, str | None, str | None, str]) -> bytes:
    """A stream of slices of calls: index, id, name, arguments."""
    deltas: list[dict[str, object]] = [{"role": "assistant"}]
    for index, id, name, arguments in calls:
        one = {"index": index, "id": id, "function": {"name": name, "arguments": arguments}}
        deltas.append({"tool_calls": [{key: value for key, value in one.items() if value is not None}]})
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": "tool_calls"})
    chunks = [json.dumps({"id": "cc", "model": "m", "choices": [choice]}) for choice in choices]
    return b"".join(b"data: %b\n\n" % one.encode() for one in [*chunks, "[DONE]"])


SLICED = [(0, "c1", "f", ""), (0, None, None, '{"a":'), (0, None, None, '{"b":'), (0, None, None, '"}"'),
          (0, None, None, "}"), (0, None, None, "}")]  # fmt: skip
WHOLE = '{"a":{"b":"}"}}'
BEHIND = {
    "nothing": ([], [WHOLE]),
    "all again, with its id": ([(0, "c1", "f", WHOLE)], [WHOLE]),
    "all again, without": ([(0, None, None, WHOLE)], [WHOLE]),
    "a brace, a blank": ([(0, None, None, "}"), (0, None, None, " ")], [WHOLE]),
    "the next call's": ([(0, None, None, '{"c":2}')], [WHOLE, '{"c":2}']),
    "the next call's, in slices": ([(0, None, None, '{"c":'), (0, None, None, "2"), (0, None, None, "}")],
                                   [WHOLE, '{"c":2}']),
    "the next call's, and an echo": ([(0, None, None, '{"c":2}'), (0, None, None, '{"c":2}')], [WHOLE, '{"c":2}']),
}  # fmt: skip


@SIDES
@TO_EACH
@pytest.mark.parametrize("case", BEHIND)
@pytest.mark.parametrize("step", [1, 1 << 20])
def test_what_follows_slices_that_passed_by_is_understood(side: str, client: str, case: str, step: int) -> None:
    """The reader knows how far the arguments came that were moved past it, in one read or in many."""
    behind, expected = BEHIND[case]
    data = chat_stream(*SLICED, *behind)
    events = read(neutral.CHAT, data, [])
    assert [part.arguments for part in collect(events).parts if isinstance(part, ToolCall)] == expected
    told, frames = passing(side, neutral.CHAT, client, [data[at : at + step] for at in range(0, len(data), step)])
    check_same(told, grammar.JUDGES[client](written(client, events)))
    # There each event has its number, here calls have no slices.
    assert (frames.argument_bytes > 0) == (client not in (neutral.RESPONSES, neutral.GEMINI))


@SIDES
def test_what_passed_by_is_not_kept_from_one_read_to_the_next(side: str) -> None:
    """A file may be written in megabytes of slices without a brace."""
    carry = importlib.import_module(f"arbiter._speedups.{side}.carry")
    reader = FORMATS[neutral.CHAT].reader()
    reader.frames = carry.ChatCarrier(LIMIT_BYTES)
    stream = TranslatedStream(reader, FORMATS[neutral.MESSAGES].writer("T", "m", 0), {})
    data = chat_stream((0, "c1", "f", '{"a":"'), *[(0, None, None, "x")] * 9)
    stream.feed(data[: data.index(b"finish_reason", -200)])
    assert reader.frames.argument_bytes > 0 and reader.frames.kept() == b""


# --- Events in any order ----------------------------------------------------------------------------------------------

ERROR = InStreamError("busy")
numbers = st.integers(0, 3)
strings = st.sampled_from(["", "a", '{"x":', "1}", "{}", " "])
anything = st.one_of(
    st.builds(Started, st.none() | st.just("x"), st.none() | st.just("m"), st.none() | st.builds(Usage, numbers)),
    st.builds(TextDelta, strings, st.none() | st.just(b'{"content":[],"refusal":null}')),
    st.builds(ThinkingDelta, strings, st.sampled_from([None, "reasoning", "reasoning_content"])),
    st.builds(ThinkingSigned, strings),
    st.builds(ThinkingRedacted, strings),
    st.builds(RefusalDelta, strings),
    st.builds(CallStarted, numbers, st.uuids().map(str), st.just("f"), st.sampled_from([False, False, True])),
    st.builds(CallDelta, numbers, strings),
    st.builds(UsageReported, st.builds(Usage, numbers, output=numbers)),
    st.builds(Finished, st.sampled_from([Finish.STOP, Finish.LENGTH])),
    st.builds(Ended),
    st.just(Failed(ERROR)),
)


@TO_EACH
@given(events=st.lists(anything, max_size=20))
def test_whatever_the_order_the_stream_is_by_the_book(client: str, events: list[Event]) -> None:
    """What cannot be told raises Garbled, and leaves what was told before it as it was."""
    writer = FORMATS[client].writer("T", "m", 1700000000)
    out = b""
    complete = False
    for event in events:
        try:
            out += writer.write(event)
        except Garbled:
            continue
        complete = complete or isinstance(event, Ended)
        moulds = writer.moulds()
        assert not (complete and any(moulds[:4]))
    told = grammar.JUDGES[client](out)
    assert (told.ending == "complete") == complete


@TO_EACH
@given(events=st.lists(anything, max_size=12))
def test_a_mould_makes_a_delta_that_may_stand_there(client: str, events: list[Event]) -> None:
    """Wherever a writer hands one out, a raw string in it is by the book and says what the writer would have said."""
    writer = FORMATS[client].writer("T", "m", 1700000000)
    out = b""
    for event in [Started(), *events]:
        try:
            out += writer.write(event)
        except Garbled:
            continue
        moulds = writer.moulds()
        moved = {"text": moulds.text, "reasoning": moulds.reasoning, "arguments": moulds.arguments}
        for kind, mould in moved.items():
            if mould is not None:
                out += mould[0] + b'"\\u00e9"' + mould[1]
                if kind == "arguments" and moulds.keep:
                    writer.carried("é")
    told = grammar.JUDGES[client](out)
    assert told.ending in ("open", "error", "complete")


@EACH
@given(data=st.data())
def test_an_answer_unfolds_into_the_stream_that_folds_into_it(wire: str, data: st.DataObject) -> None:
    """For an upstream that answers a stream request with one JSON body; clients of both formats get a stream."""
    answer = data.draw(upstreams.STREAMS[wire]).answer
    assert collect(unfold(answer)) == answer
    for client, judge in grammar.JUDGES.items():
        assert judge(written(client, list(unfold(answer)))).ending == "complete"


@EACH
@given(data=st.data())
def test_an_answer_of_any_stream_unfolds(wire: str, data: st.DataObject) -> None:
    answer = collect(data.draw(neutral.streams(wire)))
    assert collect(unfold(answer)) == answer
