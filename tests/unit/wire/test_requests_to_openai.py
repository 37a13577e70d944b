"""Requests of Messages clients, Claude Code above all, as OpenAI Chat upstreams get them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from arbiter.errors import BadRequest, ProtocolUnsupported
from arbiter.model import Request, Target
from arbiter.wire import anthropic_messages, openai_chat

PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
CALL = {"type": "tool_use", "id": "toolu_a", "name": "f", "input": {"x": 1}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_a", "content": "sun"}
TOOL = {"name": "f", "input_schema": {"type": "object", "properties": {}}}


def parsed(**body: Any) -> Request:
    raw = json.dumps({"model": "m", "max_tokens": 9, "messages": [], **body}).encode()
    return anthropic_messages.parse_request(msgspec.json.decode(raw, type=dict[str, msgspec.Raw]))


def sent(**body: Any) -> Any:
    """The body that an upstream gets for a Messages body."""
    return json.loads(openai_chat.build_request(parsed(**body)))


def sent_messages(*messages: dict[str, Any], **body: Any) -> Any:
    return sent(messages=list(messages), **body)["messages"]


def said(role: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


# --- The system prompt ------------------------------------------------------------------------------------------------


def test_the_system_prompt_is_one_string() -> None:
    """Several servers take no array from `system` or `tool`; a moved cache mark changes nothing (SPEC 2.4)."""
    blocks = [text("Be terse."), text("Be kind.", cache_control={"type": "ephemeral"})]
    assert sent(system=blocks)["messages"] == [{"role": "system", "content": "Be terse.\n\nBe kind."}]
    assert sent(system="Be terse.")["messages"] == [{"role": "system", "content": "Be terse."}]
    assert sent(system=[])["messages"] == sent(system="")["messages"] == []


LINE = "x-anthropic-billing-header: cc_version=2.1.197.434; cc_entrypoint=cli;"


@pytest.mark.parametrize("target", [Target(), Target(drop_attribution=True)])
def test_the_attribution_line_never_leaves(target: Target) -> None:
    """SPEC 2.2a: only Anthropic takes it out of the prompt; and it is a system entry of its own, not a user's words."""
    for system in ([text(LINE), text("Be terse.")], f"{LINE}\nBe terse."):
        body = json.loads(openai_chat.build_request(parsed(system=system), target))
        assert body["messages"] == [{"role": "system", "content": "Be terse."}]
    for system in ([text(LINE)], LINE):
        assert json.loads(openai_chat.build_request(parsed(system=system), target))["messages"] == []
    kept = sent_messages({"role": "user", "content": LINE}, system=[text("Be terse."), text(LINE)])
    assert [one["content"] for one in kept] == [f"Be terse.\n\n{LINE}", LINE]


def test_it_stays_for_anthropic() -> None:
    """What is parsed still has it: `relay: rebuild` to Anthropic with `attribution: keep` sends it first."""
    assert parsed(system=[text(LINE), text("Be terse.")]).messages[0].parts()[0].text == LINE  # type: ignore[union-attr]


def test_a_system_message_stays_where_it_is() -> None:
    """Claude Code puts 5 KB of them in the middle."""
    body = sent_messages(said("user", text("Hi")), {"role": "system", "content": "x" * 5000}, system="s")
    assert [one["role"] for one in body] == ["system", "user", "system"]
    assert body[2]["content"] == "x" * 5000


def test_where_a_template_wants_it_first_a_later_one_is_a_users() -> None:
    """Qwen's template raises `System message must be at the beginning`; moving it there would cost the cache."""
    body = sent_messages(
        said("user", text("Hi")), {"role": "system", "content": "new"}, system="s", model="Qwen3.8:27b"
    )
    assert body == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "Hi"},
        {"role": "user", "content": "<system>\nnew\n</system>"},
    ]


# --- Turns ------------------------------------------------------------------------------------------------------------


def test_results_stand_right_behind_their_calls() -> None:
    """a2o-007: whatever else the user message holds, in whatever order, comes behind them."""
    other = {**RESULT, "tool_use_id": "toolu_b"}
    body = sent_messages(
        said("assistant", text("Looking."), CALL, {**CALL, "id": "toolu_b"}),
        said("user", text("before"), other, text("between"), RESULT, text("after")),
    )
    assert [one["role"] for one in body] == ["assistant", "tool", "tool", "user"]
    assert [one["tool_call_id"] for one in body[1:3]] == ["toolu_b", "toolu_a"]
    assert body[3]["content"] == "before\n\nbetween\n\nafter"


