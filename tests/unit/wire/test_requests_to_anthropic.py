"""Requests of chat clients as Anthropic's servers get them: turns, calls and results, parts, tools, parameters."""

from __future__ import annotations

import itertools
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arbiter.errors import BadRequest, ProtocolUnsupported
from arbiter.model import Image, Message, Part, Request, Target, Text, ToolCall, ToolResult
from arbiter.wire import anthropic_messages as messages
from arbiter.wire import openai_chat as chat
from arbiter.wire.results import ORPHANED, UNANSWERED

UNMARKED = Target(prompt_cache="off")


def parse(body: dict[str, Any] | bytes) -> Request:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return chat.parse_request(msgspec.json.decode(raw, type=dict[str, msgspec.Raw]))


def sent(*said: dict[str, Any], target: Target = UNMARKED, model: str = "m", **members: Any) -> Any:
    """What goes upstream for a chat request."""
    return json.loads(messages.build_request(parse({"model": model, "messages": list(said), **members}), target))


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: Any = None, **calls: str) -> dict[str, Any]:
    made = [{"id": one, "type": "function", "function": {"name": "f", "arguments": calls[one]}} for one in calls]
    return {"role": "assistant", "content": content, **({"tool_calls": made} if made else {})}


def tool(call_id: str, content: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def kinds(turn: dict[str, Any]) -> list[str]:
    return [block["type"] for block in turn["content"]]


def parts(content: Any) -> Any:
    """The blocks of one user message."""
    return sent(user([content] if isinstance(content, dict) else content))["messages"][0]["content"]


# --- Turns ------------------------------------------------------------------------------------------------------------


def test_instructions_in_the_middle_stay_there_and_are_not_the_users_words() -> None:
    """Few models take a role of their own for them, and only in some places; at the head they would change the past."""
    built = sent({"role": "system", "content": "A"}, user("Hi"), assistant("Ho"), {"role": "developer", "content": "B"})
    assert built["system"] == "A"
    assert [turn["role"] for turn in built["messages"]] == ["user", "assistant", "user"]
    assert built["messages"][2]["content"][0]["text"] == "<system-reminder>\nB\n</system-reminder>"


def test_a_turn_keeps_its_shape_when_the_client_forgets_the_reasoning_beside_it() -> None:
    """Reasoning without a signature stays here; the words beside it were a bare string, and leave as one (SPEC 2.4)."""
    remembered = {**assistant("Ho"), "reasoning_content": "hm"}
    assert sent(user("Hi"), remembered, user("So?")) == sent(user("Hi"), assistant("Ho"), user("So?"))
    assert sent(user("Hi"), remembered, user("So?"))["messages"][1]["content"] == "Ho"


def test_results_follow_their_calls_in_the_order_of_the_calls() -> None:
    """Whatever stands in between (a steering message of the agent) comes behind them."""
    built = sent(
        user("Go"),
        assistant(a="{}", b="{}"),
        {"role": "system", "content": "Hurry."},
        tool("b", "two"),
        tool("a", "one"),
        user("And?"),
    )
    assert kinds(built["messages"][2]) == ["tool_result", "tool_result", "text", "text"]
    assert [block.get("tool_use_id") for block in built["messages"][2]["content"][:2]] == ["a", "b"]
    assert built["messages"][2]["content"][0]["content"] == "one"
    assert "Hurry." in built["messages"][2]["content"][2]["text"]


def test_calls_in_several_messages_are_one_turn() -> None:
    """Converters send each parallel call, and the words beside it, as a message of its own."""
    built = sent(user("Go"), assistant(a="{}"), assistant("Hm"), assistant(b="{}"), tool("a", "1"), tool("b", "2"))
    assert [turn["role"] for turn in built["messages"]] == ["user", "assistant", "user"]
    assert kinds(built["messages"][1]) == ["tool_use", "text", "tool_use"]


def test_a_call_that_nobody_answered_gets_a_result_that_says_so() -> None:
    """An agent was interrupted. A call without a result is a 400 that would come again in every later turn."""
    built = sent(user("Go"), assistant(a="{}", b="{}"), tool("b", "two"), user("Stop"), assistant("Yes"), user("Go"))
    results = built["messages"][2]["content"]
    assert results[0] == {"type": "tool_result", "tool_use_id": "a", "content": UNANSWERED, "is_error": True}
    assert results[1]["content"] == "two" and results[2] == {"type": "text", "text": "Stop"}


def test_a_result_without_its_call_is_told_as_text() -> None:
    """An agent cut its history, or answered one call twice."""
    built = sent(user("Go"), tool("gone", "sun"), assistant(a="{}"), tool("a", "1"), tool("a", "2"))
    assert [block["text"] for block in built["messages"][1]["content"]] == [ORPHANED, "sun"]
    assert kinds(built["messages"][-1]) == ["tool_result", "text", "text"]
    assert built["messages"][-1]["content"][2]["text"] == "2"


PICTURE = Image(media_type="image/png", data="iVBORw0KGgo=")


@pytest.mark.parametrize(
    ("content", "told", "is_error"),
    [
        ((PICTURE,), ["Error:", "image"], None),
        ((Text("no"), PICTURE), ["Error:", "no", "image"], None),
        ((Text("no"), Text("really")), ["no", "really"], True),
    ],
)
def test_a_failed_result_with_more_than_text_says_it_in_words(
    content: tuple[Part, ...], told: list[str], is_error: bool | None
) -> None:
    """Anthropic: `all content must be type "text" if "is_error" is true`."""
    said = (
        Message("user", "Go"),
        Message("assistant", (ToolCall("a", "f", "{}"),)),
        Message("tool", (ToolResult("a", content, is_error=True),)),
    )
    built = json.loads(messages.build_request(Request(model="m", messages=said), UNMARKED))
    (result,) = built["messages"][-1]["content"]
    assert [block.get("text") or block["type"] for block in result["content"]] == told
    assert result.get("is_error") is is_error


def test_ids_become_what_anthropic_takes_and_differ() -> None:
    """Kimi's `functions.bash:0` has letters that are refused, and some servers count from zero in each turn."""
    kimi = "functions.bash:0"
    built = sent(
        user("Go"), assistant(**{kimi: "{}"}), tool(kimi, "1"), assistant(**{kimi: "{}"}), tool(kimi, "2"), user("x")
    )
    ids = [turn["content"][0]["id"] for turn in built["messages"] if turn["role"] == "assistant"]
    results = [built["messages"][n]["content"][0] for n in (2, 4)]
    assert ids == ["functions_bash_0", "functions_bash_0_2"]
    assert [(one["tool_use_id"], one["content"]) for one in results] == list(zip(ids, ["1", "2"], strict=True))


def test_calls_of_one_turn_with_one_id_keep_their_results() -> None:
    """No id at all is also one id; the results come in order."""
    call = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
    built = sent(user("Go"), {"role": "assistant", "tool_calls": [call, call]}, tool("", "1"), tool("", "2"))
    ids = [block["id"] for block in built["messages"][1]["content"]]
    assert ids == ["call", "call_2"]
    assert [(one["tool_use_id"], one["content"]) for one in built["messages"][2]["content"]] == [
        ("call", "1"),
        ("call_2", "2"),
    ]


def test_blank_text_never_leaves() -> None:
    """Anthropic refuses it anywhere; where words must be, a full stop stands for none."""
    built = sent(
        {"role": "system", "content": " \n"},
        user(" "),
        assistant("\n"),
        user([{"type": "text", "text": " "}, {"type": "text", "text": "Hi"}]),
        assistant([{"type": "text", "text": ""}]),
        user(""),
    )
    assert "system" not in built
    assert [turn["content"] for turn in built["messages"]] == [".", [{"type": "text", "text": "Hi"}], "."]


def test_the_first_turn_is_the_users() -> None:
    assert sent(assistant("Welcome."), user("Hi"))["messages"][0] == {"role": "user", "content": "."}
    assert sent({"role": "system", "content": "Say hello."})["messages"] == [user("Say hello.")]


def test_the_beginning_of_an_answer_does_not_end_in_blanks() -> None:
    """Anthropic refuses it; earlier turns keep theirs."""
    built = sent(user("Go"), assistant("One. "), user("And?"), assistant("Two: \n"))
    assert [turn["content"] for turn in built["messages"]] == ["Go", "One. ", "And?", "Two:"]
    built = sent(user("Go"), assistant("Two: \n"), target=Target(prompt_cache="arbiter"))
    assert built["messages"][1]["content"] == [{"type": "text", "text": "Two:"}]


def test_calls_of_before_there_were_tools_are_calls() -> None:
    """`functions`, `function_call` and role `function`."""
    built = sent(
        user("Go"),
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"a":1}'}},
        {"role": "function", "name": "f", "content": "sun"},
        functions=[{"name": "f", "parameters": {"type": "object"}}],
        function_call={"name": "f"},
    )
    assert built["messages"][1]["content"] == [{"type": "tool_use", "id": "call_1", "name": "f", "input": {"a": 1}}]
    assert built["messages"][2]["content"] == [{"type": "tool_result", "tool_use_id": "call_1", "content": "sun"}]
    assert built["tools"] == [{"name": "f", "input_schema": {"type": "object"}}]
    assert built["tool_choice"] == {"type": "tool", "name": "f"}


