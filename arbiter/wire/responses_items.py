"""The input of an OpenAI Responses request, inwards: a flat list of items -> messages.

What the assistant said is spread over items here: its words, each call, each thought. Those that follow each other are
one message of the assistant's. An item that nobody knows travels as `Opaque` in it, and goes back as it came.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Raw

from arbiter.errors import BadRequest
from arbiter.model import (
    Audio,
    File,
    Image,
    Message,
    Opaque,
    Part,
    Refusal,
    SealedThinking,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from arbiter.wire.json import ABSENT, blame, decode, present
from arbiter.wire.openai_parts import file_of, image_of
from arbiter.wire.responses_opaque import told
from arbiter.wire.vault import is_sealed

FORMAT = "openai-responses"
ROLES = ("system", "developer", "user", "assistant")


class _Typed(msgspec.Struct):
    type: str | None = None
    role: str | None = None


class _Message(msgspec.Struct):
    content: str | list[Raw] | None = None


class _Call(msgspec.Struct):
    call_id: str
    name: str
    arguments: str = ""
    input: str = ""
    namespace: str | None = None


class _Output(msgspec.Struct):
    call_id: str
    output: str | list[Raw] = ""


class _Thought(msgspec.Struct):
    text: str = ""


class _Reasoning(msgspec.Struct):
    summary: list[_Thought] | None = None
    content: list[_Thought] | None = None
    encrypted_content: str | None = None


class _Audio(msgspec.Struct):
    data: str
    format: str


class _Part(msgspec.Struct):
    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: Raw = ABSENT
    detail: str | None = None
    file_id: str | None = None
    file_data: str | None = None
    file_url: str | None = None
    filename: str | None = None
    input_audio: _Audio | None = None


class _Item(msgspec.Struct):
    """The members of all items that agents send, of which each has some."""

    type: str | None = None
    role: str | None = None
    content: str | list[_Part] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str = ""
    input: str = ""
    namespace: str | None = None
    output: str | list[_Part] = ""
    summary: list[_Thought] | None = None
    encrypted_content: str | None = None


class _Strange(Exception):
    """What was decoded in one go has something in it that is told only by its bytes."""


_ITEM = msgspec.json.Decoder(_Item)
_TYPED = msgspec.json.Decoder(_Typed)
_MESSAGE = msgspec.json.Decoder(_Message)
_CALL = msgspec.json.Decoder(_Call)
_OUTPUT = msgspec.json.Decoder(_Output)
_REASONING = msgspec.json.Decoder(_Reasoning)
_PART = msgspec.json.Decoder(_Part)
_STR = msgspec.json.Decoder(str)

TEXTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")
_OTHERS = {  # shapes of another API, and what is written here in their place
    "image_url": '{"type": "input_image", "image_url": …}',
    "image": '{"type": "input_image", "image_url": …}',
    "file": '{"type": "input_file", "file_data": …, "filename": …}',
    "document": '{"type": "input_file", "file_data": …, "filename": …}',
    "tool_use": 'a call as an item of its own, {"type": "function_call", "call_id": …, "name": …, "arguments": …}',
    "tool_result": 'a result as an item of its own, {"type": "function_call_output", "call_id": …, "output": …}',
}


def full_name(namespace: str | None, name: str) -> str:
    """Return the name of a tool with that of its namespace in front of it."""
    if namespace is None:
        return name
    return f"{namespace}{name}" if namespace.endswith("_") else f"{namespace}__{name}"


def messages_of(items: str | list[Raw]) -> Iterator[Message]:
    """Yield the messages of an input.

    Errors: BadRequest naming the place of what has a wrong type, or stands here and belongs elsewhere.
    """
    if isinstance(items, str):
        yield Message("user", items)
        return
    said: list[str | Part] = []  # by the assistant, since somebody else last spoke
    for i, raw in enumerate(items):
        try:
            found = _known(_ITEM.decode(raw), raw)
        except (msgspec.DecodeError, RecursionError, _Strange):
            found = _item(raw, f"input[{i}]")
        if type(found) is Message:
            if said:
                yield _assistant(said)
                said = []
            yield found
        elif type(found) is list:
            said += found
        else:
            said.append(found)  # type: ignore[arg-type]
    if said:
        yield _assistant(said)


def _assistant(said: list[str | Part]) -> Message:
    if len(said) == 1 and isinstance(said[0], str):
        return Message("assistant", said[0])
    return Message("assistant", tuple([Text(one) if type(one) is str else one for one in said]))  # type: ignore[misc]


def _known(item: _Item, raw: Raw) -> Message | Part | str | list[str | Part]:
    """Return an item of which nothing is wrong or unknown: a message, or what the assistant said. Errors: _Strange."""
    kind, call_id = item.type, item.call_id
    if kind == "function_call_output" or kind == "custom_tool_call_output":
        if call_id is not None:
            return Message("tool", (ToolResult(call_id, _parts(item.output)),))
    elif kind == "message" or kind is None:
        role, content = item.role, item.content
        if role in ROLES:
            parts = _parts(content) if content is not None else ""
            if role != "assistant":
                return Message(role, parts)  # type: ignore[arg-type]  # one of ROLES
            return [parts] if isinstance(parts, str) else list(parts)
    elif kind == "function_call" or kind == "custom_tool_call":
        if call_id is not None and item.name is not None:
            return _called(kind, call_id, item.name, item)
    elif kind == "reasoning" and not isinstance(item.content, str):
        thoughts = item.content or item.summary or []
        texts = [one.text for one in thoughts]
        if None not in texts:
            return _thought(item.encrypted_content, texts, raw)
    raise _Strange


def _called(kind: str, call_id: str, name: str, call: _Item | _Call) -> ToolCall:
    name = full_name(call.namespace, name)
    if kind == "function_call":
        return ToolCall(call_id, name, call.arguments or "{}")
    return ToolCall(call_id, name, call.input, is_free=True)


def _parts(content: str | list[_Part]) -> str | tuple[Part, ...]:
    """Return decoded content. Errors: _Strange."""
    if isinstance(content, str):
        return content
    parts: list[Part] = []
    for one in content:
        part = _known_part(one)
        if part is None:
            raise _Strange
        parts.append(part)
    return tuple(parts)


def _item(raw: Raw, path: str) -> Message | Part | str | list[str | Part]:
    """Return an item, whatever it is, read step by step. Errors: BadRequest."""
    typed = decode(_TYPED, raw, f"{path}.")
    match typed.type:
        case None | "message" if typed.role is not None or typed.type is not None:
            return _message(raw, typed.role, path)
        case "function_call" | "custom_tool_call" as kind:
            call = decode(_CALL, raw, f"{path}.")
            return _called(kind, call.call_id, call.name, call)
        case "function_call_output" | "custom_tool_call_output":
            output = decode(_OUTPUT, raw, f"{path}.")
            return Message("tool", (ToolResult(output.call_id, _content(output.output, f"{path}.output")),))
        case "reasoning":
            return _reasoning(raw)
    return Opaque(FORMAT, bytes(raw), told(typed.type or "item_reference"))


def _message(raw: Raw, role: str | None, path: str) -> Message | list[str | Part]:
    if role not in ROLES:
        raise blame(path, ".role", f"expected one of {', '.join(ROLES)}")
    content = decode(_MESSAGE, raw, f"{path}.").content
    parts = _content(content if content is not None else "", f"{path}.content")
    if role != "assistant":
        return Message(role, parts)  # type: ignore[arg-type]  # one of ROLES
    return [parts] if isinstance(parts, str) else list(parts)


def _content(content: str | list[Raw], path: str) -> str | tuple[Part, ...]:
    if isinstance(content, str):
        return content
    return tuple([_part(raw, f"{path}[{i}].") for i, raw in enumerate(content)])


def _part(raw: Raw, path: str) -> Part:
    """Return one content part. A type that we do not know, or that lacks its own member, is Opaque.

    Errors: BadRequest naming the fault: a wrong member, or a part of another API's.
    """
    try:
        part = decode(_PART, raw, path)
    except BadRequest:
        typed = decode(_TYPED, raw, path).type
        if typed is None or typed in TEXTS or typed.startswith("input_"):
            raise
        part = _Part(typed)  # another type may hold anything under the same names
    known = _known_part(part)
    if known is not None:
        return known
    if part.type in _OTHERS:
        raise blame(path, "", f"this is another API's shape; /v1/responses takes {_OTHERS[part.type]}")
    return Opaque(FORMAT, bytes(raw))


def _known_part(part: _Part) -> Part | None:
    """Return one content part; None where its type is not known, or its own member is not there."""
    if part.type in TEXTS and part.text is not None:
        return Text(part.text)
    if part.type == "refusal" and part.refusal is not None:
        return Refusal(part.refusal)
    if part.type == "input_image" and bytes(part.image_url)[:1] == b'"':
        return _image(_STR.decode(part.image_url), part.detail)
    if part.type == "input_file":
        return _file(part)
    if part.type == "input_audio" and part.input_audio is not None:
        return Audio(part.input_audio.data, part.input_audio.format)
    return None


def _image(url: str, detail: str | None) -> Image:
    return image_of(url, detail if detail != "auto" else None, None)


def _file(part: _Part) -> File | None:
    if part.file_data is not None:
        return file_of(part.file_data, part.filename, None)
    if part.file_url is not None:
        return File(url=part.file_url, filename=part.filename)
    return File(file_id=part.file_id, filename=part.filename) if part.file_id is not None else None


def _reasoning(raw: Raw) -> Part:
    """Return a thought: its text, or what was told of it, and the whole of it for whoever made it."""
    try:
        found = _REASONING.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return Opaque(FORMAT, bytes(raw), "")
    thoughts = found.content or found.summary or []
    return _thought(found.encrypted_content, [one.text for one in thoughts], raw)


def _thought(encrypted: str | None, texts: Sequence[str | None], raw: Raw) -> Part:
    if encrypted is not None and is_sealed(encrypted):
        return SealedThinking(encrypted)
    return Thinking("\n\n".join([text for text in texts if text]), item=present(raw))
