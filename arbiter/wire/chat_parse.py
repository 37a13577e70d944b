"""OpenAI Chat requests, inwards: JSON members -> `model.Request`.

Nothing is rejected for being unknown: members without a neutral counterpart are not carried (docs/formats.md lists
what is), unknown part and tool types travel as `Opaque`. Only a member that has the wrong type is the caller's fault.

The calls of before there were tools (`functions`, `function_call`, role `function`) are tools, calls and results too;
they have no ids, and get one from where they stand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from arbiter.errors import BadRequest
from arbiter.model import (
    CacheMark,
    Grammar,
    Message,
    Opaque,
    OpaqueTool,
    OutputShape,
    Part,
    Reasoning,
    RedactedThinking,
    Refusal,
    Request,
    SealedThinking,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from arbiter.wire import chat_proofs, toolbox
from arbiter.wire.chat_parts import FORMAT as FORMAT
from arbiter.wire.chat_parts import CacheControl, ContentPart, known_part, parse_part
from arbiter.wire.json import ABSENT, blame, check_text, decode, decode_sliced, encode, present
from arbiter.wire.vault import MARK, is_sealed

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
REASONING = "reasoning_content"
"""The member that carries reasoning where nobody said otherwise: DeepSeek's name, which most servers share."""


class _Function(msgspec.Struct):
    name: str
    arguments: Raw = Raw(b'""')
    description: str | None = None
    parameters: Raw = ABSENT
    strict: bool | None = None
    cache_control: CacheControl | None = None


class _Grammar(msgspec.Struct):
    syntax: str
    definition: str


class _InputFormat(msgspec.Struct):
    type: str = "text"
    grammar: _Grammar | None = None


class _Custom(msgspec.Struct):
    """A tool that takes free text, or a call of one."""

    name: str
    input: str = ""
    description: str | None = None
    format: _InputFormat | None = None
    cache_control: CacheControl | None = None


class _Call(msgspec.Struct):
    type: str = "function"
    id: str = ""
    function: _Function | None = None
    custom: _Custom | None = None
    extra_content: Raw = ABSENT


P = TypeVar("P", ContentPart, Raw)
C = TypeVar("C", _Call, Raw)


class _Message(msgspec.Struct, Generic[P, C]):
    role: str
    content: str | list[P] | None = None
    name: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: Raw = ABSENT
    reasoning_details: Raw = ABSENT
    extra_content: Raw = ABSENT
    tool_calls: list[C] | None = None
    tool_call_id: str | None = None
    function_call: _Function | None = None
    cache_control: CacheControl | None = None


class _Detail(msgspec.Struct):
    data: Raw = ABSENT


class _Tool(msgspec.Struct):
    type: str = ""
    function: _Function | None = None
    custom: _Custom | None = None
    input_schema: Raw = ABSENT  # Anthropic's
    cache_control: CacheControl | None = None


class _Named(msgspec.Struct):
    name: str


class _Allowed(msgspec.Struct):
    mode: str = "auto"
    tools: list[_Allowing] = []


class _Allowing(msgspec.Struct):
    function: _Named | None = None
    custom: _Named | None = None


class _ToolChoice(msgspec.Struct):
    type: str
    function: _Named | None = None
    custom: _Named | None = None
    allowed_tools: _Allowed | None = None


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


T = TypeVar("T", _Tool, Raw)


class _Request(msgspec.Struct, Generic[P, C, T]):
    model: str
    messages: list[_Message[P, C]]
    tools: list[T] | None = None
    tool_choice: str | _ToolChoice | None = None
    functions: list[_Function] | None = None
    function_call: str | _Named | None = None
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
    verbosity: str | None = None
    user: str | None = None
    safety_identifier: str | None = None  # what OpenAI wants in its place
    metadata: dict[str, str] | None = None
    service_tier: str | None = None
    prompt_cache_key: str | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None


