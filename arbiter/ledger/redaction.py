"""What must not be kept: credentials in texts and headers, taken out before anything is written down (SPEC 7.8).

A text is searched for the few literals that credentials begin with, which costs little; only around those that it holds
do regular expressions run. Patterns of the operator's own see a text in overlapping windows: what one costs is then
proportional to the text, whatever it is made of.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from arbiter.log import Blotter

MASK = "***"
WINDOW, OVERLAP = 1024, 256  # characters; a longer match of a configured pattern may be missed

_BEARER = r"([Bb]earer|BEARER)(\s+)(?:(?=[A-Za-z._~+/=-]*[0-9])[A-Za-z0-9._~+/=-]{10,}|[A-Za-z0-9._~+/=-]{24,})"

_SHAPES: tuple[tuple[tuple[str, ...], str], ...] = (
    # (literals one of which is in every match, the expression). Vendors publish these for secret scanners.
    (("sk-",), r"sk-[A-Za-z0-9_-]{16,}"),  # OpenAI, Anthropic, OpenRouter, DeepSeek, ...
    (("arb-",), r"arb-[A-Za-z0-9_-]{16,}"),  # our own clients'
    (("sk_live_", "sk_test_", "rk_live_", "rk_test_"), r"[sr]k_(?:live|test)_[A-Za-z0-9]{16,}"),
    (("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"gh[pousr]_[A-Za-z0-9]{20,}"),
    (("github_pat_",), r"github_pat_[A-Za-z0-9_]{20,}"),
    (("glpat-",), r"glpat-[A-Za-z0-9_-]{16,}"),
    (("AKIA", "ASIA"), r"A[KS]IA[A-Z0-9]{16}"),
    (("xox",), r"xox[abeoprs]-[A-Za-z0-9-]{10,}"),
    (("xapp-",), r"xapp-[A-Za-z0-9-]{10,}"),
    (("AIza",), r"AIza[A-Za-z0-9_-]{30,}"),
    (("ya29.",), r"ya29\.[A-Za-z0-9_-]{20,}"),
    (("GOCSPX-",), r"GOCSPX-[A-Za-z0-9_-]{20,}"),
    (("gsk_",), r"gsk_[A-Za-z0-9]{20,}"),
    (("xai-",), r"xai-[A-Za-z0-9]{20,}"),
    (("hf_",), r"hf_[A-Za-z0-9]{20,}"),
    (("npm_",), r"npm_[A-Za-z0-9]{30,}"),
    (("pypi-",), r"pypi-[A-Za-z0-9_-]{40,}"),
    (("eyJ",), r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),
    (("PRIVATE KEY-----",), r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)"),
)
_KEPT: tuple[tuple[tuple[str, ...], str, str], ...] = (
    # The same, with what of the match is kept.
    (("Bearer", "bearer", "BEARER"), _BEARER, r"\1\2***"),
    (("://",), r"(://[^\s/?#:@\"'<>\\]{0,256}:)[^\s/?#@\"'<>\\]{1,256}(?=@)", r"\1***"),
    (
        ("aws_secret_access_key", "AWS_SECRET_ACCESS_KEY", "SecretAccessKey"),
        r"((?i:aws_secret_access_key|secretaccesskey)[\"'\\\s]{0,8}[=:][\"'\\\s]{0,8})[A-Za-z0-9/+=]{30,}",
        r"\1***",
    ),
)

_CREDENTIAL_NAMES = ("authorization", "cookie", "token", "secret", "key", "password", "credential", "signature")
_NO_CREDENTIALS = ("x-ratelimit-", "anthropic-ratelimit-", "ratelimit")
"""Names that speak of tokens and mean numbers."""


class Redactor:
    """Takes secrets out. `secrets` are the gateway's own, `patterns` what the operator adds."""

    def __init__(self, secrets: Iterable[str] = (), patterns: Iterable[str] = ()) -> None:
        self._blot = Blotter(secrets)
        self._patterns = [re.compile(pattern) for pattern in patterns]

    def suspects(self, raw: bytes) -> bool:
        """Whether the JSON text `raw` may hold something to take out; False is certain of texts without odd escapes."""
        if self._patterns or b"\\u" in raw or b"\\/" in raw:
            return True
        return any(literal in raw for literal in _LITERALS) or self._blot.raw(raw) != raw

    def __call__(self, text: str) -> str:
        """`text` with a mask for each secret; the very same where it holds none."""
        text = self._blot(text)
        for literals, pattern, kept in _COMPILED:
            if any(literal in text for literal in literals):
                text = pattern.sub(MASK if kept is None else kept, text)
        for pattern in self._patterns:
            text = _without(pattern, text)
        return text

    def headers(self, fields: Mapping[str, str]) -> dict[str, str]:
        """Headers as they may be kept: the values of credential-shaped names are masked whole."""
        return {name: MASK if is_credential(name) else self(value) for name, value in fields.items()}


def is_opaque(name: str, beside: Mapping[str, Any]) -> bool:
    """Whether a member is one whose text belongs to somebody else: an id, a signature, what only its maker can read.

    Changed it would be refused, and it says nothing to a reader. `beside` is the object that holds it.
    """
    if name in ("encrypted_content", "thought_signature"):
        return True
    kind = beside.get("type")
    if not isinstance(kind, str):
        return name == "tool_call_id" and beside.get("role") == "tool"
    if name == "signature":
        return is_signed(beside)
    if name == "data":
        return kind in ("redacted_thinking", "reasoning.encrypted")
    if name == "id":
        return kind in ("function", "reasoning", "custom") or kind.endswith(("tool_use", "_call"))
    return (name == "tool_use_id" and kind.endswith("tool_result")) or (
        name == "call_id" and kind.endswith(("_call", "_call_output"))
    )


def is_signed(value: Mapping[str, Any]) -> bool:
    """Whether an object is thinking that its maker has signed."""
    kind = value.get("type")
    return "signature" in value and isinstance(kind, str) and (kind == "thinking" or kind.startswith("reasoning"))


def is_credential(name: str) -> bool:
    """Whether a header of this name is likely to hold a credential."""
    lower = name.lower()
    return any(word in lower for word in _CREDENTIAL_NAMES) and not lower.startswith(_NO_CREDENTIALS)


def _starts(pattern: str) -> str:
    """The pattern where a word begins: at a boundary, or behind an escape of JSON that is text within text."""
    return rf"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrtbf])|(?<=\\u00[0-9a-fA-F][0-9a-fA-F])){pattern}"


_COMPILED: Sequence[tuple[tuple[str, ...], re.Pattern[str], str | None]] = (
    *((literals, re.compile(_starts(pattern)), None) for literals, pattern in _SHAPES),
    *((literals, re.compile(pattern), kept) for literals, pattern, kept in _KEPT),
)
_LITERALS = tuple(literal.encode() for literals, _, _ in _COMPILED for literal in literals)


def _without(pattern: re.Pattern[str], text: str) -> str:
    if len(text) <= WINDOW + OVERLAP:
        return pattern.sub(MASK, text)
    spans: list[tuple[int, int]] = []
    for start in range(0, len(text), WINDOW):
        spans += [match.span() for match in pattern.finditer(text, start, start + WINDOW + OVERLAP)]
    if not spans:
        return text
    spans.sort()
    out, at = [], 0
    for start, end in spans:
        if start >= at:
            out += [text[at:start], MASK]
        at = max(at, end)
    return "".join((*out, text[at:]))
