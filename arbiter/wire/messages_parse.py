"""Anthropic Messages requests, inwards: JSON members -> `model.Request`.

Nothing is rejected for being unknown: members without a neutral counterpart are not carried (docs/formats.md lists
what is), unknown block and tool types travel as `Opaque`. Only a member that has the wrong type is the caller's fault.

Two shapes differ from the neutral ones. The `system` member is the first message. And tool results, which here share a
user message with whatever the user added, become messages of role `tool`, one each, in front of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, Literal, TypeVar

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from arbiter.errors import BadRequest
from arbiter.model import (
    CacheMark,
    File,
    Image,
    Message,
    Opaque,
    OpaqueTool,
    OutputShape,
    Part,
    Reasoning,
    RedactedThinking,
    Request,
    SealedThinking,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from arbiter.wire import toolbox
from arbiter.wire.json import ABSENT, LONG_BYTES, blame, check_text, decode, decode_sliced, encode, present
from arbiter.wire.messages_opaque import is_needless, told
from arbiter.wire.vault import UNSIGNED, is_sealed

FORMAT = "anthropic-messages"
BLOCKS = ("text", "image", "document", "tool_use", "tool_result", "thinking", "redacted_thinking")
ROLES = ("user", "assistant", "system")  # Claude Code puts `system` in the middle of messages


class _CacheControl(msgspec.Struct):
    ttl: str | None = None


class _Source(msgspec.Struct):
    type: str
    media_type: str | None = None
    data: str | None = None
    url: str | None = None
    file_id: str | None = None


class _Members(msgspec.Struct):
    """Those of a block, whatever its type."""

    type: str
    text: str | None = None
    source: _Source | None = None
    title: str | None = None
    id: str | None = None
    name: str | None = None
    input: Raw = ABSENT
    tool_use_id: str | None = None
    is_error: bool | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    cache_control: _CacheControl | None = None


class _Block(_Members):
    content: str | list[_Block] | None = None  # of a tool result


class _LooseBlock(_Members):
    content: Raw = ABSENT  # blocks that we do not know keep other things there


class _Typed(msgspec.Struct):
    type: str


class _Tool(msgspec.Struct):
    name: str = ""
    type: str | None = None
    description: str | None = None
    input_schema: Raw = ABSENT
    strict: bool | None = None
    cache_control: _CacheControl | None = None


B = TypeVar("B", _Block, Raw)
T = TypeVar("T", _Tool, Raw)


class _Message(msgspec.Struct, Generic[B]):
    role: str
    content: str | list[B]


class _ToolChoice(msgspec.Struct):
    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class _Thinking(msgspec.Struct):
    type: str
    budget_tokens: int | None = None


class _Shape(msgspec.Struct):
    type: str
    schema: Raw = ABSENT


class _OutputConfig(msgspec.Struct):
    effort: str | None = None
    format: _Shape | None = None


class _Metadata(msgspec.Struct):
    user_id: str | None = None


class _Request(msgspec.Struct, Generic[B, T]):
    model: str
    messages: list[_Message[B]]
    system: str | list[B] | None = None
    max_tokens: int | None = None  # absent in count_tokens
    tools: list[T] | None = None
    tool_choice: _ToolChoice | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop_sequences: list[str] | None = None
    thinking: _Thinking | None = None
    output_config: _OutputConfig | None = None
    output_format: _Shape | None = None  # where the format stood while it was a beta
    metadata: _Metadata | None = None
    service_tier: str | None = None
    stream: bool | None = None


_NO_CONFIG = _OutputConfig()
_REQUEST = msgspec.json.Decoder(_Request[_Block, _Tool])
_TURNS = msgspec.json.Decoder(list[_Message[_Block]])
_LOOSE_REQUEST = msgspec.json.Decoder(_Request[Raw, Raw])
_LOOSE_BLOCK = msgspec.json.Decoder(_LooseBlock)
_CONTENT = msgspec.json.Decoder(str | list[Raw])
_TOOL = msgspec.json.Decoder(_Tool)
_RAWS = msgspec.json.Decoder(list[Raw])
_TYPED = msgspec.json.Decoder(_Typed)


class _Strange(Exception):
    """A decoded block is of no type that we know, so its bytes are wanted; or a role is, and its place is."""


def parse_request(members: Mapping[str, Raw]) -> Request:
    """Return the request in neutral words.

    Errors: BadRequest naming the path of the fault.
    """
    raw_tools = members.get("tools")
    tools = toolbox.known(FORMAT, raw_tools) if raw_tools is not None else None
    if tools is not None:
        members = toolbox.without(members)
    body = encode(members)
    check_text(body)
    # Long conversations are decoded in one go, in half the time, as long as every block is of a type that we know and
    # nothing is wrong. Else block by block: that keeps the bytes of what is unknown, and tells which block has a fault.
    try:
        sliced = decode_sliced(members, "messages", _REQUEST, _TURNS) if len(body) > LONG_BYTES else None
        if sliced is None:
            typed = _REQUEST.decode(body)
        else:
            typed, typed.messages = sliced
        messages = _conversation(typed)
        return _parse(typed, messages, tools or _tools(typed.tools or [], raw_tools))
    except (msgspec.DecodeError, RecursionError, _Strange):
        loose = decode(_LOOSE_REQUEST, body)
        messages = _loose_conversation(loose)
        return _parse(loose, messages, tools or _loose_tools(loose.tools or [], raw_tools))


def _parse(
    body: _Request[_Block, _Tool] | _Request[Raw, Raw], messages: list[Message], tools: toolbox.Tools
) -> Request:
    choice, config = body.tool_choice, body.output_config or _NO_CONFIG
    shape = config.format if config.format is not None else body.output_format
    disabled = choice.disable_parallel_tool_use if choice is not None else None
    # With more than fifteen keywords the interpreter makes a dictionary first, which costs three times as much.
    request = Request(
        model=body.model,
        messages=tuple(messages),
        tools=tools,
        tool_choice=_parse_choice(choice) if choice is not None else None,
        parallel_tools=not disabled if disabled is not None else None,
        max_output=body.max_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        stop=tuple(body.stop_sequences or ()),
        reasoning=_parse_reasoning(body.thinking, config.effort),
        user=body.metadata.user_id if body.metadata is not None else None,
        service_tier=body.service_tier,
        stream=bool(body.stream),
        include_usage=True,  # this format always reports it
    )
    output = _parse_shape(shape) if shape is not None else None
    return request if output is None else replace(request, output=output)


def _conversation(body: _Request[_Block, _Tool]) -> list[Message]:
    """Return all that was said, where nothing is wrong or unknown. Errors: _Strange."""
    messages: list[Message] = []
    if body.system:
        messages.append(Message("system", _parts(body.system)))
    for message in body.messages:
        if message.role not in ROLES:
            raise _Strange
        _add(message.role, _parts(message.content), messages)
    return messages


def _loose_conversation(body: _Request[Raw, Raw]) -> list[Message]:
    """Return all that was said. Errors: BadRequest."""
    messages: list[Message] = []
    if body.system:
        messages.append(Message("system", _parse_content(body.system, "system")))
    for i, message in enumerate(body.messages):
        path = f"messages[{i}]"
        if message.role not in ROLES:
            raise BadRequest(f"{path}.role: expected `user`, `assistant` or `system`", param=f"{path}.role")
        _add(message.role, _parse_content(message.content, f"{path}.content"), messages)
    return messages


def _add(role: str, content: str | tuple[Part, ...], messages: list[Message]) -> None:
    """Add one turn: the results in it, and what else there is."""
    if not isinstance(content, str) and ToolResult in map(type, content):
        others: list[Part] = []
        for part in content:
            if type(part) is ToolResult:
                messages.append(Message("tool", (part,)))
            else:
                others.append(part)
        if not others:
            return
        content = tuple(others)
    messages.append(Message(role, content))  # type: ignore[arg-type]  # one of ROLES


def _parts(content: str | list[_Block]) -> str | tuple[Part, ...]:
    """Return decoded content. Errors: _Strange."""
    if isinstance(content, str):
        return content
    parts: list[Part] = []
    for block in content:
        part = _part(block, "")
        if part is None:
            raise _Strange
        parts.append(part)
    return tuple(parts)


def _parse_content(content: str | Sequence[Raw], path: str) -> str | tuple[Part, ...]:
    if isinstance(content, str):
        return content
    return tuple([_parse_block(one, f"{path}[{i}].") for i, one in enumerate(content)])


def _parse_block(raw: Raw, path: str) -> Part:
    """Return one content block. A type that we do not know, or that lacks its own member, is Opaque."""
    try:
        block = decode(_LOOSE_BLOCK, raw, path)
    except BadRequest:
        kind = _kind_of(raw)
        if kind is None or kind in BLOCKS:
            raise
        return _opaque(kind, raw, path)  # another type may hold anything under the same name
    return _part(block, path) or _opaque(block.type, raw, path)


def _part(block: _Block | _LooseBlock, path: str) -> Part | None:
    """Return one content block; None where its type is not known, or its own member is not there."""
    cache = CacheMark(block.cache_control.ttl) if block.cache_control is not None else None
    kind = block.type
    if kind == "text" and block.text is not None:
        return Text(block.text, cache)
    if kind == "tool_use" and block.id is not None and block.name is not None:
        return ToolCall(block.id, block.name, (present(block.input) or b"{}").decode(), cache)
    if kind == "tool_result" and block.tool_use_id is not None:
        content = block.content
        said = content if isinstance(content, str) else _said(block, path)
        return ToolResult(block.tool_use_id, said, block.is_error, cache)
    if kind == "thinking" and block.thinking is not None:
        return Thinking(block.thinking, None if block.signature in ("", UNSIGNED) else block.signature)
    if kind == "redacted_thinking" and block.data is not None:
        return SealedThinking(block.data) if is_sealed(block.data) else RedactedThinking(block.data)
    if block.source is not None and kind == "image":
        return _parse_image(block.source, cache)
    if block.source is not None and kind == "document":
        return _parse_document(block.source, block.title, cache)
    return None


_OPENAIS = {  # and what is written here in their place
    "image_url": '{"type": "image", "source": {"type": "url", "url": …}}, or a source of type "base64"',
    "file": '{"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": …}}',
    "input_audio": "no sound",
    "refusal": '{"type": "text", "text": …}',
}


def _opaque(kind: str, raw: Raw, path: str) -> Opaque:
    if kind in _OPENAIS:
        raise blame(path, "", f"this is OpenAI's shape; /v1/messages takes {_OPENAIS[kind]}")
    return Opaque(FORMAT, bytes(raw), told(kind, raw))


def _said(result: _Block | _LooseBlock, path: str) -> str | tuple[Part, ...]:
    if type(result) is _Block:
        return _parts(result.content or "")
    assert type(result) is _LooseBlock
    path = f"{path}content"
    return _parse_content(decode(_CONTENT, present(result.content) or b'""', path), path)


def _kind_of(raw: Raw) -> str | None:
    try:
        return _TYPED.decode(raw).type
    except (msgspec.DecodeError, RecursionError):
        return None


def _parse_image(source: _Source, cache: CacheMark | None) -> Image | None:
    if source.type == "base64" and source.data is not None and source.media_type is not None:
        return Image(media_type=source.media_type, data=source.data, cache=cache)
    if source.type == "url" and source.url is not None:
        return Image(url=source.url, cache=cache)
    return None


def _parse_document(source: _Source, title: str | None, cache: CacheMark | None) -> File | None:
    media = source.media_type
    if source.type == "base64" and source.data is not None:
        return File(media_type=media, data=source.data, filename=title, cache=cache)
    if source.type == "text" and source.data is not None:
        return File(media_type=media or "text/plain", text=source.data, filename=title, cache=cache)
    if source.type == "url" and source.url is not None:
        return File(url=source.url, filename=title, cache=cache)
    if source.type == "file" and source.file_id is not None:
        return File(file_id=source.file_id, filename=title, cache=cache)
    return None


def _tools(decoded: list[_Tool], raw: Raw | None) -> toolbox.Tools:
    """Return the tools of a request; `raw` is what they were decoded from, which is wanted where one is unknown."""
    if not decoded:
        return ()
    found: list[Tool | OpaqueTool] = []
    for one in decoded:
        tool = _tool(one)
        if tool is None:
            return _loose_tools(_RAWS.decode(raw or b"[]"), raw)
        found.append(tool)
    return toolbox.keep(FORMAT, raw, tuple(found))


def _loose_tools(raws: list[Raw], raw: Raw | None) -> toolbox.Tools:
    return toolbox.keep(FORMAT, raw, tuple([_parse_tool(one, f"tools[{i}].") for i, one in enumerate(raws)]))


def _parse_tool(raw: Raw, path: str) -> Tool | OpaqueTool:
    tool = decode(_TOOL, raw, path)
    if tool.type == "function":
        takes = '{"name": …, "description": …, "input_schema": …}'
        raise blame(path, "", f"this is OpenAI's shape of a tool; /v1/messages takes {takes}")
    return _tool(tool) or OpaqueTool(FORMAT, bytes(raw), is_needless(tool.type or ""))


def _tool(tool: _Tool) -> Tool | None:
    """Return one tool; None where it is one of the vendor's, or none at all."""
    if tool.type not in (None, "custom") or not tool.name:
        return None
    cache = CacheMark(tool.cache_control.ttl) if tool.cache_control is not None else None
    return Tool(tool.name, tool.description, present(tool.input_schema), tool.strict, cache)


_CHOICES = {"auto": ToolChoice("auto"), "none": ToolChoice("none"), "any": ToolChoice("required")}


def _parse_choice(choice: _ToolChoice) -> ToolChoice:
    if choice.type == "tool" and choice.name is not None:
        return ToolChoice("tool", choice.name)
    if choice.type not in _CHOICES:
        raise blame("tool_choice", ".type", "expected auto, any, none, or tool with a `name`")
    return _CHOICES[choice.type]


_MODES: dict[str, Literal["enabled", "disabled", "adaptive"]] = {
    "enabled": "enabled",
    "disabled": "disabled",
    "adaptive": "adaptive",
}


def _parse_reasoning(thinking: _Thinking | None, effort: str | None) -> Reasoning | None:
    if thinking is None and effort is None:
        return None
    if thinking is None:
        return Reasoning(effort)
    return Reasoning(effort, _MODES.get(thinking.type), thinking.budget_tokens)


def _parse_shape(shape: _Shape) -> OutputShape | None:
    schema = present(shape.schema)
    return OutputShape("json_schema", schema) if shape.type == "json_schema" and schema is not None else None
