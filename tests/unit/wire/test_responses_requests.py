"""Requests of OpenAI's Responses: what is understood, what other upstreams are told, and what is refused."""

from __future__ import annotations

import itertools
import json
from typing import Any

import msgspec
import pytest

from arbiter.errors import BadRequest, PartUnsupported, ProtocolUnsupported
from arbiter.model import (
    Audio,
    File,
    Grammar,
    Image,
    Message,
    Namespace,
    Opaque,
    OpaqueTool,
    OutputShape,
    Reasoning,
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
from arbiter.wire import anthropic_messages, openai_chat, openai_responses
from arbiter.wire.format import FORMATS
from arbiter.wire.places import place_of
from arbiter.wire.responses_parse import namespaces

FORMAT = openai_responses.name
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


def members(body: dict[str, Any]) -> dict[str, msgspec.Raw]:
    return msgspec.json.decode(json.dumps({"model": "m", **body}).encode(), type=dict[str, msgspec.Raw])


def parse(**body: Any) -> Request:
    return openai_responses.parse_request(members({"input": "hi", **body}))


def said(*items: Any) -> tuple[Message, ...]:
    return parse(input=list(items)).messages


def rebuilt(**body: Any) -> Any:
    return json.loads(openai_responses.build_request(parse(**body)))


def chat(**body: Any) -> Any:
    return json.loads(openai_chat.build_request(parse(**body)))


def messages(**body: Any) -> Any:
    return json.loads(anthropic_messages.build_request(parse(**body)))


def call(id: str = "c", name: str = "f", **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "id": f"fc_{id}", "call_id": id, "name": name, "arguments": "{}", **more}


def output(id: str = "c", said: Any = "sun", **more: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": id, "output": said, **more}


# --- The conversation -------------------------------------------------------------------------------------------------


def test_input_may_be_a_string_and_instructions_come_first() -> None:
    assert parse(instructions="Be terse").messages == (Message("system", "Be terse"), Message("user", "hi"))
    assert rebuilt(instructions="Be terse") | {"store": 0} == {
        "model": "m",
        "instructions": "Be terse",
        "input": [{"role": "user", "content": "hi"}],
        "store": 0,
    }


def test_what_the_assistant_said_in_a_row_is_one_message() -> None:
    """Codex, Copilot and pi leave out ids, types, annotations and log probabilities at will."""
    thought = {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "Hm"}], "content": None}
    found = said(
        {"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
        {**thought, "encrypted_content": "E"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]},
        call("a"),
        {"type": "custom_tool_call", "call_id": "b", "name": "p", "input": "***"},
        output("a"),
        {"type": "custom_tool_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "ok"}]},
        {"role": "assistant", "content": "Done."},
        {"type": "message", "role": "developer", "content": "d"},
    )
    whole = json.dumps({**thought, "encrypted_content": "E"}).encode()
    assert found == (
        Message("user", (Text("Weather?"),)),
        Message(
            "assistant",
            (
                Thinking("Hm", item=whole),
                Text("Let me see."),
                ToolCall("a", "f", "{}"),
                ToolCall("b", "p", "***", is_free=True),
            ),
        ),
        Message("tool", (ToolResult("a", "sun"),)),
        Message("tool", (ToolResult("b", (Text("ok"),)),)),
        Message("assistant", "Done."),
        Message("developer", "d"),
    )


def test_parts_are_understood() -> None:
    (message,) = said(
        {
            "role": "user",
            "content": [
                {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"},
                {"type": "input_image", "image_url": "https://pictures.example/a.png", "detail": "low"},
                {"type": "input_image", "file_id": "file_1", "detail": "auto"},
                {"type": "input_file", "file_data": "data:application/pdf;base64,JVBE", "filename": "a.pdf"},
                {"type": "input_file", "file_url": "https://files.example/a.pdf"},
                {"type": "input_file", "file_id": "file_2"},
                {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
                {"type": "brand_new", "text": {"x": 1}},
            ],
        }
    )
    assert message.content[:2] == (
        Image(media_type="image/png", data="AAAA"),
        Image(url="https://pictures.example/a.png", detail="low"),
    )
    assert isinstance(message.content[2], Opaque)
    assert message.content[3:7] == (
        File(media_type="application/pdf", data="JVBE", filename="a.pdf"),
        File(url="https://files.example/a.pdf"),
        File(file_id="file_2"),
        Audio("AAAA", "wav"),
    )
    assert message.content[7] == Opaque(FORMAT, b'{"type": "brand_new", "text": {"x": 1}}')
    (refused,) = said({"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]})
    assert refused.content == (Refusal("no"),)


def test_items_of_any_kind_go_back_as_they_came_and_where_they_stood() -> None:
    """SPEC 1.5a: what no schema knows passes."""
    items = [
        {"role": "user", "content": "hi"},
        {"type": "brand_new_call", "x": [1, {"y": None}]},
        {"type": "item_reference", "id": "msg_1"},
        {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "E"},
        {"type": "reasoning", "summary": 5},
        call(),
        output(),
        {"id": "msg_2"},
    ]
    kept = {"brand_new_call", "item_reference", "reasoning", None}
    built = rebuilt(input=items)["input"]
    assert [item for item in built if item.get("type") in kept and "role" not in item] == [
        item for item in items if item.get("type") in kept and "role" not in item
    ]
    assert [item.get("type") for item in built] == [item.get("type") for item in items]


def test_what_openai_did_by_itself_is_left_out_elsewhere_and_what_the_client_has_to_do_is_refused() -> None:
    done = [{"type": kind, "id": "x", "status": "completed"} for kind in ("web_search_call", "mcp_list_tools")]
    thought = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "E"}
    items = [{"role": "user", "content": "hi"}, thought, *done, {"role": "assistant", "content": "ok"}]
    assert [one["content"] for one in chat(input=[*items, {"role": "user", "content": "go"}])["messages"]] == [
        "hi",
        "ok",
        "go",
    ]
    for kind in ("item_reference", "local_shell_call", "computer_call_output", "compaction"):
        body = members({"input": [*items, {"type": kind, "id": "i"}]})
        request = openai_responses.parse_request(body)
        for wire in (openai_chat, anthropic_messages):
            with pytest.raises(PartUnsupported, match=f"type {kind}") as caught:
                wire.build_request(request)
            assert place_of(caught.value.part, body, openai_responses.parse_request) == "input[5]"


def test_a_part_that_cannot_be_told_has_a_place() -> None:
    new = {"type": "input_video", "x": 1}
    inside = [{"type": "input_text", "text": "a"}, new]
    for item, place in (
        ({"role": "user", "content": inside}, "input[1].content[1]"),
        (output("c", inside), "input[1].output[1]"),
    ):
        body = members({"input": [call(), item]})
        with pytest.raises(PartUnsupported) as caught:
            openai_chat.build_request(openai_responses.parse_request(body))
        assert place_of(caught.value.part, body, openai_responses.parse_request) == place
    assert place_of(object(), members({"input": "hi"}), openai_responses.parse_request) is None


def test_results_with_pictures() -> None:
    picture = {"type": "input_image", "image_url": "https://pictures.example/a.png", "detail": "auto"}
    items = [{"role": "user", "content": "look"}, call(), output("c", [{"type": "input_text", "text": "a"}, picture])]
    assert rebuilt(input=items)["input"][2]["output"] == items[2]["output"]
    assert [one["role"] for one in chat(input=items)["messages"]] == ["user", "assistant", "tool", "user"]


def test_a_failed_result_says_so() -> None:
    request = Request(
        model="m",
        messages=(
            Message("assistant", (ToolCall("a", "f", "{}"), ToolCall("b", "f", "{}"))),
            Message("tool", (ToolResult("a", "no", True),)),
            Message("tool", (ToolResult("b", (Image(url="https://pictures.example/a.png"),), True),)),
        ),
    )
    items = json.loads(openai_responses.build_request(request))["input"]
    assert items[2]["output"] == "Error: no"
    assert [part["type"] for part in items[3]["output"]] == ["input_text", "input_image"]


def test_long_ids_of_calls_are_shortened_alike() -> None:
    long = "x" * 65
    request = Request(
        model="m",
        messages=(Message("assistant", (ToolCall(long, "f", "{}"),)), Message("tool", (ToolResult(long, "a"),))),
    )
    items = json.loads(openai_responses.build_request(request))["input"]
    assert items[0]["call_id"] == items[1]["call_id"] and len(items[0]["call_id"]) <= 64


@pytest.mark.parametrize(
    "wire", [openai_chat, anthropic_messages, openai_responses], ids=["chat", "messages", "responses"]
)
def test_a_conversation_that_grows_keeps_its_bytes(wire: Any) -> None:
    """SPEC 2.4: after every turn of a client that answers all of its calls."""
    turn: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "input_text", "text": "go"}]},
        {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "Hm"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
        call("a"),
        {"type": "custom_tool_call", "call_id": "b", "name": "p", "input": "***"},
        output("a"),
        {"type": "custom_tool_call_output", "call_id": "b", "output": "ok"},
    ]
    items: list[dict[str, Any]] = [{"role": "developer", "content": "d"}]
    bodies = []
    for n in range(3):
        items += [{**item, "call_id": f"{item['call_id']}{n}"} if "call_id" in item else item for item in turn]
        body = wire.build_request(parse(input=items, instructions="s"), Target(prompt_cache="client"))
        found = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        bodies.append(bytes(found["input" if wire is openai_responses else "messages"]))
    for shorter, longer in itertools.pairwise(bodies):
        # To Anthropic, the user's next words join the turn of the results.
        end = b"]}]" if wire is anthropic_messages else b"]"
        assert longer.startswith(shorter.removesuffix(end)) and len(longer) > len(shorter)


# --- Tools ------------------------------------------------------------------------------------------------------------

NAMESPACE = {
    "type": "namespace",
    "name": "agents",
    "description": "Others.",
    "tools": [
        {"type": "function", "name": "close", "parameters": SCHEMA, "strict": False},
        {"type": "custom", "name": "tell", "description": "t"},
    ],
}
TOOLS = [
    {"type": "function", "name": "f", "description": "d", "parameters": SCHEMA, "strict": True},
    {"type": "custom", "name": "p", "format": {"type": "grammar", "syntax": "lark", "definition": "s"}},
    NAMESPACE,
    {"type": "web_search", "external_web_access": True},
]


def test_tools_are_understood_and_told_again() -> None:
    schema = json.dumps(SCHEMA).encode()
    group = Namespace("agents", "Others.")
    assert parse(tools=TOOLS).tools == (
        Tool("f", "d", schema, True),
        Tool("p", is_free=True, grammar=Grammar("lark", "s")),
        Tool("agents__close", parameters=schema, strict=False, namespace=group),
        Tool("agents__tell", "t", is_free=True, namespace=group),
        OpaqueTool(FORMAT, b'{"type": "web_search", "external_web_access": true}', needless=True),
    )
    assert rebuilt(tools=TOOLS)["tools"] == TOOLS


def test_a_group_is_its_tools_elsewhere() -> None:
    """And a search of OpenAI's, which Codex offers with every request, is left out."""
    items = [{"role": "user", "content": "x"}, call("a", "close", namespace="agents"), output("a")]
    built = chat(tools=TOOLS, input=items)
    assert [tool["function"]["name"] for tool in built["tools"]] == ["f", "p", "agents__close", "agents__tell"]
    assert built["messages"][1]["tool_calls"][0]["function"]["name"] == "agents__close"
    again = rebuilt(tools=TOOLS, input=items)["input"][1]
    assert (again["namespace"], again["name"]) == ("agents", "close")
    trailing = {**NAMESPACE, "name": "mcp__notes__"}
    assert [tool.name for tool in parse(tools=[trailing]).tools if isinstance(tool, Tool)] == [
        "mcp__notes__close",
        "mcp__notes__tell",
    ]


def test_a_group_inside_of_a_group_is_refused() -> None:
    with pytest.raises(BadRequest, match="namespace inside") as caught:
        parse(tools=[TOOLS[0], {**NAMESPACE, "tools": [NAMESPACE]}])
    assert caught.value.param == "tools[1].tools[0]"


@pytest.mark.parametrize("item", [{"type": None, "id": "msg_1"}, {"id": "msg_1"}], ids=["null", "none"])
def test_what_has_no_type_is_refused_elsewhere(item: dict[str, Any]) -> None:
    """A reference may leave its type out."""
    request = parse(input=[{"role": "user", "content": "x"}, item])
    for wire in (openai_chat, anthropic_messages):
        with pytest.raises(ProtocolUnsupported, match="cannot be told"):
            wire.build_request(request)


@pytest.mark.parametrize("kind", ["file_search", "code_interpreter", "mcp", "computer", "local_shell", "brand_new"])
def test_tools_of_openais_own_are_refused_elsewhere(kind: str) -> None:
    request = parse(tools=[TOOLS[0], {"type": kind}])
    for wire in (openai_chat, anthropic_messages):
        with pytest.raises(ProtocolUnsupported, match=f"type {kind}") as caught:
            wire.build_request(request)
        assert caught.value.param == "tools[1]"
    assert json.loads(openai_responses.build_request(request))["tools"][1] == {"type": kind}


@pytest.mark.parametrize(
    ("choice", "found", "again"),
    [
        ("auto", ToolChoice("auto"), "auto"),
        ("required", ToolChoice("required"), "required"),
        ({"type": "function", "name": "f"}, ToolChoice("tool", "f"), {"type": "function", "name": "f"}),
        ({"type": "custom", "name": "p"}, ToolChoice("tool", "p"), {"type": "custom", "name": "p"}),
        ({"type": "allowed_tools", "mode": "auto", "tools": []}, ToolChoice("none"), "none"),
        # The vendor names a tool in a namespace by its own name; some clients say both.
        (
            {"type": "function", "name": "close"},
            ToolChoice("tool", "agents__close"),
            {"type": "function", "name": "close"},
        ),
        (
            {"type": "custom", "namespace": "agents", "name": "tell"},
            ToolChoice("tool", "agents__tell"),
            {"type": "custom", "name": "tell"},
        ),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "namespace", "name": "agents"}]},
            ToolChoice("auto", allowed=("agents__close", "agents__tell")),
            {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "function", "name": "close"}, {"type": "custom", "name": "tell"}],
            },
        ),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "custom", "name": "p"}, {"type": "mcp"}]},
            ToolChoice("required", allowed=("p",), opaque=(b'{"type": "mcp"}',)),
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "custom", "name": "p"}, {"type": "mcp"}]},
        ),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}, {"type": "mcp"}]},
            ToolChoice("auto", allowed=("f",), opaque=(b'{"type": "mcp"}',)),
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}, {"type": "mcp"}]},
        ),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "custom", "name": "p"}]},
            ToolChoice("tool", "p"),
            {"type": "custom", "name": "p"},
        ),
    ],
)
def test_choices(choice: Any, found: ToolChoice, again: Any) -> None:
    assert parse(tools=TOOLS, tool_choice=choice).tool_choice == found
    assert rebuilt(tools=TOOLS, tool_choice=choice)["tool_choice"] == again


