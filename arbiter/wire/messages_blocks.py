"""One neutral part as one block of Anthropic Messages.

What a block may hold is narrower here than elsewhere: pictures of four kinds, documents that are PDF or text, text that
is more than blanks, arguments that are an object. A file that is really a picture becomes one; a label that contradicts
the bytes gives way to them; what fits nowhere is refused, because without it the model would answer something else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Raw

from arbiter._speedups import nesting
from arbiter.errors import PartUnsupported, ProtocolUnsupported
from arbiter.model import (
    CacheMark,
    File,
    Image,
    Opaque,
    Part,
    RedactedThinking,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from arbiter.wire import marked
from arbiter.wire.inline import flat, text_in
from arbiter.wire.json import type_of
from arbiter.wire.messages_parse import FORMAT
from arbiter.wire.signatures import is_foreign

PICTURES = ("image/jpeg", "image/png", "image/gif", "image/webp")
NOTHING = "."
"""Stands where this format insists on words and there are none."""
FAILED = "Error:"
"""Stands before what a failed result holds, where it cannot be marked as one."""

_UNTOLD = "a part of type {} cannot be told to this upstream, which speaks Anthropic Messages"
_FIRST_BYTES = {  # in base64
    "/9j/": "image/jpeg",
    "iVBORw0KGgo": "image/png",
    "R0lGOD": "image/gif",
    "UklGR": "image/webp",
    "JVBER": "application/pdf",
}
_TEXTUAL = re.compile(r"text/|application/(?:[\w.-]+\+)?(?:json|xml|yaml|toml|javascript|x-\w+)\Z")


def blocks_of(parts: Iterable[Part]) -> list[Any]:
    """Return the blocks for `parts`, without those that must not be sent.

    A mark on a part that is left out moves to the block before it, if there is one.
    Errors: PartUnsupported where this format has no place for one.
    """
    built: list[Any] = []
    for part in parts:
        try:
            block = block_of(part)
        except PartUnsupported:
            raise  # of a part inside of this one
        except ProtocolUnsupported as error:
            raise PartUnsupported(str(error), part) from error
        if block is not None:
            built.append(block)
        elif type(part) is Text and built and isinstance(built[-1], dict):
            mark(built[-1], part.cache)
    return built


def block_of(part: Part) -> Any:
    """Return one block, None for what must not be sent: blank text, and thinking that cannot prove where it is from.

    Errors: ProtocolUnsupported where this format has no place for it.
    """
    block: dict[str, Any]
    if type(part) is Text or type(part) is Refusal:
        if not part.text or part.text.isspace():
            return None
        block = {"type": "text", "text": part.text}
        cache = part.cache if type(part) is Text else None
        return block if cache is None else mark(block, cache)
    if type(part) is ToolCall:
        block = {"type": "tool_use", "id": part.id, "name": part.name, "input": input_of(part.arguments)}
        return block if part.cache is None else mark(block, part.cache)
    if type(part) is ToolResult:
        return _result(part)
    if type(part) is Thinking:
        block = {"type": "thinking", "thinking": part.text, "signature": part.signature}
        return block if part.signature is not None and not is_foreign(part.signature) else None
    if type(part) is RedactedThinking:
        return {"type": "redacted_thinking", "data": part.data} if part.place == "block" else None
    if type(part) is Image:
        return _picture(part.url, part.media_type, part.data, part.cache)
    if type(part) is File:
        return _file(part)
    if type(part) is Opaque:
        return _opaque(part)
    raise ProtocolUnsupported(_UNTOLD.format("input_audio"))


def mark(block: dict[str, Any], cache: CacheMark | None) -> dict[str, Any]:
    """Put `cache` on a block that may bear one, and return the block."""
    if cache is not None and block.get("type") not in marked.NO_PLACE:
        block["cache_control"] = {"type": "ephemeral"} if cache.ttl is None else {"type": "ephemeral", "ttl": cache.ttl}
    return block


def opened(raw: bytes) -> Any:
    """Return what only this format knows as it came; one that is marked as its members, for whoever moves marks.

    Shapes: a mark inside of it is on it then. `type` is text, where it is one; all else, also the mark, is as it came.
    """
    taken: list[bytes] = []
    bare = marked.unmarked(raw, taken)
    if not taken:
        return Raw(bare)
    members: dict[str, Any] = dict(_MEMBERS.decode(bare))
    kind = marked.word(bytes(members.get("type", b"")))
    if kind is not None:
        members["type"] = kind
    members["cache_control"] = Raw(taken[-1])
    return members


_MEMBERS = msgspec.json.Decoder(dict[str, Raw])


class _Object(msgspec.Struct):
    """An object of which no member is kept: it is read to its end, and no value is made of it."""


_OBJECT = msgspec.json.Decoder(_Object | None)
_BLANK = b" \t\r\n"


def _opaque(part: Opaque) -> Any:
    if part.format == FORMAT:
        return opened(part.raw)
    if part.text is not None:
        return block_of(Text(part.text))
    raise ProtocolUnsupported(_UNTOLD.format(type_of(part.raw) or "unknown"))


def _result(result: ToolResult) -> dict[str, Any]:
    """Return a result. A mark inside of it sits on the result itself: not every server takes one deeper down."""
    cache = result.cache
    content: str | list[Any]
    if isinstance(result.content, str):
        content = "" if result.content.isspace() else result.content
    else:
        cache = cache or next((found for part in result.content if (found := getattr(part, "cache", None))), None)
        content = blocks_of(result.content)
        for block in content:
            if isinstance(block, dict):
                block.pop("cache_control", None)
    failed = result.is_error
    if failed and isinstance(content, list) and not all(map(_is_text, content)):
        # "all content must be type `text` if `is_error` is true"
        content, failed = [{"type": "text", "text": FAILED}, *content], None
    built: dict[str, Any] = {"type": "tool_result", "tool_use_id": result.call_id}
    if content or failed:
        built["content"] = content or NOTHING  # a failure must say something
    if failed is not None:
        built["is_error"] = failed
    return built if cache is None else mark(built, cache)


def _is_text(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "text"


def input_of(arguments: str) -> Any:
    """Return call arguments as the object that this format wants, digit for digit.

    A model that was cut off, or that cannot write JSON, leaves arguments that are no object. They stay readable for the
    next model under a name that says what they are.
    """
    raw = nesting.whole(arguments.encode())
    try:
        found = _OBJECT.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return {"invalid_arguments": arguments} if arguments.strip() else {}
    has_members = raw[:2] == b'{"' or (found is not None and raw.lstrip(_BLANK)[1:].lstrip(_BLANK)[:1] != b"}")
    return Raw(raw) if has_members else {}


def _picture(url: str | None, media_type: str | None, data: str | None, cache: CacheMark | None) -> dict[str, Any]:
    if url is not None:
        return mark({"type": "image", "source": {"type": "url", "url": url}}, cache)
    data = data or ""
    media_type = _seen(data) or (media_type or "").lower()
    media_type = "image/jpeg" if media_type == "image/jpg" else media_type
    if media_type not in PICTURES:
        raise ProtocolUnsupported(
            "a picture for an Anthropic Messages upstream must be JPEG, PNG, GIF or WebP; this one says it is "
            f"{_printable(media_type) or 'nothing'}"
        )
    return mark({"type": "image", "source": {"type": "base64", "media_type": media_type, "data": flat(data)}}, cache)


def _file(file: File) -> dict[str, Any]:
    """Return a document, or a picture where the file is one."""
    source: dict[str, Any]
    if file.file_id is not None:
        source = {"type": "file", "file_id": file.file_id}
    elif file.url is not None:
        source = {"type": "url", "url": file.url}
    elif file.text is not None:
        source = {"type": "text", "media_type": "text/plain", "data": file.text}
    else:
        data, media_type = file.data or "", (file.media_type or "").lower()
        seen = _seen(data) or media_type
        if seen.startswith("image/"):
            return _picture(None, seen, data, file.cache)
        source = _document(seen, data)
    block = {"type": "document", "source": source}
    if file.filename is not None:
        block["title"] = file.filename
    return mark(block, file.cache)


def _document(media_type: str, data: str) -> dict[str, Any]:
    if media_type == "application/pdf":
        return {"type": "base64", "media_type": media_type, "data": flat(data)}
    if not media_type or _TEXTUAL.match(media_type):
        text = text_in(flat(data))
        if text is not None:
            return {"type": "text", "media_type": "text/plain", "data": text}
    raise ProtocolUnsupported(
        "a document for an Anthropic Messages upstream must be PDF or text; this one says it is "
        f"{_printable(media_type) or 'nothing'}"
    )


def _seen(data: str) -> str | None:
    """Return what the first bytes say that base64 `data` is. Clients do mislabel: a JPEG called image/png is a 400."""
    return next((kind for first, kind in _FIRST_BYTES.items() if data.startswith(first)), None)


def _printable(media_type: str) -> str:
    return media_type if re.fullmatch(r"[\w.+/-]{1,80}", media_type) else ""
