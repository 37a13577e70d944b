"""What a request asks for beside its prompt, in words: how hard to think, and for how long to keep what is cached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from arbiter.ledger.head import in_words

_MAX_BYTES = 4096  # of a member that is looked into
_WORD_CHARS = 32

_EFFORT = ("reasoning_effort", "reasoning", "output_config", "thinking")
_RETENTION = ("cache_control", "prompt_cache_options", "prompt_cache_retention")

_decode = msgspec.json.Decoder().decode


def effort(members: Mapping[str, Raw]) -> str | None:
    """How hard the model is to think, in the request's own words (`high`, `thinking:8000`); None where it says nothing.

    Shapes: several words are joined by a space, so that a change of any of them is a change.
    """
    if members.keys().isdisjoint(_EFFORT):
        return None
    thinking = _object(members, "thinking")
    words = [
        _word(_value(members, "reasoning_effort")),
        _word(_object(members, "reasoning").get("effort")),
        _prefixed("reasoning", _object(members, "reasoning").get("max_tokens")),
        _word(_object(members, "output_config").get("effort")),
        _prefixed("thinking", thinking.get("budget_tokens") or thinking.get("type")),
    ]
    return " ".join([word for word in words if word is not None]) or None


def retention(members: Mapping[str, Raw]) -> list[str]:
    """For how long the whole request is to be kept in a cache, as a mark: `request@24h`."""
    if members.keys().isdisjoint(_RETENTION):
        return []
    found = []
    mark = members.get("cache_control")
    if mark is not None and bytes(mark) != b"null":
        found.append(in_words("request", (), bytes(mark)))
    options = _object(members, "prompt_cache_options")
    for lasts in (_word(_value(members, "prompt_cache_retention")), _word(options.get("ttl"))):
        if lasts is not None:
            found.append(f"request@{lasts}")
    return found


def _value(members: Mapping[str, Raw], name: str) -> Any:
    raw = members.get(name)
    if raw is None or len(memoryview(raw)) > _MAX_BYTES:
        return None
    try:
        return _decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        return None


def _object(members: Mapping[str, Raw], name: str) -> dict[str, Any]:
    value = _value(members, name)
    return value if isinstance(value, dict) else {}


def _word(value: object) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    word = str(value)[:_WORD_CHARS]
    return word if word.isprintable() and word and " " not in word else None


def _prefixed(name: str, value: object) -> str | None:
    word = _word(value)
    return f"{name}:{word}" if word is not None else None
