"""Claude Code's attribution line: the first entry of its system prompt, which only Anthropic takes out again.

Anywhere else it is prompt text that differs between conversations and spoils every prefix cache (SPEC 2.2a).
"""

from __future__ import annotations

import msgspec

from arbiter.model import Message, Text

MARKER = "x-anthropic-billing-header:"


def without_attribution(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return `messages` without the line; the very same tuple where there is none.

    Shapes: an entry of its own goes whole, a string loses its first line; a message that said nothing else goes too.
    """
    if not messages or messages[0].role != "system":
        return messages
    head = messages[0]
    if isinstance(head.content, str):
        if not head.content.startswith(MARKER):
            return messages
        text = head.content.partition("\n")[2].lstrip("\n")
        return (msgspec.structs.replace(head, content=text), *messages[1:]) if text else messages[1:]
    first = head.content[0] if head.content else None
    if type(first) is not Text or not first.text.startswith(MARKER):
        return messages
    parts = head.content[1:]
    return (msgspec.structs.replace(head, content=parts), *messages[1:]) if parts else messages[1:]