# --- The prefix -------------------------------------------------------------------------------------------------------

said = st.sampled_from(["Hi", " ", "", "One. ", "<x>"])


@st.composite
def exchanges(draw: st.DrawFn) -> list[Message]:
    """What is said between two requests: the user or nobody, and what came of it, with holes and noise."""
    spoken = [Message("user", draw(said)) for _ in range(draw(st.integers(0, 2)))]
    if draw(st.booleans()):
        spoken.append(Message("system", draw(said)))
    ids = draw(st.lists(st.sampled_from(["a", "b", "x:0", ""]), max_size=3))
    calls = tuple(ToolCall(one, "f", "{}") for one in ids)
    spoken.append(Message("assistant", (Text(draw(said)), *calls) if calls else draw(said)))
    answered = draw(st.permutations(ids))
    results: list[Message] = [
        Message("tool", (ToolResult(one, draw(said)),)) for one in answered if draw(st.booleans())
    ]
    if draw(st.booleans()):
        results.insert(draw(st.integers(0, len(results))), Message("developer", "Hurry."))
    return [*spoken, *results, Message("user", draw(said))]


def settled(request: Request, target: Target) -> tuple[list[tuple[str, bytes]], Any]:
    """Each block with its role, and what stands before the messages; all without marks."""
    body = json.loads(messages.build_request(request, target))

    def bare(block: Any) -> bytes:
        block.pop("cache_control", None)
        return json.dumps(block).encode()

    flat = []
    for turn in body["messages"]:
        content = turn["content"]
        whole = [{"type": "text", "text": content}] if isinstance(content, str) else content
        flat += [(turn["role"], bare(block)) for block in whole]
    system = body.get("system", "")
    return flat, system if isinstance(system, str) else [bare(block) for block in system]


