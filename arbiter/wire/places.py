"""Where in a client's body a neutral part came from: asked once somebody has to be told that it cannot be sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from arbiter.errors import ArbiterError
from arbiter.model import Part, Request, ToolResult
from arbiter.wire.json import encode

_LIST = msgspec.json.Decoder(list[Raw])
_ENTRY = msgspec.json.Decoder(dict[str, Raw])

_WHOSE = ("role", "name", "tool_call_id", "type", "call_id")
_INSIDE = ("content", "output", "parts")
_WORD_BYTES = 256
MAX_ENTRIES = 2000  # some 20 us each; others wait meanwhile
Parse = Callable[[Mapping[str, Raw]], Request]


def place_of(part: object, members: Mapping[str, Raw], parse: Parse) -> str | None:
    """Return the path of the first entry of a content that `parse` reads as `part`, or as a result that holds it.

    Shapes: None where there is none, as for what stands in `system`, or it is not among the first MAX_ENTRIES. Each
    entry is read again, in a request of its own. An item of Responses may be the part itself.
    """
    name = next((one for one in ("messages", "contents") if one in members), "input")
    left = MAX_ENTRIES
    try:
        entries = _LIST.decode(members.get(name, b"[]"))
    except msgspec.ValidationError:
        return None  # a bare string
    for i, entry in enumerate(entries):
        if left <= 0:
            return None
        for alone, place in _apart(entry, left):
            try:
                found = parse({"model": members["model"], name: Raw(encode([alone]))})
            except ArbiterError:
                continue
            if any(_holds(one, part) for message in found.messages for one in message.parts()):
                return f"{name}[{i}]{place}"
            left -= 1
    return None


def _apart(raw_entry: Raw, most: int) -> Iterator[tuple[Any, str]]:
    """Yield a message or an item with one part of its content each, and where that is; or it itself, if it has none."""
    entry = _ENTRY.decode(raw_entry)
    inside = next((name for name in _INSIDE if name in entry), "")
    try:
        content = _LIST.decode(entry.get(inside, b"[]"))
    except msgspec.ValidationError:
        return  # a bare string
    # What else it holds may be large, and would be read again with each part.
    bare = {name: raw for name, raw in entry.items() if name in _WHOSE and _is_word(raw)}
    for j, raw in enumerate(content[:most]):
        yield {**bare, inside: [raw]}, f".{inside}[{j}]"
    if not inside:
        yield raw_entry, ""


def _is_word(raw: Raw) -> bool:
    return len(memoryview(raw)) <= _WORD_BYTES


def _holds(one: Part, part: object) -> bool:
    return one == part or (isinstance(one, ToolResult) and isinstance(one.content, tuple) and part in one.content)