def test_a_tool_of_openais_own_cannot_be_chosen() -> None:
    with pytest.raises(ProtocolUnsupported, match="web_search_preview"):
        parse(tools=TOOLS, tool_choice={"type": "web_search_preview"})


def test_where_only_tools_of_openais_are_allowed_none_is_elsewhere() -> None:
    """What the client forbade must not be called because another upstream lacks what it allowed."""
    only: dict[str, Any] = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "web_search"}]}
    assert rebuilt(tools=TOOLS, tool_choice=only)["tool_choice"] == only
    assert chat(tools=TOOLS, tool_choice=only)["tool_choice"] == "none"
    assert messages(tools=TOOLS, tool_choice=only)["tool_choice"] == {"type": "none"}
    both = {**only, "tools": [{"type": "web_search"}, {"type": "function", "name": "f"}]}
    assert chat(tools=TOOLS, tool_choice=both)["tool_choice"]["allowed_tools"]["tools"] == [
        {"type": "function", "function": {"name": "f"}}
    ]
    assert [tool["name"] for tool in messages(tools=TOOLS, tool_choice=both)["tools"]] == ["f"]
    for build in (chat, messages):
        with pytest.raises(ProtocolUnsupported, match="only tools are allowed"):
            build(tools=TOOLS, tool_choice={**only, "mode": "required"})
        assert "tool_choice" in build(tools=TOOLS, tool_choice={**both, "mode": "required"})


