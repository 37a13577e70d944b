"""OpenAI Chat requests, outwards: `model.Request` -> the body for an upstream.

Members leave in a fixed order and nothing random enters, so that a conversation which only grew has the same bytes up
to its last turn (SPEC 2.4). What this format cannot say is either left out as docs/formats.md declares, or, where the
request would change its meaning, refused.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Raw

from arbiter.errors import ProtocolUnsupported
from arbiter.model import (
    Audio,
    File,
    Image,
    Message,
    Opaque,
    OpaqueTool,
    OutputShape,
    Part,
    RedactedThinking,
    Refusal,
    Request,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
)
from arbiter.wire.chat_parse import FORMAT, REASONING
from arbiter.wire.json import encode


def build_request(request: Request) -> bytes:
    """Return the body of an upstream request. The same request always gives the same bytes (SPEC 2.4).

    Errors: ProtocolUnsupported where a part or a tool has no place in this format, or several choices are asked for.
    """
    if (request.choices or 1) > 1:
        raise ProtocolUnsupported("several choices (`n`) cannot be translated", param="n")
    body: dict[str, Any] = {"model": request.model, "messages": list(_build_messages(request.messages))}
    if request.tools:
        body["tools"] = [_build_tool(tool) for tool in request.tools]
    choice = request.tool_choice
    if choice is not None:
        named = {"type": "function", "function": {"name": choice.name}}
        body["tool_choice"] = named if choice.mode == "tool" else choice.mode
    output, reasoning = request.output, request.reasoning
    optional: dict[str, Any] = {
        "parallel_tool_calls": request.parallel_tools,
        "max_completion_tokens": request.max_output,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "top_k": request.top_k,
        "stop": list(request.stop) or None,
        "seed": request.seed,
        "frequency_penalty": request.frequency_penalty,
        "presence_penalty": request.presence_penalty,
        "logit_bias": Raw(request.logit_bias) if request.logit_bias is not None else None,
        "logprobs": request.logprobs,
        "top_logprobs": request.top_logprobs,
        "n": request.choices,
        "reasoning_effort": reasoning.effort if reasoning is not None else None,
        "response_format": _build_shape(output) if output is not None else None,
        "user": request.user,
        "metadata": dict(request.metadata) or None,
        "service_tier": request.service_tier if request.service_tier != "standard_only" else None,
        "prompt_cache_key": request.cache_key,
    }
    body.update((name, value) for name, value in optional.items() if value is not None)
    if request.stream:
        body["stream"] = True
    if request.include_usage:
        body["stream_options"] = {"include_usage": True}
    return encode(body)


def _build_messages(messages: tuple[Message, ...]) -> Iterator[dict[str, Any]]:
    held: list[dict[str, Any]] = []  # pictures and files out of tool results
    for message in messages:
        if message.role == "tool":
            yield _build_result(message, held)
            continue
        if held:  # results stay together, right behind their calls
            yield {"role": "user", "content": held}
            held = []
        yield (
            _build_said(message)
            if message.role == "assistant"
            else _with_name({"role": message.role, "content": _build_content(message.content)}, message)
        )
    if held:
        yield {"role": "user", "content": held}


def _with_name(built: dict[str, Any], message: Message) -> dict[str, Any]:
    if message.name is not None:
        built["name"] = message.name
    return built


def _build_result(message: Message, held: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a tool message. It holds text only; anything else goes into `held`, for the user message after it."""
    result = message.content[0]
    if not isinstance(result, ToolResult):
        raise ProtocolUnsupported("a message of role tool without a tool result")
    content = result.content
    if not isinstance(content, str):
        texts = tuple(part for part in content if isinstance(part, Text))
        others = [part for part in content if not isinstance(part, Text)]
        if others:
            held.append({"type": "text", "text": f"Attached to the result of {result.call_id}:"})
            held += [_build_part(part) for part in others]
        content = texts
    said = _build_content(content)
    if result.is_error:
        # There is no member for it; without a word the model would take the failure for an answer.
        said = f"Error: {said}" if isinstance(said, str) else [{"type": "text", "text": "Error:"}, *said]
    return _with_name({"role": "tool", "tool_call_id": result.call_id, "content": said}, message)


