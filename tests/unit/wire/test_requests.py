"""Requests of both formats: what is understood, what is built, and who is blamed for what."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from arbiter.errors import BadRequest, ProtocolUnsupported
from arbiter.model import (
    Audio,
    CacheMark,
    File,
    Grammar,
    Image,
    Message,
    Opaque,
    OpaqueTool,
    OutputShape,
    Reasoning,
    RedactedThinking,
    Refusal,
    Request,
    Target,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from arbiter.wire import anthropic_messages as messages
from arbiter.wire import openai_chat as chat
from arbiter.wire.format import FORMATS, Format

BOTH = pytest.mark.parametrize("wire", FORMATS.values(), ids=list(FORMATS))


def parse(wire: Format, **body: Any) -> Request:
    raw = json.dumps({"model": "m", "messages": [], **body}).encode()
    return wire.parse_request(msgspec.json.decode(raw, type=dict[str, msgspec.Raw]))


OWN_MARKS = Target(prompt_cache="client")


def build(wire: Format, *said: Message, **members: Any) -> Any:
    return json.loads(wire.build_request(Request(model="m", messages=said, **members), OWN_MARKS))


def chat_message(**message: Any) -> Message:
    return parse(chat, messages=[message]).messages[0]


def block(**one: Any) -> Any:
    """One content block of a user message, parsed."""
    return parse(messages, messages=[{"role": "user", "content": [one]}]).messages[0].content[0]


# --- Chat, in ---------------------------------------------------------------------------------------------------------


def test_a_bare_string_stays_one() -> None:
    """SPEC 2.4, in both formats, in and out."""
    for wire in (chat, messages):
        said = parse(wire, messages=[{"role": "user", "content": "Hi"}]).messages
        assert said == (Message("user", "Hi"),)
        assert build(wire, *said)["messages"] == [{"role": "user", "content": "Hi"}]


def test_chat_parts_are_understood() -> None:
    url = "data:image/png;base64,AAAA"
    message = chat_message(
        role="user",
        content=[
            {"type": "text", "text": "a", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
            {"type": "image_url", "image_url": {"url": url, "detail": "low"}},
            {"type": "image_url", "image_url": "https://pictures.example/cat.jpg"},
            {"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBE", "filename": "a.pdf"}},
            {"type": "file", "file": {"file_data": "data:text/plain;base64,aGk="}},
            {"type": "file", "file": {"file_data": "https://files.example/a.pdf"}},
            {"type": "file", "file": {"file_id": "file-1"}},
            {"type": "input_audio", "input_audio": {"data": "UklG", "format": "wav"}},
            {"type": "video_url", "video_url": {"url": "x"}},
        ],
    )
    assert message.content == (
        Text("a", CacheMark("1h")),
        Image(media_type="image/png", data="AAAA", detail="low"),
        Image(url="https://pictures.example/cat.jpg"),
        File(media_type="application/pdf", data="JVBE", filename="a.pdf"),
        File(media_type="text/plain", text="hi"),
        File(url="https://files.example/a.pdf"),
        File(file_id="file-1"),
        Audio("UklG", "wav"),
        Opaque("openai-chat", b'{"type": "video_url", "video_url": {"url": "x"}}'),
    )


def test_what_a_chat_assistant_said_is_understood() -> None:
    """Reasoning under either name, content, refusal and calls; nothing and empty strings are nothing (o2a-002)."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}
    assert chat_message(role="assistant", content="Hi") == Message("assistant", "Hi")
    assert chat_message(role="assistant", content=None) == Message("assistant", "")
    for empty in (None, ""):
        message = chat_message(role="assistant", content=empty, tool_calls=[call])
        assert message.content == (ToolCall("c", "f", "{}"),)
    message = chat_message(role="assistant", content="Hi", reasoning="Hm", refusal="no", tool_calls=[call])
    assert message.content == (
        Thinking("Hm", spelling="reasoning"),
        Text("Hi"),
        Refusal("no"),
        ToolCall("c", "f", "{}"),
    )
    custom = {"id": "c", "type": "custom", "custom": {"name": "f", "input": "x"}}
    assert chat_message(role="assistant", tool_calls=[custom]).content == (ToolCall("c", "f", "x", is_free=True),)
    assert isinstance(chat_message(role="assistant", tool_calls=[{"id": "c", "type": "new"}]).content[0], Opaque)


