"""One part of Gemini's, inwards: text, media, calls, results, in the neutral words for them.

Google's servers name what a part is by the one member that it has. A part with another one is Opaque: what Google's own
tools did in an earlier turn is left out elsewhere, since the answer that came of it stays; anything else is refused
there.
"""

from __future__ import annotations

from typing import cast

import msgspec
from msgspec import Raw

from arbiter._speedups import nesting
from arbiter.errors import BadRequest
from arbiter.model import Audio, File, Image, Opaque, Part, Text
from arbiter.wire.inline import text_in
from arbiter.wire.json import ABSENT, decode, encode, present

FORMAT = "google-gemini"

SERVERS_OWN = ("executableCode", "codeExecutionResult", "toolCall", "toolResponse")
"""Members of parts in which Google tells what its own tools did."""

_SOUNDS = {"mpeg": "mp3", "mp3": "mp3", "wav": "wav", "x-wav": "wav", "wave": "wav"}
_WITHIN_GOOGLE = ("gs://", "https://generativelanguage.googleapis.com/")


class Blob(msgspec.Struct, rename="camel"):
    mime_type: str = ""
    data: str = ""
    display_name: str | None = None


class FileData(msgspec.Struct, rename="camel"):
    file_uri: str = ""
    mime_type: str = ""
    display_name: str | None = None


class Call(msgspec.Struct):
    name: str = ""
    id: str | None = None
    args: Raw = ABSENT


class _Media(msgspec.Struct, rename="camel"):
    inline_data: Blob | None = None
    file_data: FileData | None = None


class Result(msgspec.Struct):
    name: str = ""
    id: str | None = None
    response: Raw = ABSENT
    parts: list[Raw] | None = None


class Members(msgspec.Struct, rename="camel"):
    """Those of a part, whichever it has. Text of a thought is a summary of it."""

    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    inline_data: Blob | None = None
    file_data: FileData | None = None
    function_call: Call | None = None
    function_response: Result | None = None


class _OneBlob(Blob, forbid_unknown_fields=True, rename="camel"):
    pass


class _OneFile(FileData, forbid_unknown_fields=True, rename="camel"):
    pass


class OneSpelling(Members, forbid_unknown_fields=True, rename="camel"):
    """Those of a part that has no others, so that none of them is spelled another way."""

    inline_data: _OneBlob | None = None
    file_data: _OneFile | None = None
    video_metadata: Raw = ABSENT
    media_resolution: Raw = ABSENT


class Strange(Exception):
    """A part that was decoded with all others is none that we know, so its bytes are wanted."""


class _Output(msgspec.Struct, forbid_unknown_fields=True):
    output: str


class _Result(msgspec.Struct, forbid_unknown_fields=True):
    output: str = msgspec.field(name="result")


class _Error(msgspec.Struct, forbid_unknown_fields=True):
    error: str


_MEMBERS = msgspec.json.Decoder(Members)
_MEDIA = msgspec.json.Decoder(_Media)
_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_SAID: tuple[msgspec.json.Decoder[_Output | _Result], ...] = (
    msgspec.json.Decoder(_Output),
    msgspec.json.Decoder(_Result),
)
_FAILED = msgspec.json.Decoder(_Error)


def members_of(part: Raw | OneSpelling, path: str) -> Members:
    """Return what a part has. Errors: BadRequest naming the fault, inside of `path`."""
    return part if type(part) is OneSpelling else decode(_MEMBERS, cast(Raw, part), path)


def media_part(found: Members, part: Raw | OneSpelling) -> Part:
    """Return a part that is neither text nor a call nor a result: media, or what only Google knows.

    Errors: Strange where the bytes of that are not here.
    """
    if found.inline_data is not None:
        return _inline(found.inline_data)
    linked = _linked(found.file_data) if found.file_data is not None else None
    if linked is not None:
        return linked
    if type(part) is OneSpelling:
        raise Strange
    raw = cast(Raw, part)
    if found.file_data is not None:
        return Opaque(FORMAT, bytes(raw))
    names = _OBJECT.decode(raw).keys() if bytes(memoryview(raw)[:1]) == b"{" else ()
    return Opaque(FORMAT, bytes(raw), "" if any(name in SERVERS_OWN for name in names) else None)


def _inline(blob: Blob) -> Part:
    kind = blob.mime_type.lower()
    if kind.startswith("image/"):
        return Image(media_type=blob.mime_type, data=blob.data)
    if kind.startswith("audio/"):
        subtype = kind.removeprefix("audio/").partition(";")[0]
        return Audio(blob.data, _SOUNDS.get(subtype, subtype))
    if kind.startswith("text/"):
        text = text_in(blob.data)
        if text is not None:
            return File(media_type=blob.mime_type, text=text, filename=blob.display_name)
    return File(media_type=blob.mime_type or None, data=blob.data, filename=blob.display_name)


def _linked(file: FileData) -> Part | None:
    """Return a file behind an address; None where only Google can get at it."""
    if file.file_uri.startswith(_WITHIN_GOOGLE) or not file.file_uri.startswith(("http://", "https://")):
        return None
    if file.mime_type.lower().startswith("image/"):
        return Image(url=file.file_uri)
    return File(media_type=file.mime_type or None, url=file.file_uri, filename=file.display_name)


def arguments_of(call: Call) -> str:
    """Return the arguments of a call as JSON text."""
    return (present(call.args) or b"{}").decode()


def result_of(result: Result, path: str) -> tuple[str | tuple[Part, ...], bool | None]:
    """Return what a function gave back, and whether it failed, where it says so.

    Shapes: `{"output": text}` and `{"result": text}` are that text, `{"error": text}` a failure; any other object is
    its JSON. Errors: BadRequest where it is none.
    """
    raw = present(result.response) or b"{}"
    if raw[:1] != b"{":
        raise BadRequest(f"{path}response: expected an object", param=f"{path}response")
    text, failed = _said(raw)
    media: list[Part] = []
    for i, one in enumerate(result.parts or ()):
        found = decode(_MEDIA, one, f"{path}parts[{i}].")
        media.append(media_part(Members(inline_data=found.inline_data, file_data=found.file_data), one))
    if not media:
        return text, failed
    return (Text(text), *media) if text else tuple(media), failed


def _said(raw: bytes) -> tuple[str, bool | None]:
    readable = nesting.whole(raw)
    for decoder in _SAID:
        try:
            return decoder.decode(readable).output, None
        except msgspec.MsgspecError:
            continue
    try:
        return _FAILED.decode(readable).error, True
    except msgspec.MsgspecError:
        return raw.decode(), None


def opened_tool(name: str, raw: Raw) -> bytes:
    """Return a tool of Google's own as the object that it is in a list of tools."""
    return encode({name: raw})