@pytest.mark.parametrize("name", [one for one in FORMATS if one != FORMAT])
def test_every_other_format_knows_what_it_does_not_have(name: str) -> None:
    """What a client forbade is not called, and what the conversation stands in is not forgotten, wherever it goes."""
    build = FORMATS[name].build_request
    only: dict[str, Any] = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "web_search"}]}
    built = build(parse(tools=TOOLS, tool_choice=only))
    assert built != build(parse(tools=TOOLS)) and b"none" in built.lower()
    with pytest.raises(ProtocolUnsupported) as caught:
        build(parse(previous_response_id="resp_1"))
    assert caught.value.param == "previous_response_id"
    with pytest.raises(ProtocolUnsupported):
        build(parse(tools=TOOLS, tool_choice={**only, "mode": "required"}))


def test_tools_that_would_have_one_name_are_refused() -> None:
    """A call of one would be a call of the other."""

    def group(name: str, tool: str) -> dict[str, Any]:
        return {"type": "namespace", "name": name, "description": "", "tools": [{"type": "function", "name": tool}]}

    plain = {"type": "function", "name": "a__b__c"}
    for tools in ([group("a", "b__c"), group("a__b", "c")], [plain, group("a", "b__c")], [group("a__", "b__c"), plain]):
        with pytest.raises(BadRequest, match="a__b__c") as caught:
            parse(tools=tools)
        assert caught.value.param == "tools"
    parse(tools=[group("a", "b"), group("b", "a")])


