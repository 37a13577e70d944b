"""Where in a client's body a neutral part came from: asked once somebody has to be told that it cannot be sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from msgspec import Raw

from arbiter.errors import ArbiterError
from arbiter.model import Part, Request, ToolResult
from arbiter.wire.json import encode

_MESSAGES = msgspec.json.Decoder(list[dict[str, Raw]])
_CONTENT = msgspec.json.Decoder(list[Raw])

_WHOSE = ("role", "name", "tool_call_id")
_WORD_BYTES = 256
MAX_ENTRIES = 2000  # some 20 us each; others wait meanwhile
Parse = Callable[[Mapping[str, Raw]], Request]


def place_of(part: object, members: Mapping[str, Raw], parse: Parse) -> str | None:
    """Return the path of the first entry of a content that `parse` reads as `part`, or as a result that holds it.

    Shapes: None where there is none, as for what stands in `system`, or it is not among the first MAX_ENTRIES. Each
    entry is read again, in a request of its own.
    """
    left = MAX_ENTRIES
    for i, message in enumerate(_MESSAGES.decode(members["messages"])):
        try:
            content = _CONTENT.decode(message.get("content", b"[]"))
        except msgspec.ValidationError:
            continue  # a bare string
        # What else a message holds may be large, and would be read again with each entry.
        bare = {name: message[name] for name in _WHOSE if name in message and _is_word(message[name])}
        for j, raw in enumerate(content[:left]):
            alone = {"model": members["model"], "messages": Raw(encode([{**bare, "content": [raw]}]))}
            try:
                found = parse(alone)
            except ArbiterError:
                continue
            if any(_holds(one, part) for message_of in found.messages for one in message_of.parts()):
                return f"messages[{i}].content[{j}]"
        left = max(0, left - len(content))
    return None


def _is_word(raw: Raw) -> bool:
    return len(memoryview(raw)) <= _WORD_BYTES


def _holds(one: Part, part: object) -> bool:
    return one == part or (isinstance(one, ToolResult) and isinstance(one.content, tuple) and part in one.content)
