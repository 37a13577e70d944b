"""docs/format-fields.md is whole and true: each member that a vendor's document has is in one of its tables, and a
value put there goes where the table says.

The tables are the tests' only list. A row with a `*` speaks for every member that fits and has no longer row.
"""

from __future__ import annotations

import copy
import functools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from arbiter import model
from arbiter.errors import ProtocolUnsupported
from arbiter.model import Target
from arbiter.wire.format import FORMATS, Format
from tests.fakes import vendor_schemas
from tests.fakes.vendor_schemas import Member, values, without

PAGE = Path("docs/format-fields.md").read_text()
CHAT, MESSAGES = FORMATS["openai-chat"], FORMATS["anthropic-messages"]
RESPONSES = FORMATS["openai-responses"]
TARGET = Target(prompt_cache="client")  # the gateway's own marks are no member of anybody's
Body = dict[str, Any]

CHAT_IN, CHAT_OUT, CHAT_CHUNK = (f"OpenAI Chat {one}" for one in ("requests", "answers", "chunks"))
MESSAGES_IN, MESSAGES_OUT, MESSAGES_EVENT = (f"Anthropic Messages {one}" for one in ("requests", "answers", "events"))


RESPONSES_IN, RESPONSES_OUT, RESPONSES_EVENT = (f"OpenAI Responses {one}" for one in ("requests", "answers", "events"))


class Row(NamedTuple):
    """One line of a table. `target` is where the member goes, `fate` what happens to one that goes nowhere."""

    section: str
    path: str
    neutral: str
    target: str
    fate: str
    seen: bool
    """In no document (†), but in traffic."""

    def fits(self, path: str) -> bool:
        return re.fullmatch(re.escape(self.path).replace(r"\*", ".*"), path) is not None


class Side(NamedTuple):
    """A section of the page: whose schemas it lists, how such a body is translated, and the schema of the outcome.

    Answers have none here: tests/unit/wire/test_vendor_schemas.py judges them.
    """

    vendor: str
    roots: tuple[str, ...]
    translate: Callable[[Body], list[Body]]
    into: tuple[str, str] | None = None
    but: str = "$^"
    """What of them has a section of its own."""

    def members(self) -> dict[str, Member]:
        return _members(self.vendor, self.roots, self.but)


@functools.cache
def _members(vendor: str, roots: tuple[str, ...], but: str) -> dict[str, Member]:
    found = vendor_schemas.members(vendor, *roots)
    return {path: one for path, one in found.items() if not re.match(but, path)}


def _request(parse: Format, build: Format) -> Callable[[Body], list[Body]]:
    def translate(body: Body) -> list[Body]:
        members = msgspec.json.decode(json.dumps(_placed(body)), type=dict[str, msgspec.Raw])
        return [json.loads(build.build_request(parse.parse_request(members), TARGET))]

    return translate


def _answer(parse: Format, write: Format) -> Callable[[Body], list[Body]]:
    return lambda body: [json.loads(write.write_answer(parse.parse_answer(json.dumps(body).encode()), "T", "m", 1))]


def _stream(read: Format, write: Format) -> Callable[[Body], list[Body]]:
    def translate(body: Body) -> list[Body]:
        frames = [f"data: {json.dumps(one)}\n\n" for one in _told(body)]
        reader, writer = read.reader(), write.writer("T", "m", 1)
        events = reader.feed("".join(frames).encode()) + reader.finish()
        lines = b"".join(writer.write(event) for event in events).decode().split("\n")
        return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]

    return translate


