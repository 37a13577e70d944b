"""JSON's door: one encoder, and decoding that blames the right place of the caller's body.

What is said of a fault names its place, the type that belongs there and the type that was found; never the value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec

from arbiter._speedups import nesting
from arbiter.errors import BadRequest

encode = msgspec.json.Encoder().encode
"""Compact UTF-8 JSON; members in the order in which they were put."""

ABSENT = msgspec.Raw()
"""The default of a member that stays raw. (msgspec reads `Raw | None` as if only null were allowed.)"""


class _Typed(msgspec.Struct):
    type: Any = None


_decode_typed = msgspec.json.Decoder(_Typed).decode

T = TypeVar("T")
E = TypeVar("E")

Members = Mapping[str, msgspec.Raw]
"""A JSON object one level deep: member names to the raw JSON of their values."""

NO_MEMBERS: Members = MappingProxyType({})

LONG_BYTES = 256 << 10
"""What is more is worked on in a thread beside the loop. What takes long there is done in several calls, each for so
much or for one entry: no other thread has its turn before a call of the decoder or the encoder is over."""
SLICE_BYTES = 128 << 10
_MANY = 64  # entries

_AT_BYTE = re.compile(r" \(byte (\d+)\)\Z")


def present(raw: msgspec.Raw) -> bytes | None:
    """Return a raw member as bytes; absent and `null` are the same to us."""
    if raw is ABSENT:
        return None
    value = bytes(raw)
    return None if value in (b"", b"null") else value


def type_of(raw: bytes) -> str | None:
    """Return the type that a raw object gives itself (a part, an item, a tool): a word, or None where it gives none."""
    told = _decode_typed(raw).type
    return told if isinstance(told, str) and told else None


def one_line(raw: bytes) -> bytes:
    """Return JSON without line ends, as an event of a stream must have it. They are only ever between its tokens."""
    return raw.replace(b"\r", b" ").replace(b"\n", b" ")


def decode(decoder: msgspec.json.Decoder[T], raw: bytes | msgspec.Raw, prefix: str = "") -> T:
    """Decode what the caller sent; `prefix` says where in the body `raw` was.

    Errors: BadRequest.
    """
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `")
        raise blame(prefix, path.rstrip("`").removeprefix("$"), text) from error
    except RecursionError as error:
        raise blame(prefix, "", "nested too deeply") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _malformed(bytes(raw), str(error), prefix) from None


def decode_sliced(
    members: Members, name: str, whole: msgspec.json.Decoder[T], entries: msgspec.json.Decoder[list[E]]
) -> tuple[T, list[E]] | None:
    """Decode a request without the entries of its member `name`, and these, in several calls where it is long.

    Shapes: None where it is not long, and where anything is wrong: decoded in one call it can be told what.
    """
    raw = members.get(name)
    if raw is None or len(memoryview(raw)) <= LONG_BYTES:
        return None
    found: list[E] = []
    try:
        rest = whole.decode(encode({**members, name: msgspec.Raw(b"[]")}))
        for piece in _slices(bytes(raw)):
            found += entries.decode(piece)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return rest, found


def _slices(array: bytes) -> Iterator[bytes]:
    """An array as arrays of some SLICE_BYTES, or of one longer entry. What is none comes as it is."""
    if array[:1] != b"[":
        yield array
        return
    view, start, before = memoryview(array), 1, 1
    for end in nesting.cuts(array, len(array)):
        if end - start > SLICE_BYTES and before > start:
            yield b"".join((b"[", view[start : before - 1], b"]"))
            start = before
        before = end + 1
    yield b"".join((b"[", view[start : before - 1], b"]"))


_GAP = b"\0"  # stands in no JSON


def around(body: Mapping[str, object], name: str) -> tuple[bytes, bytes]:
    """What `encode` writes before the member `name`, and behind it."""
    before, _, after = encode({**body, name: msgspec.Raw(_GAP)}).partition(_GAP)
    return before, after


def encode_sliced(body: Mapping[str, object], name: str) -> bytes:
    """As `encode`; where the member `name` has many entries, each of them in a call of its own."""
    entries = body.get(name)
    if not isinstance(entries, list) or len(entries) < _MANY:
        return encode(body)
    before, after = around(body, name)
    encoded = [encode(one) for one in entries]
    # Joined once: each copy of a few megabytes costs what a tenth of encoding them does.
    encoded[0] = b"%b[%b" % (before, encoded[0])
    encoded[-1] = b"%b]%b" % (encoded[-1], after)
    return b",".join(encoded)


def check_text(raw: bytes, prefix: str = "") -> None:
    """Look into every string of `raw`, also into those that nobody here decodes.

    Errors: BadRequest naming the place of text that is no Unicode.
    """
    if nesting.not_utf8(raw) >= 0 or nesting.half(raw) >= 0:
        raise _malformed(raw, "", prefix)


def blame(prefix: str, path: str, text: str) -> BadRequest:
    """Return the 400 that blames `path` inside of `prefix` (SPEC 14.2)."""
    place = (prefix + path.removeprefix(".") if prefix.endswith(".") or not prefix else prefix + path).strip(".")
    return BadRequest(f"{place}: {text}" if place else f"the request body: {text}", param=place or None)


def _malformed(raw: bytes, said: str, prefix: str) -> BadRequest:
    """Return the 400 for what is no JSON, or no text. The decoder tells the byte at best; a caller wants the path."""
    at = nesting.not_utf8(raw)
    if at >= 0:
        return blame(prefix, _path(raw, at), "not valid UTF-8")
    at = nesting.half(raw)
    if at >= 0:
        return blame(prefix, _path(raw, at), "holds half of a surrogate pair")
    found = _AT_BYTE.search(said)
    text = _AT_BYTE.sub("", said).removeprefix("JSON is malformed: ")
    return blame(prefix, _path(raw, int(found[1])) if found else "", f"not valid JSON ({text})")


def _path(raw: bytes, at: int) -> str:
    """Return which member or entry of `raw` the byte `at` belongs to."""
    steps = [one if isinstance(one, int) else one.decode(errors="replace") for one in nesting.path(raw, at)]
    return "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in steps if one != "")