def test_a_namespace_may_be_spelled_as_json_allows() -> None:
    raw = json.dumps([NAMESPACE]).replace('"namespace"', '"name\\u0073pace"')
    assert namespaces({"tools": msgspec.Raw(raw.encode())})["agents__close"] == ("agents", "close")


# --- Settings ---------------------------------------------------------------------------------------------------------


def test_settings_are_understood_and_told_again() -> None:
    body = {
        "max_output_tokens": 99,
        "parallel_tool_calls": False,
        "tools": [TOOLS[0]],
        "reasoning": {"effort": "high", "summary": "auto"},
        "text": {
            "format": {"type": "json_schema", "name": "x", "schema": SCHEMA, "strict": True},
            "verbosity": "low",
        },
        "include": ["message.output_text.logprobs"],
        "top_logprobs": 2,
        "user": "u",
        "metadata": {"k": "v"},
        "prompt_cache_key": "k",
        "service_tier": "flex",
        "previous_response_id": "resp_1",
        "store": False,
        "stream": True,
    }
    request = parse(**body, client_metadata={"x": 1}, future_field=[1])
    assert (request.max_output, request.parallel_tools, request.reasoning) == (
        99,
        False,
        Reasoning("high", summary="auto"),
    )
    assert request.output == OutputShape("json_schema", json.dumps(SCHEMA).encode(), "x", strict=True)
    assert (request.verbosity, request.logprobs, request.top_logprobs, request.store) == ("low", True, 2, False)
    assert (request.previous_id, request.stream, request.cache_key) == ("resp_1", True, "k")
    built = rebuilt(**body)
    assert {name: built.get(name) for name in body} == body


