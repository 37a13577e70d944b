"""An agent's tools are read and built once: nobody can tell from what is sent."""

from __future__ import annotations

import json
from typing import Any

import pytest
import xxhash
from msgspec import Raw
from msgspec.structs import replace

from arbiter.errors import BadRequest
from arbiter.model import Request, Target, Tool, ToolChoice
from arbiter.wire import toolbox
from arbiter.wire.format import FORMATS, UPSTREAMS
from arbiter.wire.json import encode
from arbiter.wire.toolbox import LEAST_BYTES, MOST_BYTES, MOST_MADE, MOST_OF_ONE_BYTES, Kept, Toolbox

CHAT, MESSAGES, RESPONSES, GEMINI = "openai-chat", "anthropic-messages", "openai-responses", "google-gemini"
MODELS = {CHAT: "gpt-4o", MESSAGES: "claude-sonnet-4-5", RESPONSES: "gpt-5", GEMINI: "gemini-3-pro",
          "bedrock-converse": "anthropic.claude-sonnet-4-5-20250929-v1:0"}  # fmt: skip
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
NAMES = ("read", "write", "a name that no upstream takes" + "s" * 60)
WORDS = "What it does, at some length. " * 20


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Toolbox:
    """A toolbox of the test's own."""
    box = Toolbox()
    for name in ("known", "keep", "made", "encoded"):
        monkeypatch.setattr(toolbox, name, getattr(box, name))
    return box


def forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolbox, "known", lambda format, raw: None)
    monkeypatch.setattr(toolbox, "keep", lambda format, raw, tools: tools)


def tools_of(format: str, names: tuple[str, ...] = NAMES[:2]) -> list[dict[str, Any]]:
    """Tools as clients of `format` write them; the last is free text where that format has it."""
    if format == CHAT:
        functions = [{"name": one, "description": WORDS, "parameters": SCHEMA} for one in names]
        custom = {"type": "custom", "custom": {"name": "patch", "description": "Any text."}}
        return [*({"type": "function", "function": one} for one in functions), custom]
    if format == MESSAGES:
        found = [{"name": one, "description": WORDS, "input_schema": SCHEMA} for one in names]
        return [*found[:-1], found[-1] | {"cache_control": {"type": "ephemeral"}}]
    if format == RESPONSES:
        found = [{"type": "function", "name": one, "description": WORDS, "parameters": SCHEMA} for one in names]
        return [*found, {"type": "custom", "name": "patch", "description": "Any text."}]
    declared = [{"name": one, "description": WORDS, "parametersJsonSchema": SCHEMA} for one in names]
    return [{"functionDeclarations": declared}]


def members(format: str, **more: Any) -> dict[str, Raw]:
    said = {"role": "user", "content": "hi"}
    talk: dict[str, Any] = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]} if format == GEMINI else {}
    talk = talk or ({"input": [said]} if format == RESPONSES else {"messages": [said]})
    body: dict[str, Any] = {"model": "m", "tools": tools_of(format), **talk, **more}
    return {name: Raw(encode(value)) for name, value in body.items()}


def read(format: str, **more: Any) -> Request:
    return FORMATS[format].parse_request(members(format, **more))


def told(upstream: str, request: Request) -> bytes:
    return UPSTREAMS[upstream].build_request(replace(request, model=MODELS[upstream]), Target())


@pytest.mark.parametrize("format", FORMATS)
def test_a_list_that_came_before_is_not_read_again(format: str):
    first, second = read(format), read(format)
    assert type(first.tools) is Kept
    assert second.tools is first.tools
    assert second == first


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("hashes", ["apart", "alike"])
def test_one_byte_makes_another_list(format: str, hashes: str, monkeypatch: pytest.MonkeyPatch):
    """Also where somebody found two texts of one hash."""
    if hashes == "alike":
        monkeypatch.setattr(xxhash, "xxh3_64_intdigest", lambda text: 1)
    first = read(format)
    other = tools_of(format, ("rear", "write"))
    second = read(format, tools=other)
    assert len(encode(other)) == len(encode(tools_of(format)))
    assert {tool.name for tool in first.tools if type(tool) is Tool} >= {"read", "write"}
    assert {tool.name for tool in second.tools if type(tool) is Tool} >= {"rear", "write"}