_REQUEST = msgspec.json.Decoder(_Request[ContentPart, _Call, _Tool])
_TURNS = msgspec.json.Decoder(list[_Message[ContentPart, _Call]])
_LOOSE_REQUEST = msgspec.json.Decoder(_Request[Raw, Raw, Raw])
_LOOSE_TURNS = msgspec.json.Decoder(list[_Message[Raw, Raw]])
_CALL = msgspec.json.Decoder(_Call)
_TOOL = msgspec.json.Decoder(_Tool)
_STR = msgspec.json.Decoder(str)
_DETAILS = msgspec.json.Decoder(list[Raw])
_DETAIL = msgspec.json.Decoder(_Detail)


class _Strange(Exception):
    """What was decoded in one go has something in it that is of no type that we know, so its bytes are wanted."""


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
    # Decoded in one go as long as every part, call and tool is of a type that we know and nothing is wrong.
    try:
        sliced = decode_sliced(members, "messages", _REQUEST, _TURNS)
        if sliced is None:
            return _parse(_REQUEST.decode(body), tools, raw_tools)
        sliced[0].messages = sliced[1]
        return _parse(sliced[0], tools, raw_tools)
    except (msgspec.DecodeError, RecursionError, BadRequest, _Strange):
        loose = decode_sliced(members, "messages", _LOOSE_REQUEST, _LOOSE_TURNS)
        if loose is None:
            return _parse(decode(_LOOSE_REQUEST, body), tools, raw_tools)
        loose[0].messages = loose[1]
        return _parse(loose[0], tools, raw_tools)


def _parse(body: _Request[Any, Any, Any], tools: toolbox.Tools | None, raw_tools: Raw | None) -> Request:
    """`tools` are None where they are not known; `raw_tools` is what they are then read of. Errors: BadRequest;
    _Strange."""
    shape = body.response_format
    if tools is None and not body.tools:
        tools = ()
    elif tools is None:
        read = tuple([_parse_tool(one, f"tools[{i}].") for i, one in enumerate(body.tools or ())])
        tools = toolbox.keep(FORMAT, raw_tools, read)
    if body.functions:
        tools += tuple([_parse_function(one, None, f"functions[{i}].") for i, one in enumerate(body.functions)])
    # In two calls: with more than fifteen keywords the interpreter makes a dictionary first, which costs more.
    request = Request(
        model=body.model,
        messages=_parse_messages(body.messages),
        tools=tools,
        tool_choice=_parse_choice(body.tool_choice if body.tool_choice is not None else body.function_call),
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
    )
    return replace(
        request,
        top_logprobs=body.top_logprobs,
        choices=body.n,
        reasoning=Reasoning(effort=body.reasoning_effort) if body.reasoning_effort is not None else None,
        output=_parse_shape(shape) if shape is not None else None,
        verbosity=body.verbosity,
        user=body.user if body.user is not None else body.safety_identifier,
        metadata=tuple((body.metadata or {}).items()),
        service_tier=body.service_tier,
        cache_key=body.prompt_cache_key,
        store=body.store,
        stream=bool(body.stream),
        include_usage=bool(body.stream_options and body.stream_options.include_usage),
    )


def _parse_messages(messages: list[_Message[Any, Any]]) -> tuple[Message, ...]:
    built: list[Message] = []
    called = ""  # the id of the last call of the old kind, for its result
    for i, message in enumerate(messages):
        if message.role == "assistant" and message.function_call is not None:
            called = f"call_{i}"
        built.append(_parse_message(message, f"messages[{i}]", called))
    return tuple(built)


def _parse_part(part: ContentPart | Raw, path: str) -> Part:
    """Return one content part. Errors: BadRequest; _Strange."""
    if type(part) is Raw:
        return parse_part(part, path)
    known = known_part(part)
    if known is None:
        raise _Strange
    return known