def test_what_happens_here_unless_it_is_forbidden_is_always_said() -> None:
    """Answers are kept, and arguments held to their schema: nobody asked for either in another format."""
    request = Request(model="m", messages=(Message("user", "hi"),), tools=(Tool("f", parameters=b'{"type":"object"}'),))
    built = json.loads(openai_responses.build_request(request))
    assert built["store"] is False and built["tools"][0]["strict"] is False
    assert parse().store is True and rebuilt()["store"] is True
    assert "store" not in chat()


def test_efforts_are_the_models() -> None:
    """Tools do not cost the effort here, as they do in a chat."""
    request = Request(
        model="gpt-5.2",
        messages=(Message("user", "x"),),
        tools=(Tool("f"),),
        reasoning=Reasoning("max"),
        temperature=0.5,
    )
    built = json.loads(openai_responses.build_request(request))
    assert built["reasoning"] == {"effort": "xhigh"} and "temperature" not in built
    assert json.loads(openai_chat.build_request(request))["reasoning_effort"] == "none"


@pytest.mark.parametrize(
    "body",
    [{"conversation": "conv_1"}, {"prompt": {"id": "pmpt_1"}}, {"background": True}],
    ids=["conversation", "prompt", "background"],
)
def test_what_only_openai_keeps_or_does_later_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(ProtocolUnsupported) as caught:
        parse(**body)
    assert caught.value.param == next(iter(body))


