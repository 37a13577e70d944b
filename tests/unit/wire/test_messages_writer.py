"""Anthropic Messages streams, outwards: one block at a time."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from arbiter.errors import Garbled, InStreamError
from arbiter.fold import collect
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
    Thinking,
    ThinkingDelta,
    ThinkingRedacted,
    ThinkingSigned,
    Usage,
    UsageReported,
)
from arbiter.wire import anthropic_messages, native
from arbiter.wire.messages_writer import MessagesWriter
from arbiter.wire.moulds import Moulds
from arbiter.wire.vault import UNSIGNED


def write(*events: Event) -> list[dict[str, Any]]:
    writer = anthropic_messages.writer("T", "m", 0)
    out = b"".join(writer.write(event) for event in events).decode()
    written = []
    for part in out.split("\n\n")[:-1]:
        name, data = part.split("\n")
        payload = json.loads(data.removeprefix("data: "))
        assert name == f"event: {payload['type']}"
        written.append(payload)
    return written


def writes(writer: MessagesWriter, events: list[Event]) -> bytes:
    return b"".join(writer.write(event) for event in events)


def shape(written: list[dict[str, Any]]) -> list[str]:
    """Each event as a word: what opens, what is added, what closes."""
    words = []
    for one in written:
        kind = one["type"].removeprefix("content_block_")
        if kind == "start":
            kind = f"+{one['index']}:{one['content_block']['type']}"
        elif kind == "delta":
            kind = f"{one['index']}:{one['delta']['type'].removesuffix('_delta')}"
        elif kind == "stop":
            kind = f"-{one['index']}"
        words.append(kind)
    return words


END: list[Event] = [Finished(Finish.STOP), Ended()]
CALLED: list[Event] = [Finished(Finish.TOOL_CALLS), Ended()]


def test_blocks_open_and_close_one_by_one() -> None:
    """SPEC 2.6: indexes without gaps, every block closed, one stop. Text that resumes is another block (a2o-009)."""
    written = write(
        Started(),
        ThinkingDelta("Hm"),
        TextDelta("Hel"),
        ThinkingDelta("again"),
        ThinkingSigned("sig"),
        ThinkingRedacted("secret"),
        TextDelta("lo"),
        RefusalDelta("!"),
        CallStarted(0, "a", "f"),
        CallDelta(0, "{}"),
        Finished(Finish.TOOL_CALLS),
        Ended(),
    )
    assert shape(written) == [
        *("message_start", "+0:thinking", "0:thinking", "0:signature", "-0", "+1:text", "1:text", "-1"),
        *("+2:thinking", "2:thinking", "2:signature", "-2", "+3:redacted_thinking", "-3"),
        *("+4:text", "4:text", "4:text", "-4", "+5:tool_use", "5:input_json", "-5", "message_delta", "message_stop"),
    ]
    assert written[0]["message"]["id"] == "msg_T" and written[0]["message"]["model"] == "m"
    empty = {"stop_sequence": None, "stop_details": None, "container": None}
    assert written[-2]["delta"] == {"stop_reason": "tool_use", **empty}


def test_an_empty_answer_has_no_blocks() -> None:
    assert shape(write(Started(), TextDelta(""), *END)) == ["message_start", "message_delta", "message_stop"]


def test_usage_after_the_finish_is_in_the_one_message_delta() -> None:
    """fin-003, use-006: whenever it comes and however often, the last word is told once."""
    usage = Usage(input=86, cache_read=1920, cache_write=5, output=300, reasoning=7)
    early = UsageReported(Usage(input=86, output=1))
    written = write(Started(), early, TextDelta("Hi"), Finished(Finish.STOP), UsageReported(usage), Ended())
    told = [one["usage"] for one in written if one["type"] == "message_delta"]
    assert told == [
        {
            "input_tokens": 86,
            "cache_creation_input_tokens": 5,
            "cache_read_input_tokens": 1920,
            "output_tokens": 300,
            "output_tokens_details": {"thinking_tokens": 7},
            "server_tool_use": None,
        }
    ]


def test_what_is_known_at_the_start_is_told_at_the_start() -> None:
    usage = Usage(input=9, cache_write=100, cache_write_5m=60, cache_write_1h=40, output=1)
    told = write(Started(usage=usage), *END)[0]["message"]["usage"]
    assert {name: count for name, count in told.items() if count is not None} == {
        "input_tokens": 9,
        "cache_creation_input_tokens": 100,
        "cache_creation": {"ephemeral_5m_input_tokens": 60, "ephemeral_1h_input_tokens": 40},
        "output_tokens": 1,
    }


def test_calls_one_after_the_other_are_never_held_back() -> None:
    """SPEC 2.2: fragment by fragment."""
    writer = anthropic_messages.writer("T", "m", 0)
    for index in (0, 1):
        assert b"tool_use" in writer.write(CallStarted(index, f"c{index}", "f"))
        assert b'{\\"a\\"' in writer.write(CallDelta(index, '{"a"'))
        assert b":1}" in writer.write(CallDelta(index, ":1}"))


def test_interleaved_calls_are_put_in_order() -> None:
    """Two open blocks at once would break every reader of this format; nothing is lost or mixed up instead."""
    written = write(
        CallStarted(0, "a", "f"),
        CallDelta(0, '{"x"'),
        CallStarted(1, "b", "g"),
        CallDelta(1, '{"y"'),
        CallStarted(2, "c", "h"),
        CallDelta(2, "{}"),
        CallDelta(0, ":1}"),
        CallDelta(1, ":2}"),
        *END,
    )
    inputs: dict[str, str] = {}
    current = ""
    for one in written:
        if one["type"] == "content_block_start":
            current = one["content_block"]["id"]
        elif one["type"] == "content_block_delta":
            inputs[current] = inputs.get(current, "") + one["delta"]["partial_json"]
    assert inputs == {"a": '{"x":1}', "b": '{"y":2}', "c": "{}"}
    assert [word for word in shape(written) if word[0] in "+-"] == [
        *("+0:tool_use", "-0", "+1:tool_use", "-1", "+2:tool_use", "-2")
    ]


def test_calls_that_never_become_whole_are_written_at_the_end() -> None:
    """A call without arguments, or one cut off by the limit, must not swallow the next one."""
    written = write(CallStarted(0, "a", "f"), CallStarted(1, "b", "g"), CallDelta(1, "{}"), TextDelta("so"), *END)
    assert shape(written)[1:-2] == [
        *("+0:tool_use", "-0", "+1:tool_use", "1:input_json", "-1", "+2:text", "2:text", "-2")
    ]


def test_text_between_the_slices_of_a_call_waits_for_its_end() -> None:
    """A block that was closed cannot open again, so what belongs elsewhere comes behind it."""
    written = write(CallStarted(0, "a", "f"), CallDelta(0, '{"x"'), TextDelta("so"), CallDelta(0, ":1}"), *CALLED)
    assert shape(written)[1:-2] == [*("+0:tool_use", "0:input_json", "0:input_json", "-0", "+1:text", "1:text", "-1")]


def test_arguments_for_a_call_that_ended_are_the_upstreams_fault() -> None:
    """But for blanks, which say nothing."""
    writer = anthropic_messages.writer("T", "m", 0)
    for event in (CallStarted(0, "a", "f"), CallDelta(0, "{}"), TextDelta("so")):
        writer.write(event)
    assert writer.write(CallDelta(0, " ")) == b""
    with pytest.raises(Garbled):
        writer.write(CallDelta(0, "{}"))
    with pytest.raises(Garbled):
        writer.write(CallDelta(1, "{}"))


def test_a_call_that_had_no_arguments_when_text_follows_has_none() -> None:
    """SPEC 2.2: it never gets any where one thing comes after the other, and nobody waits for the end to be sure."""
    for other in (TextDelta("so"), ThinkingDelta("Hm")):
        writer = anthropic_messages.writer("T", "m", 0)
        writer.write(CallStarted(0, "a", "f"))
        told = writer.write(other)
        assert told.count(b"content_block_stop") == 2 == told.count(b"content_block_delta")  # in both lines
        assert writer.moulds() != Moulds()
        with pytest.raises(Garbled):  # told too late: an agent must not run the call without them
            writer.write(CallDelta(0, "{}"))


def test_another_call_says_nothing_of_one_without_arguments() -> None:
    """Its own may still come; where none do, the others' leave when the model has finished."""
    opened: list[Event] = [CallStarted(0, "a", "f"), CallStarted(1, "b", "g"), CallDelta(1, '{"y":2}')]
    late = write(*opened, CallDelta(0, '{"x":1}'), *END)
    assert shape(late)[1:-2] == [
        *("+0:tool_use", "0:input_json", "-0"),
        *("+1:tool_use", "1:input_json", "-1"),
    ]
    assert shape(write(*opened, *END))[1:-2] == ["+0:tool_use", "-0", "+1:tool_use", "1:input_json", "-1"]


