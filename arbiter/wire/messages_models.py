"""What Anthropic's models can and cannot: one dated table, asked by name.

The same member is right for one generation and a 400 for the next: a thinking budget until 4.6, a temperature until
4.7, a forced tool call until Opus 5.5. A name that the table does not know (another vendor's model behind this format)
has no abilities here, and its requests leave as the client meant them.

Source: Anthropic's pages on models, thinking, effort and structured outputs, and the errors of the API itself, as of
November 2026. A model that is newer than its family's last row is taken to be like that one.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

import msgspec
from msgspec.structs import replace

TO_HIGH = ("low", "medium", "high")
TO_MAX = (*TO_HIGH, "max")
ALL_EFFORTS = (*TO_HIGH, "xhigh", "max")

UNKNOWN_MAX_OUTPUT = 32_000
"""`max_tokens` for a model that nobody knows: servers of this format are built for Claude Code, which asks for that."""


class Abilities(msgspec.Struct, frozen=True, kw_only=True):
    """One generation of models.

    Units: `max_output` in tokens.

    `thinks` says how thinking is asked for: not at all, by `budget`, adaptively if `asked`, adaptively by `default`, or
    `always`; `off` is the `thinking.type` that turns a default off. `hides` says that the text of thoughts is left out
    unless asked for. `samples` says whether temperature, top_p and top_k are taken, `samples_once` that temperature and
    top_p are not taken together. `forces` says whether a tool call can be forced, `forces_thinking` whether while
    thinking too. `begins` says that the answer may be begun for it. `shapes` says that output and arguments can be held
    to a schema.
    """

    max_output: int
    thinks: Literal["never", "budget", "asked", "default", "always"] = "never"
    off: str | None = None
    hides: bool = False
    efforts: tuple[str, ...] = ()
    samples: bool = True
    samples_once: bool = False
    forces: bool = True
    forces_thinking: bool = False
    begins: bool = True
    shapes: bool = False


_3 = Abilities(max_output=4096)
_3_5 = Abilities(max_output=8192)
_3_7 = Abilities(max_output=64_000, thinks="budget")
_OPUS_4 = Abilities(max_output=32_000, thinks="budget")
_OPUS_4_1 = replace(_OPUS_4, samples_once=True)
_4_5 = replace(_3_7, samples_once=True, shapes=True)
_OPUS_4_5 = replace(_4_5, efforts=TO_HIGH)
_4_6 = replace(_4_5, max_output=128_000, thinks="asked", efforts=TO_MAX, begins=False)
_4_7 = replace(_4_6, hides=True, efforts=ALL_EFFORTS, samples=False)
_4_8 = replace(_4_7, forces_thinking=True)
_5 = replace(_4_8, thinks="default", off="disabled")
_SONNET_5_5 = replace(_5, off="between_tools")
_FABLE_5 = replace(_5, thinks="always", off=None)
_OPUS_5_5 = replace(_FABLE_5, forces=False)
_MYTHOS_PREVIEW = replace(_FABLE_5, efforts=TO_MAX, forces_thinking=False)

_FAMILIES: dict[str, tuple[tuple[tuple[int, int], Abilities], ...]] = {  # the newest first
    "opus": (
        ((5, 5), _OPUS_5_5),
        ((5, 0), _5),
        ((4, 8), _4_8),
        ((4, 7), _4_7),
        ((4, 6), _4_6),
        ((4, 5), _OPUS_4_5),
        ((4, 1), _OPUS_4_1),
        ((4, 0), _OPUS_4),
        ((3, 0), _3),
    ),
    "sonnet": (
        ((5, 5), _SONNET_5_5),
        ((5, 0), _5),
        ((4, 6), _4_6),
        ((4, 5), _4_5),
        ((3, 7), _3_7),
        ((3, 5), _3_5),
        ((3, 0), _3),
    ),
    "haiku": (((5, 0), _5), ((4, 5), _4_5), ((3, 5), _3_5), ((3, 0), _3)),
    "fable": (((5, 1), _OPUS_5_5), ((5, 0), _FABLE_5)),
    "mythos": (((5, 1), _OPUS_5_5), ((5, 0), _FABLE_5), ((0, 0), _MYTHOS_PREVIEW)),
}

# Vendors put their own words around a name: `anthropic/`, `us.anthropic.`, `@20251101`, `-v1:0`. A date is no version.
_KIND_FIRST = re.compile(r"claude-(opus|sonnet|haiku|fable|mythos)-(?:(\d{1,2})(?!\d)(?:[.-](\d{1,2})(?!\d))?|preview)")
_VERSION_FIRST = re.compile(r"claude-(\d{1,2})(?!\d)(?:[.-](\d{1,2})(?!\d))?-(opus|sonnet|haiku)")
_ANCIENT = re.compile(r"claude-(?:instant|[12](?![\d]))")


@lru_cache(maxsize=1024)
def abilities_of(model: str) -> Abilities | None:
    """Return what `model` can, None for a name that says nothing."""
    name = model.lower()
    if found := _KIND_FIRST.search(name):
        kind, major, minor = found.groups()
    elif found := _VERSION_FIRST.search(name):
        major, minor, kind = found.groups()
    else:
        return _3 if _ANCIENT.search(name) else None
    version = (int(major or 0), int(minor or 0))
    return next((row for since, row in _FAMILIES[kind] if version >= since), None)
