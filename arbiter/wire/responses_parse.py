"""OpenAI Responses requests, inwards: JSON members -> `model.Request`.

Nothing is rejected for being unknown: members without a neutral counterpart are not carried (docs/formats.md lists
what is), unknown items, parts and tools travel as `Opaque`. Only a member that has the wrong type is the caller's
fault. `responses_items` reads the conversation.

A namespace of tools is its tools, each under the name of both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from arbiter.errors import BadRequest, ProtocolUnsupported
from arbiter.model import (
    Grammar,
    Message,
    Namespace,
    OpaqueTool,
    OutputShape,
    Reasoning,
    Request,
    Tool,
    ToolChoice,
)
from arbiter.wire import toolbox
from arbiter.wire.json import ABSENT, Members, blame, check_text, decode, encode, present
from arbiter.wire.responses_items import FORMAT as FORMAT
from arbiter.wire.responses_items import full_name, messages_of
from arbiter.wire.responses_opaque import is_needless

LOGPROBS = "message.output_text.logprobs"
"""What asks for log probabilities, as one of the things to `include`."""
ENCRYPTED = b'"reasoning.encrypted_content"'
"""What asks for reasoning that can be handed along, in the same place."""


class _Held(msgspec.Struct):
    type: str = "text"
    syntax: str | None = None
    definition: str | None = None


class _Tool(msgspec.Struct):
    type: str = ""
    name: str = ""
    description: str | None = None
    parameters: Raw = ABSENT
    strict: bool | None = None
    format: _Held | None = None
    tools: list[Raw] | None = None  # of a namespace
    function: Raw = ABSENT  # a chat's
    input_schema: Raw = ABSENT  # Anthropic's


class _Typed(msgspec.Struct):
    type: str = ""


class _Grouped(msgspec.Struct):
    """A tool, as far as it is in a namespace or is one."""

    type: str = ""
    name: Any = ""
    tools: Raw = ABSENT


class _Named(msgspec.Struct):
    type: str = ""
    name: str | None = None
    namespace: str | None = None


class _ToolChoice(msgspec.Struct):
    type: str
    name: str | None = None
    namespace: str | None = None
    mode: str = "auto"
    tools: list[Raw] | None = None


class _Reasoning(msgspec.Struct):
    effort: str | None = None
    summary: str | None = None


class _Shape(msgspec.Struct):
    type: str
    name: str | None = None
    description: str | None = None
    schema: Raw = ABSENT
    strict: bool | None = None


class _Text(msgspec.Struct):
    format: _Shape | None = None
    verbosity: str | None = None


class _Request(msgspec.Struct):
    model: str
    input: str | list[Raw] | None = None
    messages: Raw = ABSENT  # a chat's
    instructions: str | None = None
    tools: list[Raw] | None = None
    tool_choice: str | _ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: int | None = None
    include: list[str] | None = None
    reasoning: _Reasoning | None = None
    text: _Text | None = None
    user: str | None = None
    safety_identifier: str | None = None  # what OpenAI wants in its place
    metadata: dict[str, str] | None = None
    service_tier: str | None = None
    prompt_cache_key: str | None = None
    store: bool | None = None
    previous_response_id: str | None = None
    conversation: Raw = ABSENT
    prompt: Raw = ABSENT
    background: bool | None = None
    stream: bool | None = None


_NO_TEXT = _Text()
_REQUEST = msgspec.json.Decoder(_Request)
_TOOL = msgspec.json.Decoder(_Tool)
_TYPED = msgspec.json.Decoder(_Typed)
_NAMED = msgspec.json.Decoder(_Named)
_GROUPS = msgspec.json.Decoder(list[_Grouped] | None)


def parse_request(members: Members) -> Request:
    """Return the request in neutral words.

    Errors: BadRequest naming the path of the fault; ProtocolUnsupported for what only OpenAI keeps or does.
    """
    raw_tools = members.get("tools")
    tools = toolbox.known(FORMAT, raw_tools) if raw_tools is not None else None
    if tools is not None:
        members = toolbox.without(members)
    body = encode(members)
    check_text(body)
    return _parse(decode(_REQUEST, body), tools, raw_tools)


def _parse(body: _Request, tools: toolbox.Tools | None, raw_tools: Raw | None) -> Request:
    _refuse_stored(body)
    if body.input is None:
        also = "; `messages` belong to /v1/chat/completions" if present(body.messages) is not None else ""
        raise BadRequest(f"input: it is missing{also}", param="input")
    asked, text = body.reasoning, body.text or _NO_TEXT
    messages = tuple(messages_of(body.input))
    if body.instructions:
        messages = (Message("system", body.instructions), *messages)
    if tools is None and not body.tools:
        tools = ()
    elif tools is None:
        tools = tuple(_tools(body.tools or [], "tools"))
        _check_names(tools)
        tools = toolbox.keep(FORMAT, raw_tools, tools)
    # In two calls: with more than fifteen keywords the interpreter makes a dictionary first, which costs more.
    request = Request(
        model=body.model,
        messages=messages,
        tools=tools,
        tool_choice=_choice(body.tool_choice, tools) if body.tool_choice is not None else None,
        parallel_tools=body.parallel_tool_calls,
        max_output=body.max_output_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        logprobs=True if LOGPROBS in (body.include or ()) else None,
        top_logprobs=body.top_logprobs,
        reasoning=Reasoning(asked.effort, summary=asked.summary) if asked is not None else None,
        output=_shape(text.format) if text.format is not None else None,
        verbosity=text.verbosity,
        user=body.user if body.user is not None else body.safety_identifier,
        metadata=tuple((body.metadata or {}).items()),
    )
    return replace(
        request,
        service_tier=body.service_tier,
        cache_key=body.prompt_cache_key,
        store=body.store is not False,  # here it is the default
        previous_id=body.previous_response_id,
        stream=bool(body.stream),
        include_usage=True,  # this format always reports it
    )


def _refuse_stored(body: _Request) -> None:
    """Errors: ProtocolUnsupported for what nobody but OpenAI could look up, or do later."""
    stored = {"conversation": body.conversation, "prompt": body.prompt}
    for name, raw in stored.items():
        if present(raw) is not None:
            raise ProtocolUnsupported(f"{name}: it is kept at OpenAI, and this request goes elsewhere", param=name)
    if body.background:
        raise ProtocolUnsupported("background: an answer that is translated is given at once", param="background")


def namespaces(members: Members) -> dict[str, tuple[str, str]]:
    """Return the tools of a request that are in a namespace: by their whole name, that of it and their own in it."""
    raw = bytes(members.get("tools", b""))
    if b'"namespace"' not in raw and b"\\u" not in raw:  # which may spell it as well
        return {}
    found = {}
    for group in _GROUPS.decode(raw) or ():
        if group.type == "namespace" and group.name:
            for tool in _GROUPS.decode(present(group.tools) or b"[]") or ():
                if tool.type in ("function", "custom"):
                    found[full_name(group.name, tool.name)] = (group.name, tool.name)
    return found


def short_name(tool: Tool) -> str:
    """Return the name of a tool inside of its namespace."""
    return tool.name if tool.namespace is None else tool.name[len(full_name(tool.namespace.name, "")) :]


def _check_names(tools: tuple[Tool | OpaqueTool, ...]) -> None:
    """Errors: BadRequest where a tool of a namespace would have the name of another tool."""
    seen: dict[str, str | None] = {}
    for tool in tools:
        if isinstance(tool, Tool):
            group = tool.namespace.name if tool.namespace is not None else None
            if seen.setdefault(tool.name, group) != group:
                what = f"tools: two of them cannot be told apart, as both would be {tool.name}"
                raise BadRequest(what, param="tools")


def _tools(raws: list[Raw], path: str, namespace: Namespace | None = None) -> Iterator[Tool | OpaqueTool]:
    for i, raw in enumerate(raws):
        place = f"{path}[{i}]"
        try:
            tool = _TOOL.decode(raw)
            kind = tool.type
        except (msgspec.DecodeError, RecursionError):
            kind = decode(_TYPED, raw, f"{place}.").type  # a type that we do not know may hold anything in any member
            tool = None
        if kind not in ("", "function", "custom", "namespace"):
            yield OpaqueTool(FORMAT, bytes(raw), is_needless(kind))
            continue
        tool = tool or decode(_TOOL, raw, f"{place}.")
        if kind == "namespace" and tool.name:
            if namespace is not None:
                raise blame(place, "", "a namespace inside of a namespace")
            yield from _tools(tool.tools or [], f"{place}.tools", Namespace(tool.name, tool.description or ""))
        else:
            yield _tool(tool, place, namespace)


def _tool(tool: _Tool, path: str, namespace: Namespace | None) -> Tool:
    if present(tool.function) is not None or present(tool.input_schema) is not None:
        takes = '{"type": "function", "name": …, "description": …, "parameters": …}'
        raise blame(path, "", f"this is another API's shape of a tool; /v1/responses takes {takes}")
    if not tool.type or not tool.name:
        missing = "name" if tool.type else "type"
        raise blame(path, "", f"Object missing required field `{missing}`")
    name = full_name(namespace.name if namespace is not None else None, tool.name)
    if tool.type == "custom":
        held = tool.format
        is_held = held is not None and held.syntax is not None and held.definition is not None
        grammar = Grammar(held.syntax, held.definition) if is_held else None  # type: ignore[union-attr, arg-type]
        return Tool(name, tool.description, is_free=True, grammar=grammar, namespace=namespace)
    parameters = present(tool.parameters)
    if parameters is not None and not parameters.startswith(b"{"):
        raise blame(path, ".parameters", "expected an object")
    return Tool(name, tool.description, parameters, tool.strict, namespace=namespace)


_CHOICES = {"auto": ToolChoice("auto"), "none": ToolChoice("none"), "required": ToolChoice("required")}


def _choice(choice: str | _ToolChoice, tools: tuple[Tool | OpaqueTool, ...]) -> ToolChoice:
    if isinstance(choice, str):
        if choice not in _CHOICES:
            raise blame("tool_choice", "", "expected auto, none, required, or a tool")
        return _CHOICES[choice]
    if choice.type == "allowed_tools":
        return _allowed(choice, tools)
    if choice.type in ("function", "custom") and choice.name is not None:
        return ToolChoice("tool", _whole_name(choice.namespace, choice.name, tools))
    if choice.type in _CHOICES:
        return _CHOICES[choice.type]
    raise ProtocolUnsupported(f"tool_choice: {choice.type} is a tool of OpenAI's own", param="tool_choice")


def _allowed(choice: _ToolChoice, tools: tuple[Tool | OpaqueTool, ...]) -> ToolChoice:
    allowed: list[str] = []
    opaque: list[bytes] = []
    for i, raw in enumerate(choice.tools or ()):
        one = decode(_NAMED, raw, f"tool_choice.tools[{i}].")
        if one.type == "namespace":
            allowed += [tool.name for tool in _grouped(tools) if tool.namespace.name == one.name]  # type: ignore[union-attr]
        elif one.type in ("", "function", "custom") and one.name is not None:
            allowed.append(_whole_name(one.namespace, one.name, tools))
        else:
            opaque.append(bytes(raw))
    if not allowed and not opaque:
        return _CHOICES["none"]  # nothing is allowed
    if choice.mode == "required" and len(allowed) == 1 and not opaque:
        return ToolChoice("tool", allowed[0])
    mode = "required" if choice.mode == "required" else "auto"
    return ToolChoice(mode, allowed=tuple(allowed), opaque=tuple(opaque))  # type: ignore[arg-type]


def _whole_name(namespace: str | None, name: str, tools: tuple[Tool | OpaqueTool, ...]) -> str:
    """Return the whole name of a tool that is chosen. The vendor's shape has no place for its namespace, so a name that
    no tool has by itself is that of one in a namespace."""
    if namespace is not None:
        return full_name(namespace, name)
    if any(isinstance(tool, Tool) and tool.name == name for tool in tools):
        return name
    return next((tool.name for tool in _grouped(tools) if short_name(tool) == name), name)


def _grouped(tools: tuple[Tool | OpaqueTool, ...]) -> list[Tool]:
    return [tool for tool in tools if isinstance(tool, Tool) and tool.namespace is not None]


_SHAPES = {"text": OutputShape("text"), "json_object": OutputShape("json_object")}


def _shape(shape: _Shape) -> OutputShape:
    if shape.type in _SHAPES:
        return _SHAPES[shape.type]
    schema = present(shape.schema)
    if shape.type != "json_schema" or (schema is not None and not schema.startswith(b"{")):
        raise blame("text.format", "", "expected text, json_object, or json_schema with a `schema`")
    return OutputShape("json_schema", schema, shape.name, shape.description, shape.strict)