def test_a_list_is_known_in_its_own_format_only():
    """The same bytes mean something else to another."""
    raw = members(MESSAGES)["tools"]
    assert toolbox.known(MESSAGES, raw) is None
    read(MESSAGES)
    assert toolbox.known(MESSAGES, raw) is not None
    assert toolbox.known(CHAT, raw) is None


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("format", FORMATS)
def test_what_is_sent_does_not_depend_on_what_came_before(format: str, upstream: str, monkeypatch: pytest.MonkeyPatch):
    """Byte for byte, the tools that are sent under another name included; and each time again."""
    names = NAMES if upstream != MESSAGES else NAMES[:2]
    requests = [read(format, tools=tools_of(format, names)) for _ in range(3)]
    bodies = [told(upstream, request) for request in requests]
    disguises = [UPSTREAMS[upstream].disguised(request) for request in requests]
    forgets(monkeypatch)
    anew = read(format, tools=tools_of(format, names))
    assert type(anew.tools) is tuple
    assert bodies == [told(upstream, anew)] * 3
    assert disguises == [UPSTREAMS[upstream].disguised(anew)] * 3


CHOICES = (None, ToolChoice("auto", allowed=("read",)), ToolChoice("tool", "patch"), ToolChoice("none"))
TARGETS = (Target(), Target(prompt_cache="off"), Target(prompt_cache="client"),
           Target(prompt_cache="arbiter", prompt_cache_ttl="1h"))  # fmt: skip
ABILITIES = {
    CHAT: ("gpt-4o", "gpt-5", "a-model"),
    MESSAGES: ("claude-sonnet-4-5", "claude-3-haiku-20240307", "a-model"),
    RESPONSES: ("gpt-5", "a-model"),
    GEMINI: ("gemini-3-pro", "a-model"),
    "bedrock-converse": ("anthropic.claude-sonnet-4-5-20250929-v1:0", "a-model"),
}


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("format", FORMATS)
def test_what_was_made_for_one_request_is_not_sent_with_another(
    format: str, upstream: str, monkeypatch: pytest.MonkeyPatch
):
    """Which tools may be called, whose cache marks stand on them, and what the model takes are each request's own."""
    asked = [
        (replace(read(format), model=model, tool_choice=choice, parallel_tools=None), target)
        for model in ABILITIES[upstream]
        for choice in CHOICES
        for target in TARGETS
    ]
    bodies = [UPSTREAMS[upstream].build_request(*one) for one in asked + asked[::-1]]
    forgets(monkeypatch)
    anew = read(format)
    fresh_ones = [replace(request, tools=anew.tools) for request, _ in asked]
    once = [UPSTREAMS[upstream].build_request(one, target) for one, (_, target) in zip(fresh_ones, asked, strict=True)]
    assert bodies == once + once[::-1]


@pytest.mark.parametrize("format", FORMATS)
def test_what_is_wrong_beside_known_tools_is_blamed_as_ever(format: str, monkeypatch: pytest.MonkeyPatch):
    wrong = {MESSAGES: {"top_p": "x"}, CHAT: {"top_p": "x"}, RESPONSES: {"top_p": "x"},
             GEMINI: {"generationConfig": {"topP": "x"}}}[format]  # fmt: skip
    read(format)
    with pytest.raises(BadRequest) as known:
        read(format, **wrong)
    forgets(monkeypatch)
    with pytest.raises(BadRequest) as anew:
        read(format, **wrong)
    assert (str(known.value), known.value.param) == (str(anew.value), anew.value.param)


def test_functions_beside_known_tools_are_read_with_each_request():
    """They are the tools of before there were tools, and may be others each time."""
    assert [tool.name for tool in read(CHAT).tools] == ["read", "write", "patch"]  # type: ignore[union-attr]
    for name in ("old", "older"):
        found = read(CHAT, functions=[{"name": name}])
        assert [tool.name for tool in found.tools] == ["read", "write", "patch", name]  # type: ignore[union-attr]


def test_a_short_list_and_a_very_long_one_are_not_kept():
    assert type(read(MESSAGES, tools=[{"name": "a", "input_schema": SCHEMA}]).tools) is tuple
    assert type(read(MESSAGES, tools=[{"name": "a", "description": "x" * MOST_OF_ONE_BYTES}]).tools) is tuple


def test_tools_that_are_refused_are_not_known():
    tools = [*tools_of(MESSAGES), {"name": 1}]
    for _ in range(2):
        with pytest.raises(BadRequest, match=r"tools\[2\]"):
            read(MESSAGES, tools=tools)