def test_what_stands_between_a_call_and_its_result_waits() -> None:
    """OpenAI refuses anything there, and Claude Code may put a system message anywhere."""
    body = sent_messages(said("assistant", CALL), {"role": "system", "content": "s"}, said("user", RESULT), system="h")
    assert [one["role"] for one in body] == ["system", "assistant", "tool", "system"]
    unanswered = sent_messages(said("assistant", CALL), said("user", text("Stop")), said("assistant", text("Ok")))
    assert [one["role"] for one in unanswered] == ["assistant", "tool", "user", "assistant"]
    assert unanswered[1]["content"] == "Error: There is no result: the call was interrupted."


def test_pictures_out_of_results_come_behind_all_results_of_the_turn() -> None:
    """a2o-002: and before what the user says; the tool message never is without a word."""
    other = {**RESULT, "tool_use_id": "toolu_b", "content": [text("one pixel"), PNG]}
    body = sent_messages(
        said("assistant", CALL, {**CALL, "id": "toolu_b"}),
        said("user", {**RESULT, "content": [PNG]}, other, text("And?")),
    )
    assert [one["content"] for one in body[1:3]] == ["Attached below.", "one pixel"]
    url = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    assert body[3:] == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Attached to the result of toolu_a:"},
                url,
                {"type": "text", "text": "Attached to the result of toolu_b:"},
                url,
            ],
        },
        {"role": "user", "content": "And?"},
    ]


@pytest.mark.parametrize(
    ("result", "content"),
    [
        ({"content": "sun"}, "sun"),
        ({"content": [text("a"), text(""), text("b")]}, "a\n\nb"),
        ({"content": []}, ""),
        ({"content": ""}, ""),
        ({"content": None}, ""),
        ({}, ""),
        ({"content": "gone", "is_error": True}, "Error: gone"),
        ({"is_error": True}, "Error: "),
        ({"content": "fine", "is_error": False}, "fine"),
        ({"content": [{"type": "tool_reference", "tool_name": "WebFetch"}]}, "WebFetch"),
    ],
)
def test_a_result_is_text(result: dict[str, Any], content: str) -> None:
    body = sent_messages(
        said("assistant", CALL), said("user", {"type": "tool_result", "tool_use_id": "toolu_a", **result})
    )
    assert body[1:] == [{"role": "tool", "tool_call_id": "toolu_a", "content": content}]


def test_an_assistants_turn_is_one_message() -> None:
    """Thinking, words and calls in any order; what only Anthropic can read stays behind."""
    thinking = {"type": "thinking", "thinking": "Hm", "signature": "sig"}
    body = sent_messages(
        said("assistant", thinking, {"type": "redacted_thinking", "data": "d"}, text("Hi"), CALL, text("there")),
        said("user", RESULT),
        said("assistant", CALL),
        said("user", RESULT),
        said("assistant", {"type": "redacted_thinking", "data": "d"}),
    )
    call = {"id": "toolu_a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    assert [one for one in body if one["role"] == "assistant"] == [
        {"role": "assistant", "content": "Hi\n\nthere", "reasoning_content": "Hm", "tool_calls": [call]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "assistant", "content": ""},
    ]


def test_nothing_vanishes_and_nothing_is_an_empty_array() -> None:
    """OpenAI refuses `[]`; a message with nothing left to say still stands, so that turns stay turns."""
    body = sent_messages(said("user"), said("user", text("")), {"role": "user", "content": ""}, said("assistant"))
    assert [one["content"] for one in body] == ["", "", "", ""]


def test_consecutive_turns_and_a_prefilled_answer_stay() -> None:
    body = sent_messages(said("user", text("a")), said("user", text("b")), said("assistant", text("{")))
    assert [(one["role"], one["content"]) for one in body] == [("user", "a"), ("user", "b"), ("assistant", "{")]


def test_arguments_keep_their_bytes() -> None:
    """Numbers beyond 2**53 digit for digit, members in their order, and input that is no object as it is."""
    raw = b'[{"role":"assistant","content":[%s]}]'
    for value in (b'{"b":12345678901234567890123,"a":1.10}', b'["x"]', b"7", b'"\\ud83c\\udf88"'):
        block = b'{"type":"tool_use","id":"i","name":"f","input":%s}' % value
        members = {"model": msgspec.Raw(b'"m"'), "messages": msgspec.Raw(raw % block)}
        body = json.loads(openai_chat.build_request(anthropic_messages.parse_request(members)))
        assert body["messages"][0]["tool_calls"][0]["function"]["arguments"].encode() == value


# --- Blocks that this format lacks ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "words"),
    [
        (
            {
                "type": "document",
                "title": "a.txt",
                "source": {"type": "text", "media_type": "text/plain", "data": "hi"},
            },
            "a.txt:\n\nhi",
        ),
        ({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "hi"}}, "hi"),
        ({"type": "document", "title": "t", "source": {"type": "content", "content": [text("a")]}}, "t:\n\na"),
        ({"type": "document", "source": {"type": "content", "content": "b"}}, "b"),
        ({"type": "search_result", "source": "u", "title": "t", "content": [text("a")]}, "t\nu\n\na"),
        ({"type": "compaction", "content": "so far"}, "so far"),
    ],
)
def test_what_is_text_in_another_dress_is_said_as_text(block: dict[str, Any], words: str) -> None:
    assert sent_messages(said("user", block, text("?")))[0]["content"] == f"{words}\n\n?"