def test_a_chat_tool_message_is_a_result() -> None:
    assert chat_message(role="tool", tool_call_id="c", content="sun") == Message("tool", (ToolResult("c", "sun"),))
    parts = chat_message(role="tool", tool_call_id="c", content=[{"type": "text", "text": "sun"}])
    assert parts == Message("tool", (ToolResult("c", (Text("sun"),)),))


GRAMMAR = {"syntax": "lark", "definition": "start: x"}


def test_chat_parameters_are_understood() -> None:
    request = parse(
        chat,
        tools=[
            {"type": "function", "function": {"name": "f", "parameters": {"b": 1, "a": 2}, "strict": True}},
            {"type": "custom", "custom": {"name": "g", "format": {"type": "grammar", "grammar": GRAMMAR}}},
            {"type": "brand_new"},
        ],
        tool_choice={"type": "function", "function": {"name": "f"}},
        parallel_tool_calls=False,
        max_tokens=5,
        max_completion_tokens=7,
        stop="END",
        n=1,
        reasoning_effort="high",
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"a": 1}, "strict": True}},
        user="u",
        metadata={"k": "v"},
        logit_bias={"50256": -100},
        stream=True,
        stream_options={"include_usage": True},
        something_new={"x": 1},
    )
    assert request == Request(
        model="m",
        messages=(),
        tools=(
            Tool("f", parameters=b'{"b": 1, "a": 2}', strict=True),
            Tool("g", is_free=True, grammar=Grammar("lark", "start: x")),
            OpaqueTool("openai-chat", b'{"type": "brand_new"}'),
        ),
        tool_choice=ToolChoice("tool", "f"),
        parallel_tools=False,
        max_output=7,
        stop=("END",),
        choices=1,
        reasoning=Reasoning(effort="high"),
        output=OutputShape("json_schema", b'{"a": 1}', "x", strict=True),
        user="u",
        metadata=(("k", "v"),),
        logit_bias=b'{"50256": -100}',
        stream=True,
        include_usage=True,
    )


# --- Messages, in -----------------------------------------------------------------------------------------------------


def test_blocks_are_understood() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    assert block(type="text", text="a", **mark) == Text("a", CacheMark())
    png = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    assert block(type="image", source=png) == Image(media_type="image/png", data="AAAA")
    assert block(type="image", source={"type": "url", "url": "u"}, **mark) == Image(url="u", cache=CacheMark())
    pdf = {"type": "base64", "media_type": "application/pdf", "data": "JVBE"}
    assert block(type="document", source=pdf, title="a.pdf") == File("application/pdf", "JVBE", filename="a.pdf")
    plain = {"type": "text", "media_type": "text/plain", "data": "hi"}
    assert block(type="document", source=plain) == File("text/plain", text="hi")
    assert block(type="document", source={"type": "url", "url": "u"}) == File(url="u")
    assert block(type="document", source={"type": "file", "file_id": "f"}) == File(file_id="f")
    assert block(type="thinking", thinking="Hm", signature="s") == Thinking("Hm", "s")
    assert block(type="redacted_thinking", data="d") == RedactedThinking("d")
    assert block(type="tool_use", id="i", name="f", input={"b": 1, "a": 2}) == ToolCall("i", "f", '{"b": 1, "a": 2}')
    assert isinstance(block(type="server_tool_use", id="i", name="web_search", input={}), Opaque)
    assert isinstance(block(type="image", source={"type": "file", "file_id": "f"}), Opaque)
    assert isinstance(block(type="web_search_tool_result", tool_use_id="i", content={"type": "x"}), Opaque)


def test_results_are_messages_of_their_own() -> None:
    """They share a user message with what the user added; a result may hold text, pictures, an error."""
    result = {"type": "tool_result", "tool_use_id": "b", "content": "12:00", "is_error": True}
    picture = {"type": "image", "source": {"type": "url", "url": "u"}}
    both = {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "sun"}, picture]}
    none = {"type": "tool_result", "tool_use_id": "c"}
    content = [result, both, none, {"type": "text", "text": "And tomorrow?"}]
    assert parse(messages, messages=[{"role": "user", "content": content}]).messages == (
        Message("tool", (ToolResult("b", "12:00", is_error=True),)),
        Message("tool", (ToolResult("a", (Text("sun"), Image(url="u"))),)),
        Message("tool", (ToolResult("c", ""),)),
        Message("user", (Text("And tomorrow?"),)),
    )