@pytest.mark.parametrize("owner", ["arbiter", "client", "off"])
@given(data=st.data())
@settings(max_examples=80)
def test_what_was_sent_in_one_turn_is_sent_again_in_the_next(owner: Any, data: st.DataObject) -> None:
    """SPEC 2.4: block for block; turns are only added, and blocks only behind the last one."""
    target = Target(prompt_cache=owner)
    head = [Message("system", "Be terse.")] if data.draw(st.booleans()) else []
    turns = data.draw(st.lists(exchanges(), min_size=2, max_size=5))
    before: list[tuple[str, bytes]] = []
    instructions = None
    for n in range(1, len(turns) + 1):
        conversation = [*head, *(one for turn in turns[:n] for one in turn)]
        request = Request(model="claude-opus-4-6", messages=tuple(conversation))
        blocks, system = settled(request, target)
        assert blocks[: len(before)] == before
        assert instructions is None or system == instructions
        before, instructions = blocks, system
        body = json.loads(messages.build_request(request, target))["messages"]
        assert_is_sound(body)


def assert_is_sound(turns: list[dict[str, Any]]) -> None:
    """What Anthropic insists on: the user begins, ids differ, and every call has its one result right behind it."""
    assert turns[0]["role"] == "user"
    ids: list[str] = []
    open_calls: list[str] = []
    for turn in turns:
        whole = turn["content"] if isinstance(turn["content"], list) else [{"type": "text", "text": turn["content"]}]
        assert whole and all(block["text"].strip() for block in whole if block["type"] == "text")
        results = [block["tool_use_id"] for block in whole if block["type"] == "tool_result"]
        assert results == open_calls
        assert kinds({"content": whole})[: len(results)] == ["tool_result"] * len(results)
        open_calls = [block["id"] for block in whole if block["type"] == "tool_use"]
        ids += open_calls
    assert len(set(ids)) == len(ids) and not open_calls


