"""The cache points of a Converse body, told as the marks that Anthropic's format has in their place.

Whoever keeps the books reads marks on blocks (`ledger.prefix`), and these are blocks of their own, each behind what it
marks. Nothing else of the body is kept: a block is a block.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

_POINT = b'{"cachePoint":'


class _Turn(msgspec.Struct):
    content: list[Raw]


class _Tools(msgspec.Struct):
    tools: list[Raw]


class _Body(msgspec.Struct):
    messages: list[_Turn]
    system: list[Raw] = []
    tools: _Tools | None = msgspec.field(name="toolConfig", default=None)


class _Point(msgspec.Struct):
    ttl: str | None = None


class _Marked(msgspec.Struct):
    point: _Point = msgspec.field(name="cachePoint")


_decode = msgspec.json.Decoder(_Body).decode
_decode_point = msgspec.json.Decoder(_Marked).decode


def as_marks(body: bytes) -> bytes:
    """Return the blocks and marks of a body that `converse_build` made, as a body of Anthropic's."""
    if _POINT not in body:
        return b'{"messages":[]}'
    found = _decode(body)
    told: dict[str, Any] = {
        "tools": _blocks(found.tools.tools if found.tools is not None else []),
        "system": _blocks(found.system),
        "messages": [{"role": "user", "content": _blocks(turn.content)} for turn in found.messages],
    }
    return msgspec.json.encode(told)


def _blocks(blocks: list[Raw]) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = []
    for block in blocks:
        if bytes(memoryview(block)[: len(_POINT)]) != _POINT:
            told.append({"type": "text"})
        elif told:
            ttl = _decode_point(block).point.ttl
            told[-1]["cache_control"] = {"type": "ephemeral"} if ttl is None else {"type": "ephemeral", "ttl": ttl}
    return told