def test_the_system_member_is_the_first_message() -> None:
    """And role `system` may stand in the middle, as Claude Code puts it."""
    request = parse(
        messages, system=[{"type": "text", "text": "Be terse."}], messages=[{"role": "system", "content": "x"}]
    )
    assert request.messages == (Message("system", (Text("Be terse."),)), Message("system", "x"))


def test_messages_parameters_are_understood() -> None:
    request = parse(
        messages,
        max_tokens=64000,
        tools=[
            {"name": "f", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral", "ttl": "5m"}},
            {"type": "web_search_20250305", "name": "web_search"},
        ],
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
        stop_sequences=["END"],
        thinking={"type": "enabled", "budget_tokens": 1024},
        output_config={"effort": "high", "format": {"type": "json_schema", "schema": {"a": 1}}},
        metadata={"user_id": "u"},
        context_management={"edits": []},
    )
    assert request == Request(
        model="m",
        messages=(),
        max_output=64000,
        tools=(
            Tool("f", parameters=b'{"type": "object"}', cache=CacheMark("5m")),
            OpaqueTool("anthropic-messages", b'{"type": "web_search_20250305", "name": "web_search"}'),
        ),
        tool_choice=ToolChoice("required"),
        parallel_tools=False,
        stop=("END",),
        reasoning=Reasoning("high", "enabled", 1024),
        output=OutputShape("json_schema", b'{"a": 1}'),
        user="u",
        include_usage=True,
    )


# --- Blame ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"messages": "hello"}, "messages"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": 5}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [{"text": "no type"}]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"tools": [{"type": "function", "name": 7, "function": {"name": 7}}]}, "tools[0]."),
        ({"temperature": "hot"}, "temperature"),
    ],
)
@pytest.mark.parametrize("wire", [chat, messages], ids=["chat", "messages"])
def test_a_wrong_type_is_the_callers_fault_and_has_a_place(wire: Format, body: dict[str, Any], place: str) -> None:
    """SPEC 14.2: a 400 that names the path of the fault."""
    with pytest.raises(BadRequest) as caught:
        parse(wire, **body)
    assert caught.value.status == 400
    assert (caught.value.param or "").startswith(place) and place in str(caught.value)


DEEP = b'[{"role":"user","content":[' + b'{"type":"text","x":' * 100_000 + b"1" + b"}" * 100_000 + b"]}]"
BROKEN = b'[{"role":"user","content":"\xff"}]'
BROKEN_INPUT = b'[{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{"x":"\xff"}}]}]'
BROKEN_CALL = b'[{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":{"x":"\xff"}}}]}]'


@pytest.mark.parametrize(
    ("wire", "raw"),
    [(chat, DEEP), (messages, DEEP), (chat, BROKEN), (messages, BROKEN), (messages, BROKEN_INPUT), (chat, BROKEN_CALL)],
)
def test_what_cannot_be_read_is_the_callers_fault(wire: Format, raw: bytes) -> None:
    """Nesting without end, and broken UTF-8, also inside of members that stay raw."""
    with pytest.raises(BadRequest):
        wire.parse_request({"model": msgspec.Raw(b'"m"'), "messages": msgspec.Raw(raw)})


# --- Out --------------------------------------------------------------------------------------------------------------


def test_chat_gets_the_array_form_only_where_it_needs_it() -> None:
    """SPEC 2.4: a moved cache mark must not change the shape of an old message."""
    marked, plain = Message("user", (Text("a", CacheMark()),)), Message("user", (Text("a"),))
    assert build(chat, marked) == build(chat, plain) == build(chat, Message("user", "a"))
    assert build(chat, Message("system", (Text("a"), Text("b"))))["messages"][0]["content"] == "a\n\nb"
    mixed = build(chat, Message("user", (Text("a"), Image(url="u"))))["messages"][0]["content"]
    assert [part["type"] for part in mixed] == ["text", "image_url"]


