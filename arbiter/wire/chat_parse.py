"""OpenAI Chat requests, inwards: JSON members -> `model.Request`.

Nothing is rejected for being unknown: members without a neutral counterpart are not carried (docs/formats.md lists
what is), unknown part and tool types travel as `Opaque`. Only a member that has the wrong type is the caller's fault.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping

import msgspec
from msgspec import Raw

from arbiter.errors import BadRequest
from arbiter.model import (
    Audio,
    CacheMark,
    File,
    Image,
    Message,
    Opaque,
    OpaqueTool,
    OutputShape,
    Part,
    Reasoning,
    Refusal,
    Request,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from arbiter.wire.json import ABSENT, decode, encode, present, refused

FORMAT = "openai-chat"
ROLES = ("system", "developer", "user", "assistant", "tool")
REASONING = "reasoning_content"
"""The member that carries reasoning where nobody said otherwise: DeepSeek's name, which most servers share."""


class _CacheControl(msgspec.Struct):
    ttl: str | None = None


class _ImageUrl(msgspec.Struct):
    url: str
    detail: str | None = None


class _File(msgspec.Struct):
    file_data: str | None = None
    file_id: str | None = None
    filename: str | None = None


class _Audio(msgspec.Struct):
    data: str
    format: str


class _Part(msgspec.Struct):
    type: str
    text: str | None = None
    image_url: _ImageUrl | str | None = None
    file: _File | None = None
    input_audio: _Audio | None = None
    refusal: str | None = None
    cache_control: _CacheControl | None = None


class _Function(msgspec.Struct):
    name: str
    arguments: Raw = Raw(b'""')
    description: str | None = None
    parameters: Raw = ABSENT
    strict: bool | None = None


class _Call(msgspec.Struct):
    type: str = "function"
    id: str = ""
    function: _Function | None = None


class _Message(msgspec.Struct):
    role: str
    content: str | list[Raw] | None = None
    name: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: Raw = ABSENT
    tool_calls: list[Raw] | None = None
    tool_call_id: str | None = None


class _Tool(msgspec.Struct):
    type: str
    function: _Function | None = None
    cache_control: _CacheControl | None = None


class _Named(msgspec.Struct):
    name: str


class _ToolChoice(msgspec.Struct):
    type: str
    function: _Named | None = None


class _Schema(msgspec.Struct):
    name: str | None = None
    description: str | None = None
    schema: Raw = ABSENT
    strict: bool | None = None


class _ResponseFormat(msgspec.Struct):
    type: str
    json_schema: _Schema | None = None


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _Request(msgspec.Struct):
    model: str
    messages: list[_Message]
    tools: list[Raw] | None = None
    tool_choice: str | _ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    max_completion_tokens: int | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logit_bias: Raw = ABSENT
    logprobs: bool | None = None
    top_logprobs: int | None = None
    n: int | None = None
    reasoning_effort: str | None = None
    response_format: _ResponseFormat | None = None
    user: str | None = None
    metadata: dict[str, str] | None = None
    service_tier: str | None = None
    prompt_cache_key: str | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None


_REQUEST = msgspec.json.Decoder(_Request)
_PART = msgspec.json.Decoder(_Part)
_CALL = msgspec.json.Decoder(_Call)
_TOOL = msgspec.json.Decoder(_Tool)
_STR = msgspec.json.Decoder(str)
_DATA_URL = re.compile(r"data:([^;,]*)(?:;[^,]*?)?;base64,(.*)\Z", re.DOTALL | re.IGNORECASE)


def parse_request(members: Mapping[str, Raw]) -> Request:
    """Return the request in neutral words.

    Errors: BadRequest naming the path of the fault.
    """
    try:
        return _parse(decode(_REQUEST, encode(members)))
    except UnicodeDecodeError as error:  # a raw member is not looked into before it is used
        raise refused(error) from error


def _parse(body: _Request) -> Request:
    choice, shape = body.tool_choice, body.response_format
    return Request(
        model=body.model,
        messages=tuple(_parse_message(message, f"messages[{i}]") for i, message in enumerate(body.messages)),
        tools=tuple(_parse_tool(raw, f"tools[{i}].") for i, raw in enumerate(body.tools or ())),
        tool_choice=_parse_choice(choice),
        parallel_tools=body.parallel_tool_calls,
        max_output=body.max_completion_tokens if body.max_completion_tokens is not None else body.max_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        stop=(body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ()),
        seed=body.seed,
        frequency_penalty=body.frequency_penalty,
        presence_penalty=body.presence_penalty,
        logit_bias=present(body.logit_bias),
        logprobs=body.logprobs,
        top_logprobs=body.top_logprobs,
        choices=body.n,
        reasoning=Reasoning(effort=body.reasoning_effort) if body.reasoning_effort is not None else None,
        output=_parse_shape(shape) if shape is not None else None,
        user=body.user,
        metadata=tuple((body.metadata or {}).items()),
        service_tier=body.service_tier,
        cache_key=body.prompt_cache_key,
        stream=bool(body.stream),
        include_usage=bool(body.stream_options and body.stream_options.include_usage),
    )


