"""What models take through Bedrock's Converse, told by their names: the one place for such rules.

Converse has one body for all, and passes on what it has no member for (`additionalModelRequestFields`) in the words of
the model's maker. A name that no rule knows (an ARN of one's own) gets what every model takes.

Source: Amazon Bedrock user guide ("Supported models and model features", "Prompt caching", the makers' parameters),
2026-11.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import msgspec

EFFORT_BETA = "effort-2025-11-24"


class Ways(msgspec.Struct, frozen=True, kw_only=True):
    """What one family takes.

    `marks` says whether cache points are taken, `marks_tools` whether behind the tools too, `hour` whether one may last
    an hour. `fails` says whether a result may say that it is a failure. `more` makes the maker's own members of a
    thinking switch, an effort and a top_k, each None where there is none.
    """

    marks: bool = False
    marks_tools: bool = False
    hour: bool = False
    fails: bool = False
    strict: bool = False
    more: Any = None


def _claude(thinking: Any, effort: str | None, top_k: int | None) -> dict[str, Any]:
    return _said(thinking=thinking, output_config={"effort": effort} if effort else None, top_k=top_k)


def _opus_4_5(thinking: Any, effort: str | None, top_k: int | None) -> dict[str, Any]:
    return {**_claude(thinking, effort, top_k), **({"anthropic_beta": [EFFORT_BETA]} if effort else {})}


def _nova(thinking: Any, effort: str | None, top_k: int | None) -> dict[str, Any]:
    return _said(inferenceConfig={"topK": top_k} if top_k is not None else None)


def _nova_2(thinking: Any, effort: str | None, top_k: int | None) -> dict[str, Any]:
    level = {"minimal": "low", "low": "low", "medium": "medium"}.get(effort or "", "high") if effort else None
    config = {"type": "enabled", "maxReasoningEffort": level} if level else None
    return {**_said(reasoningConfig=config), **_nova(thinking, effort, top_k)}


def _effort(thinking: Any, effort: str | None, top_k: int | None) -> dict[str, Any]:
    level = {"minimal": "low", "low": "low", "medium": "medium"}.get(effort or "", "high") if effort else None
    return _said(reasoning_effort=level)


def _said(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


_CLAUDE = Ways(marks=True, marks_tools=True, hour=True, fails=True, strict=True, more=_claude)
# The first that is found in the name holds.
_RULES: tuple[tuple[str, Ways], ...] = (
    (r"claude-opus-4-5", msgspec.structs.replace(_CLAUDE, more=_opus_4_5)),
    (r"claude", _CLAUDE),
    (r"amazon\.nova-2", Ways(marks=True, fails=True, more=_nova_2)),
    (r"amazon\.nova", Ways(marks=True, fails=True, more=_nova)),
    (r"gpt-oss", Ways(more=_effort)),
)
_FAMILIES = tuple((re.compile(pattern), ways) for pattern, ways in _RULES)
_UNKNOWN = Ways()


def is_known(model: str) -> bool:
    """Return whether the name says which model it is."""
    return ways_of(model) is not _UNKNOWN


@functools.lru_cache(maxsize=1024)
def ways_of(model: str) -> Ways:
    """Return what `model` takes, by the name that Bedrock is asked for."""
    name = model.lower()
    return next((ways for pattern, ways in _FAMILIES if pattern.search(name)), _UNKNOWN)