def test_calls_may_all_open_before_the_first_arguments() -> None:
    """Whose come first does not matter, nor in which order the others' follow."""
    a, b, c = (CallStarted(index, id, "f") for index, id in enumerate("abc"))
    within = [a, CallDelta(0, '{"x"'), b, CallDelta(0, ":1}"), c, CallDelta(2, '{"z":3}'), CallDelta(1, '{"y":2}')]
    opened = [a, b, c, CallDelta(0, '{"x"'), CallDelta(2, '{"z":3}'), CallDelta(0, ":1}"), CallDelta(1, '{"y":2}')]
    for events in (within, opened):
        assert shape(write(*events, *END))[1:-2] == [
            *("+0:tool_use", "0:input_json", "0:input_json", "-0", "+1:tool_use", "1:input_json", "-1"),
            *("+2:tool_use", "2:input_json", "-2"),
        ]


def test_what_waits_has_a_bound() -> None:
    """An upstream cannot make us hold a stream's worth of output, neither in long pieces nor in many."""
    endless: list[list[Event]] = [
        [TextDelta("x" * (1 << 20))],
        [TextDelta("x"), ThinkingDelta("y")],
        [ThinkingSigned("")],
        [CallDelta(1, "x" * (1 << 10))],
    ]
    for events in endless:
        writer = anthropic_messages.writer("T", "m", 0)
        writes(writer, [CallStarted(0, "a", "f"), CallDelta(0, "{"), CallStarted(1, "b", "g")])
        with pytest.raises(Garbled, match="interleaves"):
            writes(writer, events * (1 << 13))


