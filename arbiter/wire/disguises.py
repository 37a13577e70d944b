"""Tools that an upstream is told of in another shape than the client's, and what comes back of them.

A name that a format refuses goes out under another one. A tool that takes free text (Codex's `apply_patch`) becomes,
where there are none, a function with one string, `input`; and its calls, which are JSON then, are free text again
before the client sees them:

    {"input" : "*** Begin Patch\\n…"}      the string's slices are passed on, unescaped, as they arrive
    anything else                         is kept until the call is whole, and is the text itself
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from io import StringIO

import msgspec
from msgspec.structs import replace

from arbiter.errors import Garbled
from arbiter.model import Answer, CallDelta, CallStarted, Event, Finished, Message, Part, Request, Tool, ToolCall
from arbiter.wire.json import encode

Disguises = Mapping[str, Tool]
"""By the name that is sent, the client's own tool. Tools that go out as they are are not in it."""

MAX_KEPT_CHARS = 16 << 20

_FREE = b'{"type":"object","properties":{"input":{"type":"string","description":%b}},"required":["input"]}'
_WHOLE = "The whole input of the tool, as plain text."
_HELD = "It must keep to this {} grammar:\n\n{}"

_OPENING = re.compile(r'\s*\{\s*"input"\s*:\s*"')
_BEGINS = re.compile(r'\s*(?:\{\s*(?:"(?:i(?:n(?:p(?:u(?:t(?:"\s*(?::\s*"?)?)?)?)?)?)?)?)?)?\Z')
_PLAIN = re.compile(r'(?:[^"\\]|\\[^u]|\\u[0-9a-fA-F]{4})*+', re.DOTALL)
_HALF = re.compile(r"(?<!\\)(?:\\\\)*(\\u[dD][89abAB][0-9a-fA-F]{2})\Z")
_UNFINISHED = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = '"\\/bfnrtu'


def as_functions(request: Request) -> Request:
    """Return `request` with functions in place of tools that take free text, and its calls of them as JSON.

    Shapes: the very same request where there is neither. The grammar is told in words: most models keep to it.
    """
    if not _has_free_text(request):
        return request
    tools = tuple(_function(tool) if isinstance(tool, Tool) and tool.is_free else tool for tool in request.tools)
    return replace(request, tools=tools, messages=tuple(map(_with_json, request.messages)))


def _has_free_text(request: Request) -> bool:
    for tool in request.tools:
        if type(tool) is Tool and tool.is_free:
            return True
    for message in request.messages:
        if not isinstance(message.content, str):
            for part in message.content:
                if type(part) is ToolCall and part.is_free:
                    return True
    return False


def _function(tool: Tool) -> Tool:
    description = tool.description
    if tool.grammar is not None:
        held = _HELD.format(tool.grammar.syntax, tool.grammar.definition)
        description = f"{description}\n\n{held}" if description else held
    schema = _FREE % encode(_WHOLE)
    return Tool(tool.name, description, schema, cache=tool.cache, namespace=tool.namespace)


def _with_json(message: Message) -> Message:
    if isinstance(message.content, str) or not any(_is_free(part) for part in message.content):
        return message
    return replace(message, content=tuple(_json_call(part) for part in message.content))


def _is_free(part: Part) -> bool:
    return type(part) is ToolCall and part.is_free


def _json_call(part: Part) -> Part:
    if type(part) is not ToolCall or not part.is_free:
        return part
    return ToolCall(part.id, part.name, encode({"input": part.arguments}).decode(), part.cache)


# --- On the way back --------------------------------------------------------------------------------------------------