def test_what_is_kept_has_a_bound(fresh: Toolbox):
    """However many lists come, and whatever is made of them."""
    tool = Tool("a", "x" * 60_000)
    kept = []
    for n in range(200):
        raw = Raw(json.dumps([{"name": f"{n}", "description": tool.description}]).encode())
        tools = fresh.keep(MESSAGES, raw, (tool,))
        for what in range(MOST_MADE):
            fresh.made(tools, what, lambda: b"y" * 60_000)
        kept.append(raw)
    held = [*fresh._young.values(), *fresh._old.values()]
    size = sum(2 * len(text) + sum(map(len, tools.made.values())) for text, tools in held)
    assert 0 < size <= MOST_BYTES + 2 * (2 + MOST_MADE) * 60_000
    assert fresh.known(MESSAGES, kept[-1]) is not None
    assert fresh.known(MESSAGES, kept[0]) is None


def test_a_list_that_is_asked_for_again_outlives_the_others(fresh: Toolbox):
    def raw(n: int) -> Raw:
        return Raw(b'[{"name":"%d","description":"%b"}]' % (n, b"x" * 60_000))

    tools = fresh.keep(MESSAGES, raw(0), (Tool("0"),))
    for n in range(1, 200):
        fresh.keep(MESSAGES, raw(n), (Tool(str(n)),))
        assert fresh.known(MESSAGES, raw(0)) is tools


def test_no_more_is_made_of_a_list_than_the_bound(fresh: Toolbox):
    raw = Raw(b'[{"name":"a","description":"%b"}]' % (b"x" * LEAST_BYTES))
    tools = fresh.keep(MESSAGES, raw, (Tool("a"),))
    assert type(tools) is Kept
    made = [fresh.made(tools, what, lambda what=what: str(what)) for what in range(3 * MOST_MADE)]  # type: ignore[misc]
    assert made == [str(what) for what in range(3 * MOST_MADE)]
    assert len(tools.made) == MOST_MADE


def many(n: int, size: int = LEAST_BYTES) -> Raw:
    return Raw(b'[{"name":"%d","description":"%b"}]' % (n, b"x" * size))


def test_what_says_for_whom_it_was_made_is_counted(fresh: Toolbox):
    """A client names as many tools that it allows as it likes, beside a list of one."""
    for n in range(40):
        kept = fresh.keep(MESSAGES, many(n), (Tool(str(n)),))
        for what in range(MOST_MADE):
            fresh.made(kept, frozenset(f"{what} {one:0100}" for one in range(1000)), lambda: b"[]")
    held = [*fresh._young.values(), *fresh._old.values()]
    assert sum(len(name) for _, tools in held for what in tools.made for name in what) <= MOST_BYTES  # type: ignore


def test_what_is_made_later_has_the_same_bound(fresh: Toolbox):
    """Of lists that are all here already, none comes anew."""
    kept = [fresh.keep(MESSAGES, many(n), (Tool(str(n)),)) for n in range(100)]
    for tools in kept:
        for what in range(MOST_MADE):
            fresh.made(tools, what, lambda: b"y" * 60_000)
    for _ in range(2):
        fresh.keep(MESSAGES, many(1000), (Tool("1000"),))
    held = [*fresh._young.values(), *fresh._old.values()]
    assert sum(sum(map(len, tools.made.values())) for _, tools in held) <= MOST_BYTES + 2 * 60_000


def test_many_short_tools_are_as_large_as_they_are(fresh: Toolbox):
    for n in range(40):
        tools = tuple(Tool(f"{n} {one}") for one in range(1000))
        raw = Raw(encode([{"name": tool.name} for tool in tools]))
        fresh.keep(MESSAGES, raw, tools)
    held = [*fresh._young.values(), *fresh._old.values()]
    assert sum(len(tools) for _, tools in held) * 150 <= MOST_BYTES


@pytest.mark.parametrize("name", ["function_declarations", "functionDeclarations"])
def test_parts_that_only_google_knows_do_not_depend_on_what_came_before(name: str, monkeypatch: pytest.MonkeyPatch):
    """Where a name has an underscore all are spelled anew; also where it is one of the tools', which are known."""
    schema = SCHEMA | {"properties": {"file_path": {"type": "string"}}}
    tools = [{name: [{"name": "read", "description": WORDS * 3, "parametersJsonSchema": schema}]}]
    part = b'[{"role": "user", "parts": [{"executableCode": {"language": "PYTHON", "code": "1"}}]}]'
    found = [FORMATS[GEMINI].parse_request(members(GEMINI, tools=tools) | {"contents": Raw(part)}) for _ in range(2)]
    forgets(monkeypatch)
    anew = FORMATS[GEMINI].parse_request(members(GEMINI, tools=tools) | {"contents": Raw(part)})
    assert found == [anew, anew]
