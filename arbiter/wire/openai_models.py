"""What a server of OpenAI's format takes, told by the model's name: the one place for such rules.

Many servers speak "OpenAI Chat", and each refuses another part of it. The only thing that a builder surely knows of
the server is the model's name, so the rules go by that: by its last part, so that `openai/gpt-5` is `gpt-5`. A name
that no rule knows gets what nearly every server takes. docs/formats.md has the rules in words.

Source: the vendors' references and the words of their 400s, as of 2026-11. A wrong or missing rule shows as a 400 of
the upstream that names the member.
"""

from __future__ import annotations

import functools
import re
from typing import Literal

import msgspec

from arbiter.model import Reasoning

LEVELS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""Every word for an effort that a vendor has, from none to most."""

BUDGETS = ((4096, "low"), (16384, "medium"))
"""Up to how many tokens of thinking a budget means which effort; above the last it is `high`."""


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """What the servers of one family of models take. The defaults are those for a name that nobody knows.

    `efforts` are the words it takes as `reasoning_effort`, none where it refuses the member; `idle` is the one that
    comes closest to not thinking; with `tools_idle` it takes tools only beside that one. `toggle` says that `thinking`
    with a type switches it off. `reasoning` is the member for earlier reasoning, None where it refuses that;
    `wants_reasoning` that a turn with calls must have it; `spells` whose word for it a message has: that of whoever
    thought, or this one, alone or besides (`openai_servers`). `encrypts`: OpenAI's Responses gives its reasoning
    encrypted where it is asked to. `signs`: in chats its server may send members that it wants back
    (`wire.chat_proofs`); `unsigned` is the member of a call, as JSON, that it takes for one which was made elsewhere.
    `cap` is what it writes at most, in tokens.
    """

    known: bool = True
    limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    cap: int | None = None
    efforts: tuple[str, ...] = ()
    idle: str | None = None
    tools_idle: bool = False
    toggle: bool = False
    reasoning: str | None = "reasoning_content"
    wants_reasoning: bool = False
    spells: Literal["the maker's", "its own", "its own besides"] = "the maker's"
    encrypts: bool = False
    signs: bool = True
    unsigned: str | None = None
    sampling: bool = True  # `temperature` and `top_p`
    parallel: bool = True  # `parallel_tool_calls`
    top_k: bool = True
    free_text: bool = False  # tools that take free text
    verbosity: bool = False
    user: bool = True
    stops: int | None = None
    call_ids: Literal["any", "40", "9"] = "40"  # how long an id of a call may be; 9 means exactly 9, letters and digits
    system_anywhere: bool = True
    user_after_tool: bool = True


def _openai(*efforts: str, **members: object) -> Dialect:
    """Return a model of OpenAI's own that reasons; it refuses what it does not know, and sampling while it thinks."""
    idle = efforts[0] if efforts else None
    common = {"limit": "max_completion_tokens", "reasoning": None, "sampling": False, "top_k": False, "stops": 4}
    thinks = {"efforts": efforts, "idle": idle, "encrypts": bool(efforts), "signs": False}
    return msgspec.convert(common | thinks | members, Dialect)


def _gpt_5(*efforts: str, **members: object) -> Dialect:
    return _openai(*efforts, free_text=True, verbosity=True, **members)


def _plain_openai(cap: int | None) -> Dialect:
    return Dialect(cap=cap, reasoning=None, signs=False, top_k=False, stops=4)