class _Input:
    """The arguments of one call, on their way to be free text."""

    __slots__ = ("_held", "_is_open", "_is_whole", "_kept", "_may_open")

    def __init__(self) -> None:
        self._held = ""  # what cannot be told yet: of the opening without its blanks, or of an escape
        self._kept = StringIO()  # all of it, until the string opens
        self._may_open = True
        self._is_open = False  # inside of the string
        self._is_whole = False

    def feed(self, arguments: str) -> str:
        """Return the text that `arguments` completes. Errors: Garbled where too much of it cannot be told yet."""
        if self._is_whole:
            return ""
        if self._is_open:
            return self._inside(self._held + arguments)
        if self._may_open:
            held = self._held + arguments
            opening = _OPENING.match(held)
            if opening is not None:
                self._is_open, self._kept = True, StringIO()
                return self._inside(held[opening.end() :])
            self._may_open = _BEGINS.match(held) is not None
            self._held = "".join(held.split()) if self._may_open else ""  # blanks may stand anywhere in it, or nowhere
        self._kept.write(arguments)
        if self._kept.tell() > MAX_KEPT_CHARS:
            raise Garbled("the upstream sent too much input for a tool that takes free text")
        return ""

    def finish(self) -> str:
        """Return what is left once nothing more will come: all of it, where it never was what it should have been."""
        kept, self._kept = self._kept.getvalue(), StringIO()
        return "" if self._is_open or self._may_open else _said(kept)

    def _inside(self, text: str) -> str:
        told, start = [], 0
        while True:
            plain = _PLAIN.match(text, start)
            assert plain is not None, "it also matches nothing"
            end = plain.end()
            if end == len(text) or _UNFINISHED.match(text, end):
                half = _HALF.search(text, start, end)
                end = half.start(1) if half is not None else end  # its other half may follow
                self._held = text[end:]
                break
            if text[end] == '"':
                self._is_whole, self._held = True, ""
                break
            told.append(_unescaped(text[start:end]) + text[end])  # an escape that is none
            start = end + 1
        return "".join(told) + _unescaped(text[start:end])


def _unescaped(text: str) -> str:
    """Return the inside of a JSON string as text. Models leave line ends as they are, and escape what has no escape."""
    if "\\" not in text:
        return text
    mended = _ESCAPE.sub(lambda found: found[0] if found[1] in _ESCAPED else f"\\{found[0]}", text)
    found: str = json.loads(f'"{mended}"', strict=False)
    return found.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _said(arguments: str) -> str:
    """Return the input that whole arguments are: the one string of an object, whatever its name, else all of it."""
    try:
        members = msgspec.json.decode(arguments.encode("utf-8", "replace"), type=dict[str, object])
    except (msgspec.DecodeError, RecursionError):
        return arguments
    texts = [value for value in members.values() if isinstance(value, str)]
    named = members.get("input")
    if isinstance(named, str):
        return named
    return texts[0] if len(texts) == 1 else arguments


class Unmasking:
    """Gives the calls of one answer, event by event, the client's own shape."""

    __slots__ = ("_disguises", "_inputs")

    def __init__(self, disguises: Disguises) -> None:
        self._disguises = disguises
        self._inputs: dict[int, _Input] = {}  # of the calls that become free text, by number

    def changes(self, call: int) -> bool:
        """Whether the arguments of call number `call` must be seen."""
        return call in self._inputs

    def take(self, event: Event) -> Iterator[Event]:
        """Yield what the client shall be told in place of `event`. Errors: Garbled."""
        if type(event) is CallStarted and event.name in self._disguises:
            tool = self._disguises[event.name]
            if tool.is_free and not event.is_free:
                self._inputs[event.index] = _Input()
            yield CallStarted(event.index, event.id, tool.name, tool.is_free or event.is_free)
        elif type(event) is CallDelta and event.index in self._inputs:
            said = self._inputs[event.index].feed(event.arguments)
            if said:
                yield CallDelta(event.index, said)
        else:
            if type(event) is Finished:
                for index, one in self._inputs.items():
                    left = one.finish()
                    if left:
                        yield CallDelta(index, left)
            yield event


def unmasked(answer: Answer, disguises: Disguises) -> Answer:
    """Return `answer` with its tool calls in the client's own shape."""
    if not disguises:
        return answer
    return replace(answer, parts=tuple(_unmasked(part, disguises) for part in answer.parts))


def _unmasked(part: Part, disguises: Disguises) -> Part:
    if type(part) is not ToolCall or part.name not in disguises:
        return part
    tool = disguises[part.name]
    if not tool.is_free or part.is_free:
        return replace(part, name=tool.name)
    one = _Input()
    said = one.feed(part.arguments)
    return ToolCall(part.id, tool.name, said + one.finish(), part.cache, is_free=True)
