"""What Anthropic's own blocks and tools are to another format: told as text, left out, or not to be had there.

Left out is what Anthropic's servers did by themselves in an earlier turn: the answer that came of it stays, and nothing
that was asked is lost. A tool that those servers would have to run is different: without it the model would make its
results up.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import Raw


class _Text(msgspec.Struct, tag_field="type", tag="text"):
    text: str


class _Source(msgspec.Struct):
    type: str
    content: str | list[_Text]


class _Document(msgspec.Struct):
    source: _Source
    title: str | None = None


class _SearchResult(msgspec.Struct):
    source: str
    title: str
    content: list[_Text]


class _Compaction(msgspec.Struct):
    content: str | None = None  # null where it failed; then it says nothing to Anthropic either


class _ToolReference(msgspec.Struct):
    tool_name: str


def _texts(content: str | list[_Text]) -> str:
    return content if isinstance(content, str) else "\n\n".join(one.text for one in content)


def _tell_document(raw: Raw) -> str:
    found = msgspec.json.decode(raw, type=_Document)
    text = _texts(found.source.content)
    return f"{found.title}:\n\n{text}" if found.title else text


def _tell_search_result(raw: Raw) -> str:
    found = msgspec.json.decode(raw, type=_SearchResult)
    return f"{found.title}\n{found.source}\n\n{_texts(found.content)}"


def _tell_compaction(raw: Raw) -> str:
    return msgspec.json.decode(raw, type=_Compaction).content or ""


def _tell_tool_reference(raw: Raw) -> str:
    return msgspec.json.decode(raw, type=_ToolReference).tool_name


_TELL: dict[str, Callable[[Raw], str]] = {
    "document": _tell_document,
    "search_result": _tell_search_result,
    "compaction": _tell_compaction,
    "tool_reference": _tell_tool_reference,
}


def told(kind: str, raw: Raw) -> str | None:
    """Return the text of a block for a format that lacks its type: empty to leave it out, None to refuse it."""
    if kind in ("server_tool_use", "mcp_tool_use") or (kind.endswith("_tool_result") and kind != "tool_result"):
        return ""
    if kind not in _TELL:
        return None
    try:
        return _TELL[kind](raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def is_needless(kind: str) -> bool:
    """Whether a tool of this type can be left out. Searching among tools can: all of them are sent anyway."""
    return kind.startswith("tool_search_tool")
