"""Whose a signature of reasoning is, once it left the format that it was made in.

A signature proves a thought to whoever made it, and to nobody else: Anthropic and Google each refuse the other's.
Between formats, Anthropic's stand as they are, and another format's have its name in front, so that a client of
Messages hands back `gemini#CiQB…` in a block of thinking, and it is known whose that is without anybody having
remembered it. (Base64 has no `#`.)
"""

from __future__ import annotations

from arbiter.wire.vault import is_sealed

GEMINI = "gemini#"
MADE_ELSEWHERE = "skip_thought_signature_validator"
"""What Google takes for the signature of a call that another model made. Source: its page on thought signatures."""
ELSEWHERE = GEMINI + MADE_ELSEWHERE
"""The same as it stands in the model."""


def is_anthropics(signature: str | None) -> bool:
    """Whether a signature may be one of Anthropic's own, for all that can be seen."""
    return signature is not None and signature != "" and not is_sealed(signature) and not is_foreign(signature)


def is_foreign(signature: str) -> bool:
    """Whether a signature is of another format than Anthropic's."""
    return "#" in signature


def tagged(signature: str) -> str:
    """Return a signature of Google's as it stands in the model."""
    return GEMINI + signature


def googles(signature: str | None) -> str | None:
    """Return a signature of the model's as Google made it; None where somebody else did."""
    return signature.removeprefix(GEMINI) if signature is not None and signature.startswith(GEMINI) else None
