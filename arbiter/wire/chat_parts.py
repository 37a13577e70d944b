"""One content part of OpenAI Chat, inwards: text, pictures, files, sound, in the neutral words for them."""

from __future__ import annotations

import msgspec
from msgspec import Raw

from arbiter.model import Audio, CacheMark, File, Opaque, Part, Refusal, Text
from arbiter.wire.json import blame, decode
from arbiter.wire.openai_parts import file_of, image_of

FORMAT = "openai-chat"


class CacheControl(msgspec.Struct):
    ttl: str | None = None


class _ImageUrl(msgspec.Struct):
    url: str
    detail: str | None = None


class _File(msgspec.Struct):
    file_data: str | None = None
    file_id: str | None = None
    filename: str | None = None


class _Audio(msgspec.Struct):
    data: str
    format: str


class ContentPart(msgspec.Struct):
    type: str
    text: str | None = None
    image_url: _ImageUrl | str | None = None
    file: _File | None = None
    input_audio: _Audio | None = None
    refusal: str | None = None
    cache_control: CacheControl | None = None


_ANTHROPICS = {  # and what is written here in their place
    "image": '{"type": "image_url", "image_url": {"url": …}}',
    "document": '{"type": "file", "file": {"file_data": …, "filename": …}}',
    "tool_use": 'calls as "tool_calls" of the assistant\'s message',
    "tool_result": 'a result as a message of role "tool"',
}
_PART = msgspec.json.Decoder(ContentPart)


def parse_part(raw: Raw, path: str) -> Part:
    """Return one content part. A type that we do not know, or that lacks its own member, is Opaque.

    Errors: BadRequest naming the fault, inside of `path`: a wrong member, or a block of Anthropic's.
    """
    part = decode(_PART, raw, path)
    known = known_part(part)
    if known is not None:
        return known
    if part.type in _ANTHROPICS and (part.type.startswith("tool_") or b'"source"' in bytes(raw)):
        raise blame(path, "", f"this is Anthropic's shape; /v1/chat/completions takes {_ANTHROPICS[part.type]}")
    return Opaque(FORMAT, bytes(raw))


def known_part(part: ContentPart) -> Part | None:
    """Return one content part; None where its type is not known, or its own member is not there."""
    cache = CacheMark(part.cache_control.ttl) if part.cache_control is not None else None
    if part.type == "text" and part.text is not None:
        return Text(part.text, cache)
    if part.type == "image_url" and part.image_url is not None:
        image = part.image_url if isinstance(part.image_url, _ImageUrl) else _ImageUrl(part.image_url)
        return image_of(image.url, image.detail, cache)
    if part.type == "file" and part.file is not None:
        return _parse_file(part.file, cache)
    if part.type == "input_audio" and part.input_audio is not None:
        return Audio(part.input_audio.data, part.input_audio.format)
    if part.type == "refusal" and part.refusal is not None:
        return Refusal(part.refusal)
    return None


def _parse_file(file: _File, cache: CacheMark | None) -> File:
    if file.file_data is None:
        return File(file_id=file.file_id, filename=file.filename, cache=cache)
    return file_of(file.file_data, file.filename, cache)