def _build_said(message: Message) -> dict[str, Any]:
    """Return an assistant message: this format knows one content, one reasoning and a list of calls, in no order."""
    built: dict[str, Any] = {"role": "assistant"}
    if isinstance(message.content, str):
        built["content"] = message.content
        return _with_name(built, message)
    calls: list[Any] = []
    said: list[Part] = []
    reasoning: dict[str, str] = {}
    refusals: list[str] = []
    for part in message.content:
        if isinstance(part, ToolCall):
            calls.append(build_call(part))
        elif isinstance(part, Opaque) and part.format == FORMAT and _is_call(part):
            calls.append(Raw(part.raw))
        elif isinstance(part, Thinking):
            spelling = part.spelling or REASONING
            reasoning[spelling] = reasoning.get(spelling, "") + part.text
        elif isinstance(part, Refusal):
            refusals.append(part.text)
        elif not isinstance(part, RedactedThinking):  # nothing here could hold it; SPEC 6.6 has its own way
            said.append(part)
    content = _build_content(tuple(said))
    built["content"] = content if content else None if calls or refusals else ""
    if refusals:
        built["refusal"] = "".join(refusals)
    built.update(reasoning)
    if calls:
        built["tool_calls"] = calls
    return _with_name(built, message)


def _is_call(part: Opaque) -> bool:
    return _type_of(part.raw) == "custom"


def build_call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _build_content(content: str | tuple[Part, ...]) -> str | list[Any]:
    """Return content in the shape that it needs: the array only where a bare string would not do (SPEC 2.4)."""
    if isinstance(content, str):
        return content
    if all(isinstance(part, Text) for part in content) and len(content) < 2:
        return "".join(part.text for part in content if isinstance(part, Text))
    return [_build_part(part) for part in content]


def _build_part(part: Part) -> Any:
    """Return one part. Cache marks stay behind: OpenAI refuses members that it does not know."""
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if isinstance(part, Image):
        image: dict[str, str | None] = {"url": part.url or f"data:{part.media_type};base64,{part.data}"}
        if part.detail is not None:
            image["detail"] = part.detail
        return {"type": "image_url", "image_url": image}
    if isinstance(part, File):
        return {"type": "file", "file": _build_file(part)}
    if isinstance(part, Audio):
        return {"type": "input_audio", "input_audio": {"data": part.data, "format": part.format}}
    if isinstance(part, Refusal):
        return {"type": "refusal", "refusal": part.text}
    if isinstance(part, Opaque) and part.format == FORMAT:
        return Raw(part.raw)
    what = _type_of(part.raw) if isinstance(part, Opaque) else type(part).__name__
    raise ProtocolUnsupported(f"a part of type {what} cannot be sent to an OpenAI Chat upstream")


def _build_file(file: File) -> dict[str, str]:
    built: dict[str, str] = {}
    if file.filename is not None:
        built["filename"] = file.filename
    if file.file_id is not None:
        built["file_id"] = file.file_id
    elif file.url is not None:
        built["file_data"] = file.url
    elif file.text is not None:
        built["file_data"] = f"data:text/plain;base64,{base64.b64encode(file.text.encode()).decode()}"
    elif file.data is not None:
        built["file_data"] = f"data:{file.media_type};base64,{file.data}" if file.media_type is not None else file.data
    return built


def _build_tool(tool: Tool | OpaqueTool) -> Any:
    if isinstance(tool, OpaqueTool):
        if tool.format != FORMAT:
            raise ProtocolUnsupported(f"a tool of type {_type_of(tool.raw)} cannot be sent to an OpenAI Chat upstream")
        return Raw(tool.raw)
    function: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    if tool.parameters is not None:
        function["parameters"] = Raw(tool.parameters)
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


class _Typed(msgspec.Struct):
    type: str = "unknown"


_TYPED = msgspec.json.Decoder(_Typed)


def _type_of(raw: bytes) -> str:
    return _TYPED.decode(raw).type


def _build_shape(output: OutputShape) -> dict[str, Any]:
    if output.kind != "json_schema":
        return {"type": output.kind}
    schema: dict[str, Any] = {"name": output.name or "answer"}
    if output.description is not None:
        schema["description"] = output.description
    if output.schema is not None:
        schema["schema"] = Raw(output.schema)
    if output.strict is not None:
        schema["strict"] = output.strict
    return {"type": "json_schema", "json_schema": schema}
