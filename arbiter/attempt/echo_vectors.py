"""The echo provider's embeddings: one text always comes to the same unit vector, and two texts to different ones."""

from __future__ import annotations

import base64
import hashlib
import math
import struct
from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec import Raw

from arbiter.errors import BadRequest

WIDTH, MOST = 8, 4096
BYTES_PER_TOKEN = 4


class _Asked(msgspec.Struct):
    model: str
    input: str | list[object]
    dimensions: int = WIDTH
    encoding_format: Literal["float", "base64"] | None = None


def answer(members: Mapping[str, Raw]) -> bytes:
    """The answer's JSON. Errors: BadRequest for what OpenAI would refuse."""
    try:
        asked = msgspec.convert({name: msgspec.json.decode(raw) for name, raw in members.items()}, _Asked)
    except msgspec.MsgspecError as error:
        raise BadRequest(str(error), param="input") from error
    if not 1 <= asked.dimensions <= MOST:
        raise BadRequest(f"`dimensions` must be from 1 to {MOST:,}", param="dimensions")
    inputs = _inputs(asked.input)
    tokens = sum(map(_tokens, inputs))
    data = []
    for index, one in enumerate(inputs):
        vector = _vector(msgspec.json.encode(one), asked.dimensions)
        packed = base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
        told = packed if asked.encoding_format == "base64" else vector
        data.append({"object": "embedding", "index": index, "embedding": told})
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return msgspec.json.encode({"object": "list", "data": data, "model": asked.model, "usage": usage})


def _inputs(written: str | list[object]) -> list[object]:
    """The texts, or token arrays, of which each gets a vector."""
    if isinstance(written, str) or (written and all(isinstance(one, int) for one in written)):
        return [written]
    if not written or not all(isinstance(one, str | list) for one in written):
        raise BadRequest("`input` must be a text, a list of texts, or tokens", param="input")
    return written


def _tokens(one: object) -> int:
    return len(one) if isinstance(one, list) else -(-len(str(one).encode()) // BYTES_PER_TOKEN)


def _vector(text: bytes, width: int) -> list[float]:
    drawn = hashlib.shake_128(text).digest(2 * width)
    numbers = [number / 2**15 for number in struct.unpack(f"<{width}h", drawn)]
    length = math.hypot(*numbers) or 1.0
    return [number / length for number in numbers]
