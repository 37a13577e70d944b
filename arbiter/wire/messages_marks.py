"""Prompt-cache marks (`cache_control`) on a built request: whose they are, and where they may sit (SPEC 2.8).

A mark says: what stands up to here will come again. Arbiter's own sit on the last tool, on the end of the system prompt
and on the end of the newest turn, where the next request will look for what this one wrote. A turn of the assistant's
at the very end is only a beginning and comes back as something else; the mark stays on the turn before it, which does
come again.

The client's marks stay where they are, with three corrections, each in place of a refusal. One on a trailing assistant
turn moves to the last block before it. Of more than four, the last in the messages, in the system prompt and in the
tools stay, because each bounds what lives longer than the next, and then those nearest to the end. One in front of a
mark that lasts an hour lasts an hour too.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from arbiter.model import CacheMark, Message, Opaque, OpaqueTool, Part, Request, Target, Text, ToolCall, ToolResult
from arbiter.wire import marked
from arbiter.wire.messages_blocks import mark

MOST = 4
_HOUR = "1h"


class _Mark(msgspec.Struct):
    ttl: str | None = None


_MARK = msgspec.json.Decoder(_Mark)


_Sections = tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]
"""The blocks that can bear a mark, in the order of the prompt: the tools, the system prompt, the messages."""


def owner(request: Request, target: Target) -> Literal["client", "arbiter", "off"]:
    """Say whose marks this request gets. The client's count, wherever they sit, also where none may."""
    if target.prompt_cache == "auto":
        return "client" if _any(request) else "arbiter"
    return target.prompt_cache


def place(body: dict[str, Any], whose: Literal["client", "arbiter", "off"], target: Target) -> None:
    """Settle the marks in `body`, whose parts bear the client's."""
    sections = _sections(body)
    if whose != "client":
        for blocks in sections:
            for block in blocks:
                block.pop("cache_control", None)
    if whose == "arbiter":
        cache = CacheMark(_HOUR if target.prompt_cache_ttl == _HOUR else None)
        for blocks in _lasting(body, sections):
            if blocks:
                mark(blocks[-1], cache)
    elif whose == "client":
        _correct(body, sections)


def _correct(body: dict[str, Any], sections: _Sections) -> None:
    tools, system, messages = _lasting(body, sections)
    taken = None
    for block in sections[2][len(messages) :]:
        taken = block.pop("cache_control", None) or taken
    if taken is not None and messages:
        messages[-1].setdefault("cache_control", taken)
    bearers = [[block for block in blocks if "cache_control" in block] for blocks in (tools, system, messages)]
    spare = sum(map(len, bearers)) - MOST
    if spare > 0:
        for block in [block for blocks in bearers for block in blocks[:-1]][:spare]:
            del block["cache_control"]
    lasts_an_hour = False
    for block in [block for blocks in bearers for block in blocks if "cache_control" in block][::-1]:
        if _lifetime(block) == _HOUR:
            lasts_an_hour = True
        elif lasts_an_hour:
            mark(block, CacheMark(_HOUR))


def _lifetime(block: dict[str, Any]) -> str | None:
    cache = block["cache_control"]
    if isinstance(cache, dict):
        return cache.get("ttl")
    try:
        return _MARK.decode(cache).ttl
    except msgspec.DecodeError:  # the upstream will say what is wrong with it
        return None


def _sections(body: dict[str, Any]) -> _Sections:
    tools = [tool for tool in body.get("tools", ()) if isinstance(tool, dict)]
    messages: list[dict[str, Any]] = []
    for turn in body["messages"]:
        messages += _blocks(turn["content"])
    return tools, _blocks(body.get("system", "")), messages


def _lasting(body: dict[str, Any], sections: _Sections) -> _Sections:
    """`sections` without the blocks of an assistant's turn at the end."""
    turns, (tools, system, messages) = body["messages"], sections
    if not turns or turns[-1]["role"] != "assistant":
        return sections
    return tools, system, messages[: len(messages) - len(_blocks(turns[-1]["content"]))]


def _blocks(content: object) -> list[dict[str, Any]]:
    if not isinstance(content, list):
        return []
    return [block for block in content if isinstance(block, dict) and block.get("type") not in marked.NO_PLACE]


def _any(request: Request) -> bool:
    return any(map(_marks_tool, request.tools)) or any(map(_marks_message, request.messages))


def _marks_tool(tool: Any) -> bool:
    return marked.is_marked(tool.raw) if isinstance(tool, OpaqueTool) else tool.cache is not None


def _marks_message(message: Message) -> bool:
    return not isinstance(message.content, str) and any(map(_marks_part, message.content))


def _marks_part(part: Part) -> bool:
    kind = type(part)
    if kind is Text or kind is ToolCall:
        return part.cache is not None  # type: ignore[union-attr]  # most are of these
    if type(part) is Opaque:
        return marked.is_marked(part.raw)
    if type(part) is ToolResult and not isinstance(part.content, str) and any(map(_marks_part, part.content)):
        return True
    return getattr(part, "cache", None) is not None
