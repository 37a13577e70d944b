"""What each type of provider brings, and what it has to say beside its endpoint and key."""

from __future__ import annotations

import re

from arbiter.config.address import Fault
from arbiter.config.decode import join
from arbiter.config.schema import Provider

WIRES = {
    "openai": "openai-chat",
    "azure": "openai-chat",
    "openrouter": "openai-chat",
    "ollama": "openai-chat",
    "anthropic": "anthropic-messages",
    "gemini": "google-gemini",
    "echo": "any",
}
"""The format that it speaks."""

HEADERS_S = {"anthropic": 120.0}
"""How long a stream's headers are waited for, where that is not a minute (SPEC 3.3)."""

_VERSION = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:-[a-z]{1,16})?")


def check(written: Provider, path: str, error: Fault) -> None:
    """Errors: what `error(path, message)` makes, where a key is not for this type, or cannot be."""
    if written.api_version is not None:
        here = join(path, "api_version")
        if written.type != "azure":
            raise error(here, f"only azure has versions; {written.type} has none")
        if not _VERSION.fullmatch(written.api_version):
            raise error(here, "expected a version like 2024-10-21 or 2025-04-01-preview")