def _parse_message(message: _Message, path: str) -> Message:
    role = message.role
    if role not in ROLES:
        raise BadRequest(f"{path}.role: {role!r} is not a role of this format", param=f"{path}.role")
    content: str | tuple[Part, ...] = ""
    if isinstance(message.content, str):
        content = message.content
    elif message.content is not None:
        content = tuple(parse_part(raw, f"{path}.content[{i}].") for i, raw in enumerate(message.content))
    if role == "tool":
        return Message("tool", (ToolResult(message.tool_call_id or "", content),), message.name)
    if role == "assistant":
        content = _parse_said(message, content, path)
    return Message(role, content, message.name)  # type: ignore[arg-type]  # one of ROLES


def _parse_said(message: _Message, content: str | tuple[Part, ...], path: str) -> str | tuple[Part, ...]:
    """Return what the assistant said: reasoning, then content, then calls; a bare string where it is only text."""
    parts: list[Part] = []
    spelling, reasoning = spoken_reasoning(message.reasoning_content, message.reasoning)
    if reasoning:
        parts.append(Thinking(reasoning, spelling=spelling))
    calls = [parse_call(raw, f"{path}.tool_calls[{i}].") for i, raw in enumerate(message.tool_calls or ())]
    if not (parts or calls or message.refusal):
        return content
    parts += ([Text(content)] if content else []) if isinstance(content, str) else content
    if message.refusal:
        parts.append(Refusal(message.refusal))
    return (*parts, *calls)


def spoken_reasoning(content: str | None, reasoning: Raw) -> tuple[str, str | None]:
    """Return the member that reasoning came in, and its text."""
    if content:
        return REASONING, content
    if bytes(reasoning).startswith(b'"'):
        return "reasoning", _STR.decode(reasoning)
    return REASONING, None


def parse_call(raw: Raw, path: str) -> Part:
    call = decode(_CALL, raw, path)
    if call.type != "function" or call.function is None:
        return Opaque(FORMAT, bytes(raw))
    return ToolCall(call.id, call.function.name, argument_text(call.function.arguments))


def argument_text(raw: Raw) -> str:
    """Return the arguments of a whole call as JSON text; none at all are an empty object."""
    return argument_slice(raw) or "{}"


def argument_slice(raw: Raw) -> str:
    """Return call arguments, or a slice of them. They are a string with JSON inside; some servers send the object."""
    if bytes(raw).startswith(b'"'):
        return _STR.decode(raw)
    text = bytes(raw).decode()
    return "" if text == "null" else text


def parse_part(raw: Raw, path: str) -> Part:
    """Return one content part. A type that we do not know, or that lacks its own member, is Opaque."""
    part = decode(_PART, raw, path)
    cache = CacheMark(part.cache_control.ttl) if part.cache_control is not None else None
    if part.type == "text" and part.text is not None:
        return Text(part.text, cache)
    if part.type == "image_url" and part.image_url is not None:
        image = part.image_url if isinstance(part.image_url, _ImageUrl) else _ImageUrl(part.image_url)
        found = _DATA_URL.match(image.url)
        if found:
            return Image(media_type=found[1], data=found[2], detail=image.detail, cache=cache)
        return Image(url=image.url, detail=image.detail, cache=cache)
    if part.type == "file" and part.file is not None:
        return _parse_file(part.file, cache)
    if part.type == "input_audio" and part.input_audio is not None:
        return Audio(part.input_audio.data, part.input_audio.format)
    if part.type == "refusal" and part.refusal is not None:
        return Refusal(part.refusal)
    return Opaque(FORMAT, bytes(raw))


def _parse_file(file: _File, cache: CacheMark | None) -> File:
    data = file.file_data
    if data is None:
        return File(file_id=file.file_id, filename=file.filename, cache=cache)
    if data.startswith(("http://", "https://")):
        return File(url=data, filename=file.filename, cache=cache)
    found = _DATA_URL.match(data)
    if not found:
        return File(data=data, filename=file.filename, cache=cache)
    if found[1] == "text/plain":
        try:
            text = base64.b64decode(found[2], validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            pass
        else:
            return File(media_type="text/plain", text=text, filename=file.filename, cache=cache)
    return File(media_type=found[1], data=found[2], filename=file.filename, cache=cache)


def _parse_tool(raw: Raw, path: str) -> Tool | OpaqueTool:
    tool = decode(_TOOL, raw, path)
    function = tool.function
    if tool.type != "function" or function is None:
        return OpaqueTool(FORMAT, bytes(raw))
    cache = CacheMark(tool.cache_control.ttl) if tool.cache_control is not None else None
    return Tool(function.name, function.description, present(function.parameters), function.strict, cache)


_CHOICES = {
    "auto": ToolChoice("auto"),
    "none": ToolChoice("none"),
    "required": ToolChoice("required"),
    "any": ToolChoice("required"),  # Mistral's word
}


def _parse_choice(choice: str | _ToolChoice | None) -> ToolChoice | None:
    if isinstance(choice, _ToolChoice):
        return ToolChoice("tool", choice.function.name) if choice.function is not None else None
    return _CHOICES.get(choice or "")


_SHAPES = {"text": OutputShape("text"), "json_object": OutputShape("json_object")}


def _parse_shape(shape: _ResponseFormat) -> OutputShape:
    if shape.type in _SHAPES:
        return _SHAPES[shape.type]
    schema = shape.json_schema
    if shape.type != "json_schema" or schema is None:
        raise refused(msgspec.ValidationError("not a response format - at `$.response_format.type`"))
    return OutputShape("json_schema", present(schema.schema), schema.name, schema.description, schema.strict)