def _parse_message(message: _Message[Any, Any], path: str, called: str) -> Message:
    role = message.role
    if role not in ROLES:
        raise blame(path, ".role", f"expected one of {', '.join(ROLES)}")
    content: str | tuple[Part, ...] = ""
    if isinstance(message.content, str):
        content = message.content
    elif message.content is not None:
        content = tuple([_parse_part(one, f"{path}.content[{i}].") for i, one in enumerate(message.content)])
    mark = CacheMark(message.cache_control.ttl) if message.cache_control is not None else None
    if role in ("tool", "function"):
        call_id = (message.tool_call_id or "") if role == "tool" else called
        return Message("tool", (ToolResult(call_id, content, cache=mark),), message.name if role == "tool" else None)
    if role == "assistant":
        content = _parse_said(message, content, path, called)
    return Message(role, _marked(content, mark), message.name)  # type: ignore[arg-type]  # one of ROLES


def _marked(content: str | tuple[Part, ...], mark: CacheMark | None) -> str | tuple[Part, ...]:
    """Return content with the mark of its whole message, which some clients set, on the last part that takes one."""
    if mark is None or not content:
        return content
    if isinstance(content, str):
        return (Text(content, mark),)
    last = content[-1]
    if not hasattr(last, "cache") or last.cache is not None:
        return content
    return (*content[:-1], replace(last, cache=mark))


def _parse_said(
    message: _Message[Any, Any], content: str | tuple[Part, ...], path: str, called: str
) -> str | tuple[Part, ...]:
    """Return what the assistant said: reasoning, then content, then calls; a bare string where it is only text."""
    parts = _handed(message, path)
    if message.reasoning_content:
        parts.append(Thinking(message.reasoning_content, spelling=REASONING))
    elif bytes(message.reasoning).startswith(b'"') and (reasoning := decode(_STR, message.reasoning)):
        parts.append(Thinking(reasoning, spelling="reasoning"))
    calls: list[Part] = []
    for i, one in enumerate(message.tool_calls or ()):
        _parse_call(one, f"{path}.tool_calls[{i}].", calls)
    if message.function_call is not None:
        calls.append(ToolCall(called, message.function_call.name, _arguments(message.function_call)))
    if not (parts or calls or message.refusal):
        return content
    parts += ([Text(content)] if content else []) if isinstance(content, str) else content
    if message.refusal:
        parts.append(Refusal(message.refusal))
    return (*parts, *calls)


def _handed(message: _Message[Any, Any], path: str) -> list[Part]:
    """Return what nobody but its maker can read: what this gateway sealed, and what other servers want back."""
    found: list[Part] = []
    details = message.reasoning_details
    if MARK in bytes(details):
        others: list[Raw] = []
        for raw in decode(_DETAILS, details, f"{path}.reasoning_details."):
            data = decode(_DETAIL, raw, f"{path}.reasoning_details.").data
            item = decode(_STR, data) if bytes(data)[:1] == b'"' else None
            if item is not None and is_sealed(item):
                found.append(SealedThinking(item))
            else:
                others.append(raw)
        details = Raw(encode(others))
    proof = chat_proofs.of_message(details, message.extra_content)
    if proof is not None:
        found.append(RedactedThinking(proof, "message"))
    return found


def _parse_call(one: _Call | Raw, path: str, calls: list[Part]) -> None:
    """Add a call, behind what its server wants back with it. Errors: BadRequest; _Strange."""
    call = decode(_CALL, one, path) if type(one) is Raw else one
    if call.extra_content is not ABSENT:
        proof = chat_proofs.of_call(call.extra_content)
        if proof is not None:
            calls.append(RedactedThinking(proof, "call"))
    if call.type == "custom" and call.custom is not None:
        calls.append(ToolCall(call.id, call.custom.name, call.custom.input, is_free=True))
    elif call.type == "function" and call.function is not None:
        calls.append(ToolCall(call.id, call.function.name, _arguments(call.function)))
    elif type(one) is Raw:
        calls.append(Opaque(FORMAT, bytes(one)))
    else:
        raise _Strange


def _arguments(function: _Function) -> str:
    """Return the arguments of a whole call as JSON text; none at all are an empty object."""
    return argument_slice(function.arguments) or "{}"


def argument_slice(raw: Raw) -> str:
    """Return call arguments, or a slice of them. They are a string with JSON inside; some servers send the object."""
    if bytes(raw).startswith(b'"'):
        return _STR.decode(raw)
    text = bytes(raw).decode()
    return "" if text == "null" else text


