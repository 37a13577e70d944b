"""Where a request's conversation and its instructions stand, whatever its format."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Raw

CONVERSATIONS = ("messages", "contents", "input")
"""Members that hold a conversation: of chat and Messages, of Gemini, of Responses."""
INSTRUCTIONS = ("system", "instructions", "systemInstruction", "system_instruction")
"""Members that hold instructions beside it: of Messages, of Responses, of Gemini in its two spellings."""


def name_in(members: Mapping[str, Raw]) -> str | None:
    """Return the name of the member that holds the conversation."""
    for name in CONVERSATIONS:
        if name in members:
            return name
    return None


def conversation_of(members: Mapping[str, Raw]) -> Raw | None:
    """Return the conversation, undecoded."""
    name = name_in(members)
    return members[name] if name is not None else None


def beside(members: Mapping[str, Raw]) -> dict[str, Raw]:
    """Return the other members, as copies: a slice of a body holds all of it."""
    return {name: raw.copy() for name, raw in members.items() if name not in CONVERSATIONS}


def instructions_of(members: Mapping[str, Raw]) -> Raw | None:
    """Return the instructions that stand beside it, undecoded."""
    for name in INSTRUCTIONS:
        if name in members:
            return members[name]
    return None
