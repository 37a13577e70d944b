"""Which Claude a target is, where Anthropic's signatures are good at more than one place.

Thinking that a Claude signed is taken wherever that model is served by Anthropic or in its name: at its own API, in
Amazon Bedrock, in Vertex AI and in Azure Foundry. Each calls the model something else, and so do regions, versions and
profiles. A server of the same format at any other base URL (a proxy, another vendor's model) signs for itself.

Source: Anthropic, "Extended thinking" (signatures are compatible across platforms), 2026-11.
"""

from __future__ import annotations

import re
from functools import lru_cache

from arbiter.accounting.model_names import spellings
from arbiter.routing.plan import Rung
from arbiter.wire import bedrock_converse
from arbiter.wire.dialects import dialect_of
from arbiter.wire.messages_models import abilities_of
from arbiter.wire.native import MESSAGES

_PLATFORMS = frozenset(("azure", "bedrock", "vertex"))
"""The types of provider that are others' clouds with Anthropic's own models."""
_NAME = re.compile(r"claude(?:-[0-9]{1,2}){0,2}-[a-z]+(?:-[0-9]{1,2}){0,2}(?:-preview)?")


def claude_of(rung: Rung) -> str | None:
    """Return Anthropic's name for the model without its date, the same at each of its homes; None where the target is
    none of them, or nothing says which model it is (a deployment or an ARN whose id is no Claude's either)."""
    provider = rung.provider
    if rung.wire not in (MESSAGES, bedrock_converse.name):
        return None
    if provider.type not in _PLATFORMS and not provider.is_anthropics_own:
        return None
    name = _named(rung.model)
    if name is None and rung.known_as is not None and dialect_of(provider).names_its_own:
        return _named(rung.known_as)
    return name


@lru_cache(maxsize=1024)
def _named(model: str) -> str | None:
    # A path's end is the name: `anthropic/…`, `publishers/anthropic/models/…`, `arn:aws:…:inference-profile/…`.
    *_, bare = spellings(model.lower().rpartition("/")[2])
    name = bare.replace(".", "-").removesuffix("-0")  # `claude-sonnet-4-0` is Anthropic's alias of Sonnet 4
    return name if _NAME.fullmatch(name) and abilities_of(name) is not None else None
