"""Calls and results in a history: what OpenAI would refuse is put right, and what is right is left alone."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbiter.model import Image, Message, Opaque, Request, Text, ToolCall, ToolResult
from arbiter.wire import openai_chat, openai_responses
from arbiter.wire.answered import in_turns
from arbiter.wire.results import ORPHANED, UNANSWERED

GO = Message("user", "Go")
OK = Message("assistant", "Ok.")


def calls(*ids: str, text: str = "") -> Message:
    return Message("assistant", (*([Text(text)] if text else []), *(ToolCall(one, "f", "{}") for one in ids)))


def result(call_id: str, text: str = "sun") -> Message:
    return Message("tool", (ToolResult(call_id, text),))


def chat(*messages: Message, model: str = "gpt-4.1") -> list[Any]:
    return list(json.loads(openai_chat.build_request(Request(model=model, messages=messages)))["messages"])


def responses(*messages: Message, **members: Any) -> list[Any]:
    request = Request(model="gpt-5.2", messages=messages, **members)
    return list(json.loads(openai_responses.build_request(request))["input"])


def told(messages: list[Any]) -> list[tuple[str, str]]:
    """Of a chat: who says what; of a result its id, of calls theirs."""
    found = []
    for one in messages:
        ids = ",".join(call["id"] for call in one.get("tool_calls", ()))
        found.append((one["role"], one.get("tool_call_id") or ids or one["content"]))
    return found


def items(built: list[Any]) -> list[tuple[str, str]]:
    return [(one.get("type", one.get("role")), one.get("call_id") or one.get("content")) for one in built]


MISSING = f"Error: {UNANSWERED}"


def test_a_call_that_nobody_answered_gets_a_result_that_says_so() -> None:
    """OpenAI: `An assistant message with 'tool_calls' must be followed by tool messages`, `No tool output found`."""
    messages = (GO, calls("a", "b"), result("b"), Message("user", "Stop"), OK, GO)
    built = chat(*messages)
    assert told(built)[1:5] == [("assistant", "a,b"), ("tool", "b"), ("tool", "a"), ("user", "Stop")]
    assert built[3]["content"] == MISSING
    sent = responses(*messages)
    assert items(sent)[1:5] == [
        ("function_call", "a"),
        ("function_call", "b"),
        ("function_call_output", "a"),
        ("function_call_output", "b"),
    ]
    assert sent[3]["output"] == MISSING


@pytest.mark.parametrize("text", ["sun", ""])
def test_a_result_without_its_call_is_told_as_text(text: str) -> None:
    """A history that was cut, or a second result of one call."""
    messages = (GO, result("gone", text), calls("a"), result("a"), result("a", "again"), OK, GO)
    said = f"{ORPHANED}\n\n{text}" if text else ORPHANED
    built = told(chat(*messages))
    assert built[1] == ("user", said) and built[4] == ("user", f"{ORPHANED}\n\nagain")
    assert items(responses(*messages))[1] == ("user", said)


def test_what_stands_elsewhere_may_hold_the_call() -> None:
    messages = (result("there"), GO)
    assert items(responses(*messages, previous_id="resp_1"))[0] == ("function_call_output", "there")
    reference = Message("assistant", (Opaque("openai-responses", b'{"type":"item_reference","id":"fc_1"}'),))
    assert items(responses(reference, *messages))[1] == ("function_call_output", "there")
    unknown = Message("assistant", (ToolCall("a", "f", "{}"), Opaque("openai-chat", b'{"type":"new"}')))
    interrupted = Message("tool", (ToolResult("a", UNANSWERED, is_error=True),))
    assert list(in_turns((unknown, result("there")))) == [unknown, result("there"), interrupted]


def test_calls_of_one_turn_in_several_messages_are_one() -> None:
    """Anthropic takes turns of the assistant that follow one another; OpenAI wants the results behind each."""
    built = told(chat(GO, calls("a", text="Hm."), calls("b"), OK, result("b"), result("a"), GO))
    assert built == [("user", "Go"), ("assistant", "a,b"), ("tool", "b"), ("tool", "a"), ("user", "Go")]
    assert told(chat(GO, OK, calls("a"), result("a")))[1:3] == [("assistant", "Ok."), ("assistant", "a")]


def test_two_calls_of_one_id_are_told_apart() -> None:
    """Some servers call everything `call_0`; of one id, the first result is the first call's."""
    built = chat(GO, calls("c", "c", "c_2", "c"), result("c", "one"), result("c", "two"), result("c_2", "three"), GO)
    assert told(built)[1:6] == [
        ("assistant", "c,c_3,c_2,c_4"),
        ("tool", "c"),
        ("tool", "c_3"),
        ("tool", "c_2"),
        ("tool", "c_4"),
    ]
    assert [one["content"] for one in built[2:6]] == ["one", "two", "three", MISSING]


