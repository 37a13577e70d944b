"""The input of an OpenAI Responses request, inwards: a flat list of items -> messages.

What the assistant said is spread over items here: its words, each call, each thought. Those that follow each other are
one message of the assistant's. An item that nobody knows travels as `Opaque` in it, and goes back as it came.
"""

from __future__ import annotations

from collections.abc import Iterator

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
        path = f"input[{i}]"
        found = _item(raw, path)
        if isinstance(found, Message):
            if said:
                yield _assistant(said)
                said = []
            yield found
        elif isinstance(found, list):
            said += found
        else:
            said.append(found)
    if said:
        yield _assistant(said)


def _assistant(said: list[str | Part]) -> Message:
    if len(said) == 1 and isinstance(said[0], str):
        return Message("assistant", said[0])
    return Message("assistant", tuple(Text(one) if isinstance(one, str) else one for one in said))


def _item(raw: Raw, path: str) -> Message | Part | str | list[str | Part]:
    """Return an item: a message, or what the assistant said."""
    typed = decode(_TYPED, raw, f"{path}.")
    match typed.type:
        case None | "message" if typed.role is not None or typed.type is not None:
            return _message(raw, typed.role, path)
        case "function_call":
            call = decode(_CALL, raw, f"{path}.")
            return ToolCall(call.call_id, full_name(call.namespace, call.name), call.arguments or "{}")
        case "custom_tool_call":
            call = decode(_CALL, raw, f"{path}.")
            return ToolCall(call.call_id, full_name(call.namespace, call.name), call.input, is_free=True)
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
    if part.type in TEXTS and part.text is not None:
        return Text(part.text)
    if part.type == "refusal" and part.refusal is not None:
        return Refusal(part.refusal)
    if part.type == "input_image" and bytes(part.image_url)[:1] == b'"':
        return _image(_STR.decode(part.image_url), part.detail)
    if part.type == "input_file":
        file = _file(part)
        if file is not None:
            return file
    if part.type == "input_audio" and part.input_audio is not None:
        return Audio(part.input_audio.data, part.input_audio.format)
    if part.type in _OTHERS:
        raise blame(path, "", f"this is another API's shape; /v1/responses takes {_OTHERS[part.type]}")
    return Opaque(FORMAT, bytes(raw))


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
    if found.encrypted_content is not None and is_sealed(found.encrypted_content):
        return SealedThinking(found.encrypted_content)
    thoughts = found.content or found.summary or []
    return Thinking("\n\n".join(one.text for one in thoughts if one.text), item=present(raw))