def test_what_waits_is_kept_joined() -> None:
    """A file written by one of two calls at once may come in hundreds of thousands of slices."""
    writer = anthropic_messages.writer("T", "m", 0)
    writes(writer, [CallStarted(0, "a", "f"), CallDelta(0, "{"), CallStarted(1, "b", "g"), CallDelta(1, '{"x":"')])
    tracemalloc.start()
    for _ in range(200_000):
        writer.write(CallDelta(1, "ab"))
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held < 1 << 20
    told = writer.write(CallDelta(0, "}")) + writer.write(CallDelta(1, '"}'))
    assert told.count(b"ab") == 200_000


@pytest.mark.parametrize("arguments", ["5", "null", '"a\\"b"', "[1]", "tru", ' \n{"a":1}', '{"a":{}}', "", " "])
def test_arguments_that_are_no_object_are_told_as_in_a_whole_answer(arguments: str) -> None:
    """An input is an object; what else a model says stays readable inside of one, however it is cut."""
    said: list[Event] = [CallStarted(0, "a", "f"), *(CallDelta(0, one) for one in arguments)]
    events = [Started(), *said, CallStarted(1, "b", "f"), CallDelta(1, "{}"), *CALLED]
    inputs = ["", ""]
    for one in write(*events):
        if one["type"] == "content_block_delta":
            inputs[one["index"]] += one["delta"]["partial_json"]
    whole = json.loads(anthropic_messages.write_answer(collect(events), "T", "m", 0))["content"]
    assert [json.loads(one or "{}") for one in inputs] == [block["input"] for block in whole]


