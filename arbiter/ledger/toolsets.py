"""The tools that agents offer: each set once, with an estimate of what its schemas cost in tokens (SPEC 7.2).

No index leads from a set to the attempts with it, as it would cost every row. Instead each set says when it was last in
use, within `USED_EVERY_S`; it may go (`retention`) once that was before all attempts that are kept. A worker sends the
schemas of a set again that it has not seen for that long, so one that is gone and comes back is written anew.
"""

from __future__ import annotations

import msgspec

USED_EVERY_S = 3600.0
"""So often it is written down that a set is in use."""
MAX_NAMES = 1024
NAME_CHARS = 128


class ToolSetRow(msgspec.Struct, array_like=True, kw_only=True):
    """One set of tool schemas."""

    id: str  # `attempts.tools_hash`
    seen_ms: int  # when it was first recorded
    tools: int
    bytes: int  # of the schemas, as they were sent
    tokens: int  # estimated
    names: dict[str, int]  # each tool's tokens, estimated; of a name that comes twice the sum
    used_ms: int | None = None  # when a row with it was last stored, an hour ago at most


class _Function(msgspec.Struct):
    name: str = ""


class _Tool(msgspec.Struct):
    name: str = ""
    type: str = ""
    function: _Function | None = None


class _Declaring(msgspec.Struct):
    functions: list[msgspec.Raw] | None = msgspec.field(name="functionDeclarations", default=None)
    snake_functions: list[msgspec.Raw] | None = msgspec.field(name="function_declarations", default=None)


_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_decode_tools = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_tool = msgspec.json.Decoder(_Tool).decode
_decode_declaring = msgspec.json.Decoder(_Declaring).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def read(id: str, schemas: bytes, seen_ms: int, used_ms: int, tokens_per_byte: float) -> ToolSetRow:
    """The row of a set whose schemas are so dense. What is no list of tools is one without names."""
    tools = offered(schemas)
    names: dict[str, int] = {}
    for tool in tools[:MAX_NAMES]:
        name = _name(tool)
        names[name] = names.get(name, 0) + round(len(memoryview(tool)) * tokens_per_byte)
    return ToolSetRow(
        id=id,
        seen_ms=seen_ms,
        tools=len(tools),
        bytes=len(schemas),
        tokens=round(len(schemas) * tokens_per_byte),
        names=names,
        used_ms=used_ms,
    )


def offered(schemas: bytes) -> list[msgspec.Raw]:
    """Each tool of a list; one entry of Gemini's declares many functions. What is no list of tools has none."""
    try:
        entries = _decode_tools(schemas)
    except _UNREADABLE:
        return []
    if not declares(schemas):
        return entries
    return [tool for entry in entries for tool in _declared(entry)]


def declares(schemas: bytes) -> bool:
    """Whether an entry may declare many, as Gemini's do."""
    return b'"functionDeclarations"' in schemas or b'"function_declarations"' in schemas


def _declared(entry: msgspec.Raw) -> list[msgspec.Raw]:
    try:
        found = _decode_declaring(entry)
    except _UNREADABLE:
        return [entry]
    functions = found.functions if found.functions is not None else found.snake_functions
    return functions if functions is not None else [entry]


def _name(tool: msgspec.Raw) -> str:
    """A tool's own name; one that the provider brings has its type, and of Gemini's its only member's name."""
    try:
        found = _decode_tool(tool)
        members = _decode_members(tool) if not (found.name or found.type or found.function) else {}
    except _UNREADABLE:
        return ""
    name = found.function.name if found.function is not None else found.name
    return (name or found.type or (next(iter(members)) if len(members) == 1 else ""))[:NAME_CHARS]