@pytest.mark.parametrize(
    ("told", "sent"),
    [
        (("a", "a", "a_2"), ["a", "a_3", "a_2"]),
        (("a_2", "a", "a"), ["a_2", "a", "a_3"]),
        (("a", "a", "a"), ["a", "a_2", "a_3"]),
    ],
)
def test_an_id_that_is_made_for_responses_is_no_other_calls(told: tuple[str, ...], sent: list[str]) -> None:
    """However they are told apart, each result stands under the id that its call was sent with."""
    built = responses(GO, calls(*told), *map(result, told), GO)
    assert [one["call_id"] for one in built if one.get("type") == "function_call"] == sent
    assert [one["call_id"] for one in built if one.get("type") == "function_call_output"] == sent


def test_a_later_call_with_an_id_that_was_made_gets_another() -> None:
    """The made one stays as it was sent, or the prompt before it would be another."""
    history = (GO, calls("a", "a"), result("a"), OK, calls("a_2"))
    assert [one["call_id"] for one in responses(*history, GO) if one.get("type") == "function_call"][:2] == ["a", "a_2"]


def test_a_function_and_free_text_of_one_id_have_each_a_result_of_their_kind() -> None:
    both = Message("assistant", (ToolCall("a", "f", "{}"), ToolCall("a", "g", "text", is_free=True)))
    built = responses(GO, both, result("a", "one"), result("a", "two"), GO)
    assert [(one["type"], one["call_id"], one["output"]) for one in built if "output" in one] == [
        ("function_call_output", "a", "one"),
        ("custom_tool_call_output", "a_2", "two"),
    ]


def test_a_result_belongs_to_the_latest_turn_that_lacks_it() -> None:
    messages = (GO, calls("c"), GO, calls("c"), result("c", "now"), OK, GO)
    assert [one["content"] for one in chat(*messages) if one["role"] == "tool"] == [MISSING, "now"]
    outputs = [one["output"] for one in responses(*messages) if one.get("type") == "function_call_output"]
    assert outputs == [MISSING, "now"]


def test_an_empty_id_is_sent_as_one() -> None:
    assert told(chat(GO, calls(""), result("")))[1:] == [("assistant", "call"), ("tool", "call")]


ids = st.sampled_from(["a", "b", "a_2", ""])
turns = st.lists(
    st.one_of(
        st.just(GO),
        st.just(OK),
        st.lists(ids, min_size=1, max_size=3).map(lambda some: calls(*some)),
        ids.map(result),
        st.just(Message("tool", (ToolResult("a", (Image(media_type="image/png", data="AAAA"),)),))),
    ),
    max_size=9,
)


@given(turns)
def test_whatever_the_history_is_openai_takes_it(history: list[Message]) -> None:
    """Each message with calls is followed by its results and nothing else; and no result stands anywhere else."""
    built = chat(*history, OK, GO)
    place = 0
    while place < len(built):
        one = built[place]
        place += 1
        assert one["role"] != "tool"
        called = [call["id"] for call in one.get("tool_calls", ())]
        answered = list(itertools.takewhile(lambda one: one["role"] == "tool", built[place:]))
        place += len(answered)
        assert sorted(one["tool_call_id"] for one in answered) == sorted(called) and len(set(called)) == len(called)
    waiting: dict[str, int] = {}
    for item in responses(*history, OK, GO):
        if item.get("type") == "function_call":
            waiting[item["call_id"]] = waiting.get(item["call_id"], 0) + 1
            assert waiting[item["call_id"]] == 1  # no two wait with one id
        elif item.get("type") == "function_call_output":
            waiting[item["call_id"]] -= 1
            assert waiting[item["call_id"]] >= 0
    assert not any(waiting.values())


@given(turns)
def test_each_message_only_adds(history: list[Message]) -> None:
    """SPEC 2.4: what was built up to an answer stays as it is, whatever follows."""
    whole = chat(*history, OK, GO)
    for end in range(len(history)):
        if history[end].role == "assistant":
            continue
        begun = chat(*history[: end + 1])
        following = history[end + 1] if end + 1 < len(history) else OK
        if following is OK:
            assert whole[: len(begun)] == begun