def test_a_pdf_has_a_name() -> None:
    """OpenAI refuses file data without one."""
    pdf = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBE"}}
    parts = sent_messages(said("user", pdf, {**pdf, "title": "report.pdf"}))[0]["content"]
    assert [part["file"]["filename"] for part in parts] == ["document.pdf", "report.pdf"]
    assert parts[0]["file"]["file_data"] == "data:application/pdf;base64,JVBE"


def test_what_anthropics_servers_did_earlier_is_left_out() -> None:
    """A session that moved here goes on: the answer that came of the search is still there."""
    search = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"type": "web_search_result"}]}
    nothing = {"type": "compaction", "content": None, "encrypted_content": None}
    cited = text("It rains.", citations=[{"type": "web_search_result_location", "url": "u"}])
    body = sent_messages(said("assistant", text("Looking."), search, found, nothing, cited))
    assert body == [{"role": "assistant", "content": "Looking.\n\nIt rains."}]


@pytest.mark.parametrize(
    "block",
    [
        {"type": "container_upload", "file_id": "f"},
        {"type": "image", "source": {"type": "file", "file_id": "f"}},
        {"type": "document", "source": {"type": "content", "content": [PNG]}},
        {"type": "something_new"},
    ],
)
def test_what_cannot_be_said_is_refused(block: dict[str, Any]) -> None:
    with pytest.raises(ProtocolUnsupported, match=str(block["type"])):
        sent_messages(said("user", block))


@pytest.mark.parametrize(
    "kind", ["web_search_20250305", "code_execution_20250825", "bash_20250124", "text_editor_20250728", "mcp_toolset"]
)
def test_a_tool_that_only_anthropic_has_is_refused(kind: str) -> None:
    """Without it the model would make up what the tool should find; the refusal says which one it is."""
    with pytest.raises(ProtocolUnsupported, match=kind) as caught:
        sent(tools=[TOOL, {"type": kind, "name": "x"}])
    assert caught.value.param == "tools[1]"


def test_searching_among_tools_is_left_out() -> None:
    """All tools are sent, so there is nothing to search."""
    search = {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}
    assert len(sent(tools=[search, {**TOOL, "defer_loading": True}])["tools"]) == 1


# --- Tools and parameters ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "whole"),
    [
        ('{"b":1,"type":"object","properties":{}}', '{"b":1,"type":"object","properties":{}}'),
        (
            '{"properties":{"n":{"const":12345678901234567890}}}',
            '{"type":"object","properties":{"n":{"const":12345678901234567890}}}',
        ),
        ("{}", '{"type":"object","properties":{}}'),
        ('{"type":"object"}', '{"properties":{},"type":"object"}'),
        ('{"anyOf":[]}', '{"type":"object","properties":{},"anyOf":[]}'),
        ('{"type":"string"}', '{"type":"string"}'),
        ("true", "true"),
    ],
)
def test_a_schema_has_what_openai_wants(schema: str, whole: str) -> None:
    """`type` and `properties` are put in front where they lack; every other byte stays."""
    raw = f'[{{"name":"f","input_schema":{schema}}}]'.encode()
    members = {"model": msgspec.Raw(b'"m"'), "messages": msgspec.Raw(b"[]"), "tools": msgspec.Raw(raw)}
    body = openai_chat.build_request(anthropic_messages.parse_request(members)).decode()
    assert f'"parameters":{whole}' in body


def test_a_tool_needs_no_schema_and_no_description() -> None:
    assert sent(tools=[{"name": "f"}])["tools"] == [{"type": "function", "function": {"name": "f"}}]


def test_tool_choice_goes_with_tools_only() -> None:
    """OpenAI refuses `tool_choice` and `parallel_tool_calls` without tools."""
    once = {"disable_parallel_tool_use": True}
    assert sent(tool_choice={"type": "auto", **once}).keys() == {"model", "messages", "max_tokens"}
    assert sent(tool_choice={"type": "none"}).keys() == {"model", "messages", "max_tokens"}
    for choice in ({"type": "any"}, {"type": "tool", "name": "f"}):
        with pytest.raises(BadRequest) as caught:
            sent(tool_choice=choice)
        assert caught.value.param == "tool_choice"
    body = sent(tools=[TOOL], tool_choice={"type": "tool", "name": "f", **once})
    assert body["tool_choice"] == {"type": "function", "function": {"name": "f"}}
    assert body["parallel_tool_calls"] is False
    assert "parallel_tool_calls" not in sent(tools=[TOOL], tool_choice={"type": "auto"})