def _placed(body: Body) -> Body:
    """Return a request in which a lone sample makes sense: results have calls, choices tools, and blocks a speaker."""
    body = copy.deepcopy(body)
    if "messages" not in body:
        return _placed_input(body)
    said = body["messages"][0]
    entry = said["content"][0] if isinstance(said.get("content"), list) and said["content"] else {}
    kind = entry.get("type", "")
    hello = {"role": "user", "content": "hello"}
    call: Body = {"name": "f", "arguments": "{}"}
    if said["role"] == "tool":
        calls = [{"id": said.get("tool_call_id", ""), "type": "function", "function": call}]
        body["messages"][:0] = [hello, {"role": "assistant", "tool_calls": calls}]
    elif said["role"] == "function":
        body["messages"][:0] = [hello, {"role": "assistant", "function_call": call}]
    elif kind == "tool_result":
        use = {"type": "tool_use", "id": entry.get("tool_use_id", ""), "name": "f", "input": {}}
        body["messages"][:0] = [hello, {"role": "assistant", "content": [use]}]
    elif kind == "file" and list(entry["file"]) == ["filename"]:
        entry["file"]["file_data"] = vendor_schemas.SAMPLES["file_data"]
    elif kind in ("thinking", "redacted_thinking", "compaction") or kind.endswith(("tool_use", "tool_result")):
        said["role"] = "assistant"
        if kind == "compaction":
            entry.setdefault("content", "summary")
    if said["role"] == "assistant":
        body["messages"].insert(0, hello)
    elif said["role"] in ("system", "developer"):
        body["messages"].append(hello)
    if {"tool_choice", "parallel_tool_calls", "function_call"} & set(body):
        schema = {"type": "object", "properties": {}}
        names = ("f", "g", "some_name")
        if "max_tokens" in body:
            body["tools"] = [{"name": name, "input_schema": schema} for name in names]
        else:
            body["tools"] = [{"type": "function", "function": {"name": name, "parameters": schema}} for name in names]
    return body


def _placed_input(body: Body) -> Body:
    """The same for a request of Responses, in which nothing has to be."""
    body.setdefault("model", "gpt-5" if "verbosity" in body.get("text", ()) else "m")
    said = body.setdefault("input", "hello")
    if isinstance(said, list):
        kind = said[0].get("type", "")
        call: Body = {"type": "function_call", "call_id": said[0].get("call_id", ""), "name": "f", "arguments": "{}"}
        if kind == "custom_tool_call_output":
            said.insert(0, {**call, "type": "custom_tool_call", "input": "x"})
        elif kind == "function_call_output":
            said.insert(0, call)
        for part in [*(said[-1].get("content") or ()), *(said[-1].get("output") or ())]:
            if isinstance(part, dict) and part.get("type") == "input_image" and "file_id" not in part:
                part.setdefault("image_url", "https://files.example/a")
            elif (
                isinstance(part, dict)
                and part.get("type") == "input_file"
                and not {"file_data", "file_url"} & set(part)
            ):
                part.setdefault("file_id", "file-1")
        if said[-1].get("role") != "user":
            said.insert(0, {"role": "user", "content": "hello"})
    if {"tool_choice", "parallel_tool_calls"} & set(body):
        body["tools"] = [{"type": "function", "name": name} for name in ("f", "g", "some_name", "some_namesome_name")]
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and choice.get("tools") == [{"a": 1}]:
        choice["tools"] = [{"type": "function", "name": name} for name in ("f", "g")]
    if "top_logprobs" in body:
        body.setdefault("include", ["message.output_text.logprobs"])
    return body