def test_stop_sequences_and_several_choices_are_refused() -> None:
    for name, value in (("stop", ("END",)), ("choices", 2)):
        request = Request(model="m", messages=(Message("user", "x"),), **{name: value})
        with pytest.raises(ProtocolUnsupported):
            openai_responses.build_request(request)


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"input": 5}, "input"),
        ({"input": None}, "input"),
        ({"input": [5]}, "input[0]"),
        ({"input": [{"role": "wizard", "content": "x"}]}, "input[0].role"),
        ({"input": [{"type": "message", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": 5}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": [{"type": "input_text", "text": 5}]}]}, "input[0].content[0].text"),
        ({"input": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, "input[0].content[0]"),
        ({"input": [{"role": "user", "content": [{"type": "tool_use"}]}]}, "input[0].content[0]"),
        ({"input": [{"type": "function_call", "name": "f"}]}, "input[0]"),
        ({"input": [output("c", 5)]}, "input[0].output"),
        ({"max_output_tokens": "many"}, "max_output_tokens"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools[0]"),
        ({"tools": [{"name": "f", "input_schema": {}}]}, "tools[0]"),
        ({"tools": [{"type": "function"}]}, "tools[0]"),
        ({"tools": [{"type": "function", "name": "f", "parameters": []}]}, "tools[0].parameters"),
        ({"tools": [{**NAMESPACE, "tools": [{"name": "x"}]}]}, "tools[0].tools[0]"),
        ({"tool_choice": "maybe"}, "tool_choice"),
        ({"text": {"format": {"type": "xml"}}}, "text.format"),
    ],
)
def test_a_wrong_type_is_the_callers_fault_and_has_a_place(body: dict[str, Any], place: str) -> None:
    """SPEC 14.2: a 400 that names the path of the fault."""
    with pytest.raises(BadRequest) as caught:
        parse(**body)
    assert caught.value.param == place and place in str(caught.value)
