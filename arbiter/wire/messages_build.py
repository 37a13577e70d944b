"""Anthropic Messages requests, outwards: `model.Request` -> the body for an upstream.

Members leave in a fixed order and nothing random enters, so that a conversation which only grew has the same bytes up
to its last turn (SPEC 2.4). What this format cannot say is either left out as docs/formats.md declares, or, where the
request would change its meaning, refused. What one model takes and the next refuses is in `messages_models`; what gives
way then, in `messages_thinking`.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from msgspec import Raw

from arbiter.errors import BadRequest, ProtocolUnsupported
from arbiter.model import Message, OpaqueTool, OutputShape, Request, Target, Tool, ToolChoice
from arbiter.wire import toolbox
from arbiter.wire.attribution import without_attribution
from arbiter.wire.disguises import Disguises, as_functions
from arbiter.wire.instructions import apart
from arbiter.wire.json import encode, encode_sliced, type_of
from arbiter.wire.messages_blocks import blocks_of, mark, opened
from arbiter.wire.messages_marks import owner, place
from arbiter.wire.messages_models import UNKNOWN_MAX_OUTPUT, Abilities, abilities_of
from arbiter.wire.messages_parse import FORMAT
from arbiter.wire.messages_schema import argument_schema, closed
from arbiter.wire.messages_thinking import settle
from arbiter.wire.messages_turns import turns_of

MAX_STRICT_TOOLS = 20
GO_ON = "Go on."
"""Said behind a beginning of the answer to a model that takes none. It bears no mark: it does not come again."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}\Z")
_TIERS = {"auto": "auto", "priority": "auto", "default": "standard_only", "standard_only": "standard_only"}
_NOBODY = Target()


def build_request(request: Request, target: Target = _NOBODY) -> bytes:
    """Return the body of an upstream request. The same request always gives the same bytes (SPEC 2.4).

    Errors: as `members_of`.
    """
    body = members_of(request, target)
    tools = body.get("tools")
    if tools:
        marked = [(i, one) for i, one in enumerate(tools) if isinstance(one, dict) and "cache_control" in one]
        marks = tuple([(i, encode(one["cache_control"])) for i, one in marked])
        key = (*_tools_key(request, abilities_of(request.model)), marks)
        body["tools"] = Raw(toolbox.encoded(request.tools, key, lambda: tools))
    return encode_sliced(body, "messages")


def members_of(request: Request, target: Target = _NOBODY, *, blocks: bool = False) -> dict[str, Any]:
    """Return the members of a request, in the order in which they leave; what passes through is raw JSON in there.

    Shapes: with `blocks` every content is an array and turns alternate, whoever sets marks.
    Errors: ProtocolUnsupported where a part or a tool has no place in this format, where several choices are asked for,
    or a schema for the output of a model that keeps to none. BadRequest where a call is asked for and there are no
    tools.
    """
    if (request.choices or 1) > 1:
        raise ProtocolUnsupported("n: where a request is translated or rebuilt there is one choice", param="n")
    asked_tools = request.tools
    request = as_functions(request.elsewhere())
    can = abilities_of(request.model)
    max_tokens = _max_tokens(request, target, can)
    settled = settle(request, can, max_tokens)
    whose = owner(request, target)
    system, messages = _build_conversation(request, target, blocks=blocks)
    body: dict[str, Any] = {"model": request.model, "max_tokens": max_tokens}
    if asked_tools:
        built = toolbox.made(asked_tools, _tools_key(request, can), partial(_build_tools, request, can))
        tools = [dict(one) if isinstance(one, dict) else one for one in built]  # each of them may yet be marked
        if tools:
            body["tools"] = tools
    choice = _build_choice(settled.choice, request.parallel_tools, tools="tools" in body)
    if choice is not None:
        body["tool_choice"] = choice
    if system:
        body["system"] = system
    body["messages"] = messages
    place(body, whose, target)
    if can is not None and not can.begins and messages[-1]["role"] == "assistant":
        messages.append({"role": "user", "content": [{"type": "text", "text": GO_ON}]})
    config: dict[str, Any] = {"effort": settled.effort} if settled.effort is not None else {}
    if request.output is not None:
        config.update(_build_shape(request.output, request.model, can))
    if settled.temperature is not None:
        body["temperature"] = settled.temperature
    if settled.top_p is not None:
        body["top_p"] = settled.top_p
    if settled.top_k is not None:
        body["top_k"] = settled.top_k
    if request.stop and (stop := [one for one in request.stop if one.strip()]):
        body["stop_sequences"] = stop
    if settled.thinking is not None:
        body["thinking"] = settled.thinking
    if config:
        body["output_config"] = config
    if request.user is not None:
        body["metadata"] = {"user_id": request.user}
    if request.service_tier in _TIERS:
        body["service_tier"] = _TIERS[request.service_tier]
    if request.stream:
        body["stream"] = True
    return body