_MISTRAL = "mistral|mixtral|ministral|magistral|codestral|devstral|pixtral|voxtral"
# The first that fits the beginning of the name holds.
_RULES: tuple[tuple[str, Dialect], ...] = (
    (r"gpt-oss", Dialect(efforts=("low", "medium", "high"), idle="low", reasoning="reasoning")),
    (r"gpt-3\.?5|gpt-4-turbo", _plain_openai(4096)),
    (r"gpt-4o|chatgpt-4o", _plain_openai(16384)),
    (r"gpt-4\.1", _plain_openai(32768)),
    (r"gpt-4|chatgpt", _plain_openai(None)),
    (r"gpt-\d+(\.\d+)?-chat", _openai(sampling=True)),
    (r"o\d|codex-", _openai("low", "medium", "high", parallel=False)),
    (r"gpt-5(?![.\d])", _gpt_5("minimal", "low", "medium", "high")),
    (r"gpt-5\.1(?!\d)", _gpt_5("none", "low", "medium", "high")),
    (r"gpt-5\.[2-5](?!\d)", _gpt_5("none", "low", "medium", "high", "xhigh", tools_idle=True)),
    (r"gpt-([5-9]|\d\d)", _gpt_5("none", "low", "medium", "high", "xhigh", "max", tools_idle=True)),
    (
        rf"(open-|labs-)?({_MISTRAL})",
        Dialect(reasoning=None, signs=False, top_k=False, user=False, call_ids="9", user_after_tool=False),
    ),
    (r"deepseek-r1", Dialect(reasoning=None, signs=False)),
    (r"deepseek-v[4-9]", Dialect(efforts=("low", "medium", "high", "max"), toggle=True, wants_reasoning=True)),
    (r"deepseek-(chat|reasoner|v3\.)", Dialect(toggle=True, wants_reasoning=True)),
    (r"kimi-(?!.*instruct)", Dialect(toggle=True, wants_reasoning=True)),
    (r"glm-", Dialect(toggle=True)),
    (r"qwen|qwq|gemma", Dialect(system_anywhere=False)),
    (r"grok-(4\.[3-9](?!\d)|3-mini|[5-9])", Dialect(efforts=("low", "medium", "high"), encrypts=True)),
    (r"gemini", Dialect(efforts=("low", "medium", "high"), call_ids="any")),  # proxies keep its signatures in the ids
    (r"grok|llama|codellama|phi|granite|command|starcoder|smollm|kimi|moonshot|deepseek|.*(instruct|coder)", Dialect()),
)
_FAMILIES = tuple((re.compile(pattern), dialect) for pattern, dialect in _RULES)
_UNKNOWN = Dialect(known=False, efforts=("low", "medium", "high"))


@functools.lru_cache(maxsize=1024)
def dialect(model: str) -> Dialect:
    """Return what the servers of `model` take."""
    maker, slash, name = model.lower().rpartition("/")
    for pattern, found in _FAMILIES:
        if pattern.match(name):
            if not (slash and maker):
                return found
            # A name with its maker is asked of somebody else, who has neither the maker's limits on tools nor all kinds
            # of them, and hands what the maker encrypts along.
            signs = found.signs or found.encrypts
            return msgspec.structs.replace(found, tools_idle=False, free_text=False, signs=signs)
    return _UNKNOWN


def effort(asked: Reasoning | None, dialect: Dialect, *, tools: bool) -> str | None:
    """Return the word for `reasoning_effort`; None leaves the member out, and so the choice to the model."""
    if not dialect.efforts:
        return None
    if tools and dialect.tools_idle:
        return dialect.idle  # some reason unless told otherwise, and then refuse the tools: so it is always said
    if asked is None:
        return None
    if asked.mode == "disabled":
        return dialect.idle
    level = asked.effort
    if level is None and asked.budget is not None:
        level = next((word for most, word in BUDGETS if asked.budget <= most), "high")
    if level is None or (asked.mode is None and not dialect.known):
        return level  # a bare effort for a name that nobody knows: the caller will know
    return _nearest(level, dialect.efforts)


def _nearest(level: str, offered: tuple[str, ...]) -> str:
    """Return `level` where it is offered, else the next lower one that is, else the lowest."""
    if level in offered or level not in LEVELS:
        return level
    return next((word for word in reversed(offered) if LEVELS.index(word) < LEVELS.index(level)), offered[0])
