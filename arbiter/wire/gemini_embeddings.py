"""Google's embeddings, `:embedContent` and `:batchEmbedContents`: relayed to Google, and asked elsewhere as OpenAI's.

One content becomes one vector, whatever parts it has; elsewhere its texts go as one, a line each. Which task a vector
is for, and the title of its document, nobody but Google is told: other models have one space for all tasks.

Source: ai.google.dev/api/embeddings; googleapis/python-genai, `models.embed_content`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from arbiter.errors import Garbled, ProtocolUnsupported
from arbiter.wire import faults
from arbiter.wire.gemini_errors import write_error, write_error_event
from arbiter.wire.gemini_names import EMBED_PATH, Shape, camel
from arbiter.wire.json import blame, check_text, decode, encode

__all__ = ["keepalive", "name", "parse_error", "path", "write_error", "write_error_event"]

name = "google-embeddings"
path = EMBED_PATH
keepalive = b""  # an answer in one piece has none
parse_error = faults.read

_ONE: Shape = {"content": {"parts": {}}, "embedContentConfig": {}}
_BODY: Shape = {**_ONE, "requests": _ONE}


class _Part(msgspec.Struct):
    text: str | None = None


class _Content(msgspec.Struct):
    parts: list[_Part] = []


class _Config(msgspec.Struct, rename="camel"):
    output_dimensionality: int | None = None


class _One(msgspec.Struct, rename="camel"):
    content: _Content | None = None
    output_dimensionality: int | None = None
    embed_content_config: _Config | None = None


class _Batch(msgspec.Struct):
    requests: list[_One] = []


_decode_one, _decode_batch = msgspec.json.Decoder(_One), msgspec.json.Decoder(_Batch)
_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_objects = msgspec.json.Decoder(list[dict[str, Raw]]).decode


def texts_of(members: Mapping[str, Raw]) -> dict[str, Raw]:
    """Return what is to be counted, under the name that OpenAI's embeddings have for it."""
    raw = members.get("content") or members.get("requests")
    return {} if raw is None else {"input": raw}


def to_openai(members: Mapping[str, Raw], model: str, *, is_batch: bool) -> bytes:
    """Return the body that asks OpenAI's endpoint for the same vectors of `model`.

    Errors: BadRequest naming the path of the fault; ProtocolUnsupported for what is no text, and for vectors of several
    widths at once.
    """
    body = encode(members)
    check_text(body)
    body = camel(body, _BODY)
    asked = decode(_decode_batch, body).requests if is_batch else [decode(_decode_one, body)]
    if not asked:
        raise blame("requests", "", "there must be at least one")
    places = [f"requests[{i}]." if is_batch else "" for i in range(len(asked))]
    texts = [_text(one, place) for one, place in zip(asked, places, strict=True)]
    widths = {_width(one) for one in asked}
    if len(widths) > 1:
        raise ProtocolUnsupported(
            "requests: to a provider of OpenAI's format all have one `outputDimensionality`", param="requests"
        )
    told: dict[str, object] = {"model": model, "input": texts if is_batch else texts[0]}
    width = widths.pop()
    return encode(told if width is None else {**told, "dimensions": width})


def _width(one: _One) -> int | None:
    inner = one.embed_content_config
    return one.output_dimensionality or (inner.output_dimensionality if inner is not None else None)


def _text(one: _One, place: str) -> str:
    parts = one.content.parts if one.content is not None else []
    if not parts:
        raise blame(f"{place}content", "", "there must be at least one part")
    for i, part in enumerate(parts):
        if part.text is None:
            where = f"{place}content.parts[{i}]"
            raise ProtocolUnsupported(f"{where}: a provider of OpenAI's format embeds text only", param=where)
    return "\n".join(part.text for part in parts if part.text is not None)


class _Vector(msgspec.Struct):
    embedding: Raw
    index: int | None = None


class _Counted(msgspec.Struct):
    prompt_tokens: int | None = None


class _Answer(msgspec.Struct):
    data: list[_Vector]
    usage: _Counted | None = None


_decode_answer = msgspec.json.Decoder(_Answer).decode


def from_openai(body: bytes, count: int, *, is_batch: bool) -> bytes:
    """Return OpenAI's answer with `count` vectors as Google's; each number keeps its spelling.

    Errors: Garbled where it is none.
    """
    try:
        answer = _decode_answer(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise Garbled("the upstream's answer holds no embeddings") from None
    vectors = _in_order(answer.data)
    if len(vectors) != count:
        raise Garbled(f"the upstream answered {len(vectors)} embeddings to {count} texts")
    if any(bytes(memoryview(one.embedding)[:1]) != b"[" for one in vectors):
        raise Garbled("the upstream's embeddings are no lists of numbers")
    told = [{"values": one.embedding} for one in vectors]
    found: dict[str, object] = {"embeddings": told} if is_batch else {"embedding": told[0]}
    tokens = answer.usage.prompt_tokens if answer.usage is not None else None
    if tokens is not None:
        found["usageMetadata"] = {"promptTokenCount": tokens, "totalTokenCount": tokens}
    return encode(found)


def _in_order(data: Sequence[_Vector]) -> list[_Vector]:
    placed: dict[int, _Vector] = {one.index: one for one in data if one.index is not None}
    if sorted(placed) == list(range(len(data))):
        return [placed[i] for i in range(len(data))]
    return list(data)


def counts_of(members: Mapping[str, Raw]) -> int:
    """Return how many vectors a body asks for."""
    raw = members.get("requests")
    return 1 if raw is None else len(msgspec.json.decode(raw, type=list[Raw]))


class _Told(msgspec.Struct, rename="camel"):
    """The numbers stay undecoded."""

    embedding: Raw = Raw()
    embeddings: Raw = Raw()
    usage_metadata: Any = None


def vectors_in(body: bytes) -> tuple[list[bytes], Any]:
    """Return the vectors of an answer of Google's, each as JSON, and what it says of usage. Errors: msgspec's."""
    told = msgspec.json.decode(body, type=_Told)
    several = _decode_objects(bytes(told.embeddings) or b"[]")
    found = [_decode_object(told.embedding)] if bytes(told.embedding) else several
    return [bytes(one.get("values", b"[]")) for one in found], told.usage_metadata
