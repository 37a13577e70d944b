"""How much a model shall think, and what has to give way to it, in the words of the model that is asked.

A client of another format names a level (`reasoning_effort`). What it becomes:

    model               none                        a level
    up to 3.5           nothing                     nothing
    3.7 to 4.5          nothing                     a thinking budget (Opus 4.5: the effort too)
    4.6 to 4.8          nothing                     adaptive thinking and the effort
    from 5              thinking switched off       adaptive thinking and the effort
    which always think  the lowest effort           adaptive thinking and the effort
    unknown             thinking switched off       the effort

A level that the model does not have becomes the next lower one.

What gives way, because both together are refused:
- Thinking with a budget, to tools. Such a model wants the thoughts behind each call back with a signature, which
  not every client of another format hands along: from the second request of every tool loop on, it would be refused. To
  think in the first one only would change what is cached of the whole conversation, twice in each turn. So a request
  that offers tools, or has calls in it, does not think on these models: neither in its first turn nor later.
- Thinking, to a forced call and to a beginning of the answer.
- A thinking budget, to the client's limit of output, which counts thoughts too: at most half of it, and none where that
  is less than the 1,024 tokens that a budget must have.
- Temperature, top_k and a low top_p, to thinking; top_p to the temperature where a model takes one of them; all of
  them where a model takes none. A temperature above 1 is 1.
- A forced call, to the models that never allow it: they may still call.

A client of this format said what it wants in this format's words: they leave unchanged.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from arbiter.model import Request, ToolCall, ToolChoice
from arbiter.wire.messages_models import Abilities

MIN_BUDGET = 1024
LOWEST_TOP_P = 0.95  # while thinking
_BUDGETS = {"minimal": 1024, "low": 4096, "medium": 12_288, "high": 24_576, "xhigh": 32_768, "max": 49_152}
_LADDER = ("minimal", "low", "medium", "high", "xhigh", "max")


class Settled(msgspec.Struct, frozen=True):
    """The members that depend on each other. None: left out."""

    thinking: dict[str, Any] | None
    effort: str | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    choice: ToolChoice | None


def settle(request: Request, can: Abilities | None, max_tokens: int) -> Settled:
    """Return what of the request goes together on a model that can as much as `can` says (None: nobody knows)."""
    choice = request.tool_choice
    forced = choice is not None and choice.mode in ("required", "tool")
    if choice is not None and forced and can is not None and not can.forces:
        choice, forced = replace(choice, mode="auto", name=None), False
    asked = request.reasoning
    said = Settled(None, asked.effort if asked else None, request.temperature, request.top_p, request.top_k, choice)
    if asked is not None and asked.mode is not None:
        thinking: dict[str, Any] = {"type": asked.mode}
        if asked.budget is not None:
            thinking["budget_tokens"] = asked.budget
        return replace(said, thinking=thinking)
    if can is None:
        return _unknown(said)
    thinking_on, effort = _think(request, can, max_tokens, said.effort, forced=forced)
    return _sampled(replace(said, thinking=thinking_on, effort=effort), can)


def _unknown(said: Settled) -> Settled:
    if said.effort == "none":
        return replace(said, thinking={"type": "disabled"}, effort=None)
    return replace(said, effort="low") if said.effort == "minimal" else said


def _think(
    request: Request, can: Abilities, max_tokens: int, level: str | None, *, forced: bool
) -> tuple[dict[str, Any] | None, str | None]:
    """Return `thinking` and the effort."""
    if level is None:
        return None, None
    if level == "none":
        if can.thinks == "always":
            return None, can.efforts[0]
        return ({"type": can.off} if can.off is not None else None), None
    effort = _next_lower(level, can.efforts)
    if can.thinks == "never" or (forced and not can.forces_thinking) or (can.begins and _has_begun(request)):
        return None, effort
    if can.thinks == "budget":
        budget = min(_BUDGETS.get(level, _BUDGETS["medium"]), max_tokens // 2)
        if budget < MIN_BUDGET or _has_tools(request):
            return None, effort
        return {"type": "enabled", "budget_tokens": budget}, effort
    # Newer models keep the text of their thoughts to themselves unless asked, and a client would see silence.
    return {"type": "adaptive", "display": "summarized"} if can.hides else {"type": "adaptive"}, effort


def _next_lower(level: str, efforts: tuple[str, ...]) -> str | None:
    if not efforts or level in efforts:
        return level if efforts else None
    if level not in _LADDER:
        return None  # a word of the future: the model's own default
    lower = [one for one in _LADDER[: _LADDER.index(level)] if one in efforts]
    return lower[-1] if lower else efforts[0]


def _has_begun(request: Request) -> bool:
    """Whether the request ends with a beginning of the answer."""
    return bool(request.messages) and request.messages[-1].role == "assistant"


def _has_tools(request: Request) -> bool:
    return bool(request.tools) or any(
        isinstance(part, ToolCall)
        for message in request.messages
        if not isinstance(message.content, str)
        for part in message.content
    )


def _sampled(settled: Settled, can: Abilities) -> Settled:
    if not can.samples:
        return replace(settled, temperature=None, top_p=None, top_k=None)
    temperature, top_p = settled.temperature, settled.top_p
    if settled.thinking is not None:
        kept = top_p if top_p is not None and top_p >= LOWEST_TOP_P else None
        return replace(settled, temperature=None, top_p=kept, top_k=None)
    if temperature is not None and can.samples_once:
        top_p = None
    return replace(settled, temperature=min(temperature, 1.0) if temperature is not None else None, top_p=top_p)
