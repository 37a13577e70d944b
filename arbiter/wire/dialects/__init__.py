"""What the types of provider do differently around a format: one small module each, and none elsewhere.

A provider's type says which server it is, its format what is said there. Between the two stands a dialect: where a call
goes, how the key is shown, which members every body has. A type without a module of its own is the plain `Dialect`.
What differs by the *model* is none of this: `openai_models`, `messages_models` have it.
"""

from __future__ import annotations

from arbiter.config.snapshot import Provider
from arbiter.wire.dialects.azure import Azure
from arbiter.wire.dialects.bedrock import Bedrock
from arbiter.wire.dialects.dialect import Changes, Dialect
from arbiter.wire.dialects.openrouter import OpenRouter
from arbiter.wire.dialects.vertex import Vertex

__all__ = ["DIALECTS", "Changes", "Dialect", "dialect_of"]

PLAIN = Dialect()
DIALECTS: dict[str, Dialect] = {
    "azure": Azure(),
    "bedrock": Bedrock(),
    "openrouter": OpenRouter(),
    "vertex": Vertex(),
}


def dialect_of(provider: Provider) -> Dialect:
    """Return the dialect of a provider's type."""
    return DIALECTS.get(provider.type, PLAIN)
