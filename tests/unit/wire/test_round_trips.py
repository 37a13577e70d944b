"""What goes through a format comes back: requests, streams, answers, and one as the other."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from arbiter.fold import collect
from arbiter.model import CallStarted, Event, Started, Target, TextDelta, Usage, UsageReported
from arbiter.wire.format import FORMATS
from tests.unit.wire import neutral

WIRES = list(FORMATS)


@pytest.mark.parametrize("wire", WIRES)
@given(data=st.data())
@settings(max_examples=60)
def test_a_request_survives_its_format(wire: str, data: st.DataObject) -> None:
    """parse_request(build_request(x)) == x for all that the table carries, and the bytes are the same again."""
    request, target = data.draw(neutral.requests(wire)), Target(prompt_cache="client")
    body = FORMATS[wire].build_request(request, target)
    found = FORMATS[wire].parse_request(neutral.members(wire, body, request))
    assert neutral.unmarked(found) == neutral.unmarked(request)
    assert FORMATS[wire].build_request(found, target) == body


def through(wire: str, events: list[Event], cut: int = 0) -> list[Event]:
    """Write `events`, and read the bytes back in pieces of `cut`."""
    writer = FORMATS[wire].writer("T", "m", 1700000000)
    written = b"".join(writer.write(event) for event in events)
    reader = FORMATS[wire].reader()
    pieces = [written[i : i + cut] for i in range(0, len(written), cut)] if cut else [written]
    return [event for piece in pieces for event in reader.feed(piece)] + reader.finish()


@pytest.mark.parametrize("wire", WIRES)
@given(data=st.data(), cut=st.integers(0, 50))
@settings(max_examples=60)
def test_a_reader_over_a_writer_gives_the_same_events(wire: str, data: st.DataObject, cut: int) -> None:
    """And any cut of the bytes gives them too."""
    events = data.draw(neutral.streams(wire))
    got = through(wire, events, cut)
    assert isinstance(got[0], Started) and got[0].model == "m"
    if wire == neutral.CHAT:
        assert got[1:] == events[1:]
        return
    if wire in (neutral.RESPONSES, neutral.GEMINI):
        # Here a thought ends with its item, and says so only where another one follows; there calls have no slices.
        assert neutral.folds_to(collect(got)) == neutral.folds_to(collect(events))
        return
    # Here usage is part of message_delta, together with the finish.
    assert [one for one in got[1:] if not isinstance(one, UsageReported)] == [
        one for one in events[1:] if not isinstance(one, UsageReported)
    ]
    assert neutral.folds_to(collect(got)).usage == collect(events).usage


@pytest.mark.parametrize("wire", WIRES)
@given(data=st.data())
@settings(max_examples=60)
def test_a_stream_folds_into_its_unary_answer(wire: str, data: st.DataObject) -> None:
    """One answer, streamed or whole, is the same value (STYLE turn 4)."""
    answer = collect(data.draw(neutral.streams(wire)))
    found = FORMATS[wire].parse_answer(FORMATS[wire].write_answer(answer, "T", "m", 1700000000))
    prefix = {"openai-chat": "chatcmpl-", "anthropic-messages": "msg_", "openai-responses": "resp_"}.get(wire, "")
    assert (found.id, found.model) == (f"{prefix}T", "m")
    if wire != neutral.CHAT:
        assert neutral.folds_to(found) == neutral.folds_to(answer)
        return
    # A unary chat message has one content, one reasoning and one refusal; order and boundaries are not in it.
    for kind in (neutral.Text, neutral.Refusal, neutral.Thinking):
        assert _joined(found, kind) == _joined(answer, kind)
    assert [one for one in found.parts if isinstance(one, neutral.ToolCall)] == [
        one for one in answer.parts if isinstance(one, neutral.ToolCall)
    ]
    assert (found.finish, found.usage) == (answer.finish, answer.usage)


def _joined(answer: Any, kind: type) -> dict[str, str]:
    joined: dict[str, str] = {}
    for part in answer.parts:
        if isinstance(part, kind):
            name = getattr(part, "spelling", None) or ""
            joined[name] = joined.get(name, "") + part.text  # type: ignore[attr-defined]
    if kind is neutral.Thinking and len(joined) > 1:
        # Two names at once: the reader knows one of them.
        return {"reasoning_content": joined["reasoning_content"]}
    return joined


@pytest.mark.parametrize(("wire", "other"), list(itertools.permutations(WIRES, 2)))
@given(data=st.data())
@settings(max_examples=50)
def test_a_stream_of_one_format_is_a_stream_of_the_other(wire: str, other: str, data: st.DataObject) -> None:
    """Text, calls and the end survive translation; thinking survives as text (its signature is SPEC 6.6's matter)."""
    events = data.draw(neutral.streams(wire))
    if other in (neutral.MESSAGES, neutral.GEMINI):  # no client of these has tools that take free text
        assume(not any(isinstance(event, CallStarted) and event.is_free for event in events))
    want, got = collect(events), collect(through(other, events))
    assert "".join(one.text for one in got.parts if isinstance(one, neutral.Text | neutral.Refusal)) == "".join(
        one.text for one in want.parts if isinstance(one, neutral.Text | neutral.Refusal)
    )
    assert [one for one in got.parts if isinstance(one, neutral.ToolCall)] == [
        one for one in want.parts if isinstance(one, neutral.ToolCall)
    ]
    assert want.usage is not None and got.usage is not None
    assert got.usage.all_input() == want.usage.all_input() and got.usage.output == want.usage.output


@pytest.mark.parametrize("wire", WIRES)
def test_a_long_stream_is_read_byte_by_byte(wire: str) -> None:
    """Every cut, inside of UTF-8 sequences too (SPEC 2.10)."""
    events: list[Event] = [Started(), *(TextDelta(one) for one in ("naïve ", "日本 ", "🎈"))]
    usage = UsageReported(Usage(input=1, output=2, total=3 if wire != neutral.MESSAGES else None))
    whole: list[Event] = [*events, neutral.Finished(neutral.Finish.STOP), usage, neutral.Ended()]
    assert through(wire, whole, 1) == through(wire, whole)
