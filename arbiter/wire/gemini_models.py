"""What Google's models take of thinking, by their names.

The first line that fits holds. Levels and budgets are those of Google's page on thinking; which level of OpenAI's is
which budget is as Google's own endpoint for OpenAI's clients has it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

from arbiter.model import Reasoning


class Abilities(NamedTuple):
    """`levels` are its words for how much it thinks, `budgets` the least and the most tokens of it; neither: it does
    not think, or nobody knows. `can_rest`: it can be kept from thinking. `wants_signatures`: it refuses calls
    without."""

    levels: tuple[str, ...] = ()
    budgets: tuple[int, int] | None = None
    can_rest: bool = False
    wants_signatures: bool = True


_LEVELS = ("minimal", "low", "medium", "high")
_KNOWN: tuple[tuple[str, Abilities], ...] = (
    (r"gemini-(?:1|2\.0|exp)|gemma|learnlm", Abilities(wants_signatures=False)),
    (r"gemini-2\.5-pro", Abilities(budgets=(128, 32_768), wants_signatures=False)),
    (r"gemini-2\.5-flash-lite", Abilities(budgets=(512, 24_576), can_rest=True, wants_signatures=False)),
    (r"gemini-2\.5-flash-(?:image|preview-tts)", Abilities(wants_signatures=False)),
    (r"gemini-2\.5", Abilities(budgets=(1, 24_576), can_rest=True, wants_signatures=False)),
    (r"gemini-3(?:\.0)?-pro(?!-image)", Abilities(levels=("low", "high"))),
    (r"gemini-3(?:\.\d+)?-pro", Abilities(levels=("low", "medium", "high"))),
    (r"gemini-(?:[3-9]|flash|pro)", Abilities(levels=_LEVELS)),
)
_UNKNOWN = Abilities(wants_signatures=False)
_BUDGETS = {"minimal": 1024, "low": 1024, "medium": 8192, "high": 24_576, "xhigh": 32_768, "max": 32_768}


@lru_cache(256)
def abilities_of(model: str) -> Abilities:
    name = model.rpartition("/")[2].lower()
    return next((can for pattern, can in _KNOWN if re.match(pattern, name)), _UNKNOWN)


def level_of(budget: int) -> str | None:
    """Return a thinking budget as a level, for models that have levels; None where the model shall decide (-1)."""
    if budget < 0:
        return None
    if budget == 0:
        return "none"
    return "low" if budget <= 2048 else "medium" if budget <= 12_288 else "high"


def thinking(asked: Reasoning | None, model: str) -> dict[str, Any] | None:
    """Return `thinkingConfig`, None for the model's own default.

    Shapes: a level that the model lacks becomes the next lower one it has, or its lowest. Thoughts are asked for as
    soon as the client said anything of thinking but to leave it: else it would see silence.
    """
    if asked is None:
        return None
    can = abilities_of(model)
    rests = asked.mode == "disabled" or asked.effort == "none"
    if can.budgets is not None:
        built = _budget(asked, can, can.budgets, rests=rests)
    elif can.levels:
        built = _level(asked, can, rests=rests)
    else:
        return None
    if not rests:
        built["includeThoughts"] = True
    return built or None


def _budget(asked: Reasoning, can: Abilities, bounds: tuple[int, int], *, rests: bool) -> dict[str, Any]:
    least, most = bounds
    if rests:
        return {"thinkingBudget": 0 if can.can_rest else least}
    wanted = asked.budget if asked.budget is not None and asked.budget > 0 else _BUDGETS.get(asked.effort or "")
    return {"thinkingBudget": min(max(wanted, least), most)} if wanted is not None else {}


def _level(asked: Reasoning, can: Abilities, *, rests: bool) -> dict[str, Any]:
    if rests:
        return {"thinkingLevel": can.levels[0].upper()}
    level = asked.effort
    if level is None and asked.budget is not None:
        level = level_of(asked.budget)
    if level in ("xhigh", "max"):
        level = "high"
    if level not in _LEVELS:
        return {}  # a word of the future, or nothing said
    lower = [one for one in can.levels if _LEVELS.index(one) <= _LEVELS.index(level)]
    return {"thinkingLevel": (lower[-1] if lower else can.levels[0]).upper()}
