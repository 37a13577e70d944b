"""The input of an OpenAI Responses request, outwards: messages -> a flat list of items.

Nothing is moved: each message becomes its items where it stands, in the order of its parts, so a conversation that grew
has the same bytes up to where it grew (SPEC 2.4). Instructions at the head are `instructions`. A call that nobody
answered gets a result behind it that says so, and a result without its call is told as text: either would be refused.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from typing import Any

from msgspec import Raw

from arbiter.errors import PartUnsupported
from arbiter.model import (
    File,
    Image,
    Message,
    Opaque,
    OpaqueTool,
    Part,
    RedactedThinking,
    Refusal,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
)
from arbiter.wire.answered import Matched
from arbiter.wire.json import type_of
from arbiter.wire.openai_names import sent_name, short_call_id
from arbiter.wire.openai_parts import bare, file_data, file_name, image_url
from arbiter.wire.responses_items import FORMAT
from arbiter.wire.responses_parse import short_name
from arbiter.wire.results import missing, orphaned, result_of

MAX_CALL_ID = 64

_IN_CONTENT = ("input_", "output_")  # how the types of parts begin; items have others


class Conversation:
    """Builds the items of one request, whose `tools` say what was called. `is_whole`: none of it stands elsewhere."""

    def __init__(self, tools: tuple[Tool | OpaqueTool, ...], *, is_whole: bool = True) -> None:
        self._is_whole = is_whole
        self._place = 0  # of the next part, among all of them
        self._grouped = {tool.name: tool for tool in tools if isinstance(tool, Tool) and tool.namespace is not None}
        self._free: set[str] = set()  # calls whose input was free text, by id
        self._open: dict[str, deque[tuple[str, bool]]] = {}  # by id, who has no result yet: sent as; is it free text
        self._sent: set[str] = set()  # what all of those are sent as

    def build(self, messages: tuple[Message, ...]) -> tuple[str | None, list[Any]]:
        """Return the instructions, where the first message is such, and the items of the others.

        Errors: PartUnsupported where a part has no place in this format.
        """
        instructions = None
        if len(messages) > 1 and messages[0].role == "system":
            said = bare(messages[0].content, FORMAT)
            if isinstance(said, str):
                instructions, messages = said, messages[1:]
        matched = Matched(messages)
        return instructions, [item for message in messages for item in self._items(message, matched)]

    def _items(self, message: Message, matched: Matched) -> Iterator[Any]:
        place, parts = self._place, message.parts()
        self._place += len(parts)
        if message.role == "tool":
            for n, part in enumerate(parts, place):
                result = result_of(part)
                if self._is_whole and matched.is_orphan(n):
                    yield {"role": "user", "content": _content(orphaned(result))}
                else:
                    yield self._result(result)
        elif message.role == "assistant":
            yield from self._said(message)
            for n, part in enumerate(parts, place):
                if type(part) is ToolCall and matched.is_unanswered(n):
                    # Results go to the first of several calls of one id, so that it is the last which has none.
                    self._open[part.id].rotate(1)
                    yield self._result(missing(part.id))
        else:
            yield {"role": message.role, "content": _content(message.content)}

    def _said(self, message: Message) -> Iterator[Any]:
        if isinstance(message.content, str):
            yield _message(message.content)
            return
        for part in message.content:
            if type(part) is Text or type(part) is Refusal:
                if part.text:
                    yield _message(part.text)
            elif type(part) is ToolCall:
                yield self._call(part, message)
            elif type(part) is Thinking:
                if part.item is not None:
                    yield Raw(part.item)  # whoever made it wants it back; of others nothing can be told here
            elif type(part) is Opaque and part.format == FORMAT and not _is_in_content(part.raw):
                yield Raw(part.raw)
            elif type(part) is Opaque and part.format != FORMAT and part.text is not None:
                if part.text:
                    yield _message(part.text)
            elif type(part) is not RedactedThinking:
                yield {"role": "assistant", "content": [_part(part)]}

    def _call(self, call: ToolCall, message: Message) -> dict[str, Any]:
        if call.is_free:
            self._free.add(call.id)
        built = {"type": "custom_tool_call" if call.is_free else "function_call"}
        waiting = self._open.setdefault(call.id, deque())
        sent = short_call_id(call.id, MAX_CALL_ID)
        if sent in self._sent:  # a server that does not tell its calls apart
            sent = self._told_apart(call.id, message)
        self._sent.add(sent)
        waiting.append((sent, call.is_free))
        built["call_id"] = sent
        tool = self._grouped.get(call.name)
        if tool is not None and tool.namespace is not None:
            built |= {"namespace": tool.namespace.name, "name": short_name(tool)}
        else:
            built["name"] = sent_name(call.name)
        built["input" if call.is_free else "arguments"] = call.arguments
        return built

    def _told_apart(self, id: str, message: Message) -> str:
        """An id for a call whose `id` is in use: one that no other call waits with, nor comes with in its `message`.

        What later messages hold changes nothing that was told before them (SPEC 2.4).
        """
        taken = {short_call_id(part.id, MAX_CALL_ID) for part in message.parts() if type(part) is ToolCall} | self._sent
        base = short_call_id(id, MAX_CALL_ID - 6)
        return next(sent for number in itertools.count(2) if (sent := f"{base}_{number}") not in taken)

    def _result(self, result: ToolResult) -> dict[str, Any]:
        content = _content(result.content)
        if result.is_error:  # there is no member for it; the model would take the failure for an answer
            if isinstance(content, str):
                content = f"Error: {content}"
            else:
                content.insert(0, {"type": "input_text", "text": "Error:"})
        waiting = self._open.get(result.call_id)
        if waiting:
            sent, is_free = waiting.popleft()
            self._sent.discard(sent)
        else:
            sent, is_free = short_call_id(result.call_id, MAX_CALL_ID), result.call_id in self._free
        kind = "custom_tool_call_output" if is_free else "function_call_output"
        return {"type": kind, "call_id": sent, "output": content}


def _message(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def _content(content: str | tuple[Part, ...]) -> str | list[Any]:
    parts = bare(content, FORMAT)
    return parts if isinstance(parts, str) else [_part(part) for part in parts]


def _part(part: Part) -> Any:
    """Return one part of a content. Cache marks stay behind."""
    if type(part) is Text:
        return {"type": "input_text", "text": part.text}
    if type(part) is Image:
        return {"type": "input_image", "image_url": image_url(part), "detail": part.detail or "auto"}
    if type(part) is File:
        return {"type": "input_file", **_file(part)}
    if type(part) is Refusal:
        return {"type": "refusal", "refusal": part.text}
    if type(part) is Opaque and part.format == FORMAT:
        return Raw(part.raw)
    what = type_of(part.raw) or "item_reference" if type(part) is Opaque else type(part).__name__
    raise PartUnsupported(f"a part of type {what} cannot be told to this upstream, which speaks OpenAI Responses", part)


def _file(file: File) -> dict[str, str]:
    if file.file_id is not None:
        built = {"file_id": file.file_id}
    elif file.url is not None:
        built = {"file_url": file.url}
    else:
        return {"filename": file_name(file), "file_data": file_data(file)}
    return built if file.filename is None else {"filename": file.filename, **built}


def _is_in_content(raw: bytes) -> bool:
    """Whether a raw part stands in a content; if not, it is an item."""
    return (type_of(raw) or "").startswith(_IN_CONTENT)
