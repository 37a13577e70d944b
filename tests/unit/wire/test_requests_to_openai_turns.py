"""Whole conversations of Messages clients at OpenAI Chat upstreams: growth keeps the bytes, what is said arrives."""

from __future__ import annotations

import itertools
import json
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from arbiter.model import File, Image, Message, Opaque, OpaqueTool, Part, Request, Text, Thinking, ToolCall, ToolResult
from arbiter.wire import anthropic_messages, openai_chat
from tests.unit.wire import neutral

MODELS = st.sampled_from(["m", "gpt-5", "mistral-large-latest", "deepseek-v4-pro", "qwen3.8", "openai/gpt-oss-20b"])

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
texts = st.builds(lambda said: {"type": "text", "text": said}, words)
pictures = st.just({"type": "image", "source": {"type": "url", "url": "https://pictures.example/a.png"}})
files = st.builds(
    lambda title: {
        "type": "document",
        "title": title,
        "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBE"},
    },
    words,
)
thoughts = st.builds(lambda said: {"type": "thinking", "thinking": said, "signature": "s"}, words)
searches = st.sampled_from(
    [
        {"type": "redacted_thinking", "data": "d"},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
    ]
)


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    """What a client's turns are: its words with all results, at times a system message, and the assistant's answer."""
    said: list[dict[str, Any]] = []
    calls: list[str] = []
    for turn in range(draw(st.integers(1, 4))):
        results = []
        for call in draw(st.permutations(calls)):
            content = draw(words | st.lists(texts | pictures | files, max_size=3))
            results.append(
                {"type": "tool_result", "tool_use_id": call, "content": content, "is_error": draw(st.booleans())}
            )
        blocks = [*results, *draw(st.lists(texts | pictures | files, max_size=3))]
        said.append(
            {"role": "user", "content": draw(st.permutations(blocks)) if calls else draw(words | st.just(blocks))}
        )
        if draw(st.booleans()):
            said.append({"role": "system", "content": draw(words)})
        calls = [f"toolu_{turn}_{i}" + "x" * draw(st.sampled_from([0, 40])) for i in range(draw(st.integers(0, 2)))]
        uses = [{"type": "tool_use", "id": call, "name": draw(words), "input": {"a": draw(words)}} for call in calls]
        said.append({"role": "assistant", "content": [*draw(st.lists(texts | thoughts | searches, max_size=3)), *uses]})
    return said


