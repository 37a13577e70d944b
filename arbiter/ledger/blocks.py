"""What a request and its answer are kept as: blocks, each stored once under the hash of its text (SPEC 7.8).

A block is one message or item, one part of the system prompt, the tool set, the remaining parameters, or the answer.
Its text is JSON in the client's own shape, but that

- attachments are kept by identity: media type, name, size and hash stand in the place of their bytes;
- cache marks stand beside the reference, since clients move them with every turn and nothing else of a message changes;
- secrets are masked. What somebody signed is never altered: signed thinking that holds a secret is withheld whole.

A request refers to its blocks by direction and position, so a conversation that goes on adds only what is new.
"""

from __future__ import annotations

import binascii
import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from arbiter._speedups import nesting
from arbiter.inputs import CONVERSATIONS, INSTRUCTIONS
from arbiter.ledger.redaction import Redactor, is_opaque, is_signed

MAX_BLOCKS = 20_000  # of one request; a conversation has some hundreds of messages
_SLICE = 1 << 18  # of base64, a multiple of four: short enough for others to have their turn in between
_MARK = "cache_control"
_ARGUMENTS = re.compile(r"\.(?:input|arguments|input_schema|parameters|schema)(?:\.|$)")
"""Within these a `cache_control` is a tool's own word, and no mark."""
MAX_MARKS, MAX_PATH, MAX_WORD = 64, 256, 32  # of a block, in characters, in characters; real ones have one, 20 and 9
_ODD_64, _USUAL_64 = re.compile(r"[\s_-]"), str.maketrans("-_", "+/")
LEFT_OUT = "left_out_bytes"
"""Beside the cache marks of an answer that was kept in part: how much of it, as the client got it, is missing."""

Members = Mapping[str, Raw]
Marks = dict[str, Any]


class BlockRow(msgspec.Struct, kw_only=True):
    """One block, stored once."""

    id: str  # SHA-256 of its text, 64 hexadecimal digits
    kind: str  # message | system | tools | parameters | answer
    media: list[str] | None = None  # media types of its attachments
    size: int  # bytes of its text
    text: bytes  # zstd
    created_ms: int
    last_used_ms: int


class UseRow(msgspec.Struct, kw_only=True):
    """One block in one request, or in its answer."""

    id: str
    request_id: str
    direction: str  # in | out
    position: int  # from 0, in the order in which they stand
    kind: str
    block: str
    marks: dict[str, Any] | None = None  # its cache marks, by where in the block they stand; and LEFT_OUT
    at_ms: int


class HeadersRow(msgspec.Struct, kw_only=True):
    """The headers of one request, or of its answer."""

    id: str
    request_id: str
    direction: str
    headers: dict[str, str]
    at_ms: int


class Block(msgspec.Struct, frozen=True):
    """A block that was made ready to be kept."""

    id: str
    text: bytes
    media: tuple[str, ...] = ()
    marks: Marks | None = None


def split(members: Members) -> Iterator[tuple[str, bytes]]:
    """The blocks of a request as (kind, raw JSON), in the order in which a model reads them."""
    if "tools" in members:
        yield "tools", bytes(members["tools"])
    for name in INSTRUCTIONS:
        if name in members:
            # Part by part: Claude Code's first one differs from request to request, and the long ones behind it do not.
            yield from (("system", part) for part in _entries(bytes(members[name])))
    for name in CONVERSATIONS:
        if name in members:
            yield from (("message", entry) for entry in _entries(bytes(members[name])))
    apart = {"tools", *INSTRUCTIONS, *CONVERSATIONS}
    rest = {name: raw for name, raw in members.items() if name not in apart}
    yield "parameters", msgspec.json.encode(rest)


def _entries(raw: bytes) -> Iterator[bytes]:
    """The entries of an array; what is none is its own only entry."""
    if raw[:1] != b"[":
        yield raw
        return
    start = 1
    for end in nesting.cuts(raw, MAX_BLOCKS):
        entry = raw[start:end].strip(b" \t\r\n")
        start = end + 1
        if entry:
            yield entry


def made(raw: bytes, redact: Redactor) -> Block:
    """The block of a JSON text. Errors: msgspec's, and RecursionError, for what is no JSON."""
    value = msgspec.json.decode(nesting.whole(raw))
    making = _Making(redact if redact.suspects(raw) else None)
    text = msgspec.json.encode(making.kept(value, ""))
    return Block(hashlib.sha256(text).hexdigest(), text, tuple(dict.fromkeys(making.media)), making.marks or None)