def disguised(request: Request) -> Disguises:
    """Return the tools that are sent as functions although they take free text. Names go out as they are."""
    return {tool.name: tool for tool in request.tools if isinstance(tool, Tool) and tool.is_free}


def _max_tokens(request: Request, target: Target, can: Abilities | None) -> int:
    """Return the limit that this format must have: the client's own, as far as the model can, else as much as it can.

    Agents ask every model for what the largest can, and none knows what to do with the refusal. Less than one is how
    some say that there is no limit.
    """
    most = target.max_output or (can.max_output if can is not None else None)
    if request.max_output is not None and request.max_output > 0:
        return request.max_output if most is None else min(request.max_output, most)
    return most or UNKNOWN_MAX_OUTPUT


def _build_conversation(
    request: Request, target: Target, *, blocks: bool
) -> tuple[str | list[Any], list[dict[str, Any]]]:
    """Return `system`, which is what stands at the head, and `messages`, which is the rest.

    All contents are arrays wherever Arbiter might mark one, now or in a later request: that the client sets its first
    mark changes nothing but marks (SPEC 2.4).
    """
    blocks = blocks or target.prompt_cache in ("auto", "arbiter")
    messages = without_attribution(request.messages) if target.drop_attribution else request.messages
    head, rest = apart(messages)
    return _build_system(head, blocks=blocks), turns_of(rest, blocks=blocks)


def _build_system(messages: tuple[Message, ...], *, blocks: bool) -> str | list[Any]:
    if len(messages) == 1 and isinstance(messages[0].content, str) and not blocks:
        return messages[0].content if messages[0].content.strip() else ""
    return blocks_of(part for message in messages for part in message.parts())


def _allowed(request: Request) -> frozenset[str]:
    """Which tools may be called is not said elsewhere here: the others are left out."""
    choice = request.tool_choice
    return frozenset(choice.allowed) if choice is not None and choice.mode != "tool" else frozenset()


def _tools_key(request: Request, can: Abilities | None) -> tuple[object, ...]:
    """What the tools that are sent depend on, beside those that the client has."""
    return FORMAT, can is not None, can is not None and can.shapes, _allowed(request)


def _build_tools(request: Request, can: Abilities | None) -> list[Any]:
    allowed = _allowed(request)
    strict = sum(1 for tool in request.tools if isinstance(tool, Tool) and tool.strict)
    takes_strict = can is None or (can.shapes and strict <= MAX_STRICT_TOOLS)
    built: list[Any] = []
    for i, tool in enumerate(request.tools):
        if isinstance(tool, OpaqueTool):
            if tool.format == FORMAT:
                built.append(opened(tool.raw))
            elif not tool.needless:
                what = f"a tool of type {type_of(tool.raw) or 'unknown'}"
                raise ProtocolUnsupported(
                    f"tools[{i}]: {what} cannot be told to this upstream, which speaks Anthropic Messages",
                    param=f"tools[{i}]",
                )
        elif not allowed or tool.name in allowed:
            if not _NAME.match(tool.name):
                raise ProtocolUnsupported(
                    f"tools[{i}]: for an Anthropic Messages upstream a name is 1 to 128 letters, digits, `_` or `-`",
                    param=f"tools[{i}]",
                )
            built.append(_build_tool(tool, can, takes_strict=takes_strict))
    return built


def _build_tool(tool: Tool, can: Abilities | None, *, takes_strict: bool) -> dict[str, Any]:
    built: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        built["description"] = tool.description
    schema = argument_schema(tool.parameters)
    strict = tool.strict if takes_strict else None
    built["input_schema"] = Raw(closed(schema) if strict and can is not None else schema)
    if strict is not None:
        built["strict"] = strict
    return mark(built, tool.cache)


def _build_choice(choice: ToolChoice | None, parallel: bool | None, *, tools: bool) -> dict[str, Any] | None:
    """Return `tool_choice`, which this format takes only beside tools."""
    if not tools:
        if choice is not None and choice.mode in ("required", "tool"):
            raise BadRequest("tool_choice asks for a call, but there are no tools", param="tool_choice")
        return None
    if choice is None and parallel is None:
        return None
    mode = choice.mode if choice is not None else "auto"
    built: dict[str, Any] = {"type": "any" if mode == "required" else mode}
    if choice is not None and choice.name is not None:
        built["name"] = choice.name
    if parallel is not None and mode != "none":
        built["disable_parallel_tool_use"] = not parallel
    return built


def _build_shape(output: OutputShape, model: str, can: Abilities | None) -> dict[str, Any]:
    """Return the `format` of the output. For JSON of any shape there is none; who asks for it also says so in words.

    (OpenAI refuses `json_object` where no message speaks of JSON.)
    """
    if output.kind != "json_schema" or output.schema is None:
        return {}
    if can is not None and not can.shapes:
        raise ProtocolUnsupported(f"{model} cannot keep its output to a JSON schema", param="response_format")
    schema = closed(output.schema) if can is not None else output.schema
    return {"format": {"type": "json_schema", "schema": Raw(schema)}}