def test_pictures_in_results_follow_behind_all_results() -> None:
    """A chat tool message holds text only, and the results of one turn stay together (a2o-002, a2o-007)."""
    built = build(
        chat,
        Message("assistant", (ToolCall("a", "f", "{}"), ToolCall("b", "g", "{}"))),
        Message("tool", (ToolResult("a", (Text("one pixel"), Image(media_type="image/png", data="AAAA"))),)),
        Message("tool", (ToolResult("b", "12:00", is_error=True),)),
        Message("user", "And tomorrow?"),
    )["messages"]
    assert [one["role"] for one in built] == ["assistant", "tool", "tool", "user", "user"]
    assert built[1] == {"role": "tool", "tool_call_id": "a", "content": "one pixel"}
    assert built[2]["content"] == "Error: 12:00"
    assert built[3]["content"][1]["image_url"] == {"url": "data:image/png;base64,AAAA"}


def test_an_assistants_turn_is_written_as_chat_has_it() -> None:
    said = (Thinking("Hm", "sig"), Text("Hi"), RedactedThinking("x"), ToolCall("a", "f", "{}"))
    assert build(chat, Message("assistant", said))["messages"][0] == {
        "role": "assistant",
        "content": "Hi",
        "reasoning_content": "Hm",
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    }
    assert build(chat, Message("assistant", (ToolCall("a", "f", "{}"),)))["messages"][0]["content"] is None


def test_one_turns_results_are_one_message_with_the_users_words_behind() -> None:
    """o2a-003; and no empty text goes out (o2a-002), nor thinking without a signature."""
    built = build(
        messages,
        Message("system", (Text("Be terse."),)),
        Message("developer", "Be kind."),
        Message("user", "Go"),
        Message("assistant", (Thinking("Hm"), Text(""), ToolCall("a", "f", ""), ToolCall("b", "g", '{"x":1}'))),
        Message("assistant", ""),
        Message("tool", (ToolResult("a", "sun"),)),
        Message("tool", (ToolResult("b", (Text("12:00"),), is_error=True, cache=CacheMark()),)),
        Message("user", "And tomorrow?"),
        max_output=777,
    )
    assert built["system"] == [{"type": "text", "text": "Be terse."}, {"type": "text", "text": "Be kind."}]
    assert built["max_tokens"] == 777
    assert built["messages"] == [
        {"role": "user", "content": "Go"},
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "a", "name": "f", "input": {}},
                {"type": "tool_use", "id": "b", "name": "g", "input": {"x": 1}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "sun"},
                {
                    "type": "tool_result",
                    "tool_use_id": "b",
                    "content": [{"type": "text", "text": "12:00"}],
                    "is_error": True,
                    "cache_control": {"type": "ephemeral"},
                },
                {"type": "text", "text": "And tomorrow?"},
            ],
        },
    ]


def test_calls_and_words_of_one_turn_become_one_message() -> None:
    """An old Codex sends calls, then words, then results: here results must follow the message with their calls."""
    built = build(
        messages,
        Message("user", "Go"),
        Message("assistant", (ToolCall("a", "f", "{}"),)),
        Message("assistant", "Looking."),
        Message("tool", (ToolResult("a", "sun"),)),
        Message("assistant", "One."),
        Message("assistant", "Two."),
    )["messages"]
    assert [one["role"] for one in built] == ["user", "assistant", "user", "assistant", "assistant"]
    assert [one["type"] for one in built[1]["content"]] == ["tool_use", "text"]


def test_a_tools_schema_always_says_object() -> None:
    """o2a-009"""
    tools = (Tool("now"), Tool("find", parameters=b'{"properties":{"q":{"type":"string"}}}'))
    built = build(messages, tools=tools, tool_choice=ToolChoice("required"), parallel_tools=False)
    assert [tool["input_schema"] for tool in built["tools"]] == [
        {"type": "object", "properties": {}},
        {"type": "object", "properties": {"q": {"type": "string"}}},
    ]
    assert built["tool_choice"] == {"type": "any", "disable_parallel_tool_use": True}
    assert built["max_tokens"] >= 1024


