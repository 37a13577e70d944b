"""Tools that take free text, where there are only functions: what the upstream is told, and what comes back of it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbiter.fold import collect
from arbiter.model import (
    Answer,
    CallDelta,
    CallStarted,
    Ended,
    Event,
    Finish,
    Finished,
    Grammar,
    Message,
    Namespace,
    Request,
    Started,
    TextDelta,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from arbiter.wire import anthropic_messages, disguises, openai_chat, openai_responses
from arbiter.wire.disguises import Unmasking, as_functions, unmasked

PATCH = Tool("apply_patch", "Edits files.", is_free=True, grammar=Grammar("lark", "start: /.+/s"))
SAID = '*** Begin Patch\n+"é" \\ 🎈\n*** End Patch'
REQUEST = Request(
    model="m",
    messages=(
        Message("user", "Go"),
        Message("assistant", (ToolCall("c", "apply_patch", SAID, is_free=True),)),
        Message("tool", (ToolResult("c", "ok"),)),
    ),
    tools=(PATCH, Tool("f")),
    tool_choice=ToolChoice("tool", "apply_patch"),
)

texts = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('"\\\n\t\x00é🎈'), max_size=20)
cuts = st.lists(st.integers(0, 300), max_size=8)


def pieces(text: str, at: list[int]) -> list[str]:
    places = sorted({place % (len(text) + 1) for place in at})
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


def through(slices: list[str]) -> ToolCall:
    """What the client gets of a call of the patch tool with these slices of arguments."""
    unmasking = Unmasking({"apply_patch": PATCH})
    events: list[Event] = [Started(), CallStarted(0, "c", "apply_patch")]
    events += [*(CallDelta(0, one) for one in slices), Finished(Finish.TOOL_CALLS), Ended()]
    (call,) = collect(told for event in events for told in unmasking.take(event)).parts
    assert isinstance(call, ToolCall)
    return call


def test_a_function_with_one_string_takes_its_place() -> None:
    """In definitions, in the choice and in what was called before; the grammar is told in words."""
    chat = json.loads(openai_chat.build_request(REQUEST))
    tool = chat["tools"][0]["function"]
    assert tool["parameters"]["properties"].keys() == {"input"} and tool["parameters"]["required"] == ["input"]
    assert tool["description"].startswith("Edits files.\n\n") and "lark" in tool["description"]
    assert "start: /.+/s" in tool["description"]
    assert chat["tool_choice"] == {"type": "function", "function": {"name": "apply_patch"}}
    call = chat["messages"][1]["tool_calls"][0]
    assert call["type"] == "function" and json.loads(call["function"]["arguments"]) == {"input": SAID}
    messages = json.loads(anthropic_messages.build_request(REQUEST))
    assert messages["messages"][1]["content"][0]["input"] == {"input": SAID}
    assert messages["tools"][0]["input_schema"]["required"] == ["input"]
    for wire in (openai_chat, anthropic_messages):
        assert wire.disguised(REQUEST) == {"apply_patch": PATCH}


@pytest.mark.parametrize("wire", [openai_chat, openai_responses], ids=["chat", "responses"])
def test_openais_own_models_take_free_text(wire: object) -> None:
    """Both of its formats have such tools: nothing is put in their place there."""
    request = Request(model="gpt-5.2", messages=REQUEST.messages, tools=REQUEST.tools, tool_choice=REQUEST.tool_choice)
    body = wire.build_request(request)  # type: ignore[attr-defined]
    assert wire.disguised(request) == {}  # type: ignore[attr-defined]
    found = json.loads(body)
    assert [tool["type"] for tool in found["tools"]] == ["custom", "function"]
    assert found["tool_choice"]["type"] == "custom"
    assert json.dumps(SAID) in json.dumps(found) and '"format"' in json.dumps(found["tools"][0])


def test_another_makers_server_of_the_same_model_does_not() -> None:
    request = Request(model="openai/gpt-5.2", messages=REQUEST.messages, tools=REQUEST.tools)
    assert json.loads(openai_chat.build_request(request))["tools"][0]["type"] == "function"


def test_a_request_without_such_tools_is_the_very_same() -> None:
    request = Request(model="m", messages=(Message("user", "Go"),), tools=(Tool("f"),))
    assert as_functions(request) is request


@given(text=texts, at=cuts, ascii=st.booleans(), before=st.sampled_from(["", " ", "\n"]))
def test_input_is_free_text_again_however_it_is_cut(text: str, at: list[int], ascii: bool, before: str) -> None:
    """Escapes and pairs of surrogates may be cut in the middle; blanks may stand anywhere between the tokens."""
    arguments = f'{before}{{{before}"input"{before}:{before}{json.dumps(text, ensure_ascii=ascii)}{before}}}'
    assert through(pieces(arguments, at)) == ToolCall("c", "apply_patch", text, is_free=True)
    whole = Answer(parts=(ToolCall("c", "apply_patch", arguments),))
    assert unmasked(whole, {"apply_patch": PATCH}).parts == (ToolCall("c", "apply_patch", text, is_free=True),)


def test_it_arrives_as_it_is_written() -> None:
    """No slice waits for the end of the call."""
    unmasking = Unmasking({"apply_patch": PATCH})
    slices = ['{"inp', 'ut": "*** Be', "gin\\", 'n+a"', "}"]
    told = [
        list(unmasking.take(event))
        for event in (CallStarted(0, "c", "apply_patch"), *(CallDelta(0, one) for one in slices))
    ]
    assert told[0] == [CallStarted(0, "c", "apply_patch", True)]
    assert told[1:] == [[], [CallDelta(0, "*** Be")], [CallDelta(0, "gin")], [CallDelta(0, "\n+a")], []]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("*** Begin Patch", "*** Begin Patch"),  # as it was told that the tool takes it
        ('{"patch":"a\\nb"}', "a\nb"),
        ('{"why":"because","input":"a"}', "a"),
        ('{"a":"1","b":"2"}', '{"a":"1","b":"2"}'),
        ('{"input":["a"]}', '{"input":["a"]}'),
        ('"a"', '"a"'),
        ("", ""),
        ("{}", "{}"),
        ('{"inp', ""),
        ('{"input":"a\\u00', "a"),
        ('{"input":"a\nb\\d \\ud83d"}', "a\nb\\d \N{REPLACEMENT CHARACTER}"),
        ('{"input":"a"}}  ', "a"),
    ],
)
def test_what_is_not_as_it_should_be_is_still_told(arguments: str, text: str) -> None:
    """Models forget the object, name its member otherwise, or are cut off."""
    assert through([arguments]).arguments == text
    assert through(list(arguments)).arguments == text


@pytest.mark.parametrize("first", ["", "{", '{"input"', '{"input":', "***", '{"patch":"'])
def test_no_slice_is_looked_at_again_and_again(first: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many slices the opening is cut into, or do not have one."""
    seen = []

    class Counting:
        def match(self, text: str) -> object:
            seen.append(len(text))
            return opening.match(text)

    opening = disguises._OPENING
    monkeypatch.setattr(disguises, "_OPENING", Counting())
    through([first, *" " * 100_000])
    assert max(seen) < 20