def test_a_growing_conversation_is_the_same_bytes_where_arbiter_marks() -> None:
    """Not only the same blocks: up to its last turn the body is the same bytes, but for the marks."""
    turns = [user("Look"), assistant("ok", a='{"b":1,"a":2}'), tool("a", "sun"), assistant("Done."), user("Thanks")]
    bodies = []
    for n in (1, 3, 5):
        request = parse({"model": "m", "messages": [{"role": "system", "content": "Be terse."}, *turns[:n]]})
        bodies.append(messages.build_request(request).replace(b',"cache_control":{"type":"ephemeral"}', b""))
    for shorter, longer in itertools.pairwise(bodies):
        assert longer.startswith(shorter[: shorter.rindex(b"]}]}")])


# --- Parts ------------------------------------------------------------------------------------------------------------

PNG, JPEG, PDF = "iVBORw0KGgo=", "/9j/4AAQ", "JVBERi0x"


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def file(**members: str) -> dict[str, Any]:
    return {"type": "file", "file": members}


def test_pictures_say_what_they_are() -> None:
    """A wrong label is a 400 of Anthropic's; so are parameters of the type, `image/jpg`, and line ends."""

    def media(url: str) -> Any:
        return parts(image(url))[0]["source"]["media_type"]

    assert media(f"data:image/png;base64,{PNG}") == "image/png"
    assert media(f"data:image/png;base64,{JPEG}") == "image/jpeg"
    assert media(f"data:image/webp;charset=utf-8;base64,{PNG}") == "image/png"
    assert media("data:image/jpg;base64,AAAA") == "image/jpeg"
    assert media(f"data:;base64,{JPEG}") == "image/jpeg"
    assert parts(image("data:image/gif;base64,R0lG\r\nODlh"))[0]["source"]["data"] == "R0lGODlh"
    assert parts(image("https://a.example/cat.bmp"))[0]["source"] == {"type": "url", "url": "https://a.example/cat.bmp"}


@pytest.mark.parametrize("url", ["data:image/svg+xml,%3Csvg/%3E", "data:image/bmp;base64,Qk0="])
def test_pictures_of_other_kinds_are_refused(url: str) -> None:
    with pytest.raises(ProtocolUnsupported, match="JPEG, PNG, GIF or WebP"):
        parts(image(url))


def test_the_media_type_of_a_file_picks_its_block() -> None:
    """S28: a document with its title; a picture is one, whatever part it came in; all kinds of text are text."""
    assert parts(file(file_data=f"data:application/pdf;base64,{PDF}", filename="a.pdf")) == [
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
            "title": "a.pdf",
        }
    ]
    assert parts(file(file_data=f"data:image/png;base64,{PNG}"))[0]["type"] == "image"
    plain = {"type": "text", "media_type": "text/plain", "data": "hi"}
    for written in (
        "data:text/plain;base64,aGk=",
        "data:text/plain,hi",
        "data:text/markdown;charset=utf-8;base64,aGk=",
        "data:application/json;base64,aGk=",
        "aGk=",
    ):
        assert parts(file(file_data=written))[0]["source"] == plain
    assert parts(file(file_data=PDF))[0]["source"]["type"] == "base64"
    assert parts(file(file_data="https://a.example/a.pdf"))[0]["source"]["type"] == "url"
    assert parts(file(file_id="file_1"))[0]["source"] == {"type": "file", "file_id": "file_1"}


