"""Bedrock Converse requests, outwards: `model.Request` -> the body for an upstream. The model stands in the path.

Converse is Anthropic's Messages in other words: turns of two roles, results behind their calls, marks on what stands
before them. So a request is built as one of those, where a history is put right and a model's thinking is settled, and
then spelt anew. What Converse has no word for is refused before.

Members leave in a fixed order and nothing random enters (SPEC 2.4).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from arbiter.errors import PartUnsupported, ProtocolUnsupported
from arbiter.model import (
    Audio,
    File,
    Image,
    Message,
    Opaque,
    OpaqueTool,
    OutputShape,
    Part,
    Request,
    Target,
    Text,
    Tool,
    ToolCall,
    ToolResult,
)
from arbiter.wire.converse_models import Ways, ways_of
from arbiter.wire.disguises import Disguises
from arbiter.wire.json import encode_sliced
from arbiter.wire.messages_blocks import FAILED, NOTHING
from arbiter.wire.messages_build import members_of
from arbiter.wire.messages_models import abilities_of
from arbiter.wire.messages_schema import closed
from arbiter.wire.openai_names import renamed, sent_name, short_call_id

FORMAT = "bedrock-converse"
PATH = "/converse"
MAX_ID = 64
NO_LONGER = "This tool is no longer there, and must not be called."
"""Said of a tool that was called earlier and is offered no more: Converse refuses calls of tools that it is not told
of."""

_NOBODY = Target()
_TIERS = {"priority": "priority", "flex": "flex", "default": "default", "standard_only": "default"}
_UNNAMED = re.compile(r"[^a-zA-Z0-9 ()\[\]-]+")
_UNTOLD = "{} cannot be told to this upstream, which speaks Bedrock Converse"


def build_request(request: Request, target: Target = _NOBODY) -> bytes:
    """Return the body of an upstream request. The same request always gives the same bytes (SPEC 2.4).

    Errors: ProtocolUnsupported and PartUnsupported where a part or a tool has no place in this format; what Messages
    has besides.
    """
    ways = ways_of(request.model)
    shape, limit = request.output, request.max_output
    prepared = replace(_prepared(request), output=None)
    try:
        # Where no marks are taken, none are made.
        target_of_marks = target if ways.marks else replace(target, prompt_cache="off")
        body = members_of(prepared, target_of_marks, blocks=True)
    except PartUnsupported as error:
        raise PartUnsupported(_reworded(error), error.part) from error
    except ProtocolUnsupported as error:
        raise ProtocolUnsupported(_reworded(error), param=error.param) from error
    documents = _Documents()
    built: dict[str, Any] = {
        "messages": [
            {"role": turn["role"], "content": _turn(turn["content"], ways, documents)} for turn in body["messages"]
        ]
    }
    if body.get("system"):
        built["system"] = list(_blocks(body["system"], ways, documents))
    is_known = limit is not None or target.max_output is not None or abilities_of(request.model) is not None
    inference = {
        "maxTokens": body["max_tokens"] if is_known else None,
        "temperature": body.get("temperature"),
        "topP": body.get("top_p"),
        "stopSequences": body.get("stop_sequences"),
    }
    inference = {name: value for name, value in inference.items() if value is not None}
    if inference:
        built["inferenceConfig"] = inference
    tools = _tools(body, ways, list(_called(body["messages"])))
    if tools is not None:
        built["toolConfig"] = tools
    effort = body.get("output_config", {}).get("effort")
    more = ways.more(body.get("thinking"), effort, body.get("top_k")) if ways.more is not None else {}
    if more:
        built["additionalModelRequestFields"] = more
    tier = _TIERS.get(request.service_tier or "")
    if tier is not None:
        built["serviceTier"] = {"type": tier}
    if shape is not None and shape.kind == "json_schema" and shape.schema is not None:
        built["outputConfig"] = {"textFormat": _shape(shape)}
    return encode_sliced(built, "messages")


def disguised(request: Request) -> Disguises:
    """Return the tools that are sent under another name, or as functions although they take free text."""
    free = {sent_name(tool.name): tool for tool in request.tools if isinstance(tool, Tool) and tool.is_free}
    return {**renamed(request), **free}


def _reworded(error: ProtocolUnsupported) -> str:
    """The words of the format that the request was built in are not those of the one that it is asked in."""
    return str(error).replace("an Anthropic Messages upstream", "Bedrock").replace("Anthropic Messages", "Bedrock")


# --- what is said otherwise before ------------------------------------------------------------------------------------


def _prepared(request: Request) -> Request:
    """Return `request` without what Converse has no word for, and with names that it takes."""
    renamed(request)  # refuses what could not be told apart
    tools: list[Tool | OpaqueTool] = []
    for i, tool in enumerate(request.tools):
        if isinstance(tool, Tool):
            tools.append(replace(tool, name=sent_name(tool.name)))
        elif not tool.needless:
            raise ProtocolUnsupported(f"tools[{i}]: {_UNTOLD.format('a built-in tool')}", param=f"tools[{i}]")
    choice = request.tool_choice
    if choice is not None:
        name = sent_name(choice.name) if choice.name is not None else None
        choice = replace(choice, name=name, allowed=tuple(map(sent_name, choice.allowed)))
    return replace(request, tools=tuple(tools), tool_choice=choice, messages=tuple(map(_message, request.messages)))


def _message(message: Message) -> Message:
    if isinstance(message.content, str):
        return message
    return replace(message, content=tuple(_parts(message.content)))


def _parts(parts: Iterable[Part]) -> Iterator[Part]:
    for part in parts:
        kind = type(part)
        if kind is ToolCall:
            yield replace(part, name=sent_name(part.name))  # type: ignore[union-attr]
        elif type(part) is ToolResult and not isinstance(part.content, str):
            yield replace(part, content=tuple(_parts(part.content)))
        elif type(part) is Opaque:
            if part.text is None:
                raise PartUnsupported(_UNTOLD.format("a part that only its own format knows"), part)
            yield Text(part.text)
        elif kind is Audio:
            raise PartUnsupported(_UNTOLD.format("sound"), part)
        elif type(part) is Image and part.url is not None:
            raise PartUnsupported(_UNTOLD.format("a picture behind a link"), part)
        elif type(part) is File and (part.url is not None or part.file_id is not None):
            raise PartUnsupported(_UNTOLD.format("a document behind a link or an id"), part)
        else:
            yield part


# --- Messages, spelt anew ---------------------------------------------------------------------------------------------


class _Documents:
    """Names of documents: Converse wants each to have one of its own, of few kinds of characters."""

    __slots__ = ("_taken",)

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def name(self, title: str | None) -> str:
        base = " ".join(_UNNAMED.sub(" ", title or "").split())[:180] or "document"
        name, number = base, 1
        while name in self._taken:
            number += 1
            name = f"{base} {number}"
        self._taken.add(name)
        return name


def _turn(content: Any, ways: Ways, documents: _Documents) -> list[Any]:
    built = list(_blocks(content, ways, documents))
    if any("document" in block for block in built) and not any("text" in block for block in built):
        built.append({"text": NOTHING})
    return built


def _blocks(content: Any, ways: Ways, documents: _Documents) -> Iterator[dict[str, Any]]:
    blocks: list[dict[str, Any]] = [{"type": "text", "text": content}] if isinstance(content, str) else content
    for block in blocks:
        yield _block(block, ways, documents)
        if ways.marks and "cache_control" in block:
            yield _point(block["cache_control"], ways)


def _point(cache: dict[str, Any], ways: Ways) -> dict[str, Any]:
    ttl = cache.get("ttl") if ways.hour else None
    return {"cachePoint": {"type": "default"} if ttl is None else {"type": "default", "ttl": ttl}}


def _block(block: dict[str, Any], ways: Ways, documents: _Documents) -> dict[str, Any]:
    kind = block["type"]
    if kind == "text":
        return {"text": block["text"]}
    if kind == "tool_use":
        id = short_call_id(block["id"], MAX_ID)
        return {"toolUse": {"toolUseId": id, "name": block["name"], "input": block["input"]}}
    if kind == "tool_result":
        return {"toolResult": _result(block, ways, documents)}
    if kind == "thinking":
        told = {"text": block["thinking"], "signature": block["signature"]}
        return {"reasoningContent": {"reasoningText": told}}
    if kind == "redacted_thinking":
        return {"reasoningContent": {"redactedContent": block["data"]}}
    source = block["source"]
    if kind == "image":
        return {"image": {"format": source["media_type"].partition("/")[2], "source": {"bytes": source["data"]}}}
    name = documents.name(block.get("title"))
    if source["type"] == "text":
        data, format = base64.b64encode(source["data"].encode()).decode(), "txt"
    else:
        data, format = source["data"], "pdf"
    return {"document": {"format": format, "name": name, "source": {"bytes": data}}}


def _result(block: dict[str, Any], ways: Ways, documents: _Documents) -> dict[str, Any]:
    failed = block.get("is_error") is True
    content = list(_blocks(block.get("content") or NOTHING, ways, documents))
    built: dict[str, Any] = {"toolUseId": short_call_id(block["tool_use_id"], MAX_ID), "content": content}
    if failed and ways.fails:
        built["status"] = "error"
    elif failed:
        content.insert(0, {"text": FAILED})
    return built


def _called(turns: list[dict[str, Any]]) -> Iterator[str]:
    for turn in turns:
        if not isinstance(turn["content"], str):
            for block in turn["content"]:
                if block["type"] == "tool_use":
                    yield block["name"]


def _tools(body: dict[str, Any], ways: Ways, called: list[str]) -> dict[str, Any] | None:
    """Return `toolConfig`: what is offered, else what was called, which Converse wants to know of in any case."""
    choice = body.get("tool_choice") or {"type": "auto"}
    offered = body.get("tools", ()) if choice["type"] != "none" else ()
    built: list[Any] = []
    for tool in offered:
        spec: dict[str, Any] = {"name": tool["name"]}
        if (tool.get("description") or "").strip():
            spec["description"] = tool["description"]
        spec["inputSchema"] = {"json": tool["input_schema"]}
        if ways.strict and tool.get("strict") is not None:
            spec["strict"] = tool["strict"]
        built.append({"toolSpec": spec})
        if ways.marks_tools and "cache_control" in tool:
            built.append(_point(tool["cache_control"], ways))
    if not built:
        gone: Any = Raw(b'{"type":"object","properties":{}}')
        built = [
            {"toolSpec": {"name": name, "description": NO_LONGER, "inputSchema": {"json": gone}}}
            for name in dict.fromkeys(called)
        ]
    if not built:
        return None
    config: dict[str, Any] = {"tools": built}
    if offered and choice["type"] == "any":
        config["toolChoice"] = {"any": {}}
    elif offered and choice["type"] == "tool":
        config["toolChoice"] = {"tool": {"name": choice["name"]}}
    return config


def _shape(output: OutputShape) -> dict[str, Any]:
    schema = {"schema": closed(output.schema or b"{}").decode()}
    if output.name is not None:
        schema["name"] = output.name
    if output.description is not None:
        schema["description"] = output.description
    return {"type": "json_schema", "structure": {"jsonSchema": schema}}