def marked(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages as Claude Code sends them: the newest has the cache mark, which moves on with every turn."""
    newest = messages[-1]
    if not isinstance(newest["content"], list) or not newest["content"]:
        return messages
    last = {**newest["content"][-1], "cache_control": {"type": "ephemeral"}}
    return [*messages[:-1], {**newest, "content": [*newest["content"][:-1], last]}]


def built(model: str, messages: list[dict[str, Any]]) -> bytes:
    raw = json.dumps({"model": model, "max_tokens": 9, "system": "s", "messages": messages}).encode()
    request = anthropic_messages.parse_request(msgspec.json.decode(raw, type=dict[str, msgspec.Raw]))
    body = openai_chat.build_request(request)
    return bytes(msgspec.json.decode(body, type=dict[str, msgspec.Raw])["messages"])


@given(said=conversations(), model=MODELS)
@settings(max_examples=80, deadline=None)
def test_a_conversation_that_grows_keeps_its_bytes(said: list[dict[str, Any]], model: str) -> None:
    """SPEC 2.4: after every message of a client that answers all calls at once, and wherever its cache mark is."""
    whole = built(model, said)
    for n in range(1, len(said)):
        shorter = built(model, marked(said[:n]))
        assert whole.startswith(shorter[:-1]) and whole[len(shorter) - 1 :][:1] in (b",", b"]")
        assert built(model, said[:n]) == shorter


@given(said=conversations(), model=MODELS)
@settings(max_examples=80, deadline=None)
def test_every_conversation_is_one_that_servers_take(said: list[dict[str, Any]], model: str) -> None:
    """Results right behind their calls, one for each; no empty arrays; no message without content or calls."""
    messages = json.loads(built(model, said))
    waiting: list[str] = []
    for one in messages:
        assert one["content"] != [] and (one["content"] is not None or one.get("tool_calls"))
        if one["role"] == "tool":
            waiting.remove(one["tool_call_id"])
            assert isinstance(one["content"], str)
            continue
        assert waiting == []
        waiting = [call["id"] for call in one.get("tool_calls", ())]
    if model.startswith("mistral"):
        pairs = {(first["role"], then["role"]) for first, then in itertools.pairwise(messages)}
        assert not pairs & {("tool", "user"), ("tool", "system")}
    if model.startswith("qwen"):
        assert "system" not in [one["role"] for one in messages[1:]]


# --- There and back ---------------------------------------------------------------------------------------------------


def heard(content: str | tuple[Part, ...]) -> str:
    """All text of a message or result, as one string."""
    if isinstance(content, str):
        return content
    found = []
    for part in content:
        if isinstance(part, Text):
            found.append(part.text)
        elif isinstance(part, File) and part.text is not None:
            found.append(f"{part.filename}:\n\n{part.text}" if part.filename else part.text)
    return "\n\n".join(one for one in found if one)


def gist(request: Request) -> list[object]:
    """What a conversation says, however it is cut into parts: in order, without what only one format has."""
    told: list[object] = []
    for message in request.messages:
        parts = message.parts()
        if message.role == "tool":
            result = parts[0]
            assert isinstance(result, ToolResult)
            said = heard(result.content)
            told.append((result.call_id, f"Error: {said}" if result.is_error else said))
            continue
        thinking = "".join(part.text for part in parts if isinstance(part, Thinking))
        calls = [(part.id, part.name, part.arguments) for part in parts if isinstance(part, ToolCall)]
        told.append((message.role, heard(parts), thinking, calls))
    return told


def shown(request: Request) -> list[str]:
    """Every picture and file of a request, in order."""
    found: list[str] = []

    def look(parts: str | tuple[Part, ...]) -> None:
        for part in parts:
            if isinstance(part, ToolResult):
                look(part.content)
            elif isinstance(part, Image | File) and not (isinstance(part, File) and part.text is not None):
                found.append(str(part.url or part.data or getattr(part, "file_id", None)))

    for message in request.messages:
        look(message.content)
    return found


def plain(message: Message) -> Message:
    """The message without what is Anthropic's own, and with nothing in a result that needs a message behind it."""
    if isinstance(message.content, str):
        return message
    parts: list[Part] = []
    for part in message.content:
        if isinstance(part, ToolResult) and not isinstance(part.content, str):
            texts = tuple(one for one in part.content if isinstance(one, Text))
            part = msgspec.structs.replace(part, content=texts)
        if not isinstance(part, Opaque):
            parts.append(part)
    return msgspec.structs.replace(message, content=tuple(parts))


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_request_translated_there_and_back_says_the_same(data: st.DataObject) -> None:
    """Everything of the table in docs/formats.md that both formats carry, read back from what the upstream got."""
    request = data.draw(neutral.requests(neutral.MESSAGES))
    tools = tuple(tool for tool in request.tools if not isinstance(tool, OpaqueTool))
    request = msgspec.structs.replace(request, tools=tools, messages=tuple(map(plain, request.messages)))
    if not tools:
        request = msgspec.structs.replace(request, tool_choice=None, parallel_tools=None)
    body = openai_chat.build_request(request)
    found = openai_chat.parse_request(msgspec.json.decode(body, type=dict[str, msgspec.Raw]))
    assert gist(found) == gist(request)
    assert shown(found) == shown(request)
    assert [tool.name for tool in found.tools] == [tool.name for tool in tools]  # type: ignore[union-attr]
    assert [tool.parameters for tool in found.tools] == [tool.parameters for tool in tools]  # type: ignore[union-attr]
    assert found.output is None if request.output is None else found.output is not None
    for name in (
        "model",
        "tool_choice",
        "parallel_tools",
        "max_output",
        "temperature",
        "top_p",
        "top_k",
        "stop",
        "user",
    ):
        assert getattr(found, name) == getattr(request, name), name
    assert (found.stream, found.include_usage) == (request.stream, request.stream)