def _told(event: Body) -> list[Body]:
    """Return the stream around one event: it has a beginning, and an end."""
    event = copy.deepcopy(event)
    if "choices" in event:
        choice, chunk = event["choices"][0], {**event, "usage": None}
        said = choice["delta"]
        names = [*said.get("tool_calls", ()), {"function": said.get("function_call", {})}]
        opening: Body = {"index": 0, "delta": {}, "finish_reason": None}
        for one in names:
            if list(one.get("function", ())) == ["arguments"]:
                call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}
                opening["delta"] = {"tool_calls": [call]} if "index" in one else {"function_call": {"name": "f"}}
        finish = {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"] or "stop"}
        choice["finish_reason"] = None
        return [{**chunk, "choices": [opening]}, event, {**chunk, "choices": [finish]}]
    kind = event["type"]
    if kind == "error" or kind.startswith("response."):
        return _told_of_response(event)
    usage = {"output_tokens": 1}
    stop: Body = {"type": "content_block_stop", "index": event.get("index", 0)}
    blocks: Body = {
        "text_delta": {"type": "text", "text": ""},
        "thinking_delta": {"type": "thinking", "thinking": "", "signature": ""},
        "signature_delta": {"type": "thinking", "thinking": "", "signature": ""},
        "input_json_delta": {"type": "tool_use", "id": "t", "name": "f", "input": {}},
    }
    around = [event]
    if kind == "content_block_start":
        around = [event, stop]
    elif kind == "content_block_delta":
        block = blocks.get(event["delta"]["type"], blocks["text_delta"])
        around = [{"type": "content_block_start", "index": event.get("index", 0), "content_block": block}, event, stop]
    message = {"id": "i", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
    start = [] if kind == "message_start" else [{"type": "message_start", "message": message}]
    delta = {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": usage}
    end = [] if kind == "message_delta" else [delta]
    return [*start, *around, *end, {"type": "message_stop"}]


def _told_of_response(event: Body) -> list[Body]:
    """The same around an event of Responses; a delta of arguments has its call."""
    kind = event["type"]
    calls = {
        "response.function_call_arguments.delta": {"type": "function_call", "arguments": ""},
        "response.custom_tool_call_input.delta": {"type": "custom_tool_call", "input": ""},
    }
    start: Body = {"type": "response.created", "response": {"id": "i", "model": "m"}}
    before = [start]
    if kind in calls:
        item = {"id": event.get("item_id", "i"), "call_id": "c", "name": "f", **calls[kind]}
        where = {"output_index": event["output_index"]} if "output_index" in event else {}
        before.append({"type": "response.output_item.added", "item": item, **where})
    return [*before, event, {"type": "response.completed", "response": {"status": "completed", "output": []}}]


SIDES = {
    CHAT_IN: Side(
        "openai",
        ("CreateChatCompletionRequest",),
        _request(CHAT, MESSAGES),
        ("anthropic", "BetaCreateMessageParams"),
    ),
    RESPONSES_IN: Side(
        "openai",
        ("CreateResponse",),
        _request(RESPONSES, CHAT),
        ("openai", "CreateChatCompletionRequest"),
    ),
    MESSAGES_IN: Side(
        "anthropic",
        ("BetaCreateMessageParams", "CreateMessageParams"),
        _request(MESSAGES, CHAT),
        ("openai", "CreateChatCompletionRequest"),
    ),
    CHAT_OUT: Side("openai", ("CreateChatCompletionResponse",), _answer(CHAT, MESSAGES)),
    RESPONSES_OUT: Side("openai", ("Response",), _answer(RESPONSES, CHAT)),
    RESPONSES_EVENT: Side(
        "openai",
        ("ResponseStreamEvent",),
        _stream(RESPONSES, CHAT),
        but=r"\(response\.\w+\)\.response\b",
    ),
    CHAT_CHUNK: Side("openai", ("CreateChatCompletionStreamResponse",), _stream(CHAT, MESSAGES)),
    MESSAGES_OUT: Side("anthropic", ("BetaMessage", "Message"), _answer(MESSAGES, CHAT)),
    MESSAGES_EVENT: Side("anthropic", ("BetaMessageStreamEvent", "MessageStreamEvent"), _stream(MESSAGES, CHAT)),
}


def _rows(section: str) -> list[Row]:
    """Return the lines of a section's tables: of what is carried (four columns), and of what is not (three)."""
    text = PAGE.split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]
    found = []
    for line in re.findall(r"^\| *(`.*)\|$", text, re.MULTILINE):
        cells = [cell.strip() for cell in line.replace(r"\|", "\0").split("|")]
        path = re.findall(r"`([^`]*)`", cells[0])[0]
        if len(cells) == 4:
            target = re.findall(r"`([^`]*)`", cells[2])[0]
            found.append(Row(section, path, cells[1], target, "", "†" in cells[0]))
        else:
            found.append(Row(section, path, "", "", cells[1], "†" in cells[0]))
    return found


PARAMETERS = (
    {"properties": {"a": {"type": "string"}}},
    {"type": "object", "properties": {"a": {"type": "string"}}},
    {},
)
SYNTAX = ("regex", "It must keep to this regex grammar:\n\nsome_definition", "lark")
SAMPLES: dict[str, dict[str, tuple[Any, ...]]] = {
    CHAT_IN: {
        "messages[user].content[file].file.file_data": ("data:application/pdf;base64,AAAA", "AAAA"),
        "messages[assistant].tool_calls[function].function.arguments": ('{"a":1}', {"a": 1}),
        "messages[assistant].tool_calls[custom].custom.input": ("A", {"input": "A"}),
        "tools[custom].custom.format(grammar).grammar.definition": ("A", "It must keep to this lark grammar:\n\nA"),
        "tools[custom].custom.format(grammar).grammar.syntax": (
            "regex",
            "It must keep to this regex grammar:\n\nsome_definition",
            "lark",
        ),
        "tools[function].function.parameters": (
            {"properties": {"a": {"type": "string"}}},
            {"type": "object", "properties": {"a": {"type": "string"}}},
        ),
        "parallel_tool_calls": (False, True),
        "stop": ("s", ["s"]),
        "reasoning_effort": ("low", "low"),
        "tool_choice": ("required", "any"),
        "messages[assistant].function_call.arguments": ('{"a":1}', {"a": 1}, "{}"),
        "functions[].parameters": (
            {"properties": {"a": {"type": "string"}}},
            {"type": "object", "properties": {"a": {"type": "string"}}},
        ),
        "function_call": ("none", None),
        "tool_choice(allowed_tools).allowed_tools.mode": ("required", "any"),
        "tool_choice(allowed_tools).allowed_tools.tools": (
            [{"type": "function", "function": {"name": "f"}}, {"type": "function", "function": {"name": "g"}}],
            "g",
            [{"type": "function", "function": {"name": "f"}}],
        ),
        "top_k": (5, 5),
        "messages[user].content[text].cache_control": ({"type": "ephemeral", "ttl": "1h"}, None),
        "tools[function].cache_control": ({"type": "ephemeral"}, None),
    },
    RESPONSES_IN: {
        "input[message].role": ("developer", "developer", "user"),
        "input[function_call].namespace": ("A", "A__some_name"),
        "input[custom_tool_call].namespace": ("A", "A__some_name"),
        "input[custom_tool_call].input": ("A", '{"input":"A"}'),
        "tools[function].parameters": PARAMETERS,
        "tools[namespace].tools[function].parameters": PARAMETERS,
        "tools[custom].format(grammar).definition": ("A", "It must keep to this lark grammar:\n\nA"),
        "tools[namespace].tools[custom].format(grammar).definition": ("A", "It must keep to this lark grammar:\n\nA"),
        "tools[custom].format(grammar).syntax": SYNTAX,
        "tools[namespace].tools[custom].format(grammar).syntax": SYNTAX,
        "tools[namespace].name": ("A", "A__some_name"),
        "tools[namespace].tools[function].name": ("A", "some_name__A"),
        "tools[namespace].tools[custom].name": ("A", "some_name__A"),
        "tool_choice(allowed_tools).tools": (
            [{"type": "function", "name": "f"}, {"type": "function", "name": "g"}],
            "g",
            [{"type": "function", "name": "f"}],
        ),
        "tool_choice.type": ("file_search", None),
        "text.format(json_object)": (None, "json_object"),
        "text.format(text)": (None, "text"),
        "include": (["message.output_text.logprobs"], True, ["reasoning.encrypted_content"]),
    },
    CHAT_OUT: {
        "choices[].message.function_call.arguments": ('{"a":1}', {"a": 1}, "{}"),
        "choices[].message.tool_calls[custom].custom.input": ("A", {"invalid_arguments": "A"}),
        "usage.prompt_tokens_details.cache_write_tokens": (3, 3),
        "choices[].message.tool_calls[function].function.arguments": ('{"a":1}', {"a": 1}),
        "choices[].finish_reason": ("length", "max_tokens"),
    },
    RESPONSES_OUT: {
        "output[function_call].namespace": ("A", "A__some_name"),
        "output[custom_tool_call].namespace": ("A", "A__some_name"),
        "incomplete_details.reason": ("max_output_tokens", "length"),
    },
    RESPONSES_EVENT: {
        "(response.output_item.added).item(function_call).namespace": ("A", "A__some_name"),
        "(response.output_item.added).item(custom_tool_call).namespace": ("A", "A__some_name"),
        "(response.output_item.done).item(function_call).namespace": ("A", "A__some_name"),
        "(response.output_item.done).item(custom_tool_call).namespace": ("A", "A__some_name"),
        "(error).code": ("rate_limit_exceeded", "rate_limit_exceeded", "server_error"),
    },
    CHAT_CHUNK: {
        "choices[].index": (3, None, 4),
        "choices[].finish_reason": ("length", "max_tokens"),
    },
    MESSAGES_IN: {
        "messages[].role": ("assistant", "assistant"),
        "messages[].content[image].source(base64).data": ("AAAA", "data:image/jpeg;base64,AAAA"),
        "messages[].content[image].source(base64).media_type": ("image/gif", "data:image/gif;base64,AAAA"),
        "messages[].content[document].source(base64).data": ("AAAA", "data:application/pdf;base64,AAAA"),
        "messages[].content[search_result].title": ("A", "A\nsome_source\n\nsome_text"),
        "messages[].content[search_result].source": ("A", "some_title\nA\n\nsome_text"),
        "messages[].content[search_result].content[].text": ("A", "some_title\nsome_source\n\nA"),
        "messages[].content[tool_use].input": ({"a": 1}, '{"a": 1}'),
        "messages[].content[tool_result].is_error": (True, "Error: "),
        "thinking(enabled).budget_tokens": (2000, "low", 30000),
        "tool_choice(none)": (None, "none"),
        "tool_choice(any).disable_parallel_tool_use": (True, False),
        "tool_choice(auto).disable_parallel_tool_use": (True, False),
        "tool_choice(tool).disable_parallel_tool_use": (True, False),
    },
    MESSAGES_OUT: {
        "usage.input_tokens": (7, 21),
        "content[tool_use].input": ({"a": 1}, '{"a": 1}'),
        "stop_reason": ("max_tokens", "length"),
    },
    MESSAGES_EVENT: {
        "(message_start).message.usage.input_tokens": (7, 21),
        "(message_delta).usage.input_tokens": (7, 21),
        "(message_delta).delta.stop_reason": ("max_tokens", "length"),
        "(content_block_start).content_block(tool_use).input": ({"a": 1}, '{"a": 1}'),
    },
}
"""For members whose value changes on the way, or where not any would do: what is put there, what arrives (None: the
same), and what may be there instead."""

ROWS = {section: _rows(section) for section in SIDES}
ALL = [row for rows in ROWS.values() for row in rows]


@functools.cache
def deciding(section: str) -> dict[str, Row | None]:
    """The row that speaks for each member of a side's schemas: of those that fit, the longest."""
    longest_first = sorted(ROWS[section], key=lambda row: -len(row.path))
    return {path: next((row for row in longest_first if row.fits(path)), None) for path in SIDES[section].members()}


def decided(row: Row) -> list[Member]:
    """The members that a row speaks for."""
    return [SIDES[row.section].members()[path] for path, its in deciding(row.section).items() if its == row]


class Case(NamedTuple):
    """A body with a value at a member, one without it (or, where the vendor demands it, with another), and what the
    value is on the other side."""

    body: Body
    changed: Body
    want: Any


def cases(row: Row) -> Iterator[Case]:
    """Yield a case for each member that a row speaks for."""
    if row.seen:
        parent, _, name = row.path.rpartition(".")
        value, want = SAMPLES[row.section].get(row.path, (f"some_{name}", None))
        *_, beside = (one for path, one in SIDES[row.section].members().items() if path.startswith(parent))
        changed = vendor_schemas.sample(beside)
        body = copy.deepcopy(changed)
        for one in values(body, parent):
            one[name] = value
        yield Case(body, changed, value if want is None else want)
    for member in decided(row):
        # What is inside a result behaves as it does outside of one.
        outside = member.path.replace("content[tool_result].content[", "content[", 1)
        known = SAMPLES[row.section]
        value, want, *instead = known.get(member.path) or known.get(outside) or (None, None)
        body = vendor_schemas.sample(member, value)
        held = values(body, member.path)[0]
        changed = vendor_schemas.sample(member, instead[0]) if instead else _changed(member, body, held)
        yield Case(body, changed, held if want is None else want)


def _changed(member: Member, body: Body, held: Any) -> Body:
    if not member.required or member.path.endswith((")", "]")):
        changed = copy.deepcopy(body)
        without(changed, member.path)
        return changed
    others = [word for word in member.words if word is not None and word != held]
    return vendor_schemas.sample(member, others[0] if others else _other(held))


def _other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, dict):
        return {**value, "b": 2}
    return value * 2 if isinstance(value, str | list) else value + 1


def _named(row: Row) -> str:
    return f"{row.section}: {row.path}"


@pytest.mark.parametrize("section", SIDES)
def test_every_member_of_the_vendors_schemas_has_a_row(section: str) -> None:
    """SPEC 2.2: a field missing from the table is a bug."""
    assert [path for path, row in deciding(section).items() if row is None] == []


@pytest.mark.parametrize("section", SIDES)
def test_nothing_is_listed_that_the_schemas_do_not_have(section: str) -> None:
    """But for what is marked with †, which they indeed do not have."""
    assert [row.path for row in ROWS[section] if bool(decided(row)) == row.seen] == []
    assert len({row.path for row in ROWS[section]}) == len(ROWS[section])


def test_neutral_values_are_the_models() -> None:
    structs = [one for one in vars(model).values() if isinstance(one, type) and issubclass(one, msgspec.Struct)]
    names = {f"{one.__name__}.{field.name}" for one in structs for field in msgspec.structs.fields(one)}
    names |= {one.__name__ for one in structs} | {field.name for field in msgspec.structs.fields(model.Request)}
    assert {name for row in ALL for name in re.findall(r"`([^`]+)`", row.neutral)} - names == set()
    assert [row.path for row in ALL if row.target and not row.neutral] == []


def arrived(row: Row, body: Body) -> list[Any]:
    return [found for one in SIDES[row.section].translate(body) for found in values(one, row.target)]


@pytest.mark.parametrize("row", [row for row in ALL if row.target], ids=_named)
def test_what_is_carried_arrives(row: Row) -> None:
    """A value at the member comes out at the declared place, and only with it; a request is valid there."""
    side = SIDES[row.section]
    for case in cases(row):
        assert case.want in arrived(row, case.body)
        assert case.want not in arrived(row, case.changed)
        if side.into is not None:
            assert vendor_schemas.fault(*side.into, side.translate(case.body)[0]) is None


@pytest.mark.parametrize("row", [row for row in ALL if not row.target], ids=_named)
def test_what_is_not_carried_does_not_arrive(row: Row) -> None:
    """Left out: nothing that leaves depends on it. Refused: nothing leaves."""
    translate = SIDES[row.section].translate
    for case in cases(row):
        if row.fate == "refused":
            with pytest.raises(ProtocolUnsupported):
                translate(case.body)
        else:
            assert row.fate in ("left out", "replaced")
            assert case.body != case.changed
            assert translate(case.body) == translate(case.changed)
