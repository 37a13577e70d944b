"""Anthropic Messages requests, outwards: `model.Request` -> the body for an upstream.

Members leave in a fixed order and nothing random enters, so that a conversation which only grew has the same bytes up
to its last turn (SPEC 2.4). What this format cannot say is either left out as docs/formats.md declares, or, where the
request would change its meaning, refused.

The shape of a conversation is stricter here than elsewhere: the instructions at its head are a member of their own,
the results of one turn's calls are one user message right behind them, and no text is empty.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Raw

from arbiter.errors import ProtocolUnsupported
from arbiter.model import (
    CacheMark,
    File,
    Image,
    Message,
    Opaque,
    OpaqueTool,
    Part,
    Reasoning,
    RedactedThinking,
    Refusal,
    Request,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
)
from arbiter.wire.json import encode
from arbiter.wire.messages_parse import FORMAT

DEFAULT_MAX_TOKENS = 8192
"""`max_tokens` for a request that set no limit, which this format must have: every model still served takes as much."""


def build_request(request: Request) -> bytes:
    """Return the body of an upstream request. The same request always gives the same bytes (SPEC 2.4).

    Errors: ProtocolUnsupported where a part or a tool has no place in this format, or several choices are asked for.
    """
    if (request.choices or 1) > 1:
        raise ProtocolUnsupported("several choices (`n`) cannot be translated", param="n")
    head = 0
    while head < len(request.messages) and request.messages[head].role in ("system", "developer"):
        head += 1
    max_tokens = request.max_output if request.max_output is not None else DEFAULT_MAX_TOKENS
    body: dict[str, Any] = {"model": request.model, "max_tokens": max_tokens}
    if request.tools:
        body["tools"] = [_build_tool(tool) for tool in request.tools]
    choice = _build_choice(request)
    if choice is not None:
        body["tool_choice"] = choice
    system = _build_system(request.messages[:head])
    if system:
        body["system"] = system
    body["messages"] = _build_messages(request.messages[head:])
    tier = request.service_tier
    optional: dict[str, Any] = {
        "temperature": request.temperature,
        "top_p": request.top_p,
        "top_k": request.top_k,
        "stop_sequences": list(request.stop) or None,
        "thinking": _build_thinking(request.reasoning),
        "output_config": _build_config(request) or None,
        "metadata": {"user_id": request.user} if request.user is not None else None,
        "service_tier": tier if tier in ("auto", "standard_only") else None,
        "stream": request.stream or None,
    }
    body.update((name, value) for name, value in optional.items() if value is not None)
    return encode(body)


def _build_system(messages: tuple[Message, ...]) -> str | list[Any]:
    if len(messages) == 1 and isinstance(messages[0].content, str):
        return messages[0].content
    return _build_blocks(part for message in messages for part in message.parts())


def _build_messages(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    built: list[dict[str, Any]] = []
    previous = ""  # the role of the neutral message before, "" where its message here is complete
    for message in messages:
        role = message.role
        if role == "tool":
            if previous != "tool":
                built.append({"role": "user", "content": []})
            built[-1]["content"] += _build_blocks(message.parts())
        elif role == "user" and previous == "tool":
            # The user's words go behind the results, into the same message: calls want their results at once.
            built[-1]["content"] += _build_blocks(message.parts())
            role = "user"
        elif role == "assistant":
            if not _build_said(message, built, joined=previous == "assistant"):
                continue
        elif isinstance(message.content, str):
            built.append({"role": "system" if role == "developer" else role, "content": message.content})
        else:
            content = _build_blocks(message.content)
            built.append({"role": "system" if role == "developer" else role, "content": content})
        previous = role
    return built


def _build_said(message: Message, built: list[dict[str, Any]], *, joined: bool) -> bool:
    """Add an assistant message, and say whether there was anything in it.

    Calls and words of one turn may come as two messages (an old Codex does that): they become one, or the results that
    follow would not be next to their calls.
    """
    blocks = _build_blocks(message.parts())
    if not blocks:
        return False
    if joined:
        before = built[-1]["content"]
        together = ([{"type": "text", "text": before}] if isinstance(before, str) else before) + blocks
        if any(isinstance(block, dict) and block["type"] == "tool_use" for block in together):
            built[-1]["content"] = together
            return True
    built.append({"role": "assistant", "content": message.content if isinstance(message.content, str) else blocks})
    return True


def _build_blocks(parts: Iterable[Part]) -> list[Any]:
    return [block for block in map(_build_block, parts) if block is not None]


def _build_block(part: Part) -> Any:
    """Return one block, None for what must not be sent: empty text, and thinking that cannot prove where it is from."""
    if isinstance(part, Text | Refusal):
        cache = part.cache if isinstance(part, Text) else None
        return _marked({"type": "text", "text": part.text}, cache) if part.text else None
    if isinstance(part, ToolCall):
        block = {"type": "tool_use", "id": part.id, "name": part.name, "input": _build_input(part.arguments)}
        return _marked(block, part.cache)
    if isinstance(part, ToolResult):
        return _build_result(part)
    if isinstance(part, Thinking):
        block = {"type": "thinking", "thinking": part.text, "signature": part.signature}
        return block if part.signature is not None else None
    if isinstance(part, RedactedThinking):
        return {"type": "redacted_thinking", "data": part.data}
    if isinstance(part, Image):
        if part.url is not None:
            source: dict[str, Any] = {"type": "url", "url": part.url}
        else:
            source = {"type": "base64", "media_type": part.media_type, "data": part.data}
        return _marked({"type": "image", "source": source}, part.cache)
    if isinstance(part, File):
        block = {"type": "document", "source": _build_source(part)}
        if part.filename is not None:
            block["title"] = part.filename
        return _marked(block, part.cache)
    if isinstance(part, Opaque) and part.format == FORMAT:
        return Raw(part.raw)
    what = _type_of(part.raw) if isinstance(part, Opaque) else type(part).__name__
    raise ProtocolUnsupported(f"a part of type {what} cannot be sent to an Anthropic Messages upstream")


def _marked(block: dict[str, Any], cache: CacheMark | None) -> dict[str, Any]:
    if cache is not None:
        block["cache_control"] = {"type": "ephemeral"} if cache.ttl is None else {"type": "ephemeral", "ttl": cache.ttl}
    return block


def _build_result(result: ToolResult) -> dict[str, Any]:
    content = result.content
    built = content if isinstance(content, str) else _build_blocks(content)
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": result.call_id, "content": built}
    if result.is_error is not None:
        block["is_error"] = result.is_error
    return _marked(block, result.cache)


def _build_input(arguments: str) -> Any:
    """Return call arguments as the object that this format wants.

    A model that was cut off, or that cannot write JSON, leaves arguments that are no object. They stay readable for the
    next model under a name that says what they are.
    """
    try:
        found = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        found = None
    return Raw(arguments.encode()) if isinstance(found, dict) else {"invalid_arguments": arguments}


def _build_source(file: File) -> dict[str, Any]:
    if file.file_id is not None:
        return {"type": "file", "file_id": file.file_id}
    if file.url is not None:
        return {"type": "url", "url": file.url}
    if file.text is not None:
        return {"type": "text", "media_type": file.media_type or "text/plain", "data": file.text}
    return {"type": "base64", "media_type": file.media_type or "application/pdf", "data": file.data}


def _build_tool(tool: Tool | OpaqueTool) -> Any:
    if isinstance(tool, OpaqueTool):
        if tool.format != FORMAT:
            what = _type_of(tool.raw)
            raise ProtocolUnsupported(f"a tool of type {what} cannot be sent to an Anthropic Messages upstream")
        return Raw(tool.raw)
    built: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        built["description"] = tool.description
    built["input_schema"] = _build_schema(tool.parameters)
    if tool.strict is not None:
        built["strict"] = tool.strict
    return _marked(built, tool.cache)


def _build_schema(parameters: bytes | None) -> Any:
    """Return a tool's schema, which must say that it is one of an object."""
    if parameters is None:
        return {"type": "object", "properties": {}}
    members = _MEMBERS.decode(parameters)
    return Raw(parameters) if "type" in members else {"type": "object", **members}


