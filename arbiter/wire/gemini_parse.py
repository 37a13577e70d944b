"""Gemini requests, inwards: JSON members -> `model.Request`.

`model` and `stream`, which stand in the path here, are members beside the body's own (`native.open_body` puts them
there).

Calls may come without ids, and results then name their function: they belong to the calls of that name in the turn
before, in order. So calls get ids that depend on nothing but what stands before them, and each result the id of its
call. A signature belongs to the thought that led to the part that bears it, and stands behind that thought
(`wire.signatures`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar, cast

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from arbiter.errors import BadRequest
from arbiter.model import (
    Message,
    OpaqueTool,
    OutputShape,
    Part,
    Reasoning,
    Request,
    SealedThinking,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from arbiter.wire import gemini_parts as parts
from arbiter.wire import toolbox
from arbiter.wire.gemini_models import level_of
from arbiter.wire.gemini_names import REQUEST, camel
from arbiter.wire.gemini_parts import FORMAT
from arbiter.wire.gemini_schema import json_schema
from arbiter.wire.gemini_sealed import item_of
from arbiter.wire.json import ABSENT, blame, check_text, decode, encode, present
from arbiter.wire.signatures import tagged

_JSON = "application/json"
_ROLES = {"user": "user", "model": "assistant", "function": "user", "": "user"}


P = TypeVar("P", parts.OneSpelling, Raw)


class _Content(msgspec.Struct, Generic[P]):
    parts: list[P] | None = None
    role: str | None = None


class _Declaration(msgspec.Struct, rename="camel"):
    name: str
    description: str | None = None
    parameters: Raw = ABSENT
    parameters_json_schema: Raw = ABSENT


class _CallingConfig(msgspec.Struct, rename="camel"):
    mode: str | None = None
    allowed_function_names: list[str] | None = None


class _ToolConfig(msgspec.Struct, rename="camel"):
    function_calling_config: _CallingConfig | None = None


class _ThinkingConfig(msgspec.Struct, rename="camel"):
    include_thoughts: bool | None = None
    thinking_budget: int | None = None
    thinking_level: str | None = None


class _GenerationConfig(msgspec.Struct, rename="camel"):
    temperature: float | None = None
    top_p: float | None = None
    top_k: float | None = None
    candidate_count: int | None = None
    max_output_tokens: int | None = None
    stop_sequences: list[str] | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    response_mime_type: str | None = None
    response_schema: Raw = ABSENT
    response_json_schema: Raw = ABSENT
    thinking_config: _ThinkingConfig | None = None


class _Request(msgspec.Struct, rename="camel"):
    contents: list[_Content[Raw]] | None = None
    system_instruction: Raw = ABSENT
    tools: list[dict[str, Raw]] | None = None
    tool_config: _ToolConfig | None = None
    generation_config: _GenerationConfig | None = None
    cached_content: str | None = None
    service_tier: str | None = None


# The same of a request whose members are all known, where these are spelled in two words. So each has its one spelling,
# and everything is decoded in one go. What has only members of one word may have others.


class _OneDeclaration(_Declaration, forbid_unknown_fields=True, rename="camel"):
    response: Raw = ABSENT
    response_json_schema: Raw = ABSENT
    behavior: Raw = ABSENT


class _Declarations(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    function_declarations: list[_OneDeclaration] | None = None


class _OneCallingConfig(_CallingConfig, forbid_unknown_fields=True, rename="camel"):
    pass


class _OneToolConfig(_ToolConfig, forbid_unknown_fields=True, rename="camel"):
    function_calling_config: _OneCallingConfig | None = None
    retrieval_config: Raw = ABSENT


class _OneThinkingConfig(_ThinkingConfig, forbid_unknown_fields=True, rename="camel"):
    pass


class _OneGenerationConfig(_GenerationConfig, forbid_unknown_fields=True, rename="camel"):
    thinking_config: _OneThinkingConfig | None = None
    response_modalities: Raw = ABSENT
    response_logprobs: Raw = ABSENT
    logprobs: Raw = ABSENT
    speech_config: Raw = ABSENT
    media_resolution: Raw = ABSENT
    audio_timestamp: Raw = ABSENT


class _OneSpelling(_Request, forbid_unknown_fields=True, rename="camel"):
    contents: list[_Content[parts.OneSpelling]] | None = None  # type: ignore[assignment]
    system_instruction: _Content[parts.OneSpelling] | str | None = None  # type: ignore[assignment]
    tools: list[_Declarations] | None = None  # type: ignore[assignment]
    tool_config: _OneToolConfig | None = None
    generation_config: _OneGenerationConfig | None = None
    safety_settings: Raw = ABSENT
    labels: Raw = ABSENT
    model: Raw = ABSENT
    stream: Raw = ABSENT


class _Addressed(msgspec.Struct):
    model: str
    stream: bool = False


_ADDRESS = ("model", "stream")
_NO_CONFIG = _GenerationConfig()
_REQUEST = msgspec.json.Decoder(_Request)
_CONTENT = msgspec.json.Decoder(_Content[Raw] | str)
_ONE_SPELLING = msgspec.json.Decoder(_OneSpelling)
_ADDRESSED = msgspec.json.Decoder(_Addressed)
_DECLARATIONS = msgspec.json.Decoder(list[Raw])
_DECLARATION = msgspec.json.Decoder(_Declaration)


def parse_request(members: Mapping[str, Raw]) -> Request:
    """Return the request in neutral words. Errors: BadRequest naming the path of the fault."""
    raw_tools = members.get("tools")
    tools = toolbox.known(FORMAT, raw_tools) if raw_tools is not None else None
    if tools is not None:
        members = toolbox.without(members)
    body = encode(members)
    check_text(body)
    addressed = decode(_ADDRESSED, encode({name: members[name] for name in _ADDRESS if name in members}))
    try:
        return _parse(addressed, _ONE_SPELLING.decode(body), tools, raw_tools)
    except (msgspec.DecodeError, RecursionError, BadRequest, parts.Strange):
        beside = bytes(raw_tools) if tools is not None and raw_tools is not None else b""  # as if they were in there
        return _parse(addressed, decode(_REQUEST, camel(body, REQUEST, beside)), tools, raw_tools)


def _parse(addressed: _Addressed, found: _Request, tools: toolbox.Tools | None, raw_tools: Raw | None) -> Request:
    config = found.generation_config or _NO_CONFIG
    # In two calls: with more than fifteen keywords the interpreter makes a dictionary first, which costs more.
    request = Request(
        model=addressed.model,
        messages=_messages(found),
        tools=tools or (toolbox.keep(FORMAT, raw_tools, _tools(found.tools)) if found.tools else ()),
        tool_choice=_choice(found.tool_config),
        max_output=config.max_output_tokens,
        temperature=config.temperature,
        top_p=config.top_p,
        top_k=int(config.top_k) if config.top_k is not None else None,
        stop=tuple(config.stop_sequences or ()),
        seed=config.seed,
        frequency_penalty=config.frequency_penalty,
        presence_penalty=config.presence_penalty,
        choices=config.candidate_count,
        reasoning=_reasoning(config.thinking_config),
        output=_shape(config),
    )
    return replace(
        request,
        service_tier=_tier(found.service_tier),
        cached=found.cached_content or None,
        stream=addressed.stream,
        include_usage=True,  # this format always reports it
    )


def _messages(found: _Request) -> tuple[Message, ...]:
    messages: list[Message] = []
    system: Raw | _Content[Raw] | str | None = found.system_instruction
    if type(system) is Raw:
        raw = present(system)
        system = decode(_CONTENT, raw, "systemInstruction") if raw is not None else None
    if system is not None:
        said = _instructions(system)
        if said:
            messages.append(Message("system", said))
    conversation = _Conversation()
    for i, one in enumerate(found.contents or ()):
        told = conversation.take(one, f"contents[{i}].")
        if conversation.goes_on:
            messages.pop()
        messages += told
    return tuple(messages)


def _instructions(content: _Content[Raw] | str) -> str | tuple[Part, ...]:
    if isinstance(content, str):
        return content
    texts: list[Part] = []
    for i, raw in enumerate(content.parts or ()):
        one = parts.members_of(raw, f"systemInstruction.parts[{i}].")
        texts.append(Text(one.text) if one.text is not None else parts.media_part(one, raw))
    return texts[0].text if len(texts) == 1 and type(texts[0]) is Text else tuple(texts)


class _Conversation:
    """Reads the contents of one request, and finds each result's call.

    What the model said in a row is one message: Google's SDKs keep each chunk of a stream as a content of its own.
    """

    def __init__(self) -> None:
        self.goes_on = False  # the latest message is the one before it, and more
        self._said: list[Part] | None = None  # what the model says, until somebody else speaks
        self._ids: set[str] = set()
        self._count = 0  # calls and results without an id of their own
        self._open: list[ToolCall] = []  # of the latest turn of calls, without their results
        self._answered = True  # somebody else spoke since

    def take(self, content: _Content[Raw], path: str) -> list[Message]:
        role = _ROLES.get(content.role or "")
        if role is None:
            raise BadRequest(f"{path}role: expected `user` or `model`", param=f"{path}role")
        is_model = role == "assistant"
        self.goes_on = is_model and self._said is not None
        found: list[Part] = self._said if is_model and self._said is not None else []
        self._said = found if is_model else None
        results: list[Message] = []
        for i, raw in enumerate(content.parts or ()):
            here = f"{path}parts[{i}]."
            one = parts.members_of(raw, here)
            if one.function_response is not None:
                results.append(Message("tool", (self._result(one.function_response, f"{here}functionResponse."),)))
            elif one.function_call is not None:
                sealed = _sign(found, one)
                found.append(self._call(one.function_call, sealed.call_id if sealed is not None else None))
            elif one.text is not None:
                _say(found, one, is_model=is_model)
            else:
                found.append(parts.media_part(one, raw))
        self._answered = not is_model
        if results and not found:
            return results
        said = found[0].text if len(found) == 1 and type(found[0]) is Text else tuple(found)
        return [*results, Message(role, said)]  # type: ignore[arg-type]  # one of _ROLES

    def _call(self, call: parts.Call, told: str | None) -> ToolCall:
        """Return a call; `told` is the id that it had when it was told, where its signature says so."""
        if self._answered:
            self._open, self._answered = [], False
        id = call.id or told or self._fresh()
        while id in self._ids:  # some servers count from zero in each turn
            id = self._fresh()
        self._ids.add(id)
        made = ToolCall(id, call.name, parts.arguments_of(call))
        self._open.append(made)
        return made

    def _result(self, result: parts.Result, path: str) -> ToolResult:
        content, failed = parts.result_of(result, path)
        found = None
        if result.id is not None:
            found = next((call for call in self._open if call.id == result.id), None)
        if found is None:
            found = next((call for call in self._open if call.name == result.name), None)
        if found is None:
            return ToolResult(result.id or self._fresh(), content, failed)
        self._open.remove(found)
        return ToolResult(found.id, content, failed)

    def _fresh(self) -> str:
        self._count += 1
        return f"call_{self._count}"


def _sign(found: list[Part], one: parts.Members) -> SealedThinking | None:
    """Put the signature that a part bears behind the thought that led to it, which may have no words; return it where
    it is this gateway's own."""
    if not one.thought_signature:
        return None
    item = item_of(one.thought_signature)
    if item is not None:
        sealed = SealedThinking(*item)
        found.append(sealed)
        return sealed
    signature = tagged(one.thought_signature)
    last = found[-1] if found else None
    if type(last) is Thinking and last.signature is None:
        found[-1] = Thinking(last.text, signature)
    else:
        found.append(Thinking("", signature))
    return None