def _parse_tool(one: _Tool | Raw, path: str) -> Tool | OpaqueTool:
    """Errors: BadRequest; _Strange."""
    tool = decode(_TOOL, one, path) if type(one) is Raw else one
    if tool.input_schema is not ABSENT:
        takes = '{"type": "function", "function": {"name": …, "description": …, "parameters": …}}'
        raise blame(path, "", f"this is Anthropic's shape of a tool; /v1/chat/completions takes {takes}")
    if not tool.type:
        raise blame(path, "", "Object missing required field `type`")
    if tool.type == "custom" and tool.custom is not None:
        return _parse_custom(tool.custom, tool.cache_control)
    if tool.type != "function" or tool.function is None:
        if type(one) is not Raw:
            raise _Strange
        return OpaqueTool(FORMAT, bytes(one))
    return _parse_function(tool.function, tool.cache_control, f"{path}function.")


def _parse_function(function: _Function, control: CacheControl | None, path: str) -> Tool:
    control = control if control is not None else function.cache_control
    parameters = present(function.parameters)
    if parameters == b"[]":
        parameters = None  # how PHP writes an empty object
    if parameters is not None and not parameters.startswith(b"{"):
        raise blame(path, "parameters", f"Expected `object`, got `{_category(parameters)}`")
    cache = CacheMark(control.ttl) if control is not None else None
    return Tool(function.name, function.description, parameters, function.strict, cache)


def _parse_custom(custom: _Custom, control: CacheControl | None) -> Tool:
    control = control if control is not None else custom.cache_control
    held = custom.format.grammar if custom.format is not None else None
    grammar = Grammar(held.syntax, held.definition) if held is not None else None
    cache = CacheMark(control.ttl) if control is not None else None
    return Tool(custom.name, custom.description, cache=cache, is_free=True, grammar=grammar)


def _category(raw: bytes) -> str:
    return {b"[": "array", b'"': "str", b"t": "bool", b"f": "bool"}.get(raw[:1], "number")


_CHOICES = {
    "auto": ToolChoice("auto"),
    "none": ToolChoice("none"),
    "required": ToolChoice("required"),
    "any": ToolChoice("required"),  # Mistral's word
}


def _parse_choice(choice: str | _ToolChoice | _Named | None) -> ToolChoice | None:
    if choice is None:
        return None
    if isinstance(choice, str):
        return _mode(choice, "")
    if isinstance(choice, _Named):
        return ToolChoice("tool", choice.name)
    if choice.allowed_tools is not None:
        named = [one.function or one.custom for one in choice.allowed_tools.tools]
        allowed = tuple(one.name for one in named if one is not None)
        if choice.allowed_tools.mode != "required":
            return ToolChoice("auto", allowed=allowed)
        return ToolChoice("tool", allowed[0]) if len(allowed) == 1 else ToolChoice("required", allowed=allowed)
    chosen = choice.function or choice.custom
    return ToolChoice("tool", chosen.name) if chosen is not None else _mode(choice.type, ".type")


def _mode(word: str, place: str) -> ToolChoice:
    """A choice in a word. Some clients put it into an object, as other formats do."""
    if word not in _CHOICES:
        raise blame("tool_choice", place, "expected auto, none, required, or a function")
    return _CHOICES[word]


_SHAPES = {"text": OutputShape("text"), "json_object": OutputShape("json_object")}


def _parse_shape(shape: _ResponseFormat) -> OutputShape:
    if shape.type in _SHAPES:
        return _SHAPES[shape.type]
    schema = shape.json_schema
    if shape.type != "json_schema" or schema is None:
        raise blame("response_format", ".type", "expected text, json_object, or json_schema with a `json_schema`")
    raw = present(schema.schema)
    if raw is not None and not raw.startswith(b"{"):
        raise blame("response_format", ".json_schema.schema", f"Expected `object`, got `{_category(raw)}`")
    return OutputShape("json_schema", raw, schema.name, schema.description, schema.strict)