def test_the_model_that_answered_is_named() -> None:
    """The upstream's own word where it says one, else what was asked for."""
    assert write(Started(model="claude-x"), *END)[0]["message"]["model"] == "claude-x"
    assert write(Started(), *END)[0]["message"]["model"] == "m"


def test_thinking_that_ended_without_a_signature_is_a_block_of_its_own() -> None:
    written = write(ThinkingDelta("a"), ThinkingSigned(""), ThinkingDelta("b"), *END)
    assert shape(written)[1:-2] == [
        *("+0:thinking", "0:thinking", "0:signature", "-0", "+1:thinking", "1:thinking", "1:signature", "-1")
    ]
    signatures = {one["delta"].get("signature") for one in written if one["type"] == "content_block_delta"}
    assert signatures == {None, UNSIGNED}
    whole = json.loads(anthropic_messages.write_answer(Answer(parts=(Thinking("a"),)), "T", "m", 0))["content"]
    assert whole == [{"type": "thinking", "thinking": "a", "signature": UNSIGNED}]
    asked = {"model": "m", "max_tokens": 9, "messages": [{"role": "assistant", "content": whole}]}
    opened = native.open_body(json.dumps(asked).encode())
    (turn,) = anthropic_messages.parse_request(opened.members).messages
    assert turn.content == (Thinking("a"),)


def test_moulds_are_those_of_the_open_block() -> None:
    """Text may pass by only inside text, reasoning inside thinking, arguments inside their call; nothing between."""
    writer = anthropic_messages.writer("T", "m", 0)
    assert writer.moulds() == Moulds()
    writer.write(Started())
    assert writer.moulds() == Moulds()
    writer.write(ThinkingDelta("a"))
    thinking = writer.moulds()
    assert thinking.reasoning_content == thinking.reasoning is not None and thinking.text is thinking.arguments is None
    writer.write(TextDelta("a"))
    assert writer.moulds().text is not None and writer.moulds().reasoning is None
    writer.write(CallStarted(0, "a", "f"))
    assert writer.moulds() == Moulds()  # whether its arguments are an object is not known yet
    writer.write(CallDelta(0, "{"))
    inside = writer.moulds()
    assert inside.arguments is not None and (inside.call, inside.keep) == (0, True) and inside.text is None
    writer.write(CallStarted(1, "b", "g"))  # it waits: the writer must see when the first is whole
    assert writer.moulds() == Moulds()
    writer.write(CallDelta(0, "}"))
    writer.write(CallDelta(1, "{"))
    assert writer.moulds().call == 1
    writer.write(Finished(Finish.TOOL_CALLS))
    assert writer.moulds() == Moulds()


def test_a_call_whose_arguments_passed_by_is_known_to_be_whole() -> None:
    """The writer is told of them afterwards, so the next call need not wait."""
    writer = anthropic_messages.writer("T", "m", 0)
    writer.write(CallStarted(0, "a", "f"))
    writer.carried('{"x":')
    writer.carried('"}"}')
    assert b"tool_use" in writer.write(CallStarted(1, "b", "g"))


def test_a_failed_stream_ends_with_its_error_and_no_stop() -> None:
    written = write(TextDelta("Hel"), Failed(InStreamError("engine queue full")))
    assert written[-1]["error"]["message"] == "engine queue full"
    assert "message_stop" not in shape(written) and "message_delta" not in shape(written)