def _say(found: list[Part], one: parts.Members, *, is_model: bool) -> None:
    """Add a text, or a thought. What a model said in slices is one text: clients keep them as they came."""
    text = one.text or ""
    last = found[-1] if found else None
    if one.thought:
        if type(last) is Thinking and last.signature is None:
            found[-1] = Thinking(last.text + text)
        else:
            found.append(Thinking(text))
        _sign(found, one)
        return
    if is_model and type(last) is Text:
        found[-1] = Text(last.text + text)
    elif text or not is_model:
        found.append(Text(text))
    if one.thought_signature:
        item = item_of(one.thought_signature)
        found.append(SealedThinking(*item) if item is not None else Thinking("", tagged(one.thought_signature)))


def _tools(tools: list[dict[str, Raw]] | list[_Declarations]) -> tuple[Tool | OpaqueTool, ...]:
    found: list[Tool | OpaqueTool] = []
    for i, tool in enumerate(tools):
        if type(tool) is _Declarations:
            found += map(_tool, tool.function_declarations or ())
            continue
        for name, raw in cast(dict[str, Raw], tool).items():
            if name != "functionDeclarations":
                found.append(OpaqueTool(FORMAT, parts.opened_tool(name, raw)))
            elif present(raw) is not None:
                path = f"tools[{i}].functionDeclarations"
                declared = decode(_DECLARATIONS, raw, path)
                found += [_tool(decode(_DECLARATION, one, f"{path}[{j}].")) for j, one in enumerate(declared)]
    return tuple(found)


