"""What each event of an Anthropic stream means to the side reducer, on both sides."""

from __future__ import annotations

import json
from types import ModuleType

import pytest

from tests.twins.streams import MESSAGES, Story, block, event


def test_a_messages_stream_is_told(reduce: ModuleType) -> None:
    """The same for Anthropic's events: pings are no events, signatures no thinking."""
    story = Story(reduce, "MessagesTap", MESSAGES)
    assert story.kinds == ["START", "FINISH", "DONE"]
    assert story.facts == {
        "boundary": len(MESSAGES.encode()),
        "offset": len(MESSAGES.encode()),
        "events": 13,
        "pings": 1,
        "text_bytes": len('Grüße 🌍\n"stop_reason":"x"'.encode()),
        "thinking_bytes": 5,
        "argument_bytes": len('{"path":"/"}'),
        "finish": b"tool_use",
        "finished": True,
        "done": True,
        "errored": False,
        "tool_names": [b"ls"],
        "response_id": b"msg_1",
        "model": b"m-2",
        "usage_start": b'{"input_tokens":9,"output_tokens":1}',
        "usage_delta": b'{"output_tokens":15}',
        "cleared_tokens": None,
        "compacted": False,
    }


def test_messages_usage_is_kept_in_its_two_parts(reduce: ModuleType) -> None:
    """message_delta's counts are cumulative; a later one updates an earlier one, and null says nothing."""
    stream = event("message_start", message={"id": "m", "usage": {"input_tokens": 1}}) + "".join(
        event("message_delta", delta={"stop_reason": None}, usage=usage)
        for usage in ({"input_tokens": 7, "output_tokens": 1}, {"input_tokens": None, "output_tokens": 2})
    )
    story = Story(reduce, "MessagesTap", stream)
    assert (story.kinds, story.tap.finish, story.tap.usage_start) == (["START"], None, b'{"input_tokens":1}')
    assert json.loads(story.tap.usage_delta) == {"input_tokens": 7, "output_tokens": 2}
    assert reduce.merge(b'{"a":1,"b":2}', b'{"b":3,"a":null}') == b'{"a":1,"b":3}'
    assert (reduce.merge(None, b"{}"), reduce.merge(b"{}", None), reduce.merge(None, None)) == (b"{}", b"{}", None)


EDITED = {
    "applied_edits": [{"type": "a", "cleared_input_tokens": 50_000}, {"type": "b", "cleared_input_tokens": 15_000}]
}


def test_what_was_cleared_from_the_prompt_is_told(reduce: ModuleType) -> None:
    """Anthropic says so in the last message_delta; who says it at the start is believed until another word of it."""
    assert reduce.cleared_tokens(EDITED) == 65_000
    early = event("message_start", message={"context_management": EDITED})
    plain = event("message_delta", delta={"stop_reason": "end_turn"}, context_management=None)
    late = event("message_delta", delta={"stop_reason": "end_turn"}, context_management=EDITED)
    nothing = event("message_delta", delta={"stop_reason": "end_turn"}, context_management={"applied_edits": []})
    found = [
        Story(reduce, "MessagesTap", stream).tap.cleared_tokens for stream in (late, early + plain, plain, nothing)
    ]
    assert found == [65_000, 65_000, None, None]


@pytest.mark.parametrize(
    ("said", "tokens"),
    [
        ("soon", None),
        ([], None),
        ({}, None),
        ({"applied_edits": None}, None),
        ({"applied_edits": {"cleared_input_tokens": 1}}, None),
        ({"applied_edits": ["clear"]}, 0),
        ({"applied_edits": [{"type": "clear_tool_uses_20250919", "cleared_tool_uses": 8}]}, 0),
        ({"applied_edits": [{"cleared_input_tokens": odd} for odd in (True, -5, 1.5, "7", None, [], {})]}, 0),
        ({"applied_edits": [{"cleared_input_tokens": 10**400}, {"cleared_input_tokens": 1}]}, 10**15 - 1),
    ],
)
def test_odd_words_of_what_was_cleared_cost_no_more_than_the_count(
    reduce: ModuleType, said: object, tokens: int | None
) -> None:
    assert reduce.cleared_tokens(said) == tokens


def test_a_compaction_is_told(reduce: ModuleType) -> None:
    """It begins like any block; its text is for the prompt after this one, and none of the answer's."""
    started = event("content_block_start", index=0, content_block={"type": "compaction", "content": None})
    delta = event("content_block_delta", index=0, delta={"type": "compaction_delta", "content": "so far"})
    words = event("content_block_start", index=1, content_block={"type": "text", "text": "compaction"})
    tap = Story(reduce, "MessagesTap", started + delta + words).tap
    assert (tap.compacted, tap.text_bytes) == (True, 10)
    assert not Story(reduce, "MessagesTap", words).tap.compacted


STOP = event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 1})
ERROR = 'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"x"}}\n\n'


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([STOP, block(type="text_delta", text="x")], ["FINISH", "AFTER_FINISH"]),
        ([STOP, block(type="text_delta", text="")], ["FINISH"]),
        ([STOP, event("content_block_start", content_block={"type": "text", "text": ""})], ["FINISH", "AFTER_FINISH"]),
        ([STOP, event("content_block_stop", index=0), STOP, event("ping")], ["FINISH"]),
        ([STOP, event("message_delta", delta={"stop_reason": "max_tokens"})], ["FINISH", "AFTER_FINISH"]),
        ([event("message_stop"), STOP], ["DONE", "AFTER_FINISH"]),
        ([ERROR, block(type="text_delta", text="x")], ["ERROR", "AFTER_FINISH"]),
        ([event("message_start", message={}), event("message_start", message={})], ["START", "RESTART"]),
        ([STOP, event("message_start", message={})], ["FINISH", "AFTER_FINISH"]),
        (['data: {"type":"error","error":{}}\n\n'], ["ERROR"]),
        (['data: {"error":{"message":"x"}}\n\n'], ["ERROR"]),
        (["data: [DONE]\n\n"], ["FOREIGN"]),
        ([event("vendor_event", a=1), "data: 7\n\n", "data: {}\n\n"], ["FOREIGN"] * 3),
        (["data: {]\n\n"], ["MALFORMED"]),
        (["event: error\ndata: gone\n\n"], ["ERROR"]),
    ],
)
def test_the_order_of_messages_events_is_judged(reduce: ModuleType, events: list[str], expected: list[str]) -> None:
    """One start, output before the stop, errors by name or by shape (SPEC 2.6, 2.7)."""
    assert Story(reduce, "MessagesTap", "".join(events)).kinds == expected


def test_content_that_comes_with_its_block_is_counted(reduce: ModuleType) -> None:
    stream = event("content_block_start", content_block={"type": "text", "text": "abc"}) + event(
        "content_block_start", content_block={"type": "server_tool_use", "name": "web_search", "input": {"q": 1}}
    )
    tap = Story(reduce, "MessagesTap", stream).tap
    assert (tap.text_bytes, tap.argument_bytes, tap.tool_names) == (3, 7, [b"web_search"])
