"""What a request asks for beside its prompt: how hard to think, for how long to keep what is cached, and in what way
to answer."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from arbiter.ledger.head import in_words

_MAX_BYTES = 4096  # of a member that is looked into
_WORD_CHARS = 32

_GOOGLES = ("generationConfig", "generation_config")
_EFFORT = ("reasoning_effort", "reasoning", "output_config", "thinking", *_GOOGLES)
_RETENTION = ("cache_control", "prompt_cache_options", "prompt_cache_retention")

_SETTINGS = frozenset(
    ("tool_choice", "parallel_tool_calls", "functions", "function_call", "response_format", "output_config", "text",
     "verbosity", "context_management", "chat_template_kwargs")
)  # fmt: skip
"""Members that providers turn into a part of the prompt, or that decide how much of the history is one."""
_SETTINGS_BYTES = 256 << 10  # of all of them: an answer's schema may be long

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder(order="sorted").encode


_ANYTHING = _SETTINGS.union(_EFFORT, _RETENTION)


def says_nothing(members: Mapping[str, Raw]) -> bool:
    """Whether there is nothing of all that in a request, as in most."""
    return _ANYTHING.isdisjoint(members)


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
        *_googles_effort(members),
    ]
    return " ".join([word for word in words if word is not None]) or None


def _googles_effort(members: Mapping[str, Raw]) -> list[str | None]:
    """The same in Gemini's words: a level in lower case, a budget."""
    config = next((found for name in _GOOGLES if (found := _object(members, name))), {})
    thinking = config.get("thinkingConfig", config.get("thinking_config"))
    if not isinstance(thinking, dict):
        return []
    level = _word(thinking.get("thinkingLevel", thinking.get("thinking_level")))
    budget = thinking.get("thinkingBudget", thinking.get("thinking_budget"))
    return [level.lower() if level is not None else None, _prefixed("thinking", budget)]


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


def settings(members: Mapping[str, Raw]) -> str | None:
    """12 hexadecimal digits of the members that reach the prompt and are neither instructions nor tools nor history.

    Shapes: the order of keys and the spelling do not count, and effort is told elsewhere. None where there is none of
    them, or more than can be looked through.
    """
    named = _SETTINGS.intersection(members)
    if not named or sum(len(memoryview(members[name])) for name in named) > _SETTINGS_BYTES:
        return None
    try:
        found = {name: _decode(members[name]) for name in named}
        if isinstance(found.get("output_config"), dict):
            found["output_config"].pop("effort", None)
        told = _encode({name: value for name, value in found.items() if value not in (None, {}, [])})
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None
    return hashlib.sha256(told).hexdigest()[:12] if told != b"{}" else None


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
