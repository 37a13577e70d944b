"""Names that no provider declares: families that a vendor's models go by, and suffixes that ask for a context window.

claude-opus-4-9      nobody declares it, and a provider of Anthropic's with `auto_models` takes it (SPEC 6.5)
claude-sonnet-4-5[1m]   the model claude-sonnet-4-5, with a window of a million tokens (FEATURES P43)
"""

from __future__ import annotations

import re

from arbiter.config.snapshot import Provider

FAMILIES: dict[str, str] = {
    "anthropic": r"claude-",
    "openai": r"(?:chatgpt|codex|gpt)-|o[0-9]",
}
"""By the type of a provider: what the names of its vendor's models begin with."""

SHOWN: dict[str, str] = {"anthropic": "claude-*", "openai": "gpt-*, chatgpt-*, codex-*, o1…o9"}
"""The same for people."""

BETAS: dict[str, str] = {"[1m]": "context-1m-2025-08-07"}
"""What Anthropic wants in `anthropic-beta` for a window: its API knows no such suffix, and Claude Code sends none."""

_FAMILIES = {kind: re.compile(pattern) for kind, pattern in FAMILIES.items()}
_WINDOW = re.compile(r"(.+?)(\[[0-9]{1,4}[km]\])", re.IGNORECASE)


def takes(provider: Provider, model: str) -> bool:
    """Whether `provider` is to be asked for a name of its vendor's that nobody declared."""
    family = _FAMILIES.get(provider.type)
    return provider.auto_models and family is not None and family.match(model) is not None


def windowed(model: str) -> tuple[str, str]:
    """A name, and the window behind it as it stands there; "" where there is none."""
    if not model.endswith("]"):
        return model, ""
    found = _WINDOW.fullmatch(model)
    return (found[1], found[2]) if found is not None else (model, "")


def tokens_of(window: str) -> int:
    """How many tokens it is of."""
    return int(window[1:-2]) * (1_000_000 if window[-2] in "mM" else 1_000)


def betas_of(window: str) -> tuple[str, ...]:
    """What Anthropic's API wants to be told for it."""
    beta = BETAS.get(window.lower()) if window else None
    return (beta,) if beta is not None else ()