def _tool(declared: _Declaration) -> Tool:
    schema = present(declared.parameters_json_schema)
    if schema is None and (older := present(declared.parameters)) is not None:
        schema = json_schema(older)
    return Tool(declared.name, declared.description, schema)


def _choice(config: _ToolConfig | None) -> ToolChoice | None:
    calling = config.function_calling_config if config is not None else None
    if calling is None or calling.mode is None:
        return None
    mode, allowed = calling.mode.upper(), tuple(calling.allowed_function_names or ())
    if mode == "ANY":
        return ToolChoice("tool", allowed[0]) if len(allowed) == 1 else ToolChoice("required", allowed=allowed)
    if mode == "NONE":
        return ToolChoice("none")
    if mode in ("AUTO", "VALIDATED"):
        return ToolChoice("auto", allowed=allowed)
    if mode == "MODE_UNSPECIFIED":
        return None
    raise blame("toolConfig.functionCallingConfig", ".mode", "expected AUTO, ANY, NONE or VALIDATED")


def _reasoning(config: _ThinkingConfig | None) -> Reasoning | None:
    """Return how much to think, as a level too: a budget is the word of few models."""
    if config is None:
        return None
    level = (config.thinking_level or "").lower()
    effort = level if level and level != "thinking_level_unspecified" else None
    if effort is None and config.thinking_budget is not None:
        effort = level_of(config.thinking_budget)
    summary = "auto" if config.include_thoughts else None
    found = Reasoning(effort, budget=config.thinking_budget, summary=summary)
    return found if found != Reasoning() else None


def _shape(config: _GenerationConfig) -> OutputShape | None:
    schema = present(config.response_json_schema)
    if schema is None and (older := present(config.response_schema)) is not None:
        schema = json_schema(older)
    if schema is not None:
        return OutputShape("json_schema", schema)
    return OutputShape("json_object") if (config.response_mime_type or "").lower() == _JSON else None


def _tier(tier: str | None) -> str | None:
    word = (tier or "").lower().removeprefix("service_tier_")
    return {"standard": "default", "flex": "flex", "priority": "priority"}.get(word)


def tier_out(tier: str | None) -> Any:
    """Return a tier in this format's word, None where it has none."""
    return {"default": "standard", "flex": "flex", "priority": "priority"}.get(tier or "")
