"""What OpenAI's own items and tools are to another format: left out, or not to be had there.

Left out is what OpenAI's servers did by themselves in an earlier turn: the answer that came of it stays, and nothing
that was asked is lost. So is a search of theirs that the model may or may not make. (Codex offers one with every
request.) A tool that the client has to run in OpenAI's own way is different, and so is one that was asked for by name.
"""

from __future__ import annotations

_DONE = frozenset(
    (
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "mcp_call",
        "mcp_list_tools",
        "tool_search_call",
        "tool_search_output",
    )
)


def told(kind: str) -> str | None:
    """Return the text of an item for a format that lacks its type: empty to leave it out, None to refuse it."""
    return "" if kind in _DONE else None


def is_needless(kind: str) -> bool:
    """Whether a tool of this type can be left out: the request asks for the same without it."""
    return kind.startswith(("web_search", "tool_search"))