def test_usage_is_asked_of_streams_only() -> None:
    """OpenAI refuses `stream_options` beside a unary request, such as Claude Code's second try."""
    assert sent(stream=True)["stream_options"] == {"include_usage": True}
    assert sent(stream=False).keys() == {"model", "messages", "max_tokens"}


def test_what_only_anthropic_has_stays_behind() -> None:
    """Nothing that OpenAI would refuse as unknown: Claude Code's own members, marks, and the tier of Anthropic."""
    body = sent(
        system=[text("s", cache_control={"type": "ephemeral", "ttl": "1h"})],
        messages=[said("user", text("Hi", cache_control={"type": "ephemeral"}))],
        tools=[{**TOOL, "cache_control": {"type": "ephemeral"}, "eager_input_streaming": True}],
        context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        container={"id": "c"},
        mcp_servers=[],
        betas=["x"],
        service_tier="standard_only",
        inference_geo="us",
        speed="fast",
    )
    assert body.keys() == {"model", "messages", "tools", "max_tokens"}
    assert "cache_control" not in json.dumps(body) and "ephemeral" not in json.dumps(body)


def test_a_shape_is_strict_where_openai_takes_it_so() -> None:
    """Anthropic always keeps to the schema; OpenAI does where `strict` says so, and refuses that for open schemas."""
    closed = {
        "type": "object",
        "properties": {"t": {"type": "string"}},
        "required": ["t"],
        "additionalProperties": False,
    }
    for schema, strict in (
        (closed, True),
        ({**closed, "required": []}, None),
        ({**closed, "additionalProperties": True}, None),
        ({**closed, "properties": {"t": {"type": "string", "minLength": 1}}}, None),
        ({**closed, "properties": {"t": {"type": "array", "items": {"type": "object"}}}}, None),
        ({**closed, "properties": {"t": {"anyOf": [{"type": "null"}, closed]}}}, True),
        ({**closed, "properties": {"t": {"type": ["object", "null"]}}}, None),
        ({**closed, "properties": {"t": {}}}, None),
    ):
        found = sent(output_config={"format": {"type": "json_schema", "schema": schema}})["response_format"]
        assert found["type"] == "json_schema" and found["json_schema"]["name"]
        assert found["json_schema"]["schema"] == schema
        assert found["json_schema"].get("strict") is strict


# --- Blame ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("messages", "place"),
    [
        (b'[{"role":"user","content":"secret \\ud83d!"}]', "messages[0].content"),
        (b'[{"role":"user","content":[{"type":"text","text":"secret \\udf88"}]}]', "messages[0].content[0].text"),
        (b'[{"role":"user","content":[{"type":"text","text":"secret \xff"}]}]', "messages[0].content[0].text"),
        (
            b'[{"role":"user","content":[{"type":"tool_use","id":"i","name":"f","input":{"a":[1,"secret\\ud800"]}}]}]',
            "messages[0].content[0].input.a[1]",
        ),
        (
            b'[{"role":"user","content":[{"type":"tool_use","id":"i","name":"secret","input":{}},5]}]',
            "messages[0].content[1]",
        ),
        (b'[{"role":"secret","content":"x"}]', "messages[0].role"),
        (
            b'[{"role":"user","content":[{"type":"tool_result","tool_use_id":"secret","content":[{"type":1}]}]}]',
            "messages[0].content[0].content[0].type",
        ),
    ],
)
def test_a_fault_has_a_path_and_an_expected_type_but_no_value(messages: bytes, place: str) -> None:
    """SPEC 14.2: what the caller sent does not come back, or into a log, with the blame."""
    with pytest.raises(BadRequest, match=r"[Ee]xpected|UTF-8|surrogate") as caught:
        anthropic_messages.parse_request({"model": msgspec.Raw(b'"m"'), "messages": msgspec.Raw(messages)})
    assert caught.value.param == place and str(caught.value).startswith(place)
    assert "secret" not in str(caught.value)


def test_schemas_are_whole_text_too() -> None:
    tools = msgspec.Raw(b'[{"name":"f","input_schema":{"type":"object","description":"\xff"}}]')
    with pytest.raises(BadRequest) as caught:
        anthropic_messages.parse_request({"model": msgspec.Raw(b'"m"'), "messages": msgspec.Raw(b"[]"), "tools": tools})
    assert caught.value.param == "tools[0].input_schema.description"


@pytest.mark.parametrize("tool", [{"type": None}, {"type": None, "name": ""}, {"type": "custom"}, {}])
def test_a_tool_without_a_name_is_refused_by_its_place(tool: dict[str, Any]) -> None:
    """Whatever its type is, and if it is none."""
    with pytest.raises(ProtocolUnsupported, match=r"^tools\[1\]: a tool of type (unknown|custom) cannot be told"):
        sent(tools=[TOOL, tool])