class _Making:
    """One walk through a value. `redact` None: there is no secret in it."""

    def __init__(self, redact: Redactor | None) -> None:
        self.redact = redact
        self.media: list[str] = []
        self.marks: Marks = {}

    def kept(self, value: Any, path: str) -> Any:
        if isinstance(value, str):
            return self._text(value, path.rpartition(".")[2])
        if isinstance(value, list):
            name = path.rpartition(".")[2]  # several of what one would be under that name
            return [
                self._text(item, name) if isinstance(item, str) else self.kept(item, f"{path}.{index}")
                for index, item in enumerate(value)
            ]
        if isinstance(value, dict):
            return self._object(value, path)
        return value

    def _text(self, text: str, name: str) -> Any:
        if text.startswith("data:") and (found := self._data_url(text)) is not None:
            return found
        return self.redact.member(name, text) if self.redact is not None else text

    def _object(self, value: dict[str, Any], path: str) -> dict[str, Any]:
        if self.redact is not None and is_signed(value) and _holds_secret(value, self.redact):
            return _withheld(value)
        found: dict[str, Any] = {}
        for name, item in value.items():
            if name == _MARK and isinstance(item, dict) and not _ARGUMENTS.search(path):
                self._mark(path.removeprefix("."), item)
            elif isinstance(item, str) and is_opaque(name, value):
                found[name] = item
            elif isinstance(item, str) and (media := _media_of(name, value)) is not None:
                found[name] = self._attachment(item, media, value)
            else:
                said = self.redact(name) if self.redact is not None else name
                is_named = name == "value" and isinstance(item, str)
                found[said] = self._text(item, _label(value)) if is_named else self.kept(item, f"{path}.{name}")
        return found

    def _mark(self, path: str, mark: dict[str, Any]) -> None:
        """What a mark means, and not whatever else a client writes into it."""
        if len(self.marks) < MAX_MARKS and len(path) <= MAX_PATH:
            said = {name: mark[name][:MAX_WORD] for name in ("type", "ttl") if isinstance(mark.get(name), str)}
            self.marks[self.redact(path) if self.redact is not None else path] = said

    def _data_url(self, text: str) -> dict[str, Any] | None:
        comma = text.find(",", 5, 300)
        if comma < 0 or not text.endswith(";base64", 5, comma):
            return None
        return self._attachment(text[comma + 1 :], text[5:comma].partition(";")[0], {})

    def _attachment(self, data: str, media: str, beside: dict[str, Any]) -> dict[str, Any]:
        """Who it is, in the place of what it is."""
        if data.startswith("data:") and (found := self._data_url(data)) is not None:
            return found
        digest, size = hashlib.sha256(), 0
        if _ODD_64.search(data):  # in lines, or as URLs have it: a slice would not be a multiple of four, nor all of it
            data = "".join(data.split()).translate(_USUAL_64)
        try:
            for start in range(0, len(data), _SLICE):
                piece = binascii.a2b_base64(data[start : start + _SLICE])
                digest.update(piece)
                size += len(piece)
        except (binascii.Error, ValueError):
            digest, size = hashlib.sha256(data.encode("utf-8", "replace")), len(data)
        self.media.append(media)
        names = (beside.get(name) for name in ("filename", "name", "title"))
        name = next((self._name(one) for one in names if isinstance(one, str)), None)
        identity = {"media_type": media, "bytes": size, "sha256": digest.hexdigest()}
        return {"attachment": identity if name is None else {"name": name, **identity}}

    def _name(self, name: str) -> str:
        return self.redact(name[:256]) if self.redact is not None else name[:256]


def _label(pair: Mapping[str, Any]) -> str:
    """What a `value` is called by what stands beside it: headers and variables come as pairs, too."""
    return next((name for name in (pair.get("name"), pair.get("key")) if isinstance(name, str)), "value")


def _media_of(name: str, beside: dict[str, Any]) -> str | None:
    """The media type of a member that holds base64; None where it holds none."""
    if name == "data":
        media = beside.get("media_type") or beside.get("mimeType")
        if isinstance(media, str) and (beside.get("type") == "base64" or "mimeType" in beside):
            return media[:128]
        sound = beside.get("format")
        return f"audio/{sound[:32]}" if isinstance(sound, str) else None
    if name == "file_data":
        return "application/octet-stream"
    if name == "result" and beside.get("type") == "image_generation_call":
        return "image/png"
    return None


def _holds_secret(value: dict[str, Any], redact: Redactor) -> bool:
    texts = (item for name, item in value.items() if isinstance(item, str) and not is_opaque(name, value))
    return any(redact(text) != text for text in texts)


def _withheld(value: dict[str, Any]) -> dict[str, Any]:
    """In the place of something signed that holds a secret: altered it would be refused, and look like the original."""
    digest = hashlib.sha256(msgspec.json.encode(value)).hexdigest()
    return {"type": "withheld", "was": value.get("type"), "sha256": digest, "why": "a secret in what is signed"}
