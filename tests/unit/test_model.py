"""The neutral model: the order of events, and the fold of a stream into its answer."""

from __future__ import annotations

import msgspec
import pytest

from arbiter import model
from arbiter.errors import Cut, Garbled, InStreamError
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
    RedactedThinking,
    Refusal,
    RefusalDelta,
    Started,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ThinkingRedacted,
    ThinkingSigned,
    ToolCall,
    Usage,
    UsageReported,
)
from arbiter.order import Order, Stage

STOP = [Finished(Finish.STOP), Ended()]


def test_a_stream_folds_into_the_answer_it_was() -> None:
    """Every kind of output lands in its own part, in the order in which it began."""
    answer = collect(
        [
            Started("id", "m", Usage(input=3)),
            ThinkingDelta("a"),
            ThinkingDelta("b"),
            ThinkingSigned("sig"),
            ThinkingRedacted("secret"),
            TextDelta("He", b'{"content":[1]}'),
            TextDelta("llo", b'{"content":[2]}'),
            CallStarted(0, "c0", "f"),
            CallStarted(1, "c1", "g"),
            CallDelta(0, "{"),
            CallDelta(1, "[]"),
            CallDelta(0, "}"),
            RefusalDelta("no"),
            Finished(Finish.STOP_SEQUENCE, "END"),
            UsageReported(Usage(output=9)),
            Ended(),
        ]
    )
    assert answer == Answer(
        id="id",
        model="m",
        parts=(
            Thinking("ab", "sig"),
            RedactedThinking("secret"),
            Text("Hello"),
            ToolCall("c0", "f", "{}"),
            ToolCall("c1", "g", "[]"),
            Refusal("no"),
        ),
        finish=Finish.STOP_SEQUENCE,
        stop_sequence="END",
        usage=Usage(input=3, output=9),
        logprobs=(b'{"content":[1]}', b'{"content":[2]}'),
    )


def test_two_signed_thoughts_stay_two() -> None:
    """A signature vouches for its own block only, so what follows it is another one."""
    events: list[Event] = [ThinkingDelta("a"), ThinkingSigned("1"), ThinkingDelta("b"), ThinkingSigned("2"), *STOP]
    assert collect(events).parts == (Thinking("a", "1"), Thinking("b", "2"))


def test_a_call_without_arguments_has_an_empty_object() -> None:
    """`""` is no JSON; whoever runs the tool needs some."""
    assert collect([CallStarted(0, "c", "f"), *STOP]).parts == (ToolCall("c", "f", "{}"),)


@pytest.mark.parametrize(
    "events",
    [
        [Finished(Finish.STOP), TextDelta("more")],
        [Finished(Finish.STOP), Finished(Finish.LENGTH)],
        [Finished(Finish.STOP), Ended(), Ended()],
        [TextDelta("no reason"), Ended()],
        [TextDelta("no end")],
        [CallDelta(0, "{}"), *STOP],
        [CallStarted(0, "c", "f"), CallStarted(0, "d", "g"), *STOP],
    ],
    ids=str,
)
def test_a_stream_out_of_order_is_the_upstreams_fault(events: list[Event]) -> None:
    """SPEC 2.6: data or another reason after the finish reason, and calls that never opened, are protocol errors."""
    with pytest.raises(Garbled):
        collect(events)


def test_noise_is_swallowed() -> None:
    """A second start and a repeated equal finish change nothing (SPEC 2.6)."""
    order = Order()
    events: list[Event] = [Started(), Started(), Finished(Finish.STOP), Finished(Finish.STOP), Ended()]
    assert [order.admit(event) for event in events] == [True, False, True, False, True]


@pytest.mark.parametrize(
    ("events", "stage"),
    [
        ([], Stage.NEW),
        ([UsageReported(Usage(input=1))], Stage.OPEN),
        ([Started(), TextDelta("a")], Stage.OPEN),
        ([Finished(Finish.STOP), UsageReported(Usage(input=1))], Stage.FINISHED),
        ([Finished(Finish.STOP), Ended()], Stage.COMPLETE),
        ([TextDelta("a"), Failed(Cut("gone"))], Stage.CUT),
        ([Finished(Finish.STOP), Failed(InStreamError("busy"))], Stage.FAILED),
        ([Failed(Garbled("no SSE"))], Stage.FAILED),
    ],
    ids=str,
)
def test_how_a_stream_stands_is_known(events: list[Event], stage: Stage) -> None:
    """That it ended is not one thing: whole, cut off, or failed (SPEC 2.7)."""
    order = Order()
    for event in events:
        order.admit(event)
    assert order.stage is stage
    assert order.closed == (stage in (Stage.COMPLETE, Stage.CUT, Stage.FAILED))


def test_a_start_behind_output_is_noise() -> None:
    """One start, before everything else (SPEC 2.6)."""
    order = Order()
    assert order.admit(TextDelta("a"))
    assert not order.admit(Started())


def test_an_answer_unfolds_into_the_stream_that_folds_into_it() -> None:
    """All that an answer can hold: unsigned thoughts in a row, refusals, calls, a slice of log probabilities each."""
    answer = Answer(
        id="id",
        model="m",
        parts=(
            Thinking("a", None, "reasoning"),
            Thinking("b", None, "reasoning"),
            Thinking("", "sig"),
            RedactedThinking("secret"),
            Text("Hello"),
            ToolCall("c0", "f", "{}"),
            Refusal("no"),
            ToolCall("c1", "g", '{"x":1}'),
        ),
        finish=Finish.STOP_SEQUENCE,
        stop_sequence="END",
        usage=Usage(input=3, output=9),
        logprobs=(b'{"content":[1]}', b'{"content":[2]}'),
    )
    assert collect(unfold(answer)) == answer
    bare = Answer(finish=Finish.STOP, logprobs=(b"{}",))
    assert collect(unfold(bare)) == bare


def test_slices_that_say_nothing_leave_no_part() -> None:
    """And do not part what belongs together."""
    events = [TextDelta(""), TextDelta("a"), ThinkingDelta(""), TextDelta("b"), ThinkingSigned(""), *STOP]
    assert collect(events).parts == (Text("ab"),)


def test_reasoning_under_two_names_is_two_parts() -> None:
    """Each goes back under the name it came under."""
    events = [ThinkingDelta("a", "reasoning"), ThinkingDelta("b", "reasoning_content"), *STOP]
    assert collect(events).parts == (Thinking("a", None, "reasoning"), Thinking("b", None, "reasoning_content"))


def test_a_failed_stream_raises_its_own_error() -> None:
    error = InStreamError("busy")
    with pytest.raises(InStreamError) as caught:
        collect([TextDelta("He"), Failed(error)])
    assert caught.value is error


def test_reports_of_usage_replace_each_other() -> None:
    """SPEC 9.1: usage split over events is merged, not added; what the later one leaves out stays."""
    usage = Usage(input=5, output=1).merged(Usage(output=4, reasoning=2))
    assert usage == Usage(input=5, output=4, reasoning=2)
    assert Usage(input=5, cache_read=20, cache_write=2).all_input() == 27
    assert Usage(output=4).all_input() is None


def test_no_value_has_subclasses():
    """The formats tell parts and events by their very type: one of a subclass would be passed by in silence."""
    values = [one for one in vars(model).values() if isinstance(one, type) and issubclass(one, msgspec.Struct)]
    assert len(values) > 20
    assert [one for one in values if one.__subclasses__()] == []