@pytest.mark.parametrize("data", ["data:application/msword;base64,0M8R4KGx", "data:text/plain;base64,/w==", "/w=="])
def test_documents_of_other_kinds_are_refused(data: str) -> None:
    with pytest.raises(ProtocolUnsupported, match="PDF or text"):
        parts(file(file_data=data))


def test_results_may_hold_pictures_and_nothing() -> None:
    picture = [{"type": "text", "text": "see"}, image(f"data:image/png;base64,{PNG}")]
    built = sent(user("Go"), assistant(a="{}", b="{}"), tool("a", picture), tool("b", " "))
    first, second = built["messages"][2]["content"]
    assert [block["type"] for block in first["content"]] == ["text", "image"]
    assert second == {"type": "tool_result", "tool_use_id": "b"}


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ("", "{}"),
        (" ", "{}"),
        ("null", "{}"),
        ('{"n":123456789012345678901234567890,"x":1.10}', '{"n":123456789012345678901234567890,"x":1.10}'),
        ('{"a":1,"a":2}', '{"a":1,"a":2}'),
        ('{"a":1e999}', '{"a":1e999}'),
        ('{"a":"\\ud83d"}', '{"a":"\\ufffd"}'),
        ('{"a":', '{"invalid_arguments":"{\\"a\\":"}'),
        ("[1]", '{"invalid_arguments":"[1]"}'),
    ],
)
def test_arguments_are_an_object_digit_for_digit(written: str, wanted: str) -> None:
    request = Request(model="m", messages=(Message("assistant", (ToolCall("a", "f", written),)),))
    assert f'"input":{wanted}'.encode() in messages.build_request(request)


# --- Tools and parameters ---------------------------------------------------------------------------------------------


def function(name: str = "f", **members: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **members}}


def test_a_schema_is_an_objects() -> None:
    """o2a-009; PHP writes an empty object as a list; digits and key order stay."""

    def schema(parameters: bytes) -> bytes:
        body = b'{"model":"m","messages":[],"tools":[{"type":"function","function":{"name":"f","parameters":%b}}]}'
        built = messages.build_request(parse(body % parameters), UNMARKED)
        return built.partition(b'"input_schema":')[2].partition(b'}],"messages"')[0]

    assert schema(b"null") == schema(b"[]") == b'{"type":"object","properties":{}}'
    assert schema(b'{"properties":{"z":1,"a":2}}') == b'{"type":"object","properties":{"z":1,"a":2}}'
    assert schema(b'{"type":null}') == b'{"type":"object"}'
    big = b'{"type":"object","properties":{"n":{"maximum":123456789012345678901234567890}}}'
    assert schema(big) == big
    for wrong in (b'"x"', b"[1]", b"5"):
        with pytest.raises(BadRequest, match=r"tools\[0\]\.function\.parameters: Expected `object`, got "):
            schema(wrong)


def test_tools_that_only_openai_has_are_refused_by_name() -> None:
    with pytest.raises(ProtocolUnsupported, match="type brand_new") as caught:
        sent(user("x"), tools=[function(), {"type": "brand_new"}])
    assert caught.value.param == "tools[1]"
    with pytest.raises(ProtocolUnsupported, match=r"tools\[0\]: .*1 to 128 letters"):
        sent(user("x"), tools=[function("mcp.read file")])