_MEMBERS = msgspec.json.Decoder(dict[str, Raw])


def _build_choice(request: Request) -> dict[str, Any] | None:
    choice = request.tool_choice
    if choice is None and (request.parallel_tools is None or not request.tools):
        return None
    mode = choice.mode if choice is not None else "auto"
    built: dict[str, Any] = {"type": "any" if mode == "required" else mode}
    if choice is not None and choice.name is not None:
        built["name"] = choice.name
    if request.parallel_tools is not None and mode != "none":
        built["disable_parallel_tool_use"] = not request.parallel_tools
    return built


def _build_thinking(reasoning: Reasoning | None) -> dict[str, Any] | None:
    if reasoning is None or reasoning.mode is None:
        return None
    built: dict[str, Any] = {"type": reasoning.mode}
    if reasoning.budget is not None:
        built["budget_tokens"] = reasoning.budget
    return built


def _build_config(request: Request) -> dict[str, Any]:
    built: dict[str, Any] = {}
    if request.reasoning is not None and request.reasoning.effort is not None:
        built["effort"] = request.reasoning.effort
    output = request.output
    if output is not None and output.kind == "json_schema" and output.schema is not None:
        built["format"] = {"type": "json_schema", "schema": Raw(output.schema)}
    return built


class _Typed(msgspec.Struct):
    type: str = "unknown"


_TYPED = msgspec.json.Decoder(_Typed)


def _type_of(raw: bytes) -> str:
    return _TYPED.decode(raw).type
