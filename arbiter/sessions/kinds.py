"""What a request is for, where no header says so and the traffic of a real agent shows it beyond doubt (SPEC 8.2a).

A wrong kind is worse than none: each rule here is met by all of its agent's requests of that kind that were captured,
and by no other request of anybody. docs/sessions.md lists them.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from arbiter._speedups import nesting
from arbiter.inputs import conversation_of
from arbiter.sessions.signals import Members

OPENCODE_TITLE = "Generate a title for this conversation:"
"""The whole first text of opencode's request for a title; the conversation's own first text follows it."""

_NONE_BYTES = len("null")  # an empty array is shorter still, and one tool longer
_ONE = ord("1")
_MAX_TITLE = 64 << 10  # bytes of the messages of a request for a title
_MOST = 4  # entries that are looked at


class _Schema(msgspec.Struct):
    properties: dict[str, Raw] = {}


class _Format(msgspec.Struct):
    type: str = ""
    schema: _Schema | None = None


class _Output(msgspec.Struct):
    format: _Format | None = None


class _Entry(msgspec.Struct):
    role: str = ""
    content: Raw = Raw()


class _Block(msgspec.Struct):
    type: str = ""
    text: str = ""


_decode_output = msgspec.json.Decoder(_Output).decode
_decode_entry = msgspec.json.Decoder(_Entry).decode
_decode_block = msgspec.json.Decoder(_Block).decode
_decode_str = msgspec.json.Decoder(str).decode


def recognised(agent: str | None, members: Members) -> str | None:
    """The kind of a request of `agent` that its body shows; None where it shows none, or the agent is another."""
    if agent is None or (is_title := _RULES.get(agent)) is None:
        return None
    tools, most = members.get("tools"), members.get("max_tokens")
    has_tools = tools is not None and len(memoryview(tools)) > _NONE_BYTES
    if most is not None and len(one := memoryview(most)) == 1 and one[0] == _ONE:
        # Nobody has a conversation in words of one token: with its tools it warms a cache, without it is a probe.
        return "keepwarm" if has_tools else "auxiliary"
    return "title" if not has_tools and is_title(members) else None


def _is_claude_codes_title(members: Members) -> bool:
    """It wants JSON with a title and nothing else."""
    output = members.get("output_config")
    if output is None:
        return False
    found = _decoded(_decode_output, output)
    schema = found.format.schema if found is not None and found.format is not None else None
    return schema is not None and list(schema.properties) == ["title"]


def _is_opencodes_title(members: Members) -> bool:
    messages = conversation_of(members)
    if messages is None or len(view := memoryview(messages)) > _MAX_TITLE:
        return False
    for entry in _entries(bytes(view)):
        message = _decoded(_decode_entry, entry)
        if message is not None and message.role == "user":
            return _first_text(bytes(message.content)).strip() == OPENCODE_TITLE
    return False


_RULES = {"claude-code": _is_claude_codes_title, "opencode": _is_opencodes_title}


def _first_text(content: bytes) -> str:
    if content[:1] == b'"':
        text: str | None = _decoded(_decode_str, content)
        return text or ""
    block = next(iter(_entries(content)), b"")
    found = _decoded(_decode_block, block)
    return found.text if found is not None and found.type in ("text", "input_text") else ""


def _entries(array: bytes) -> list[bytes]:
    if array[:1] != b"[":
        return []
    found, start = [], 1
    for end in nesting.cuts(array, _MOST):
        found.append(array[start:end])
        start = end + 1
    return found


def _decoded(decode: Any, raw: bytes | Raw) -> Any:
    try:
        return decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        return None