@pytest.mark.parametrize(
    ("wire", "said", "members"),
    [
        (messages, Message("user", (Audio("x", "wav"),)), {}),
        (messages, Message("user", (Opaque("openai-chat", b'{"type":"video_url"}'),)), {}),
        (chat, Message("user", (Opaque("anthropic-messages", b'{"type":"search_result"}'),)), {}),
        (chat, Message("user", "x"), {"tools": (OpaqueTool("anthropic-messages", b'{"type":"web_search"}'),)}),
        (messages, Message("user", "x"), {"tools": (OpaqueTool("openai-chat", b'{"type":"custom"}'),)}),
        (chat, Message("user", "x"), {"choices": 2}),
        (messages, Message("user", "x"), {"choices": 2}),
    ],
)
def test_what_a_format_cannot_say_is_refused(wire: Format, said: Message, members: dict[str, Any]) -> None:
    """SPEC 4.8 `protocol_unsupported`: better than a request that means something else."""
    with pytest.raises(ProtocolUnsupported):
        build(wire, said, **members)


@pytest.mark.parametrize(
    ("wire", "part", "takes"),
    [
        (messages, {"type": "image_url", "image_url": {"url": "u"}}, '{"type": "image", "source": {"type": "url"'),
        (messages, {"type": "file", "file": {"file_id": "f"}}, '{"type": "document", "source": '),
        (messages, {"type": "input_audio", "input_audio": {}}, "/v1/messages takes no sound"),
        (messages, {"type": "refusal", "text": 1}, '{"type": "text", "text": …}'),
        (chat, {"type": "image", "source": {"type": "url", "url": "u"}}, '{"type": "image_url", "image_url": {"url": '),
        (chat, {"type": "document", "source": {}}, '{"type": "file", "file": {"file_data": '),
        (chat, {"type": "tool_use", "id": "c", "name": "f", "input": {}}, '"tool_calls" of the assistant'),
        (chat, {"type": "tool_result", "tool_use_id": "c"}, 'a message of role "tool"'),
    ],
)
def test_the_other_vendors_parts_are_told_from_unknown_ones(wire: Format, part: dict[str, Any], takes: str) -> None:
    """The commonest mistake of whoever calls by hand: the right way stands in the answer."""
    with pytest.raises(BadRequest) as refused:
        parse(wire, messages=[{"role": "user", "content": [{"type": "text", "text": "a"}, part]}])
    assert refused.value.param == "messages[0].content[1]"
    assert str(refused.value).startswith("messages[0].content[1]: this is ") and takes in str(refused.value)


@pytest.mark.parametrize(
    ("wire", "tool", "words"),
    [
        (messages, {"type": "function", "function": {"name": "f"}}, "OpenAI's shape of a tool; /v1/messages takes {"),
        (messages, {"type": "function", "name": "f"}, "OpenAI's shape of a tool"),
        (chat, {"name": "f", "input_schema": {}}, "Anthropic's shape of a tool; /v1/chat/completions takes {"),
        (chat, {"type": "custom", "name": "f", "input_schema": {}}, "Anthropic's shape of a tool"),
        (chat, {"function": {"name": "f"}}, "missing required field `type`"),
    ],
)
def test_the_other_vendors_tools_are_told_from_unknown_ones(wire: Format, tool: dict[str, Any], words: str) -> None:
    with pytest.raises(BadRequest) as refused:
        parse(wire, tools=[tool])
    assert refused.value.param == "tools[0]" and words in str(refused.value)


@pytest.mark.parametrize("wire", [chat, messages], ids=["chat", "messages"])
def test_a_growing_conversation_keeps_its_bytes(wire: Format) -> None:
    """SPEC 2.4: what was sent in one turn is a prefix of what is sent in the next."""
    turns = [
        Message("system", "Be terse."),
        Message("user", (Text("Look"), Image(url="u"))),
        Message("assistant", (Thinking("Hm", "s"), Text("ok"), ToolCall("a", "f", '{"b":1,"a":2}'))),
        Message("tool", (ToolResult("a", (Text("one"), Image(media_type="image/png", data="AAAA"))),)),
        Message("assistant", "Done."),
        Message("user", "Thanks"),
    ]
    for n in (2, 4, 5):
        shorter = wire.build_request(Request(model="m", messages=tuple(turns[:n]), max_output=9), OWN_MARKS)
        longer = wire.build_request(Request(model="m", messages=tuple(turns), max_output=9), OWN_MARKS)
        assert longer.startswith(shorter[: shorter.rindex(b"]")])
