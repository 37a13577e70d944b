"""Instructions for formats that have them beside the conversation, and only before it."""

from __future__ import annotations

from arbiter.model import Message

Messages = tuple[Message, ...]


def apart(messages: Messages) -> tuple[Messages, Messages]:
    """Return the instructions at the head, and what stands behind them.

    Instructions to which nobody said anything yet are what the model shall answer: such a format wants a user's turn.
    """
    head = 0
    while head < len(messages) and messages[head].role in ("system", "developer"):
        head += 1
    if head == len(messages):
        return (), tuple(Message("user", message.content) for message in messages)
    return messages[:head], messages[head:]
