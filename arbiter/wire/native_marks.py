"""Prompt-cache marks on the native lane, where the operator said that they are not the client's to set (SPEC 2.8).

A request in Anthropic's own format is opened down to its blocks and no further: whatever has no mark to lose or to gain
keeps its bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from arbiter.model import Target
from arbiter.wire import messages_marks

_LIST = msgspec.json.Decoder(list[Raw])
_MEMBERS = msgspec.json.Decoder(dict[str, Raw])
_STR = msgspec.json.Decoder(str)
_ANY = msgspec.json.Decoder()
_encode = msgspec.json.Encoder().encode

_SECTIONS = ("tools", "system", "messages")
_MARK = b'"cache_control"'


def replaced(members: Mapping[str, Raw], target: Target) -> dict[str, Raw]:
    """The members of `members` whose marks had to change, written anew; none where the target leaves them alone.

    Shapes: where Arbiter marks, text that was a bare string becomes a block, on every turn.
    """
    whose = target.prompt_cache
    if whose in ("auto", "client"):
        return {}
    try:
        body = _opened(members, as_blocks=whose == "arbiter")
    except (msgspec.MsgspecError, RecursionError, KeyError, UnicodeDecodeError):
        return {}  # the upstream will say what is wrong with it
    messages_marks.place(body, "arbiter" if whose == "arbiter" else "off", target)
    written = {name: Raw(_encode(body[name])) for name in _SECTIONS if name in members}
    return {name: raw for name, raw in written.items() if bytes(raw) != _encode(members[name])}


def _opened(members: Mapping[str, Raw], *, as_blocks: bool) -> dict[str, Any]:
    body: dict[str, Any] = {"messages": []}
    if "tools" in members:
        body["tools"] = [_block(raw) for raw in _LIST.decode(members["tools"])]
    if "system" in members:
        body["system"] = _content(members["system"], as_blocks=as_blocks)
    for raw in _LIST.decode(members["messages"]):
        turn: dict[str, Any] = dict(_MEMBERS.decode(raw))
        turn["role"] = _STR.decode(turn["role"])
        turn["content"] = _content(turn["content"], as_blocks=as_blocks)
        body["messages"].append(turn)
    return body


def _content(raw: Raw, *, as_blocks: bool) -> Any:
    text = bytes(raw)
    if text.startswith(b"["):
        return [_block(one) for one in _LIST.decode(raw)]
    if as_blocks and text.startswith(b'"') and text != b'""':
        return [{"type": "text", "text": raw}]
    return raw


def _block(raw: Raw) -> dict[str, Any] | Raw:
    """A block that may bear a mark, opened; any other as it came."""
    block: dict[str, Any] = dict(_MEMBERS.decode(raw))
    kind = _STR.decode(block["type"]) if "type" in block else ""
    if kind in messages_marks.NO_PLACE or (kind == "text" and not _STR.decode(block["text"]).strip()):
        return raw
    if kind == "tool_result" and _MARK in bytes(block.get("content", b"")):
        block["content"] = [_unmarked(one) for one in _LIST.decode(block["content"])]
    if "cache_control" in block:
        block["cache_control"] = _ANY.decode(block["cache_control"])
    return block


def _unmarked(raw: Raw) -> dict[str, Raw]:
    return {name: value for name, value in _MEMBERS.decode(raw).items() if name != "cache_control"}