def test_which_tools_may_be_called() -> None:
    tools = [function("f"), function("g")]
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [function("g")]}}

    def choice(wanted: Any, **members: Any) -> Any:
        built = sent(user("x"), tools=tools, tool_choice=wanted, **members)
        return built.get("tool_choice"), [one["name"] for one in built["tools"]]

    assert choice("required", parallel_tool_calls=False) == (
        {"type": "any", "disable_parallel_tool_use": True},
        ["f", "g"],
    )
    assert choice("none", parallel_tool_calls=False) == ({"type": "none"}, ["f", "g"])
    assert choice(allowed) == ({"type": "auto"}, ["g"])
    allowed["allowed_tools"]["mode"] = "required"  # type: ignore[index]
    assert choice(allowed) == ({"type": "tool", "name": "g"}, ["f", "g"])
    assert "tool_choice" not in sent(user("x"), tool_choice="auto", parallel_tool_calls=True)
    with pytest.raises(BadRequest, match="there are no tools"):
        sent(user("x"), tool_choice="required")


def test_strict_tools_are_strict_where_the_model_can() -> None:
    """Anthropic wants every object closed, and takes twenty such tools at most."""
    open_schema = {"type": "object", "properties": {"a": {"type": "object"}, "b": {"anyOf": [{"type": "object"}]}}}
    strict = function(strict=True, parameters=open_schema)
    built = sent(user("x"), tools=[strict], model="claude-haiku-4-5")["tools"][0]
    assert built["strict"] is True
    closed = {"type": "object", "additionalProperties": False}
    assert built["input_schema"] == {"type": "object", "properties": {"a": closed, "b": {"anyOf": [closed]}}} | {
        "additionalProperties": False
    }
    assert "strict" not in sent(user("x"), tools=[strict], model="claude-3-haiku-20240307")["tools"][0]
    many = sent(user("x"), tools=[function(f"f{i}", strict=True) for i in range(21)], model="claude-haiku-4-5")
    assert not any("strict" in one for one in many["tools"])


def test_output_keeps_to_a_schema_where_the_model_can() -> None:
    shape = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "properties": {}}}}
    built = sent(user("x"), response_format=shape, model="claude-sonnet-5")["output_config"]["format"]
    assert built["schema"]["additionalProperties"] is False
    assert "output_config" not in sent(user("x"), response_format={"type": "json_object"})
    with pytest.raises(ProtocolUnsupported, match="JSON schema"):
        sent(user("x"), response_format=shape, model="claude-3-opus-20240229")


def test_parameters_that_anthropic_has_are_carried() -> None:
    built = sent(
        user("x"),
        stop=["END", "", " \n", "a", "b", "c", "d"],
        user="me",
        service_tier="default",
        seed=1,
        logit_bias={"1": 2},
        n=1,
        presence_penalty=1,
        logprobs=True,
        metadata={"a": "b"},
        prompt_cache_key="k",
    )
    assert built == {
        "model": "m",
        "max_tokens": 32_000,
        "messages": [user("x")],
        "stop_sequences": ["END", "a", "b", "c", "d"],
        "metadata": {"user_id": "me"},
        "service_tier": "standard_only",
    }
    assert sent(user("x"), service_tier="priority")["service_tier"] == "auto"
    assert "service_tier" not in sent(user("x"), service_tier="flex")
    assert "stop_sequences" not in sent(user("x"), stop="\n")


def test_ids_of_any_length_find_their_results() -> None:
    """Beginnings that are the same are told apart like ids that are."""
    first, second = "é" * 500_000 + "1", "é" * 5_000_000 + "2"
    calls = [
        {"id": one, "type": "function", "function": {"name": "f" + "é" * 500_000, "arguments": "{}"}}
        for one in (first, second)
    ]
    said = {"role": "assistant", "content": None, "tool_calls": calls}
    built = sent(user("Go"), said, tool(second, "two"), tool(first, "one"))
    ids = [block["id"] for block in built["messages"][1]["content"]]
    assert ids == ["_" * 65536, "_" * 65536 + "_2"] and built["messages"][1]["content"][0]["name"] == "f" + "_" * 127
    results = {block["tool_use_id"]: block["content"] for block in built["messages"][2]["content"]}
    assert results == dict(zip(ids, ["one", "two"], strict=True))