@pytest.mark.parametrize("text", ["  a", " {a", '{ "b'])
def test_blanks_of_a_text_that_came_as_it_is_stay(text: str) -> None:
    assert through([text]).arguments == through(list(text)).arguments == text


def test_an_escaped_backslash_is_no_half_of_a_pair() -> None:
    arguments = json.dumps({"input": "\\ud83d\\\\ud83d"})
    assert through([arguments[:-2], arguments[-2:]]).arguments == "\\ud83d\\\\ud83d"


def test_other_calls_pass_as_they_are() -> None:
    unmasking = Unmasking({"short_1": Tool("a long name"), "apply_patch": PATCH})
    events: list[Event] = [
        TextDelta("a"),
        CallStarted(0, "c", "short_1"),
        CallDelta(0, '{"input":"x"}'),
        CallStarted(1, "d", "apply_patch"),
        CallDelta(0, " "),
        CallDelta(1, '{"input":"y"}'),
    ]
    told = [one for event in events for one in unmasking.take(event)]
    assert told == [
        TextDelta("a"),
        CallStarted(0, "c", "a long name"),
        CallDelta(0, '{"input":"x"}'),
        CallStarted(1, "d", "apply_patch", True),
        CallDelta(0, " "),
        CallDelta(1, "y"),
    ]
    assert not unmasking.changes(0) and unmasking.changes(1)


def test_the_group_of_a_tool_stays() -> None:
    free = Tool("g__a", is_free=True, namespace=Namespace("g", "d"))
    (tool,) = as_functions(Request(model="m", messages=(), tools=(free,))).tools
    assert isinstance(tool, Tool) and tool.namespace == Namespace("g", "d") and not tool.is_free
